#include "deferred.h"
#include "device/strict/strict_int.h"

typedef struct {
    tr_collectives_t base;
    tr_world_t *world;
    tr_device_t *device;
    tr_stream_t *stream;
    bool refuses;
    tr_event_t *ready, *done;
} deferred_t;

/* The sum of two floats in double is exact enough to be rounded to float once. */
static tr_status_t sum(void *self, void *data, size_t bytes) {
    const deferred_t *d = self;
    float *x = data;
    double part[256];
    const size_t count = bytes / sizeof *x;
    for (size_t first = 0; first < count; first += TR_COUNT(part)) {
        const size_t n = count - first < TR_COUNT(part) ? count - first : TR_COUNT(part);
        for (size_t i = 0; i < n; i++) part[i] = x[first + i];
        TR_TRY(tr_world_allreduce(d->world, part, (int)n, TR_REDUCE_SUM));
        for (size_t i = 0; i < n; i++) x[first + i] = (float)part[i];
    }
    return TR_OK;
}

static tr_status_t start(tr_collectives_t *c, const tr_collective_t *what, tr_stream_t *stream,
                         tr_ticket_t *out) {
    deferred_t *d = (deferred_t *)c;
    const tr_device_ops_t *ops = d->device->ops;
    TR_TRY(ops->event_record(d->device, d->ready, stream));
    TR_TRY(ops->event_wait(d->device, d->ready, d->stream));
    *out = ++c->calls;
    return tr_strict_call(d->device, d->stream, sum, d, what->data,
                          (size_t)what->count * sizeof(float));
}

static tr_status_t wait(tr_collectives_t *c, tr_ticket_t ticket, tr_stream_t *stream) {
    deferred_t *d = (deferred_t *)c;
    if (d->refuses && ((const strict_device_t *)d->device)->capture)
        return TR_FAIL(TR_ERR_INTERNAL, "refused inside a capture");
    TR_TRY(d->device->ops->event_record(d->device, d->done, d->stream));
    return d->device->ops->event_wait(d->device, d->done, stream);
}

static tr_status_t progress(tr_collectives_t *c) {
    return TR_OK;
}

static tr_status_t close(tr_collectives_t **c, double timeout_sec) {
    deferred_t *d = (deferred_t *)*c;
    const tr_device_ops_t *ops = d->device->ops;
    if (d->ready) ops->event_destroy(d->device, d->ready);
    if (d->done) ops->event_destroy(d->device, d->done);
    if (d->stream) ops->stream_destroy(d->device, d->stream);
    tr_free(c);
    return TR_OK;
}

static const tr_collectives_ops_t table = {
    .start = start, .wait = wait, .progress = progress, .close = close};

static tr_status_t agree(void *self, tr_status_t status) {
    return tr_world_agree(self, status);
}

tr_status_t deferred_open(tr_world_t *world, tr_device_t *strict, bool refuses,
                          tr_collectives_t **out) {
    deferred_t *d = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *d, "deferred collectives", &d));
    const tr_world_info_t *info = tr_world_info(world);
    d->base = (tr_collectives_t){.ops = &table,
                                 .rank = info->rank,
                                 .size = info->size,
                                 .peers = {world, agree, NULL},
                                 .capturable = true};
    d->world = world;
    d->device = strict;
    d->refuses = refuses;
    *out = &d->base;
    TR_TRY_GOTO(strict->ops->stream_create(strict, "collectives", TR_PRIORITY_HIGH, &d->stream),
                fail);
    TR_TRY_GOTO(strict->ops->event_create(strict, 0, &d->ready), fail);
    TR_TRY_GOTO(strict->ops->event_create(strict, 0, &d->done), fail);
    return TR_OK;
fail:
    (void)close(out, 0);
    return status;
}
