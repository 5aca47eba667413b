/* The fusion pass: the patterns in turn, over all records of a program. */
#include "graph/graph_int.h"

#include <string.h>

static const struct {
    const char *name;
    tr_status_t (*merge)(tr_fuse_t *f, int i, bool *out_done);
} patterns[TR_FUSIONS] = {
    {"batchnorm_train + add", tr_fuse_batchnorm_add},
    {"act_bwd + batchnorm_bwd", tr_fuse_batchnorm_add_bwd},
    {"matmul + act_fwd", tr_fuse_matmul_act},
    {"matmul + act_bwd", tr_fuse_matmul_act_bwd},
    {"gradient + column_sum", tr_fuse_bias_sum},
    {"gradient + accumulate", tr_fuse_accumulate},
    {"conv_bwd_data + add", tr_fuse_add},
    {"optimizer + cast", tr_fuse_copies},
    {"cast_normalize + augment", tr_fuse_normalize_augment},
    {"input + cast", tr_fuse_input_cast},
};

/* -- how tensors are used ---------------------------------------------------------------------- */

static void fuse_count_use(tr_fuse_t *f, tr_tensor_t t, int i, bool writes) {
    if (tr_is_none(t)) return;
    tr_fuse_use_t *use = &f->use[tr_base(f->g, t).id];
    if (writes) {
        use->writes++;
        use->writer = i;
        return;
    }
    use->reads++;
    if (use->reader < 0) use->reader = i;
}

static void fuse_count_uses(tr_fuse_t *f) {
    for (int32_t id = 0; id < f->count; id++)
        f->use[id] = (tr_fuse_use_t){.writer = -1, .reader = -1};
    for (int i = 0; i < f->first_free; i++) {
        const tr_op_t *op = tr_fuse_op(f, i);
        if (!op->row) continue;
        for (int k = 0; k < op->n_in; k++) fuse_count_use(f, op->in[k], i, false);
        for (int k = 0; k < op->n_out; k++) fuse_count_use(f, op->out[k], i, true);
    }
}

tr_op_t *tr_fuse_op(const tr_fuse_t *f, int i) {
    return &tr_open_program(f->g)->nodes.data[i]->op;
}

bool tr_fuse_is(const tr_fuse_t *f, int i, tr_kernel_id_t kernel) {
    return i >= 0 && tr_fuse_op(f, i)->row && tr_fuse_op(f, i)->row->kernel == kernel;
}

const tr_fuse_use_t *tr_fuse_use(const tr_fuse_t *f, tr_tensor_t t) {
    const tr_tensor_t base = tr_base(f->g, t);
    return tr_tensor_info(f->g, base)->role == TR_ROLE_ACTIVATION ? &f->use[base.id] : NULL;
}

bool tr_fuse_is_read_once(const tr_fuse_t *f, tr_tensor_t t) {
    const tr_tensor_info_t *base = &tr_rec_base(f->g, t)->info;
    const tr_fuse_use_t *use = tr_fuse_use(f, t);
    return use && use->reads == 1 && use->writes > 0 && !base->kept &&
           tr_tensor_info(f->g, t)->bytes == base->bytes;
}

bool tr_fuse_is_private(const tr_fuse_t *f, tr_tensor_t t) {
    return tr_fuse_is_read_once(f, t) && tr_fuse_use(f, t)->writes == 1;
}

int tr_fuse_output(const tr_fuse_t *f, const tr_op_t *op, tr_tensor_t t) {
    for (int k = 0; k < op->n_out; k++)
        if (!tr_is_none(op->out[k]) && tr_base(f->g, op->out[k]).id == tr_base(f->g, t).id)
            return k;
    return -1;
}

/* -- changes ----------------------------------------------------------------------------------- */

void tr_fuse_remove(tr_fuse_t *f, int i) {
    tr_fuse_op(f, i)->row = NULL;
}

tr_status_t tr_fuse_replace(tr_fuse_t *f, int i, int merged, const tr_op_row_t *row,
                            const tr_tensor_t *in, int n_in, const void *attr, size_t attr_bytes,
                            const tr_tensor_t *out, int n_out) {
    tr_program_t *p = tr_open_program(f->g);
    tr_node_t *old = p->nodes.data[i];
    tr_tensor_t given[TR_KERNEL_MAX_OUT];
    bool want[TR_KERNEL_MAX_OUT];
    for (int k = 0; k < n_out; k++) {
        given[k] = out[k];
        want[k] = !tr_is_none(out[k]);
    }
    f->g->label = old->label;
    const tr_status_t status =
        tr_op_append_given(f->g, row, in, n_in, attr, attr_bytes, want, given, n_out);
    f->g->label = NULL;
    TR_TRY(status);
    tr_node_t *made = p->nodes.data[--p->nodes.count];
    made->op.backward = old->op.backward;
    made->op.segment = old->op.segment;
    made->op.recomputed = old->op.recomputed;
    p->nodes.data[i] = made;
    tr_node_destroy(&old);
    tr_fuse_remove(f, merged);
    return TR_OK;
}

/* -- the pass ---------------------------------------------------------------------------------- */

static void fuse_drop_merged(tr_program_t *p) {
    size_t kept = 0;
    for (size_t i = 0; i < p->nodes.count; i++) {
        tr_node_t *node = p->nodes.data[i];
        if (node->op.row || node->op.kind != TR_OP_KERNEL)
            p->nodes.data[kept++] = node;
        else
            tr_node_destroy(&node);
    }
    p->nodes.count = kept;
}

tr_status_t tr_fuse(tr_graph_t *g, tr_program_t *p) {
    tr_fuse_t f = {.g = g, .count = (int32_t)g->tensors.count, .first_free = (int)p->nodes.count};
    tr_status_t status = TR_OK;
    if (g->fuses_nothing) return TR_OK;
    TR_TRY(tr_alloc((size_t)f.count * sizeof *f.use, "the fusion pass", &f.use));
    for (int pattern = 0; pattern < TR_FUSIONS && status == TR_OK; pattern++) {
        fuse_count_uses(&f);
        for (int i = 0; i < f.first_free && status == TR_OK; i++) {
            bool done = false;
            if (tr_fuse_op(&f, i)->row) status = patterns[pattern].merge(&f, i, &done);
            p->fused[pattern] += done;
        }
    }
    fuse_drop_merged(p);
    tr_free(&f.use);
    return status;
}

void tr_graph_fuse_nothing(tr_graph_t *g) {
    g->fuses_nothing = true;
}

const char *tr_program_fused(const tr_graph_t *g, int program, int index, int *out_count) {
    if (index >= TR_FUSIONS) return NULL;
    *out_count = g->programs.data[program]->fused[index];
    return patterns[index].name;
}
