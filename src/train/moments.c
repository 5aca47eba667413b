#include "moments.h"
#include "trainer/mem.h"

#define PIECE_BYTES (1 << 16)

int64_t tr_field_width(const tr_field_t *f) {
    return f->shape.ndim ? f->shape.dim[f->shape.ndim - 1] : 1;
}

tr_status_t tr_field_moments(tr_dataset_t *data, int field, int64_t bytes, tr_field_moments_t *m) {
    const tr_field_t *f = &data->info.field[field];
    const int64_t n = data->info.samples, one = f->sample_bytes,
                  rows = PIECE_BYTES > one ? PIECE_BYTES / one : 1,
                  wanted = bytes / one < n ? bytes / one + 1 : n, pieces = (wanted + rows - 1) / rows,
                  elems = one / (int64_t)tr_dtype_bytes(f->dtype);
    char *raw = NULL;
    *m = (tr_field_moments_t){.count = tr_field_width(f) <= TR_TARGETS_MAX ? (int)tr_field_width(f) : 1};
    tr_status_t status = tr_alloc((size_t)(rows * one), "values", &raw);
    for (int64_t p = 0; p < pieces && status == TR_OK; p++) {
        void *dst[TR_DATASET_MAX_FIELDS] = {0};
        const int64_t first = n * p / pieces, behind = n * (p + 1) / pieces - first,
                      count = behind < rows ? behind : rows;
        dst[field] = raw;
        status = data->ops->read(data, first, count, dst);
        if (status != TR_OK) break;
        tr_stats_add_values(m->of, m->count, f->dtype, raw, count * elems);
    }
    tr_free(&raw);
    return status;
}
