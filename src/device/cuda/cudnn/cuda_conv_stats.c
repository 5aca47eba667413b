/*
 * A convolution that also gives the sums of its batch normalisation. cuDNN adds them up where it
 * has an engine for both; elsewhere a pass over the result does.
 */
#include "cuda_dnn.h"
#include "base/mem.h"
#include <stdio.h>

#define SCRATCH_ALIGN 256

typedef struct {
    cuda_dnn_plan_t *dnn;
    bool fused; /* dnn gives the sums */
} conv_stats_t;

static size_t own_scratch(const tr_view_t *y) {
    const int64_t channels = y->shape.dim[y->shape.ndim - 1];
    return tr_cuda_square_sums_bytes(tr_shape_elems(&y->shape) / channels, channels);
}

static tr_status_t plan(tr_device_t *device, const tr_kernel_call_t *call, conv_stats_t *conv,
                        size_t *out_scratch_bytes) {
    const tr_shape_t *y = &call->out[0].shape;
    const bool aligned = y->dim[y->ndim - 1] % 4 == 0; /* then the squares are, behind the sums */
    cuda_dnn_conv_t c = {.kind = CUDA_DNN_FORWARD,
                         .attr = call->attr,
                         .x = call->in[0].shape,
                         .w = call->in[1].shape,
                         .y = call->out[0].shape,
                         .dtype = call->in[0].dtype,
                         .stats = true};
    if (aligned) TR_TRY(tr_cuda_dnn_plan(device, &c, &conv->dnn, out_scratch_bytes));
    conv->fused = conv->dnn != NULL;
    if (conv->fused) return TR_OK;
    c.stats = false;
    TR_TRY(tr_cuda_dnn_plan(device, &c, &conv->dnn, out_scratch_bytes));
    if (!conv->dnn) return tr_cuda_conv_fail("forward pass", &c);
    const size_t own = own_scratch(&call->out[0]);
    if (own > *out_scratch_bytes) *out_scratch_bytes = own;
    return TR_OK;
}

CUDA_KERNEL_PREPARE(conv_stats_fwd) {
    conv_stats_t *conv = NULL;
    TR_TRY(tr_alloc(sizeof *conv, "a convolution", &conv));
    const tr_status_t status = plan(device, call, conv, out_scratch_bytes);
    if (status == TR_OK)
        *out_state = conv;
    else
        tr_free(&conv);
    return status;
}

CUDA_KERNEL_RELEASE(conv_stats_fwd) {
    conv_stats_t *conv = state;
    if (!conv) return;
    tr_cuda_dnn_release(&conv->dnn);
    tr_free(&conv);
}

CUDA_KERNEL(conv_stats_fwd) {
    const conv_stats_t *conv = call->state;
    const tr_view_t *y = &call->out[0];
    const int64_t channels = y->shape.dim[y->shape.ndim - 1];
    float *sums = call->out[1].data;
    cuda_dnn_data_t data = {.x = call->in[0].data, .w = call->in[1].data, .y = y->data};
    if (conv->fused) data.sum = sums, data.squares = sums + channels;
    TR_TRY(tr_cuda_dnn_run(device, stream, conv->dnn, &data, call->scratch));
    if (conv->fused) return TR_OK;
    return tr_cuda_square_sums(stream, y->data, y->dtype, tr_shape_elems(&y->shape) / channels,
                               channels, call->scratch, sums);
}

void tr_cuda_conv_stats_describe(const void *state, char *text, size_t text_bytes) {
    const conv_stats_t *conv = state;
    char how[96];
    tr_cuda_dnn_describe(conv->dnn, how, sizeof how);
    snprintf(text, text_bytes, "%s%s", how, conv->fused ? "; sums fused" : "; sums by a pass");
}
