/* Checks the range of the training inputs, and warns of units that train badly. */
#include "inputs.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "model/layer.h"

#include <string.h>

#define TARGET_BYTES (1 << 20)

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

static void warn_rounded(const tr_sample_stats_t *stats, bool are_targets) {
    char text[640];
    if (tr_is_rounded_away(stats->of, stats->channels, are_targets, text)) TR_WARN("%s", text);
}

static tr_status_t check_targets(const tr_session_t *s) {
    tr_sample_stats_t stats = {0};
    const int y = tr_field_find(&s->info, "y");
    const bool are_shares = s->model.loss == TR_LOSS_BINARY_CROSS_ENTROPY;
    tr_str_t doubt = {0};
    if (!are_shares) TR_TRY(tr_targets_doubt(s->dataset[TR_SPLIT_TRAIN], &doubt));
    if (doubt.text) TR_WARN("%s", doubt.text);
    tr_str_free(&doubt);
    if (y < 0 || s->info.classes > 0 || !(s->info.is_rounded[y] || are_shares)) return TR_OK;
    tr_status_t status =
        tr_dataset_sample(s->dataset[TR_SPLIT_TRAIN], y, TARGET_BYTES, 8, 0.01, &stats);
    if (status == TR_OK && s->info.is_rounded[y]) warn_rounded(&stats, true);
    for (int64_t c = 0; c < stats.channels && are_shares && status == TR_OK; c++)
        if (stats.of[c].min < 0 || stats.of[c].max > 1)
            status =
                TR_FAIL(TR_ERR_DATA,
                        "model.loss = binary_cross_entropy: expected targets from 0 to 1, found %g "
                        "to %g in channel %lld of data.y. For masks of two values such as 0 and "
                        "255, set data.label_values = 0,255; otherwise set another model.loss.",
                        stats.of[c].min, stats.of[c].max, (long long)c);
    tr_free(&stats.of);
    return status;
}

tr_status_t tr_inputs_check(const tr_session_t *s) {
    tr_sample_stats_t stats = {0};
    tr_str_t text = {0};
    char sentinel[640];
    const int x = tr_field_find(&s->info, "x");
    if (x < 0 || !tr_session_trains(s) || s->params.trained_preprocess) return TR_OK;
    if (s->info.field[x].kind == TR_FIELD_TOKENS) return TR_OK;
    const bool may_be_rounded = s->info.is_rounded[x] || s->info.field[x].dtype == TR_I32;
    tr_status_t status = tr_preprocess_sample(s->dataset[TR_SPLIT_TRAIN], &stats);
    if (status == TR_OK && may_be_rounded) warn_rounded(&stats, false);
    if (status == TR_OK && !begins_with_norm(s)) tr_preprocess_check(s->preprocess, &stats, &text);
    if (text.text) TR_WARN("%s", text.text);
    if (status == TR_OK && tr_has_sentinel(&stats, &s->info.field[x], sentinel))
        TR_WARN("%s", sentinel);
    tr_str_free(&text);
    tr_free(&stats.of);
    return status == TR_OK ? check_targets(s) : status;
}
