/* Checks the range of the training inputs, and warns of units that train badly. */
#include "inputs.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "model/layer.h"

#include <string.h>

#define TARGET_BYTES (1 << 20)
#define ROUNDING     1e-6 /* of shares that were computed in floats */

static bool inputs_is_one_of(const char *name, const char *a, const char *b) {
    return strcmp(name, a) == 0 || strcmp(name, b) == 0;
}

/* A normalisation layer before the first layer with weights makes the units irrelevant. Errors in
 * the layers are reported when the model is built. */
static bool begins_with_norm(const tr_session_t *s) {
    tr_layer_spec_t *specs;
    int count, i = 0;
    bool norm = false;
    if (strcmp(s->model.type, "sequential") != 0) return false;
    if (tr_layers_parse(tr_config_get(s->config, "model.layers"), &specs, &count) != TR_OK)
        return true;
    while (i < count && !norm && specs[i].block_count == 0 &&
           !inputs_is_one_of(specs[i].name, "conv", "linear"))
        norm = inputs_is_one_of(specs[i++].name, "batchnorm", "layernorm");
    tr_layers_free(&specs, count);
    return norm;
}

/* Warns of an activation behind the last layer, which keeps the outputs from being what the loss expects. */
static void warn_last_activation(const tr_session_t *s) {
    const bool has_scores = s->info.classes > 0 || s->model.loss == TR_LOSS_BINARY_CROSS_ENTROPY;
    tr_layer_spec_t *specs;
    int count;
    if (strcmp(s->model.type, "sequential") != 0 ||
        (!has_scores && s->preprocess->target.mean.count == 0))
        return;
    if (tr_layers_parse(tr_config_get(s->config, "model.layers"), &specs, &count) != TR_OK) {
        tr_error_clear(); /* reported when the model is built */
        return;
    }
    if (count > 0 && tr_has_word("relu leakyrelu gelu silu sigmoid tanh", specs[count - 1].name))
        TR_WARN("model.layers ends with %s, but %s. Remove this layer%s", specs[count - 1].name,
                has_scores ? "the loss computes probabilities from any numbers itself"
                           : "the targets are normalised to mean 0 and standard deviation 1",
                has_scores ? "" : ", or set data.target_mean = 0 and data.target_std = 1");
    tr_layers_free(&specs, count);
}

static tr_status_t sample_targets(tr_dataset_t *d, int y, tr_sample_stats_t *out) {
    return tr_dataset_sample(d, y, TARGET_BYTES, 8, 0.01, out);
}

static void warn_rounded(const tr_sample_stats_t *stats, bool are_targets) {
    char text[640];
    if (tr_is_rounded_away(stats->of, stats->channels, are_targets, text)) TR_WARN("%s", text);
}

/* Warns if a field of a split, or of data for trained weights, has other units than the training data. */
static void warn_units(const tr_session_t *s, tr_dataset_t *d, int field) {
    const bool are_inputs = strcmp(d->info.field[field].name, "x") == 0;
    tr_sample_stats_t stats = {0};
    tr_str_t text = {0};
    if ((are_inputs ? tr_preprocess_sample(d, &stats) : sample_targets(d, field, &stats)) == TR_OK)
        tr_preprocess_check(s->preprocess, &stats,
                            are_inputs ? TR_CHECK_OTHER_INPUTS : TR_CHECK_TARGETS, &text);
    else
        tr_error_clear(); /* the loader says what cannot be read */
    if (text.text) TR_WARN("%s: %s", d->info.description, text.text);
    tr_str_free(&text);
    tr_free(&stats.of);
}

/* Of data.valid and data.test, unless they are a part of the training data. */
static void warn_units_of_splits(const tr_session_t *s, int field) {
    const bool is_part = s->data.valid_fraction > 0 || strcmp(s->data.fold, "none") != 0;
    for (int split = is_part ? TR_SPLIT_TEST : TR_SPLIT_VALID; split <= TR_SPLIT_TEST; split++)
        if (s->dataset[split]) warn_units(s, s->dataset[split], field);
}

/* Targets of binary_cross_entropy are probabilities. */
static tr_status_t check_shares(const tr_session_t *s, int y) {
    tr_status_t status = TR_OK;
    for (int split = 0; split < 3 && status == TR_OK; split++) {
        tr_sample_stats_t stats = {0};
        if (!s->dataset[split]) continue;
        status = sample_targets(s->dataset[split], y, &stats);
        if (status != TR_OK && split != TR_SPLIT_TRAIN) { /* the loader says what cannot be read */
            tr_error_clear();
            status = TR_OK;
            continue;
        }
        for (int64_t c = 0; c < stats.channels && status == TR_OK; c++)
            if (stats.of[c].min < 0 || stats.of[c].max > 1 + ROUNDING)
                status = TR_FAIL(
                    TR_ERR_DATA,
                    "model.loss = binary_cross_entropy: expected targets from 0 to 1, "
                    "found %g to %g in channel %lld of y of data.%s. For masks of two values "
                    "such as 0 and 255, set data.label_values = 0,255; otherwise set another "
                    "model.loss.",
                    stats.of[c].min, stats.of[c].max, (long long)c,
                    tr_split_name((tr_split_t)split));
        tr_free(&stats.of);
    }
    return status;
}

static tr_status_t check_targets(const tr_session_t *s) {
    const int y = tr_field_find(&s->info, "y");
    tr_sample_stats_t stats = {0};
    tr_str_t doubt = {0};
    tr_status_t status = TR_OK;
    if (y < 0 || s->info.classes > 0) return TR_OK;
    if (s->model.loss == TR_LOSS_BINARY_CROSS_ENTROPY) {
        TR_TRY(check_shares(s, y));
    } else {
        TR_TRY(tr_targets_doubt(s->dataset[TR_SPLIT_TRAIN], &doubt));
        if (doubt.text) TR_WARN("%s", doubt.text);
        tr_str_free(&doubt);
    }
    if (s->info.is_rounded[y]) status = sample_targets(s->dataset[TR_SPLIT_TRAIN], y, &stats);
    if (stats.of && status == TR_OK) warn_rounded(&stats, true);
    tr_free(&stats.of);
    if (status == TR_OK && s->preprocess->target.mean.count > 0) warn_units_of_splits(s, y);
    return status;
}

tr_status_t tr_inputs_check(const tr_session_t *s) {
    tr_sample_stats_t stats = {0};
    tr_str_t text = {0};
    char sentinel[640];
    const int x = tr_field_find(&s->info, "x");
    if (x < 0 || s->info.field[x].kind == TR_FIELD_TOKENS) return TR_OK;
    const bool trains = tr_session_trains(s), is_free = begins_with_norm(s);
    tr_dataset_t *const d = s->dataset[trains ? TR_SPLIT_TRAIN : s->params.split];
    if (!trains && d && !is_free && s->preprocess->input.mean.count > 0) warn_units(s, d, x);
    if (!trains || s->params.trained_preprocess) return TR_OK;
    const bool may_be_rounded = s->info.is_rounded[x] || s->info.field[x].dtype == TR_I32;
    tr_status_t status = tr_preprocess_sample(d, &stats);
    if (status == TR_OK && may_be_rounded) warn_rounded(&stats, false);
    if (status == TR_OK && !is_free)
        tr_preprocess_check(s->preprocess, &stats, TR_CHECK_TRAINING_INPUTS, &text);
    if (text.text) TR_WARN("%s", text.text);
    if (status == TR_OK && tr_has_sentinel(&stats, &s->info.field[x], sentinel))
        TR_WARN("%s", sentinel);
    warn_last_activation(s);
    if (status == TR_OK && !is_free && !text.text) warn_units_of_splits(s, x);
    tr_str_free(&text);
    tr_free(&stats.of);
    return status == TR_OK ? check_targets(s) : status;
}
