/* Where ranks share the optimizer's state (parallel.zero): which ranges of the regions a rank keeps in
 * its snapshot and writes, which it reads, and the pieces of tensors that they are. All are a
 * function of the layout and the rank. */
#include "snapshot_int.h"

#include "base/int_math.h"
#include <stdlib.h>
#include <string.h>

enum { F32 = sizeof(float), SHARE_ELEMS = 4096 };

static tr_status_t parts_add(tr_ranges_t *out, int region, size_t at, size_t device, size_t bytes) {
    const tr_range_t range = {region, at, device, out->host_bytes[region], bytes};
    if (bytes == 0) return TR_OK;
    out->host_bytes[region] += bytes;
    return tr_vec_push(&out->list, range);
}

/* Of an array with the layout of the parameter block, whose whole begins at byte `at` of the region, and
 * what this rank has of it at byte `device`: the parts of `rank`, and of what is not cut into parts
 * all, for reading, or an equal share. has_parts: the device has nothing but the parts of its rank. */
static tr_status_t parts_add_array(const tr_graph_t *g, int rank, bool reads, bool has_parts,
                                   int region, size_t at, size_t device, int64_t elems,
                                   tr_ranges_t *out) {
    const int64_t sharded = tr_graph_layout(g).sharded_elems, ranks = tr_graph_sharding(g)->ranks;
    tr_part_t part = {0};
    while (tr_next_part(g, rank, &part) && part.bucket < sharded)
        TR_TRY(parts_add(out, region, at + (size_t)part.first * F32,
                         device + (size_t)(has_parts ? part.place : part.first) * F32,
                         (size_t)part.count * F32));
    const int64_t rest = elems - sharded, units = (rest + SHARE_ELEMS - 1) / SHARE_ELEMS,
                  share = (units + ranks - 1) / ranks * SHARE_ELEMS,
                  first = reads ? 0 : min64(rest, rank * share),
                  end = reads ? rest : min64(rest, first + share),
                  place = (has_parts ? sharded / ranks : sharded) + first;
    return parts_add(out, region, at + (size_t)(sharded + first) * F32,
                     device + (size_t)place * F32, (size_t)(end - first) * F32);
}

tr_status_t tr_ranges(const tr_graph_t *g, int rank, bool reads, tr_ranges_t *out) {
    const tr_layout_t layout = tr_graph_layout(g);
    const bool is_first = rank == 0;
    for (int region = 0; region < TR_SNAPSHOT_REGIONS; region++) {
        const tr_role_t role = tr_snapshot_roles[region];
        const bool has_parts = tr_region_is_sharded(g, role);
        const size_t whole = tr_region_whole_bytes(g, role);
        /* What every rank has is read by rank 0, which gives it to the others. */
        if (!has_parts && (reads || role == TR_ROLE_MODEL_STATE)) {
            TR_TRY(parts_add(out, region, 0, 0, is_first ? whole : 0));
            continue;
        }
        if (role == TR_ROLE_PARAM)
            TR_TRY(
                parts_add_array(g, rank, reads, has_parts, region, 0, 0, layout.param_elems, out));
        for (int32_t id = 1; id <= tr_graph_tensor_count(g) && role == TR_ROLE_OPTIM_STATE; id++) {
            const tr_tensor_info_t *info = tr_tensor_info(g, (tr_tensor_t){id});
            const size_t at = tr_whole_offset_bytes(g, (tr_tensor_t){id});
            if (info->role != role) continue;
            if (info->mirrors_params)
                TR_TRY(parts_add_array(g, rank, reads, true, region, at, info->offset_bytes,
                                       layout.trainable_elems, out));
            else
                TR_TRY(parts_add(out, region, at, info->offset_bytes,
                                 reads || is_first ? info->bytes : 0));
        }
    }
    return TR_OK;
}

void tr_ranges_free(tr_ranges_t *ranges) {
    tr_vec_free(&ranges->list);
}

bool tr_range_common(const tr_range_t *range, const tr_place_t *place, size_t bytes, size_t *first,
                     size_t *count) {
    if (range->region != place->region) return false;
    const size_t begin = range->at > place->at ? range->at : place->at,
                 range_end = range->at + range->bytes, tensor_end = place->at + bytes,
                 end = range_end < tensor_end ? range_end : tensor_end;
    *first = begin - place->at;
    *count = begin < end ? end - begin : 0;
    return *count > 0;
}

/* -- pieces of tensors, for the writers of all ranks --------------------------------------------- */

/* The pieces of one file that `rank` writes. host: of this rank; NULL: of another one. */
static tr_status_t parts_add_pieces(const tensor_list_t *tensors, int file, int rank,
                                    const tr_ranges_t *ranges, const snapshot_memory_t *host,
                                    tr_pieces_t *out) {
    int64_t at = 0;
    for (size_t i = 0; i < tensors->count; i++) {
        const tr_named_tensor_t *t = &tensors->data[i];
        const tr_place_t *place = &tensors->places.data[i];
        const size_t bytes = (size_t)tr_shape_elems(&t->shape) * tr_dtype_bytes(t->dtype);
        for (size_t k = 0; k < ranges->list.count; k++) {
            const tr_range_t *range = &ranges->list.data[k];
            size_t first, count;
            if (!tr_range_common(range, place, bytes, &first, &count)) continue;
            const tr_checkpoint_piece_t piece = {rank, file, at + (int64_t)first, (int64_t)count,
                                                 host ? host->region[range->region] + range->host +
                                                            (place->at + first - range->at)
                                                      : NULL};
            TR_TRY(tr_vec_push(out, piece));
        }
        at += (int64_t)bytes;
    }
    return TR_OK;
}

static int parts_in_order(const void *a, const void *b) {
    const tr_checkpoint_piece_t *x = a, *y = b;
    if (x->file != y->file) return x->file < y->file ? -1 : 1;
    return (x->offset > y->offset) - (x->offset < y->offset);
}

tr_status_t tr_pieces(const tr_snapshot_t *n, tr_pieces_t *out) {
    const tr_graph_t *g = n->s->g;
    const tensor_list_t *files[TR_PIECE_FILES] = {&n->files.model, &n->files.optimizer};
    const int own = n->s->params.rank, ranks = own == 0 ? n->s->params.size : 1;
    for (int i = 0; i < ranks; i++) { /* rank 0 knows those of all */
        const int rank = own + i;
        tr_ranges_t ranges = {0};
        tr_status_t status = tr_ranges(g, rank, false, &ranges);
        for (int file = 0; file < TR_PIECE_FILES && status == TR_OK; file++)
            status =
                parts_add_pieces(files[file], file, rank, &ranges, i == 0 ? &n->host : NULL, out);
        tr_ranges_free(&ranges);
        TR_TRY(status);
    }
    if (out->count > 0) qsort(out->data, out->count, sizeof *out->data, parts_in_order);
    return TR_OK;
}
