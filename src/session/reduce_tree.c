/* The fixed binary tree of slots that makes sums the same on any number of ranks. */
#include "reduce_tree.h"
#include "data/sampler.h"
#include "base/mem.h"
#include "base/trace.h"
#include "trainer/ops.h"

#include <stdio.h>

/* A node that waits for its sibling, stored in buffer `buffer`. */
typedef struct {
    int level;
    int64_t index;
    int buffer;
} node_t;

typedef struct {
    tr_tensor_t tensor;
    int store, load, add; /* programs: block -> buffer, buffer -> block, block += buffer */
    bool taken;
} buffer_t;

struct tr_reduce_tree {
    tr_graph_t *g;
    int64_t slots, first, count; /* this rank's slots are [first, first + count) */
    int rank, size;
    tr_tensor_t block;
    TR_VEC(buffer_t) buffers;
    TR_VEC(node_t) pending;
};

static int64_t first_slot(int level, int64_t index) {
    return index << level;
}
static bool is_root(const tr_reduce_tree_t *t, int level) {
    return ((int64_t)1 << level) >= t->slots;
}
static bool has_right_sibling(const tr_reduce_tree_t *t, int level, int64_t index) {
    return first_slot(level, index + 1) < t->slots;
}

static int owner(const tr_reduce_tree_t *t, int64_t slot) {
    for (int r = 0; r < t->size; r++) {
        int64_t first, count;
        tr_sampler_slots_of_rank(t->slots, r, t->size, &first, &count);
        if (slot >= first && slot < first + count) return r;
    }
    return 0;
}

/* -- buffers ----------------------------------------------------------------------------------- */

static tr_status_t small_program(tr_graph_t *g, const char *name, tr_tensor_t from, tr_tensor_t to,
                                 bool add, int *out) {
    TR_TRY(tr_program_begin(g, name, TR_PLAIN, out));
    TR_TRY(add ? tr_accumulate(g, from, to) : tr_copy(g, from, to));
    return tr_program_end(g);
}

static tr_status_t make_buffer(tr_reduce_tree_t *t) {
    buffer_t b = {0};
    char name[32];
    snprintf(name, sizeof name, "tree.buffer%zu", t->buffers.count);
    TR_TRY(tr_const(t->g, name, &TR_SHAPE(tr_graph_layout(t->g).reduced_elems), 0, &b.tensor));
    TR_TRY(small_program(t->g, "tree.store", t->block, b.tensor, false, &b.store));
    TR_TRY(small_program(t->g, "tree.load", b.tensor, t->block, false, &b.load));
    TR_TRY(small_program(t->g, "tree.add", b.tensor, t->block, true, &b.add));
    return tr_vec_push(&t->buffers, b);
}

/* The maximum number of waiting nodes, found by a dry run over this rank's slots. */
static int count_buffers(const tr_reduce_tree_t *t) {
    int most = 0, waiting = 0;
    int64_t carry_level[64], carry_index[64];
    for (int64_t s = t->first; s < t->first + t->count; s++) {
        int level = 0;
        int64_t index = s;
        while (!is_root(t, level)) {
            if (index % 2 == 0 && !has_right_sibling(t, level, index)) {
                /* passes up alone */
            } else if (waiting > 0 && index % 2 == 1 && carry_level[waiting - 1] == level &&
                       carry_index[waiting - 1] == index - 1) {
                waiting--;
            } else {
                break;
            }
            level++;
            index /= 2;
        }
        carry_level[waiting] = level;
        carry_index[waiting++] = index;
        if (waiting > most) most = waiting;
    }
    return most;
}

tr_status_t tr_reduce_tree_create(tr_graph_t *g, int64_t slots, int rank, int size,
                                  tr_reduce_tree_t **out) {
    tr_reduce_tree_t *t = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *t, "reduction tree", &t));
    t->g = g;
    t->slots = slots;
    t->rank = rank;
    t->size = size;
    tr_sampler_slots_of_rank(slots, rank, size, &t->first, &t->count);
    TR_TRY_GOTO(tr_reduced_range(g, 0, 0, &t->block), fail); /* fixes the layout */
    TR_TRY_GOTO(tr_reduced_range(g, 0, tr_graph_layout(g).reduced_elems, &t->block), fail);
    for (int i = count_buffers(t); i > 0; i--) TR_TRY_GOTO(make_buffer(t), fail);
    *out = t;
    return TR_OK;
fail:
    tr_reduce_tree_destroy(&t);
    return status;
}

void tr_reduce_tree_destroy(tr_reduce_tree_t **tree) {
    if (!*tree) return;
    tr_vec_free(&(*tree)->buffers);
    tr_vec_free(&(*tree)->pending);
    tr_free(tree);
}

/* -- nodes ------------------------------------------------------------------------------------- */

static tr_status_t reduce_tree_run(tr_reduce_tree_t *t, int program) {
    return tr_program_run(t->g, program, NULL);
}

static tr_status_t store(tr_reduce_tree_t *t, int level, int64_t index) {
    for (size_t i = 0; i < t->buffers.count; i++) {
        if (t->buffers.data[i].taken) continue;
        const node_t node = {level, index, (int)i};
        t->buffers.data[i].taken = true;
        TR_TRY(reduce_tree_run(t, t->buffers.data[i].store));
        return tr_vec_push(&t->pending, node);
    }
    return TR_FAIL(TR_ERR_INTERNAL, "the reduction tree has too few buffers (%zu)",
                   t->buffers.count);
}

static node_t *reduce_tree_find(tr_reduce_tree_t *t, int level, int64_t index) {
    for (size_t i = 0; i < t->pending.count; i++)
        if (t->pending.data[i].level == level && t->pending.data[i].index == index)
            return &t->pending.data[i];
    return NULL;
}

/* Removes a waiting node: adds its buffer to the block, or copies it to the block. */
static tr_status_t reduce_tree_take(tr_reduce_tree_t *t, node_t *node, bool add) {
    buffer_t *b = &t->buffers.data[node->buffer];
    b->taken = false;
    *node = t->pending.data[--t->pending.count];
    return reduce_tree_run(t, add ? b->add : b->load);
}

tr_status_t tr_reduce_tree_add(tr_reduce_tree_t *t, int64_t slot) {
    int level = 0;
    int64_t index = slot;
    if (slot == t->first) {
        t->pending.count = 0;
        for (size_t i = 0; i < t->buffers.count; i++) t->buffers.data[i].taken = false;
    }
    for (; !is_root(t, level); level++, index /= 2) {
        if (index % 2 == 0 && !has_right_sibling(t, level, index)) continue;
        node_t *left = index % 2 == 1 ? reduce_tree_find(t, level, index - 1) : NULL;
        if (!left) break;
        TR_TRY(reduce_tree_take(t, left, true));
    }
    return store(t, level, index);
}

/* -- between ranks: every rank goes through the same nodes in the same order ------------------- */

static tr_status_t send_node(tr_reduce_tree_t *t, tr_collectives_t *c, int level, int64_t index,
                             int to) {
    node_t *node = reduce_tree_find(t, level, index);
    if (!node)
        return TR_FAIL(TR_ERR_INTERNAL, "reduction tree: node (%d, %lld) is missing", level,
                       (long long)index);
    TR_TRY(reduce_tree_take(t, node, false));
    const double traced = tr_trace_begin();
    TR_TRY(c->ops->send(c, tr_tensor_info(t->g, t->block)->data,
                        tr_graph_layout(t->g).reduced_elems, TR_F32, to, tr_graph_stream(t->g)));
    tr_trace_end(traced, &(tr_span_t){.kind = TR_SPAN_PROGRESS});
    return TR_OK;
}

static tr_status_t receive_and_add(tr_reduce_tree_t *t, tr_collectives_t *c, int level,
                                   int64_t index, int from) {
    node_t *left = reduce_tree_find(t, level, index - 1);
    if (!left)
        return TR_FAIL(TR_ERR_INTERNAL, "reduction tree: node (%d, %lld) is missing", level,
                       (long long)index - 1);
    const double traced = tr_trace_begin();
    TR_TRY(c->ops->receive(c, tr_tensor_info(t->g, t->block)->data,
                           tr_graph_layout(t->g).reduced_elems, TR_F32, from,
                           tr_graph_stream(t->g)));
    tr_trace_end(traced, &(tr_span_t){.kind = TR_SPAN_PROGRESS});
    TR_TRY(reduce_tree_take(t, left, true));
    return store(t, level + 1, index / 2);
}

static tr_status_t reduce_tree_join(tr_reduce_tree_t *t, tr_collectives_t *c, int level,
                                    int64_t index) {
    const int left = owner(t, first_slot(level, index - 1)),
              right = owner(t, first_slot(level, index));
    if (left != right) {
        if (t->rank == right) return send_node(t, c, level, index, left);
        if (t->rank == left) return receive_and_add(t, c, level, index, right);
        return TR_OK;
    }
    node_t *node = t->rank == left ? reduce_tree_find(t, level, index) : NULL;
    if (!node) return TR_OK; /* another rank's, or joined already */
    TR_TRY(reduce_tree_take(t, node, false));
    TR_TRY(reduce_tree_take(t, reduce_tree_find(t, level, index - 1), true));
    return store(t, level + 1, index / 2);
}

/* A node without a right sibling is passed up unchanged. */
static void promote(tr_reduce_tree_t *t, int level) {
    for (size_t i = 0; i < t->pending.count; i++) {
        node_t *node = &t->pending.data[i];
        if (node->level != level || node->index % 2 == 1 ||
            has_right_sibling(t, level, node->index))
            continue;
        node->level++;
        node->index /= 2;
    }
}

tr_status_t tr_reduce_tree_finish(tr_reduce_tree_t *t, tr_collectives_t *c) {
    for (int level = 0; !is_root(t, level); level++) {
        for (int64_t index = 1; first_slot(level, index) < t->slots; index += 2)
            TR_TRY(reduce_tree_join(t, c, level, index));
        promote(t, level);
    }
    if (t->rank == 0) TR_TRY(reduce_tree_take(t, &t->pending.data[0], false));
    if (t->size == 1) return TR_OK;
    const double traced = tr_trace_begin();
    TR_TRY(c->ops->broadcast(c, tr_tensor_info(t->g, t->block)->data,
                             tr_graph_layout(t->g).reduced_elems, TR_F32, 0,
                             tr_graph_stream(t->g)));
    tr_trace_end(traced, &(tr_span_t){.kind = TR_SPAN_PROGRESS});
    return TR_OK;
}
