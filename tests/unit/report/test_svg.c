/* Charts: axes, and several in one image. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "report/svg.h"
#include <math.h>
#include <string.h>

static void draw(double first, double second, bool is_log) {
    const double x[] = {1, 2}, y[] = {first, second};
    const tr_svg_series_t series = {"loss", "#000000", x, y, 2, false};
    const tr_svg_chart_t chart = {"step", "loss", NAN, NAN, is_log, false};
    tr_str_t out = {0};
    tr_svg_draw(&chart, &series, 1, &out);
    OK(out.status);
    assert_in_range(out.length, 200, 8000);
    assert_non_null(strstr(out.text, "</svg>"));
    tr_str_free(&out);
}

static void axes_of_any_values_end(void **state) {
    (void)state;
    draw(1e-2, 1e-10, true);
    draw(1e-300, 1e300, true);
    draw(0.1, nextafter(0.1, 1), false);
    draw(1e15, 1e15 + 1, false);
    draw(-1e-12, 1e-12, false);
    draw(0, 0, false);
}

static int count_of(const char *text, const char *word) {
    int count = 0;
    for (const char *at = text; (at = strstr(at, word)); at += strlen(word)) count++;
    return count;
}

/* Sizes from 64 to 512 are marked at 64, 128, 256 and 512; 0 cannot be drawn. */
static void a_logarithmic_x_axis_is_marked_at_powers_of_2(void **state) {
    (void)state;
    const double x[] = {0, 64, 512}, y[] = {1, 2, 3};
    const tr_svg_series_t series = {"rate", "#000000", x, y, 3, false};
    const tr_svg_chart_t chart = {"size", "rate", 0, NAN, false, true};
    tr_str_t out = {0};
    tr_svg_draw(&chart, &series, 1, &out);
    OK(out.status);
    assert_non_null(strstr(out.text, ">128</text>"));
    assert_non_null(strstr(out.text, ">512</text>"));
    assert_null(strstr(out.text, ">100</text>"));
    assert_int_equal(count_of(out.text, "<circle"), 2);
    tr_str_free(&out);
}

static void charts_are_stacked_in_one_image(void **state) {
    (void)state;
    const double x[] = {1, 2}, y[] = {1, 2};
    const tr_svg_series_t series = {"loss", "#000000", x, y, 2, false};
    const tr_svg_chart_t chart = {"step", "loss", NAN, NAN, false, false};
    tr_str_t charts[2] = {{0}}, out = {0};
    for (int i = 0; i < 2; i++) tr_svg_draw(&chart, &series, 1, &charts[i]);
    tr_svg_stack(charts, 2, &out);
    OK(out.status);
    assert_int_equal(count_of(out.text, "<svg"), 3);
    assert_int_equal(count_of(out.text, "</svg>"), 3);
    assert_non_null(strstr(out.text, "height='600'"));
    for (int i = 0; i < 2; i++) tr_str_free(&charts[i]);
    tr_str_free(&out);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(axes_of_any_values_end),
        cmocka_unit_test(a_logarithmic_x_axis_is_marked_at_powers_of_2),
        cmocka_unit_test(charts_are_stacked_in_one_image)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
