/* Synthetic samples for benchmarks and tests: u8 noise whose brightness, slab by slab along the
 * first dimension, depends on the class or the target, so that a network can learn. With labels or
 * targets of each position, each slab has a class or a target of its own. Sample i is a pure
 * function of i and the split. */
#include "shared.h"
#include "base/mem.h"
#include "base/rng.h"
#include <stdio.h>
#include <string.h>

#define NOISE_BYTES (1 << 20)
#define CLASS_SLABS 8

typedef struct {
    tr_dataset_t base;
    uint32_t split;
    int64_t slabs, points; /* points: positions of a sample, of which y holds each; else 0 */
    /* [NOISE_BYTES + bytes of a sample]; the noise of a sample starts at an offset < NOISE_BYTES */
    uint8_t *noise;
} synthetic_t;

static void synthetic_close(tr_dataset_t *dataset) {
    synthetic_t *self = (synthetic_t *)dataset;
    tr_vec_free(&self->base.info.mean);
    tr_vec_free(&self->base.info.std);
    tr_free(&self->noise);
    tr_free(&self);
}

static tr_status_t synthetic_make_noise(synthetic_t *self, int64_t sample_bytes) {
    size_t bytes = (size_t)(NOISE_BYTES + sample_bytes);
    TR_TRY(tr_alloc(bytes, "synthetic samples", &self->noise));
    for (size_t i = 0; i < bytes; i += sizeof(tr_rng_block_t)) {
        tr_rng_block_t block = tr_rng_philox(0, TR_RNG_SYNTHETIC, 0, i % NOISE_BYTES, 0);
        memcpy(self->noise + i, &block, bytes - i < sizeof block ? bytes - i : sizeof block);
    }
    return TR_OK;
}

/* y has a label, or targets, for each position of x. */
static void synthetic_make_dense(synthetic_t *self, const tr_shape_t *x) {
    tr_dataset_info_t *info = &self->base.info;
    tr_field_t *y = &info->field[1];
    const int64_t channels = x->dim[x->ndim - 1], targets = y->shape.ndim ? y->shape.dim[0] : 1;
    info->is_dense = true;
    info->fingerprint ^= 1;
    self->slabs = CLASS_SLABS;
    self->points = tr_shape_elems(x) / channels;
    y->sample_bytes *= self->points;
    y->shape = *x;
    if (info->classes)
        y->shape.ndim--;
    else
        y->shape.dim[x->ndim - 1] = targets;
}

static void synthetic_describe(synthetic_t *self, const tr_data_settings_t *settings,
                               const tr_shape_t *shape, int values) {
    tr_dataset_info_t *info = &self->base.info;
    char text[96];
    int64_t samples = self->split == TR_SPLIT_TRAIN ? settings->synthetic_samples
                                                    : max64(1, settings->synthetic_samples / 8);
    *info = (tr_dataset_info_t){.samples = samples,
                                .field_count = 2,
                                .read_unit = 1,
                                .classes = settings->classes < 0 ? (values > 0 ? values : 10)
                                                                 : settings->classes};
    info->field[0] = (tr_field_t){
        .name = "x", .dtype = TR_U8, .shape = *shape, .sample_bytes = tr_shape_elems(shape)};
    info->field[1] =
        (tr_field_t){.name = "y", .dtype = TR_I32, .sample_bytes = 4, .kind = TR_FIELD_LABELS};
    if (!info->classes) {
        info->field[1].dtype = TR_F32;
        info->field[1].kind = TR_FIELD_VALUES;
        info->field[1].shape = TR_SHAPE(settings->synthetic_targets);
        info->field[1].sample_bytes = 4 * settings->synthetic_targets;
    }
    self->slabs = info->classes ? CLASS_SLABS : settings->synthetic_targets;
    snprintf(info->description, sizeof info->description, "synthetic, x u8 %s",
             tr_shape_format(shape, text));
    info->fingerprint = (uint64_t)samples * 0x9E3779B97F4A7C15u ^ (uint64_t)info->classes << 32 ^
                        (uint64_t)self->slabs << 8 ^ self->split;
    for (int d = 0; d < shape->ndim; d++)
        info->fingerprint = info->fingerprint * 1099511628211u ^ (uint64_t)shape->dim[d];
    if (settings->targets == TR_TARGETS_POSITION) synthetic_make_dense(self, shape);
}

static tr_status_t synthetic_open(const tr_data_settings_t *settings, tr_split_t split,
                                  tr_dataset_t **out) {
    synthetic_t *self = NULL;
    tr_shape_t shape;
    tr_label_values_t values;
    TR_TRY(tr_data_parse_shape("data.synthetic_shape", settings->synthetic_shape, &shape));
    TR_TRY(tr_label_values_read(settings, &values));
    if (settings->targets == TR_TARGETS_POSITION && shape.ndim < 2)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "data.targets = position needs positions: expected data.synthetic_shape with "
            "one to three dimensions and channels, such as 64x64x1, found '%s'.",
            settings->synthetic_shape);
    TR_TRY(tr_alloc(sizeof *self, "synthetic data set", &self));
    self->split = (uint32_t)split;
    synthetic_describe(self, settings, &shape, values.count);
    tr_status_t status = synthetic_make_noise(self, self->base.info.field[0].sample_bytes);
    if (status == TR_OK) status = tr_vec_push(&self->base.info.mean, 127.5f);
    if (status == TR_OK) status = tr_vec_push(&self->base.info.std, 64);
    if (status != TR_OK) {
        synthetic_close(&self->base);
        return status;
    }
    *out = &self->base;
    return TR_OK;
}

/* Bytes `begin` to `end` of the inputs. */
static void synthetic_draw(const uint8_t *noise, int64_t begin, int64_t end, uint8_t level,
                           uint8_t *x) {
    for (int64_t i = begin; i < end; i++) x[i] = (uint8_t)((noise[i] + level + 1) >> 1);
}

static void synthetic_make_sample(const synthetic_t *self, int64_t sample, uint8_t *x, void *y) {
    const tr_dataset_info_t *info = &self->base.info;
    const int64_t bytes = info->field[0].sample_bytes,
                  units = self->points ? self->points : bytes, /* which a slab has whole */
        each = self->points ? info->field[1].sample_bytes / 4 / self->points : 0;
    const uint64_t classes = (uint64_t)info->classes;
    tr_rng_t rng = tr_rng_make(1 + self->split, TR_RNG_SYNTHETIC, 1, (uint64_t)sample);
    uint64_t offset = tr_rng_below(&rng, NOISE_BYTES);
    int32_t label = classes ? (int32_t)tr_rng_below(&rng, classes) : 0;
    tr_rng_t levels = classes ? tr_rng_make(0, TR_RNG_SYNTHETIC, 2, (uint64_t)label) : rng;
    for (int64_t s = 0; s < self->slabs; s++) {
        const int64_t begin = units * s / self->slabs, end = units * (s + 1) / self->slabs;
        if (self->points && classes) {
            label = (int32_t)tr_rng_below(&rng, classes);
            levels = tr_rng_make(0, TR_RNG_SYNTHETIC, 2, (uint64_t)label);
        }
        const float target = (float)tr_rng_uniform(&levels);
        if (x)
            synthetic_draw(self->noise + offset, bytes / units * begin, bytes / units * end,
                           (uint8_t)(255 * target), x);
        int64_t first = classes ? 0 : s, last = first + 1;
        if (self->points) first = begin * each, last = end * each;
        for (int64_t i = first; y && i < last; i++)
            if (classes)
                ((int32_t *)y)[i] = label;
            else
                ((float *)y)[i] = target;
    }
}

static tr_status_t synthetic_read(tr_dataset_t *dataset, int64_t first, int64_t count,
                                  void *const *dst) {
    const synthetic_t *self = (const synthetic_t *)dataset;
    for (int64_t i = 0; i < count; i++)
        synthetic_make_sample(
            self, first + i,
            dst[0] ? (uint8_t *)dst[0] + i * dataset->info.field[0].sample_bytes : NULL,
            dst[1] ? (char *)dst[1] + i * dataset->info.field[1].sample_bytes : NULL);
    return TR_OK;
}

const tr_dataset_ops_t tr_dataset_synthetic_ops = {
    .name = "synthetic",
    .help = "noise with a pattern for each class, generated in memory",
    .open = synthetic_open,
    .close = synthetic_close,
    .read = synthetic_read};
