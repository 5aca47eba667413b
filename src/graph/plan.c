/* The memory planner: lifetimes, in-place outputs, and one arena that all programs share. */
#include "graph_int.h"
#include "device/plan_cache.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- lifetimes --------------------------------------------------------------------------------- */

static void plan_use(const tr_graph_t *g, tr_tensor_t t, int op) {
    if (tr_is_none(t)) return;
    tr_tensor_info_t *info = &tr_rec_base(g, t)->info;
    if (info->role != TR_ROLE_ACTIVATION) return;
    if (info->first_op < 0) info->first_op = op;
    info->last_op = op;
}

static void plan_find_lifetimes(const tr_graph_t *g, int program) {
    const tr_program_t *p = g->programs.data[program];
    const int count = (int)p->nodes.count;
    for (int i = 0; i < count; i++) {
        const tr_op_t *op = &p->nodes.data[i]->op;
        for (int k = 0; k < op->n_in; k++) plan_use(g, op->in[k], i);
        for (int k = 0; k < op->n_out; k++) plan_use(g, op->out[k], i);
    }
    for (size_t i = 1; i < g->tensors.count; i++) {
        tr_tensor_info_t *info = &g->tensors.data[i]->info;
        if (info->role == TR_ROLE_ACTIVATION && info->program == program && info->kept)
            info->last_op = count - 1;
    }
}

static tr_tensor_rec_t *plan_storage_of(const tr_graph_t *g, int32_t id) {
    while (g->tensors.data[id]->storage != id) id = g->tensors.data[id]->storage;
    return g->tensors.data[id];
}

/* Output o of op i takes the memory of input k, if that input ends here. */
static void plan_try_inplace(const tr_graph_t *g, const tr_op_t *op, int i, int o, int k) {
    if (tr_is_none(op->in[k]) || tr_is_none(op->out[o])) return;
    tr_tensor_rec_t *out = tr_rec(g, op->out[o]);
    const tr_tensor_rec_t *in_base = tr_rec_base(g, op->in[k]);
    if (out->info.role != TR_ROLE_ACTIVATION || out->info.first_op != i) return;
    if (out->storage != out->id) return; /* it took that of an earlier input */
    if (in_base->info.role != TR_ROLE_ACTIVATION ||
        tr_rec(g, op->in[k])->info.bytes != in_base->info.bytes)
        return;
    tr_tensor_rec_t *in = plan_storage_of(g, in_base->storage);
    if (in->info.kept || in->survives) return;
    if (in->info.last_op != i || in->info.bytes != out->info.bytes) return;
    int reads = 0; /* of this memory by this op */
    for (int j = 0; j < op->n_in; j++) {
        if (tr_is_none(op->in[j])) continue;
        const tr_tensor_rec_t *base = tr_rec_base(g, op->in[j]);
        if (base->info.role == TR_ROLE_ACTIVATION) reads += plan_storage_of(g, base->storage) == in;
    }
    if (reads != 1) return;
    out->storage = in->storage;
    in->survives |= out->info.kept;
    if (out->info.last_op > in->info.last_op) in->info.last_op = out->info.last_op;
}

/* -- offsets: the largest first, each at the lowest place where nothing alive at the same time lies
 */

typedef TR_VEC(tr_block_t) blocks_t;

/* Bytes that are taken, and the ops during which. */
typedef struct {
    size_t begin, end;
    int first, last;
} span_t;

static tr_status_t plan_collect(const tr_graph_t *g, int program, blocks_t *blocks) {
    for (size_t i = 1; i < g->tensors.count; i++) {
        const tr_tensor_rec_t *rec = g->tensors.data[i];
        const tr_tensor_info_t *info = &rec->info;
        if (info->role != TR_ROLE_ACTIVATION || info->program != program || info->first_op < 0)
            continue;
        if (rec->storage != (int32_t)i) continue;
        const tr_block_t block = {info->first_op, info->last_op, tr_arena_align(info->bytes), 0,
                                  (int32_t)i,     NULL};
        TR_TRY(tr_vec_push(blocks, block));
    }
    const tr_program_t *p = g->programs.data[program];
    for (int i = 0; i < (int)p->nodes.count; i++) {
        tr_node_t *node = p->nodes.data[i];
        const tr_block_t block = {i, i, tr_arena_align(node->scratch_bytes), 0, 0, node};
        if (node->scratch_bytes > 0) TR_TRY(tr_vec_push(blocks, block));
    }
    return TR_OK;
}

static int plan_larger_first(const void *a, const void *b) {
    const tr_block_t *x = a, *y = b;
    if (x->bytes != y->bytes) return x->bytes < y->bytes ? 1 : -1;
    return x->first != y->first ? x->first - y->first : x->storage - y->storage;
}

/* placed: [count] by begin, with room for one more. */
static void plan_place_blocks(tr_block_t *block, span_t *placed, size_t count) {
    size_t begin = 0, at = 0;
    for (; at < count && placed[at].begin < begin + block->bytes; at++)
        if (placed[at].first <= block->last && placed[at].last >= block->first &&
            placed[at].end > begin)
            begin = placed[at].end;
    block->offset = begin;
    while (at > 0 && placed[at - 1].begin > begin) at--;
    memmove(&placed[at + 1], &placed[at], (count - at) * sizeof *placed);
    placed[at] = (span_t){begin, begin + block->bytes, block->first, block->last};
}

tr_status_t tr_plan_place(tr_block_t *blocks, size_t count, size_t *out_bytes) {
    span_t *placed = NULL;
    *out_bytes = 0;
    TR_TRY(tr_alloc(count * sizeof *placed, "planner", &placed));
    if (count > 0) qsort(blocks, count, sizeof *blocks, plan_larger_first);
    for (size_t i = 0; i < count; i++) {
        plan_place_blocks(&blocks[i], placed, i);
        const size_t end = blocks[i].offset + blocks[i].bytes;
        if (end > *out_bytes) *out_bytes = end;
    }
    tr_free(&placed);
    return TR_OK;
}

static tr_status_t plan_arena(tr_graph_t *g, int program) {
    tr_program_t *p = g->programs.data[program];
    blocks_t blocks = {0};
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(plan_collect(g, program, &blocks), done);
    TR_TRY_GOTO(tr_plan_place(blocks.data, blocks.count, &p->arena_bytes), done);
    for (size_t i = 0; i < blocks.count; i++) {
        tr_block_t *block = &blocks.data[i];
        p->arena_sum += block->bytes;
        if (block->node)
            block->node->scratch_offset = block->offset;
        else
            g->tensors.data[block->storage]->info.offset_bytes = block->offset;
    }
    for (size_t i = 1; i < g->tensors.count; i++) {
        tr_tensor_info_t *info = &g->tensors.data[i]->info;
        if (info->role == TR_ROLE_ACTIVATION && info->program == program)
            info->offset_bytes = plan_storage_of(g, (int32_t)i)->info.offset_bytes;
    }
done:
    tr_vec_free(&blocks);
    return status;
}

static tr_status_t plan_note_deaths(const tr_graph_t *g, int program) {
    const tr_program_t *p = g->programs.data[program];
    for (size_t i = 1; i < g->tensors.count; i++) {
        const tr_tensor_rec_t *rec = g->tensors.data[i];
        const tr_tensor_info_t *info = &rec->info;
        if (info->role == TR_ROLE_ACTIVATION && info->program == program && info->last_op >= 0 &&
            !info->kept && !rec->survives && rec->storage == (int32_t)i)
            TR_TRY(tr_vec_push(&p->nodes.data[info->last_op]->dying, (int32_t)i));
    }
    return TR_OK;
}

/* -- kernels ----------------------------------------------------------------------------------- */

static void plan_view_of(const tr_graph_t *g, tr_tensor_t t, tr_view_t *out) {
    *out = (tr_view_t){.shape.ndim = -1};
    if (tr_is_none(t)) return;
    const tr_tensor_info_t *info = tr_tensor_info(g, t);
    *out = (tr_view_t){NULL, info->dtype, info->shape};
}

static tr_status_t node_prepare(tr_graph_t *g, tr_node_t *node) {
    const tr_op_t *op = &node->op;
    if (op->kind != TR_OP_KERNEL) return TR_OK;
    node->kernel = &g->device->ops->kernels[op->row->kernel];
    if (!node->kernel->run)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: device '%s' cannot compute '%s' yet; choose another device", op->label,
                       g->device->ops->name, op->row->name);
    tr_kernel_call_t *call = &node->call;
    call->n_in = op->n_in;
    call->n_out = op->n_out;
    call->attr = op->attr;
    call->attr_bytes = op->attr_bytes;
    call->adds = op->adds;
    for (int k = 0; k < op->n_in; k++) plan_view_of(g, op->in[k], &call->in[k]);
    for (int k = 0; k < op->n_out; k++) plan_view_of(g, op->out[k], &call->out[k]);
    if (!node->kernel->prepare) return TR_OK;
    return tr_plan_workspace(g->device, op->row->kernel, call, op->attr_bytes,
                             &node->scratch_bytes);
}

tr_status_t tr_op_describe(const tr_graph_t *g, const tr_op_t *op, char *text, size_t text_bytes,
                           size_t *out_scratch_bytes) {
    const tr_node_t *node = (const tr_node_t *)op;
    tr_plan_t plan;
    *text = '\0';
    *out_scratch_bytes = node->scratch_bytes;
    if (op->kind != TR_OP_KERNEL || !node->kernel->describe) return TR_OK;
    TR_TRY(tr_plan_get(g->device, op->row->kernel, &node->call, op->attr_bytes, &plan));
    if (plan.state) node->kernel->describe(plan.state, text, text_bytes);
    return TR_OK;
}

static tr_status_t plan_program(tr_graph_t *g, int program) {
    tr_program_t *p = g->programs.data[program];
    if (!p->ended) return TR_FAIL(TR_ERR_INTERNAL, "program '%s' is not complete", p->name);
    for (size_t i = 0; i < p->nodes.count; i++) TR_TRY(node_prepare(g, p->nodes.data[i]));
    plan_find_lifetimes(g, program);
    for (int i = 0; i < (int)p->nodes.count; i++) {
        const tr_op_t *op = &p->nodes.data[i]->op;
        if (op->kind != TR_OP_KERNEL) continue;
        const uint64_t in_place = tr_kernel_facts(op->row->kernel)->in_place;
        for (int o = 0; o < op->n_out; o++)
            for (int k = 0; k < op->n_in; k++)
                if (in_place >> (8 * o + k) & 1) plan_try_inplace(g, op, i, o, k);
    }
    TR_TRY(plan_arena(g, program));
    return plan_note_deaths(g, program);
}

/* -- the whole --------------------------------------------------------------------------------- */

/* Sharded gradients lie in the windows, which follow the block; other sums behind the rank's parts. */
static void plan_place_reduced(const tr_graph_t *g, tr_tensor_info_t *info, size_t windows) {
    const int64_t at = info->block_elems;
    if (!tr_gradients_are_sharded(g) || info == tr_tensor_info(g, g->reduced_block)) return;
    info->offset_bytes = (size_t)tr_reduced_place(g, at) * sizeof(float);
    for (size_t i = g->buckets.count; i-- > 0 && at < g->layout.sharded_elems;) {
        const tr_bucket_place_t *bucket = &g->buckets.data[i];
        if (bucket->first > at) continue;
        info->offset_bytes =
            windows + (size_t)(bucket->window + at - bucket->first) * sizeof(float);
        return;
    }
}

/* A sharded parameter has no memory of its own: ops read its copy. */
static tr_status_t plan_check_reads(const tr_graph_t *g, const tr_program_t *p) {
    for (size_t i = 0; i < p->nodes.count && tr_masters_are_sharded(g); i++) {
        const tr_op_t *op = &p->nodes.data[i]->op;
        for (int k = 0; k < op->n_in; k++) {
            const tr_tensor_info_t *base = &tr_rec_base(g, op->in[k])->info;
            if (base->role != TR_ROLE_PARAM || base == tr_tensor_info(g, g->param_block) ||
                base->block_elems < 0 || base->block_elems >= g->layout.sharded_elems)
                continue;
            return TR_FAIL(TR_ERR_CONFIG,
                           "%s: %s reads the weight '%s' in fp32, but with parallel.zero in "
                           "half precision a rank has only its part of it: set parallel.zero = "
                           "none, or precision = fp32",
                           op->label, op->row->name, base->name);
        }
    }
    return TR_OK;
}

/* Persistent tensors one behind the other in their role's region; block members by their place in
 * the block. */
static void plan_regions(tr_graph_t *g) {
    size_t end[TR_ROLE_COUNT] = {0}, *whole = g->whole_bytes;
    memset(whole, 0, sizeof g->whole_bytes);
    const size_t reduced = tr_rec(g, g->reduced_block)->info.bytes,
                 windows = tr_arena_align(reduced);
    end[TR_ROLE_PARAM] = tr_rec(g, g->param_block)->info.bytes;
    end[TR_ROLE_REDUCED] = tr_is_none(g->windows) ? reduced : windows;
    whole[TR_ROLE_PARAM] = (size_t)g->layout.param_elems * sizeof(float);
    if (!tr_is_none(g->state_block))
        end[TR_ROLE_MODEL_STATE] = whole[TR_ROLE_MODEL_STATE] =
            tr_arena_align(tr_rec(g, g->state_block)->info.bytes);
    for (size_t i = 1; i < g->tensors.count; i++) {
        tr_tensor_info_t *info = &g->tensors.data[i]->info;
        size_t *place = &g->tensors.data[i]->whole_offset_bytes;
        if (info->role == TR_ROLE_ACTIVATION || info->role == TR_ROLE_VIEW) continue;
        if (info->role == TR_ROLE_COPY) {
            info->offset_bytes =
                (size_t)tr_rec(g, info->base)->info.block_elems * tr_dtype_bytes(info->dtype);
            continue;
        }
        if (info->block_elems >= 0) {
            *place = info->offset_bytes = (size_t)info->block_elems * sizeof(float);
            /* where the masters are sharded, those that are not lie behind the rank's parts */
            if (info->role == TR_ROLE_PARAM && tr_masters_are_sharded(g) &&
                info != tr_tensor_info(g, g->param_block))
                info->offset_bytes =
                    info->block_elems < g->layout.sharded_elems
                        ? TR_NO_PLACE
                        : (size_t)tr_sharded_elems(g, info->block_elems) * sizeof(float);
            if (info->role == TR_ROLE_REDUCED) plan_place_reduced(g, info, windows);
            continue;
        }
        info->offset_bytes = end[info->role];
        end[info->role] += tr_arena_align(info->bytes);
        *place = whole[info->role];
        whole[info->role] += tr_arena_align(
            info->mirrors_params ? (size_t)g->layout.trainable_elems * sizeof(float) : info->bytes);
    }
    tr_memory_plan_t *m = &g->memory;
    m->params = end[TR_ROLE_PARAM];
    m->copies = tr_is_none(g->copy_block) ? 0 : tr_rec(g, g->copy_block)->info.bytes;
    m->reduced = end[TR_ROLE_REDUCED];
    m->model_state = end[TR_ROLE_MODEL_STATE];
    m->optim_state = end[TR_ROLE_OPTIM_STATE];
    m->consts = end[TR_ROLE_CONST];
    m->caches = end[TR_ROLE_CACHE];
    g->input_set_bytes = end[TR_ROLE_INPUT];
    m->inputs = end[TR_ROLE_INPUT] * (size_t)g->input_sets;
    for (size_t i = 0; i < g->programs.count; i++) {
        const tr_program_t *p = g->programs.data[i];
        if (p->arena_bytes > m->arena) m->arena = p->arena_bytes;
        if (p->arena_sum > m->arena_sum) m->arena_sum = p->arena_sum;
    }
    m->total = m->params + m->copies + m->reduced + m->model_state + m->optim_state + m->consts +
               m->caches + m->inputs + m->arena;
}

/* What the run would need with convolutions by direct sums; 0 where that cannot be said. The graph
 * is not to be run after it. */
static size_t plan_total_of_direct_sums(tr_graph_t *g) {
    const tr_memory_plan_t planned = g->memory;
    tr_status_t status = TR_OK;
    if (!g->device->winograd) return planned.total;
    g->device->winograd = false;
    tr_exec_release(g);
    g->memory = (tr_memory_plan_t){0};
    for (int i = 0; i < (int)g->programs.count && status == TR_OK; i++) {
        tr_program_t *p = g->programs.data[i];
        p->arena_bytes = p->arena_sum = 0;
        for (size_t k = 0; k < p->nodes.count && status == TR_OK; k++)
            status = node_prepare(g, p->nodes.data[k]);
        if (status == TR_OK) status = plan_arena(g, i);
    }
    plan_regions(g);
    const size_t total = status == TR_OK ? g->memory.total : 0;
    g->memory = planned;
    g->device->winograd = true;
    return total;
}

static tr_status_t plan_too_large(tr_graph_t *g, size_t limit) {
    const size_t direct = plan_total_of_direct_sums(g);
    const tr_memory_plan_t *m = &g->memory;
    char text[8][32], remedy[96] = "";
    if (direct > 0 && direct <= limit)
        snprintf(remedy, sizeof remedy,
                 "With winograd = no it needs %s, but is slower. Otherwise use",
                 tr_format_bytes((double)direct, text[7]));
    return TR_FAIL(
        TR_ERR_MEMORY,
        "the run needs %s on device '%s', which has %s:\n"
        "  parameters           %s\n  gradients            %s\n  optimizer state      %s\n"
        "  activations, scratch %s\n  inputs, caches       %s\n"
        "%s a smaller data.micro_batch (activations shrink with it), a smaller model, or more "
        "memory.",
        tr_format_bytes((double)m->total, text[0]), g->device->ops->name,
        tr_format_bytes((double)limit, text[1]),
        tr_format_bytes((double)(m->params + m->copies), text[2]),
        tr_format_bytes((double)m->reduced, text[3]),
        tr_format_bytes((double)(m->optim_state + m->model_state), text[4]),
        tr_format_bytes((double)m->arena, text[5]),
        tr_format_bytes((double)(m->inputs + m->consts + m->caches), text[6]),
        remedy[0] ? remedy : "Use");
}

tr_status_t tr_graph_plan(tr_graph_t *g, size_t limit_bytes) {
    if (g->planned) return TR_FAIL(TR_ERR_INTERNAL, "the graph is planned twice");
    TR_TRY(tr_layout_fix(g));
    TR_TRY(tr_copies_plan(g));
    for (int i = 0; i < (int)g->programs.count; i++) {
        TR_TRY(plan_check_reads(g, g->programs.data[i]));
        TR_TRY(plan_program(g, i));
    }
    plan_regions(g);
    g->planned = true;
    return limit_bytes > 0 && g->memory.total > limit_bytes ? plan_too_large(g, limit_bytes)
                                                            : TR_OK;
}

bool tr_region_is_sharded(const tr_graph_t *g, tr_role_t role) {
    return tr_graph_is_sharded(g) &&
           (role == TR_ROLE_OPTIM_STATE || (role == TR_ROLE_PARAM && tr_masters_are_sharded(g)));
}

size_t tr_region_whole_bytes(const tr_graph_t *g, tr_role_t role) {
    return g->whole_bytes[role];
}

size_t tr_whole_offset_bytes(const tr_graph_t *g, tr_tensor_t t) {
    return tr_rec(g, t)->whole_offset_bytes;
}

tr_memory_plan_t tr_graph_memory(const tr_graph_t *g) {
    return g->memory;
}

tr_live_t tr_program_live(const tr_graph_t *g, int program, int op) {
    const tr_program_t *p = g->programs.data[program];
    tr_live_t live = {.scratch = tr_arena_align(p->nodes.data[op]->scratch_bytes)};
    for (size_t i = 1; i < g->tensors.count; i++) {
        const tr_tensor_rec_t *rec = g->tensors.data[i];
        const tr_tensor_info_t *info = &rec->info;
        if (info->role != TR_ROLE_ACTIVATION || info->program != program || info->first_op < 0 ||
            rec->storage != (int32_t)i || op < info->first_op || op > info->last_op)
            continue;
        size_t *kind = p->nodes.data[info->first_op]->op.backward ? &live.backward : &live.forward;
        *kind += tr_arena_align(info->bytes);
    }
    return live;
}
