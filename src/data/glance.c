/* A look at the values of a data set, and what to say of them. */
#include "shared.h"
#include "trainer/clock.h"
#include "trainer/mem.h"
#include <stdio.h>
#include <string.h>

#define PIECE_BYTES (4 << 20) /* that are read at once where all samples are */

/* One field, in doubles where it travels rounded. */
static tr_status_t read_field(tr_dataset_t *dataset, int field, int64_t first, int64_t count, void *out) {
    void *dst[TR_DATASET_MAX_FIELDS] = {0};
    if (dataset->info.is_rounded[field]) return dataset->ops->read_exact(dataset, field, first, count, out);
    dst[field] = out;
    return dataset->ops->read(dataset, first, count, dst);
}

/* Until `most_sec` are over, which are looked at between reads: of a data set that may be slow these begin
 * with one sample. */
static tr_status_t read_pieces(tr_dataset_t *dataset, int field, int64_t pieces, int64_t rows, int64_t width,
                               tr_stats_t *stats, double *read_sec, double most_sec) {
    const tr_field_t *f = &dataset->info.field[field];
    const tr_dtype_t dtype = dataset->info.is_rounded[field] ? TR_F64 : f->dtype;
    const int64_t samples = dataset->info.samples,
                  elems = f->sample_bytes / (int64_t)tr_dtype_bytes(f->dtype);
    const double start = tr_clock_sec();
    char *raw = NULL;
    tr_status_t status = tr_alloc((size_t)(rows * elems) * tr_dtype_bytes(dtype), "values", &raw);
    for (int64_t p = 0; p < pieces; p++) {
        int64_t first = samples * p / pieces, left = min64(rows, samples * (p + 1) / pieces - first);
        for (int64_t most = isfinite(most_sec) ? 1 : rows; left > 0 && status == TR_OK; most *= 2) {
            const int64_t count = min64(most, left);
            const double begin = tr_clock_sec();
            if (stats->count > 0 && begin - start > most_sec) goto done;
            status = read_field(dataset, field, first, count, raw);
            if (read_sec) *read_sec += tr_clock_sec() - begin;
            if (status == TR_OK) tr_stats_add_values(stats, width, dtype, raw, count * elems);
            first += count;
            left -= count;
        }
    }
done:
    tr_free(&raw);
    return status;
}

tr_status_t tr_dataset_stats(tr_dataset_t *dataset, int field, int64_t pieces, int64_t rows, int64_t width,
                             tr_stats_t *stats, double *read_sec) {
    return read_pieces(dataset, field, pieces, rows, width, stats, read_sec, INFINITY);
}

int tr_field_find(const tr_dataset_info_t *info, const char *name) {
    for (int f = 0; f < info->field_count; f++)
        if (strcmp(info->field[f].name, name) == 0) return f;
    return -1;
}

int64_t tr_field_channels(const tr_field_t *field) {
    return field->shape.ndim ? field->shape.dim[field->shape.ndim - 1] : 1;
}

tr_status_t tr_dataset_sample(tr_dataset_t *dataset, int field, int64_t bytes, int64_t pieces,
                              double most_sec, tr_sample_stats_t *out) {
    const tr_field_t *f = &dataset->info.field[field];
    const int64_t samples = dataset->info.samples, wanted = max64(1, min64(samples, bytes / f->sample_bytes));
    *out = (tr_sample_stats_t){.channels = tr_field_channels(f)};
    if (wanted == samples && isinf(most_sec))
        pieces = ceil_div(samples, max64(1, PIECE_BYTES / f->sample_bytes));
    pieces = min64(pieces, wanted);
    TR_TRY(tr_alloc((size_t)out->channels * sizeof *out->of, "statistics", &out->of));
    TR_TRY(read_pieces(dataset, field, pieces, ceil_div(wanted, pieces), out->channels, out->of,
                       &out->read_sec, most_sec));
    out->samples = out->of->count / (f->sample_bytes / (int64_t)tr_dtype_bytes(f->dtype) / out->channels);
    return TR_OK;
}

bool tr_is_rounded_away(const tr_stats_t *stats, int64_t count, bool are_targets, char text[640]) {
    int64_t first = -1, rounded = 0;
    char column[48] = "", more[48] = "", range[128];
    for (int64_t c = count - 1; c >= 0; c--)
        if (tr_stats_is_rounded(&stats[c])) first = c, rounded++;
    if (rounded == 0) return false;
    if (count > 1) snprintf(column, sizeof column, " (column %lld, counted from 0)", (long long)first);
    if (rounded > 1) snprintf(more, sizeof more, " (the same of %lld more)", (long long)rounded - 1);
    tr_snprintf(text, 640,
                "the %s%s are %s%s, before anything is subtracted. Subtract a number near them, in double "
                "precision, when the file is made, %s",
                are_targets ? "targets" : "inputs", column, tr_stats_format_rounding(&stats[first], range),
                more,
                are_targets ? "and add it to predictions; scores stay the same"
                            : "and the same one in files for eval and predict");
    return true;
}

const char *tr_image_guess_text(const tr_shape_t *shape, char text[256]) {
    const long long a = (long long)shape->dim[0], b = (long long)shape->dim[1];
    snprintf(text, 256,
             "taken as images of %lld x %lld with one channel; series of %lld steps of %lld channels are "
             "data.layout=nhwc, of %lld steps of %lld channels data.layout=nchw",
             a, b, a, b, b, a);
    return text;
}
