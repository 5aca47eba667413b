/* A table of where runs are, for `trainer top`. Not collective. */
#ifndef TR_REPORT_TOP_H
#define TR_REPORT_TOP_H

#include "report/record/runs.h"
#include "base/str.h"

/* Appends lines of at most `columns` (0: no limit): columns of the table that do not fit are left
 * out. At most `rows` runs (0: all): runs that have not ended come first, then those that wrote last. */
tr_status_t tr_top(const tr_runs_t *runs, int columns, int rows, tr_str_t *out);

#endif
