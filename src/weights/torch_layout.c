/* Finds the parameters whose order of dimensions differs in PyTorch. */
#include "torch_layout.h"
#include "graph/program.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

struct tr_torch_layout {
    const tr_session_t *s;
    /* Of the forward pass, by tensor; NULL: none. */
    const tr_op_t **maker; /* the op that computes it */
    const tr_op_t **user;  /* the first op that uses it as its weight */
};

/* The base of view `t`, or `t` itself. */
static tr_tensor_t whole(const tr_session_t *s, tr_tensor_t t) {
    const tr_tensor_info_t *info = tr_tensor_info(s->g, t);
    return info->role == TR_ROLE_VIEW ? info->base : t;
}

/* The parameter by which an op multiplies, possibly through a cast; TR_NONE if there is none. */
static tr_tensor_t weight_of(const tr_torch_layout_t *l, const tr_op_t *op) {
    if (op->kind != TR_OP_KERNEL || op->n_in < 2 || tr_is_none(op->in[1])) return TR_NONE;
    tr_tensor_t w = whole(l->s, op->in[1]);
    const tr_op_t *cast = tr_is_param(l->s->g, w) ? NULL : l->maker[w.id];
    if (cast && cast->n_in > 0) w = whole(l->s, cast->in[0]);
    return tr_is_param(l->s->g, w) ? w : TR_NONE;
}

static void find_ops(tr_torch_layout_t *l) {
    const tr_session_t *s = l->s;
    const int program = s->eval >= 0 ? s->eval : s->last;
    for (int i = 0; i < tr_program_op_count(s->g, program); i++) {
        const tr_op_t *op = tr_program_op(s->g, program, i);
        if (op->backward) continue;
        const tr_tensor_t weight = weight_of(l, op);
        if (!tr_is_none(weight) && !l->user[weight.id]) l->user[weight.id] = op;
        for (int k = 0; k < op->n_out; k++)
            if (!l->maker[op->out[k].id]) l->maker[op->out[k].id] = op;
    }
}

tr_status_t tr_torch_layout_create(const tr_session_t *s, tr_torch_layout_t **out) {
    const size_t tensors = (size_t)tr_graph_tensor_count(s->g) + 1;
    tr_torch_layout_t *l = NULL;
    tr_status_t status = tr_alloc(sizeof *l, "layout of PyTorch", &l);
    if (status == TR_OK) status = tr_alloc(tensors * sizeof(void *), "ops by tensor", &l->maker);
    if (status == TR_OK) status = tr_alloc(tensors * sizeof(void *), "ops by weight", &l->user);
    if (status == TR_OK) {
        l->s = s;
        find_ops(l);
    } else {
        tr_torch_layout_destroy(&l);
    }
    *out = l;
    return status;
}

void tr_torch_layout_destroy(tr_torch_layout_t **layout) {
    if (!*layout) return;
    tr_free(&(*layout)->maker);
    tr_free(&(*layout)->user);
    tr_free(layout);
}

/* The sample shape (S..., C) of `x` (B, F) before it was flattened, found by going back through ops
 * that keep the order of values. ndim 0: it was not flattened. */
static tr_shape_t before_flatten(const tr_torch_layout_t *l, tr_tensor_t x) {
    const tr_session_t *s = l->s;
    for (;;) {
        const tr_tensor_t base = whole(s, x);
        const tr_shape_t *flat = tr_shape_of(s->g, x), *full = tr_shape_of(s->g, base);
        if (flat->ndim != 2) return (tr_shape_t){0};
        if (full->ndim > 2 && full->dim[0] == flat->dim[0]) return *full;
        const tr_op_t *op = l->maker[base.id];
        if (!op || op->n_in == 0 || tr_is_none(op->in[0]) || strcmp(op->row->name, "matmul") == 0 ||
            !tr_shape_equal(tr_shape_of(s->g, op->in[0]), full))
            return (tr_shape_t){0};
        x = op->in[0];
    }
}

static int64_t torch_layout_product(const tr_shape_t *shape, int first, int last) {
    int64_t result = 1;
    for (int i = first; i < last; i++) result *= shape->dim[i];
    return result;
}

/* (O, kernel..., I), or of a transposed convolution (I, kernel..., O) */
static void order_kernel(const tr_shape_t *here, tr_torch_order_t *out) {
    const int last = here->ndim - 1;
    *out = (tr_torch_order_t){here->dim[0], torch_layout_product(here, 1, last), here->dim[last],
                              *here};
    out->shape.dim[1] = here->dim[last];
    for (int i = 2; i <= last; i++) out->shape.dim[i] = here->dim[i - 1];
}

bool tr_torch_order(const tr_torch_layout_t *l, const char *name, tr_torch_order_t *out) {
    const tr_session_t *s = l->s;
    const tr_tensor_t tensor = tr_graph_find(s->g, name);
    const char *dot = strrchr(name, '.');
    char weight[512];
    if (tr_is_none(tensor) || !dot) return false;
    const tr_shape_t *here = tr_shape_of(s->g, tensor);
    /* The bias and running moments of a norm have the order of its weight. */
    snprintf(weight, sizeof weight, "%.*s.weight", (int)(dot - name), name);
    const tr_tensor_t its = tr_graph_find(s->g, weight);
    const tr_op_t *op = tr_is_none(its) ? NULL : l->user[its.id];
    if (!op) return false;
    if (strcmp(op->row->name, "conv") == 0 || strcmp(op->row->name, "conv_transpose") == 0) {
        if (here->ndim > 2) order_kernel(here, out);
        return here->ndim > 2;
    }
    const tr_shape_t was = before_flatten(l, op->in[0]);
    const bool is_norm = strcmp(op->row->name, "matmul") != 0;
    if (was.ndim == 0 || here->ndim != (is_norm ? 1 : 2)) return false;
    const int last = was.ndim - 1;
    *out = (tr_torch_order_t){is_norm ? 1 : here->dim[0], torch_layout_product(&was, 1, last),
                              was.dim[last], *here};
    return out->pixels * out->channels == here->dim[here->ndim - 1];
}

void tr_torch_exchange(const float *in, int64_t outer, int64_t rows, int64_t columns, float *out) {
    for (int64_t o = 0; o < outer; o++, in += rows * columns, out += rows * columns)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++) out[c * rows + r] = in[r * columns + c];
}
