/* index.html: one page without scripts or external resources. Not collective. */
#ifndef TR_REPORT_PAGE_H
#define TR_REPORT_PAGE_H

#include "report/compare/comparison.h"
#include "plot.h"
#include "report/scaling/sweep.h"

/* Points of a curve, by step. */
typedef struct {
    double *x, *y;      /* [count] */
    double *low, *high; /* [count]: the extremes where a point is the mean of several lines */
    size_t count;
    size_t lines; /* of a point, at most */
} tr_curve_t;
/* The number `key` of rows of lines, at most a few hundred points: means of neighbours. Free the
 * curve, also after an error. TR_ERR_MEMORY. */
tr_status_t tr_page_curve(const tr_rows_t *lines, const char *key, tr_curve_t *out);
void tr_page_curve_free(tr_curve_t *curve);
/* Logarithmic for curves that span more than a decade. */
tr_svg_scale_t tr_page_scale(const tr_svg_series_t *series, size_t count);
/* The plot of one run that draws a number, and the title of its curve; NULL: none does. */
const tr_plot_t *tr_page_plot_of(const char *key, const char **out_title);

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

/* The head of a page and its first heading, with the state of a run; NULL: none. refresh_sec: it is
 * loaded again after this time; 0: never. */
void tr_page_head(const char *title, const char *state, bool is_bad, int refresh_sec,
                  tr_str_t *out);
/* run.name, else the name of the folder. Borrowed. */
const char *tr_page_title(const tr_record_t *record);
/* Appends the word "measured", "replay" or "predicted" in its colour. */
void tr_page_kind(tr_kind_t kind, tr_str_t *out);
/* Parts of the page. tr_page_run: the section of one run, with its plots, below its title.
 * tr_page_results: its scores and its speed; tr_page_step_times: facts of a list, of its steps. */
void tr_page_run(const tr_record_t *record, tr_str_t *out);
void tr_page_results(const tr_record_t *record, tr_str_t *out);
void tr_page_step_times(const tr_record_t *record, tr_str_t *out);
/* Asks for the numbers that the plots show. */
void tr_page_ask(tr_asked_t *asked);
void tr_page_plots(const tr_record_t *record, tr_str_t *out);
/* Pictures of samples of the validation; nothing if the run has none. */
void tr_page_strip(const tr_record_t *record, tr_str_t *out);
void tr_page_compare(const tr_study_t *study, tr_str_t *out);
void tr_page_sweep(const tr_sweep_t *sweep, tr_str_t *out);

#endif
