/* Numbers to predict in units of their own: (y - mean) / std goes into the loss, and output * std + mean comes out of an evaluation. */
#include "targets.h"
#include "moments.h"
#include "trainer/log.h"
#include "trainer/ops.h"

#include <string.h>

#define SAMPLE_BYTES (64 << 20) /* of targets that auto looks at, at most */
#define GLANCE_BYTES (1 << 20)  /* to see whether values are fit to train on */

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

static void warn_rounded(const tr_field_moments_t *m) {
    char text[640];
    if (tr_is_rounded_away(m->of, m->count, true, text)) TR_WARN("%s", text);
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
    const int y = tr_field_of(&s->info, "y");
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
        TR_TRY(tr_field_moments(s->dataset[TR_SPLIT_TRAIN], y, targets,
                                wants_moments ? SAMPLE_BYTES : GLANCE_BYTES, &m));
    TR_TRY(read_keys(s, &m));
    warn_rounded(&m);
    if (s->targets == 0) warn_far(&m, targets);
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
