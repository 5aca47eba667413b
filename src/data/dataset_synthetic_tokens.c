/* Synthetic windows of tokens for benchmarks and tests. Token k has a probability of about 1 / (k +
 * 1) (Zipf's law): id = floor((V + 1)^u) - 1 with u uniform in [0, 1). Window i is a pure function
 * of i, the split, T and V. */
#include "shared.h"
#include "base/mem.h"
#include "base/rng.h"
#include <math.h>
#include <stdio.h>

#define VOCAB_SIZE 50257 /* GPT-2's, where nothing says another */

typedef struct {
    tr_dataset_t base;
    uint32_t split;
} synthetic_t;

static void synthetic_tokens_close(tr_dataset_t *dataset) {
    tr_free(&dataset);
}

static int32_t synthetic_tokens_draw(tr_rng_t *rng, int64_t vocab_size) {
    const int64_t id = (int64_t)exp(tr_rng_uniform(rng) * log((double)vocab_size + 1)) - 1;
    return (int32_t)min64(max64(id, 0), vocab_size - 1);
}

static tr_status_t synthetic_tokens_read(tr_dataset_t *dataset, int64_t first, int64_t count,
                                                void *const *dst) {
    const synthetic_t *self = (const synthetic_t *)dataset;
    const tr_dataset_info_t *info = &dataset->info;
    const int64_t T = info->field[0].shape.dim[0];
    int32_t *x = dst[0], *y = info->field_count > 1 ? dst[1] : NULL;
    for (int64_t i = 0; i < count; i++) {
        tr_rng_t rng = tr_rng_make(1 + self->split, TR_RNG_SYNTHETIC, 3, (uint64_t)(first + i));
        for (int64_t t = 0; t <= T; t++) {
            const int32_t id = synthetic_tokens_draw(&rng, info->classes);
            if (x && t < T) x[i * T + t] = id;
            if (y && t > 0) y[i * T + t - 1] = id;
        }
    }
    return TR_OK;
}

static tr_status_t synthetic_tokens_open(const tr_data_settings_t *settings, tr_split_t split,
                                         tr_dataset_t **out) {
    synthetic_t *self = NULL;
    const int64_t T = settings->context, windows = split == TR_SPLIT_TRAIN
                                                       ? settings->synthetic_samples
                                                       : max64(1, settings->synthetic_samples / 8);
    if (T < 1)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.format = synthetic_tokens requires a language model (model.type), "
                       "whose model.context is the length of a window.");
    TR_TRY(tr_alloc(sizeof *self, "synthetic tokens", &self));
    self->split = (uint32_t)split;
    tr_dataset_info_t *info = &self->base.info;
    *info = (tr_dataset_info_t){.samples = windows, .field_count = 2, .read_unit = 1};
    info->classes = settings->vocab_size > 0 ? settings->vocab_size : VOCAB_SIZE;
    info->tokens = windows * T + 1;
    info->field[0] = (tr_field_t){"x", TR_I32, TR_SHAPE(T), 4 * T, TR_FIELD_TOKENS};
    info->field[1] = (tr_field_t){"y", TR_I32, TR_SHAPE(T), 4 * T, TR_FIELD_LABELS};
    info->fingerprint = (uint64_t)windows * 0x9E3779B97F4A7C15u ^ (uint64_t)info->classes << 32 ^
                        (uint64_t)T << 8 ^ self->split;
    snprintf(info->description, sizeof info->description,
             "synthetic tokens of %lld, windows of %lld", (long long)info->classes, (long long)T);
    *out = &self->base;
    return TR_OK;
}

const tr_dataset_ops_t tr_dataset_synthetic_tokens_ops = {
    .name = "synthetic_tokens",
    .help = "tokens with the frequencies of Zipf's law, generated in memory",
    .open = synthetic_tokens_open,
    .close = synthetic_tokens_close,
    .read = synthetic_tokens_read};
