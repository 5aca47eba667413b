/*
 * oneDNN's two C interfaces behind one. In 2.x memory descriptors are values and an operation descriptor comes
 * before the primitive descriptor; in 3.x they are objects and the operation descriptor is gone.
 *
 * Activations stay NHWC. Weights are offered as `any`: given our (K, kernel..., C) layout as it is, oneDNN has only its
 * reference code (measured 300 to 1000 times slower), while reordering them into its blocked layout and back costs 1 to 5 % of a
 * convolution. The algorithm is always direct: oneDNN's Winograd loses
 * accuracy, and `auto` takes it where it is slow; cpu_winograd.c has our own.
 */
#include "cpu_onednn.h"
#include "cpu_int.h"
#include "cpu_types.h"
#include "trainer/mem.h"
#include <omp.h>
#include <oneapi/dnnl/dnnl.h>
#include <stdio.h>
#if defined(__aarch64__)
#include <sys/auxv.h>
#endif

/* Below this many multiply-adds one thread is done before a second has woken. */
#define PARALLEL_MACS 65536
#define SCRATCH_ALIGN 64

enum { ROLE_SRC, ROLE_WEIGHTS, ROLE_BIAS, ROLE_DST, ROLE_PACKED, ROLE_SCRATCH, ROLE_COUNT };

struct cpu_dnn {
    dnnl_engine_t engine;
    dnnl_stream_t stream;
    dnnl_primitive_desc_t plan;
    dnnl_primitive_t primitive, reorder; /* reorder: NULL where the weights are used as they are */
    bool reorder_after;                  /* the weights are what is computed */
    dnnl_memory_t memory[ROLE_COUNT];
    void *address[ROLE_COUNT]; /* what `memory` points at, as setting it is not free */
    dnnl_exec_arg_t arg[ROLE_COUNT], reorder_arg[2];
    int arg_count, threads;
    size_t scratchpad_bytes, packed_bytes;
    /* elements of a bf16 tensor that is computed with as an f32 copy; 0: none */
    int64_t widened[ROLE_COUNT];
    int result;         /* the role that is written */
    int64_t relu_elems; /* of the result, that relu is applied to behind the primitive; 0: none */
    tr_dtype_t relu_dtype;
};

static const char *status_text(dnnl_status_t status) {
    switch (status) {
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "not implemented";
    case dnnl_runtime_error: return "run-time error";
    default: return "failed";
    }
}

#define DNN_TRY(expr)                                                                                        \
    do {                                                                                                     \
        dnnl_status_t dnn_status_ = (expr);                                                                  \
        if (dnn_status_ != dnnl_success)                                                                     \
            return TR_FAIL(dnn_status_ == dnnl_out_of_memory ? TR_ERR_MEMORY : TR_ERR_INTERNAL,              \
                           "oneDNN: %s: %s", #expr, status_text(dnn_status_));                               \
    } while (0)

/* -- the two interfaces ---------------------------------------------------------------------------------- */

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t layout_ref_t;
typedef struct {
    dnnl_memory_desc_t desc; /* NULL: absent */
} layout_t;

static layout_ref_t layout_ref(const layout_t *layout) {
    return layout->desc;
}

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
#else
typedef const dnnl_memory_desc_t *layout_ref_t;
typedef struct {
    dnnl_memory_desc_t desc; /* ndims 0: absent */
} layout_t;

static layout_ref_t layout_ref(const layout_t *layout) {
    return layout->desc.ndims ? &layout->desc : NULL;
}

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
#endif

/* What a primitive descriptor is made of, in oneDNN's types. */
typedef struct {
    layout_t own_weights;             /* as the caller stores them */
    layout_t src, weights, bias, dst; /* as the primitive is offered them */
    /* of the forward direction, which has them in the type of its input */
    layout_t hint_weights;
    dnnl_dims_t stride, dilation, pad_lo, pad_hi;
    dnnl_primitive_attr_t attr;
} recipe_t;

#if DNNL_VERSION_MAJOR >= 3
static dnnl_status_t plan_matmul(const recipe_t *r, dnnl_engine_t engine, dnnl_primitive_desc_t *out) {
    return dnnl_matmul_primitive_desc_create(out, engine, layout_ref(&r->src), layout_ref(&r->weights),
                                             layout_ref(&r->bias), layout_ref(&r->dst), r->attr);
}

static dnnl_status_t plan_conv_fwd(const recipe_t *r, dnnl_engine_t engine, dnnl_prop_kind_t prop,
                                   dnnl_primitive_desc_t *out) {
    return dnnl_convolution_forward_primitive_desc_create(
        out, engine, prop, dnnl_convolution_direct, layout_ref(&r->src), layout_ref(&r->weights),
        layout_ref(&r->bias), layout_ref(&r->dst), r->stride, r->dilation, r->pad_lo, r->pad_hi, r->attr);
}

static dnnl_status_t plan_conv_bwd_data(const recipe_t *r, dnnl_engine_t engine, dnnl_primitive_desc_t hint,
                                        dnnl_primitive_desc_t *out) {
    return dnnl_convolution_backward_data_primitive_desc_create(
        out, engine, dnnl_convolution_direct, layout_ref(&r->src), layout_ref(&r->weights),
        layout_ref(&r->dst), r->stride, r->dilation, r->pad_lo, r->pad_hi, hint, r->attr);
}

static dnnl_status_t plan_conv_bwd_weights(const recipe_t *r, dnnl_engine_t engine,
                                           dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out) {
    return dnnl_convolution_backward_weights_primitive_desc_create(
        out, engine, dnnl_convolution_direct, layout_ref(&r->src), layout_ref(&r->weights),
        layout_ref(&r->bias), layout_ref(&r->dst), r->stride, r->dilation, r->pad_lo, r->pad_hi, hint,
        r->attr);
}
#else
static dnnl_status_t plan_matmul(const recipe_t *r, dnnl_engine_t engine, dnnl_primitive_desc_t *out) {
    dnnl_matmul_desc_t op;
    dnnl_status_t status = dnnl_matmul_desc_init(&op, layout_ref(&r->src), layout_ref(&r->weights),
                                                 layout_ref(&r->bias), layout_ref(&r->dst));
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &op, r->attr, engine, NULL) : status;
}

static dnnl_status_t plan_conv_fwd(const recipe_t *r, dnnl_engine_t engine, dnnl_prop_kind_t prop,
                                   dnnl_primitive_desc_t *out) {
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_forward_desc_init(
        &op, prop, dnnl_convolution_direct, layout_ref(&r->src), layout_ref(&r->weights),
        layout_ref(&r->bias), layout_ref(&r->dst), r->stride, r->dilation, r->pad_lo, r->pad_hi);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &op, r->attr, engine, NULL) : status;
}

static dnnl_status_t plan_conv_bwd_data(const recipe_t *r, dnnl_engine_t engine, dnnl_primitive_desc_t hint,
                                        dnnl_primitive_desc_t *out) {
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_backward_data_desc_init(
        &op, dnnl_convolution_direct, layout_ref(&r->src), layout_ref(&r->weights), layout_ref(&r->dst),
        r->stride, r->dilation, r->pad_lo, r->pad_hi);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &op, r->attr, engine, hint) : status;
}

static dnnl_status_t plan_conv_bwd_weights(const recipe_t *r, dnnl_engine_t engine,
                                           dnnl_primitive_desc_t hint, dnnl_primitive_desc_t *out) {
    dnnl_convolution_desc_t op;
    dnnl_status_t status = dnnl_dilated_convolution_backward_weights_desc_init(
        &op, dnnl_convolution_direct, layout_ref(&r->src), layout_ref(&r->weights), layout_ref(&r->bias),
        layout_ref(&r->dst), r->stride, r->dilation, r->pad_lo, r->pad_hi);
    return status == dnnl_success ? dnnl_primitive_desc_create(out, &op, r->attr, engine, hint) : status;
}
#endif

/* -- from description to recipe -------------------------------------------------------------------------- */

static dnnl_status_t describe(const cpu_dnn_tensor_t *tensor, bool any, layout_t *out) {
    if (!tensor->ndim) return dnnl_success;
    dnnl_dims_t dims, strides;
    for (int i = 0; i < tensor->ndim; i++) dims[i] = tensor->dim[i], strides[i] = tensor->stride[i];
    dnnl_data_type_t type = tensor->dtype == TR_BF16 ? dnnl_bf16 : dnnl_f32;
    return layout_create(tensor->ndim, dims, type, any ? NULL : strides, out);
}

static dnnl_alg_kind_t eltwise_of(tr_act_t act) {
    switch (act) {
    case TR_ACT_GELU: return dnnl_eltwise_gelu_erf;
    case TR_ACT_SIGMOID: return dnnl_eltwise_logistic;
    case TR_ACT_TANH: return dnnl_eltwise_tanh;
    default: return dnnl_alg_kind_undef;
    }
}

static dnnl_status_t append_post_ops(const cpu_dnn_desc_t *desc, dnnl_post_ops_t ops) {
    dnnl_status_t status = dnnl_success;
    if (desc->kind == CPU_DNN_MATMUL && desc->alpha != 1.0f)
        status = append_eltwise(ops, dnnl_eltwise_linear, desc->alpha);
    if (status == dnnl_success && desc->kind == CPU_DNN_MATMUL && desc->beta != 0.0f)
        status = append_sum(ops, desc->beta);
    if (status == dnnl_success && desc->act != TR_ACT_NONE && desc->act != TR_ACT_RELU)
        status = append_eltwise(ops, eltwise_of(desc->act), 0.0f);
    return status;
}

static tr_status_t recipe_attr(const cpu_dnn_desc_t *desc, recipe_t *r) {
    dnnl_post_ops_t ops = NULL;
    DNN_TRY(dnnl_primitive_attr_create(&r->attr));
    DNN_TRY(dnnl_primitive_attr_set_scratchpad_mode(r->attr, dnnl_scratchpad_mode_user));
    DNN_TRY(dnnl_post_ops_create(&ops));
    dnnl_status_t status = append_post_ops(desc, ops);
    if (status == dnnl_success) status = dnnl_primitive_attr_set_post_ops(r->attr, ops);
    dnnl_post_ops_destroy(ops);
    DNN_TRY(status);
    return TR_OK;
}

static tr_status_t recipe_init(const cpu_dnn_desc_t *desc, recipe_t *r) {
    bool conv = desc->kind != CPU_DNN_MATMUL;
    DNN_TRY(describe(&desc->src, false, &r->src));
    cpu_dnn_tensor_t forward = desc->weights;
    forward.dtype = desc->src.dtype;
    DNN_TRY(describe(&desc->weights, conv, &r->weights));
    if (conv) DNN_TRY(describe(&forward, true, &r->hint_weights));
    DNN_TRY(describe(&desc->weights, false, &r->own_weights));
    DNN_TRY(describe(&desc->bias, false, &r->bias));
    DNN_TRY(describe(&desc->dst, false, &r->dst));
    for (int i = 0; i < 3; i++) {
        r->stride[i] = desc->stride[i], r->dilation[i] = desc->dilation[i] - 1;
        r->pad_lo[i] = desc->pad_lo[i], r->pad_hi[i] = desc->pad_hi[i];
    }
    TR_TRY(recipe_attr(desc, r));
    return TR_OK;
}

static void recipe_fini(recipe_t *r) {
    layout_t *all[] = {&r->own_weights, &r->src, &r->weights, &r->hint_weights, &r->bias, &r->dst};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) layout_destroy(all[i]);
    if (r->attr) dnnl_primitive_attr_destroy(r->attr);
}

/* -- from recipe to primitive ---------------------------------------------------------------------------- */

/* A gradient's plan wants the plan of the forward direction as a hint. */
static dnnl_status_t plan_hint(const recipe_t *r, dnnl_engine_t engine, dnnl_primitive_desc_t *out) {
    recipe_t forward = *r;
    forward.weights = r->hint_weights;
    return plan_conv_fwd(&forward, engine, dnnl_forward_training, out);
}

static dnnl_status_t plan_create(cpu_dnn_kind_t kind, const recipe_t *r, dnnl_engine_t engine,
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

typedef struct {
    dnnl_query_t layout;
    int arg;
} place_t;

/* Where each role is found in a primitive, by kind. */
static const place_t places[][ROLE_COUNT] = {
    [CPU_DNN_MATMUL] = {{dnnl_query_src_md, DNNL_ARG_SRC},
                        {dnnl_query_weights_md, DNNL_ARG_WEIGHTS},
                        {dnnl_query_undef, DNNL_ARG_BIAS},
                        {dnnl_query_dst_md, DNNL_ARG_DST}},
    [CPU_DNN_CONV_FWD] = {{dnnl_query_src_md, DNNL_ARG_SRC},
                          {dnnl_query_weights_md, DNNL_ARG_WEIGHTS},
                          {dnnl_query_undef, DNNL_ARG_BIAS},
                          {dnnl_query_dst_md, DNNL_ARG_DST}},
    [CPU_DNN_CONV_BWD_DATA] = {{dnnl_query_diff_src_md, DNNL_ARG_DIFF_SRC},
                               {dnnl_query_weights_md, DNNL_ARG_WEIGHTS},
                               {dnnl_query_undef, 0},
                               {dnnl_query_diff_dst_md, DNNL_ARG_DIFF_DST}},
    [CPU_DNN_CONV_BWD_WEIGHTS] = {{dnnl_query_src_md, DNNL_ARG_SRC},
                                  {dnnl_query_diff_weights_md, DNNL_ARG_DIFF_WEIGHTS},
                                  {dnnl_query_undef, DNNL_ARG_DIFF_BIAS},
                                  {dnnl_query_diff_dst_md, DNNL_ARG_DIFF_DST}},
};

static tr_status_t add_memory(cpu_dnn_t *dnn, int role, int arg, layout_ref_t layout) {
    DNN_TRY(dnnl_memory_create(&dnn->memory[role], layout, dnn->engine, DNNL_MEMORY_NONE));
    if (arg) dnn->arg[dnn->arg_count++] = (dnnl_exec_arg_t){arg, dnn->memory[role]};
    return TR_OK;
}

static tr_status_t reorder_create(cpu_dnn_t *dnn, layout_ref_t from, layout_ref_t to) {
    dnnl_primitive_desc_t plan = NULL;
    DNN_TRY(dnnl_reorder_primitive_desc_create(&plan, from, dnn->engine, to, dnn->engine, NULL));
    dnnl_status_t status = dnnl_primitive_create(&dnn->reorder, plan);
    dnnl_primitive_desc_destroy(plan);
    DNN_TRY(status);
    int source = dnn->reorder_after ? ROLE_PACKED : ROLE_WEIGHTS;
    dnn->reorder_arg[0] = (dnnl_exec_arg_t){DNNL_ARG_FROM, dnn->memory[source]};
    dnn->reorder_arg[1] = (dnnl_exec_arg_t){DNNL_ARG_TO, dnn->memory[ROLE_WEIGHTS + ROLE_PACKED - source]};
    return TR_OK;
}

/* The weights as the caller has them, and, where the primitive wants another layout, a packed copy with its reorder. */
static tr_status_t add_weights(cpu_dnn_t *dnn, cpu_dnn_kind_t kind, const recipe_t *r) {
    layout_ref_t own = layout_ref(&r->own_weights);
    layout_ref_t wanted = dnnl_primitive_desc_query_md(dnn->plan, places[kind][ROLE_WEIGHTS].layout, 0);
    int arg = places[kind][ROLE_WEIGHTS].arg;
    if (dnnl_memory_desc_equal(own, wanted)) return add_memory(dnn, ROLE_WEIGHTS, arg, own);
    dnn->reorder_after = kind == CPU_DNN_CONV_BWD_WEIGHTS;
    dnn->packed_bytes = dnnl_memory_desc_get_size(wanted);
    TR_TRY(add_memory(dnn, ROLE_WEIGHTS, 0, own));
    TR_TRY(add_memory(dnn, ROLE_PACKED, arg, wanted));
    TR_TRY(reorder_create(dnn, dnn->reorder_after ? wanted : own, dnn->reorder_after ? own : wanted));
    return TR_OK;
}

static tr_status_t add_memories(cpu_dnn_t *dnn, const cpu_dnn_desc_t *desc, const recipe_t *r) {
    const place_t *place = places[desc->kind];
    TR_TRY(add_memory(dnn, ROLE_SRC, place[ROLE_SRC].arg, layout_ref(&r->src)));
    TR_TRY(add_memory(dnn, ROLE_DST, place[ROLE_DST].arg, layout_ref(&r->dst)));
    if (desc->bias.ndim && place[ROLE_BIAS].arg)
        TR_TRY(add_memory(dnn, ROLE_BIAS, place[ROLE_BIAS].arg, layout_ref(&r->bias)));
    TR_TRY(add_weights(dnn, desc->kind, r));
    layout_ref_t scratchpad = dnnl_primitive_desc_query_md(dnn->plan, dnnl_query_scratchpad_md, 0);
    dnn->scratchpad_bytes = dnnl_memory_desc_get_size(scratchpad);
    if (dnn->scratchpad_bytes) TR_TRY(add_memory(dnn, ROLE_SCRATCH, DNNL_ARG_SCRATCHPAD, scratchpad));
    return TR_OK;
}

static int64_t elems_of(const cpu_dnn_tensor_t *tensor) {
    int64_t elems = 1;
    for (int i = 0; i < tensor->ndim; i++) elems *= tensor->dim[i];
    return elems;
}

static int64_t elems_if_bf16(const cpu_dnn_tensor_t *tensor) {
    return tensor->dtype == TR_BF16 ? elems_of(tensor) : 0;
}

/* The same in f32: where oneDNN has no products of bf16 (on x86 before AVX-512), copies in scratch are multiplied. */
static void widen(cpu_dnn_t *dnn, cpu_dnn_desc_t *desc) {
    dnn->widened[ROLE_SRC] = elems_if_bf16(&desc->src);
    dnn->widened[ROLE_WEIGHTS] = elems_if_bf16(&desc->weights);
    dnn->widened[ROLE_DST] = elems_if_bf16(&desc->dst);
    desc->src.dtype = desc->weights.dtype = desc->dst.dtype = TR_F32;
}

static tr_status_t build(cpu_dnn_t *dnn, cpu_dnn_desc_t *desc, recipe_t *r) {
    DNN_TRY(dnnl_engine_create(&dnn->engine, dnnl_cpu, 0));
    DNN_TRY(dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_default_flags));
    TR_TRY(recipe_init(desc, r));
    dnnl_status_t status = plan_create(desc->kind, r, dnn->engine, &dnn->plan);
    if (status == dnnl_unimplemented && desc->src.dtype == TR_BF16) {
        widen(dnn, desc);
        recipe_fini(r);
        *r = (recipe_t){0};
        TR_TRY(recipe_init(desc, r));
        status = plan_create(desc->kind, r, dnn->engine, &dnn->plan);
    }
    DNN_TRY(status);
    DNN_TRY(dnnl_primitive_create(&dnn->primitive, dnn->plan));
    TR_TRY(add_memories(dnn, desc, r));
    return TR_OK;
}

static double multiply_adds(const cpu_dnn_desc_t *desc) {
    double macs = 1.0;
    for (int i = 0; i < desc->dst.ndim; i++) macs *= (double)desc->dst.dim[i];
    if (desc->kind == CPU_DNN_MATMUL) return macs * (double)desc->src.dim[desc->src.ndim - 1];
    for (int i = 0; i < desc->weights.ndim; i++) macs *= (double)desc->weights.dim[i];
    return macs / (double)desc->dst.dim[1];
}

tr_status_t tr_cpu_dnn_create(const cpu_dnn_desc_t *desc, cpu_dnn_t **out) {
    static const int results[] = {[CPU_DNN_MATMUL] = ROLE_DST,
                                  [CPU_DNN_CONV_FWD] = ROLE_DST,
                                  [CPU_DNN_CONV_BWD_DATA] = ROLE_SRC,
                                  [CPU_DNN_CONV_BWD_WEIGHTS] = ROLE_WEIGHTS};
    cpu_dnn_desc_t chosen = *desc;
    recipe_t recipe = {0};
    cpu_dnn_t *dnn = NULL;
    tr_status_t status = TR_OK;
    *out = NULL;
    TR_TRY(tr_alloc(sizeof *dnn, "a oneDNN primitive", &dnn));
    dnn->threads = multiply_adds(desc) < PARALLEL_MACS ? 1 : desc->threads;
    omp_set_num_threads(dnn->threads); /* oneDNN cuts the work by this, here and in every run */
    dnn->result = results[desc->kind];
    dnn->relu_elems = desc->act == TR_ACT_RELU ? elems_of(&desc->dst) : 0;
    dnn->relu_dtype = desc->dst.dtype;
    TR_TRY_GOTO(build(dnn, &chosen, &recipe), done);
    *out = dnn;
done:
    recipe_fini(&recipe);
    omp_set_num_threads(desc->threads);
    if (status != TR_OK) tr_cpu_dnn_destroy(&dnn);
    return status;
}

void tr_cpu_dnn_destroy(cpu_dnn_t **dnn) {
    cpu_dnn_t *d = *dnn;
    if (!d) return;
    for (int i = 0; i < ROLE_COUNT; i++)
        if (d->memory[i]) dnnl_memory_destroy(d->memory[i]);
    if (d->reorder) dnnl_primitive_destroy(d->reorder);
    if (d->primitive) dnnl_primitive_destroy(d->primitive);
    if (d->plan) dnnl_primitive_desc_destroy(d->plan);
    if (d->stream) dnnl_stream_destroy(d->stream);
    if (d->engine) dnnl_engine_destroy(d->engine);
    tr_free(dnn);
}

static size_t align_scratch(size_t bytes) {
    return (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
}

size_t tr_cpu_dnn_scratch_bytes(const cpu_dnn_t *dnn) {
    size_t bytes = align_scratch(dnn->packed_bytes) + align_scratch(dnn->scratchpad_bytes);
    for (int i = 0; i < ROLE_COUNT; i++) bytes += align_scratch((size_t)dnn->widened[i] * sizeof(float));
    return bytes;
}

/* -- running --------------------------------------------------------------------------------------------- */

static tr_status_t point_at(cpu_dnn_t *dnn, int role, void *address) {
    if (!dnn->memory[role] || dnn->address[role] == address) return TR_OK;
    DNN_TRY(dnnl_memory_set_data_handle(dnn->memory[role], address));
    dnn->address[role] = address;
    return TR_OK;
}

static tr_status_t execute(cpu_dnn_t *dnn) {
    if (dnn->reorder && !dnn->reorder_after)
        DNN_TRY(dnnl_primitive_execute(dnn->reorder, dnn->stream, 2, dnn->reorder_arg));
    DNN_TRY(dnnl_primitive_execute(dnn->primitive, dnn->stream, dnn->arg_count, dnn->arg));
    if (dnn->reorder_after) DNN_TRY(dnnl_primitive_execute(dnn->reorder, dnn->stream, 2, dnn->reorder_arg));
    return TR_OK;
}

static void to_f32(const uint16_t *x, int64_t count, int threads, float *y) {
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) y[i] = cpu_from_bf16(x[i]);
}

static void to_bf16(const float *x, int64_t count, int threads, uint16_t *y) {
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) y[i] = cpu_to_bf16(x[i]);
}

/* oneDNN's makes 0 of NaN, and what went wrong would show nowhere. */
static void relu(const cpu_dnn_t *dnn, void *x) {
    const int64_t n = dnn->relu_elems;
    const int threads = cpu_threads_of(dnn->threads, n);
    CPU_BY_TYPE(
        dnn->relu_dtype, type,
        _Pragma("omp parallel for simd num_threads(threads) schedule(static)") for (int64_t i = 0; i < n; i++)
            cpu_put(x, i, cpu_relu(cpu_get(x, i, type)), type));
}

tr_status_t tr_cpu_dnn_run(cpu_dnn_t *dnn, const cpu_dnn_data_t *data, void *scratch) {
    char *free = (char *)scratch + align_scratch(dnn->packed_bytes);
    void *address[ROLE_COUNT] = {data->src, data->weights, data->bias, data->dst, scratch, free};
    void *result = address[dnn->result];
    free += align_scratch(dnn->scratchpad_bytes);
    for (int i = 0; i < ROLE_COUNT; i++) {
        if (dnn->widened[i] > 0) {
            if (i != dnn->result) to_f32(address[i], dnn->widened[i], dnn->threads, (float *)free);
            address[i] = free;
            free += align_scratch((size_t)dnn->widened[i] * sizeof(float));
        }
        TR_TRY(point_at(dnn, i, address[i]));
    }
    omp_set_num_threads(dnn->threads);
    TR_TRY(execute(dnn));
    if (dnn->widened[dnn->result] > 0)
        to_bf16(address[dnn->result], dnn->widened[dnn->result], dnn->threads, result);
    if (dnn->relu_elems > 0) relu(dnn, result);
    return TR_OK;
}

bool tr_cpu_dnn_has_bf16(void) {
#if defined(__x86_64__)
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) == dnnl_cpu_isa_avx512_core_bf16;
#elif defined(__aarch64__) && defined(HWCAP2_BF16)
    return getauxval(AT_HWCAP2) & HWCAP2_BF16;
#else
    return false;
#endif
}

const char *tr_cpu_dnn_implementation(const cpu_dnn_t *dnn) {
    const char *name = NULL;
    dnnl_status_t status = dnnl_primitive_desc_query(dnn->plan, dnnl_query_impl_info_str, 0, (void *)&name);
    return status == dnnl_success ? name : "?";
}

tr_status_t tr_cpu_dnn_sgemm(int threads, bool trans_a, bool trans_b, int64_t m, int64_t n, int64_t k,
                             float alpha, const float *a, int64_t lda, const float *b, int64_t ldb,
                             float beta, float *c, int64_t ldc) {
    omp_set_num_threads(threads);
    DNN_TRY(
        dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb, beta, c, ldc));
    return TR_OK;
}
