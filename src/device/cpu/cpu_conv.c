/* Convolutions by oneDNN. Images are N S... C, weights K kernel... C/groups; oneDNN counts dimensions as N C S... and [G] K C kernel... */
#include "cpu_int.h"
#include "cpu_onednn.h"

static cpu_dnn_tensor_t image_of(const tr_view_t *view, int spatial) {
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
    if (groups == 1) return image_of(&filter, spatial);
    filter.shape.dim[0] /= groups;
    cpu_dnn_tensor_t inner = image_of(&filter, spatial), t = {.ndim = inner.ndim + 1, .dtype = view->dtype};
    t.dim[0] = groups, t.stride[0] = inner.stride[0] * inner.dim[0];
    for (int i = 0; i < inner.ndim; i++) t.dim[i + 1] = inner.dim[i], t.stride[i + 1] = inner.stride[i];
    return t;
}

static cpu_dnn_tensor_t bias_of(const tr_view_t *view) {
    return cpu_present(view) ? (cpu_dnn_tensor_t){.ndim = 1, .dim = {view->shape.dim[0]}, .stride = {1}}
                             : (cpu_dnn_tensor_t){.ndim = 0};
}

static tr_status_t prepare(cpu_dnn_desc_t *desc, const tr_device_t *device, const tr_conv_attr_t *attr,
                           void **out_state, size_t *out_scratch_bytes) {
    cpu_dnn_t *dnn = NULL;
    for (int i = 0; i < attr->spatial; i++) {
        desc->stride[i] = attr->stride[i], desc->dilation[i] = attr->dilation[i];
        desc->pad_lo[i] = attr->pad_lo[i], desc->pad_hi[i] = attr->pad_hi[i];
    }
    desc->threads = device->threads;
    TR_TRY(tr_cpu_dnn_create(desc, &dnn));
    *out_state = dnn;
    *out_scratch_bytes = tr_cpu_dnn_scratch_bytes(dnn);
    return TR_OK;
}

CPU_KERNEL_PREPARE(conv_fwd) {
    const tr_conv_attr_t *attr = call->attr;
    cpu_dnn_desc_t desc = {.kind = CPU_DNN_CONV_FWD, .act = attr->act};
    desc.src = image_of(&call->in[0], attr->spatial);
    desc.weights = weights_of(&call->in[1], attr->spatial, attr->groups);
    desc.bias = bias_of(&call->in[2]);
    desc.dst = image_of(&call->out[0], attr->spatial);
    return prepare(&desc, device, attr, out_state, out_scratch_bytes);
}

CPU_KERNEL(conv_fwd) {
    const cpu_dnn_data_t data = {call->in[0].data, call->in[1].data, call->in[2].data, call->out[0].data};
    return tr_cpu_dnn_run(call->state, &data, call->scratch);
}

CPU_KERNEL_PREPARE(conv_bwd_data) {
    const tr_conv_attr_t *attr = call->attr;
    cpu_dnn_desc_t desc = {.kind = CPU_DNN_CONV_BWD_DATA};
    desc.src = image_of(&call->out[0], attr->spatial);
    desc.weights = weights_of(&call->in[1], attr->spatial, attr->groups);
    desc.dst = image_of(&call->in[0], attr->spatial);
    return prepare(&desc, device, attr, out_state, out_scratch_bytes);
}

CPU_KERNEL(conv_bwd_data) {
    const cpu_dnn_data_t data = {call->out[0].data, call->in[1].data, NULL, call->in[0].data};
    return tr_cpu_dnn_run(call->state, &data, call->scratch);
}

CPU_KERNEL_PREPARE(conv_bwd_weights) {
    const tr_conv_attr_t *attr = call->attr;
    cpu_dnn_desc_t desc = {.kind = CPU_DNN_CONV_BWD_WEIGHTS};
    desc.src = image_of(&call->in[0], attr->spatial);
    desc.weights = weights_of(&call->out[0], attr->spatial, attr->groups);
    desc.bias = bias_of(&call->out[1]);
    desc.dst = image_of(&call->in[1], attr->spatial);
    return prepare(&desc, device, attr, out_state, out_scratch_bytes);
}

CPU_KERNEL(conv_bwd_weights) {
    const cpu_dnn_data_t data = {call->in[0].data, call->out[0].data, call->out[1].data, call->in[1].data};
    return tr_cpu_dnn_run(call->state, &data, call->scratch);
}

CPU_KERNEL_RELEASE(conv) {
    cpu_dnn_t *dnn = state;
    tr_cpu_dnn_destroy(&dnn);
}
