/* Collectives among the records of programs: the reductions of buckets of gradients, and the gathers of
 * what ranks have updated. */
#include "graph_int.h"
#include "trainer/ops.h"

#include <string.h>

/* Whether `t` has elements in [first, end) of `block`, or of the tensors in the block of its role. */
static bool reductions_overlap(const tr_graph_t *g, tr_tensor_t t, tr_tensor_t block, int64_t first,
                               int64_t end) {
    if (tr_is_none(t)) return false;
    const tr_tensor_info_t *info = tr_tensor_info(g, t), *base = &tr_rec_base(g, t)->info;
    const bool is_member = base->role == tr_tensor_info(g, block)->role && base->block_elems >= 0;
    const int64_t at = (base->block_elems > 0 ? base->block_elems : 0) +
                       (info->role == TR_ROLE_VIEW ? info->view_elems : 0);
    return (is_member || tr_base(g, t).id == block.id) && at < end &&
           at + tr_shape_elems(&info->shape) > first;
}

/* Index of the last op of `p` that writes into these elements, or, with `reads`, reads them; -1:
 * none does. */
static int reductions_last_use(const tr_graph_t *g, const tr_program_t *p, tr_tensor_t block,
                               int64_t first, int64_t end, bool reads) {
    for (int i = (int)p->nodes.count - 1; i >= 0; i--) {
        const tr_op_t *op = &p->nodes.data[i]->op;
        for (int o = 0; o < op->n_out; o++)
            if (reductions_overlap(g, op->out[o], block, first, end)) return i;
        for (int k = 0; k < op->n_in && reads; k++)
            if (reductions_overlap(g, op->in[k], block, first, end)) return i;
    }
    return -1;
}

static int reductions_first_write(const tr_graph_t *g, const tr_program_t *p, tr_tensor_t block,
                                  int64_t first, int64_t end) {
    for (int i = 0; i < (int)p->nodes.count; i++)
        for (int o = 0; o < p->nodes.data[i]->op.n_out; o++)
            if (reductions_overlap(g, p->nodes.data[i]->op.out[o], block, first, end)) return i;
    return 0;
}

static void program_move_last(tr_program_t *p, size_t at) {
    tr_node_t **nodes = p->nodes.data, *node = nodes[p->nodes.count - 1];
    memmove(&nodes[at + 1], &nodes[at], (p->nodes.count - 1 - at) * sizeof *nodes);
    nodes[at] = node;
}

static tr_status_t program_insert(tr_program_t *p, size_t at, const char *label,
                                  const tr_op_t *op) {
    tr_node_t *node = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *node, "op record", &node));
    TR_TRY_GOTO(tr_strdup(label, &node->label), fail);
    node->op = *op;
    node->op.label = node->label;
    TR_TRY_GOTO(tr_vec_push(&p->nodes, node), fail);
    program_move_last(p, at);
    return TR_OK;
fail:
    tr_free(&node->label);
    tr_free(&node);
    return status;
}

tr_status_t tr_zero_extra_reductions(tr_graph_t *g) {
    tr_program_t *p = tr_open_program(g);
    return program_insert(p, p->nodes.count, "zero", &(tr_op_t){.kind = TR_OP_ZERO});
}

static tr_status_t reductions_insert_wait(tr_program_t *p, size_t at, int bucket) {
    return program_insert(p, at, "wait",
                          &(tr_op_t){.kind = TR_OP_WAIT, .backward = true, .bucket = bucket});
}

static tr_status_t reductions_insert(tr_program_t *p, size_t at, int bucket, const char *label,
                                     const tr_collective_op_t *what) {
    return program_insert(
        p, at, label,
        &(tr_op_t){
            .kind = TR_OP_COLLECTIVE, .backward = true, .bucket = bucket, .collective = *what});
}

/* -- sharded gradients ------------------------------------------------------------------------- */

/* Records of a program: the first that writes gradients of a bucket, and the one before which it is
 * reduced. */
typedef struct {
    int begin, at;
} bucket_use_t;

static int64_t reductions_bucket_end(const tr_graph_t *g, size_t bucket) {
    return bucket + 1 < g->buckets.count ? g->buckets.data[bucket + 1].first
                                         : g->layout.sharded_elems;
}

/* Of each bucket, and at last of what is not sharded. In the buckets' order on every rank. */
static void reductions_find_uses(const tr_graph_t *g, const tr_program_t *p, bucket_use_t *use) {
    const tr_tensor_t block = g->reduced_block;
    int behind = 0;
    for (size_t k = 0; k <= g->buckets.count; k++) {
        const bool is_rest = k == g->buckets.count;
        const int64_t first = is_rest ? g->layout.sharded_elems : g->buckets.data[k].first,
                      end = is_rest ? g->layout.reduced_elems : reductions_bucket_end(g, k);
        const int last = reductions_last_use(g, p, block, first, end, false);
        if (last + 1 > behind) behind = last + 1;
        use[k] = (bucket_use_t){reductions_first_write(g, p, block, first, end), behind};
    }
}

/* Gives each bucket a window, the same in all programs, which use them in the same order. With overlap,
 * it has it until the next bucket is reduced, so that the reduction has that time. */
static tr_status_t reductions_place_windows(tr_graph_t *g, const bucket_use_t *use, bool overlap) {
    const size_t count = g->buckets.count;
    tr_block_t *blocks = NULL;
    size_t bytes = 0;
    if (count == 0 || !tr_is_none(g->windows)) return TR_OK;
    TR_TRY(tr_alloc(count * sizeof *blocks, "windows of gradients", &blocks));
    for (size_t k = 0; k < count; k++)
        blocks[k] =
            (tr_block_t){.first = use[k].begin,
                         .last = use[overlap ? k + 1 : k].at - 1,
                         .bytes = (size_t)(reductions_bucket_end(g, k) - g->buckets.data[k].first) *
                                  sizeof(float),
                         .storage = (int32_t)k};
    tr_status_t status = tr_plan_place(blocks, count, &bytes);
    for (size_t i = 0; i < count && status == TR_OK; i++)
        g->buckets.data[blocks[i].storage].window = (int64_t)(blocks[i].offset / sizeof(float));
    tr_free(&blocks);
    TR_TRY(status);
    return tr_tensor_make(g, "gradient windows", TR_ROLE_REDUCED, TR_F32,
                          &TR_SHAPE((int64_t)(bytes / sizeof(float))), &g->windows);
}

static bool reductions_share_memory(const tr_graph_t *g, size_t a, size_t b) {
    const tr_bucket_place_t *x = &g->buckets.data[a], *y = &g->buckets.data[b];
    return x->window < y->window + reductions_bucket_end(g, b) - y->first &&
           y->window < x->window + reductions_bucket_end(g, a) - x->first;
}

/* *out: the buckets, from the first on, that must have been reduced before record `i` writes into the
 * window of a bucket that begins there. */
static tr_status_t reductions_before(const tr_graph_t *g, const bucket_use_t *use, int i,
                                     size_t *out) {
    *out = 0;
    for (size_t k = 0; k < g->buckets.count; k++)
        for (size_t j = 0; j < g->buckets.count && use[k].begin == i; j++) {
            if (j == k || use[j].begin > i || !reductions_share_memory(g, j, k)) continue;
            if (use[j].at > i)
                return TR_FAIL(
                    TR_ERR_INTERNAL,
                    "gradients of buckets %zu and %zu, which share a window, are computed "
                    "at the same time",
                    j, k);
            if (j >= *out) *out = j + 1;
        }
    return TR_OK;
}

/* Of one program. */
typedef struct {
    tr_graph_t *g;
    int program;
    const tr_reductions_t *how;
    const bucket_use_t *use;
    size_t at;    /* where the next record is inserted */
    size_t taken; /* buckets of which the rank has taken its parts */
} reductions_t;

/* Inserts a copy or a sum of elements [first, end) of the parameters, from the window of the bucket to
 * the part of this rank. */
static tr_status_t reductions_insert_copy(reductions_t *r, const tr_bucket_place_t *bucket,
                                          const tr_part_t *part, int64_t first, int64_t end) {
    tr_graph_t *g = r->g;
    tr_program_t *p = g->programs.data[r->program];
    const int64_t from_at = bucket->window + first - bucket->first,
                  to_at = part->place + first - part->first;
    tr_tensor_t from, to;
    TR_TRY(tr_slice(g, g->windows, from_at, end - first, &from));
    TR_TRY(tr_slice(g, g->reduced_block, to_at, end - first, &to));
    g->open = r->program;
    g->label = "part";
    const tr_status_t status = r->how->adds ? tr_accumulate(g, from, to) : tr_copy(g, from, to);
    g->label = NULL;
    g->open = -1;
    TR_TRY(status);
    p->nodes.data[p->nodes.count - 1]->op.backward = true;
    program_move_last(p, r->at++);
    return TR_OK;
}

/* Takes this rank's part of a bucket out of its window: the ranges of parameters that lie side by side,
 * without padding, which stays zero. */
static tr_status_t reductions_take_part(reductions_t *r) {
    const tr_graph_t *g = r->g;
    const tr_bucket_place_t *bucket = &g->buckets.data[r->taken];
    tr_part_t part = {.end = bucket->first, .number = (int)r->taken};
    int64_t first = 0, end = 0;
    (void)tr_next_part(g, g->sharding.rank, &part);
    for (size_t i = 0; i <= g->order.count; i++) {
        int64_t begin = -1, last = -1; /* of a parameter in the part; -1: behind all */
        if (i < g->order.count) {
            const tr_tensor_info_t *param = &g->tensors.data[g->order.data[i]]->info;
            const int64_t param_end = param->block_elems + tr_shape_elems(&param->shape);
            begin = param->block_elems > part.first ? param->block_elems : part.first;
            last = param_end < part.first + part.count ? param_end : part.first + part.count;
            if (begin >= last) continue;
        }
        if (begin != end && end > first)
            TR_TRY(reductions_insert_copy(r, bucket, &part, first, end));
        if (begin != end) first = begin;
        end = last;
    }
    return TR_OK;
}

/* Inserts the records at which the rank takes its parts of the buckets up to `end`: when they have been
 * reduced. */
static tr_status_t reductions_take(reductions_t *r, size_t end) {
    if (end <= r->taken) return TR_OK;
    TR_TRY(reductions_insert_wait(r->g->programs.data[r->program], r->at++, (int)end - 1));
    for (; r->taken < end; r->taken++) TR_TRY(reductions_take_part(r));
    return TR_OK;
}

static tr_status_t reductions_insert_sharded(reductions_t *r) {
    tr_graph_t *g = r->g;
    tr_program_t *p = g->programs.data[r->program];
    const size_t count = g->buckets.count;
    const int records = (int)p->nodes.count, rest_at = r->how->overlap ? r->use[count].at : records;
    const int64_t sharded = g->layout.sharded_elems, rest = g->layout.reduced_elems - sharded;
    size_t next = 0, before;
    for (int i = 0; i <= records; i++, r->at++) {
        for (; next < count && r->use[next].at == i; next++) {
            const tr_bucket_place_t *b = &g->buckets.data[next];
            const int64_t elems = reductions_bucket_end(g, next) - b->first;
            const tr_collective_op_t sum = {TR_REDUCE_SCATTER, g->windows, b->window, elems, TR_F32,
                                            TR_GROUP_ALL};
            TR_TRY(reductions_insert(p, r->at++, (int)next, "reduce-scatter", &sum));
            if (!r->how->overlap) TR_TRY(reductions_take(r, next + 1));
        }
        if (i == rest_at && rest > 0 && !r->how->continues) {
            const tr_collective_op_t sum = {
                TR_ALLREDUCE, g->reduced_block, tr_reduced_place(g, sharded),
                rest,         TR_F32,           TR_GROUP_ALL};
            TR_TRY(reductions_insert(p, r->at++, (int)count, "allreduce", &sum));
        }
        TR_TRY(reductions_before(g, r->use, i, &before));
        TR_TRY(reductions_take(r, before));
    }
    TR_TRY(reductions_insert_wait(p, p->nodes.count, -1));
    r->at = p->nodes.count;
    for (; r->taken < count; r->taken++) TR_TRY(reductions_take_part(r));
    return TR_OK;
}

static tr_status_t reductions_add_sharded(tr_graph_t *g, int program, const tr_reductions_t *how) {
    reductions_t r = {.g = g, .program = program, .how = how};
    bucket_use_t *use = NULL;
    TR_TRY(tr_alloc((g->buckets.count + 1) * sizeof *use, "uses of buckets", &use));
    reductions_find_uses(g, g->programs.data[program], use);
    r.use = use;
    tr_status_t status = reductions_place_windows(g, use, how->overlap);
    if (status == TR_OK) status = reductions_insert_sharded(&r);
    tr_free(&use);
    return status;
}

/* -- whole programs ---------------------------------------------------------------------------- */

/* Each bucket is a record of the program, and a message to the other ranks. */
static tr_status_t reductions_check_buckets(const tr_graph_t *g) {
    enum { MOST = 10000, SMALLEST = TR_BLOCK_ALIGN_ELEMS * sizeof(float) };
    const int64_t bytes = g->layout.reduced_elems * (int64_t)sizeof(float),
                  least = bytes / MOST + 1;
    if ((int64_t)g->sharding.bytes >= least || SMALLEST >= least) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "parallel.bucket = %lld divides the %lld bytes of gradients into more than %d "
                   "buckets, each of which is reduced by itself: set at least %lld",
                   (long long)g->sharding.bytes, (long long)bytes, MOST, (long long)least);
}

tr_status_t tr_program_add_reductions(tr_graph_t *g, int program, const tr_reductions_t *how) {
    tr_program_t *p = g->programs.data[program];
    if (!p->ended || g->planned)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "reductions are added to '%s' before its end or after the plan", p->name);
    TR_TRY(tr_layout_fix(g));
    TR_TRY(reductions_check_buckets(g));
    if (tr_gradients_are_sharded(g)) return reductions_add_sharded(g, program, how);
    /* In the buckets' order on every rank: one that adds up several slots finishes ranges in
     * another order than one that has a single slot. */
    size_t behind = 0;
    int64_t end;
    for (int64_t first = 0, bucket = 0; first < g->layout.reduced_elems; bucket++, first = end) {
        const bool scatters = tr_graph_is_sharded(g) && first < g->layout.sharded_elems;
        end =
            scatters || !tr_graph_is_sharded(g) ? tr_bucket_end(g, first) : g->layout.reduced_elems;
        const int last = reductions_last_use(g, p, g->reduced_block, first, end, false);
        size_t at = how->overlap ? (size_t)(last + 1) : p->nodes.count;
        if (at < behind) at = behind;
        const tr_collective_op_t sum = {scatters ? TR_REDUCE_SCATTER : TR_ALLREDUCE,
                                        g->reduced_block,
                                        first,
                                        end - first,
                                        TR_F32,
                                        TR_GROUP_ALL};
        TR_TRY(
            reductions_insert(p, at, (int)bucket, scatters ? "reduce-scatter" : "allreduce", &sum));
        behind = at + 1;
    }
    return reductions_insert_wait(p, p->nodes.count, -1);
}

tr_status_t tr_program_add_gathers(tr_graph_t *g, int program, tr_tensor_t sums) {
    tr_program_t *p = g->programs.data[program];
    if (!tr_graph_is_sharded(g)) return TR_OK;
    const int64_t count = g->layout.sharded_elems / TR_SQUARES_BLOCK;
    if (!tr_is_none(sums) && count > 0) {
        const tr_collective_op_t gather = {TR_ALLGATHER, sums, 0, count, TR_F64, TR_GROUP_ALL};
        const size_t at = (size_t)(reductions_last_use(g, p, sums, 0, count, false) + 1);
        TR_TRY(reductions_insert(p, at, -1, "all-gather", &gather));
        TR_TRY(reductions_insert_wait(p, at + 1, -1));
    }
    /* Copies are moved as they lie, as numbers of four bytes: every engine has those. */
    const bool has_copies = tr_has_copies(g);
    const tr_tensor_t block = has_copies ? g->copy_block : g->param_block;
    const int share = has_copies ? 2 : 1;
    tr_part_t part = {0};
    size_t behind = 0;
    for (int bucket = 0; tr_next_part(g, g->sharding.rank, &part); bucket++) {
        if (part.bucket >= g->layout.sharded_elems) break;
        const tr_collective_op_t gather = {
            TR_ALLGATHER, block,       part.bucket / share, (part.end - part.bucket) / share,
            TR_F32,       TR_GROUP_ALL};
        const int last =
            reductions_last_use(g, p, block, part.first, part.first + part.count, true);
        if (last >= 0 && (size_t)last + 1 > behind) behind = (size_t)last + 1;
        TR_TRY(reductions_insert(p, behind++, bucket, "all-gather", &gather));
    }
    return reductions_insert_wait(p, p->nodes.count, -1);
}
