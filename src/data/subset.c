/*
 * data.valid_fraction: splits one data set into training and validation.
 *
 * The data set is divided into C segments of equal length, of which V go to validation, spread as
 * evenly as possible: segment j does if floor((j + 1) V / C) > floor(j V / C). The k-th segment of
 * validation is therefore ceil((k + 1) C / V) - 1, and the k-th of training floor(k C / (C - V)).
 * Nothing is stored, and both parts cover the whole file even if it is sorted. The last segment,
 * which may be short, always belongs to validation.
 */
#include "shared.h"
#include "base/mem.h"
#include <math.h>
#include <stdio.h>
#include <string.h>

#define SEGMENT_BYTES (256 << 10)
#define SEGMENTS_MIN  256 /* if there are as many samples */

typedef struct {
    tr_dataset_t base;
    tr_dataset_t *whole;
    bool is_valid;
    int64_t length, segments, kept; /* samples of a segment; of all, of this part */
} subset_t;

static int64_t segment_of(const subset_t *self, int64_t k) {
    if (self->is_valid) return ceil_div((k + 1) * self->segments, self->kept) - 1;
    return k * self->segments / self->kept;
}

/* The position of sample `first` of this part in the whole, and how many of `count` follow it
 * there. */
static int64_t run_of(const subset_t *self, int64_t first, int64_t count, int64_t *out_count) {
    const int64_t k = first / self->length, segment = segment_of(self, k),
                  inside = first % self->length;
    int64_t run = self->length - inside;
    for (int64_t next = 1; run < count && segment_of(self, k + next) == segment + next; next++)
        run += self->length;
    *out_count = min64(run, count);
    return segment * self->length + inside;
}

static tr_status_t read_part(tr_dataset_t *dataset, int64_t first, int64_t count,
                             void *const *dst) {
    const subset_t *self = (const subset_t *)dataset;
    char *at[TR_DATASET_MAX_FIELDS];
    for (int f = 0; f < dataset->info.field_count; f++) at[f] = dst[f];
    while (count > 0) {
        int64_t run, sample = run_of(self, first, count, &run);
        TR_TRY(self->whole->ops->read(self->whole, sample, run, (void *const *)at));
        for (int f = 0; f < dataset->info.field_count; f++)
            if (at[f]) at[f] += run * dataset->info.field[f].sample_bytes;
        first += run;
        count -= run;
    }
    return TR_OK;
}

static tr_status_t read_part_exact(tr_dataset_t *dataset, int field, int64_t first, int64_t count,
                                   double *dst) {
    const subset_t *self = (const subset_t *)dataset;
    const tr_field_t *f = &dataset->info.field[field];
    while (count > 0) {
        int64_t run, sample = run_of(self, first, count, &run);
        TR_TRY(self->whole->ops->read_exact(self->whole, field, sample, run, dst));
        dst += run * (f->sample_bytes / (int64_t)tr_dtype_bytes(f->dtype));
        first += run;
        count -= run;
    }
    return TR_OK;
}

static void expect_part(tr_dataset_t *dataset, int64_t first, int64_t count) {
    const subset_t *self = (const subset_t *)dataset;
    if (!self->whole->ops->expect) return;
    for (int64_t run; count > 0; first += run, count -= run) {
        int64_t sample = run_of(self, first, count, &run);
        self->whole->ops->expect(self->whole, sample, run);
    }
}

static void close_part(tr_dataset_t *dataset) {
    subset_t *self = (subset_t *)dataset;
    tr_dataset_close(&self->whole);
    tr_free(&self);
}

static const tr_dataset_ops_t part_ops = {.name = "part",
                                          .close = close_part,
                                          .read = read_part,
                                          .expect = expect_part,
                                          .read_exact = read_part_exact};

static int64_t segment_length(const tr_dataset_info_t *info) {
    int64_t bytes = 0;
    for (int f = 0; f < info->field_count; f++) bytes += info->field[f].sample_bytes;
    if (info->read_unit > 1 && info->samples / info->read_unit >= SEGMENTS_MIN)
        return info->read_unit;
    return max64(1, min64(SEGMENT_BYTES / max64(1, bytes), info->samples / SEGMENTS_MIN));
}

tr_status_t tr_dataset_part(tr_dataset_t *whole, double fraction, bool is_valid,
                            tr_dataset_t **out) {
    subset_t *self = NULL;
    const tr_dataset_info_t *info = &whole->info;
    const int64_t length = segment_length(info), segments = ceil_div(info->samples, length),
                  valid = max64(1, llround(fraction * (double)segments)),
                  training = segments - valid;
    if (training < 1)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "data.valid_fraction = %g of %lld samples leaves no training data: reduce it, or use "
            "more data",
            fraction, (long long)info->samples);
    TR_TRY(tr_alloc(sizeof *self, "a part of the data", &self));
    *self = (subset_t){.base = {.ops = &part_ops, .info = *info},
                       .whole = whole,
                       .is_valid = is_valid,
                       .length = length,
                       .segments = segments,
                       .kept = is_valid ? valid : training};
    self->base.info.samples = is_valid ? info->samples - training * length : training * length;
    self->base.info.fingerprint ^= (uint64_t)(2 * self->kept + is_valid) * 0x9E3779B97F4A7C15u;
    snprintf(self->base.info.description, sizeof self->base.info.description,
             "%.230s, %.3g %% of it", info->description,
             100 * (double)self->base.info.samples / (double)info->samples);
    *out = &self->base;
    return TR_OK;
}

/* What a part is a part of. */
static const tr_dataset_t *part_whole(const tr_dataset_t *dataset) {
    return dataset->ops == &part_ops ? ((const subset_t *)dataset)->whole : dataset;
}

bool tr_dataset_shares(const tr_dataset_t *a, const tr_dataset_t *b) {
    if (!a || !b) return false;
    if (a->ops == &part_ops && b->ops == &part_ops &&
        ((const subset_t *)a)->is_valid != ((const subset_t *)b)->is_valid)
        return false;
    const tr_dataset_info_t *of_a = &part_whole(a)->info, *of_b = &part_whole(b)->info;
    return of_a->fingerprint == of_b->fingerprint && of_a->samples == of_b->samples &&
           strcmp(of_a->description, of_b->description) == 0;
}
