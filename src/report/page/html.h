/* HTML output. Not collective. */
#ifndef TR_REPORT_HTML_H
#define TR_REPORT_HTML_H

#include "base/str.h"

/* Appends text with markup and control characters escaped. */
void tr_html_text(tr_str_t *out, const char *text);
/* <ELEMENT>text</ELEMENT>, escaped. */
void tr_html_element(tr_str_t *out, const char *element, const char *text);
/* A fact of a list of facts, <dl>. Of a number, by a format of one double, if it is finite. */
void tr_html_fact(tr_str_t *out, const char *name, const char *value);
void tr_html_fact_number(tr_str_t *out, const char *name, const char *format, double value);
/* A cell with a number; "-" if it is not finite. */
void tr_html_number(tr_str_t *out, double value, int decimals);
/* A cell with a whole number; "-" if it is 0: unknown. */
void tr_html_count(tr_str_t *out, int64_t value);
/* A fraction as percent. */
void tr_html_percent(tr_str_t *out, double fraction);
/* <table> with its head: titles separated by |; one behind < is of a column of text. The caller appends rows and </table>. */
void tr_html_table(tr_str_t *out, const char *titles);

#endif
