/* The data of a session. Private to src/session. */
#ifndef TR_SESSION_OPEN_DATA_H
#define TR_SESSION_OPEN_DATA_H

#include "session.h"

/* Opens the splits that the session needs, and sets s->info. Not collective. */
tr_status_t tr_session_open_data(tr_session_t *s);
/* Sets what missing values of the open data sets become, as set_fill in trainer/data.h. */
tr_status_t tr_session_set_fill(const tr_session_t *s, const tr_floats_t *mean);
/* Sets s->preprocess: rank 0 resolves it, the others receive it. Collective if there is a world. */
tr_status_t tr_session_open_preprocess(tr_session_t *s);
/* Checks that all ranks have the same data and kind of device. Copies of a file on local disks of
 * the nodes may differ; ranks would then do different numbers of steps and wait forever.
 * Collective. */
tr_status_t tr_session_check_alike(const tr_session_t *s);

#endif
