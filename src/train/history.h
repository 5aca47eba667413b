/* The lines of sessions.jsonl that a training writes. Private to src/train. */
#ifndef TRAINER_HISTORY_H
#define TRAINER_HISTORY_H

#include "loop_int.h"

/* The nodes of all ranks, for rank 0. Collective. */
tr_status_t tr_history_hosts(loop_t *l);
/* Reads how many sessions there were, and how long their checkpoints took. Rank 0. */
tr_status_t tr_history_open(loop_t *l);
/* The session has been set up, or it ends with `status`; a line that cannot be written is a
 * warning. Rank 0. */
void tr_history_begin(loop_t *l);
void tr_history_end(loop_t *l, tr_status_t status);

#endif
