/* The runs that a command names. Not collective. */
#ifndef TR_REPORT_RUNS_H
#define TR_REPORT_RUNS_H

#include "record.h"
#include "base/mem.h"

typedef struct {
    tr_asked_t asked; /* what is read of each */
    TR_VEC(tr_record_t) records;
    TR_VEC(char *) paths; /* of the records found in a folder; owned */
} tr_runs_t;

/* Reads run folders and the runs in other folders. A run that is named twice counts once. Folders of
 * reports, and files, are left out with a warning. TR_ERR_NOINPUT: a path is missing, or there is no
 * run. TR_ERR_DATA: see tr_record_read. `paths` must outlive `out`; tr_runs_free it. */
tr_status_t tr_runs_read(char *const *paths, size_t count, const tr_asked_t *asked, tr_runs_t *out);
/* Gives runs of the same name that of their folder too, sweep/001. TR_ERR_MEMORY. */
tr_status_t tr_runs_tell_apart(tr_runs_t *runs);
void tr_runs_free(tr_runs_t *runs);

#endif
