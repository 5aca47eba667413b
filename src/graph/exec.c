/* The executor: memory, addresses, and running programs. */
#include "graph_int.h"
#include "graph/ops/op_int.h"
#include "device/device_trace.h"
#include "device/plan_cache.h"
#include "base/clock.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

#define LEAST_PROGRESS_SEC 1e-6

/* -- memory ------------------------------------------------------------------------------------ */

void tr_exec_release(tr_graph_t *g) {
    if (g->allocated) (void)tr_graph_sync(g);
    for (size_t i = 0; i < g->programs.count; i++) tr_replay_destroy(g, g->programs.data[i]);
    for (int role = 0; role < TR_ROLE_COUNT; role++)
        if (g->region[role]) g->device->ops->free(g->device, g->region[role]);
}

static void *exec_address(const tr_graph_t *g, tr_tensor_t t) {
    const tr_tensor_info_t *info = tr_tensor_info(g, t), *base = &tr_rec_base(g, t)->info;
    const size_t inside =
        info->role == TR_ROLE_VIEW ? (size_t)info->view_elems * tr_dtype_bytes(info->dtype) : 0;
    return (char *)base->data + inside;
}

/* A view may look at another view's base only (graph_make_view, autodiff_finish_param keep it so),
 * except where autodiff turned an activation with views into a view itself: those chains are
 * resolved here, once. */
static void exec_flatten_views(tr_graph_t *g) {
    for (size_t i = 1; i < g->tensors.count; i++) {
        tr_tensor_info_t *info = &g->tensors.data[i]->info;
        while (info->role == TR_ROLE_VIEW && tr_rec(g, info->base)->info.role == TR_ROLE_VIEW) {
            const tr_tensor_info_t *middle = &tr_rec(g, info->base)->info;
            info->view_elems += middle->view_elems;
            info->base = middle->base;
        }
    }
}

static tr_status_t exec_resolve(tr_graph_t *g, tr_tensor_t t, tr_view_t *view) {
    if (tr_is_none(t)) return TR_OK;
    view->data = exec_address(g, t);
    const tr_tensor_t base = tr_base(g, t);
    const tr_tensor_info_t *info = tr_tensor_info(g, base);
    if (info->role != TR_ROLE_INPUT) return TR_OK;
    const tr_patch_t patch = {base.id, &view->data,
                              (size_t)((char *)view->data - (char *)info->data)};
    return tr_vec_push(&g->patches, patch);
}

static tr_status_t exec_resolve_node(tr_graph_t *g, tr_node_t *node) {
    for (int k = 0; k < node->op.n_in; k++)
        TR_TRY(exec_resolve(g, node->op.in[k], &node->call.in[k]));
    for (int k = 0; k < node->op.n_out; k++)
        TR_TRY(exec_resolve(g, node->op.out[k], &node->call.out[k]));
    if (node->op.kind == TR_OP_KERNEL) {
        tr_plan_t plan;
        TR_TRY(
            tr_plan_get(g->device, node->op.row->kernel, &node->call, node->op.attr_bytes, &plan));
        node->call.state = plan.state;
    }
    if (node->scratch_bytes > 0)
        node->call.scratch = (char *)g->region[TR_ROLE_ACTIVATION] + node->scratch_offset;
    return tr_inputs_resolve(g, node);
}

static size_t exec_region_bytes(const tr_memory_plan_t *m, tr_role_t role) {
    switch (role) {
    case TR_ROLE_ACTIVATION: return m->arena;
    case TR_ROLE_INPUT: return m->inputs;
    case TR_ROLE_PARAM: return m->params;
    case TR_ROLE_COPY: return m->copies;
    case TR_ROLE_REDUCED: return m->reduced;
    case TR_ROLE_MODEL_STATE: return m->model_state;
    case TR_ROLE_OPTIM_STATE: return m->optim_state;
    case TR_ROLE_CONST: return m->consts;
    case TR_ROLE_CACHE: return m->caches;
    default: return 0;
    }
}

const void *tr_graph_region(const tr_graph_t *g, tr_role_t role, size_t *out_bytes) {
    *out_bytes = exec_region_bytes(&g->memory, role);
    return g->region[role];
}

void *tr_graph_region_to_write(tr_graph_t *g, tr_role_t role, size_t *out_bytes) {
    if (role == TR_ROLE_PARAM) g->copies_are_old = true;
    *out_bytes = exec_region_bytes(&g->memory, role);
    return g->region[role];
}

bool tr_region_is_collective(const tr_graph_t *g, tr_role_t role) {
    const tr_role_t gathered = tr_has_copies(g) ? TR_ROLE_COPY : TR_ROLE_PARAM;
    return role == TR_ROLE_REDUCED ||
           (role == gathered && tr_graph_is_sharded(g) && g->device->host_visible);
}

void tr_graph_share(tr_graph_t *g) {
    g->is_shared = true;
}

tr_status_t tr_graph_allocate(tr_graph_t *g) {
    if (!g->planned || g->allocated)
        return TR_FAIL(TR_ERR_INTERNAL, "allocate requires a plan, and may be called once");
    for (int role = 0; role < TR_ROLE_COUNT; role++) {
        const size_t bytes = exec_region_bytes(&g->memory, (tr_role_t)role);
        if (bytes > 0)
            TR_TRY(g->device->ops->alloc(g->device, bytes,
                                         g->is_shared && tr_region_is_collective(g, (tr_role_t)role)
                                             ? TR_ALLOC_SHARED_BY_RANKS
                                             : 0,
                                         &g->region[role]));
    }
    exec_flatten_views(g);
    for (size_t i = 1; i < g->tensors.count; i++) {
        tr_tensor_info_t *info = &g->tensors.data[i]->info;
        if (info->role != TR_ROLE_VIEW && g->region[info->role] &&
            info->offset_bytes != TR_NO_PLACE)
            info->data = (char *)g->region[info->role] + info->offset_bytes;
    }
    for (size_t i = 1; i < g->tensors.count; i++) {
        tr_tensor_info_t *info = &g->tensors.data[i]->info;
        if (info->role == TR_ROLE_VIEW) info->data = exec_address(g, (tr_tensor_t){(int32_t)i});
    }
    for (size_t i = 0; i < g->programs.count; i++)
        for (size_t k = 0; k < g->programs.data[i]->nodes.count; k++)
            TR_TRY(exec_resolve_node(g, g->programs.data[i]->nodes.data[k]));
    TR_TRY(tr_inputs_list(g));
    for (size_t i = 0; i < g->programs.count; i++) TR_TRY(tr_replay_create(g, g->programs.data[i]));
    g->allocated = true;
    g->copies_are_old = true;
    g->is_blank = g->device->allocates_zeros;
    return g->is_blank ? TR_OK : tr_graph_zero_reduced(g);
}

tr_status_t tr_graph_zero_reduced(tr_graph_t *g) {
    return g->memory.reduced == 0
               ? TR_OK
               : g->device->ops->zero(g->device, g->stream, g->region[TR_ROLE_REDUCED],
                                      g->memory.reduced);
}

/* A reduce-scatter leaves any values where the parts of other ranks are, also between gradients. */
tr_status_t tr_exec_zero_extra(tr_graph_t *g) {
    const bool pads = tr_graph_is_sharded(g) && !tr_gradients_are_sharded(g);
    const int64_t first = g->layout.trainable_elems, count = g->layout.reduced_elems - first;
    float *reduced = g->region[TR_ROLE_REDUCED];
    for (size_t i = 0; i < g->padding.count && pads; i++)
        TR_TRY(g->device->ops->zero(g->device, g->stream, reduced + g->padding.data[i].first,
                                    (size_t)g->padding.data[i].count * sizeof(float)));
    return count == 0
               ? TR_OK
               : g->device->ops->zero(g->device, g->stream, reduced + tr_reduced_place(g, first),
                                      (size_t)count * sizeof(float));
}

static tr_status_t exec_check_memory(const tr_tensor_info_t *info) {
    if (info->data) return TR_OK;
    return TR_FAIL(TR_ERR_INTERNAL, "tensor '%s' is accessed before the graph has memory",
                   info->name);
}

tr_status_t tr_tensor_read(tr_graph_t *g, tr_tensor_t t, void *host) {
    const tr_tensor_info_t *info = tr_tensor_info(g, t);
    TR_TRY(exec_check_memory(info));
    TR_TRY(
        g->device->ops->copy(g->device, g->stream, host, info->data, info->bytes, TR_COPY_TO_HOST));
    return tr_graph_sync(g);
}

tr_status_t tr_tensor_read_part(tr_graph_t *g, tr_tensor_t t, int64_t first, int64_t count,
                                void *host) {
    const tr_tensor_info_t *info = tr_tensor_info(g, t);
    const size_t bytes = tr_dtype_bytes(info->dtype);
    TR_TRY(exec_check_memory(info));
    TR_TRY(g->device->ops->copy(g->device, g->stream, host,
                                (const char *)info->data + (size_t)first * bytes,
                                (size_t)count * bytes, TR_COPY_TO_HOST));
    return tr_graph_sync(g);
}

/* The rank's parts of a sharded parameter. */
static tr_status_t exec_write_parts(tr_graph_t *g, const tr_tensor_info_t *info,
                                    const float *host) {
    const int64_t begin = info->block_elems, end = begin + tr_shape_elems(&info->shape);
    tr_part_t part = {0};
    while (tr_next_part(g, g->sharding.rank, &part)) {
        const int64_t first = part.first > begin ? part.first : begin,
                      last = part.first + part.count < end ? part.first + part.count : end;
        if (first < last)
            TR_TRY(g->device->ops->copy(
                g->device, g->stream,
                (float *)g->region[TR_ROLE_PARAM] + part.place + first - part.first,
                host + first - begin, (size_t)(last - first) * sizeof(float), TR_COPY_TO_DEVICE));
    }
    return tr_graph_sync(g);
}

tr_status_t tr_tensor_write(tr_graph_t *g, tr_tensor_t t, const void *host) {
    const tr_tensor_info_t *info = tr_tensor_info(g, t);
    if (g->allocated && info->offset_bytes == TR_NO_PLACE) return exec_write_parts(g, info, host);
    TR_TRY(exec_check_memory(info));
    if (tr_rec_base(g, t)->info.role == TR_ROLE_PARAM) g->copies_are_old = true;
    TR_TRY(g->device->ops->copy(g->device, g->stream, info->data, host, info->bytes,
                                TR_COPY_TO_DEVICE));
    return tr_graph_sync(g);
}

tr_status_t tr_params_copy(tr_graph_t *g, tr_tensor_t mirror, bool to_params) {
    const bool is_sharded = tr_masters_are_sharded(g);
    tr_part_t part = {0};
    g->copies_are_old = g->copies_are_old || to_params;
    while (tr_next_part(g, g->sharding.rank, &part)) {
        float *param = (float *)g->region[TR_ROLE_PARAM] + (is_sharded ? part.place : part.first),
              *other = (float *)tr_tensor_info(g, mirror)->data + part.place;
        TR_TRY(g->device->ops->copy(g->device, g->stream, to_params ? param : other,
                                    to_params ? other : param, (size_t)part.count * sizeof(float),
                                    TR_COPY_ON_DEVICE));
    }
    return TR_OK;
}

tr_stream_t *tr_graph_stream(const tr_graph_t *g) {
    return g->stream;
}
tr_status_t tr_graph_sync(tr_graph_t *g) {
    return g->device->ops->stream_sync(g->device, g->stream);
}

/* -- running ----------------------------------------------------------------------------------- */

tr_status_t tr_exec_name_op(const tr_op_t *op, tr_status_t status) {
    const tr_error_t cause = *tr_error_last();
    if (cause.code != status) return status;
    tr_error_t named = cause;
    snprintf(named.message, sizeof named.message, "%.200s (%s): %.3800s", tr_op_where(op),
             op->row->name, cause.message);
    return tr_error_set(&named);
}

static tr_status_t exec_run_kernel(tr_graph_t *g, const tr_node_t *node) {
    const tr_device_ops_t *ops = g->device->ops;
    if (g->device->profiled) { /* as a range with the op's name and layer */
        char name[128];
        snprintf(name, sizeof name, "%s %s", node->op.row->name, node->op.label);
        ops->range_begin(g->device, name);
    }
    const tr_status_t status = node->kernel->run(g->device, g->stream, tr_exec_call(g, node));
    if (g->device->profiled) ops->range_end(g->device);
    if (status != TR_OK) return tr_exec_name_op(&node->op, status);
    if (!ops->poison) return TR_OK;
    for (size_t i = 0; i < node->dying.count; i++) {
        const tr_tensor_info_t *info = &g->tensors.data[node->dying.data[i]]->info;
        TR_TRY(ops->poison(g->device, g->stream, info->data, info->bytes));
    }
    return TR_OK;
}

static tr_status_t exec_trace_kernel(tr_graph_t *g, const tr_node_t *node) {
    const tr_device_span_t begun = tr_device_trace_begin(g->device, g->stream);
    TR_TRY(exec_run_kernel(g, node));
    tr_device_trace_end(g->device, g->stream, begun,
                        &(tr_span_t){.kind = TR_SPAN_OP,
                                     .name = node->op.row->name,
                                     .detail = node->op.label,
                                     .item = &node->op});
    return TR_OK;
}

/* What the computing thread does for the communication, where it is worth a span. */
static void exec_trace_progress(double begin_sec) {
    if (tr_clock_sec() - begin_sec > LEAST_PROGRESS_SEC)
        tr_trace_end(begin_sec, &(tr_span_t){.kind = TR_SPAN_PROGRESS});
}

static tr_status_t exec_run_collective(tr_graph_t *g, const tr_op_t *op, tr_collectives_t *c,
                                       tr_ticket_t *last) {
    if (!c || c->size == 1) return TR_OK;
    if (op->kind == TR_OP_WAIT) {
        const tr_ticket_t ticket = op->bucket < 0 ? *last : g->buckets.data[op->bucket].ticket;
        if (ticket == 0) return TR_OK;
        const tr_device_span_t begun = tr_device_trace_begin(g->device, g->stream);
        TR_TRY(c->ops->wait(c, ticket, g->stream));
        tr_device_trace_end(g->device, g->stream, begun, &(tr_span_t){.kind = TR_SPAN_WAIT});
        return TR_OK;
    }
    const tr_collective_op_t *o = &op->collective;
    const tr_collective_t what = {.kind = o->kind,
                                  .group = o->group,
                                  .data = (char *)exec_address(g, o->tensor) +
                                          (size_t)o->first * tr_dtype_bytes(o->type),
                                  .count = o->count,
                                  .dtype = o->type,
                                  .bucket = op->bucket};
    const double begin_sec = tr_trace_begin();
    TR_TRY(c->ops->start(c, &what, g->stream, last));
    if (op->bucket >= 0 && (size_t)op->bucket < g->buckets.count)
        g->buckets.data[op->bucket].ticket = *last;
    if (begin_sec == 0) return TR_OK;
    exec_trace_progress(begin_sec);
    tr_device_trace_collective(*last,
                               &(tr_span_t){.kind = TR_SPAN_COLLECTIVE,
                                            .number = op->bucket,
                                            .bytes = o->count * (int64_t)tr_dtype_bytes(o->type)});
    return TR_OK;
}

tr_status_t tr_exec_enqueue(tr_graph_t *g, const tr_program_t *p, size_t first, size_t end,
                            tr_collectives_t *collectives, tr_ticket_t *last) {
    for (size_t i = first; i < end; i++) {
        const tr_node_t *node = p->nodes.data[i];
        if (node->op.kind == TR_OP_KERNEL)
            TR_TRY(tr_trace_is_on() ? exec_trace_kernel(g, node) : exec_run_kernel(g, node));
        else if (node->op.kind == TR_OP_ZERO)
            TR_TRY(tr_exec_zero_extra(g));
        else
            TR_TRY(exec_run_collective(g, &node->op, collectives, last));
        if (*last == 0) continue;
        const double begin_sec = tr_trace_begin();
        TR_TRY(collectives->ops->progress(collectives));
        if (begin_sec > 0) exec_trace_progress(begin_sec);
    }
    return TR_OK;
}

/* event[i] is before op i: the times of the device, without a wait of the host in them. */
static tr_status_t exec_profile_by_events(tr_graph_t *g, const tr_program_t *p, tr_event_t **event,
                                          double *sec) {
    const tr_device_ops_t *ops = g->device->ops;
    const size_t n = p->nodes.count;
    for (size_t i = 0; i <= n; i++) {
        TR_TRY(ops->event_create(g->device, TR_EVENT_TIMED, &event[i]));
        TR_TRY(ops->event_record(g->device, event[i], g->stream));
        if (i < n && p->nodes.data[i]->op.kind == TR_OP_KERNEL)
            TR_TRY(exec_run_kernel(g, p->nodes.data[i]));
    }
    TR_TRY(tr_graph_sync(g));
    for (size_t i = 0; i < n; i++) {
        double elapsed = 0;
        if (p->nodes.data[i]->op.kind != TR_OP_KERNEL) continue;
        TR_TRY(ops->event_elapsed(g->device, event[i], event[i + 1], &elapsed));
        sec[i] += elapsed;
    }
    return TR_OK;
}

tr_status_t tr_program_profile(tr_graph_t *g, int program, double *sec) {
    const tr_program_t *p = g->programs.data[program];
    TR_TRY(tr_copies_refresh(g));
    TR_TRY(tr_graph_sync(g));
    if (g->device->ops->event_elapsed && !g->device->immediate) {
        tr_event_t **event = NULL;
        TR_TRY(tr_alloc((p->nodes.count + 1) * sizeof *event, "events", &event));
        const tr_status_t status = exec_profile_by_events(g, p, event, sec);
        for (size_t i = 0; i <= p->nodes.count && event[i]; i++)
            g->device->ops->event_destroy(g->device, event[i]);
        tr_free(&event);
        return status;
    }
    for (size_t i = 0; i < p->nodes.count; i++) {
        if (p->nodes.data[i]->op.kind != TR_OP_KERNEL) continue;
        const double start = tr_clock_sec();
        TR_TRY(exec_run_kernel(g, p->nodes.data[i]));
        TR_TRY(tr_graph_sync(g));
        sec[i] += tr_clock_sec() - start;
    }
    return TR_OK;
}

/* -- the first value that is not finite -------------------------------------------------------- */

static tr_status_t exec_is_finite(tr_graph_t *g, const tr_view_t *view, bool *out) {
    const tr_kernel_t *kernel = &g->device->ops->kernels[TR_K_CHECK_FINITE];
    int32_t flag = 0;
    TR_TRY(tr_tensor_write(g, g->flag, &flag));
    tr_kernel_call_t call = {.n_in = 1, .n_out = 1, .in = {*view}};
    call.out[0] = (tr_view_t){tr_tensor_info(g, g->flag)->data, TR_I32, TR_SHAPE(1)};
    TR_TRY(kernel->run(g->device, g->stream, &call));
    TR_TRY(tr_tensor_read(g, g->flag, &flag));
    *out = flag == 0;
    return TR_OK;
}

tr_status_t tr_program_find_nonfinite(tr_graph_t *g, int program, int *out_op) {
    const tr_program_t *p = g->programs.data[program];
    *out_op = -1;
    TR_TRY(tr_copies_refresh(g));
    for (size_t i = 0; i < p->nodes.count && *out_op < 0; i++) {
        const tr_node_t *node = p->nodes.data[i];
        if (node->op.kind != TR_OP_KERNEL) continue;
        TR_TRY(node->kernel->run(g->device, g->stream, tr_exec_call(g, node)));
        for (int k = 0; k < node->op.n_out && *out_op < 0; k++) {
            const tr_dtype_t dtype = node->call.out[k].dtype;
            bool finite = true;
            if (tr_is_none(node->op.out[k]) || (dtype != TR_F32 && !tr_dtype_is_half(dtype)))
                continue;
            TR_TRY(exec_is_finite(g, &node->call.out[k], &finite));
            if (!finite) *out_op = (int)i;
        }
    }
    return TR_OK;
}
