/* Pictures of samples of the validation (samples.json): input, target, prediction. */
#include "data/images/image.h"
#include "html.h"
#include "page.h"

#include <math.h>
#include <string.h>

enum { LEGEND_CLASSES = 32 };

/* A picture from `sample`, with a line below it. */
static void strip_append_picture(const json_t *sample, const char *key, const char *line,
                                 tr_str_t *out) {
    const char *png = json_string_value(json_object_get(sample, key));
    tr_str_append(out, "<figure style=\"margin: 0\"><img width=\"144\" alt=\"");
    tr_html_text(out, line);
    tr_str_append(out, "\" style=\"display: block; image-rendering: pixelated\" "
                       "src=\"data:image/png;base64,");
    tr_html_text(out, png ? png : "");
    tr_str_append(out, "\">");
    tr_html_element(out, "figcaption class=\"note\"", line);
    tr_str_append(out, "</figure>\n");
}

static void strip_append_sample(const json_t *sample, tr_str_t *out) {
    const double black = tr_json_number(sample, "black"), white = tr_json_number(sample, "white");
    char line[96];
    tr_str_append(out, "<div style=\"display: flex; gap: 6px\">\n");
    tr_snprintf(line, sizeof line, "input, sample %.0f", tr_json_number(sample, "sample"));
    strip_append_picture(sample, "input", line, out);
    strcpy(line, "target");
    if (isfinite(black)) tr_snprintf(line, sizeof line, "target, %.3g to %.3g", black, white);
    strip_append_picture(sample, "target", line, out);
    strip_append_picture(sample, "prediction", "prediction", out);
    tr_str_append(out, "</div>\n");
}

static void strip_append_colour(int class, const char *name, tr_str_t *out) {
    uint8_t rgb[3];
    tr_class_colour(class, rgb);
    tr_str_printf(out,
                  "<span style=\"white-space: nowrap\"><span style=\"display: inline-block; width: "
                  "1em; height: 1em; vertical-align: -.15em; border: 1px solid var(--quiet); "
                  "background: rgb(%d, %d, %d)\"></span> ",
                  rgb[0], rgb[1], rgb[2]);
    tr_html_text(out, name);
    tr_str_append(out, "</span>&ensp; \n");
}

static void strip_append_legend(const json_t *pictures, tr_str_t *out) {
    const json_t *names = json_object_get(pictures, "class_names");
    const double count = tr_json_number(pictures, "classes"); /* NaN: there are none */
    const int classes = count >= 0 ? (int)count : -1,
              shown = classes < LEGEND_CLASSES ? classes : LEGEND_CLASSES;
    const bool has_none = json_is_true(json_object_get(pictures, "unlabelled"));
    char number[64];
    if (classes < 0 || (classes == 0 && !has_none)) return;
    tr_str_append(out, "<p class=\"kinds\">");
    for (int class = 0; class < shown; class ++) {
        const char *name = json_string_value(json_array_get(names, (size_t) class));
        tr_snprintf(number, sizeof number, "%d", class);
        strip_append_colour(class, name ? name : number, out);
    }
    if (has_none)
        strip_append_colour(classes > 0 ? TR_CLASS_NONE : TR_VALUE_NONE,
                            classes > 0 ? "no label" : "no value", out);
    if (shown < classes) tr_str_printf(out, "and %d more", classes - shown);
    tr_str_append(out, "</p>\n");
}

void tr_page_strip(const tr_record_t *r, tr_str_t *out) {
    const json_t *samples = json_object_get(r->pictures, "samples"), *sample;
    char title[96];
    size_t i;
    if (json_array_size(samples) == 0) return;
    tr_snprintf(title, sizeof title, "Samples of the validation after step %.0f",
                tr_json_number(r->pictures, "step"));
    tr_html_element(out, "h3", title);
    tr_str_append(out, "<div style=\"display: flex; flex-wrap: wrap; gap: 1em 2em\">\n");
    json_array_foreach(samples, i, sample) strip_append_sample(sample, out);
    tr_str_append(out, "</div>\n");
    strip_append_legend(r->pictures, out);
}
