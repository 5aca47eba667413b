/* The cost of reading an array with its layout: bytes read per byte requested, and when to warn. */
#include "hdf5_source.h"
#include <stdio.h>

#define READS_MAX         64 /* for a block: more means very small pieces */
#define AMPLIFICATION_MAX 2.0
/* the size of a read if the layout does not require more */
#define BLOCK_BYTES (256 << 10)

static bool cost_is_compressed(const h5_array_t *a) {
    return a->filters > 0 && !a->checksum_only;
}

h5_cost_t tr_h5_cost(const h5_array_t *a, int64_t rows) {
    if (a->layout != H5D_CHUNKED) return (h5_cost_t){1, 1.0};
    rows = min64(rows, max64(1, a->rows)); /* a block may extend into the next file */
    int64_t chunk_rows = ceil_div(rows, a->chunk_rows);
    /* Plain chunks, and those whose checksum was verified once, are read from the first wanted row
     * to the last. */
    bool whole = a->way == H5_LIBRARY || (a->way == H5_CHUNK_ROWS && !a->verified);
    double fetched = (double)(whole ? chunk_rows * a->chunk_rows : rows) *
                     (double)a->chunk_row_bytes * (double)a->chunks_per_row;
    int64_t reads = 0;
    for (int64_t row = 0; row < rows && a->table; reads += a->chunks_per_row)
        row += tr_h5_rows_together(a, row, rows - row);
    return (h5_cost_t){a->table ? reads : chunk_rows * a->chunks_per_row,
                       fetched / ((double)rows * (double)a->row_bytes)};
}

const char *tr_h5_way_text(const h5_array_t *a) {
    if (a->way == H5_LIBRARY) return "by the HDF5 library";
    return a->way == H5_CHUNK_ROWS && !a->verified ? "pread and decoding" : "pread";
}

/* A block as large as a chunk would hide that whole chunks are read. */
static bool cost_is_coarse(const h5_array_t *a, int64_t block, char *why, size_t bytes) {
    const int64_t rows = min64(block, max64(1, BLOCK_BYTES / a->row_bytes));
    const h5_cost_t cost = tr_h5_cost(a, rows);
    if (cost.amplification <= AMPLIFICATION_MAX) return false;
    tr_snprintf(why, bytes,
                "its %s are read as a whole, %lld samples at a time: reading fewer (%lld) fetches "
                "%.1f times the bytes needed",
                a->storage, (long long)a->chunk_rows, (long long)rows, cost.amplification);
    return true;
}

static bool cost_is_costly(const h5_array_t *a, int64_t block, char *why, size_t bytes) {
    h5_cost_t cost = tr_h5_cost(a, block);
    if (a->row_bytes * a->rows < 1 << 20) return false; /* too small to be slow */
    if (a->way == H5_LIBRARY && a->layout == H5D_CHUNKED)
        snprintf(why, bytes, "its %s are read by the HDF5 library only, one thread at a time",
                 a->storage);
    else if (cost.amplification > AMPLIFICATION_MAX)
        tr_snprintf(why, bytes, "its %s make reads fetch %.1f times the bytes needed", a->storage,
                    cost.amplification);
    else if (cost.reads > READS_MAX)
        snprintf(why, bytes, "its %s split a block of %lld samples into %lld small reads",
                 a->storage, (long long)block, (long long)cost.reads);
    else if (cost_is_compressed(a))
        snprintf(why, bytes, "its %s are decompressed in every epoch", a->storage);
    else
        return cost_is_coarse(a, block, why, bytes);
    return true;
}

bool tr_h5_costly(const h5_array_t *a, int64_t block, char text[H5_SENTENCE_BYTES]) {
    char why[256], labels[4096];
    if (!cost_is_costly(a, block, why, sizeof why)) return false;
    snprintf(text, H5_SENTENCE_BYTES, "%s: /%s: %s. To fix this: trainer repack %s OUT%s.h5",
             a->file->path, a->name, why, a->file->path,
             tr_h5_labels_path(a->file->path, labels) ? "_x" : "");
    return true;
}
