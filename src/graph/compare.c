/* Kernel calls on two devices, from the same inputs. */
#include "compare.h"
#include "base/half.h"
#include "base/rng.h"
#include "device/plan_cache.h"
#include "graph/ops/op_int.h"
#include "graph_int.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

/* A limit for the operands of a call: the optimizer of a large model would take minutes. */
#define MOST_BYTES ((size_t)3 << 30)

enum { OPERANDS = TR_KERNEL_MAX_IN + TR_KERNEL_MAX_OUT };

/* A call on both devices. Operands: inputs, then outputs; host memory of the reference. */
typedef struct {
    tr_graph_t *g;
    tr_device_t *reference;
    const tr_node_t *node;
    tr_kernel_call_t there, here; /* on the graph's device; on the reference */
    void *before[OPERANDS];       /* contents before the call; NULL: not needed */
} comparison_t;

static size_t compare_view_bytes(const tr_view_t *view) {
    if (view->shape.ndim < 0 || !view->data) return 0;
    return (size_t)tr_shape_elems(&view->shape) * tr_dtype_bytes(view->dtype);
}

static tr_view_t *compare_operand(tr_kernel_call_t *call, int i) {
    if (i < TR_KERNEL_MAX_IN) return i < call->n_in ? &call->in[i] : NULL;
    return i - TR_KERNEL_MAX_IN < call->n_out ? &call->out[i - TR_KERNEL_MAX_IN] : NULL;
}

static size_t compare_operand_bytes(tr_kernel_call_t *call, int i) {
    const tr_view_t *view = compare_operand(call, i);
    return view ? compare_view_bytes(view) : 0;
}

/* -- kinds of calls ---------------------------------------------------------------------------- */

static int comparison_linear_inputs(const comparison_t *c) {
    return tr_kernel_facts(c->node->op.row->kernel)->linear_inputs;
}

/* Half-precision outputs may differ by a few roundings, f32 ones of a half-precision call by those
 * of its inner steps. */
static double compare_tolerance_of(const tr_device_t *device, tr_kernel_id_t k, tr_dtype_t call,
                                   tr_dtype_t output) {
    const double unit = call == TR_BF16 ? 0x1p-9 : 0x1p-12;
    const tr_kernel_kind_t kind = tr_kernel_facts(k)->kind;
    const bool is_product =
        kind == TR_KERNEL_PRODUCT || kind == TR_KERNEL_ATTENTION || kind == TR_KERNEL_HEAD;
    if (call == TR_F32) return device->tf32 && is_product ? 2e-3 : 3e-5;
    return tr_dtype_is_half(output) ? 8 * unit : 4 * unit;
}

static tr_dtype_t call_dtype(tr_kernel_call_t *call) {
    for (int i = 0; i < OPERANDS; i++)
        if (compare_operand_bytes(call, i) > 0 && tr_dtype_is_half(compare_operand(call, i)->dtype))
            return compare_operand(call, i)->dtype;
    return TR_F32;
}

/* What makes two calls alike; the shapes, for people. */
static uint64_t compare_describe_call(const tr_node_t *node, tr_kernel_call_t *call,
                                      char shapes[128]) {
    char text[512];
    int n = snprintf(text, sizeof text, "%d %x", (int)node->op.row->kernel, call->adds);
    int used = 0;
    *shapes = '\0';
    for (int i = 0; i < OPERANDS; i++) {
        const tr_view_t *view = compare_operand(call, i);
        if (!view || compare_view_bytes(view) == 0) continue;
        n += snprintf(text + n, sizeof text - (size_t)n, " %d:%d", i, (int)view->dtype);
        for (int d = 0; d < view->shape.ndim && n < 480; d++) {
            n +=
                snprintf(text + n, sizeof text - (size_t)n, ",%lld", (long long)view->shape.dim[d]);
            if (used < 100)
                used += snprintf(shapes + used, 128 - (size_t)used, "%s%lld",
                                 d      ? "x"
                                 : used ? " "
                                        : "",
                                 (long long)view->shape.dim[d]);
        }
        if (n >= 480) break;
    }
    uint64_t hash = tr_hash_name(text);
    for (size_t i = 0; i < call->attr_bytes; i++)
        hash = (hash ^ ((const unsigned char *)call->attr)[i]) * 1099511628211u;
    return hash;
}

/* -- values ------------------------------------------------------------------------------------ */

static double compare_float_value(tr_dtype_t dtype, const void *data, int64_t i) {
    return dtype == TR_F32    ? ((const float *)data)[i]
           : dtype == TR_F64  ? ((const double *)data)[i]
           : dtype == TR_BF16 ? tr_float_of_bf16(((const uint16_t *)data)[i])
                              : tr_float_of_f16(((const uint16_t *)data)[i]);
}

/* Values of 0.5 to 1 with either sign, with as many random bits as the type has. */
static void compare_fill_random(tr_dtype_t dtype, void *data, int64_t count, uint64_t key) {
    for (int64_t i = 0; i < count; i += 4) {
        const tr_rng_block_t r = tr_rng_philox(1, TR_RNG_INIT, 0, key, (uint64_t)i);
        for (int64_t k = i; k < i + 4 && k < count; k++) {
            const uint32_t bits = r.v[k - i];
            if (dtype == TR_F32) ((uint32_t *)data)[k] = 0x3f000000u | (bits & 0x807fffffu);
            if (dtype == TR_BF16)
                ((uint16_t *)data)[k] = (uint16_t)(0x3f00u | (bits >> 16 & 0x807fu));
            if (dtype == TR_F16)
                ((uint16_t *)data)[k] = (uint16_t)(0x3800u | (bits >> 16 & 0x83ffu));
        }
    }
}

static double compare_float_difference(tr_dtype_t dtype, const void *found, const void *expected,
                                       int64_t count) {
    /* A subnormal number of f16 is rounded to whole steps. */
    const double step = dtype == TR_F16 ? 0x1p-24 : 0;
    double largest = 1e-30, difference = 0;
    for (int64_t i = 0; i < count; i++) {
        const double a = compare_float_value(dtype, found, i),
                     b = compare_float_value(dtype, expected, i);
        if (isnan(a) && isnan(b)) continue;
        if (!isfinite(a) || !isfinite(b)) {
            if (a != b) return NAN;
            continue;
        }
        largest = fmax(largest, fabs(b));
        difference = fmax(difference, fabs(a - b) - step);
    }
    return difference / largest;
}

static double compare_view_difference(tr_kernel_id_t kernel, const tr_view_t *view,
                                      const void *found, const void *expected) {
    const int64_t count = tr_shape_elems(&view->shape);
    const size_t size = tr_dtype_bytes(view->dtype);
    int64_t unequal = 0;
    if (kernel == TR_K_GRAD_NORM && view->dtype == TR_U8) { /* the struct of a step's result */
        const tr_step_result_t *a = found, *b = expected;
        if (a->finite != b->finite || a->applied != b->applied) return NAN;
        return fmax(compare_float_difference(TR_F32, &a->grad_norm, &b->grad_norm, 1),
                    compare_float_difference(TR_F32, &a->scale, &b->scale, 1));
    }
    if (tr_dtype_is_float(view->dtype))
        return compare_float_difference(view->dtype, found, expected, count);
    for (int64_t i = 0; i < count; i++)
        unequal += memcmp((const char *)found + (size_t)i * size,
                          (const char *)expected + (size_t)i * size, size) != 0;
    return (double)unequal / (double)count;
}

/* -- both devices ------------------------------------------------------------------------------ */

static tr_status_t comparison_copy(const comparison_t *c, void *dst, const void *src, size_t bytes,
                                   tr_copy_kind_t kind) {
    TR_TRY(c->g->device->ops->copy(c->g->device, c->g->stream, dst, src, bytes, kind));
    return tr_graph_sync(c->g);
}

/* The operands of the reference; random ones where the kernel is linear, on both devices. */
static tr_status_t comparison_prepare(comparison_t *c) {
    const int linear = comparison_linear_inputs(c);
    for (int i = 0; i < OPERANDS; i++) {
        const size_t bytes = compare_operand_bytes(&c->there, i);
        if (bytes == 0) continue;
        tr_view_t *view = compare_operand(&c->here, i);
        void *there = compare_operand(&c->there, i)->data;
        TR_TRY(c->reference->ops->alloc(c->reference, bytes, 0, &view->data));
        TR_TRY(comparison_copy(c, view->data, there, bytes, TR_COPY_TO_HOST));
        /* needed again after the call: everything where it is undone, and sums that are added to */
        if (linear > 0 || (i >= TR_KERNEL_MAX_IN && c->there.adds >> (i - TR_KERNEL_MAX_IN) & 1)) {
            TR_TRY(tr_alloc_aligned(bytes, TR_KERNEL_ALIGN, "operands of a comparison",
                                    &c->before[i]));
            memcpy(c->before[i], view->data, bytes);
        }
        if (i >= linear || !tr_dtype_is_float(view->dtype)) continue;
        compare_fill_random(view->dtype, view->data, tr_shape_elems(&view->shape), (uint64_t)i + 1);
    }
    for (int i = 0; i < linear; i++) /* an output may share the memory of an input */
        if (compare_operand_bytes(&c->there, i) > 0)
            TR_TRY(comparison_copy(c, compare_operand(&c->there, i)->data,
                                   compare_operand(&c->here, i)->data,
                                   compare_operand_bytes(&c->there, i), TR_COPY_TO_DEVICE));
    return TR_OK;
}

/* As if the call had not been compared. */
static tr_status_t comparison_restore(comparison_t *c) {
    if (comparison_linear_inputs(c) == 0) return TR_OK;
    for (int i = 0; i < OPERANDS; i++)
        if (c->before[i])
            TR_TRY(comparison_copy(c, compare_operand(&c->there, i)->data, c->before[i],
                                   compare_operand_bytes(&c->there, i), TR_COPY_TO_DEVICE));
    TR_TRY(c->node->kernel->run(c->g->device, c->g->stream, &c->there));
    return tr_graph_sync(c->g);
}

/* -- the reference ----------------------------------------------------------------------------- */

static tr_status_t compare_reference_kernel(comparison_t *c, tr_kernel_id_t kernel,
                                            tr_kernel_call_t *call) {
    tr_plan_t plan = {0};
    call->state = call->scratch = NULL;
    TR_TRY(tr_plan_get(c->reference, kernel, call, call->attr_bytes, &plan));
    call->state = plan.state;
    if (plan.scratch_bytes > 0)
        TR_TRY(c->reference->ops->alloc(c->reference, plan.scratch_bytes, 0, &call->scratch));
    const tr_status_t status = c->reference->ops->kernels[kernel].run(c->reference, NULL, call);
    if (call->scratch) c->reference->ops->free(c->reference, call->scratch);
    return status;
}

static tr_status_t compare_reference_add(comparison_t *c, const tr_view_t *to, const void *more) {
    const tr_add_attr_t attr = {TR_ACT_NONE};
    tr_kernel_call_t add = {
        .n_in = 2, .n_out = 1, .in = {*to, *to}, .attr = &attr, .attr_bytes = sizeof attr};
    add.in[1].data = (void *)more;
    add.out[0] = *to;
    return compare_reference_kernel(c, TR_K_ADD, &add);
}

/* MATMUL_ACT_FWD and MATMUL_ACT_BWD as the reference has them: a product, and a pass over it. */
static tr_status_t compare_reference_act(comparison_t *c, bool is_backward) {
    tr_matmul_attr_t attr = *(const tr_matmul_attr_t *)c->here.attr;
    const tr_act_attr_t act = {attr.act};
    tr_kernel_call_t product = c->here, pass = {.n_in = is_backward ? 2 : 1,
                                                .n_out = 1,
                                                .attr = &act,
                                                .attr_bytes = sizeof act,
                                                .in = {c->here.out[0]},
                                                .out = {c->here.out[!is_backward]}};
    attr.act = TR_ACT_NONE;
    product.attr = &attr;
    product.n_out = 1;
    if (is_backward) pass.in[1] = product.in[4], product.n_in = 4;
    TR_TRY(compare_reference_kernel(c, TR_K_MATMUL, &product));
    return compare_reference_kernel(c, is_backward ? TR_K_ACT_BWD : TR_K_ACT_FWD, &pass);
}

/* The call by kernels that the reference has, where it lacks this one or a way of adding. */
static tr_status_t compare_reference_run(comparison_t *c, const char **skipped) {
    tr_kernel_call_t call = c->here;
    const tr_view_t absent = {.shape = {.ndim = -1}};
    tr_kernel_id_t kernel = c->node->op.row->kernel;
    const bool has = tr_device_has(c->reference, kernel),
               adds_input = kernel == TR_K_CONV_BWD_DATA && call.n_in > 2 && call.in[2].data;
    if (!has && (kernel == TR_K_MATMUL_ACT_FWD || kernel == TR_K_MATMUL_ACT_BWD))
        return compare_reference_act(c, kernel == TR_K_MATMUL_ACT_BWD);
    if (!tr_device_has(c->reference, kernel)) {
        *skipped = "the CPU has no such kernel";
        return TR_OK;
    }
    const tr_kernel_t *has_kernel = &c->reference->ops->kernels[kernel];
    const unsigned adds = call.adds & ~has_kernel->adds;
    call.adds &= ~adds;
    if (adds_input && !(has_kernel->adds & 1)) call.in[2] = absent;
    TR_TRY(compare_reference_kernel(c, kernel, &call));
    if (adds_input && !call.in[2].data)
        TR_TRY(compare_reference_add(c, &c->here.out[0], c->here.in[2].data));
    for (int k = 0; k < call.n_out; k++)
        if (adds >> k & 1)
            TR_TRY(compare_reference_add(c, &c->here.out[k], c->before[TR_KERNEL_MAX_IN + k]));
    return TR_OK;
}

bool tr_comparison_is_worse(const tr_comparison_t *a, const tr_comparison_t *b) {
    const double least = 1e-9; /* a tolerance of 0 */
    if (a->skipped || b->skipped) return b->skipped && !a->skipped;
    return isnan(a->difference) ||
           a->difference * fmax(b->tolerance, least) > b->difference * fmax(a->tolerance, least);
}

/* -- a program --------------------------------------------------------------------------------- */

static tr_status_t comparison_judge(const comparison_t *c, tr_comparison_t *row) {
    for (int k = 0; k < c->there.n_out; k++) {
        const tr_view_t *view = &c->there.out[k];
        const double allowed =
            compare_tolerance_of(c->g->device, row->kernel, row->dtype, view->dtype);
        void *found = NULL;
        if (compare_view_bytes(view) == 0) continue;
        TR_TRY(tr_alloc(compare_view_bytes(view), "results of a comparison", &found));
        const tr_status_t status =
            comparison_copy(c, found, view->data, compare_view_bytes(view), TR_COPY_TO_HOST);
        const double d =
            status == TR_OK ? compare_view_difference(row->kernel, view, found, c->here.out[k].data)
                            : 0;
        tr_free(&found);
        TR_TRY(status);
        if (row->tolerance > 0 && d * row->tolerance <= row->difference * allowed) continue;
        row->difference = d;
        row->tolerance = allowed;
        if (isnan(d)) break;
    }
    return TR_OK;
}

static tr_status_t compare_node(tr_graph_t *g, const tr_node_t *node, tr_device_t *reference,
                                tr_comparisons_t *rows) {
    const tr_kernel_call_t *call = tr_exec_call(g, node);
    comparison_t c = {.g = g, .reference = reference, .node = node, .there = *call, .here = *call};
    tr_comparison_t row = {.kernel = node->op.row->kernel, .dtype = call_dtype(&c.there)};
    tr_status_t status = TR_OK;
    bool is_new = true;
    size_t bytes = 0;
    row.key = compare_describe_call(node, &c.there, row.shapes);
    snprintf(row.label, sizeof row.label, "%s", tr_op_where(&node->op));
    for (int i = 0; i < OPERANDS; i++) {
        bytes += compare_operand_bytes(&c.there, i);
        if (compare_operand(&c.here, i)) compare_operand(&c.here, i)->data = NULL;
    }
    for (size_t i = 0; i < rows->count && is_new; i++) is_new = rows->data[i].key != row.key;
    if (is_new && bytes > MOST_BYTES) row.skipped = "its operands are larger than 3 GiB";
    if (!is_new || row.skipped) {
        TR_TRY(node->kernel->run(g->device, g->stream, call));
        return is_new ? tr_vec_push(rows, row) : TR_OK;
    }
    TR_TRY_GOTO(comparison_prepare(&c), done);
    TR_TRY_GOTO(node->kernel->run(g->device, g->stream, &c.there), done);
    TR_TRY_GOTO(compare_reference_run(&c, &row.skipped), done);
    if (!row.skipped) TR_TRY_GOTO(comparison_judge(&c, &row), done);
    TR_TRY_GOTO(comparison_restore(&c), done);
    status = tr_vec_push(rows, row);
done:
    for (int i = 0; i < OPERANDS; i++) {
        tr_view_t *view = compare_operand(&c.here, i);
        tr_free(&c.before[i]);
        if (view && view->data) reference->ops->free(reference, view->data);
    }
    return status;
}

tr_status_t tr_program_compare(tr_graph_t *g, int program, tr_device_t *reference,
                               tr_comparisons_t *rows) {
    const tr_program_t *p = g->programs.data[program];
    TR_TRY(tr_copies_refresh(g));
    for (size_t i = 0; i < p->nodes.count; i++) {
        const tr_node_t *node = p->nodes.data[i];
        tr_status_t status = TR_OK;
        if (node->op.kind == TR_OP_KERNEL)
            status = compare_node(g, node, reference, rows);
        else if (node->op.kind == TR_OP_ZERO)
            status = tr_exec_zero_extra(g);
        if (status != TR_OK) return tr_exec_name_op(&node->op, status);
    }
    return tr_graph_sync(g);
}
