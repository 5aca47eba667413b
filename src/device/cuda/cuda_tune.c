/* Times work with events of the GPU. */
#include "cuda_tune.h"

#include <math.h>

enum { ROUNDS = 3, RUNS = 5 }; /* of a trial: each round is timed as a whole */

/* -- timer ------------------------------------------------------------------------------------- */

tr_status_t tr_cuda_timer_open(tr_device_t *device, cuda_timer_t *timer) {
    const tr_device_ops_t *ops = device->ops;
    *timer = (cuda_timer_t){.device = device};
    TR_TRY(ops->stream_create(device, "timer", TR_PRIORITY_NORMAL, &timer->stream));
    TR_TRY(ops->event_create(device, TR_EVENT_TIMED, &timer->first));
    return ops->event_create(device, TR_EVENT_TIMED, &timer->last);
}

void tr_cuda_timer_close(cuda_timer_t *timer) {
    tr_device_t *device = timer->device;
    if (timer->stream) (void)device->ops->stream_sync(device, timer->stream);
    if (timer->first) device->ops->event_destroy(device, timer->first);
    if (timer->last) device->ops->event_destroy(device, timer->last);
    if (timer->stream) device->ops->stream_destroy(device, timer->stream);
    *timer = (cuda_timer_t){.device = device};
}

tr_status_t tr_cuda_timer_run(cuda_timer_t *timer,
                              tr_status_t (*run)(void *self, tr_stream_t *stream), void *self,
                              int runs, double *out_sec) {
    tr_device_t *device = timer->device;
    const tr_device_ops_t *ops = device->ops;
    TR_TRY(ops->event_record(device, timer->first, timer->stream));
    for (int i = 0; i < runs; i++) TR_TRY(run(self, timer->stream));
    TR_TRY(ops->event_record(device, timer->last, timer->stream));
    TR_TRY(ops->event_sync(device, timer->last));
    TR_TRY(ops->event_elapsed(device, timer->first, timer->last, out_sec));
    *out_sec /= runs;
    return TR_OK;
}

/* -- trials of algorithms ---------------------------------------------------------------------- */

typedef struct {
    const cuda_trial_t *trial;
    void *memory;
} running_t;

static tr_status_t cuda_tune_run_trial(void *self, tr_stream_t *stream) {
    const running_t *r = self;
    return r->trial->run(r->trial->self, stream, r->memory);
}

/* The first run loads the kernel and does not count. */
static tr_status_t cuda_tune_measure(cuda_timer_t *timer, running_t *r, double *out_sec) {
    double sec = 0, best = INFINITY;
    TR_TRY(timer->device->ops->zero(timer->device, timer->stream, r->memory, r->trial->bytes));
    TR_TRY(tr_cuda_timer_run(timer, cuda_tune_run_trial, r, 1, &sec));
    for (int round = 0; round < ROUNDS; round++) {
        TR_TRY(tr_cuda_timer_run(timer, cuda_tune_run_trial, r, RUNS, &sec));
        best = fmin(best, sec);
    }
    *out_sec = best;
    return TR_OK;
}

double tr_cuda_time(tr_device_t *device, const cuda_trial_t *trial) {
    cuda_timer_t timer;
    running_t r = {trial, NULL};
    double sec = INFINITY;
    tr_status_t status = tr_cuda_timer_open(device, &timer);
    if (status == TR_OK) status = device->ops->alloc(device, trial->bytes, 0, &r.memory);
    if (status == TR_OK) status = cuda_tune_measure(&timer, &r, &sec);
    if (status != TR_OK) tr_error_clear(), sec = INFINITY;
    tr_cuda_timer_close(&timer);
    device->ops->free(device, r.memory);
    return sec;
}
