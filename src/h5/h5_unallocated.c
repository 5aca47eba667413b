/* Samples that were never written. HDF5 returns fill values where no storage was allocated, for
 * example after the writer was killed. */
#include "h5.h"
#include <stdio.h>

static bool chunk_is_stored(const h5_array_t *a, int64_t chunk) {
    hsize_t offset[TR_MAX_DIMS + 1], bytes = 0;
    if (a->table) return a->table[chunk].address != H5_NOWHERE;
    tr_h5_chunk_offset(a, chunk, offset);
    return H5Dget_chunk_storage_size(a->id, offset, &bytes) >= 0 && bytes > 0;
}

void tr_h5_find_unallocated(h5_array_t *a) {
    h5_unallocated_t *unallocated = &a->unallocated;
    *unallocated = (h5_unallocated_t){.of = a->rows};
    if (a->layout != H5D_CHUNKED || a->chunk_count > H5_CHUNKS_MAX) {
        if (a->layout != H5D_COMPACT && H5Dget_storage_size(a->id) == 0)
            unallocated->rows = a->rows;
        return;
    }
    for (int64_t chunk_row = 0; chunk_row < a->grid[0]; chunk_row++) {
        const int64_t first = chunk_row * a->chunk_rows;
        bool stored = true;
        for (int64_t i = 0; i < a->chunks_per_row && stored; i++)
            stored = chunk_is_stored(a, chunk_row * a->chunks_per_row + i);
        if (stored) continue;
        if (unallocated->rows == 0) unallocated->first = first;
        unallocated->rows += min64(a->chunk_rows, a->rows - first);
    }
}

tr_status_t tr_h5_refuse_unallocated(const h5_array_t *a) {
    const h5_unallocated_t *unallocated = &a->unallocated;
    const char *path = a->file->path;
    char labels[4096];
    if (unallocated->rows == 0) return TR_OK;
    return TR_FAIL(TR_ERR_DATA,
                   "%s: /%s: %lld of %lld samples were never written, the first is sample %lld; "
                   "HDF5 would return fill values for them. Finish writing the file, or truncate "
                   "it. If the fill values are intended, store them: trainer repack %s OUT%s.h5",
                   path, a->name, (long long)unallocated->rows, (long long)unallocated->of,
                   (long long)unallocated->first, path,
                   tr_h5_labels_path(path, labels) ? "_x" : "");
}
