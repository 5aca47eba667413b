/*
 * Convolutions. cuDNN computes all but the gradients of 1x1 filters that are products: those of the
 * filter, and those of the image that are added to a sum. For
 * bf16 and f16 filter gradients it needs channels in multiples of 8: those of the image are padded,
 * and where that is not possible the gradient is computed in f32. It also takes a gradient of other
 * numbers of outputs, and its result is wrong (9.14 on an H100). Where cuDNN has no engine that adds the
 * bias, a pass over the result does. Filter gradients of few channels are products, too: cuda_unfold.h.
 */
#include "device/kernel_parts.h"
#include "cuda_dnn.h"
#include "cuda_unfold.h"
#include "device/cuda/cuda_place.h"
#include "device/cuda/cuda_product.h"
#include "base/mem.h"
#include <stdio.h>

/* bf16 and f16 filter gradients need channels in multiples of this. */
#define CHANNEL_PACK 8

/* Scratch begins with copies of inputs: one at 0, one at `second_at`; then come a copy of the bias and
 * the workspace. */
typedef struct {
    cuda_dnn_plan_t *dnn;         /* or */
    cuda_product_plan_t *product; /* dw (K, C) = dy^T (K, R) x (R, C); or */
    cuda_unfold_plan_t *unfold;
    bool fused;                   /* bias and relu are inside */
    int64_t pad_to;               /* channels of the copies of x and the filters; 0: no copies */
    bool widened;                 /* filter gradient: f32 copies of x and dy */
    size_t second_at, bias_at, workspace_at;
} conv_t;

tr_status_t tr_cuda_conv_fail(const char *what, const cuda_dnn_conv_t *c) {
    char x[96], w[96];
    return TR_FAIL(TR_ERR_CONFIG,
                   "cuDNN has no deterministic engine for the %s of a convolution of %s images %s "
                   "with filters %s in %d "
                   "groups; change the layer, or train on the CPU (device = cpu)",
                   what, tr_dtype_name(c->dtype), tr_shape_format(&c->x, x),
                   tr_shape_format(&c->w, w), c->attr->groups);
}

static tr_status_t plan_dnn(tr_device_t *device, const char *what, const cuda_dnn_conv_t *c,
                            conv_t *conv, size_t *workspace) {
    TR_TRY(tr_cuda_dnn_plan(device, c, &conv->dnn, workspace));
    return conv->dnn ? TR_OK : tr_cuda_conv_fail(what, c);
}

static void conv_release(conv_t **conv) {
    if (!*conv) return;
    tr_cuda_dnn_release(&(*conv)->dnn);
    tr_cuda_product_release(&(*conv)->product);
    tr_cuda_unfold_release(&(*conv)->unfold);
    tr_free(conv);
}

CUDA_KERNEL_RELEASE(conv) {
    conv_t *conv = state;
    conv_release(&conv);
}

void tr_cuda_conv_describe(const void *state, char *text, size_t text_bytes) {
    const conv_t *conv = state;
    char how[96] = "cuBLASLt";
    if (conv->dnn) tr_cuda_dnn_describe(conv->dnn, how, sizeof how);
    snprintf(text, text_bytes, "%s%s%s%s%s", how, conv->fused ? "; fused" : "",
             conv->unfold ? "; images unfolded" : "", conv->pad_to ? "; channels padded" : "",
             conv->widened ? "; through f32 copies" : "");
}

/* -- forward ----------------------------------------------------------------------------------- */

/* Gives c copies of x and its filters whose channels are whole packs. */
static void conv_pad(conv_t *conv, cuda_dnn_conv_t *c, size_t filter_bytes) {
    int64_t *channels = &c->x.dim[c->x.ndim - 1];
    conv->pad_to = (*channels + CHANNEL_PACK - 1) / CHANNEL_PACK * CHANNEL_PACK;
    *channels = c->w.dim[c->w.ndim - 1] = conv->pad_to;
    conv->second_at = cuda_place_bytes((size_t)tr_shape_elems(&c->x) * 2);
    conv->workspace_at =
        conv->second_at + cuda_place_bytes((size_t)tr_shape_elems(&c->w) * filter_bytes);
}

/* The products of colours and the like are faster on padded copies: on an H100 1.9 ms instead of 3.1
 * for the first layer of ResNet-50, but 0.09 instead of 0.02 for the one channel of mnist_cnn. */
static bool conv_forward_pads(const cuda_dnn_conv_t *c) {
    const int64_t channels = c->x.dim[c->x.ndim - 1];
    return tr_dtype_is_half(c->dtype) && c->attr->groups == 1 && channels >= 3 &&
           channels % CHANNEL_PACK != 0;
}

/* With bias and relu inside, else without. */
static tr_status_t plan_forward(tr_device_t *device, const tr_kernel_call_t *call, conv_t *conv,
                                size_t *workspace) {
    const tr_conv_attr_t *attr = call->attr;
    cuda_dnn_conv_t c = {.kind = CUDA_DNN_FORWARD,
                         .attr = attr,
                         .x = call->in[0].shape,
                         .w = call->in[1].shape,
                         .y = call->out[0].shape,
                         .dtype = call->in[0].dtype,
                         .bias = cuda_present(&call->in[2]),
                         .relu = attr->act == TR_ACT_RELU};
    if (conv_forward_pads(&c)) conv_pad(conv, &c, 2);
    if (c.bias || c.relu) {
        TR_TRY(tr_cuda_dnn_plan(device, &c, &conv->dnn, workspace));
        conv->fused = conv->dnn != NULL;
        if (conv->fused) return TR_OK;
        c.bias = c.relu = false;
    }
    return plan_dnn(device, "forward pass", &c, conv, workspace);
}

CUDA_KERNEL_PREPARE(conv_fwd) {
    conv_t *conv = NULL;
    size_t workspace = 0;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *conv, "a convolution", &conv));
    TR_TRY_GOTO(plan_forward(device, call, conv, &workspace), fail);
    conv->bias_at = conv->workspace_at;
    if (conv->fused && cuda_present(&call->in[2]) && !cuda_bias_copy(call) &&
        tr_dtype_is_half(call->out[0].dtype))
        conv->workspace_at += cuda_place_bytes((size_t)call->in[2].shape.dim[0] * 2); /* rounded */
    *out_state = conv;
    *out_scratch_bytes = conv->workspace_at + workspace;
    return TR_OK;
fail:
    conv_release(&conv);
    return status;
}

static tr_status_t conv_copy_padded(tr_device_t *device, tr_stream_t *stream, const tr_view_t *view,
                                    void *copy, int64_t pad_to) {
    const int64_t channels = view->shape.dim[view->shape.ndim - 1];
    return tr_cuda_pad_columns(device, stream, view->data, copy, view->dtype,
                               tr_shape_elems(&view->shape) / channels, channels, pad_to);
}

CUDA_KERNEL(conv_fwd) {
    const conv_t *conv = call->state;
    const tr_view_t *y = &call->out[0];
    const tr_act_t act = ((const tr_conv_attr_t *)call->attr)->act;
    const int64_t columns = y->shape.dim[y->shape.ndim - 1],
                  rows = tr_shape_elems(&y->shape) / columns;
    char *scratch = call->scratch;
    void *bias = cuda_present(&call->in[2]) ? call->in[2].data : NULL;
    cuda_dnn_data_t data = {
        .x = call->in[0].data, .w = call->in[1].data, .bias = bias, .y = y->data};
    if (cuda_bias_copy(call)) data.bias = cuda_bias_copy(call)->data;
    if (conv->workspace_at > conv->bias_at) {
        data.bias = scratch + conv->bias_at;
        TR_TRY(tr_cuda_narrow(device, stream, bias, data.bias, y->dtype, columns));
    }
    if (conv->pad_to) {
        data.x = scratch, data.w = scratch + conv->second_at;
        TR_TRY(conv_copy_padded(device, stream, &call->in[0], data.x, conv->pad_to));
        TR_TRY(conv_copy_padded(device, stream, &call->in[1], data.w, conv->pad_to));
    }
    TR_TRY(tr_cuda_dnn_run(device, stream, conv->dnn, &data,
                           scratch ? scratch + conv->workspace_at : NULL));
    if (conv->fused) bias = NULL;
    const tr_act_t left = conv->fused && act == TR_ACT_RELU ? TR_ACT_NONE : act;
    return tr_cuda_bias_act(device, stream, y->data, y->dtype, rows, columns, bias, left);
}

/* -- gradient of the images -------------------------------------------------------------------- */

/* dx (R, C) += dy (R, K) w (K, C) */
static cuda_product_t image_product(const tr_kernel_call_t *call) {
    const tr_shape_t *dy = &call->in[0].shape, *w = &call->in[1].shape;
    const int64_t outputs = dy->dim[dy->ndim - 1];
    return (cuda_product_t){.in = call->in[0].dtype,
                            .out = call->out[0].dtype,
                            .m = tr_shape_elems(dy) / outputs,
                            .n = w->dim[w->ndim - 1],
                            .k = outputs,
                            .batch = 1,
                            .alpha = 1,
                            .beta = 1};
}

static bool has_sum(const tr_kernel_call_t *call) {
    return call->n_in > 2 && cuda_present(&call->in[2]);
}

CUDA_KERNEL_PREPARE(conv_bwd_data) {
    const cuda_product_t product = image_product(call);
    const cuda_dnn_conv_t c = {.kind = CUDA_DNN_BACKWARD_DATA,
                               .attr = call->attr,
                               .x = call->out[0].shape,
                               .w = call->in[1].shape,
                               .y = call->in[0].shape,
                               .dtype = call->in[0].dtype};
    conv_t *conv = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *conv, "a convolution", &conv));
    status = has_sum(call)
                 ? tr_cuda_product_plan(device, &product, &conv->product, out_scratch_bytes)
                 : plan_dnn(device, "image gradient", &c, conv, out_scratch_bytes);
    if (status != TR_OK) goto fail;
    *out_state = conv;
    return TR_OK;
fail:
    conv_release(&conv);
    return status;
}

static tr_status_t add_image_product(tr_device_t *device, tr_stream_t *stream,
                                     const tr_kernel_call_t *call, const conv_t *conv) {
    const tr_view_t *dx = &call->out[0], *sum = &call->in[2];
    const size_t bytes = (size_t)tr_shape_elems(&dx->shape) * tr_dtype_bytes(dx->dtype);
    if (sum->data != dx->data)
        TR_TRY(device->ops->copy(device, stream, dx->data, sum->data, bytes, TR_COPY_ON_DEVICE));
    return tr_cuda_product_run(device, stream, conv->product, call->in[0].data, call->in[1].data,
                               NULL, dx->data, call->scratch);
}

CUDA_KERNEL(conv_bwd_data) {
    const conv_t *conv = call->state;
    if (conv->product) return add_image_product(device, stream, call, conv);
    const cuda_dnn_data_t data = {
        .x = call->out[0].data, .w = call->in[1].data, .y = call->in[0].data};
    return tr_cuda_dnn_run(device, stream, conv->dnn, &data, call->scratch);
}

/* -- gradient of the filters ------------------------------------------------------------------- */

/* A filter of one position that reads each pixel once. */
static bool cuda_conv_is_product(const tr_conv_attr_t *attr) {
    bool one = attr->groups == 1;
    for (int i = 0; i < attr->spatial; i++)
        one &= attr->kernel[i] == 1 && attr->stride[i] == 1 && attr->pad_lo[i] == 0 &&
               attr->pad_hi[i] == 0;
    return one;
}

static tr_status_t plan_weights(tr_device_t *device, const tr_kernel_call_t *call, conv_t *conv,
                                size_t *workspace) {
    static const char what[] = "filter gradient";
    const tr_view_t *x = &call->in[0], *dy = &call->in[1];
    const int64_t channels = x->shape.dim[x->shape.ndim - 1],
                  outputs = dy->shape.dim[dy->shape.ndim - 1];
    cuda_dnn_conv_t c = {.kind = CUDA_DNN_BACKWARD_WEIGHTS,
                         .attr = call->attr,
                         .x = x->shape,
                         .w = call->out[0].shape,
                         .y = dy->shape,
                         .dtype = x->dtype};
    if (cuda_conv_is_product(c.attr)) {
        const cuda_product_t product = {.in = x->dtype,
                                        .out = TR_F32,
                                        .trans_a = true,
                                        .m = outputs,
                                        .n = channels,
                                        .k = tr_shape_elems(&x->shape) / channels,
                                        .batch = 1,
                                        .alpha = 1};
        return tr_cuda_product_plan(device, &product, &conv->product, workspace);
    }
    const bool is_half = tr_dtype_is_half(x->dtype), fits = outputs % CHANNEL_PACK == 0;
    TR_TRY(tr_cuda_unfold_plan(device, &c, &conv->unfold, workspace));
    if (conv->unfold) return TR_OK;
    if (is_half && fits && c.attr->groups == 1 && channels % CHANNEL_PACK != 0)
        conv_pad(conv, &c, 4);
    if (!is_half || fits) TR_TRY(tr_cuda_dnn_plan(device, &c, &conv->dnn, workspace));
    if (conv->dnn || !is_half) return conv->dnn ? TR_OK : tr_cuda_conv_fail(what, &c);
    conv->pad_to = 0, conv->widened = true;
    conv->second_at = cuda_place_bytes((size_t)tr_shape_elems(&x->shape) * 4);
    conv->workspace_at = conv->second_at + cuda_place_bytes((size_t)tr_shape_elems(&dy->shape) * 4);
    c.x = x->shape, c.w = call->out[0].shape, c.dtype = TR_F32;
    return plan_dnn(device, what, &c, conv, workspace);
}

CUDA_KERNEL_PREPARE(conv_bwd_weights) {
    conv_t *conv = NULL;
    size_t workspace = 0, sums = 0;
    tr_status_t status = TR_OK;
    void *none;
    if (cuda_present(&call->out[1])) {
        const tr_kernel_call_t sum = tr_conv_bias_call(call);
        TR_TRY(tr_cuda_column_sum_prepare(device, &sum, &none, &sums));
    }
    TR_TRY(tr_alloc(sizeof *conv, "a convolution", &conv));
    TR_TRY_GOTO(plan_weights(device, call, conv, &workspace), fail);
    /* the column sums come last and may overwrite the rest */
    *out_scratch_bytes =
        conv->workspace_at + workspace > sums ? conv->workspace_at + workspace : sums;
    *out_state = conv;
    return TR_OK;
fail:
    conv_release(&conv);
    return status;
}

static tr_status_t padded_weights(tr_device_t *device, tr_stream_t *stream,
                                  const tr_kernel_call_t *call, const conv_t *conv) {
    const tr_view_t *dw = &call->out[0];
    const int64_t channels = dw->shape.dim[dw->shape.ndim - 1];
    char *scratch = call->scratch;
    const cuda_dnn_data_t data = {
        .x = scratch, .w = scratch + conv->second_at, .y = call->in[1].data};
    TR_TRY(conv_copy_padded(device, stream, &call->in[0], data.x, conv->pad_to));
    TR_TRY(tr_cuda_dnn_run(device, stream, conv->dnn, &data, scratch + conv->workspace_at));
    return tr_cuda_pad_columns(device, stream, data.w, dw->data, TR_F32,
                               tr_shape_elems(&dw->shape) / channels, conv->pad_to, channels);
}

/* An f32 copy of `view` at `to`, as a call of CAST_NORMALIZE. */
static tr_status_t cuda_conv_widen(tr_device_t *device, tr_stream_t *stream, const tr_view_t *view,
                                   void *to) {
    const tr_view_t absent = {.shape = {.ndim = -1}};
    tr_kernel_call_t cast = {.n_in = 3, .n_out = 1, .in = {*view, absent, absent}, .out = {*view}};
    cast.out[0].dtype = TR_F32, cast.out[0].data = to;
    return tr_cuda_cast_normalize(device, stream, &cast);
}

static tr_status_t widened_weights(tr_device_t *device, tr_stream_t *stream,
                                   const tr_kernel_call_t *call, const conv_t *conv) {
    char *scratch = call->scratch;
    const cuda_dnn_data_t data = {
        .x = scratch, .w = call->out[0].data, .y = scratch + conv->second_at};
    TR_TRY(cuda_conv_widen(device, stream, &call->in[0], data.x));
    TR_TRY(cuda_conv_widen(device, stream, &call->in[1], data.y));
    return tr_cuda_dnn_run(device, stream, conv->dnn, &data, scratch + conv->workspace_at);
}

CUDA_KERNEL(conv_bwd_weights) {
    const conv_t *conv = call->state;
    const cuda_dnn_data_t data = {
        .x = call->in[0].data, .w = call->out[0].data, .y = call->in[1].data};
    if (conv->product)
        TR_TRY(tr_cuda_product_run(device, stream, conv->product, data.y, data.x, NULL, data.w,
                                   call->scratch));
    else if (conv->unfold)
        TR_TRY(tr_cuda_unfold_run(device, stream, conv->unfold, &data, call->scratch));
    else if (conv->pad_to)
        TR_TRY(padded_weights(device, stream, call, conv));
    else if (conv->widened)
        TR_TRY(widened_weights(device, stream, call, conv));
    else
        TR_TRY(tr_cuda_dnn_run(device, stream, conv->dnn, &data, call->scratch));
    if (!cuda_present(&call->out[1])) return TR_OK;
    const tr_kernel_call_t bias = tr_conv_bias_call(call);
    return tr_cuda_column_sum(device, stream, &bias);
}
