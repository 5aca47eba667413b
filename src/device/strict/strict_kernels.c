/* Kernels: checked and recorded when called, computed by cpu when their stream runs. */
#include "strict_int.h"
#include <stdio.h>

static size_t strict_kernels_view_bytes(const tr_view_t *view) {
    return view->shape.ndim < 0
               ? 0
               : (size_t)tr_shape_elems(&view->shape) * tr_dtype_bytes(view->dtype);
}

static tr_status_t untag_views(const strict_device_t *strict, tr_kernel_id_t id, const char *what,
                               tr_view_t *view, int count) {
    char who[64];
    for (int i = 0; i < count; i++) {
        size_t bytes = strict_kernels_view_bytes(&view[i]);
        if (bytes == 0) continue;
        snprintf(who, sizeof who, "kernel %s, %s %d", tr_kernel_name(id), what, i);
        TR_TRY(tr_strict_untag(strict, view[i].data, bytes, who, &view[i].data));
    }
    return TR_OK;
}

static bool overlap(const tr_view_t *a, const tr_view_t *b) {
    size_t a_bytes = strict_kernels_view_bytes(a), b_bytes = strict_kernels_view_bytes(b);
    const char *x = a->data, *y = b->data;
    return a_bytes > 0 && b_bytes > 0 && x < y + b_bytes && y < x + a_bytes;
}

/* An output must not overlap an input, or must be the same memory if the kernel works in place. */
static tr_status_t check_overlap(tr_kernel_id_t id, const tr_kernel_call_t *call) {
    const uint64_t in_place = tr_kernel_facts(id)->in_place;
    for (int o = 0; o < call->n_out; o++) {
        const tr_view_t *out = &call->out[o];
        for (int i = 0; i < call->n_in; i++) {
            const tr_view_t *in = &call->in[i];
            bool same = out->data == in->data &&
                        strict_kernels_view_bytes(out) == strict_kernels_view_bytes(in);
            if ((same && in_place >> (8 * o + i) & 1) || !overlap(out, in)) continue;
            return TR_FAIL(TR_ERR_INTERNAL, "device strict: kernel %s: output %d %s input %d",
                           tr_kernel_name(id), o,
                           same ? "must not be the memory of" : "overlaps part of", i);
        }
        for (int p = 0; p < o; p++)
            if (overlap(out, &call->out[p]))
                return TR_FAIL(TR_ERR_INTERNAL,
                               "device strict: kernel %s: outputs %d and %d overlap",
                               tr_kernel_name(id), p, o);
    }
    return TR_OK;
}

static tr_status_t check_and_push(strict_device_t *strict, tr_stream_t *stream,
                                  strict_work_t *work) {
    tr_kernel_call_t *call = &work->call;
    TR_TRY(untag_views(strict, work->kernel, "input", call->in, call->n_in));
    TR_TRY(untag_views(strict, work->kernel, "output", call->out, call->n_out));
    TR_TRY(check_overlap(work->kernel, call));
    if (call->scratch)
        TR_TRY(tr_strict_untag(strict, call->scratch, 1, "a kernel's scratch", &call->scratch));
    return tr_strict_push(strict, stream, work);
}

static tr_status_t strict_kernel_run(tr_device_t *device, tr_stream_t *stream, tr_kernel_id_t id,
                                     const tr_kernel_call_t *call) {
    strict_device_t *strict = (strict_device_t *)device;
    strict_work_t work = {.kind = STRICT_KERNEL, .kernel = id, .call = *call};
    pthread_mutex_lock(&strict->mutex);
    tr_status_t status = check_and_push(strict, stream, &work);
    pthread_mutex_unlock(&strict->mutex);
    return status;
}

static tr_status_t strict_kernel_prepare(tr_device_t *device, tr_kernel_id_t id,
                                         const tr_kernel_call_t *call, void **out_state,
                                         size_t *out_scratch_bytes) {
    tr_device_t *cpu = ((strict_device_t *)device)->cpu;
    cpu->winograd = device->winograd; /* the graph may have changed it */
    cpu->alone = device->alone;
    return cpu->ops->kernels[id].prepare(cpu, call, out_state, out_scratch_bytes);
}

static void strict_kernel_release(tr_device_t *device, tr_kernel_id_t id, void *state) {
    strict_device_t *strict = (strict_device_t *)device;
    pthread_mutex_lock(&strict->mutex);
    tr_strict_run_all(strict); /* recorded calls may still need the state */
    pthread_mutex_unlock(&strict->mutex);
    strict->cpu->ops->kernels[id].release(strict->cpu, state);
}

/* The functions of a kernel do not get its id, so there is one set of functions per kernel. */
#define KERNEL(name, ...)                                                                          \
    static tr_status_t run_##name(tr_device_t *d, tr_stream_t *s, const tr_kernel_call_t *c) {     \
        return strict_kernel_run(d, s, TR_K_##name, c);                                            \
    }                                                                                              \
    static tr_status_t prepare_##name(tr_device_t *d, const tr_kernel_call_t *c, void **state,     \
                                      size_t *n) {                                                 \
        return strict_kernel_prepare(d, TR_K_##name, c, state, n);                                 \
    }                                                                                              \
    static void release_##name(tr_device_t *d, void *state) {                                      \
        strict_kernel_release(d, TR_K_##name, state);                                              \
    }
#include "device/kernels.def"
#undef KERNEL

const tr_kernel_t tr_strict_kernels[TR_K_COUNT] = {
#define KERNEL(name, ...) [TR_K_##name] = {run_##name, prepare_##name, release_##name},
#include "device/kernels.def"
#undef KERNEL
};

void tr_strict_fill_kernels(const tr_device_t *cpu, tr_kernel_t *kernels) {
    for (int id = 0; id < TR_K_COUNT; id++) {
        const tr_kernel_t *of_cpu = &cpu->ops->kernels[id];
        kernels[id].adds = of_cpu->adds;
        if (of_cpu->run) kernels[id].run = tr_strict_kernels[id].run;
        if (of_cpu->prepare) kernels[id].prepare = tr_strict_kernels[id].prepare;
        if (of_cpu->release) kernels[id].release = tr_strict_kernels[id].release;
    }
}
