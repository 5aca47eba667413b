/* Convolutions, by oneDNN, Winograd's algorithm, or, of gradients with few channels, directly. Images are N S... C, weights K kernel...
 * C/groups; oneDNN's order of dimensions is N C S... and [G] K C kernel... */
#include "device/kernel_parts.h"
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_onednn.h"
#include "device/cpu/winograd/cpu_winograd.h"
#include "cpu_conv_few.h"
#include "base/mem.h"

static cpu_dnn_tensor_t cpu_conv_image_of(const tr_view_t *view, int spatial) {
    const int64_t *dim = view->shape.dim;
    cpu_dnn_tensor_t t = {.ndim = spatial + 2, .dtype = view->dtype};
    int64_t stride = dim[spatial + 1];
    t.dim[1] = dim[spatial + 1], t.stride[1] = 1;
    for (int i = spatial; i >= 1; i--) {
        t.dim[i + 1] = dim[i], t.stride[i + 1] = stride;
        stride *= dim[i];
    }
    t.dim[0] = dim[0], t.stride[0] = stride;
    return t;
}

static cpu_dnn_tensor_t weights_of(const tr_view_t *view, int spatial, int groups) {
    tr_view_t filter = *view;
    if (groups == 1) return cpu_conv_image_of(&filter, spatial);
    filter.shape.dim[0] /= groups;
    cpu_dnn_tensor_t inner = cpu_conv_image_of(&filter, spatial),
                     t = {.ndim = inner.ndim + 1, .dtype = view->dtype};
    t.dim[0] = groups, t.stride[0] = inner.stride[0] * inner.dim[0];
    for (int i = 0; i < inner.ndim; i++)
        t.dim[i + 1] = inner.dim[i], t.stride[i + 1] = inner.stride[i];
    return t;
}

static cpu_dnn_tensor_t bias_of(const tr_view_t *view) {
    return cpu_present(view)
               ? (cpu_dnn_tensor_t){.ndim = 1, .dim = {view->shape.dim[0]}, .stride = {1}}
               : (cpu_dnn_tensor_t){.ndim = 0};
}

/* The plan: oneDNN, or a way that is faster. */
typedef struct {
    cpu_dnn_t *dnn; /* NULL: few or winograd */
    bool is_few;
    cpu_conv_few_t few; /* CONV_BWD_WEIGHTS only */
    cpu_winograd_t winograd;
} conv_t;

static tr_status_t prepare_dnn(cpu_dnn_desc_t *desc, const tr_device_t *device,
                               const tr_conv_attr_t *attr, conv_t *conv,
                               size_t *out_scratch_bytes) {
    for (int i = 0; i < attr->spatial; i++) {
        desc->stride[i] = attr->stride[i], desc->dilation[i] = attr->dilation[i];
        desc->pad_lo[i] = attr->pad_lo[i], desc->pad_hi[i] = attr->pad_hi[i];
    }
    desc->threads = device->threads;
    TR_TRY(tr_cpu_dnn_create(desc, &conv->dnn));
    *out_scratch_bytes = tr_cpu_dnn_scratch_bytes(conv->dnn);
    return TR_OK;
}

static size_t bias_gradient_scratch_bytes(tr_device_t *device, const tr_kernel_call_t *call) {
    const tr_kernel_call_t sum = tr_conv_bias_call(call);
    void *state;
    size_t bytes;
    (void)tr_cpu_column_sum_prepare(device, &sum, &state, &bytes);
    return bytes;
}

/* Of the ways other than oneDNN. */
static size_t own_scratch_bytes(cpu_dnn_kind_t kind, tr_device_t *device,
                                const tr_kernel_call_t *call, const conv_t *conv) {
    const cpu_winograd_t *winograd = &conv->winograd;
    if (kind == CPU_DNN_CONV_FWD) return tr_cpu_winograd_fwd_scratch_bytes(device, winograd);
    if (kind == CPU_DNN_CONV_BWD_DATA)
        return tr_cpu_winograd_bwd_data_scratch_bytes(device, winograd);
    const size_t filters = conv->is_few
                               ? tr_cpu_conv_few_scratch_bytes(&conv->few)
                               : tr_cpu_winograd_bwd_weights_scratch_bytes(device, winograd),
                 bias = cpu_present(&call->out[1]) ? bias_gradient_scratch_bytes(device, call) : 0;
    return filters > bias ? filters : bias; /* one after the other */
}

/* The tensors by their role in the forward pass. */
typedef struct {
    const tr_view_t *x, *w, *bias, *y;
} roles_t;

static tr_status_t cpu_conv_prepare(cpu_dnn_kind_t kind, tr_device_t *device,
                                    const tr_kernel_call_t *call, roles_t r, void **out_state,
                                    size_t *out_scratch_bytes) {
    const tr_conv_attr_t *attr = call->attr;
    cpu_dnn_desc_t desc = {.kind = kind, .act = kind == CPU_DNN_CONV_FWD ? attr->act : TR_ACT_NONE};
    conv_t *conv = NULL;
    TR_TRY(tr_alloc(sizeof *conv, "a convolution", &conv));
    *out_state = conv;
    conv->is_few =
        kind == CPU_DNN_CONV_BWD_WEIGHTS && tr_cpu_conv_few_suits(attr, r.x, r.w, r.y, &conv->few);
    /* direct sums of bf16 are faster then */
    const bool has_units = r.x->dtype == TR_BF16 && tr_cpu_dnn_has_matrix_units(device->fast_bf16);
    if (conv->is_few ||
        (device->winograd && !has_units &&
         tr_cpu_winograd_suits(attr, device->alone, r.x, r.w, r.y, &conv->winograd))) {
        *out_scratch_bytes = own_scratch_bytes(kind, device, call, conv);
        return TR_OK;
    }
    desc.src = cpu_conv_image_of(r.x, attr->spatial);
    desc.weights = weights_of(r.w, attr->spatial, attr->groups);
    if (r.bias) desc.bias = bias_of(r.bias);
    desc.dst = cpu_conv_image_of(r.y, attr->spatial);
    return prepare_dnn(&desc, device, attr, conv, out_scratch_bytes);
}

CPU_KERNEL_PREPARE(conv_fwd) {
    const roles_t roles = {&call->in[0], &call->in[1], &call->in[2], &call->out[0]};
    return cpu_conv_prepare(CPU_DNN_CONV_FWD, device, call, roles, out_state, out_scratch_bytes);
}

CPU_KERNEL(conv_fwd) {
    const conv_t *conv = call->state;
    const cpu_dnn_data_t data = {call->in[0].data, call->in[1].data, call->in[2].data,
                                 call->out[0].data};
    if (conv->dnn) return tr_cpu_dnn_run(conv->dnn, &data, call->scratch);
    bool relu = ((const tr_conv_attr_t *)call->attr)->act == TR_ACT_RELU;
    tr_cpu_winograd_fwd(device, &conv->winograd, data.src, data.weights, data.bias, relu, data.dst,
                        call->scratch);
    return TR_OK;
}

CPU_KERNEL_PREPARE(conv_bwd_data) {
    const roles_t roles = {&call->out[0], &call->in[1], NULL, &call->in[0]};
    return cpu_conv_prepare(CPU_DNN_CONV_BWD_DATA, device, call, roles, out_state,
                            out_scratch_bytes);
}

CPU_KERNEL(conv_bwd_data) {
    const conv_t *conv = call->state;
    const cpu_dnn_data_t data = {call->out[0].data, call->in[1].data, NULL, call->in[0].data};
    if (conv->dnn) return tr_cpu_dnn_run(conv->dnn, &data, call->scratch);
    tr_cpu_winograd_bwd_data(device, &conv->winograd, data.dst, data.weights, data.src,
                             call->scratch);
    return TR_OK;
}

CPU_KERNEL_PREPARE(conv_bwd_weights) {
    const roles_t roles = {&call->in[0], &call->out[0], &call->out[1], &call->in[1]};
    TR_TRY(cpu_conv_prepare(CPU_DNN_CONV_BWD_WEIGHTS, device, call, roles, out_state,
                            out_scratch_bytes));
    *out_scratch_bytes += tr_cpu_adding_bytes(call);
    return TR_OK;
}

static tr_status_t overwrite_weights(tr_device_t *device, tr_stream_t *stream,
                                     const tr_kernel_call_t *call) {
    const conv_t *conv = call->state;
    const cpu_dnn_data_t data = {call->in[0].data, call->out[0].data, call->out[1].data,
                                 call->in[1].data};
    if (conv->dnn) return tr_cpu_dnn_run(conv->dnn, &data, call->scratch);
    if (conv->is_few)
        tr_cpu_conv_few(device, &conv->few, data.src, data.dst, data.weights, call->scratch);
    else
        tr_cpu_winograd_bwd_weights(device, &conv->winograd, data.src, data.dst, data.weights,
                                    call->scratch);
    if (!cpu_present(&call->out[1])) return TR_OK;
    const tr_kernel_call_t bias = tr_conv_bias_call(call);
    return tr_cpu_column_sum(device, stream, &bias);
}

CPU_KERNEL(conv_bwd_weights) {
    return tr_cpu_run_adding(device, stream, call, overwrite_weights);
}

CPU_KERNEL_RELEASE(conv) {
    conv_t *conv = state;
    if (!conv) return;
    tr_cpu_dnn_destroy(&conv->dnn);
    tr_free(&conv);
}
