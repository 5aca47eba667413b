/* The table of a comparison, for a terminal, a page, CSV and JSON. Not collective. */
#ifndef TR_REPORT_COMPARISON_TABLE_H
#define TR_REPORT_COMPARISON_TABLE_H

#include "comparison.h"

/* One line for each group, in at most `columns` (0: no limit), then notes and failures. */
void tr_comparison_print(const tr_comparison_t *comparison, int columns, tr_str_t *out);
/* The same as elements of a page. has_curves: each row names the colour of its curves, which are of the
 * roles TR_SHOWS_RUN_1, ... in this order. */
void tr_comparison_html(const tr_comparison_t *comparison, bool has_curves, tr_str_t *out);
/* One row for each group, and one for each run. */
void tr_comparison_csv(const tr_comparison_t *comparison, tr_str_t *out);
/* New reference; NULL: no memory. */
json_t *tr_comparison_json(const tr_comparison_t *comparison);

#endif
