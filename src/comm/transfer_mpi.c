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

static tr_status_t transfer_mpi_run_broadcast(MPI_Comm comm, void *arg) {
    const transfer_t *t = arg;
    for (int64_t at = 0; at < t->count; at += CALL_BYTES)
        TR_MPI(MPI_Bcast, (t->bytes + at, transfer_piece_at(t, at), MPI_BYTE, t->peer, t->comm));
    return TR_OK;
}

/* The address for MPI: device memory, or `point`, to which the bytes were copied if `filled`. */
static tr_status_t transfer_open(tr_engine_t *e, void *data, int64_t bytes, int peer, bool filled,
                                 tr_stream_t *stream, transfer_t *out) {
    const tr_device_ops_t *ops = e->device->ops;
    TR_TRY(tr_engine_begin_all(e));
    if (e->staged) TR_TRY(tr_engine_grow(e, bytes, &e->point, &e->point_bytes));
    if (e->staged && e->returned) TR_TRY(ops->event_wait(e->device, e->returned, stream));
    if (e->staged && filled)
        TR_TRY(ops->copy(e->device, stream, e->point, data, (size_t)bytes, TR_COPY_TO_HOST));
    if (!e->device->immediate) TR_TRY(ops->stream_sync(e->device, stream));
    *out = (transfer_t){e->comm, e->staged ? e->point : data, bytes, peer};
    return TR_OK;
}

/* A blocking transfer is exposed for its whole duration. */
static void transfer_count_time(tr_collectives_t *c, double begin_sec) {
    const double sec = tr_clock_sec() - begin_sec;
    c->exposed_sec += sec;
    c->busy_sec += sec;
}

tr_status_t tr_engine_send(tr_collectives_t *c, const void *data, int64_t count, tr_dtype_t dtype,
                           int to, tr_stream_t *stream) {
    tr_engine_t *e = (tr_engine_t *)c;
    transfer_t t;
    const double begin_sec = tr_clock_sec();
    TR_TRY(transfer_open(e, (void *)data, count * (int64_t)tr_dtype_bytes(dtype), to, true, stream,
                         &t));
    tr_status_t status = tr_world_run_point(e->world, transfer_run_send, &t);
    transfer_count_time(c, begin_sec);
    return status;
}

tr_status_t tr_engine_receive(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                              int from, tr_stream_t *stream) {
    tr_engine_t *e = (tr_engine_t *)c;
    transfer_t t;
    const double begin_sec = tr_clock_sec();
    TR_TRY(transfer_open(e, data, count * (int64_t)tr_dtype_bytes(dtype), from, false, stream, &t));
    TR_TRY(tr_world_run_point(e->world, transfer_run_receive, &t));
    tr_status_t status = tr_engine_to_device(e, data, t.bytes, t.count, stream);
    transfer_count_time(c, begin_sec);
    return status;
}

tr_status_t tr_engine_broadcast(tr_collectives_t *c, void *data, int64_t count, tr_dtype_t dtype,
                                int root, tr_stream_t *stream) {
    tr_engine_t *e = (tr_engine_t *)c;
    transfer_t t;
    const double begin_sec = tr_clock_sec();
    if (c->size == 1) return TR_OK;
    TR_TRY(transfer_open(e, data, count * (int64_t)tr_dtype_bytes(dtype), root, c->rank == root,
                         stream, &t));
    TR_TRY(tr_world_run(e->world, transfer_mpi_run_broadcast, &t));
    if (c->rank != root) TR_TRY(tr_engine_to_device(e, data, t.bytes, t.count, stream));
    tr_status_t status =
        e->device->immediate ? TR_OK : e->device->ops->stream_sync(e->device, stream);
    transfer_count_time(c, begin_sec);
    return status;
}
