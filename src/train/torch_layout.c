#include "torch_layout.h"
#include "graph/program.h"

#include <stdio.h>
#include <string.h>

static int program_of(const tr_session_t *s) {
    return s->eval >= 0 ? s->eval : s->last;
}

/* The op of the forward pass that computes `t`; NULL for an input or a parameter. */
static const tr_op_t *maker(const tr_session_t *s, tr_tensor_t t) {
    const int program = program_of(s);
    for (int i = 0; i < tr_program_op_count(s->g, program); i++) {
        const tr_op_t *op = tr_program_op(s->g, program, i);
        for (int k = 0; k < op->n_out && !op->backward; k++)
            if (op->out[k].id == t.id) return op;
    }
    return NULL;
}

/* The base of view `t`, or `t` itself. */
static tr_tensor_t whole(const tr_session_t *s, tr_tensor_t t) {
    const tr_tensor_info_t *info = tr_tensor_info(s->g, t);
    return info->role == TR_ROLE_VIEW ? info->base : t;
}

/* The parameter by which an op multiplies, possibly through a cast. */
static const char *weight_of(const tr_session_t *s, const tr_op_t *op) {
    if (op->kind != TR_OP_KERNEL || op->backward || op->n_in < 2 || tr_is_none(op->in[1]))
        return "";
    tr_tensor_t w = whole(s, op->in[1]);
    const tr_op_t *cast = tr_is_param(s->g, w) ? NULL : maker(s, w);
    if (cast && cast->n_in > 0) w = whole(s, cast->in[0]);
    return tr_is_param(s->g, w) ? tr_tensor_info(s->g, w)->name : "";
}

/* The sample shape (S..., C) of `x` (B, F) before it was flattened, found by going back through ops
 * that keep the order of values. ndim 0: it was not flattened. */
static tr_shape_t before_flatten(const tr_session_t *s, tr_tensor_t x) {
    for (;;) {
        const tr_tensor_t base = whole(s, x);
        const tr_shape_t *flat = tr_shape_of(s->g, x), *full = tr_shape_of(s->g, base);
        if (flat->ndim != 2) return (tr_shape_t){0};
        if (full->ndim > 2 && full->dim[0] == flat->dim[0]) return *full;
        const tr_op_t *op = maker(s, base);
        if (!op || op->n_in == 0 || tr_is_none(op->in[0]) || strcmp(op->row->name, "matmul") == 0 ||
            !tr_shape_equal(tr_shape_of(s->g, op->in[0]), full))
            return (tr_shape_t){0};
        x = op->in[0];
    }
}

static int64_t product(const tr_shape_t *shape, int first, int last) {
    int64_t result = 1;
    for (int i = first; i < last; i++) result *= shape->dim[i];
    return result;
}

/* (O, kernel..., I) */
static void order_kernel(const tr_shape_t *here, tr_torch_order_t *out) {
    const int last = here->ndim - 1;
    *out = (tr_torch_order_t){here->dim[0], product(here, 1, last), here->dim[last], *here};
    out->shape.dim[1] = here->dim[last];
    for (int i = 2; i <= last; i++) out->shape.dim[i] = here->dim[i - 1];
}

/* The op that uses the weight `name`; NULL if there is none. */
static const tr_op_t *user_of(const tr_session_t *s, const char *name) {
    const int program = program_of(s);
    for (int i = 0; i < tr_program_op_count(s->g, program); i++) {
        const tr_op_t *op = tr_program_op(s->g, program, i);
        if (strcmp(weight_of(s, op), name) == 0) return op;
    }
    return NULL;
}

bool tr_torch_order(const tr_session_t *s, const char *name, tr_torch_order_t *out) {
    const tr_tensor_t tensor = tr_graph_find(s->g, name);
    const char *dot = strrchr(name, '.');
    char weight[512];
    if (tr_is_none(tensor) || !dot) return false;
    const tr_shape_t *here = tr_shape_of(s->g, tensor);
    /* The bias and running moments of a norm have the order of its weight. */
    snprintf(weight, sizeof weight, "%.*s.weight", (int)(dot - name), name);
    const tr_op_t *op = user_of(s, weight);
    if (!op) return false;
    if (strcmp(op->row->name, "conv") == 0) {
        if (here->ndim > 2) order_kernel(here, out);
        return here->ndim > 2;
    }
    const tr_shape_t was = before_flatten(s, op->in[0]);
    const bool is_norm = strcmp(op->row->name, "matmul") != 0;
    if (was.ndim == 0 || here->ndim != (is_norm ? 1 : 2)) return false;
    const int last = was.ndim - 1;
    *out = (tr_torch_order_t){is_norm ? 1 : here->dim[0], product(&was, 1, last), was.dim[last],
                              *here};
    return out->pixels * out->channels == here->dim[here->ndim - 1];
}

void tr_torch_exchange(const float *in, int64_t outer, int64_t rows, int64_t columns, float *out) {
    for (int64_t o = 0; o < outer; o++, in += rows * columns, out += rows * columns)
        for (int64_t r = 0; r < rows; r++)
            for (int64_t c = 0; c < columns; c++) out[c * rows + r] = in[r * columns + c];
}
