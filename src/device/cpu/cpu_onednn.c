/* A oneDNN primitive with its memory objects and, if it needs the weights in another layout, their
 * reorders. Created once, run without allocation. */
#include "cpu_onednn_int.h"
#include "cpu_int.h"
#include "cpu_types.h"
#include "base/mem.h"
#include <omp.h>
#include <stdlib.h>
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
    dnnl_primitive_t primitive, reorder; /* reorder: NULL if the weights are used unchanged */
    bool reorder_after;                  /* the weights are the output */
    dnnl_memory_t memory[ROLE_COUNT];
    void *address[ROLE_COUNT]; /* what `memory` points at, as setting it is not free */
    dnnl_exec_arg_t arg[ROLE_COUNT], reorder_arg[2];
    int arg_count, threads;
    size_t scratchpad_bytes, packed_bytes;
    /* elements of a 16-bit tensor that is computed with as an f32 copy; 0: none */
    int64_t widened[ROLE_COUNT];
    tr_dtype_t narrow; /* the type of those tensors */
    int result;        /* the role that is written */
    /* elements of the result to which relu is applied after the primitive; 0: none */
    int64_t relu_elems;
    tr_dtype_t relu_dtype;
};

/* -- making ------------------------------------------------------------------------------------ */

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

/* Sets up the caller's weights and, if the primitive needs another layout, a packed copy with its
 * reorder. */
static tr_status_t add_weights(cpu_dnn_t *dnn, cpu_dnn_kind_t kind, const recipe_t *r) {
    layout_ref_t own = layout_ref(&r->own_weights);
    layout_ref_t wanted =
        dnnl_primitive_desc_query_md(dnn->plan, places[kind][ROLE_WEIGHTS].layout, 0);
    int arg = places[kind][ROLE_WEIGHTS].arg;
    dnnl_primitive_desc_t plan = NULL;
    if (dnnl_memory_desc_equal(own, wanted)) return add_memory(dnn, ROLE_WEIGHTS, arg, own);
    dnn->reorder_after = kind == CPU_DNN_CONV_BWD_WEIGHTS;
    dnn->packed_bytes = dnnl_memory_desc_get_size(wanted);
    TR_TRY(add_memory(dnn, ROLE_WEIGHTS, 0, own));
    TR_TRY(add_memory(dnn, ROLE_PACKED, arg, wanted));
    const bool after = dnn->reorder_after;
    const int source = after ? ROLE_PACKED : ROLE_WEIGHTS;
    DNN_TRY(dnnl_reorder_primitive_desc_create(&plan, after ? wanted : own, dnn->engine,
                                               after ? own : wanted, dnn->engine, NULL));
    dnnl_status_t status = dnnl_primitive_create(&dnn->reorder, plan);
    dnnl_primitive_desc_destroy(plan);
    DNN_TRY(status);
    dnn->reorder_arg[0] = (dnnl_exec_arg_t){DNNL_ARG_FROM, dnn->memory[source]};
    dnn->reorder_arg[1] =
        (dnnl_exec_arg_t){DNNL_ARG_TO, dnn->memory[ROLE_WEIGHTS + ROLE_PACKED - source]};
    return TR_OK;
}

static int64_t cpu_onednn_elems_of(const cpu_dnn_tensor_t *tensor) {
    int64_t elems = 1;
    for (int i = 0; i < tensor->ndim; i++) elems *= tensor->dim[i];
    return elems;
}

/* With the gaps between its rows, if it has some. */
static int64_t extent_if_narrow(const cpu_dnn_tensor_t *tensor) {
    int64_t last = 0;
    for (int i = 0; i < tensor->ndim; i++) last += (tensor->dim[i] - 1) * tensor->stride[i];
    return tensor->dtype != TR_F32 ? last + 1 : 0;
}

/* A fallback in f32 that multiplies converted copies in scratch. Used for f16, for which oneDNN
 * has slow reference code except on the newest processors, and for bf16 if oneDNN does not
 * support it. */
static void cpu_onednn_widen(cpu_dnn_t *dnn, cpu_dnn_desc_t *desc) {
    dnn->narrow = desc->src.dtype;
    dnn->widened[ROLE_SRC] = extent_if_narrow(&desc->src);
    dnn->widened[ROLE_WEIGHTS] = extent_if_narrow(&desc->weights);
    dnn->widened[ROLE_DST] = extent_if_narrow(&desc->dst);
    desc->src.dtype = desc->weights.dtype = desc->dst.dtype = TR_F32;
}

static tr_status_t dnn_build(cpu_dnn_t *dnn, cpu_dnn_desc_t *desc, recipe_t *r) {
    DNN_TRY(dnnl_engine_create(&dnn->engine, dnnl_cpu, 0));
    DNN_TRY(dnnl_stream_create(&dnn->stream, dnn->engine, dnnl_stream_default_flags));
    if (desc->src.dtype == TR_F16) cpu_onednn_widen(dnn, desc);
    TR_TRY(tr_cpu_dnn_recipe_init(desc, r));
    dnnl_status_t status = tr_cpu_dnn_plan(desc->kind, r, dnn->engine, &dnn->plan);
    if (status == dnnl_unimplemented && desc->src.dtype == TR_BF16) {
        cpu_onednn_widen(dnn, desc);
        tr_cpu_dnn_recipe_fini(r);
        *r = (recipe_t){0};
        TR_TRY(tr_cpu_dnn_recipe_init(desc, r));
        status = tr_cpu_dnn_plan(desc->kind, r, dnn->engine, &dnn->plan);
    }
    DNN_TRY(status);
    DNN_TRY(dnnl_primitive_create(&dnn->primitive, dnn->plan));

    const place_t *place = places[desc->kind];
    TR_TRY(add_memory(dnn, ROLE_SRC, place[ROLE_SRC].arg, layout_ref(&r->src)));
    TR_TRY(add_memory(dnn, ROLE_DST, place[ROLE_DST].arg, layout_ref(&r->dst)));
    if (desc->bias.ndim && place[ROLE_BIAS].arg)
        TR_TRY(add_memory(dnn, ROLE_BIAS, place[ROLE_BIAS].arg, layout_ref(&r->bias)));
    TR_TRY(add_weights(dnn, desc->kind, r));
    layout_ref_t scratchpad = dnnl_primitive_desc_query_md(dnn->plan, dnnl_query_scratchpad_md, 0);
    dnn->scratchpad_bytes = dnnl_memory_desc_get_size(scratchpad);
    if (dnn->scratchpad_bytes)
        TR_TRY(add_memory(dnn, ROLE_SCRATCH, DNNL_ARG_SCRATCHPAD, scratchpad));
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
    dnn->relu_elems = desc->act == TR_ACT_RELU ? cpu_onednn_elems_of(&desc->dst) : 0;
    dnn->relu_dtype = desc->dst.dtype;
    TR_TRY_GOTO(dnn_build(dnn, &chosen, &recipe), done);
    *out = dnn;
done:
    tr_cpu_dnn_recipe_fini(&recipe);
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
    for (int i = 0; i < ROLE_COUNT; i++)
        bytes += align_scratch((size_t)dnn->widened[i] * sizeof(float));
    return bytes;
}

/* -- running ----------------------------------------------------------------------------------- */

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
    if (dnn->reorder_after)
        DNN_TRY(dnnl_primitive_execute(dnn->reorder, dnn->stream, 2, dnn->reorder_arg));
    return TR_OK;
}

CPU_INLINE void widen_elements(const uint16_t *x, int64_t count, int threads, float *y, int type) {
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) y[i] = cpu_widen(x[i], type);
}

CPU_INLINE void narrow_elements(const float *x, int64_t count, int threads, uint16_t *y, int type) {
#pragma omp parallel for simd num_threads(threads) schedule(static)
    for (int64_t i = 0; i < count; i++) y[i] = cpu_narrow(x[i], type);
}

/* oneDNN's makes 0 of NaN, and what went wrong would show nowhere. */
static void relu(const cpu_dnn_t *dnn, void *x) {
    const int64_t n = dnn->relu_elems;
    const int threads = cpu_threads_of(dnn->threads, n);
    CPU_BY_TYPE(
        dnn->relu_dtype, type,
        _Pragma("omp parallel for simd num_threads(threads) schedule(static)") for (int64_t i = 0;
                                                                                    i < n; i++)
            cpu_put(x, i, cpu_relu(cpu_get(x, i, type)), type));
}

tr_status_t tr_cpu_dnn_run(cpu_dnn_t *dnn, const cpu_dnn_data_t *data, void *scratch) {
    char *free = (char *)scratch + align_scratch(dnn->packed_bytes);
    void *address[ROLE_COUNT] = {data->src, data->weights, data->bias, data->dst, scratch, free};
    void *result = address[dnn->result];
    free += align_scratch(dnn->scratchpad_bytes);
    for (int i = 0; i < ROLE_COUNT; i++) {
        if (dnn->widened[i] > 0) {
            if (i != dnn->result)
                CPU_BY_TYPE(
                    dnn->narrow, t,
                    widen_elements(address[i], dnn->widened[i], dnn->threads, (float *)free, t));
            address[i] = free;
            free += align_scratch((size_t)dnn->widened[i] * sizeof(float));
        }
        TR_TRY(point_at(dnn, i, address[i]));
    }
    omp_set_num_threads(dnn->threads);
    TR_TRY(execute(dnn));
    if (dnn->widened[dnn->result] > 0)
        CPU_BY_TYPE(dnn->narrow, t,
                    narrow_elements(address[dnn->result], dnn->widened[dnn->result], dnn->threads,
                                    result, t));
    if (dnn->relu_elems > 0) relu(dnn, result);
    return TR_OK;
}

#if defined(__aarch64__)
/* Whether oneDNN has code for it; that of distributions often has not, whatever the processor. */
static bool multiplies_bf16(void) {
    const cpu_dnn_tensor_t square = {2, {256, 256}, {256, 1}, TR_BF16};
    const cpu_dnn_desc_t desc = {.kind = CPU_DNN_MATMUL,
                                 .threads = 1,
                                 .src = square,
                                 .weights = square,
                                 .dst = square,
                                 .alpha = 1};
    cpu_dnn_t *dnn = NULL;
    const bool is_fast = tr_cpu_dnn_create(&desc, &dnn) == TR_OK && !dnn->widened[ROLE_SRC] &&
                         strncmp(tr_cpu_dnn_implementation(dnn), "ref", 3) != 0;
    tr_cpu_dnn_destroy(&dnn);
    return is_fast;
}
#endif

void tr_cpu_dnn_limit(int set) {
#if defined(__x86_64__)
    static const dnnl_cpu_isa_t most[] = {[CPU_ISA_BASE] = dnnl_cpu_isa_sse41,
                                          [CPU_ISA_V3] = dnnl_cpu_isa_avx2,
                                          [CPU_ISA_V4] = dnnl_cpu_isa_avx512_core,
                                          [CPU_ISA_V4_BF16] = dnnl_cpu_isa_avx512_core_bf16,
                                          [CPU_ISA_V4_AMX] = dnnl_cpu_isa_avx512_core_amx};
    if (getenv("ONEDNN_MAX_CPU_ISA") || getenv("DNNL_MAX_CPU_ISA")) return;
    (void)dnnl_set_max_cpu_isa(most[set]);
#endif
}

bool tr_cpu_dnn_has_bf16(void) {
#if defined(__x86_64__)
    return (dnnl_get_effective_cpu_isa() & dnnl_cpu_isa_avx512_core_bf16) ==
           dnnl_cpu_isa_avx512_core_bf16;
#elif defined(__aarch64__) && defined(HWCAP2_BF16)
    return (getauxval(AT_HWCAP2) & HWCAP2_BF16) && multiplies_bf16();
#else
    return false;
#endif
}

bool tr_cpu_dnn_has_matrix_units(bool has_bf16) {
#if defined(__x86_64__)
    const int amx = dnnl_cpu_isa_avx512_core_amx;
    return has_bf16 && (dnnl_get_effective_cpu_isa() & amx) == amx;
#else
    return has_bf16;
#endif
}

bool tr_cpu_dnn_is_avx2(void) {
#if defined(__x86_64__)
    const int isa = dnnl_get_effective_cpu_isa(), avx512 = dnnl_cpu_isa_avx512_core;
    return (isa & dnnl_cpu_isa_avx2) == dnnl_cpu_isa_avx2 && (isa & avx512) != avx512;
#else
    return false;
#endif
}

const char *tr_cpu_dnn_implementation(const cpu_dnn_t *dnn) {
    const char *name = NULL;
    dnnl_status_t status =
        dnnl_primitive_desc_query(dnn->plan, dnnl_query_impl_info_str, 0, (void *)&name);
    return status == dnnl_success ? name : "?";
}

tr_status_t tr_cpu_dnn_sgemm(int threads, bool trans_a, bool trans_b, int64_t m, int64_t n,
                             int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                             int64_t ldb, float beta, float *c, int64_t ldc) {
    omp_set_num_threads(threads);
    DNN_TRY(dnnl_sgemm(trans_a ? 'T' : 'N', trans_b ? 'T' : 'N', m, n, k, alpha, a, lda, b, ldb,
                       beta, c, ldc));
    return TR_OK;
}
