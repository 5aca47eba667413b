#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "kernel_run.h"
#include "base/mem.h"

#include <math.h>
#include <string.h>

static void must(tr_status_t status) {
    if (status != TR_OK) fail_msg("%s\n%s", tr_error_last()->message, tr_error_last()->trace);
}

static size_t bytes_of(const kernel_run_tensor_t *t) {
    return t->shape.ndim < 0 ? 0 : (size_t)tr_shape_elems(&t->shape) * tr_dtype_bytes(t->dtype);
}

/* To the device: the content given, or all bits set, which is NaN and -1. */
static void *upload(tr_device_t *device, tr_stream_t *stream, const void *data, size_t bytes) {
    void *there = NULL, *here = NULL;
    if (bytes == 0) return NULL;
    must(device->ops->alloc(device, bytes, 0, &there));
    must(device->ops->host_alloc(device, bytes, &here));
    if (data)
        memcpy(here, data, bytes);
    else
        memset(here, 0xff, bytes);
    must(device->ops->copy(device, stream, there, here, bytes, TR_COPY_TO_DEVICE));
    must(device->ops->stream_sync(device, stream));
    device->ops->host_free(device, here);
    return there;
}

static void *download(tr_device_t *device, tr_stream_t *stream, const void *there, size_t bytes) {
    void *here = NULL, *copy = NULL;
    must(device->ops->host_alloc(device, bytes, &here));
    must(device->ops->copy(device, stream, here, there, bytes, TR_COPY_TO_HOST));
    must(device->ops->stream_sync(device, stream));
    must(tr_alloc(bytes, "a result", &copy));
    memcpy(copy, here, bytes);
    device->ops->host_free(device, here);
    return copy;
}

static void check_f32(const kernel_run_t *run, const char *where, int output, const float *got) {
    const kernel_run_tensor_t *t = &run->out[output];
    for (int64_t i = 0; i < tr_shape_elems(&t->shape); i++) {
        double error = fabs((double)got[i] - t->expect[i]);
        if (error <= t->bound[i] || (isnan(t->expect[i]) && isnan(got[i]))) continue;
        fail_msg("%s, %s on %s: output %d, element %lld: expected %.9g within %.2g, found %.9g",
                 run->what, tr_kernel_name(run->id), where, output, (long long)i, t->expect[i],
                 t->bound[i], (double)got[i]);
    }
}

static void check_i32(const kernel_run_t *run, const char *where, int output, const int32_t *got) {
    const kernel_run_tensor_t *t = &run->out[output];
    for (int64_t i = 0; i < tr_shape_elems(&t->shape); i++)
        if (got[i] != t->exact[i])
            fail_msg("%s, %s on %s: output %d, element %lld: expected %d, found %d", run->what,
                     tr_kernel_name(run->id), where, output, (long long)i, t->exact[i], got[i]);
}

static void fill_call(tr_device_t *device, tr_stream_t *stream, const kernel_run_t *run,
                      tr_kernel_call_t *call) {
    call->n_in = run->n_in, call->n_out = run->n_out, call->attr = run->attr;
    for (int i = 0; i < TR_KERNEL_MAX_IN; i++) {
        kernel_run_tensor_t t = i < run->n_in ? run->in[i] : KERNEL_RUN_ABSENT;
        call->in[i] = (tr_view_t){.dtype = t.dtype, .shape = t.shape};
    }
    for (int i = 0; i < TR_KERNEL_MAX_OUT; i++) {
        kernel_run_tensor_t t = i < run->n_out ? run->out[i] : KERNEL_RUN_ABSENT;
        call->out[i] = (tr_view_t){.dtype = t.dtype, .shape = t.shape};
    }
    const tr_kernel_t *kernel = &device->ops->kernels[run->id];
    size_t scratch_bytes = 0;
    if (kernel->prepare) must(kernel->prepare(device, call, &call->state, &scratch_bytes));
    call->scratch = upload(device, stream, NULL, scratch_bytes);
    for (int i = 0; i < run->n_in; i++)
        call->in[i].data = upload(device, stream, run->in[i].data, bytes_of(&run->in[i]));
}

/* Once on the device: the outputs of this run, checked, in outs[]. */
static void run_once(tr_device_t *device, tr_stream_t *stream, const kernel_run_t *run,
                     tr_kernel_call_t *call, void **outs) {
    for (int i = 0; i < run->n_out; i++)
        call->out[i].data = upload(device, stream, run->out[i].data, bytes_of(&run->out[i]));
    int64_t allocations = tr_mem_stats().calls;
    must(device->ops->kernels[run->id].run(device, stream, call));
    if (device->immediate) assert_int_equal(tr_mem_stats().calls, allocations);
    must(device->ops->stream_sync(device, stream));
    for (int i = 0; i < run->n_out; i++) {
        outs[i] = NULL;
        if (run->out[i].shape.ndim < 0) continue;
        outs[i] = download(device, stream, call->out[i].data, bytes_of(&run->out[i]));
        device->ops->free(device, call->out[i].data);
        if (run->out[i].dtype == TR_F32)
            check_f32(run, device->description, i, outs[i]);
        else
            check_i32(run, device->description, i, outs[i]);
    }
}

/* Equal bit for bit; frees `b`. */
static void compare(const kernel_run_t *run, const char *when, void **a, void **b) {
    for (int i = 0; i < run->n_out; i++) {
        if (a[i] && memcmp(a[i], b[i], bytes_of(&run->out[i])) != 0)
            fail_msg("%s, %s: output %d differs %s", run->what, tr_kernel_name(run->id), i, when);
        tr_free(&b[i]);
    }
}

static void run_on(const char *name, int threads, const kernel_run_t *run, void **outs) {
    tr_device_t *device = NULL;
    tr_stream_t *stream = NULL;
    tr_kernel_call_t call = {0};
    void *again[TR_KERNEL_MAX_OUT];
    const tr_device_params_t params = {.threads = threads, .seed = 1};
    must(tr_device_open(name, &params, &device));
    must(device->ops->stream_create(device, "test", TR_PRIORITY_NORMAL, &stream));
    fill_call(device, stream, run, &call);
    run_once(device, stream, run, &call, outs);
    run_once(device, stream, run, &call, again);
    compare(run, "from run to run", outs, again);
    for (int i = 0; i < run->n_in; i++)
        if (call.in[i].data) device->ops->free(device, call.in[i].data);
    if (call.scratch) device->ops->free(device, call.scratch);
    if (call.state) device->ops->kernels[run->id].release(device, call.state);
    device->ops->stream_destroy(device, stream);
    tr_device_close(&device);
}

void kernel_run(const kernel_run_t *run) {
    void *one[TR_KERNEL_MAX_OUT], *two[TR_KERNEL_MAX_OUT], *strict[TR_KERNEL_MAX_OUT];
    int64_t live = tr_mem_stats().live;
    run_on("cpu", 1, run, one);
    run_on("cpu", 2, run, two);
    run_on("strict", 2, run, strict);
    compare(run, "between cpu and strict", two, strict);
    if (run->same_for_threads) compare(run, "between one thread and two", one, two);
    for (int i = 0; i < run->n_out; i++) {
        tr_free(&one[i]);
        if (!run->same_for_threads) tr_free(&two[i]);
    }
    assert_int_equal(tr_mem_stats().live, live);
}

float *kernel_run_random(int64_t count, uint32_t seed) {
    float *x = NULL;
    uint32_t state = seed * 2654435761u + 12345u;
    must(tr_alloc((size_t)count * sizeof *x, "random numbers", &x));
    for (int64_t i = 0; i < count; i++) {
        state = state * 1664525u + 1013904223u;
        x[i] = (float)((double)(state >> 8) / (1 << 23) - 1.0);
    }
    return x;
}

double *kernel_run_zeros(int64_t count) {
    double *x = NULL;
    must(tr_alloc((size_t)count * sizeof *x, "zeros", &x));
    return x;
}
