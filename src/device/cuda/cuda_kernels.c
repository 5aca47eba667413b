/* The cuda device's kernels, from the column cuda of kernels.def, and the functions that the
 * device's table has for them. */
#include "cuda_int.h"
#include <stdio.h>

#define NONE                                                                                       \
    { 0 }
#define RUN(f)                                                                                     \
    { .run = tr_cuda_##f }
#define PREPARED(f, p, n)                                                                          \
    { .run = tr_cuda_##f, .prepare = tr_cuda_##p##_prepare, .adds = n }
#define PLANNED(f, p, r, n)                                                                        \
    {                                                                                              \
        .run = tr_cuda_##f, .prepare = tr_cuda_##p##_prepare, .release = tr_cuda_##r##_release,    \
        .adds = n                                                                                  \
    }
#define DESCRIBED(f, p, r, d, n)                                                                   \
    {                                                                                              \
        .run = tr_cuda_##f, .prepare = tr_cuda_##p##_prepare, .release = tr_cuda_##r##_release,    \
        .describe = tr_cuda_##d##_describe, .adds = n                                              \
    }

static const tr_kernel_t kernels[TR_K_COUNT] = {
#define KERNEL(name, required, kind, cpu, cuda, ...) [TR_K_##name] = cuda,
#include "device/kernels.def"
#undef KERNEL
};

static tr_status_t kernel_run(tr_kernel_id_t id, tr_device_t *device, tr_stream_t *stream,
                              const tr_kernel_call_t *call) {
    char who[64];
    TR_TRY(tr_cuda_enter(device));
    TR_TRY(kernels[id].run(device, stream, call));
    if (!cuda_self(device)->sync) return TR_OK;
    snprintf(who, sizeof who, "kernel %s", tr_kernel_name(id));
    return tr_cuda_stream_wait(device, stream->handle, who);
}

static tr_status_t kernel_prepare(tr_kernel_id_t id, tr_device_t *device,
                                  const tr_kernel_call_t *call, void **out_state,
                                  size_t *out_scratch_bytes) {
    *out_state = NULL, *out_scratch_bytes = 0;
    if (!kernels[id].prepare) return TR_OK;
    TR_TRY(tr_cuda_enter(device));
    return kernels[id].prepare(device, call, out_state, out_scratch_bytes);
}

static void kernel_release(tr_kernel_id_t id, tr_device_t *device, void *state) {
    if (!kernels[id].release) return;
    (void)tr_cuda_enter(device);
    kernels[id].release(device, state);
}

/* A kernel's functions are not told which kernel they are for, so each slot has its own. */
#define KERNEL(name, ...)                                                                          \
    static tr_status_t run_##name(tr_device_t *d, tr_stream_t *s, const tr_kernel_call_t *c) {     \
        return kernel_run(TR_K_##name, d, s, c);                                                   \
    }                                                                                              \
    static tr_status_t prepare_##name(tr_device_t *d, const tr_kernel_call_t *c, void **state,     \
                                      size_t *n) {                                                 \
        return kernel_prepare(TR_K_##name, d, c, state, n);                                        \
    }                                                                                              \
    static void release_##name(tr_device_t *d, void *state) {                                      \
        kernel_release(TR_K_##name, d, state);                                                     \
    }
#include "device/kernels.def"
#undef KERNEL

tr_kernel_t tr_cuda_kernels[TR_K_COUNT];

/* A slot without a kernel stays empty, so that its ops are refused by name. */
void tr_cuda_kernels_fill(void) {
    static const tr_kernel_t entered[TR_K_COUNT] = {
#define KERNEL(name, ...)                                                                          \
    [TR_K_##name] = {.run = run_##name, .prepare = prepare_##name, .release = release_##name},
#include "device/kernels.def"
#undef KERNEL
    };
    for (int id = 0; id < TR_K_COUNT; id++) {
        if (kernels[id].run) tr_cuda_kernels[id] = entered[id];
        tr_cuda_kernels[id].adds = kernels[id].adds;
        tr_cuda_kernels[id].describe = kernels[id].describe;
    }
}
