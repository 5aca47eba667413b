/* Programs: op records appended to flat arrays. */
#include "graph_int.h"

#include <string.h>

tr_program_t *tr_open_program(const tr_graph_t *g) {
    return g->open < 0 ? NULL : g->programs.data[g->open];
}

tr_status_t tr_program_begin(tr_graph_t *g, const char *name, tr_mode_t mode, int *out_program) {
    if (g->open >= 0) return TR_FAIL(TR_ERR_INTERNAL, "program '%s' starts inside another", name);
    if (g->planned)
        return TR_FAIL(TR_ERR_INTERNAL, "program '%s' starts after the memory plan", name);
    tr_program_t *p = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *p, "program", &p));
    TR_TRY_GOTO(tr_strdup(name, &p->name), fail);
    TR_TRY_GOTO(tr_vec_push(&g->programs, p), fail);
    p->mode = mode;
    g->open = *out_program = (int)g->programs.count - 1;
    return TR_OK;
fail:
    tr_free(&p->name);
    tr_free(&p);
    return status;
}

tr_status_t tr_program_end(tr_graph_t *g) {
    if (g->open < 0) return TR_FAIL(TR_ERR_INTERNAL, "no program is open");
    if (g->scope.status != TR_OK)
        return TR_FAIL(TR_ERR_MEMORY, "not enough memory for the name of a scope");
    TR_TRY(tr_copies_follow(g, tr_open_program(g)));
    TR_TRY(tr_fuse(g, tr_open_program(g)));
    tr_open_program(g)->ended = true;
    g->open = -1;
    return TR_OK;
}

tr_mode_t tr_graph_mode(const tr_graph_t *g) {
    return g->open < 0 ? TR_PLAIN : tr_open_program(g)->mode;
}
int tr_graph_program_count(const tr_graph_t *g) {
    return (int)g->programs.count;
}
const char *tr_program_name(const tr_graph_t *g, int program) {
    return g->programs.data[program]->name;
}
int tr_program_op_count(const tr_graph_t *g, int program) {
    return (int)g->programs.data[program]->nodes.count;
}
const tr_op_t *tr_program_op(const tr_graph_t *g, int program, int index) {
    return &g->programs.data[program]->nodes.data[index]->op;
}

void tr_recompute_begin(tr_graph_t *g) {
    g->segment = ++g->segments;
}
void tr_recompute_end(tr_graph_t *g) {
    g->segment = 0;
}

/* -- appending --------------------------------------------------------------------------------- */

static tr_status_t program_check_inputs(const tr_graph_t *g, const char *name,
                                        const tr_tensor_t *in, int n_in) {
    if (g->open < 0)
        return TR_FAIL(TR_ERR_INTERNAL, "op '%s' is appended while no program is open", name);
    if (n_in > TR_KERNEL_MAX_IN)
        return TR_FAIL(TR_ERR_INTERNAL, "op '%s' has more than %d inputs", name, TR_KERNEL_MAX_IN);
    for (int i = 0; i < n_in; i++) {
        if (tr_is_none(in[i])) continue;
        if (in[i].id < 0 || (size_t)in[i].id >= g->tensors.count)
            return TR_FAIL(TR_ERR_INTERNAL, "op '%s': input %d is not a tensor of this graph", name,
                           i);
        const tr_tensor_info_t *base = &tr_rec_base(g, in[i])->info;
        if (base->role == TR_ROLE_ACTIVATION && base->program != g->open)
            return TR_FAIL(TR_ERR_INTERNAL, "op '%s': input %d belongs to another program", name,
                           i);
    }
    return TR_OK;
}

void tr_node_destroy(tr_node_t **node) {
    if (!*node) return;
    tr_free(&(*node)->op.attr);
    tr_free(&(*node)->label);
    tr_free(node);
}

/* Without outputs so far. */
static tr_status_t program_make_node(const tr_graph_t *g, const tr_op_row_t *row,
                                     const tr_tensor_t *in, int n_in, const void *attr,
                                     size_t attr_bytes, const bool *want, int n_out,
                                     tr_node_t **out) {
    tr_node_t *node = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(program_check_inputs(g, row->name, in, n_in));
    TR_TRY(g->scope.status);
    TR_TRY(tr_alloc(sizeof *node, "op record", &node));
    TR_TRY_GOTO(tr_strdup(g->label ? g->label : tr_scope(g), &node->label), fail);
    if (attr_bytes > 0) {
        TR_TRY_GOTO(tr_alloc(attr_bytes, "op attributes", &node->op.attr), fail);
        memcpy(node->op.attr, attr, attr_bytes);
    }
    node->op.kind = TR_OP_KERNEL;
    node->op.row = row;
    node->op.label = node->label;
    node->op.attr_bytes = attr_bytes;
    node->op.n_in = n_in;
    node->op.backward = g->in_backward;
    node->op.segment = g->in_backward ? 0 : g->segment;
    memcpy(node->op.in, in, (size_t)n_in * sizeof *in);
    node->op.n_out = n_out;
    for (int i = 0; i < n_out; i++) {
        node->want[i] = !want || want[i];
        node->op.out[i] = TR_NONE;
    }
    *out = node;
    return TR_OK;
fail:
    tr_node_destroy(&node);
    return status;
}

/* Where `given` the outputs are out[], to be checked; else they are made. */
static tr_status_t program_append(tr_graph_t *g, const tr_op_row_t *row, const tr_tensor_t *in,
                                  int n_in, const void *attr, size_t attr_bytes, const bool *want,
                                  const tr_tensor_t *given, int n_out, tr_node_t **out) {
    tr_node_t *node = NULL;
    tr_status_t status = TR_OK;
    if (given) TR_TRY(program_check_inputs(g, row->name, given, n_out));
    TR_TRY(program_make_node(g, row, in, n_in, attr, attr_bytes, want, n_out, &node));
    if (given) memcpy(node->op.out, given, (size_t)n_out * sizeof *given);
    TR_TRY_GOTO(row->shape(g, &node->op), fail);
    TR_TRY_GOTO(tr_vec_push(&tr_open_program(g)->nodes, node), fail);
    *out = node;
    return TR_OK;
fail:
    tr_node_destroy(&node);
    return status;
}

tr_status_t tr_op_append(tr_graph_t *g, const tr_op_row_t *row, const tr_tensor_t *in, int n_in,
                         const void *attr, size_t attr_bytes, const bool *want, tr_tensor_t *out,
                         int n_out) {
    tr_node_t *node = NULL;
    if (!row->compose || tr_device_has(g->device, row->kernel)) {
        TR_TRY(program_append(g, row, in, n_in, attr, attr_bytes, want, NULL, n_out, &node));
        memcpy(out, node->op.out, (size_t)n_out * sizeof *out);
        return TR_OK;
    }
    /* the record is only what `compose` reads; it appends records of its own */
    TR_TRY(program_make_node(g, row, in, n_in, attr, attr_bytes, want, n_out, &node));
    memcpy(out, node->op.out, (size_t)n_out * sizeof *out);
    const tr_status_t status = row->compose(g, &node->op, node->want, out);
    tr_node_destroy(&node);
    return status;
}

tr_status_t tr_op_append_into(tr_graph_t *g, const tr_op_row_t *row, const tr_tensor_t *in,
                              int n_in, const void *attr, size_t attr_bytes, const tr_tensor_t *out,
                              int n_out) {
    tr_node_t *node = NULL;
    return program_append(g, row, in, n_in, attr, attr_bytes, NULL, out, n_out, &node);
}

tr_status_t tr_op_append_given(tr_graph_t *g, const tr_op_row_t *row, const tr_tensor_t *in,
                               int n_in, const void *attr, size_t attr_bytes, const bool *want,
                               tr_tensor_t *out, int n_out) {
    tr_node_t *node = NULL;
    TR_TRY(program_append(g, row, in, n_in, attr, attr_bytes, want, out, n_out, &node));
    memcpy(out, node->op.out, (size_t)n_out * sizeof *out);
    return TR_OK;
}

tr_status_t tr_op_output(tr_graph_t *g, tr_op_t *op, int i, tr_dtype_t dtype,
                         const tr_shape_t *shape) {
    const tr_node_t *node = (const tr_node_t *)op;
    if (i >= op->n_out || !node->want[i]) return TR_OK;
    if (tr_is_none(op->out[i]))
        return tr_tensor_make(g, "", TR_ROLE_ACTIVATION, dtype, shape, &op->out[i]);
    const tr_tensor_info_t *info = tr_tensor_info(g, op->out[i]);
    char is[96], should[96];
    if (info->dtype != dtype || tr_shape_elems(&info->shape) != tr_shape_elems(shape))
        return TR_FAIL(TR_ERR_INTERNAL, "%s: op '%s' writes %s %s into %s %s", op->label,
                       op->row->name, tr_dtype_name(dtype), tr_shape_format(shape, should),
                       tr_dtype_name(info->dtype), tr_shape_format(&info->shape, is));
    return TR_OK;
}

/* -- cost -------------------------------------------------------------------------------------- */

static double program_bytes_of(const tr_graph_t *g, tr_tensor_t t) {
    return tr_is_none(t) ? 0 : (double)tr_tensor_info(g, t)->bytes;
}

double tr_op_flops(const tr_graph_t *g, const tr_op_t *op) {
    if (op->kind != TR_OP_KERNEL) return 0;
    if (op->row->flops) return op->row->flops(g, op);
    return op->n_out > 0 && !tr_is_none(op->out[0])
               ? (double)tr_shape_elems(tr_shape_of(g, op->out[0]))
               : 0;
}

double tr_op_least_flops(const tr_graph_t *g, const tr_op_t *op) {
    return op->kind == TR_OP_KERNEL && op->row->least_flops ? op->row->least_flops(g, op)
                                                            : tr_op_flops(g, op);
}

double tr_op_bytes(const tr_graph_t *g, const tr_op_t *op) {
    if (op->kind != TR_OP_KERNEL) return 0;
    if (op->row->bytes) return op->row->bytes(g, op);
    double sum = 0;
    for (int i = 0; i < op->n_in; i++) sum += program_bytes_of(g, op->in[i]);
    for (int i = 0; i < op->n_out; i++) {
        const bool reads = (i == 0 && (op->row->flags & TR_OP_READS_OUTPUT)) || op->adds >> i & 1;
        sum += program_bytes_of(g, op->out[i]) * (reads ? 2 : 1);
    }
    return sum;
}
