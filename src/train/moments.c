#include "moments.h"

#include <string.h>

#define PIECE_BYTES (1 << 16)

int tr_field_of(const tr_dataset_info_t *info, const char *name) {
    for (int f = 0; f < info->field_count; f++)
        if (strcmp(info->field[f].name, name) == 0) return f;
    return -1;
}

int64_t tr_field_width(const tr_field_t *f) {
    return f->shape.ndim ? f->shape.dim[f->shape.ndim - 1] : 1;
}

tr_status_t tr_field_moments(tr_dataset_t *data, int field, int64_t width, int64_t bytes,
                             tr_field_moments_t *m) {
    const tr_field_t *f = &data->info.field[field];
    const int64_t n = data->info.samples, one = f->sample_bytes,
                  rows = PIECE_BYTES > one ? PIECE_BYTES / one : 1,
                  wanted = bytes / one < n ? bytes / one + 1 : n, pieces = (wanted + rows - 1) / rows;
    *m = (tr_field_moments_t){.count = width <= TR_TARGETS_MAX ? (int)width : 1};
    return tr_dataset_stats(data, field, pieces, rows, m->count, m->of, NULL);
}
