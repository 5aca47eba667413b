/* Copies parameters, model state and optimizer state to host memory under their checkpoint names. */
#include "base/thread.h"
#include "snapshot_int.h"

#include <string.h>

const tr_role_t tr_snapshot_roles[TR_SNAPSHOT_REGIONS] = {TR_ROLE_PARAM, TR_ROLE_MODEL_STATE,
                                                          TR_ROLE_OPTIM_STATE};

/* -- names ------------------------------------------------------------------------------------- */

static tr_status_t tensor_list_add(tensor_list_t *list, const char *name, const char *suffix,
                                   const tr_tensor_info_t *info, const snapshot_memory_t *memory,
                                   tr_place_t place) {
    const char *region = memory->region[place.region];
    tr_str_t text = {0};
    char *full = NULL;
    TR_TRY(tr_vec_push(&list->places, place));
    tr_str_printf(&text, suffix ? "%s.%s" : "%s", name, suffix);
    TR_TRY(tr_str_take(&text, &full));
    const tr_named_tensor_t tensor = {full, info->dtype, info->shape,
                                      region ? region + place.at : NULL};
    const tr_status_t status = tr_vec_push(list, tensor);
    if (status != TR_OK) tr_free(&full);
    return status;
}

static tr_place_t snapshot_place(const tr_graph_t *g, int region, tr_tensor_t t) {
    return (tr_place_t){region, tr_whole_offset_bytes(g, t)};
}

static tr_place_t snapshot_mirrored(const tr_graph_t *g, tr_tensor_t state, tr_tensor_t param) {
    const size_t first = (size_t)tr_tensor_info(g, param)->block_elems * sizeof(float);
    return (tr_place_t){2, tr_whole_offset_bytes(g, state) + first};
}

/* A state that mirrors the parameters is saved per parameter, "conv1.weight.adam.m", so that the
 * order of the block may change. */
static tr_status_t snapshot_name_mirror(const tr_graph_t *g, const snapshot_memory_t *at,
                                        tr_tensor_t state, snapshot_kind_t kind,
                                        tensor_list_t *list) {
    const char *name = tr_tensor_info(g, state)->name;
    const bool is_raw = kind == TR_AVERAGES_FIRST && strcmp(name, TR_EMA_STATE) == 0;
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_t t = {id};
        const tr_tensor_info_t *p = tr_tensor_info(g, t);
        if (!tr_is_trained(g, t)) continue;
        TR_TRY(tensor_list_add(list, p->name, is_raw ? TR_RAW_SUFFIX : name, p, at,
                               is_raw ? snapshot_place(g, 0, t) : snapshot_mirrored(g, state, t)));
    }
    return TR_OK;
}

tr_status_t tr_snapshot_name_tensors(const tr_graph_t *g, const snapshot_memory_t *at,
                                     snapshot_kind_t kind, snapshot_files_t *out) {
    const tr_tensor_t average = tr_graph_find(g, TR_EMA_STATE);
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_t t = {id};
        const tr_tensor_info_t *info = tr_tensor_info(g, t);
        if (tr_is_param(g, t)) {
            const bool is_averaged =
                kind == TR_AVERAGES_FIRST && !tr_is_none(average) && tr_is_trained(g, t);
            TR_TRY(tensor_list_add(&out->model, info->name, NULL, info, at,
                                   is_averaged ? snapshot_mirrored(g, average, t)
                                               : snapshot_place(g, 0, t)));
        }
        if (tr_is_model_state(g, t))
            TR_TRY(
                tensor_list_add(&out->model, info->name, NULL, info, at, snapshot_place(g, 1, t)));
        if (info->role != TR_ROLE_OPTIM_STATE) continue;
        if (info->mirrors_params)
            TR_TRY(snapshot_name_mirror(g, at, t, kind, &out->optimizer));
        else
            TR_TRY(tensor_list_add(&out->optimizer, info->name, NULL, info, at,
                                   snapshot_place(g, 2, t)));
    }
    return TR_OK;
}

/* -- life -------------------------------------------------------------------------------------- */

static void tensor_list_free(tensor_list_t *list) {
    for (size_t i = 0; i < list->count; i++) tr_free(&list->data[i].name);
    tr_vec_free(list);
    tr_vec_free(&list->places);
}

void tr_snapshot_files_free(snapshot_files_t *files) {
    tensor_list_free(&files->model);
    tensor_list_free(&files->optimizer);
}

static void *snapshot_prefault_main(void *self) {
    tr_snapshot_t *n = self;
    for (int i = 0; i < TR_SNAPSHOT_REGIONS; i++)
        if (n->bytes[i] > 0) memset(n->host.region[i], 0, n->bytes[i]);
    return NULL;
}

void tr_snapshot_prefault(tr_snapshot_t *n) {
    if (!n->s->device->host_visible || tr_snapshot_bytes(n) == 0)
        return; /* pinned memory has its pages */
    n->is_prefaulting = tr_thread_start("snapshot", snapshot_prefault_main, n, &n->prefault) == 0;
}

static void snapshot_end_prefault(tr_snapshot_t *n) {
    if (n->is_prefaulting) pthread_join(n->prefault, NULL);
    n->is_prefaulting = false;
}

void tr_snapshot_destroy(tr_snapshot_t **snapshot) {
    tr_snapshot_t *n = *snapshot;
    if (!n) return;
    snapshot_end_prefault(n);
    const tr_device_ops_t *ops = n->s->device->ops;
    if (n->stream) (void)ops->stream_sync(n->s->device, n->stream);
    if (n->taken) ops->event_destroy(n->s->device, n->taken);
    if (n->stream) ops->stream_destroy(n->s->device, n->stream);
    for (int i = 0; i < TR_SNAPSHOT_REGIONS; i++)
        if (n->host.region[i]) n->s->device->ops->host_free(n->s->device, n->host.region[i]);
    tr_ranges_free(&n->writes);
    tr_ranges_free(&n->reads);
    tr_vec_free(&n->pieces);
    tr_free(&n->sharing.parts);
    tr_snapshot_files_free(&n->files);
    tr_free(snapshot);
}

tr_status_t tr_snapshot_create(tr_session_t *s, tr_snapshot_t **out) {
    const bool shares = tr_graph_is_sharded(s->g);
    const snapshot_memory_t none = {{NULL}};
    tr_snapshot_t *n = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *n, "snapshot", &n));
    n->s = s;
    if (shares) {
        TR_TRY_GOTO(tr_ranges(s->g, s->params.rank, false, &n->writes), fail);
        TR_TRY_GOTO(tr_ranges(s->g, s->params.rank, true, &n->reads), fail);
    }
    for (int i = 0; i < TR_SNAPSHOT_REGIONS; i++) {
        void *host = NULL;
        n->bytes[i] =
            shares ? n->writes.host_bytes[i] : tr_region_whole_bytes(s->g, tr_snapshot_roles[i]);
        if (n->bytes[i] == 0) continue;
        TR_TRY_GOTO(s->device->ops->host_alloc(s->device, n->bytes[i], &host), fail);
        n->host.region[i] = host;
    }
    const tr_device_ops_t *ops = s->device->ops;
    TR_TRY_GOTO(ops->stream_create(s->device, "snapshot", TR_PRIORITY_NORMAL, &n->stream), fail);
    TR_TRY_GOTO(ops->event_create(s->device, 0, &n->taken), fail);
    TR_TRY_GOTO(
        tr_snapshot_name_tensors(s->g, shares ? &none : &n->host, TR_AVERAGES_FIRST, &n->files),
        fail);
    if (shares) {
        TR_TRY_GOTO(tr_pieces(n, &n->pieces), fail);
        n->sharing = (tr_checkpoint_sharing_t){.rank = s->params.rank,
                                               .ranks = s->params.size,
                                               .pieces = n->pieces.data,
                                               .piece_count = n->pieces.count};
        TR_TRY_GOTO(tr_alloc((size_t)s->params.size * sizeof *n->sharing.parts,
                             "parts of a checkpoint", &n->sharing.parts),
                    fail);
    }
    *out = n;
    return TR_OK;
fail:
    tr_snapshot_destroy(&n);
    return status;
}

size_t tr_snapshot_bytes(const tr_snapshot_t *n) {
    return n->bytes[0] + n->bytes[1] + n->bytes[2];
}

size_t tr_snapshot_plan_bytes(const tr_session_t *s) {
    size_t sum = 0;
    tr_ranges_t writes = {0};
    const bool shares = tr_graph_is_sharded(s->g) && tr_ranges(s->g, 0, false, &writes) == TR_OK;
    for (int i = 0; i < TR_SNAPSHOT_REGIONS; i++)
        sum += shares ? writes.host_bytes[i] : tr_region_whole_bytes(s->g, tr_snapshot_roles[i]);
    tr_ranges_free(&writes);
    return sum;
}

static tr_status_t snapshot_enqueue(tr_snapshot_t *n, tr_stream_t *stream) {
    const tr_session_t *s = n->s;
    const tr_ranges_t *ranges = &n->writes;
    const bool shares = tr_graph_is_sharded(s->g);
    size_t bytes;
    snapshot_end_prefault(n);
    for (int i = 0; i < TR_SNAPSHOT_REGIONS && !shares; i++) {
        const void *from = tr_graph_region(s->g, tr_snapshot_roles[i], &bytes);
        if (bytes > 0)
            TR_TRY(s->device->ops->copy(s->device, stream, n->host.region[i], from, bytes,
                                        TR_COPY_TO_HOST));
    }
    /* The parts of one array lie side by side in both memories: few copies. */
    for (size_t i = 0, next; i < ranges->list.count; i = next) {
        const tr_range_t *r = &ranges->list.data[i];
        const char *from = tr_graph_region(s->g, tr_snapshot_roles[r->region], &bytes);
        size_t count = r->bytes;
        for (next = i + 1; next < ranges->list.count; next++) {
            const tr_range_t *behind = &ranges->list.data[next];
            if (behind->region != r->region || behind->device != r->device + count) break;
            count += behind->bytes;
        }
        TR_TRY(s->device->ops->copy(s->device, stream, n->host.region[r->region] + r->host,
                                    from + r->device, count, TR_COPY_TO_HOST));
    }
    return TR_OK;
}

tr_status_t tr_snapshot_take(tr_snapshot_t *n) {
    TR_TRY(snapshot_enqueue(n, tr_graph_stream(n->s->g)));
    return tr_graph_sync(n->s->g);
}

tr_status_t tr_snapshot_begin(tr_snapshot_t *n, tr_event_t **out_taken) {
    tr_device_t *device = n->s->device;
    TR_TRY(snapshot_enqueue(n, n->stream));
    *out_taken = n->taken;
    return device->ops->event_record(device, n->taken, n->stream);
}

tr_status_t tr_snapshot_end(tr_snapshot_t *n) {
    return n->s->device->ops->event_sync(n->s->device, n->taken);
}

void tr_snapshot_content(const tr_snapshot_t *n, tr_checkpoint_content_t *out) {
    *out = (tr_checkpoint_content_t){.model = n->files.model.data,
                                     .model_count = n->files.model.count,
                                     .optimizer = n->files.optimizer.data,
                                     .optimizer_count = n->files.optimizer.count,
                                     .sharing = tr_graph_is_sharded(n->s->g) ? &n->sharing : NULL};
}

/* -- from rank 0 to the others ----------------------------------------------------------------- */

static size_t piece_at(size_t bytes, size_t at) {
    return bytes - at < TR_STATE_PIECE ? bytes - at : TR_STATE_PIECE;
}

/* By the engine of the collectives, from device to device. */
static tr_status_t state_broadcast_by_engine(tr_session_t *s, tr_collectives_t *c, char *device,
                                             size_t bytes) {
    for (size_t at = 0; at < bytes; at += TR_STATE_PIECE)
        TR_TRY(c->ops->broadcast(c, device + at, (int64_t)piece_at(bytes, at), TR_U8, 0,
                                 tr_graph_stream(s->g)));
    return tr_graph_sync(s->g);
}

/* By MPI, through one pinned piece. */
static tr_status_t state_broadcast_staged(tr_session_t *s, char *device, size_t bytes) {
    const tr_device_ops_t *ops = s->device->ops;
    tr_stream_t *stream = tr_graph_stream(s->g);
    const bool is_root = tr_world_info(s->world)->rank == 0;
    tr_status_t status = TR_OK;
    void *host = NULL;
    TR_TRY(ops->host_alloc(s->device, piece_at(bytes, 0), &host));
    for (size_t at = 0; at < bytes; at += TR_STATE_PIECE) {
        char *piece = device + at;
        const size_t n = piece_at(bytes, at);
        if (is_root)
            TR_TRY_GOTO(ops->copy(s->device, stream, host, piece, n, TR_COPY_TO_HOST), done);
        TR_TRY_GOTO(tr_graph_sync(s->g), done);
        TR_TRY_GOTO(tr_world_broadcast(s->world, host, n, 0), done);
        if (!is_root)
            TR_TRY_GOTO(ops->copy(s->device, stream, piece, host, n, TR_COPY_TO_DEVICE), done);
        TR_TRY_GOTO(tr_graph_sync(s->g), done);
    }
done:
    ops->host_free(s->device, host);
    return status;
}

/* The parameters have the same order on every rank. */
static tr_status_t state_broadcast_ages(tr_session_t *s) {
    const int32_t tensors = tr_graph_tensor_count(s->g);
    int32_t *ages = NULL;
    size_t count = 0;
    TR_TRY(tr_alloc((size_t)tensors * sizeof *ages, "the ages of optimizer states", &ages));
    for (int32_t id = 1; id <= tensors; id++)
        if (tr_is_trained(s->g, (tr_tensor_t){id}))
            ages[count++] = tr_tensor_info(s->g, (tr_tensor_t){id})->updates_before;
    const tr_status_t status = tr_world_broadcast(s->world, ages, count * sizeof *ages, 0);
    count = 0;
    for (int32_t id = 1; id <= tensors && status == TR_OK; id++)
        if (tr_is_trained(s->g, (tr_tensor_t){id}))
            tr_param_began(s->g, (tr_tensor_t){id}, ages[count++]);
    tr_free(&ages);
    return status;
}

tr_status_t tr_state_broadcast(tr_session_t *s, tr_collectives_t *collectives, bool optimizer_too) {
    if (!s->world || tr_world_info(s->world)->size == 1) return TR_OK;
    TR_TRY(tr_graph_sync(s->g));
    if (optimizer_too) TR_TRY(state_broadcast_ages(s));
    for (int i = 0; i < TR_SNAPSHOT_REGIONS; i++) {
        size_t bytes;
        void *device = tr_graph_region_to_write(s->g, tr_snapshot_roles[i], &bytes);
        if (bytes == 0 || (tr_snapshot_roles[i] == TR_ROLE_OPTIM_STATE && !optimizer_too)) continue;
        if (tr_region_is_sharded(s->g, tr_snapshot_roles[i])) continue;
        if (s->device->host_visible)
            TR_TRY(tr_world_broadcast(s->world, device, bytes, 0));
        else if (collectives)
            TR_TRY(state_broadcast_by_engine(s, collectives, device, bytes));
        else
            TR_TRY(state_broadcast_staged(s, device, bytes));
    }
    return tr_region_is_sharded(s->g, TR_ROLE_PARAM) ? tr_session_gather(s, TR_OK) : TR_OK;
}
