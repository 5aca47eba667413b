/* `trainer report`: reads run folders, compares them and writes a folder with the results. Not
 * collective; needs no MPI. */
#ifndef TR_REPORT_RUNS_REPORT_H
#define TR_REPORT_RUNS_REPORT_H

#include "trainer/status.h"
#include <stddef.h>

typedef struct {
    char *const *runs; /* run folders, folders that hold some, and files, which are left out */
    size_t count;
    const char *out;       /* folder; it is created, and files of an earlier report are replaced */
    const char *predicted; /* JSON of `trainer plan --nodes ... --json`; NULL: none */
    const char *version;   /* of this program */
} tr_runs_report_settings_t;

/* Writes index.html, scaling.csv and summary.json. TR_ERR_NOINPUT: a path or the prediction is
 * missing, or there is no run. TR_ERR_DATA: a file in it cannot be read, or the runs cannot be compared.
 * TR_ERR_USAGE: `out` is a run folder. */
tr_status_t tr_runs_report(const tr_runs_report_settings_t *settings);

#endif
