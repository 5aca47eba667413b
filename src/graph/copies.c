/*
 * Half-precision copies of parameters, for products and convolutions: one block with the layout of
 * the parameter block. A program that writes parameters writes their copies too. After any other
 * write (tr_tensor_write, tr_graph_region_to_write), the next run of a program refreshes all of
 * them first.
 */
#include "graph_int.h"
#include "graph/ops/op_int.h"

static bool copies_has(const tr_graph_t *g, tr_dtype_t dtype) {
    return g->copy_dtype == dtype || (!tr_has_copies(g) && !g->laid_out);
}

bool tr_has_copies(const tr_graph_t *g) {
    return g->copy_dtype != TR_F32;
}

tr_status_t tr_param_copy(tr_graph_t *g, tr_tensor_t param, tr_dtype_t dtype, tr_tensor_t *out) {
    const tr_tensor_info_t info = *tr_tensor_info(g, param);
    tr_str_t name = {0};
    if (info.role != TR_ROLE_PARAM || !copies_has(g, dtype)) return tr_cast(g, param, dtype, out);
    tr_str_printf(&name, "%s.%s", info.name, tr_dtype_name(dtype));
    TR_TRY(name.status);
    *out = tr_graph_find(g, name.text);
    tr_status_t status = TR_OK;
    if (tr_is_none(*out)) {
        status = tr_tensor_make(g, name.text, TR_ROLE_COPY, dtype, &info.shape, out);
        if (status == TR_OK) tr_rec(g, *out)->info.base = param;
        g->copy_dtype = dtype;
    }
    tr_str_free(&name);
    return status;
}

tr_status_t tr_op_bias_copy(tr_graph_t *g, tr_tensor_t x, tr_tensor_t b, tr_tensor_t *out) {
    const tr_dtype_t dtype = tr_tensor_info(g, x)->dtype;
    *out = TR_NONE;
    if (tr_is_none(b) || !tr_dtype_is_half(dtype) || !copies_has(g, dtype)) return TR_OK;
    return tr_tensor_info(g, b)->role == TR_ROLE_PARAM ? tr_param_copy(g, b, dtype, out) : TR_OK;
}

tr_status_t tr_copies_lay_out(tr_graph_t *g) {
    const tr_shape_t shape = TR_SHAPE(g->layout.param_elems);
    if (!tr_has_copies(g)) return TR_OK;
    TR_TRY(tr_tensor_make(g, "copy block", TR_ROLE_COPY, g->copy_dtype, &shape, &g->copy_block));
    tr_rec(g, g->copy_block)->info.base = g->param_block;
    return TR_OK;
}

/* Where the copies of elements of the parameter block from `at` on begin. */
static int64_t copies_place(const tr_graph_t *g, int64_t at) {
    tr_part_t part = {0};
    if (!tr_masters_are_sharded(g)) return at;
    while (tr_next_part(g, g->sharding.rank, &part))
        if (at < part.place + part.count) return part.first + at - part.place;
    return g->layout.param_elems - tr_shape_elems(tr_shape_of(g, g->param_block)) + at;
}

/* The copies of the parameters t: of one parameter, or a range of the parameter block. */
static tr_status_t copies_of(tr_graph_t *g, tr_tensor_t t, tr_tensor_t *out) {
    const tr_tensor_info_t info = *tr_tensor_info(g, t);
    if (tr_base(g, t).id != g->param_block.id)
        return tr_param_copy(g, tr_base(g, t), g->copy_dtype, out);
    const int64_t first = copies_place(g, info.role == TR_ROLE_VIEW ? info.view_elems : 0);
    return tr_slice(g, g->copy_block, first, tr_shape_elems(&info.shape), out);
}

tr_status_t tr_copies_follow(tr_graph_t *g, tr_program_t *p) {
    const size_t count = p->nodes.count;
    for (size_t i = 0; i < count && tr_has_copies(g); i++) {
        const tr_op_t op = p->nodes.data[i]->op;
        for (int k = 0; k < op.n_out; k++) {
            tr_tensor_t copies;
            if (tr_is_none(op.out[k]) || tr_rec_base(g, op.out[k])->info.role != TR_ROLE_PARAM)
                continue;
            TR_TRY(copies_of(g, op.out[k], &copies));
            g->label = op.label;
            const tr_status_t status = tr_cast_into(g, op.out[k], copies);
            g->label = NULL;
            TR_TRY(status);
        }
    }
    return TR_OK;
}

/* -- refreshing -------------------------------------------------------------------------------- */

static tr_status_t copies_build_refresh(tr_graph_t *g) {
    const int64_t all = tr_shape_elems(tr_shape_of(g, g->param_block));
    tr_part_t part = {0};
    if (!tr_has_copies(g)) return TR_OK;
    if (!tr_masters_are_sharded(g)) return tr_cast_into(g, g->param_block, g->copy_block);
    for (int64_t at = 0, end; at < all; at = end) {
        tr_tensor_t from, to;
        end = tr_next_part(g, g->sharding.rank, &part) ? part.place + part.count : all;
        TR_TRY(tr_slice(g, g->param_block, at, end - at, &from));
        TR_TRY(copies_of(g, from, &to));
        TR_TRY(tr_cast_into(g, from, to));
    }
    return TR_OK;
}

tr_status_t tr_copies_plan(tr_graph_t *g) {
    g->refresh = -1;
    if (!tr_has_copies(g) && !tr_graph_is_sharded(g)) return TR_OK;
    TR_TRY(tr_program_begin(g, "copies", TR_PLAIN, &g->refresh));
    tr_scope_push(g, "parameters");
    TR_TRY(copies_build_refresh(g));
    tr_scope_pop(g);
    TR_TRY(tr_program_end(g));
    return tr_program_add_gathers(g, g->refresh, TR_NONE);
}

tr_status_t tr_copies_refresh(tr_graph_t *g) {
    if (!g->copies_are_old || tr_graph_is_sharded(g)) return TR_OK;
    g->copies_are_old = false;
    return g->refresh < 0 ? TR_OK : tr_program_run(g, g->refresh, NULL);
}

tr_status_t tr_graph_gather(tr_graph_t *g, tr_collectives_t *collectives) {
    return tr_graph_is_sharded(g) ? tr_program_run(g, g->refresh, collectives) : TR_OK;
}

/* -- fusion ------------------------------------------------------------------------------------ */

/* Whether record `i` writes exactly the range of `params`. */
static bool copies_writes(const tr_fuse_t *f, int i, tr_tensor_t params) {
    const tr_op_t *op = tr_fuse_op(f, i);
    const int k = op->row ? tr_fuse_output(f, op, params) : -1;
    if (k < 0 || tr_base(f->g, op->out[k]).id != tr_base(f->g, params).id) return false;
    const tr_tensor_info_t *x = tr_tensor_info(f->g, op->out[k]), *y = tr_tensor_info(f->g, params);
    return x->view_elems == y->view_elems && tr_shape_elems(&x->shape) == tr_shape_elems(&y->shape);
}

/*
 * sgd or adam -> parameters; cast(parameters) -> copies
 * becomes the optimizer with the copies as its last output.
 */
tr_status_t tr_fuse_copies(tr_fuse_t *f, int i, bool *out_done) {
    const tr_op_t *cast = tr_fuse_op(f, i);
    if (!tr_fuse_is(f, i, TR_K_CAST_NORMALIZE)) return TR_OK;
    if (tr_rec_base(f->g, cast->out[0])->info.role != TR_ROLE_COPY) return TR_OK;
    int writer = i - 1;
    while (writer >= 0 && !copies_writes(f, writer, cast->in[0])) writer--;
    if (!tr_fuse_is(f, writer, TR_K_SGD) && !tr_fuse_is(f, writer, TR_K_ADAM)) return TR_OK;
    tr_op_t *op = tr_fuse_op(f, writer);
    op->out[op->n_out++] = cast->out[0];
    tr_fuse_remove(f, i);
    return *out_done = true, TR_OK;
}
