/*
 * What the executor needs of other ranks: a table that `comm` fills with MPI and the CUDA library with NCCL.
 *
 * Collective: every rank of the group makes the same calls in the same order with the same counts and types.
 * `data` is device memory; the call is ordered after all work already given to `stream`. Between start and the
 * end of the wait nobody else touches the range.
 */
#ifndef TRAINER_COLLECTIVES_H
#define TRAINER_COLLECTIVES_H

#include "trainer/device.h"

typedef struct tr_collectives tr_collectives_t;
typedef int64_t tr_ticket_t; /* of a started collective, counted from 1 */

typedef struct {
    /* Starts an in-place sum over all ranks of `count` elements (F32, F64, I64). */
    tr_status_t (*allreduce_start)(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                                   tr_stream_t *stream, tr_ticket_t *out);
    /* Work given to `stream` after this sees the result of `ticket` and of all before it. */
    tr_status_t (*wait)(tr_collectives_t *c, tr_ticket_t ticket, tr_stream_t *stream);
    /* Lets started collectives move on; called between ops by the executor. Cheap where nothing is pending. */
    tr_status_t (*progress)(tr_collectives_t *c);
    /* In place from `root`; returns when done. */
    tr_status_t (*broadcast)(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype, int root,
                             tr_stream_t *stream);
    /* Blocking point to point on device memory, for the fixed reduction tree. */
    tr_status_t (*send)(tr_collectives_t *c, const void *data, int64_t count, tr_dtype_t dtype, int to,
                        tr_stream_t *stream);
    tr_status_t (*receive)(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype, int from,
                           tr_stream_t *stream);
} tr_collectives_ops_t;

struct tr_collectives {
    const tr_collectives_ops_t *ops;
    int rank, size;
    /* statistics since the caller last zeroed them */
    double exposed_sec; /* time that waits blocked */
    /* time from start to completion, summed over collectives, overlap between them counted once */
    double busy_sec;
    int64_t bytes, calls;
};

#endif
