/* Writes elements and cells of HTML. */
#include "html.h"

#include <math.h>
#include <string.h>

void tr_html_text(tr_str_t *out, const char *text) {
    for (; *text; text++) {
        const unsigned char c = (unsigned char)*text;
        if (strchr("&<>\"'", c) || (c < ' ' && c != '\n') || c == 127)
            tr_str_printf(out, c < ' ' || c == 127 ? "&#xFFFD;" : "&#%d;", c);
        else
            tr_str_append_bytes(out, text, 1);
    }
}

void tr_html_element(tr_str_t *out, const char *element, const char *text) {
    tr_str_printf(out, "<%s>", element);
    tr_html_text(out, text);
    tr_str_printf(out, "</%.*s>\n", (int)strcspn(element, " "), element);
}

void tr_html_fact(tr_str_t *out, const char *name, const char *value) {
    tr_str_append(out, "<div>");
    tr_html_element(out, "dt", name);
    tr_html_element(out, "dd", value);
    tr_str_append(out, "</div>\n");
}

void tr_html_fact_number(tr_str_t *out, const char *name, const char *format, double value) {
    char text[64];
    if (!isfinite(value)) return;
    tr_snprintf(text, sizeof text, format, value);
    tr_html_fact(out, name, text);
}

void tr_html_number(tr_str_t *out, double value, int decimals) {
    const double rounds_to_0 = 0.5 * pow(10, -decimals);
    if (isfinite(value))
        tr_str_printf(out, "<td>%.*f</td>", decimals, fabs(value) < rounds_to_0 ? 0 : value);
    else
        tr_str_append(out, "<td>-</td>");
}

void tr_html_count(tr_str_t *out, int64_t value) {
    if (value)
        tr_str_printf(out, "<td>%lld</td>", (long long)value);
    else
        tr_str_append(out, "<td>-</td>");
}

void tr_html_percent(tr_str_t *out, double fraction) {
    if (isfinite(fraction))
        tr_str_printf(out, "<td>%.1f&nbsp;%%</td>", 100 * fraction);
    else
        tr_str_append(out, "<td>-</td>");
}

void tr_html_table(tr_str_t *out, const char *titles) {
    tr_str_append(out, "<table><tr>");
    while (*titles) {
        const bool is_text = *titles == '<';
        titles += is_text;
        const size_t bytes = strcspn(titles, "|");
        tr_str_printf(out, "<th%s>%.*s</th>", is_text ? " class=\"text\"" : "", (int)bytes, titles);
        titles += bytes + (titles[bytes] == '|');
    }
    tr_str_append(out, "</tr>\n");
}
