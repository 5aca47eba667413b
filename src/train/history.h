/* The lines that training writes to sessions.jsonl. Private to src/train. */
#ifndef TR_TRAIN_HISTORY_H
#define TR_TRAIN_HISTORY_H

#include "loop_int.h"

/* Gathers the host names of all ranks on rank 0. Collective. */
tr_status_t tr_history_hosts(loop_t *l);
/* Reads the number of earlier starts of the run and the duration of their checkpoints. Rank 0. */
tr_status_t tr_history_open(loop_t *l);
/* Write the line for this start of the program, and for its end with `status`. Write errors are
 * warnings. Rank 0. */
void tr_history_begin(loop_t *l);
void tr_history_end(loop_t *l, tr_status_t status);
/* After the error `status`: if it is a fault of this node, writes its line and the verdict. Returns
 * `status`, or TR_ERR_INTERNAL for the error of CUDA that another node had at the same step: the
 * program may cause it. has_begun: the error is of a step, not of the start. Any rank, not
 * collective; but where replicas differ, which is the error of all ranks, rank 0 reads the earlier
 * faults and writes for all, collective. */
tr_status_t tr_history_fault(loop_t *l, tr_status_t status, bool has_begun);

#endif
