/*
 * Runs in groups that differ only in the seed (or fold), ranked by one figure. Not collective.
 *
 * A figure is a number of metrics.jsonl or summary.json: of validations the best, of training lines
 * the last (samples_per_sec: the mean after the warm-up), else that of the summary. A group has the
 * mean and the sample standard deviation of its runs that are done; if none is, of all.
 */
#ifndef TR_REPORT_COMPARISON_H
#define TR_REPORT_COMPARISON_H

#include "report/record/run_state.h"
#include "base/mem.h"
#include "base/str.h"

enum { TR_FIGURES = 16 };

/* One run. NaN: unknown. */
typedef struct {
    const tr_record_t *record;
    tr_run_state_t state;
    double figure[TR_FIGURES];
    double best_step;       /* of figure 0, if it is of validations */
    double steps, of_steps; /* done, in total */
    double sec;             /* of all sessions */
    json_t *learned;        /* what the checkpoint knows of the data; may be NULL */
    size_t group;
} tr_entry_t;

typedef struct {
    TR_VEC(size_t) runs; /* indexes of entries */
    int counted;         /* runs whose figures count */
    double mean[TR_FIGURES], deviation[TR_FIGURES];
} tr_group_t;

typedef struct {
    TR_VEC(tr_entry_t) entries;
    TR_VEC(tr_group_t) groups;  /* best first; those without figure 0 last */
    TR_VEC(const char *) keys;  /* configuration keys that differ between the groups; borrowed */
    TR_VEC(const char *) seeds; /* those that differ only within groups */
    const char *figure[TR_FIGURES]; /* their names; borrowed. If is_ranked, 0 ranks */
    int figures;
    bool is_ranked;
    bool is_up;      /* more is better */
    bool has_losses; /* the losses can be compared */
    char note[1024]; /* sentences: how they are ranked */
} tr_comparison_t;

/* Compares by the figure `by`; NULL: by the validation loss, else what can be compared. If nothing
 * can, is_strict decides between TR_ERR_DATA and a comparison without a rank. TR_ERR_USAGE: there
 * is no such figure. The records must outlive `out`. */
tr_status_t tr_comparison_make(const tr_record_t *records, size_t count, const char *by,
                               bool is_strict, tr_comparison_t *out);
void tr_comparison_free(tr_comparison_t *comparison);

/* Whether the figures of a run of the group count. */
bool tr_group_counts(const tr_comparison_t *comparison, const tr_group_t *group,
                     const tr_entry_t *entry);
/* Whether the figure is of validations. */
bool tr_comparison_is_valid(const tr_comparison_t *comparison, const char *figure);
/* The name of a key without its section, if no other key of the comparison has it. */
const char *tr_comparison_short(const tr_comparison_t *comparison, const char *key);
/* Appends the value of a key, short: 3e-4. */
void tr_comparison_value(const tr_comparison_t *comparison, const tr_entry_t *entry,
                         const char *key, tr_str_t *out);

#endif
