/*
 * Attention in bf16 and fp16 without kept probabilities: by cuDNN where it has an engine for the
 * sizes and the GPU, else by cuBLASLt's products where memory allows. All other by kernels of our
 * own, which are slow.
 */
#include "cuda_place.h"
#include "cuda_plain_attention.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "base/str.h"
#include <math.h>
#include <stdio.h>

typedef struct {
    cuda_dnn_attention_t shape, group; /* of all samples, and of those that `dnn` has at a time */
    cuda_dnn_plan_t *dnn;              /* NULL: `plain` */
    cuda_plain_attention_t *plain;     /* NULL: kernels of our own */
} attention_t;

/* in?: of the kernels' calls (device/kernels.h). */
enum { FWD_QKV = 0, FWD_IDS = 1, FWD_KEPT_OUT = 2 };
enum { BWD_DY = 0, BWD_QKV = 1, BWD_Y = 2, BWD_LSE = 3, BWD_KEPT = 4, BWD_IDS = 5 };

static void warn_slow(const char *why, const cuda_dnn_attention_t *a) {
    static bool warned;
    if (warned) return;
    warned = true;
    TR_WARN("attention (%lld heads of %lld channels, %s): %s; a kernel without tensor cores "
            "computes it, which is slow",
            (long long)a->heads, (long long)a->size, tr_dtype_name(a->dtype), why);
}

/* Why no library is asked, or NULL. */
static const char *find_obstacle(const cuda_dnn_attention_t *a, bool kept) {
    if (a->dtype == TR_F32) return "cuDNN's attention has no f32; set precision = auto";
    if (kept) return "it keeps its probabilities; set model.attention = flash";
    if (a->heads * a->size % 8 != 0) return "a row of q is no multiple of 16 bytes";
    return NULL;
}

/* For dropout cuDNN reads a mask: it has as many samples at a time as have theirs in MASK_GROUP and in
 * that part of the GPU's memory; one sample may take MASK_LIMIT. */
#define MASK_GROUP   ((size_t)1 << 28)
#define MASK_LIMIT   ((size_t)1 << 30)
#define MEMORY_PARTS 256

static size_t mask_bytes(const cuda_dnn_attention_t *a) {
    const size_t bytes =
        (size_t)(a->samples * a->heads * a->steps * a->steps) * tr_dtype_bytes(a->dtype);
    return a->drops ? cuda_place_bytes(bytes) : 0;
}

static tr_status_t attention_plan_dnn(tr_device_t *device, attention_t *a,
                                      size_t *out_scratch_bytes) {
    cuda_dnn_attention_t *g = &a->group;
    const bool drops = a->shape.drops;
    size_t total = 0;
    *g = a->shape;
    TR_TRY(tr_cuda_total_memory(device, &total));
    const size_t most = total / MEMORY_PARTS < MASK_GROUP ? total / MEMORY_PARTS : MASK_GROUP;
    while (g->samples > 1 && (a->shape.samples % g->samples != 0 || mask_bytes(g) > most))
        g->samples--;
    /* cuDNN's engines for Blackwell take no mask: it would use those of an A100. */
    if (mask_bytes(g) > MASK_LIMIT || (drops && device->capability >= 100)) return TR_OK;
    TR_TRY(tr_cuda_dnn_attention_plan(device, g, &a->dnn));
    if (a->dnn) *out_scratch_bytes = mask_bytes(g) + tr_cuda_dnn_workspace(a->dnn);
    return TR_OK;
}

static tr_status_t attention_plan_library(tr_device_t *device, attention_t *a,
                                          size_t *out_scratch_bytes) {
    TR_TRY(attention_plan_dnn(device, a, out_scratch_bytes));
    if (a->dnn) return TR_OK;
    return tr_cuda_plain_attention_plan(device, &a->shape, &a->plain, out_scratch_bytes);
}

/* A library's way and our own, where both are possible: libraries need aligned addresses, which
 * tensors of a graph have. */
static tr_status_t prepare_both(tr_device_t *device, const tr_kernel_call_t *call,
                                const char *obstacle, attention_t *a, size_t *out_scratch_bytes) {
    const int ids = a->shape.backward ? BWD_IDS : FWD_IDS;
    const bool drops = cuda_attention_dropout_of(call, ids).factor != 0;
    void *none = NULL;
    size_t own = 0, library = 0;
    a->shape.drops = drops;
    if (!obstacle) TR_TRY(attention_plan_library(device, a, &library));
    const tr_status_t status = a->shape.backward
                                   ? tr_cuda_own_attention_bwd_prepare(device, call, &none, &own)
                                   : tr_cuda_own_attention_fwd_prepare(device, call, &none, &own);
    if (!a->dnn && !a->plain && status == TR_OK)
        warn_slow(obstacle ? obstacle
                  : drops ? "cuDNN has no engine with dropout for it, and the scores of one sample "
                            "take more than 1 GiB; set model.dropout = 0"
                          : "cuDNN has no deterministic engine for it",
                  &a->shape);
    *out_scratch_bytes = library > own ? library : own;
    if ((!a->dnn && !a->plain) || status == TR_OK) return status;
    tr_error_clear(); /* heads that are too large for our kernels */
    return TR_OK;
}

static tr_status_t attention_prepare(tr_device_t *device, const tr_kernel_call_t *call,
                                     const cuda_dnn_attention_t *shape, const char *obstacle,
                                     void **out_state, size_t *out_scratch_bytes) {
    attention_t *a = NULL;
    TR_TRY(tr_alloc(sizeof *a, "attention", &a));
    a->shape = *shape;
    const tr_status_t status = prepare_both(device, call, obstacle, a, out_scratch_bytes);
    *out_state = a;
    if (status != TR_OK) tr_cuda_attention_release(device, a), *out_state = NULL;
    return status;
}

static bool is_aligned(const cuda_dnn_attention_data_t *d) {
    return ((uintptr_t)d->qkv | (uintptr_t)d->y | (uintptr_t)d->lse | (uintptr_t)d->dy |
            (uintptr_t)d->dqkv) %
               16 ==
           0;
}

static cuda_dnn_attention_t shape_of(const tr_kernel_call_t *call, const tr_view_t *qkv,
                                     bool backward) {
    const int64_t heads = ((const tr_attention_attr_t *)call->attr)->heads;
    return (cuda_dnn_attention_t){.samples = qkv->shape.dim[0],
                                  .heads = heads,
                                  .steps = qkv->shape.dim[1],
                                  .size = qkv->shape.dim[2] / 3 / heads,
                                  .dtype = qkv->dtype,
                                  .backward = backward};
}

CUDA_KERNEL_PREPARE(attention_fwd) {
    const cuda_dnn_attention_t shape = shape_of(call, &call->in[FWD_QKV], false);
    const char *obstacle = find_obstacle(&shape, cuda_present(&call->out[FWD_KEPT_OUT]));
    return attention_prepare(device, call, &shape, obstacle, out_state, out_scratch_bytes);
}

CUDA_KERNEL_PREPARE(attention_bwd) {
    const cuda_dnn_attention_t shape = shape_of(call, &call->in[BWD_QKV], true);
    const char *obstacle = find_obstacle(&shape, cuda_present(&call->in[BWD_KEPT]));
    return attention_prepare(device, call, &shape, obstacle, out_state, out_scratch_bytes);
}

CUDA_KERNEL_RELEASE(attention) {
    attention_t *a = state;
    if (!a) return;
    tr_cuda_dnn_release(&a->dnn);
    tr_cuda_plain_attention_release(&a->plain);
    tr_free(&a);
}

static tr_status_t attention_run_dnn(tr_device_t *device, tr_stream_t *stream,
                                     const tr_kernel_call_t *call,
                                     const cuda_dnn_attention_data_t *data,
                                     const cuda_attention_dropout_t *dropout) {
    const attention_t *a = call->state;
    const cuda_dnn_attention_t *g = &a->group;
    const cuda_heads_t heads = {g->samples, 1, g->heads, g->steps, g->size, g->dtype};
    cuda_attention_dropout_t of_group = *dropout;
    char *workspace = (char *)call->scratch + mask_bytes(g);
    for (int64_t i = 0; i < a->shape.samples / g->samples; i++) {
        cuda_dnn_attention_data_t d = tr_cuda_attention_group(g, data, i);
        if (g->drops) {
            d.mask = call->scratch, d.factor = dropout->factor;
            of_group.sample_id = dropout->sample_id + i * g->samples;
            TR_TRY(tr_cuda_dropout_mask(stream, &heads, &of_group, d.mask));
        }
        TR_TRY(tr_cuda_dnn_attention_run(device, stream, a->dnn, g, &d, workspace));
    }
    return TR_OK;
}

static tr_status_t attention_run(tr_device_t *device, tr_stream_t *stream,
                                 const tr_kernel_call_t *call,
                                 const cuda_dnn_attention_data_t *data) {
    const attention_t *a = call->state;
    const cuda_attention_dropout_t dropout =
        cuda_attention_dropout_of(call, a->shape.backward ? BWD_IDS : FWD_IDS);
    return a->dnn ? attention_run_dnn(device, stream, call, data, &dropout)
                  : tr_cuda_plain_attention_run(device, stream, a->plain, data, &dropout,
                                                call->scratch);
}

static bool attention_is_library(const attention_t *a, const cuda_dnn_attention_data_t *data) {
    return (a->dnn || a->plain) && is_aligned(data);
}

CUDA_KERNEL(attention_fwd) {
    const attention_t *a = call->state;
    const cuda_dnn_attention_data_t data = {
        .qkv = call->in[FWD_QKV].data, .y = call->out[0].data, .lse = call->out[1].data};
    if (!attention_is_library(a, &data)) return tr_cuda_own_attention_fwd(device, stream, call);
    return attention_run(device, stream, call, &data);
}

CUDA_KERNEL(attention_bwd) {
    const attention_t *a = call->state;
    const cuda_dnn_attention_data_t data = {.qkv = call->in[BWD_QKV].data,
                                            .y = call->in[BWD_Y].data,
                                            .lse = call->in[BWD_LSE].data,
                                            .dy = call->in[BWD_DY].data,
                                            .dqkv = call->out[0].data};
    if (!attention_is_library(a, &data)) return tr_cuda_own_attention_bwd(device, stream, call);
    return attention_run(device, stream, call, &data);
}

void tr_cuda_attention_describe(const void *state, char *text, size_t text_bytes) {
    const attention_t *a = state;
    if (a->dnn && a->group.samples == a->shape.samples)
        tr_cuda_dnn_describe(a->dnn, text, text_bytes);
    else if (a->dnn) {
        char engine[96];
        tr_cuda_dnn_describe(a->dnn, engine, sizeof engine);
        tr_snprintf(text, text_bytes, "%s, %lld samples at a time", engine,
                    (long long)a->group.samples);
    } else
        snprintf(text, text_bytes, "%s", a->plain ? "cuBLASLt, standard" : "own kernel");
}
