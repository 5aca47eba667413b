/* Statistics of the values of a data set, and warnings about them. */
#include "shared.h"
#include "base/clock.h"
#include "base/mem.h"
#include <stdio.h>
#include <string.h>

#define STEP_BYTES  (1 << 16)
#define PIECE_BYTES (4 << 20) /* read at once if all samples are read */

/* Reads one field, in doubles if its type in a batch loses precision. */
static tr_status_t stats_read_field(tr_dataset_t *dataset, int field, int64_t first, int64_t count,
                                    void *out) {
    void *dst[TR_DATASET_MAX_FIELDS] = {0};
    if (dataset->info.is_rounded[field])
        return dataset->ops->read_exact(dataset, field, first, count, out);
    dst[field] = out;
    return dataset->ops->read(dataset, first, count, dst);
}

typedef struct {
    tr_dataset_t *dataset;
    int field;
    int64_t width, samples; /* samples: read */
    tr_stats_t *stats;      /* [width] */
    char *raw;
    double read_sec;
} look_t;

/* Adds the values that are not NaN, which stands for missing ones. */
static void look_add_known(const look_t *l, tr_dtype_t dtype, const void *values, int64_t rows) {
    for (int64_t c = 0; c < l->width; c++) {
        int64_t known = 0;
        double piece[512];
        for (int64_t i = 0; i < rows; i++) {
            const int64_t at = i * l->width + c;
            const double value = dtype == TR_F64 ? ((const double *)values)[at]
                                                 : (double)((const float *)values)[at];
            if (!isnan(value)) piece[known++] = value;
            if (known < (int64_t)TR_COUNT(piece) && i + 1 < rows) continue;
            tr_stats_add(&l->stats[c], 1, piece, known);
            known = 0;
        }
    }
}

static tr_status_t look_at(look_t *l, int64_t first, int64_t count) {
    const tr_field_t *f = &l->dataset->info.field[l->field];
    const tr_dtype_t dtype = l->dataset->info.is_rounded[l->field] ? TR_F64 : f->dtype;
    const double begin = tr_clock_sec();
    TR_TRY(stats_read_field(l->dataset, l->field, first, count, l->raw));
    l->read_sec += tr_clock_sec() - begin;
    l->samples += count;
    const int64_t values = count * (f->sample_bytes / (int64_t)tr_dtype_bytes(f->dtype));
    const bool is_dense_y = l->dataset->info.is_dense && strcmp(f->name, "y") == 0;
    const bool may_be_missing = (dtype == TR_F64 && (l->dataset->info.has_missing || is_dense_y)) ||
                                (dtype == TR_F32 && is_dense_y);
    if (may_be_missing)
        look_add_known(l, dtype, l->raw, values / l->width);
    else
        tr_stats_add_values(l->stats, l->width, dtype, l->raw, values);
    return TR_OK;
}

/* With a time limit, for data sets that compute their samples: the first sample of each piece, then
 * more in steps of up to STEP_BYTES. */
static tr_status_t look_at_pieces(look_t *l, int64_t pieces, int64_t rows, double most_sec) {
    const int64_t samples = l->dataset->info.samples,
                  bytes = l->dataset->info.field[l->field].sample_bytes;
    const double start = tr_clock_sec();
    const bool is_limited = isfinite(most_sec);
    const int64_t step = is_limited ? max64(1, STEP_BYTES / bytes) : rows;
    for (int64_t p = 0; p < pieces && is_limited; p++) TR_TRY(look_at(l, samples * p / pieces, 1));
    for (int64_t p = 0; p < pieces; p++) {
        int64_t first = samples * p / pieces,
                left = min64(rows, samples * (p + 1) / pieces - first);
        if (is_limited) first++, left--;
        for (int64_t count; left > 0; first += count, left -= count) {
            if (is_limited && tr_clock_sec() - start > most_sec) return TR_OK;
            count = min64(step, left);
            TR_TRY(look_at(l, first, count));
        }
    }
    return TR_OK;
}

static tr_status_t stats_read_pieces(tr_dataset_t *dataset, int field, int64_t pieces, int64_t rows,
                                     int64_t width, tr_stats_t *stats, double *read_sec,
                                     double most_sec, int64_t *out_samples) {
    const tr_field_t *f = &dataset->info.field[field];
    const size_t elem = tr_dtype_bytes(dataset->info.is_rounded[field] ? TR_F64 : f->dtype);
    look_t l = {.dataset = dataset, .field = field, .width = width, .stats = stats};
    TR_TRY(tr_alloc((size_t)(rows * (f->sample_bytes / (int64_t)tr_dtype_bytes(f->dtype))) * elem,
                    "values", &l.raw));
    const tr_status_t status = look_at_pieces(&l, pieces, rows, most_sec);
    if (read_sec) *read_sec += l.read_sec;
    *out_samples = l.samples;
    tr_free(&l.raw);
    return status;
}

tr_status_t tr_dataset_stats(tr_dataset_t *dataset, int field, int64_t pieces, int64_t rows,
                             int64_t width, tr_stats_t *stats, double *read_sec) {
    int64_t samples;
    return stats_read_pieces(dataset, field, pieces, rows, width, stats, read_sec, INFINITY,
                             &samples);
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
    const int64_t samples = dataset->info.samples,
                  wanted = tr_samples_within(&dataset->info, f->sample_bytes, bytes);
    *out = (tr_sample_stats_t){.channels = tr_field_channels(f)};
    if (wanted == samples && isinf(most_sec))
        pieces = ceil_div(samples, max64(1, PIECE_BYTES / f->sample_bytes));
    pieces = min64(pieces, wanted);
    TR_TRY(tr_alloc((size_t)out->channels * sizeof *out->of, "statistics", &out->of));
    TR_TRY(stats_read_pieces(dataset, field, pieces, ceil_div(wanted, pieces), out->channels,
                             out->of, &out->read_sec, most_sec, &out->samples));
    out->missing = out->samples * (f->sample_bytes / (int64_t)tr_dtype_bytes(f->dtype));
    for (int64_t c = 0; c < out->channels; c++) out->missing -= out->of[c].count;
    return TR_OK;
}

const char *tr_missing_text(const tr_sample_stats_t *stats, const tr_field_t *field,
                            char text[160]) {
    const int64_t values =
        stats->samples * (field->sample_bytes / (int64_t)tr_dtype_bytes(field->dtype));
    tr_snprintf(text, 160, "%lld of the %lld values read (%.3g %%) are %s",
                (long long)stats->missing, (long long)values,
                100 * (double)stats->missing / (double)values,
                strcmp(field->name, "x") == 0
                    ? "declared missing: they become the mean that the inputs are normalised with"
                    : "missing: no loss and no score counts them");
    return text;
}

bool tr_is_rounded_away(const tr_stats_t *stats, int64_t count, bool are_targets, char text[640]) {
    int64_t first = -1, rounded = 0;
    char column[48] = "", more[48] = "", range[128];
    for (int64_t c = count - 1; c >= 0; c--)
        if (tr_stats_is_rounded(&stats[c])) first = c, rounded++;
    if (rounded == 0) return false;
    if (count > 1)
        snprintf(column, sizeof column, " (column %lld, counted from 0)", (long long)first);
    if (rounded > 1)
        snprintf(more, sizeof more, " (and %lld more such columns)", (long long)rounded - 1);
    tr_snprintf(text, 640,
                "the %s%s are %s%s, before normalisation. Subtract a number close to them, in "
                "double precision, when you create the file, %s",
                are_targets ? "targets" : "inputs", column,
                tr_stats_format_rounding(&stats[first], range), more,
                are_targets ? "and add it to the predictions; the scores do not change"
                            : "and the same number in files for eval and predict");
    return true;
}

bool tr_has_sentinel(const tr_sample_stats_t *stats, const tr_field_t *field, char text[640]) {
    const bool are_inputs = strcmp(field->name, "x") == 0;
    char column[48] = "";
    double value, next;
    int64_t found = 0, count;
    if (field->dtype == TR_U8) return false;
    while (found < stats->channels &&
           !tr_stats_has_sentinel(&stats->of[found], &value, &count, &next))
        found++;
    if (found == stats->channels) return false;
    if (stats->channels > 1)
        snprintf(column, sizeof column, " in column %lld, counted from 0,", (long long)found);
    tr_snprintf(
        text, 640,
        "%lld of %lld values of the %s%s are %.9g, and the next one is %.9g: if %.9g stands "
        "for missing values, %s",
        (long long)count, (long long)stats->of[found].count, are_inputs ? "inputs" : "targets",
        column, value, next, value,
        are_inputs ? "declare it in the attribute missing_value of the array (docs/data.md), or "
                     "import the table with an empty cell instead"
                   : "remove these samples when you create the file");
    return true;
}

const char *tr_image_guess_text(const tr_shape_t *shape, char text[256]) {
    const long long a = (long long)shape->dim[0], b = (long long)shape->dim[1];
    snprintf(text, 256,
             "read as images of %lld x %lld with one channel; time series of %lld steps and %lld "
             "channels need data.layout=nhwc, of %lld steps and %lld channels data.layout=nchw",
             a, b, a, b, b, a);
    return text;
}
