/* The cuda device's kernels, one line each, in kernels.def's order, and the functions that the
 * device's table has for them. */
#include "device/cuda/cudnn/cuda_dnn.h"
#include <stdio.h>

static const tr_kernel_t kernels[TR_K_COUNT] = {
    [TR_K_COPY] = {.run = tr_cuda_copy},
    [TR_K_ACCUMULATE] = {.run = tr_cuda_accumulate},
    [TR_K_ADD] = {.run = tr_cuda_add},
    [TR_K_SCALE] = {.run = tr_cuda_scale},
    [TR_K_CAST_NORMALIZE] = {.run = tr_cuda_cast_normalize},
    [TR_K_AUGMENT] = {.run = tr_cuda_augment, .prepare = tr_cuda_augment_prepare},
    [TR_K_MATMUL] = {.run = tr_cuda_matmul,
                     .prepare = tr_cuda_matmul_prepare,
                     .release = tr_cuda_matmul_release,
                     .adds = 1},
    [TR_K_COLUMN_SUM] = {.run = tr_cuda_column_sum,
                         .prepare = tr_cuda_column_sum_prepare,
                         .adds = 1},
    [TR_K_CONV_FWD] = {.run = tr_cuda_conv_fwd,
                       .prepare = tr_cuda_conv_fwd_prepare,
                       .release = tr_cuda_conv_release,
                       .describe = tr_cuda_conv_describe},
    [TR_K_CONV_BWD_DATA] = {.run = tr_cuda_conv_bwd_data,
                            .prepare = tr_cuda_conv_bwd_data_prepare,
                            .release = tr_cuda_conv_release,
                            .describe = tr_cuda_conv_describe,
                            .adds = 1},
    [TR_K_CONV_BWD_WEIGHTS] = {.run = tr_cuda_conv_bwd_weights,
                               .prepare = tr_cuda_conv_bwd_weights_prepare,
                               .release = tr_cuda_conv_release,
                               .describe = tr_cuda_conv_describe},
    [TR_K_POOL_FWD] = {.run = tr_cuda_pool_fwd},
    [TR_K_POOL_BWD] = {.run = tr_cuda_pool_bwd},
    [TR_K_BATCHNORM_TRAIN] = {.run = tr_cuda_batchnorm_train,
                              .prepare = tr_cuda_batchnorm_train_prepare},
    [TR_K_BATCHNORM_EVAL] = {.run = tr_cuda_batchnorm_eval,
                             .prepare = tr_cuda_batchnorm_eval_prepare},
    [TR_K_BATCHNORM_BWD] = {.run = tr_cuda_batchnorm_bwd,
                            .prepare = tr_cuda_batchnorm_bwd_prepare,
                            .adds = 6},
    [TR_K_BATCHNORM_ADD_TRAIN] = {.run = tr_cuda_batchnorm_add_train,
                                  .prepare = tr_cuda_batchnorm_train_prepare},
    [TR_K_BATCHNORM_ADD_BWD] = {.run = tr_cuda_batchnorm_add_bwd,
                                .prepare = tr_cuda_batchnorm_bwd_prepare,
                                .adds = 6},
    [TR_K_CONV_STATS_FWD] = {.run = tr_cuda_conv_stats_fwd,
                             .prepare = tr_cuda_conv_stats_fwd_prepare,
                             .release = tr_cuda_conv_stats_fwd_release,
                             .describe = tr_cuda_conv_stats_describe},
    [TR_K_BATCHNORM_SUMS_TRAIN] = {.run = tr_cuda_batchnorm_sums_train},
    [TR_K_LAYERNORM_FWD] = {.run = tr_cuda_layernorm_fwd},
    [TR_K_LAYERNORM_BWD] = {.run = tr_cuda_layernorm_bwd, .prepare = tr_cuda_layernorm_bwd_prepare},
    [TR_K_ACT_FWD] = {.run = tr_cuda_act_fwd},
    [TR_K_ACT_BWD] = {.run = tr_cuda_act_bwd},
    [TR_K_DROPOUT] = {.run = tr_cuda_dropout},
    [TR_K_XENT_FWD] = {.run = tr_cuda_xent_fwd},
    [TR_K_XENT_BWD] = {.run = tr_cuda_xent_bwd},
    [TR_K_MSE_FWD] = {.run = tr_cuda_mse_fwd},
    [TR_K_MSE_BWD] = {.run = tr_cuda_mse_bwd},
    [TR_K_TOPK_CORRECT] = {.run = tr_cuda_topk_correct},
    [TR_K_WEIGHTED_SUM] = {.run = tr_cuda_weighted_sum, .prepare = tr_cuda_weighted_sum_prepare},
    [TR_K_GRAD_NORM] = {.run = tr_cuda_grad_norm, .prepare = tr_cuda_grad_norm_prepare},
    [TR_K_SGD] = {.run = tr_cuda_sgd},
    [TR_K_ADAM] = {.run = tr_cuda_adam},
    [TR_K_MOMENTS_UPDATE] = {.run = tr_cuda_moments_update},
    [TR_K_EMA_UPDATE] = {.run = tr_cuda_ema_update},
    [TR_K_CHECK_FINITE] = {.run = tr_cuda_check_finite},
    [TR_K_HUBER_FWD] = {.run = tr_cuda_huber_fwd},
    [TR_K_HUBER_BWD] = {.run = tr_cuda_huber_bwd},
    [TR_K_BCE_FWD] = {.run = tr_cuda_bce_fwd},
    [TR_K_BCE_BWD] = {.run = tr_cuda_bce_bwd},
    [TR_K_CLASS_WEIGHT] = {.run = tr_cuda_class_weight},
    [TR_K_CONCAT] = {.run = tr_cuda_concat},
    [TR_K_COLUMNS] = {.run = tr_cuda_columns},
    [TR_K_EMBEDDING_FWD] = {.run = tr_cuda_embedding_fwd},
    [TR_K_EMBEDDING_BWD] = {.run = tr_cuda_embedding_bwd},
    [TR_K_ATTENTION_FWD] = {.run = tr_cuda_attention_fwd,
                            .prepare = tr_cuda_attention_fwd_prepare,
                            .release = tr_cuda_attention_release,
                            .describe = tr_cuda_attention_describe},
    [TR_K_ATTENTION_BWD] = {.run = tr_cuda_attention_bwd,
                            .prepare = tr_cuda_attention_bwd_prepare,
                            .release = tr_cuda_attention_release,
                            .describe = tr_cuda_attention_describe},
    [TR_K_RESIDUAL_LAYERNORM_FWD] = {.run = tr_cuda_residual_layernorm_fwd},
    [TR_K_RESIDUAL_LAYERNORM_BWD] = {.run = tr_cuda_residual_layernorm_bwd,
                                     .prepare = tr_cuda_layernorm_bwd_prepare},
    [TR_K_HEAD_LOSS] = {.run = tr_cuda_head_loss,
                        .prepare = tr_cuda_head_loss_prepare,
                        .release = tr_cuda_head_loss_release},
    [TR_K_MATMUL_ROWS] = {.run = tr_cuda_matmul_rows},
    [TR_K_CACHE_APPEND] = {.run = tr_cuda_cache_append},
    [TR_K_ATTENTION_CACHED] = {.run = tr_cuda_attention_cached,
                               .prepare = tr_cuda_attention_cached_prepare},
};

static tr_status_t run(tr_kernel_id_t id, tr_device_t *device, tr_stream_t *stream,
                       const tr_kernel_call_t *call) {
    char who[64];
    TR_TRY(tr_cuda_enter(device));
    TR_TRY(kernels[id].run(device, stream, call));
    if (!cuda_self(device)->sync) return TR_OK;
    snprintf(who, sizeof who, "kernel %s", tr_kernel_name(id));
    return tr_cuda_stream_wait(device, stream->handle, who);
}

static tr_status_t prepare(tr_kernel_id_t id, tr_device_t *device, const tr_kernel_call_t *call,
                           void **out_state, size_t *out_scratch_bytes) {
    *out_state = NULL, *out_scratch_bytes = 0;
    if (!kernels[id].prepare) return TR_OK;
    TR_TRY(tr_cuda_enter(device));
    return kernels[id].prepare(device, call, out_state, out_scratch_bytes);
}

static void release(tr_kernel_id_t id, tr_device_t *device, void *state) {
    if (!kernels[id].release) return;
    (void)tr_cuda_enter(device);
    kernels[id].release(device, state);
}

/* A kernel's functions are not told which kernel they are for, so each slot has its own. */
#define KERNEL(name, required)                                                                     \
    static tr_status_t run_##name(tr_device_t *d, tr_stream_t *s, const tr_kernel_call_t *c) {     \
        return run(TR_K_##name, d, s, c);                                                          \
    }                                                                                              \
    static tr_status_t prepare_##name(tr_device_t *d, const tr_kernel_call_t *c, void **state,     \
                                      size_t *n) {                                                 \
        return prepare(TR_K_##name, d, c, state, n);                                               \
    }                                                                                              \
    static void release_##name(tr_device_t *d, void *state) {                                      \
        release(TR_K_##name, d, state);                                                            \
    }
#include "device/kernels.def"
#undef KERNEL

tr_kernel_t tr_cuda_kernels[TR_K_COUNT];

/* A slot without a kernel stays empty, so that its ops are refused by name. */
void tr_cuda_kernels_fill(void) {
    static const tr_kernel_t entered[TR_K_COUNT] = {
#define KERNEL(name, required)                                                                     \
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
