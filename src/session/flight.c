/* Batches in flight, and a ring of pinned results. */
#include "flight.h"
#include "base/mem.h"

#include <string.h>

enum { RING = 2, BATCHES = 2 }; /* results that may be pending; batches in flight */

struct tr_flight {
    tr_session_t *s;
    tr_loader_t *loader;
    tr_batch_t *batch[BATCHES]; /* oldest first */
    int count;
    char *results;           /* [RING], pinned */
    size_t result_bytes;     /* a multiple of 64 */
    tr_event_t *known[RING]; /* the copies to the result are done */
    tr_batch_t **held;       /* [held_count] tr_flight_hold; else NULL */
    int64_t held_count, fed;
};

tr_status_t tr_flight_create(tr_session_t *s, tr_loader_t *loader, size_t result_bytes,
                             tr_flight_t **out) {
    tr_flight_t *f = NULL;
    tr_status_t status = TR_OK;
    void *results = NULL;
    TR_TRY(tr_alloc(sizeof *f, "batches in flight", &f));
    f->s = s;
    f->loader = loader;
    f->result_bytes = (result_bytes + 63) / 64 * 64;
    TR_TRY_GOTO(s->device->ops->host_alloc(s->device, RING * f->result_bytes, &results), fail);
    f->results = results;
    memset(results, 0, RING * f->result_bytes);
    for (int i = 0; i < RING; i++)
        TR_TRY_GOTO(s->device->ops->event_create(s->device, 0, &f->known[i]), fail);
    *out = f;
    return TR_OK;
fail:
    tr_flight_destroy(&f);
    return status;
}

void tr_flight_destroy(tr_flight_t **flight) {
    tr_flight_t *f = *flight;
    if (!f) return;
    const tr_device_ops_t *ops = f->s->device->ops;
    (void)tr_graph_sync(f->s->g); /* copies to the ring and from batches may be pending */
    for (int i = 0; i < RING; i++)
        if (f->known[i]) ops->event_destroy(f->s->device, f->known[i]);
    if (f->results) ops->host_free(f->s->device, f->results);
    tr_free(&f->held);
    tr_free(flight);
}

tr_status_t tr_flight_hold(tr_flight_t *f, int64_t count) {
    f->held_count = count;
    f->fed = 0;
    return tr_alloc((size_t)count * sizeof *f->held, "held batches", &f->held);
}

tr_status_t tr_flight_feed(tr_flight_t *f, int64_t number, const tr_feed_step_t *step,
                           const tr_batch_t **out) {
    const int64_t prefetch = f->s->data.prefetch;
    const int most = prefetch < BATCHES ? (int)prefetch : BATCHES;
    tr_batch_t *batch = f->held ? f->held[f->fed % f->held_count] : NULL;
    if (!batch) {
        TR_TRY(tr_flight_release(f, most - 1));
        TR_TRY(tr_loader_next(f->loader, &batch));
    }
    *out = batch;
    if (!batch) return TR_OK;
    if (f->held)
        f->held[f->fed % f->held_count] = batch;
    else
        f->batch[f->count++] = batch;
    f->fed++;
    return tr_feed_next(f->s->feed, number, batch, step);
}

const tr_batch_t *tr_flight_oldest(const tr_flight_t *f, int newest) {
    return f->count > newest ? f->batch[0] : NULL;
}

tr_status_t tr_flight_release(tr_flight_t *f, int newest) {
    while (f->count > newest) {
        tr_batch_t *oldest = f->batch[0];
        TR_TRY(tr_feed_wait(f->s->feed, f->count));
        f->count--;
        memmove(f->batch, f->batch + 1, (size_t)f->count * sizeof *f->batch);
        TR_TRY(tr_loader_release(f->loader, oldest));
    }
    return TR_OK;
}

void *tr_flight_result(const tr_flight_t *f, int64_t number) {
    return f->results + (size_t)(number % RING) * f->result_bytes;
}

tr_status_t tr_flight_read(tr_flight_t *f, tr_tensor_t tensor, void *host) {
    const tr_tensor_info_t *info = tr_tensor_info(f->s->g, tensor);
    return f->s->device->ops->copy(f->s->device, tr_graph_stream(f->s->g), host, info->data,
                                   info->bytes, TR_COPY_TO_HOST);
}

tr_status_t tr_flight_mark(tr_flight_t *f, int64_t number) {
    return f->s->device->ops->event_record(f->s->device, f->known[number % RING],
                                           tr_graph_stream(f->s->g));
}

tr_status_t tr_flight_wait(tr_flight_t *f, int64_t number, int newest) {
    TR_TRY(f->s->device->ops->event_sync(f->s->device, f->known[number % RING]));
    tr_feed_copies_done(f->s->feed, newest);
    return TR_OK;
}
