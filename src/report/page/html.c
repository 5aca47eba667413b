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
        const size_t bytes = strcspn(titles, "|");
        tr_str_printf(out, "<th>%.*s</th>", (int)bytes, titles);
        titles += bytes + (titles[bytes] == '|');
    }
    tr_str_append(out, "</tr>\n");
}
