/* Times one algorithm with events of the GPU. */
#include "cuda_tune.h"

#include <math.h>

enum { ROUNDS = 3, RUNS = 5 }; /* each round is timed as a whole */

typedef struct {
    tr_device_t *device;
    tr_stream_t *stream;
    tr_event_t *first, *last;
    void *memory;
} bench_t;

static void bench_close(bench_t *b) {
    const tr_device_ops_t *ops = b->device->ops;
    if (b->stream) (void)ops->stream_sync(b->device, b->stream);
    if (b->first) ops->event_destroy(b->device, b->first);
    if (b->last) ops->event_destroy(b->device, b->last);
    if (b->stream) ops->stream_destroy(b->device, b->stream);
    ops->free(b->device, b->memory);
}

static tr_status_t bench_open(bench_t *b, size_t bytes) {
    const tr_device_ops_t *ops = b->device->ops;
    TR_TRY(ops->alloc(b->device, bytes, 0, &b->memory));
    TR_TRY(ops->stream_create(b->device, "tune", TR_PRIORITY_NORMAL, &b->stream));
    TR_TRY(ops->event_create(b->device, TR_EVENT_TIMED, &b->first));
    TR_TRY(ops->event_create(b->device, TR_EVENT_TIMED, &b->last));
    return ops->zero(b->device, b->stream, b->memory, bytes);
}

static tr_status_t run(bench_t *b, const cuda_trial_t *trial, int runs) {
    for (int i = 0; i < runs; i++) TR_TRY(trial->run(trial->self, b->stream, b->memory));
    return TR_OK;
}

static tr_status_t measure(bench_t *b, const cuda_trial_t *trial, double *out_sec) {
    const tr_device_ops_t *ops = b->device->ops;
    double sec = 0, best = INFINITY;
    TR_TRY(bench_open(b, trial->bytes));
    TR_TRY(run(b, trial, 1));
    for (int round = 0; round < ROUNDS; round++) {
        TR_TRY(ops->event_record(b->device, b->first, b->stream));
        TR_TRY(run(b, trial, RUNS));
        TR_TRY(ops->event_record(b->device, b->last, b->stream));
        TR_TRY(ops->event_sync(b->device, b->last));
        TR_TRY(ops->event_elapsed(b->device, b->first, b->last, &sec));
        best = fmin(best, sec / RUNS);
    }
    *out_sec = best;
    return TR_OK;
}

double tr_cuda_time(tr_device_t *device, const cuda_trial_t *trial) {
    bench_t b = {.device = device};
    double sec = INFINITY;
    if (measure(&b, trial, &sec) != TR_OK) tr_error_clear(), sec = INFINITY;
    bench_close(&b);
    return sec;
}
