/*
 * One interface to oneDNN's two C APIs. In 2.x, memory descriptors are values, and an operation
 * descriptor is created before the primitive descriptor. In 3.x, they are objects, and there is no
 * operation descriptor.
 *
 * Activations stay NHWC. Weights are passed as `any`: for our layout (K, kernel..., C) oneDNN has
 * only its reference code (measured 300 to 1000 times slower), while reordering them to its blocked
 * layout and back costs 1 to 5 % of a convolution. The algorithm is always direct: oneDNN's
 * Winograd loses accuracy, and `auto` selects it where it is slow. cpu_winograd.c has our own.
 */
#include "cpu_onednn_int.h"

/* -- the two interfaces ------------------------------------------------------------------------ */

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t layout_create(int ndim, const dnnl_dims_t dims, dnnl_data_type_t type,
                                   const dnnl_dims_t strides, layout_t *out) {
    if (strides) return dnnl_memory_desc_create_with_strides(&out->desc, ndim, dims, type, strides);
    return dnnl_memory_desc_create_with_tag(&out->desc, ndim, dims, type, dnnl_format_tag_any);
}

static void layout_destroy(layout_t *layout) {
    if (layout->desc) dnnl_memory_desc_destroy(layout->desc);
}

static dnnl_status_t append_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t kind, float alpha) {
    return dnnl_post_ops_append_eltwise(ops, kind, alpha, 0.0f);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops, float scale) {
    return dnnl_post_ops_append_sum(ops, scale, 0, dnnl_f32);
}

static dnnl_status_t plan_matmul(const recipe_t *r, dnnl_engine_t engine,
                                 dnnl_primitive_desc_t *out) {
    return dnnl_matmul_primitive_desc_create(out, engine, layout_ref(&r->src),
                                             layout_ref(&r->weights), layout_ref(&r->bias),
                                             layout_ref(&r->dst), r->attr);
}

static dnnl_status_t plan_conv_fwd(const recipe_t *r, dnnl_engine_t engine, dnnl_prop_kind_t prop,
                                   dnnl_primitive_desc_t *out) {
    return dnnl_convolution_forward_primitive_desc_create(
        out, engine, prop, dnnl_convolution_direct, layout_ref(&r->src), layout_ref(&r->weights),
        layout_ref(&r->bias), layout_ref(&r->dst), r->stride, r->dilation, r->pad_lo, r->pad_hi,
        r->attr);
}

static dnnl_status_t plan_conv_bwd_data(const recipe_t *r, dnnl_engine_t engine,
                                        dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out) {
    return dnnl_convolution_backward_data_primitive_desc_create(
        out, engine, dnnl_convolution_direct, layout_ref(&r->src), layout_ref(&r->weights),
        layout_ref(&r->dst), r->stride, r->dilation, r->pad_lo, r->pad_hi, hint, r->attr);
}

static dnnl_status_t plan_conv_bwd_weights(const recipe_t *r, dnnl_engine_t engine,
                                           dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out) {
    return dnnl_convolution_backward_weights_primitive_desc_create(
        out, engine, dnnl_convolution_direct, layout_ref(&r->src), layout_ref(&r->weights),
        layout_ref(&r->bias), layout_ref(&r->dst), r->stride, r->dilation, r->pad_lo, r->pad_hi,
        hint, r->attr);
}
#else
static dnnl_status_t layout_create(int ndim, const dnnl_dims_t dims, dnnl_data_type_t type,
                                   const dnnl_dims_t strides, layout_t *out) {
    if (strides) return dnnl_memory_desc_init_by_strides(&out->desc, ndim, dims, type, strides);
    return dnnl_memory_desc_init_by_tag(&out->desc, ndim, dims, type, dnnl_format_tag_any);
}

static void layout_destroy(layout_t *layout) {}

static dnnl_status_t append_eltwise(dnnl_post_ops_t ops, dnnl_alg_kind_t kind, float alpha) {
    return dnnl_post_ops_append_eltwise(ops, 1.0f, kind, alpha, 0.0f);
}

static dnnl_status_t append_sum(dnnl_post_ops_t ops, float scale) {
    return dnnl_post_ops_append_sum(ops, scale);
}

static dnnl_status_t plan_matmul(const recipe_t *r, dnnl_engine_t engine,
                                 dnnl_primitive_desc_t *out) {
    dnnl_matmul_desc_t op;
    dnnl_status_t status = dnnl_matmul_desc_init(&op, layout_ref(&r->src), layout_ref(&r->weights),
                                                 layout_ref(&r->bias), layout_ref(&r->dst));
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &op, r->attr, engine, NULL)
                                  : status;
}

static dnnl_status_t plan_conv_fwd(const recipe_t *r, dnnl_engine_t engine, dnnl_prop_kind_t prop,
                                   dnnl_primitive_desc_t *out) {
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &op, prop, dnnl_convolution_direct, layout_ref(&r->src), layout_ref(&r->weights),
        layout_ref(&r->bias), layout_ref(&r->dst), r->stride, r->dilation, r->pad_lo, r->pad_hi);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &op, r->attr, engine, NULL)
                                  : status;
}

static dnnl_status_t plan_conv_bwd_data(const recipe_t *r, dnnl_engine_t engine,
                                        dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out) {
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(
        &op, dnnl_convolution_direct, layout_ref(&r->src), layout_ref(&r->weights),
        layout_ref(&r->dst), r->stride, r->dilation, r->pad_lo, r->pad_hi);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &op, r->attr, engine, hint)
                                  : status;
}

static dnnl_status_t plan_conv_bwd_weights(const recipe_t *r, dnnl_engine_t engine,
                                           dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out) {
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(
        &op, dnnl_convolution_direct, layout_ref(&r->src), layout_ref(&r->weights),
        layout_ref(&r->bias), layout_ref(&r->dst), r->stride, r->dilation, r->pad_lo, r->pad_hi);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &op, r->attr, engine, hint)
                                  : status;
}
#endif

/* -- from description to recipe ---------------------------------------------------------------- */

static dnnl_status_t layout_describe(const cpu_dnn_tensor_t *tensor, bool any, layout_t *out) {
    if (!tensor->ndim) return dnnl_success;
    dnnl_dims_t dims, strides;
    for (int i = 0; i < tensor->ndim; i++) dims[i] = tensor->dim[i], strides[i] = tensor->stride[i];
    dnnl_data_type_t type = tensor->dtype == TR_BF16 ? dnnl_bf16 : dnnl_f32;
    return layout_create(tensor->ndim, dims, type, any ? NULL : strides, out);
}

static dnnl_alg_kind_t eltwise_of(tr_act_t act) {
    switch (act) {
    case TR_ACT_GELU: return dnnl_eltwise_gelu_erf;
    case TR_ACT_GELU_TANH: return dnnl_eltwise_gelu_tanh;
    case TR_ACT_SIGMOID: return dnnl_eltwise_logistic;
    case TR_ACT_TANH: return dnnl_eltwise_tanh;
    case TR_ACT_SILU: return dnnl_eltwise_swish;
    default: return dnnl_alg_kind_undef;
    }
}

static tr_status_t recipe_attr(const cpu_dnn_desc_t *desc, recipe_t *r) {
    dnnl_post_ops_t ops = NULL;
    DNN_TRY(dnnl_primitive_attr_create(&r->attr));
    DNN_TRY(dnnl_primitive_attr_set_scratchpad_mode(r->attr, dnnl_scratchpad_mode_user));
    DNN_TRY(dnnl_post_ops_create(&ops));
    dnnl_status_t status = dnnl_success;
    if (desc->kind == CPU_DNN_MATMUL && desc->alpha != 1.0f)
        status = append_eltwise(ops, dnnl_eltwise_linear, desc->alpha);
    if (status == dnnl_success && desc->kind == CPU_DNN_MATMUL && desc->beta != 0.0f)
        status = append_sum(ops, desc->beta);
    if (status == dnnl_success && desc->act != TR_ACT_NONE && desc->act != TR_ACT_RELU)
        status = append_eltwise(ops, eltwise_of(desc->act), desc->act == TR_ACT_SILU ? 1.0f : 0.0f);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(r->attr, ops);
    dnnl_post_ops_destroy(ops);
    DNN_TRY(status);
    return TR_OK;
}

tr_status_t tr_cpu_dnn_recipe_init(const cpu_dnn_desc_t *desc, recipe_t *r) {
    bool conv = desc->kind != CPU_DNN_MATMUL;
    DNN_TRY(layout_describe(&desc->src, false, &r->src));
    cpu_dnn_tensor_t forward = desc->weights;
    forward.dtype = desc->src.dtype;
    DNN_TRY(layout_describe(&desc->weights, conv, &r->weights));
    if (conv) DNN_TRY(layout_describe(&forward, true, &r->hint_weights));
    DNN_TRY(layout_describe(&desc->weights, false, &r->own_weights));
    DNN_TRY(layout_describe(&desc->bias, false, &r->bias));
    DNN_TRY(layout_describe(&desc->dst, false, &r->dst));
    for (int i = 0; i < 3; i++) {
        r->stride[i] = desc->stride[i], r->dilation[i] = desc->dilation[i] - 1;
        r->pad_lo[i] = desc->pad_lo[i], r->pad_hi[i] = desc->pad_hi[i];
    }
    TR_TRY(recipe_attr(desc, r));
    return TR_OK;
}

void tr_cpu_dnn_recipe_fini(recipe_t *r) {
    layout_t *all[] = {&r->own_weights, &r->src, &r->weights, &r->hint_weights, &r->bias, &r->dst};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) layout_destroy(all[i]);
    if (r->attr) dnnl_primitive_attr_destroy(r->attr);
}

/* -- from recipe to plan ----------------------------------------------------------------------- */

/* A gradient's primitive descriptor needs that of the forward pass as a hint. */
static dnnl_status_t plan_hint(const recipe_t *r, dnnl_engine_t engine,
                               dnnl_primitive_desc_t *out) {
    recipe_t forward = *r;
    forward.weights = r->hint_weights;
    return plan_conv_fwd(&forward, engine, dnnl_forward_training, out);
}

dnnl_status_t tr_cpu_dnn_plan(cpu_dnn_kind_t kind, const recipe_t *r, dnnl_engine_t engine,
                              dnnl_primitive_desc_t *out) {
    dnnl_primitive_desc_t hint = NULL;
    if (kind == CPU_DNN_MATMUL) return plan_matmul(r, engine, out);
    if (kind == CPU_DNN_CONV_FWD) return plan_conv_fwd(r, engine, dnnl_forward_training, out);
    dnnl_status_t status = plan_hint(r, engine, &hint);
    if (status != dnnl_success) return status;
    status = kind == CPU_DNN_CONV_BWD_DATA ? plan_conv_bwd_data(r, engine, hint, out)
                                           : plan_conv_bwd_weights(r, engine, hint, out);
    dnnl_primitive_desc_destroy(hint);
    return status;
}
