/* Broadcast, send and receive of device memory. They block and are not split into pieces. */
#include "base/clock.h"
#include "engine_int.h"

#define POINT_TAG  1
#define CALL_BYTES ((int64_t)1 << 30) /* MPI counts are ints */

typedef struct {
    MPI_Comm comm;
    char *bytes;
    int64_t count;
    int peer;
} transfer_t;

static int transfer_piece_at(const transfer_t *t, int64_t at) {
    return (int)(t->count - at < CALL_BYTES ? t->count - at : CALL_BYTES);
}

static tr_status_t transfer_run_send(MPI_Comm comm, void *arg) {
    const transfer_t *t = arg;
    for (int64_t at = 0; at < t->count; at += CALL_BYTES)
        TR_MPI(MPI_Send,
               (t->bytes + at, transfer_piece_at(t, at), MPI_BYTE, t->peer, POINT_TAG, t->comm));
    return TR_OK;
}

static tr_status_t transfer_run_receive(MPI_Comm comm, void *arg) {
    const transfer_t *t = arg;
    for (int64_t at = 0; at < t->count; at += CALL_BYTES)
        TR_MPI(MPI_Recv, (t->bytes + at, transfer_piece_at(t, at), MPI_BYTE, t->peer, POINT_TAG,
                          t->comm, MPI_STATUS_IGNORE));
    return TR_OK;
}

static tr_status_t transfer_run_broadcast(MPI_Comm comm, void *arg) {
    const transfer_t *t = arg;
    for (int64_t at = 0; at < t->count; at += CALL_BYTES)
        TR_MPI(MPI_Bcast, (t->bytes + at, transfer_piece_at(t, at), MPI_BYTE, t->peer, t->comm));
    return TR_OK;
}

/* `job` on all bytes of `data`, which is device memory. gives: it is what the other ranks get. A blocking
 * transfer is exposed for its whole duration. */
static tr_status_t transfer_move(tr_engine_t *e, void *data, int64_t count, tr_dtype_t dtype,
                                 int peer, bool gives, tr_mpi_job_fn job, tr_stream_t *stream) {
    const tr_device_ops_t *ops = e->device->ops;
    const int64_t bytes = count * (int64_t)tr_dtype_bytes(dtype);
    const double begin_sec = tr_clock_sec();
    const bool is_of_all = job == transfer_run_broadcast;
    TR_TRY(tr_engine_begin_all(e));
    if (e->staged) TR_TRY(tr_engine_grow(e, bytes, &e->point, &e->point_bytes));
    if (e->staged && e->returned) TR_TRY(ops->event_wait(e->device, e->returned, stream));
    if (e->staged && gives)
        TR_TRY(ops->copy(e->device, stream, e->point, data, (size_t)bytes, TR_COPY_TO_HOST));
    if (!e->device->immediate) TR_TRY(ops->stream_sync(e->device, stream));
    transfer_t t = {e->comm, e->staged ? e->point : data, bytes, peer};
    TR_TRY((is_of_all ? tr_world_run : tr_world_run_point)(e->world, job, &t));
    if (!gives) TR_TRY(tr_engine_to_device(e, data, t.bytes, t.count, stream));
    if (is_of_all && !e->device->immediate) TR_TRY(ops->stream_sync(e->device, stream));
    const double sec = tr_clock_sec() - begin_sec;
    e->base.exposed_sec += sec;
    e->base.busy_sec += sec;
    return TR_OK;
}

tr_status_t tr_engine_send(tr_collectives_t *c, const void *data, int64_t count, tr_dtype_t dtype,
                           int to, tr_stream_t *stream) {
    return transfer_move((tr_engine_t *)c, (void *)data, count, dtype, to, true, transfer_run_send,
                         stream);
}

tr_status_t tr_engine_receive(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                              int from, tr_stream_t *stream) {
    return transfer_move((tr_engine_t *)c, data, count, dtype, from, false, transfer_run_receive,
                         stream);
}

tr_status_t tr_engine_broadcast(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                                int root, tr_stream_t *stream) {
    if (c->size == 1) return TR_OK;
    return transfer_move((tr_engine_t *)c, data, count, dtype, root, c->rank == root,
                         transfer_run_broadcast, stream);
}
