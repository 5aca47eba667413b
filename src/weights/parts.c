/* The state that ranks share, between the graph of each rank and the snapshot of rank 0. */
#include "snapshot_int.h"

#include <string.h>

/* An array with the layout of the parameter block: in the graph the parts of this rank. */
typedef struct {
    char *device;  /* the parts of this rank */
    char *whole;   /* in the snapshot; NULL: another rank has it */
    int64_t elems; /* of the whole */
} parts_array_t;

static int parts_ranks(const tr_snapshot_t *n) {
    return tr_graph_sharding(n->s->g)->ranks;
}

tr_status_t tr_parts_open(tr_snapshot_t *n) {
    const tr_device_ops_t *ops = n->s->device->ops;
    const size_t piece = TR_STATE_PIECE / (size_t)(parts_ranks(n) + 1) / sizeof(float);
    int64_t longest = 0;
    tr_part_t part = {0};
    void *pinned = NULL;
    if (!tr_graph_is_sharded(n->s->g)) return TR_OK;
    while (tr_next_part(n->s->g, 0, &part)) longest = part.count > longest ? part.count : longest;
    n->piece = longest < (int64_t)piece ? longest : (int64_t)piece;
    const size_t bytes = (size_t)n->piece * sizeof(float);
    TR_TRY(tr_alloc((size_t)parts_ranks(n) * bytes, "parts of ranks", &n->parts));
    TR_TRY(ops->host_alloc(n->s->device, bytes, &pinned));
    n->part = pinned;
    return TR_OK;
}

void tr_parts_close(tr_snapshot_t *n) {
    if (n->part) n->s->device->ops->host_free(n->s->device, n->part);
    tr_free(&n->parts);
}

/* The next range of the array: a bucket with this rank's part of it, or what every rank has. */
static bool parts_next(const tr_snapshot_t *n, const parts_array_t *array, tr_part_t *part) {
    const int64_t first = part->end, place = part->place + part->count;
    if (tr_next_part(n->s->g, n->s->params.rank, part)) return true;
    if (first >= array->elems) return false;
    *part = (tr_part_t){first, array->elems - first, place, first, array->elems};
    return true;
}

static int64_t parts_least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

static tr_status_t parts_copy(tr_snapshot_t *n, tr_stream_t *stream, void *to, const void *from,
                              int64_t elems, tr_copy_kind_t kind) {
    TR_TRY(n->s->device->ops->copy(n->s->device, stream, to, from, (size_t)elems * sizeof(float),
                                   kind));
    return n->s->device->ops->stream_sync(n->s->device, stream);
}

static tr_status_t parts_gather_array(tr_snapshot_t *n, const parts_array_t *array,
                                      tr_stream_t *stream) {
    enum { F32 = sizeof(float) };
    tr_part_t part = {0};
    while (parts_next(n, array, &part)) {
        const bool is_sharded = part.count < part.end - part.bucket;
        const char *from = array->device + part.place * F32;
        if (!is_sharded && array->whole)
            TR_TRY(parts_copy(n, stream, array->whole + part.first * F32, from, part.count,
                              TR_COPY_TO_HOST));
        for (int64_t at = 0, count; at < part.count && is_sharded; at += count) {
            count = parts_least(n->piece, part.count - at);
            TR_TRY(parts_copy(n, stream, n->part, from + at * F32, count, TR_COPY_TO_HOST));
            TR_TRY(tr_world_allgather(n->s->world, n->part, (size_t)count * F32, n->parts));
            for (int r = 0; r < parts_ranks(n) && array->whole; r++)
                memcpy(array->whole + (part.bucket + r * part.count + at) * F32,
                       n->parts + r * count * F32, (size_t)count * F32);
        }
    }
    return TR_OK;
}

static tr_status_t parts_scatter_array(tr_snapshot_t *n, const parts_array_t *array) {
    enum { F32 = sizeof(float) };
    tr_stream_t *stream = tr_graph_stream(n->s->g);
    tr_part_t part = {0};
    while (parts_next(n, array, &part))
        for (int64_t at = part.bucket, count; at < part.end; at += count) {
            count = parts_least(n->piece * parts_ranks(n), part.end - at);
            char *piece = array->whole ? array->whole + at * F32 : n->parts;
            const int64_t first = part.first > at ? part.first : at,
                          last = parts_least(part.first + part.count, at + count);
            TR_TRY(tr_world_broadcast(n->s->world, piece, (size_t)count * F32, 0));
            if (first < last)
                TR_TRY(parts_copy(n, stream,
                                  array->device + (part.place + first - part.first) * F32,
                                  piece + (first - at) * F32, last - first, TR_COPY_TO_DEVICE));
        }
    return TR_OK;
}

/* The masters are one array; of the states of the optimizer, each that mirrors the parameters. */
static bool parts_array(const tr_snapshot_t *n, int region, tr_tensor_t t, parts_array_t *out) {
    const tr_graph_t *g = n->s->g;
    const tr_layout_t layout = tr_graph_layout(g);
    const tr_tensor_info_t *info = tr_tensor_info(g, t);
    char *host = n->host.region[region];
    size_t bytes;
    if (tr_snapshot_roles[region] == TR_ROLE_PARAM) {
        void *device = tr_graph_region_to_write(n->s->g, TR_ROLE_PARAM, &bytes);
        *out = (parts_array_t){device, host, layout.param_elems};
        return t.id == 1; /* once */
    }
    *out = (parts_array_t){info->data, host ? host + tr_whole_offset_bytes(g, t) : NULL,
                           layout.trainable_elems};
    return info->role == TR_ROLE_OPTIM_STATE && info->mirrors_params;
}

/* A state of the optimizer that every rank has, such as the loss scale. */
static bool parts_is_other(const tr_snapshot_t *n, int region, tr_tensor_t t) {
    const tr_tensor_info_t *info = tr_tensor_info(n->s->g, t);
    return info->role == tr_snapshot_roles[region] && info->role == TR_ROLE_OPTIM_STATE &&
           !info->mirrors_params;
}

tr_status_t tr_parts_gather(tr_snapshot_t *n, int region, tr_stream_t *stream) {
    parts_array_t array;
    for (int32_t id = 1; id <= tr_graph_tensor_count(n->s->g); id++)
        if (parts_array(n, region, (tr_tensor_t){id}, &array))
            TR_TRY(parts_gather_array(n, &array, stream));
    return n->host.region[region] ? tr_parts_copy_others(n, region, stream) : TR_OK;
}

tr_status_t tr_parts_copy_others(tr_snapshot_t *n, int region, tr_stream_t *stream) {
    const tr_graph_t *g = n->s->g;
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_t t = {id};
        const tr_tensor_info_t *info = tr_tensor_info(g, t);
        if (parts_is_other(n, region, t))
            TR_TRY(n->s->device->ops->copy(n->s->device, stream,
                                           n->host.region[region] + tr_whole_offset_bytes(g, t),
                                           info->data, info->bytes, TR_COPY_TO_HOST));
    }
    return TR_OK;
}

tr_status_t tr_parts_scatter(tr_snapshot_t *n, int region) {
    const tr_graph_t *g = n->s->g;
    parts_array_t array;
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_t t = {id};
        if (parts_array(n, region, t, &array)) TR_TRY(parts_scatter_array(n, &array));
        if (!parts_is_other(n, region, t)) continue;
        char small[64];
        const size_t bytes = tr_tensor_info(g, t)->bytes;
        if (bytes > sizeof small)
            return TR_FAIL(TR_ERR_INTERNAL, "the state '%s' has %zu bytes, expected %zu at most",
                           tr_tensor_info(g, t)->name, bytes, sizeof small);
        if (n->host.region[region])
            memcpy(small, n->host.region[region] + tr_whole_offset_bytes(g, t), bytes);
        TR_TRY(tr_world_broadcast(n->s->world, small, bytes, 0));
        TR_TRY(tr_tensor_write(n->s->g, t, small));
    }
    return TR_OK;
}
