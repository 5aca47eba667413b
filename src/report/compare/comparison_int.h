/* The parts of tr_comparison_make. Private to src/report. */
#ifndef TR_REPORT_COMPARISON_INT_H
#define TR_REPORT_COMPARISON_INT_H

#include "comparison.h"

/* Whether the configurations agree about a key. Older versions lack some: those agree. */
bool tr_entry_is_equal(const tr_entry_t *a, const tr_entry_t *b, const char *key);
/* A figure of a run; NaN: it has none. *out_step: of the best validation; NaN for other figures. */
double tr_record_figure(const tr_record_t *record, const char *key, double *out_step);
/* Whether any run has the figure. */
bool tr_comparison_has(const tr_comparison_t *comparison, const char *figure);
/* Sets figure 0, is_up, has_losses and note, as tr_comparison_make says. */
tr_status_t tr_comparison_choose(tr_comparison_t *comparison, const char *by, bool is_strict);

#endif
