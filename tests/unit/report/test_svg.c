/* Charts: axes, series, text of any kind, colours, and several in one file. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "report/page/plot.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The text of one chart; "" if nothing is drawn. */
static char drawn[1 << 20];
static void draw(const tr_svg_chart_t *chart, const tr_svg_series_t *series, size_t count) {
    tr_str_t out = {0};
    tr_svg_draw(chart, series, count, &out);
    OK(out.status);
    assert_in_range(out.length, 0, sizeof drawn - 1);
    strcpy(drawn, out.text ? out.text : "");
    tr_str_free(&out);
}

static int count_of(const char *text, const char *word) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word)) count++;
    return count;
}

/* The attribute behind the nth place of `element`. */
static double attribute(const char *element, int nth, const char *name) {
    const char *at = drawn;
    for (int i = 0; i <= nth; i++) at = strstr(i ? at + 1 : at, element);
    at = strstr(at, name);
    assert_non_null(at);
    return atof(at + strlen(name));
}

/* The highest pixel of the chart. */
static double top_of(void) {
    return atof(strchr(strstr(strstr(drawn, "class='frame'"), "d='M"), ' '));
}

#define LINE(x_, y_, n)                                                                            \
    (tr_svg_series_t) {                                                                            \
        .title = "loss", .role = TR_SHOWS_TRAIN, .x = x_, .y = y_, .count = n                      \
    }
static const tr_svg_chart_t plain = {.x_label = "step", .y_label = "loss"};

static void axes_of_any_values_end(void **state) {
    (void)state;
    const double values[][2] = {{1e-2, 1e-10},    {1e-300, 1e300}, {0.1, 0.1},
                                {1e15, 1e15 + 1}, {-1e-12, 1e-12}, {0, 0},
                                {1e-12, 1e12},    {-1e300, 1e300}, {3, 3}};
    for (size_t i = 0; i < sizeof values / sizeof values[0]; i++)
        for (int scale = TR_SVG_LINEAR; scale <= TR_SVG_CATEGORIES; scale++) {
            const tr_svg_chart_t chart = {.x_label = "x",
                                          .y_label = "y",
                                          .x_scale = (tr_svg_scale_t)scale,
                                          .y_scale = scale < TR_SVG_SIZES ? (tr_svg_scale_t)scale
                                                                          : TR_SVG_LINEAR};
            const double other[] = {values[i][0], nextafter(values[i][1], 1)};
            draw(&chart, &LINE(values[i], other, 2), 1);
            assert_in_range(strlen(drawn), 0, 8000);
            assert_int_equal(count_of(drawn, "nan") + count_of(drawn, "inf"), 0);
            if (values[i][0] > 0) assert_non_null(strstr(drawn, "</svg>"));
        }
}

/* 0 cannot be drawn on a logarithmic axis, and without any point there is no chart. */
static void axes_are_marked(void **state) {
    (void)state;
    const double x[] = {0, 3, 12, 48}, y[] = {1, 1, 4, 16}, none[] = {NAN, 0, -1, INFINITY};
    tr_svg_chart_t chart = plain;
    chart.x_scale = TR_SVG_SIZES;
    chart.y_scale = TR_SVG_LOG2;
    draw(&chart, &LINE(x, y, 4), 1);
    assert_non_null(strstr(drawn, ">3</text>")); /* each size, no powers of 2 */
    assert_non_null(strstr(drawn, ">48</text>"));
    assert_null(strstr(drawn, ">32</text>"));
    assert_non_null(strstr(drawn, ">8</text>"));     /* y */
    assert_int_equal(count_of(drawn, "<circle"), 4); /* one of them in the legend */
    double sizes[16]; /* near each other: every one is marked, in several rows */
    for (int i = 0; i < 16; i++) sizes[i] = 1000 + 200 * i;
    draw(&chart, &LINE(sizes, sizes, 16), 1);
    for (int i = 0; i < 16; i++) {
        char tick[32];
        snprintf(tick, sizeof tick, ">%d</text>", 1000 + 200 * i);
        assert_non_null(strstr(drawn, tick));
    }
    draw(&chart, &LINE(x, y, 4), 1);
    assert_true(fabs(attribute("<circle", 2, "cx='") - attribute("<circle", 1, "cx='") -
                     (attribute("<circle", 3, "cx='") - attribute("<circle", 2, "cx='"))) < 0.15);
    chart.y_scale = TR_SVG_LOG;
    draw(&chart, &LINE(x, y, 4), 1);
    assert_non_null(strstr(drawn, ">20</text>"));
    draw(&chart, &LINE(x, none, 4), 1);
    assert_string_equal(drawn, "");
    draw(&plain, &LINE(x, y, 0), 1);
    assert_string_equal(drawn, "");
}

static void a_point_is_where_its_numbers_say(void **state) {
    (void)state;
    const double x[] = {0, 5, 10}, y[] = {0, 5, 10};
    draw(&plain, &LINE(x, y, 3), 1);
    assert_true(attribute("<circle", 3, "cx='") == 464); /* 480 less the margin */
    assert_true(attribute("<circle", 1, "cy='") - attribute("<circle", 3, "cy='") == 200);
    assert_true(attribute("<circle", 1, "cy='") - attribute("<circle", 2, "cy='") == 100);
}

static void gaps_part_a_line(void **state) {
    (void)state;
    const double x[] = {1, 2, 3, 4, 5}, y[] = {1, 2, NAN, 3, 4};
    tr_svg_series_t line = LINE(x, y, 5);
    line.kind = TR_SVG_RULE;
    draw(&plain, &line, 1);
    const char *path = strstr(strstr(drawn, "class='frame'"), "class='line' d='");
    assert_int_equal(count_of(path, "M"), 2);
    line.is_joined = true;
    draw(&plain, &line, 1);
    path = strstr(strstr(drawn, "class='frame'"), "class='line' d='");
    assert_int_equal(count_of(path, "M"), 1);
    draw(&plain, &LINE(x, y, 1), 1); /* a single point is marked */
    assert_int_equal(count_of(drawn, "<circle"), 2);
}

/* The one outlier of a hundred thousand points stays, in a path of four points a pixel. */
static void long_lines_keep_their_extremes(void **state) {
    (void)state;
    enum { COUNT = 100000 };
    static double x[COUNT], y[COUNT];
    for (int i = 0; i < COUNT; i++) x[i] = i, y[i] = i % 2;
    y[54321] = 10;
    draw(&plain, &LINE(x, y, COUNT), 1);
    assert_in_range(strlen(drawn), 1000, 30000);
    const double top = top_of(); /* of the axis: 10 */
    char at[32];
    snprintf(at, sizeof at, " %.1fL", top);
    assert_int_equal(count_of(strstr(drawn, "class='frame'"), at), 1);
    assert_null(strstr(drawn, "<circle"));
}

static void ranges_and_stacks(void **state) {
    (void)state;
    const double x[] = {1, 2}, y[] = {4, 5}, low[] = {0, 5}, high[] = {10, 5}, more[] = {6, NAN};
    tr_svg_series_t bar = LINE(x, y, 2), band = bar;
    bar.low = band.low = low;
    bar.high = band.high = high;
    draw(&plain, &bar, 1);
    assert_int_equal(count_of(drawn, "class='error'"), 1); /* 5 to 5 has none */
    assert_true(attribute("class='error'", 0, "h8m-4 0V") == top_of());
    band.kind = TR_SVG_BAND;
    draw(&plain, &band, 1);
    assert_int_equal(count_of(drawn, "class='band' d='M"), 1);
    tr_svg_series_t stack[] = {LINE(x, y, 2), LINE(x, more, 2)};
    tr_svg_chart_t chart = plain;
    chart.x_scale = TR_SVG_CATEGORIES;
    stack[0].kind = stack[1].kind = TR_SVG_BAR;
    draw(&chart, stack, 2); /* the axis ends at 10 = 4 + 6; the second series is drawn first */
    assert_int_equal(count_of(drawn, "<rect class='area'"), 3 + 2);
    const char *const rect = "<rect class='area'";
    assert_true(attribute(rect, 2, " y='") == top_of());
    assert_true(attribute(rect, 2, "height='") == 120 && attribute(rect, 3, "height='") == 80);
    assert_true(fabs(attribute(rect, 2, " y='") + 120 - attribute(rect, 3, " y='")) < 0.15);
    stack[0].kind = stack[1].kind = TR_SVG_COLUMN; /* 4 and 5, beside them 6; each from 0 on */
    draw(&chart, stack, 2);
    assert_true(attribute(rect, 2, " y='") + attribute(rect, 2, "height='") ==
                attribute(rect, 3, " y='") + attribute(rect, 3, "height='"));
    assert_true(fabs(attribute(rect, 2, "height='") - 1.5 * attribute(rect, 3, "height='")) < 0.15);
    assert_true(attribute(rect, 2, " x='") ==
                attribute(rect, 3, " x='") + attribute(rect, 3, "width='"));
}

static void text_of_any_kind(void **state) {
    (void)state;
    const double x[] = {1, 2};
    tr_svg_series_t line = LINE(x, x, 2);
    char name[400];
    line.title = "a<b>&'\xc3\xa9";
    draw(&plain, &line, 1);
    assert_non_null(strstr(drawn, ">a&#60;b&#62;&#38;&#39;\xc3\xa9</text>"));
    for (int i = 0; i < 199; i++) memcpy(name + 2 * i, "\xc3\xa9", 3);
    line.title = name; /* whole as its tip, and cut between characters */
    draw(&plain, &line, 1);
    assert_non_null(strstr(drawn, "\xc3\xa9\xe2\x80\xa6</text>"));
    assert_int_equal(count_of(drawn, name), 1);
    draw(&(tr_svg_chart_t){.title = "A & B", .x_label = "<", .y_label = "y"}, &line, 1);
    assert_non_null(strstr(drawn, ">A &#38; B</text>"));
    assert_null(strstr(drawn, "><<"));
}

/* -- colours ----------------------------------------------------------------------------------- */

static double luminance(const char *color) {
    double sum = 0;
    for (int i = 0; i < 3; i++) {
        const char part[] = {color[1 + 2 * i], color[2 + 2 * i], '\0'};
        const double v = (double)strtol(part, NULL, 16) / 255;
        sum += (double[]){0.2126, 0.7152, 0.0722}[i] *
               (v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4));
    }
    return sum;
}

/* By WCAG 2. */
static double contrast(const char *a, const char *b) {
    const double p = luminance(a) + 0.05, q = luminance(b) + 0.05;
    return p > q ? p / q : q / p;
}

/* By CIE 1976, of colours in L*a*b*: about 2 can just be seen side by side. */
static double difference(const char *a, const char *b) {
    double lab[2][3];
    for (int c = 0; c < 2; c++) {
        static const double to_xyz[3][3] = {{0.4124 / 0.9505, 0.3576 / 0.9505, 0.1805 / 0.9505},
                                            {0.2126, 0.7152, 0.0722},
                                            {0.0193 / 1.089, 0.1192 / 1.089, 0.9505 / 1.089}};
        double rgb[3], f[3];
        for (int i = 0; i < 3; i++) {
            const char part[] = {(c ? b : a)[1 + 2 * i], (c ? b : a)[2 + 2 * i], '\0'};
            const double v = (double)strtol(part, NULL, 16) / 255;
            rgb[i] = v <= 0.04045 ? v / 12.92 : pow((v + 0.055) / 1.055, 2.4);
        }
        for (int i = 0; i < 3; i++) {
            const double v = to_xyz[i][0] * rgb[0] + to_xyz[i][1] * rgb[1] + to_xyz[i][2] * rgb[2];
            f[i] = v > 0.008856 ? cbrt(v) : 7.787 * v + 16.0 / 116;
        }
        lab[c][0] = 116 * f[1] - 16;
        lab[c][1] = 500 * (f[0] - f[1]);
        lab[c][2] = 200 * (f[1] - f[2]);
    }
    return sqrt(pow(lab[0][0] - lab[1][0], 2) + pow(lab[0][1] - lab[1][1], 2) +
                pow(lab[0][2] - lab[1][2], 2));
}

static void colours_can_be_seen_and_told_apart(void **state) {
    (void)state;
    static const struct {
        const char *name, *light, *dark;
        int variant;
    } role[] = {
#define SVG_ROLE(NAME, class, light, dark, variant) {#class, light, dark, variant},
#include "report/page/svg_roles.def"
#undef SVG_ROLE
    };
    tr_str_t style = {0};
    tr_svg_style(&style);
    for (int i = 0; i < TR_SHOWS_COUNT; i++) {
        char rule[64];
        assert_true(contrast(role[i].light, "#ffffff") >= 3);
        assert_true(contrast(role[i].dark, "#14171a") >= 3);
        snprintf(rule, sizeof rule, ".p-%s { color: %s; }", role[i].name, role[i].dark);
        assert_non_null(strstr(strstr(style.text, "prefers-color-scheme: dark"), rule));
    }
    tr_str_free(&style);
    /* What one page shows: runs that are compared, a run, a sweep. */
    static const int page[][12] = {
        {TR_SHOWS_RUN_1, TR_SHOWS_RUN_2, TR_SHOWS_RUN_3, TR_SHOWS_RUN_4, TR_SHOWS_RUN_5,
         TR_SHOWS_RUN_6, TR_SHOWS_RUN_7, TR_SHOWS_RUN_8, -1},
        {TR_SHOWS_TRAIN, TR_SHOWS_VALID, TR_SHOWS_SCHEDULE, TR_SHOWS_MEASURED, TR_SHOWS_COMPUTE,
         TR_SHOWS_COMMUNICATION, TR_SHOWS_DATA, TR_SHOWS_CHECKPOINT, TR_SHOWS_GPU, TR_SHOWS_HOST,
         TR_SHOWS_OTHER, -1},
        {TR_SHOWS_MEASURED, TR_SHOWS_REPLAY, TR_SHOWS_PREDICTED, TR_SHOWS_IDEAL, TR_SHOWS_COMPUTE,
         TR_SHOWS_COMMUNICATION, TR_SHOWS_DATA, TR_SHOWS_CHECKPOINT, -1}};
    for (size_t p = 0; p < sizeof page / sizeof page[0]; p++)
        for (int i = 0; page[p][i] >= 0; i++)
            for (int k = 0; k < i; k++) {
                const int a = page[p][i], b = page[p][k];
                const double light = difference(role[a].light, role[b].light),
                             dark = difference(role[a].dark, role[b].dark);
                if (light < 20 || dark < 20)
                    fail_msg("%s and %s: %.1f, %.1f", role[a].name, role[b].name, light, dark);
            }
    const double x[] = {1, 2};
    tr_svg_series_t two[] = {LINE(x, x, 2), LINE(x, x, 2)};
    for (int i = 0; i < 2; i++) two[i].role = (tr_svg_role_t)(TR_SHOWS_RUN_1 + i);
    draw(&plain, two, 2); /* the second has dashes and other markers, also in the legend */
    assert_int_equal(count_of(drawn, "stroke-dasharray"), 2);
    assert_int_equal(count_of(drawn, "class='mark'"), 3);
}

/* -- files and tables -------------------------------------------------------------------------- */

static void charts_of_a_file_are_one_image(void **state) {
    (void)state;
    const double x[] = {1, 2};
    const tr_svg_series_t line = LINE(x, x, 2);
    tr_svg_t file = {0};
    tr_str_t out = {0};
    tr_svg_write(&file, true, &out);
    assert_null(out.text);
    tr_svg_add(&file, &plain, &line, 1);
    const int height = file.height;
    tr_svg_add(&file, &plain, &line, 1);
    assert_int_equal(file.height, 2 * height);
    tr_svg_write(&file, true, &out);
    OK(out.status);
    assert_int_equal(count_of(out.text, "<svg"), 1);
    assert_int_equal(count_of(out.text, "class='frame'"), 2);
    assert_int_equal(count_of(out.text, "<style>"), 1);
    tr_str_free(&out);
    tr_str_free(&file.body);
}

typedef struct {
    int size;
    double sec;
} plot_row_t;

static void a_plot_takes_the_columns_of_a_table(void **state) {
    (void)state;
    static const tr_table_column_t columns[] = {TR_COLUMN(plot_row_t, "size", NULL, INT, size),
                                                TR_COLUMN(plot_row_t, "sec", NULL, REAL, sec)};
    const tr_table_t table = TR_TABLE(columns, plot_row_t);
    const plot_row_t rows[] = {{1, 0.002}, {1, 0.004}, {2, 0.006},
                               {2, NAN},   {4, 0.010}, {4, 0.008}};
    const tr_plot_t plot = {.chart = {.x_label = "size", .y_label = "time (ms)", .from_zero = true},
                            .x = "size",
                            .scale = 1e3,
                            .curves = {{"sec"}}};
    const tr_plot_rows_t groups[] = {
        {.title = "cpu", .role = TR_SHOWS_GPU, .data = rows, .count = 3, .stride = 2},
        {.title = "cuda", .role = TR_SHOWS_TRAIN, .data = rows + 1, .count = 3, .stride = 2}};
    tr_str_t out = {0};
    tr_plot_draw(&plot, &table, groups, 2, &out);
    OK(out.status);
    strcpy(drawn, out.text);
    tr_str_free(&out);
    assert_non_null(strstr(drawn, ">10</text>")); /* ms */
    assert_non_null(strstr(drawn, ">cpu</text>"));
    assert_int_equal(count_of(drawn, "<circle"), 2 + 3 + 2);
    /* The second group is drawn first: its points of 4 and 8 ms, of 10 on 200 pixels. */
    assert_true(fabs(attribute("<circle", 2, "cy='") - attribute("<circle", 3, "cy='") - 80) <
                0.15);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(axes_of_any_values_end),
                                       cmocka_unit_test(axes_are_marked),
                                       cmocka_unit_test(a_point_is_where_its_numbers_say),
                                       cmocka_unit_test(gaps_part_a_line),
                                       cmocka_unit_test(long_lines_keep_their_extremes),
                                       cmocka_unit_test(ranges_and_stacks),
                                       cmocka_unit_test(text_of_any_kind),
                                       cmocka_unit_test(colours_can_be_seen_and_told_apart),
                                       cmocka_unit_test(charts_of_a_file_are_one_image),
                                       cmocka_unit_test(a_plot_takes_the_columns_of_a_table)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
