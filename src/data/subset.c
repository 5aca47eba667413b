/*
 * data.valid_fraction and data.fold: split one data set into training and validation.
 *
 * For data.fold the samples of a part are a list. For data.valid_fraction the data set is divided
 * into C segments of equal length, of which V go to validation, spread as evenly as possible:
 * segment j does if floor((j + 1) V / C) > floor(j V / C). The k-th segment of validation is
 * therefore ceil((k + 1) C / V) - 1, and the k-th of training floor(k C / (C - V)). Nothing is
 * stored, and both parts cover the whole file even if it is sorted. The last segment, which may be
 * short, always belongs to validation.
 */
#include "shared.h"
#include "base/mem.h"
#include "base/rng.h"
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
    int64_t *sample;                /* of data.fold: those of this part, ascending; else NULL */
} subset_t;

static int64_t subset_segment_of(const subset_t *self, int64_t k) {
    if (self->is_valid) return ceil_div((k + 1) * self->segments, self->kept) - 1;
    return k * self->segments / self->kept;
}

/* The position of sample `first` of this part in the whole, and how many of `count` follow it
 * there. */
static int64_t subset_run_of(const subset_t *self, int64_t first, int64_t count,
                             int64_t *out_count) {
    if (self->sample) {
        for (*out_count = 1; *out_count < count &&
                             self->sample[first + *out_count] == self->sample[first] + *out_count;)
            ++*out_count;
        return self->sample[first];
    }
    const int64_t k = first / self->length, segment = subset_segment_of(self, k),
                  inside = first % self->length;
    int64_t run = self->length - inside;
    for (int64_t next = 1; run < count && subset_segment_of(self, k + next) == segment + next;
         next++)
        run += self->length;
    *out_count = min64(run, count);
    return segment * self->length + inside;
}

static tr_status_t subset_read_part(tr_dataset_t *dataset, int64_t first, int64_t count,
                                    void *const *dst) {
    const subset_t *self = (const subset_t *)dataset;
    char *at[TR_DATASET_MAX_FIELDS];
    for (int f = 0; f < dataset->info.field_count; f++) at[f] = dst[f];
    while (count > 0) {
        int64_t run, sample = subset_run_of(self, first, count, &run);
        TR_TRY(self->whole->ops->read(self->whole, sample, run, (void *const *)at));
        for (int f = 0; f < dataset->info.field_count; f++)
            if (at[f]) at[f] += run * dataset->info.field[f].sample_bytes;
        first += run;
        count -= run;
    }
    return TR_OK;
}

static tr_status_t subset_read_part_exact(tr_dataset_t *dataset, int field, int64_t first,
                                          int64_t count, double *dst) {
    const subset_t *self = (const subset_t *)dataset;
    const tr_field_t *f = &dataset->info.field[field];
    while (count > 0) {
        int64_t run, sample = subset_run_of(self, first, count, &run);
        TR_TRY(self->whole->ops->read_exact(self->whole, field, sample, run, dst));
        dst += run * (f->sample_bytes / (int64_t)tr_dtype_bytes(f->dtype));
        first += run;
        count -= run;
    }
    return TR_OK;
}

static tr_status_t subset_fill_part(tr_dataset_t *dataset, const tr_floats_t *mean) {
    const subset_t *self = (const subset_t *)dataset;
    return self->whole->ops->set_fill ? self->whole->ops->set_fill(self->whole, mean) : TR_OK;
}

static void subset_expect_part(tr_dataset_t *dataset, int64_t first, int64_t count) {
    const subset_t *self = (const subset_t *)dataset;
    if (!self->whole->ops->expect) return;
    for (int64_t run; count > 0; first += run, count -= run) {
        int64_t sample = subset_run_of(self, first, count, &run);
        self->whole->ops->expect(self->whole, sample, run);
    }
}

static void subset_close_part(tr_dataset_t *dataset) {
    subset_t *self = (subset_t *)dataset;
    tr_dataset_close(&self->whole);
    tr_free(&self->sample);
    tr_free(&self);
}

static const tr_dataset_ops_t part_ops = {.name = "part",
                                          .close = subset_close_part,
                                          .read = subset_read_part,
                                          .expect = subset_expect_part,
                                          .read_exact = subset_read_part_exact,
                                          .set_fill = subset_fill_part};

static int64_t subset_segment_length(const tr_dataset_info_t *info) {
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
    const int64_t length = subset_segment_length(info), segments = ceil_div(info->samples, length),
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
    tr_snprintf(self->base.info.description, sizeof self->base.info.description,
                "%.230s, %.3g %% of it", info->description,
                100 * (double)self->base.info.samples / (double)info->samples);
    *out = &self->base;
    return TR_OK;
}

/* -- data.fold --------------------------------------------------------------------------------- */

static tr_status_t subset_fold_parse(const char *fold, int64_t samples, int64_t *out_k,
                                     int64_t *out_of) {
    char first[24];
    const size_t length = strcspn(fold, "/");
    bool good = fold[length] == '/' && length < sizeof first;
    snprintf(first, sizeof first, "%.*s", (int)length, fold);
    good = good && tr_parse_int(first, out_k) && tr_parse_int(fold + length + 1, out_of) &&
           *out_of >= 2 && *out_k >= 1 && *out_k <= *out_of;
    if (!good)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.fold: expected k/K, fold k of K, such as 1/5 to 5/5; found '%s'.",
                       fold);
    if (*out_of <= samples) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "data.fold = %s: the training data have %lld samples, fewer than folds. Set "
                   "fewer folds.",
                   fold, (long long)samples);
}

/* Labels of a program's own data set may be anything; those of files were checked. */
static tr_status_t subset_fold_check_labels(const tr_dataset_info_t *info, const int32_t *label) {
    for (int64_t i = 0; i < info->samples; i++)
        if (label[i] < -1 || label[i] >= info->classes)
            return TR_FAIL(
                TR_ERR_DATA,
                "%s: sample %lld: expected a label from 0 to %lld, or -1 for none, found "
                "%d.",
                info->description, (long long)i, (long long)info->classes - 1, (int)label[i]);
    return TR_OK;
}

/* Sets fold[i], from 0, of every sample. The samples of a class are dealt in random order. */
static tr_status_t subset_fold_deal(tr_dataset_t *whole, int64_t folds, int32_t *fold) {
    const tr_dataset_info_t *info = &whole->info;
    const int y = tr_field_find(info, "y");
    const bool has_classes = info->classes > 0 && y >= 0 && info->field[y].shape.ndim == 0;
    const int64_t samples = info->samples, classes = has_classes ? info->classes + 1 : 1;
    tr_rng_t rng = tr_rng_make(0, TR_RNG_SYNTHETIC, 6, 0);
    void *dst[TR_DATASET_MAX_FIELDS] = {NULL};
    int64_t *order = NULL, *next = NULL;
    int32_t *label = NULL;
    tr_status_t status;
    TR_TRY_GOTO(tr_alloc((size_t)samples * sizeof *order, "folds", &order), done);
    TR_TRY_GOTO(tr_alloc((size_t)samples * sizeof *label, "folds", &label), done);
    TR_TRY_GOTO(tr_alloc(((size_t)classes + 1) * sizeof *next, "folds", &next), done);
    if (has_classes) dst[y] = label;
    if (has_classes) TR_TRY_GOTO(whole->ops->read(whole, 0, samples, dst), done);
    if (has_classes) TR_TRY_GOTO(subset_fold_check_labels(info, label), done);
    for (int64_t i = 0; i < samples; i++) order[i] = i;
    for (int64_t i = samples - 1; i > 0; i--) {
        const int64_t other = (int64_t)tr_rng_below(&rng, (uint64_t)i + 1), kept = order[i];
        order[i] = order[other];
        order[other] = kept;
    }
    /* The place of a sample when they are sorted by class; -1, no label, is the first one. */
    for (int64_t i = 0; i < samples; i++) next[1 + label[i] + has_classes]++;
    for (int64_t c = 0; c < classes; c++) next[c + 1] += next[c];
    for (int64_t i = 0; i < samples; i++)
        fold[order[i]] = (int32_t)(next[label[order[i]] + has_classes]++ % folds);
done:
    tr_free(&order);
    tr_free(&label);
    tr_free(&next);
    return status;
}

tr_status_t tr_dataset_fold(tr_dataset_t *whole, const char *fold, bool is_valid,
                            tr_dataset_t **out) {
    const tr_dataset_info_t *info = &whole->info;
    subset_t *self = NULL;
    int32_t *fold_of = NULL;
    int64_t k, folds, count = 0;
    tr_status_t status;
    TR_TRY(subset_fold_parse(fold, info->samples, &k, &folds));
    if (info->tokens > 0)
        return TR_FAIL(TR_ERR_CONFIG, "data.fold does not support texts, whose samples overlap: "
                                      "set data.valid or data.valid_fraction.");
    TR_TRY_GOTO(tr_alloc((size_t)info->samples * sizeof *fold_of, "folds", &fold_of), done);
    TR_TRY_GOTO(subset_fold_deal(whole, folds, fold_of), done);
    TR_TRY_GOTO(tr_alloc(sizeof *self, "a fold of the data", &self), done);
    *self = (subset_t){.base = {.ops = &part_ops, .info = *info}, .is_valid = is_valid};
    TR_TRY_GOTO(tr_alloc((size_t)info->samples * sizeof *self->sample, "folds", &self->sample),
                done);
    for (int64_t i = 0; i < info->samples; i++)
        if ((fold_of[i] == k - 1) == is_valid) self->sample[count++] = i;
    self->whole = whole;
    self->base.info.samples = count;
    self->base.info.fingerprint ^= (tr_hash_name(fold) + is_valid) * 0x9E3779B97F4A7C15u;
    snprintf(self->base.info.description, sizeof self->base.info.description,
             "%.220s, fold%s %.20s", info->description, is_valid ? "" : "s but", fold);
    *out = &self->base;
    self = NULL;
done:
    if (self) tr_free(&self->sample);
    tr_free(&self);
    tr_free(&fold_of);
    return status;
}

/* What a part is a part of. */
static const tr_dataset_t *subset_part_whole(const tr_dataset_t *dataset) {
    return dataset->ops == &part_ops ? ((const subset_t *)dataset)->whole : dataset;
}

bool tr_dataset_shares(const tr_dataset_t *a, const tr_dataset_t *b) {
    if (!a || !b) return false;
    if (a->ops == &part_ops && b->ops == &part_ops &&
        ((const subset_t *)a)->is_valid != ((const subset_t *)b)->is_valid)
        return false;
    const tr_dataset_info_t *of_a = &subset_part_whole(a)->info,
                            *of_b = &subset_part_whole(b)->info;
    return of_a->fingerprint == of_b->fingerprint && of_a->samples == of_b->samples &&
           strcmp(of_a->description, of_b->description) == 0;
}
