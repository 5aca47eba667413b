/* Tensors, names and scopes: what programs are built from. */
#include "graph_int.h"

#include <search.h>
#include <string.h>

#define MAX_ELEMS 0x1p44 /* of a tensor */

tr_tensor_rec_t *tr_rec(const tr_graph_t *g, tr_tensor_t t) {
    return g->tensors.data[t.id];
}

tr_tensor_t tr_base(const tr_graph_t *g, tr_tensor_t t) {
    while (tr_rec(g, t)->info.role == TR_ROLE_VIEW) t = tr_rec(g, t)->info.base;
    return t;
}

tr_tensor_rec_t *tr_rec_base(const tr_graph_t *g, tr_tensor_t t) {
    return tr_rec(g, tr_base(g, t));
}

const tr_tensor_info_t *tr_tensor_info(const tr_graph_t *g, tr_tensor_t t) {
    return &tr_rec(g, t)->info;
}
const tr_shape_t *tr_shape_of(const tr_graph_t *g, tr_tensor_t t) {
    return &tr_rec(g, t)->info.shape;
}
int32_t tr_graph_tensor_count(const tr_graph_t *g) {
    return (int32_t)g->tensors.count - 1;
}
tr_tensor_t tr_graph_step(const tr_graph_t *g) {
    return g->step;
}
tr_tensor_t tr_graph_result(const tr_graph_t *g) {
    return g->result;
}

/* -- life -------------------------------------------------------------------------------------- */

/* Tensors that every graph has: the step block, what a step tells the host, and a flag for finding
 * non-finite values. */
static tr_status_t graph_make_fixed_tensors(tr_graph_t *g) {
    tr_tensor_t none;
    /* id 0 */
    TR_TRY(tr_tensor_make(g, "", TR_ROLE_CONST, TR_F32, &(tr_shape_t){.ndim = -1}, &none));
    TR_TRY(tr_input(g, "step", TR_U8, &TR_SHAPE((int64_t)sizeof(tr_step_t)), &g->step));
    TR_TRY(tr_optim_state(g, "step_result", TR_U8, &TR_SHAPE((int64_t)sizeof(tr_step_result_t)),
                          false, &g->result));
    return tr_tensor_make(g, "finite_flag", TR_ROLE_CONST, TR_I32, &TR_SHAPE(1), &g->flag);
}

tr_status_t tr_graph_create(tr_device_t *device, tr_graph_t **out) {
    tr_graph_t *g = NULL;
    TR_TRY(tr_alloc(sizeof *g, "graph", &g));
    g->device = device;
    g->open = -1;
    g->input_sets = 1;
    g->sharding = (tr_sharding_t){.first_bytes = 1 << 20, .bytes = 25 << 20, .ranks = 1};
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(device->ops->stream_create(device, "compute", TR_PRIORITY_NORMAL, &g->stream),
                fail);
    TR_TRY_GOTO(graph_make_fixed_tensors(g), fail);
    *out = g;
    return TR_OK;
fail:
    tr_graph_destroy(&g);
    return status;
}

static void graph_destroy_program(tr_program_t *p) {
    for (size_t i = 0; i < p->nodes.count; i++) {
        tr_node_t *node = p->nodes.data[i];
        tr_vec_free(&node->dying);
        tr_free(&node->set_calls);
        tr_free(&node->op.attr);
        tr_free(&node->label);
        tr_free(&p->nodes.data[i]);
    }
    tr_vec_free(&p->nodes);
    tr_free(&p->name);
}

/* For tdestroy: the list owns the records. */
static void graph_by_name_keep(void *rec) {
    (void)rec;
}

void tr_graph_destroy(tr_graph_t **graph) {
    tr_graph_t *g = *graph;
    if (!g) return;
    tr_exec_release(g);
    for (size_t i = 0; i < g->programs.count; i++) {
        graph_destroy_program(g->programs.data[i]);
        tr_free(&g->programs.data[i]);
    }
    tdestroy(g->by_name, graph_by_name_keep);
    for (size_t i = 0; i < g->tensors.count; i++) {
        tr_free(&g->tensors.data[i]->name);
        tr_free(&g->tensors.data[i]->values);
        tr_free(&g->tensors.data[i]);
    }
    tr_vec_free(&g->programs);
    tr_vec_free(&g->tensors);
    tr_vec_free(&g->scope_lengths);
    tr_vec_free(&g->order);
    tr_vec_free(&g->padding);
    tr_vec_free(&g->buckets);
    tr_vec_free(&g->patches);
    tr_vec_free(&g->inputs);
    tr_str_free(&g->scope);
    if (g->stream) g->device->ops->stream_destroy(g->device, g->stream);
    tr_free(graph);
}

/* -- scopes ------------------------------------------------------------------------------------ */

void tr_scope_push(tr_graph_t *g, const char *name) {
    const tr_status_t status = tr_vec_push(&g->scope_lengths, g->scope.length);
    if (status != TR_OK) g->scope.status = status;
    if (g->scope.length > 0) tr_str_append(&g->scope, ".");
    tr_str_append(&g->scope, name);
}

void tr_scope_pop(tr_graph_t *g) {
    if (g->scope_lengths.count == 0) return;
    g->scope.length = g->scope_lengths.data[--g->scope_lengths.count];
    if (g->scope.text) g->scope.text[g->scope.length] = '\0';
}

const char *tr_scope(const tr_graph_t *g) {
    return g->scope.text ? g->scope.text : "";
}

/* -- tensors ----------------------------------------------------------------------------------- */

/* So few that the bytes of all tensors together can be counted. */
static tr_status_t graph_check_elems(const tr_graph_t *g, const char *name,
                                     const tr_shape_t *shape) {
    char text[96];
    double elems = 1;
    for (int d = 0; d < shape->ndim; d++) elems *= (double)shape->dim[d];
    if (elems <= MAX_ELEMS) return TR_OK;
    return TR_FAIL(TR_ERR_MEMORY,
                   "%s would have %s elements, too many for any memory; make the layer, its input "
                   "or data.micro_batch smaller",
                   name[0] ? name : tr_scope(g), tr_shape_format(shape, text));
}

static int graph_by_name(const void *a, const void *b) {
    return strcmp(((const tr_tensor_rec_t *)a)->name, ((const tr_tensor_rec_t *)b)->name);
}

tr_status_t tr_tensor_make(tr_graph_t *g, const char *name, tr_role_t role, tr_dtype_t dtype,
                           const tr_shape_t *shape, tr_tensor_t *out) {
    tr_tensor_rec_t *rec = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(graph_check_elems(g, name, shape));
    TR_TRY(tr_alloc(sizeof *rec, "tensor record", &rec));
    TR_TRY_GOTO(tr_strdup(name, &rec->name), fail);
    const int32_t id = (int32_t)g->tensors.count;
    TR_TRY_GOTO(tr_vec_push(&g->tensors, rec), fail);
    rec->id = rec->storage = id;
    rec->info = (tr_tensor_info_t){.name = rec->name,
                                   .role = role,
                                   .dtype = dtype,
                                   .shape = *shape,
                                   .block_elems = -1,
                                   .program = role == TR_ROLE_ACTIVATION ? g->open : -1,
                                   .first_op = -1,
                                   .last_op = -1,
                                   .bytes = (size_t)(shape->ndim < 0 ? 0 : tr_shape_elems(shape)) *
                                            tr_dtype_bytes(dtype)};
    out->id = id;
    if (name[0] && !tsearch(rec, &g->by_name, graph_by_name))
        return TR_FAIL(TR_ERR_MEMORY, "not enough memory for the name of tensor '%s'", name);
    return TR_OK;
fail:
    tr_free(&rec->name);
    tr_free(&rec);
    return status;
}

tr_tensor_t tr_graph_find(const tr_graph_t *g, const char *name) {
    tr_tensor_rec_t *const *found =
        tfind(&(tr_tensor_rec_t){.name = (char *)(uintptr_t)name}, &g->by_name, graph_by_name);
    return found ? (tr_tensor_t){(*found)->id} : TR_NONE;
}

/* The persistent tensor of that name: the one that is there, if it is the same, or a new one
 * (*is_new). */
static tr_status_t tensor_persistent(tr_graph_t *g, const char *name, tr_role_t role,
                                     tr_dtype_t dtype, const tr_shape_t *shape, tr_tensor_t *out,
                                     bool *is_new) {
    const tr_tensor_t found = tr_graph_find(g, name);
    char is[96], was[96];
    *is_new = tr_is_none(found);
    if (*is_new) {
        if (g->planned)
            return TR_FAIL(TR_ERR_INTERNAL, "tensor '%s' is declared after the memory plan", name);
        for (int d = 0; d < shape->ndim; d++)
            if (shape->dim[d] < 1) /* kernels divide by it, and have no rule for sums of nothing */
                return TR_FAIL(TR_ERR_CONFIG,
                               "'%s' has the shape %s, but each size must be at least 1", name,
                               tr_shape_format(shape, is));
        return tr_tensor_make(g, name, role, dtype, shape, out);
    }
    const tr_tensor_info_t *info = tr_tensor_info(g, found);
    if (info->role != role || info->dtype != dtype || !tr_shape_equal(&info->shape, shape))
        return TR_FAIL(
            TR_ERR_CONFIG,
            "'%s' is declared twice with differences: first %s %s, now %s %s; rename one of them",
            name, tr_dtype_name(info->dtype), tr_shape_format(&info->shape, was),
            tr_dtype_name(dtype), tr_shape_format(shape, is));
    *out = found;
    return TR_OK;
}

static tr_status_t graph_scoped_name(const tr_graph_t *g, const char *name, char **out) {
    tr_str_t s = {0};
    TR_TRY(g->scope.status);
    if (g->scope.length > 0) tr_str_printf(&s, "%s.", tr_scope(g));
    tr_str_append(&s, name);
    return tr_str_take(&s, out);
}

static tr_status_t param_declare(tr_graph_t *g, const char *name, tr_dtype_t dtype,
                                 const tr_shape_t *shape, const tr_param_spec_t *spec,
                                 tr_tensor_t *out) {
    char *full = NULL;
    bool is_new = false;
    tr_status_t status = TR_OK;
    TR_TRY(graph_scoped_name(g, name, &full));
    TR_TRY_GOTO(tensor_persistent(g, full, TR_ROLE_PARAM, dtype, shape, out, &is_new), done);
    if (is_new && g->laid_out)
        status = TR_FAIL(TR_ERR_INTERNAL,
                         "parameter '%s' is declared after the parameter block was laid out", full);
    else if (is_new)
        tr_rec(g, *out)->info.param = *spec;
done:
    tr_free(&full);
    return status;
}

tr_status_t tr_param(tr_graph_t *g, const char *name, const tr_shape_t *shape,
                     const tr_param_spec_t *spec, tr_tensor_t *out) {
    return param_declare(g, name, TR_F32, shape, spec, out);
}

tr_status_t tr_weight(tr_graph_t *g, const char *name, tr_dtype_t dtype, const tr_shape_t *shape,
                      tr_tensor_t *out) {
    if (dtype != TR_F32 && !tr_dtype_is_half(dtype))
        return TR_FAIL(TR_ERR_INTERNAL, "weight '%s' is %s: expected f32, bf16 or f16", name,
                       tr_dtype_name(dtype));
    return param_declare(g, name, dtype, shape, &(tr_param_spec_t){0}, out);
}

tr_status_t tr_model_state(tr_graph_t *g, const char *name, const tr_shape_t *shape, double fill,
                           tr_tensor_t *out) {
    char *full = NULL;
    bool is_new = false;
    TR_TRY(graph_scoped_name(g, name, &full));
    const tr_status_t status =
        tensor_persistent(g, full, TR_ROLE_MODEL_STATE, TR_F32, shape, out, &is_new);
    tr_free(&full);
    TR_TRY(status);
    tr_rec(g, *out)->info.param.init.value = fill;
    return TR_OK;
}

tr_status_t tr_optim_state(tr_graph_t *g, const char *name, tr_dtype_t dtype,
                           const tr_shape_t *shape, bool mirrors_params, tr_tensor_t *out) {
    bool is_new = false;
    TR_TRY(tensor_persistent(g, name, TR_ROLE_OPTIM_STATE, dtype, shape, out, &is_new));
    tr_rec(g, *out)->info.mirrors_params = mirrors_params;
    return TR_OK;
}

tr_status_t tr_input(tr_graph_t *g, const char *name, tr_dtype_t dtype, const tr_shape_t *shape,
                     tr_tensor_t *out) {
    bool is_new = false;
    return tensor_persistent(g, name, TR_ROLE_INPUT, dtype, shape, out, &is_new);
}

tr_status_t tr_const(tr_graph_t *g, const char *name, const tr_shape_t *shape, double fill,
                     tr_tensor_t *out) {
    bool is_new = false;
    TR_TRY(tensor_persistent(g, name, TR_ROLE_CONST, TR_F32, shape, out, &is_new));
    tr_rec(g, *out)->info.param.init.value = fill;
    return TR_OK;
}

tr_status_t tr_cache(tr_graph_t *g, const char *name, tr_dtype_t dtype, const tr_shape_t *shape,
                     tr_tensor_t *out) {
    bool is_new = false;
    return tensor_persistent(g, name, TR_ROLE_CACHE, dtype, shape, out, &is_new);
}

static tr_status_t const_of(tr_graph_t *g, const char *name, tr_dtype_t dtype, const void *values,
                            int64_t count, tr_tensor_t *out) {
    bool is_new = false;
    TR_TRY(tensor_persistent(g, name, TR_ROLE_CONST, dtype, &TR_SHAPE(count), out, &is_new));
    tr_tensor_rec_t *rec = tr_rec(g, *out);
    if (!rec->values) TR_TRY(tr_alloc(rec->info.bytes, name, &rec->values));
    memcpy(rec->values, values, rec->info.bytes);
    return TR_OK;
}

tr_status_t tr_const_values(tr_graph_t *g, const char *name, const float *values, int64_t count,
                            tr_tensor_t *out) {
    return const_of(g, name, TR_F32, values, count, out);
}

tr_status_t tr_const_bytes(tr_graph_t *g, const char *name, const void *values, size_t bytes,
                           tr_tensor_t *out) {
    return const_of(g, name, TR_U8, values, (int64_t)bytes, out);
}

tr_status_t tr_const_indices(tr_graph_t *g, const char *name, const int32_t *values, int64_t count,
                             tr_tensor_t *out) {
    return const_of(g, name, TR_I32, values, count, out);
}

tr_status_t tr_reduced(tr_graph_t *g, const char *name, int64_t count, tr_tensor_t *out) {
    bool is_new = false;
    TR_TRY(tensor_persistent(g, name, TR_ROLE_REDUCED, TR_F32, &TR_SHAPE(count), out, &is_new));
    if (is_new && g->laid_out)
        return TR_FAIL(TR_ERR_INTERNAL, "'%s' joins the reduced block after it was laid out", name);
    return TR_OK;
}

/* -- views ------------------------------------------------------------------------------------- */

static tr_status_t graph_make_view(tr_graph_t *g, tr_tensor_t x, int64_t first,
                                   const tr_shape_t *shape, tr_tensor_t *out) {
    const tr_tensor_info_t info = *tr_tensor_info(g, x);
    TR_TRY(tr_tensor_make(g, "", TR_ROLE_VIEW, info.dtype, shape, out));
    tr_tensor_info_t *view = &tr_rec(g, *out)->info;
    view->base = tr_base(g, x);
    view->view_elems = first + (info.role == TR_ROLE_VIEW ? info.view_elems : 0);
    return TR_OK;
}

tr_status_t tr_reshape(tr_graph_t *g, tr_tensor_t x, const tr_shape_t *shape, tr_tensor_t *out) {
    char from[96], to[96];
    if (tr_shape_equal(tr_shape_of(g, x), shape)) {
        *out = x;
        return TR_OK;
    }
    if (tr_shape_elems(tr_shape_of(g, x)) != tr_shape_elems(shape))
        return TR_FAIL(
            TR_ERR_CONFIG, "%s: %s cannot be reshaped to %s: the number of elements differs",
            tr_scope(g), tr_shape_format(tr_shape_of(g, x), from), tr_shape_format(shape, to));
    return graph_make_view(g, x, 0, shape, out);
}

tr_status_t tr_slice(tr_graph_t *g, tr_tensor_t x, int64_t first, int64_t count, tr_tensor_t *out) {
    const int64_t elems = tr_shape_elems(tr_shape_of(g, x));
    if (first < 0 || count < 0 || first + count > elems)
        return TR_FAIL(TR_ERR_INTERNAL, "slice [%lld, +%lld) of a tensor of %lld elements",
                       (long long)first, (long long)count, (long long)elems);
    return graph_make_view(g, x, first, &TR_SHAPE(count), out);
}

bool tr_graph_has_kernel(const tr_graph_t *g, tr_kernel_id_t kernel) {
    return g->device->ops->kernels[kernel].run != NULL;
}

bool tr_graph_has_winograd(const tr_graph_t *g, tr_dtype_t dtype) {
    return g->device->winograd && (dtype != TR_BF16 || !g->device->fast_bf16);
}

tr_status_t tr_keep(tr_graph_t *g, tr_tensor_t x) {
    tr_rec_base(g, x)->info.kept = true;
    return TR_OK;
}
