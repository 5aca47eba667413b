/* index.html: one page without scripts or external resources. Not collective. */
#ifndef TR_REPORT_PAGE_H
#define TR_REPORT_PAGE_H

#include "comparison.h"
#include "plot.h"
#include "sweep.h"

/* The content of a report. Borrowed. */
typedef struct {
    const tr_record_t *records;
    size_t count;
    const tr_sweeps_t *sweeps;
    const tr_comparison_t *comparison; /* leads the page; NULL: none */
    const char *version;               /* of this program */
} tr_study_t;

/* Appends the page. Fails only with TR_ERR_MEMORY. */
tr_status_t tr_page_write(const tr_study_t *study, tr_str_t *out);

/* Parts of the page. */
void tr_page_run(const tr_record_t *record, tr_plotter_t *plotter, tr_str_t *out);
void tr_page_compare(const tr_study_t *study, tr_plotter_t *plotter, tr_str_t *out);
/* Appends "STEP VALUE" lines of a number of lines of metrics, at most a few hundred: means of
 * neighbours. Returns how many. */
int tr_page_curve(const json_t *lines, const char *key, tr_str_t *out);
void tr_page_sweep(const tr_sweep_t *sweep, tr_plotter_t *plotter, tr_str_t *out);

#endif
