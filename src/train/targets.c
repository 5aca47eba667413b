/* Numbers to predict in units of their own: (y - mean) / std goes into the loss, and output * std + mean comes out of an evaluation. */
#include "targets.h"
#include "moments.h"
#include "trainer/log.h"
#include "trainer/ops.h"

#include <string.h>

#define SAMPLE_BYTES (64 << 20) /* of targets that auto looks at, at most */
#define GLANCE_BYTES (1 << 20)  /* to see whether values are fit to train on */
#define INPUT_BYTES  (1 << 16)  /* the same of inputs, whose chunks may be large */
#define INPUT_LEAST  8 /* samples that are looked at where they are large: one may be like no other */

static int field_of(const tr_session_t *s, const char *name) {
    for (int f = 0; f < s->info.field_count; f++)
        if (strcmp(s->info.field[f].name, name) == 0) return f;
    return -1;
}

/* -- settings -------------------------------------------------------------------------------------------- */

static bool is_auto(const char *text) {
    return strcmp(text, "auto") == 0;
}

static tr_status_t parse(const char *key, const char *text, bool positive, float *out, int *out_count) {
    bool good = tr_parse_floats(text, TR_TARGETS_MAX, out, out_count);
    if (*out_count > TR_TARGETS_MAX)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "%s has %d numbers, and at most %d are taken: normalise the targets when the file is made", key,
            *out_count, TR_TARGETS_MAX);
    for (int i = 0; good && positive && i < *out_count; i++) good = out[i] > 0;
    if (good) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG, "%s: expected auto, or %snumbers with commas between them, found '%s'", key,
                   positive ? "positive " : "", text);
}

/* One number serves for all where the other key has several. */
static tr_status_t match(tr_session_t *s, int means, int stds) {
    const int count = means > stds ? means : stds;
    for (int i = means; means == 1 && i < count; i++) s->target_mean[i] = s->target_mean[0];
    for (int i = stds; stds == 1 && i < count; i++) s->target_std[i] = s->target_std[0];
    if ((means > 1 && means < count) || (stds > 1 && stds < count))
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.target_mean has %d numbers and data.target_std %d: give one, or one a target",
                       means, stds);
    bool used = false;
    for (int i = 0; i < count; i++) used |= s->target_mean[i] != 0 || s->target_std[i] != 1;
    s->targets = used ? count : 0;
    return TR_OK;
}

static void warn_far(const tr_field_moments_t *m, int64_t targets) {
    for (int i = 0; i < m->count; i++) {
        if (!tr_target_is_far(m->of[i].mean, tr_stats_deviation(&m->of[i]))) continue;
        TR_WARN(
            "the targets have mean %.4g and standard deviation %.4g; training wants about 0 and 1, and may "
            "diverge or stand still. %s",
            m->of[i].mean, tr_stats_deviation(&m->of[i]),
            targets > TR_TARGETS_MAX ? "Normalise them when the file is made"
                                     : "Set data.target_mean=auto data.target_std=auto: predictions and "
                                       "scores stay in units of the data");
        return;
    }
}

static tr_status_t read_keys(tr_session_t *s, const tr_field_moments_t *m) {
    int means = m->count, stds = m->count;
    for (int i = 0; i < m->count; i++) {
        s->target_mean[i] = (float)m->of[i].mean;
        s->target_std[i] = tr_stats_deviation(&m->of[i]) > 0 ? (float)tr_stats_deviation(&m->of[i]) : 1;
    }
    if (!is_auto(s->data.target_mean))
        TR_TRY(parse("data.target_mean", s->data.target_mean, false, s->target_mean, &means));
    if (!is_auto(s->data.target_std))
        TR_TRY(parse("data.target_std", s->data.target_std, true, s->target_std, &stds));
    return match(s, means, stds);
}

/* One number for all would be no normalisation where they differ. */
static tr_status_t refuse_auto(int64_t targets) {
    return TR_FAIL(
        TR_ERR_CONFIG,
        "data.target_mean and data.target_std = auto take at most %d targets, and a sample has %lld: "
        "normalise them when the file is made, or give one number for all",
        TR_TARGETS_MAX, (long long)targets);
}

tr_status_t tr_targets_resolve(tr_session_t *s) {
    const int y = field_of(s, "y");
    const int64_t targets = y < 0 ? 1 : tr_field_width(&s->info.field[y]);
    const bool wants_moments = is_auto(s->data.target_mean) || is_auto(s->data.target_std);
    tr_field_moments_t m = {.count = 1};
    if (s->info.classes > 0 || (!s->params.prediction && y < 0)) return TR_OK;
    if (wants_moments && !s->params.training)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.target_mean and data.target_std = auto are of the training data, and what they "
                       "were is not known here: give the numbers");
    if (s->params.training && s->info.field[y].dtype != TR_F32)
        return wants_moments ? TR_FAIL(TR_ERR_CONFIG, "data.target_mean and data.target_std = auto want "
                                                      "targets of type f32: give the numbers")
                             : read_keys(s, &m);
    if (wants_moments && targets > TR_TARGETS_MAX) return refuse_auto(targets);
    if (s->params.training)
        TR_TRY(
            tr_field_moments(s->dataset[TR_SPLIT_TRAIN], y, wants_moments ? SAMPLE_BYTES : GLANCE_BYTES, &m));
    TR_TRY(read_keys(s, &m));
    if (s->targets == 0) warn_far(&m, targets);
    return TR_OK;
}

static bool is_one_of(const char *name, const char *a, const char *b) {
    return strcmp(name, a) == 0 || strcmp(name, b) == 0;
}

/* A norm before anything is learnt makes up for any units. Layers that are wrong are told where the model is built. */
static bool begins_with_norm(const tr_session_t *s) {
    tr_layer_spec_t *specs;
    int count, i = 0;
    bool norm = false;
    if (tr_layers_parse(tr_config_get(s->config, "model.layers"), &specs, &count) != TR_OK) return true;
    while (i < count && !norm && specs[i].block_count == 0 && !is_one_of(specs[i].name, "conv", "linear"))
        norm = is_one_of(specs[i++].name, "batchnorm", "layernorm");
    tr_layers_free(&specs, count);
    return norm;
}

/* The numbers to set, as far as a glance shows them: auto finds them in the file's attributes alone. */
static void warn_large(const tr_field_moments_t *m, int64_t channels, int large) {
    enum { SHOWN = 8 };
    tr_str_t keys = {0};
    if (channels > TR_CHANNELS_MAX)
        tr_str_printf(
            &keys,
            "%lld columns are too many for data.mean and data.std: normalise them when the file is made",
            (long long)channels);
    else if (channels > SHOWN)
        tr_str_append(&keys, "set data.mean and data.std (`trainer data FILE` says how)");
    else {
        tr_str_append(&keys, "set data.mean=");
        for (int i = 0; i < m->count; i++) tr_str_printf(&keys, "%s%.4g", i ? "," : "", m->of[i].mean);
        tr_str_append(&keys, " data.std=");
        for (int i = 0; i < m->count; i++) {
            const double deviation = tr_stats_deviation(&m->of[i]);
            tr_str_printf(&keys, "%s%.4g", i ? "," : "", deviation > 0 ? deviation : 1);
        }
        tr_str_append(&keys, " (`trainer data FILE` shows the numbers of more samples)");
    }
    TR_WARN("the inputs have mean %.4g and standard deviation %.4g; training wants about 0 and 1, and may "
            "stand still. Their file has no attributes mean and std that auto could take: %s, or begin with "
            "batchnorm",
            m->of[large].mean, tr_stats_deviation(&m->of[large]),
            keys.text ? keys.text : "set data.mean and data.std");
    tr_str_free(&keys);
}

static int64_t input_bytes(int64_t sample_bytes) {
    const int64_t most = SAMPLE_BYTES, several = (INPUT_LEAST - 1) * sample_bytes;
    return several < INPUT_BYTES ? INPUT_BYTES : several < most ? several : most;
}

/* Bytes are brought to [0, 1] where nothing else is said. */
tr_status_t tr_inputs_check(const tr_session_t *s) {
    const int x = field_of(s, "x");
    const tr_dtype_t dtype = x < 0 ? TR_U8 : s->info.field[x].dtype;
    tr_field_moments_t m;
    if (!s->params.training || (s->world && s->params.rank > 0) || dtype == TR_U8 || dtype == TR_BF16 ||
        s->info.channels > 0 || begins_with_norm(s))
        return TR_OK;
    TR_TRY(tr_field_moments(s->dataset[TR_SPLIT_TRAIN], x, input_bytes(s->info.field[x].sample_bytes), &m));
    for (int i = 0; i < m.count; i++) {
        if (!tr_input_is_large(m.of[i].mean, tr_stats_deviation(&m.of[i]))) continue;
        warn_large(&m, tr_field_width(&s->info.field[x]), i);
        return TR_OK;
    }
    return TR_OK;
}

void tr_targets_text(const tr_session_t *s, const float *values, const char *none, tr_str_t *out) {
    for (int i = 0; i < s->targets; i++) tr_str_printf(out, "%s%.9g", i ? "," : "", (double)values[i]);
    if (s->targets == 0) tr_str_append(out, none);
}

/* -- in the graph ---------------------------------------------------------------------------------------- */

/* x * scale + shift; the tables repeat over x's last dimension. */
static tr_status_t apply(tr_session_t *s, const char *const name[2], const float *scale, const float *shift,
                         tr_tensor_t *x) {
    const tr_shape_t shape = *tr_shape_of(s->g, *x);
    const int64_t width = shape.dim[shape.ndim - 1], elems = tr_shape_elems(&shape);
    tr_tensor_t tables[2];
    if (width % s->targets != 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.target_mean and data.target_std have %d numbers, but there are %lld targets: "
                       "give one, or one for each",
                       s->targets, (long long)width);
    TR_TRY(tr_const_values(s->g, name[0], scale, s->targets, &tables[0]));
    TR_TRY(tr_const_values(s->g, name[1], shift, s->targets, &tables[1]));
    TR_TRY(tr_reshape(s->g, *x, &TR_SHAPE(elems / s->targets, s->targets), x));
    TR_TRY(tr_cast_normalize(s->g, *x, tables[0], tables[1], x));
    return tr_reshape(s->g, *x, &shape, x);
}

tr_status_t tr_targets_normalize(tr_session_t *s, tr_tensor_t *y) {
    static const char *const names[] = {"target.scale", "target.shift"};
    float scale[TR_TARGETS_MAX], shift[TR_TARGETS_MAX];
    if (s->targets == 0) return TR_OK;
    for (int i = 0; i < s->targets; i++) {
        scale[i] = 1 / s->target_std[i];
        shift[i] = -s->target_mean[i] / s->target_std[i];
    }
    return apply(s, names, scale, shift, y);
}

tr_status_t tr_targets_restore(tr_session_t *s, tr_tensor_t *output) {
    static const char *const names[] = {"target.std", "target.mean"};
    if (s->targets == 0 || tr_is_none(*output)) return TR_OK;
    return apply(s, names, s->target_std, s->target_mean, output);
}
