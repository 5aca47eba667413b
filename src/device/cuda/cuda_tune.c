/* Times work with events of the GPU. */
#include "cuda_tune.h"
#include "cuda_plan_store.h"
#include "base/str.h"
#include "trainer/log.h"

#include <math.h>
#include <stdio.h>

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

/* -- trials of calls --------------------------------------------------------------------------- */

typedef struct {
    tr_device_t *device;
    const tr_kernel_call_t *call;
    tr_status_t (*run)(tr_device_t *device, tr_stream_t *stream, const tr_kernel_call_t *call);
    size_t scratch_bytes;
} call_trial_t;

/* The call with its operands and scratch in `memory`, if that is not NULL. Returns the bytes. */
static size_t call_place(const call_trial_t *t, char *memory, tr_kernel_call_t *out) {
    size_t bytes = 0;
    *out = *t->call;
    for (int i = 0; i <= out->n_in + out->n_out; i++) {
        tr_view_t *view = i < out->n_in ? &out->in[i] : &out->out[i - out->n_in];
        const bool is_scratch = i == out->n_in + out->n_out;
        if (!is_scratch && !cuda_present(view)) continue;
        const size_t at = cuda_place(&bytes, is_scratch ? t->scratch_bytes
                                                        : (size_t)tr_shape_elems(&view->shape) *
                                                              tr_dtype_bytes(view->dtype));
        if (memory) *(is_scratch ? &out->scratch : &view->data) = memory + at;
    }
    return bytes;
}

static tr_status_t call_run_trial(void *self, tr_stream_t *stream, void *memory) {
    const call_trial_t *t = self;
    tr_kernel_call_t call;
    (void)call_place(t, memory, &call);
    return t->run(t->device, stream, &call);
}

double tr_cuda_time_call(tr_device_t *device, const tr_kernel_call_t *call,
                         tr_status_t (*run)(tr_device_t *device, tr_stream_t *stream,
                                            const tr_kernel_call_t *call),
                         size_t scratch_bytes) {
    call_trial_t t = {device, call, run, scratch_bytes};
    tr_kernel_call_t placed;
    const size_t bytes = call_place(&t, NULL, &placed);
    return tr_cuda_time(device, &(cuda_trial_t){bytes, call_run_trial, &t});
}

/* -- ways -------------------------------------------------------------------------------------- */

bool tr_cuda_was_timed(double best_sec, const char *what) {
    if (isfinite(best_sec)) return true;
    TR_WARN("cuda.tune: no way to compute %s could be timed; the first is used, and is not kept",
            what);
    return false;
}

tr_status_t tr_cuda_choose_way(tr_device_t *device, const cuda_ways_t *ways, int *out_way) {
    cuda_plan_store_t *store = cuda_self(device)->plans;
    double best_sec = INFINITY;
    char key[512], text[16];
    int way = -1;
    tr_snprintf(key, sizeof key, "%s, timed on %s", ways->what, device->description);
    const char *found = tr_cuda_plan_store_find(store, key);
    *out_way = 0;
    if (found && sscanf(found, "%d", &way) == 1 && way >= 0 && way < ways->count)
        return *out_way = way, TR_OK;
    if (device->chooses_nothing)
        return TR_FAIL(TR_ERR_NOINPUT, "cuda.plan_cache has no choice for %s", key);
    for (way = 0; way < ways->count; way++) {
        const double sec = ways->sec(ways->self, way);
        if (sec < best_sec) best_sec = sec, *out_way = way;
    }
    snprintf(text, sizeof text, "%d", *out_way);
    return tr_cuda_plan_store_add(store, key, text, tr_cuda_was_timed(best_sec, ways->what));
}
