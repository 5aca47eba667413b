/* Numbers to predict in units of their own: (y - mean) / std goes into the loss, and output * std + mean comes out of an evaluation. */
#include "targets.h"
#include "trainer/log.h"
#include "trainer/mem.h"
#include "trainer/ops.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#define SAMPLE_BYTES (64 << 20) /* of targets that auto looks at, at most */
#define GLANCE_BYTES (1 << 20)  /* to see whether they are fit to train on */
#define PIECE_BYTES  (1 << 16)

/* -- moments --------------------------------------------------------------------------------------------- */

typedef struct {
    int count; /* of targets told apart, 1: all alike */
    double samples, mean[TR_TARGETS_MAX], squares[TR_TARGETS_MAX];
} moments_t;

static int y_field(const tr_session_t *s) {
    for (int f = 0; f < s->info.field_count; f++)
        if (strcmp(s->info.field[f].name, "y") == 0) return f;
    return -1;
}

static double deviation(const moments_t *m, int i) {
    return m->samples > 0 ? sqrt(m->squares[i] / m->samples) : 0;
}

/* Welford's running moments: no difference of large sums. */
static void add_values(moments_t *m, const float *values, int64_t rows) {
    for (int64_t row = 0; row < rows; row++) {
        m->samples++;
        for (int i = 0; i < m->count; i++) {
            const double value = values[row * m->count + i], before = value - m->mean[i];
            m->mean[i] += before / m->samples;
            m->squares[i] += before * (value - m->mean[i]);
        }
    }
}

/* Of the training data, or of pieces spread evenly over them where they are many. The same on every rank. */
static tr_status_t measure(const tr_session_t *s, int64_t bytes, moments_t *m) {
    tr_dataset_t *data = s->dataset[TR_SPLIT_TRAIN];
    const int y = y_field(s);
    const tr_field_t *field = &s->info.field[y];
    const int64_t n = data->info.samples, one = field->sample_bytes, last = field->shape.ndim - 1,
                  rows = PIECE_BYTES > one ? PIECE_BYTES / one : 1,
                  wanted = bytes / one < n ? bytes / one + 1 : n, pieces = (wanted + rows - 1) / rows,
                  width = last < 0 ? 1 : field->shape.dim[last];
    char *values = NULL;
    tr_status_t status = TR_OK;
    *m = (moments_t){.count = width <= TR_TARGETS_MAX ? (int)width : 1};
    TR_TRY(tr_alloc((size_t)(rows * one), "targets", &values));
    for (int64_t p = 0; p < pieces && status == TR_OK; p++) {
        void *dst[TR_DATASET_MAX_FIELDS] = {0};
        const int64_t first = n * p / pieces, behind = n * (p + 1) / pieces - first,
                      count = behind < rows ? behind : rows;
        dst[y] = values;
        status = data->ops->read(data, first, count, dst);
        if (status == TR_OK)
            add_values(m, (const float *)(void *)values,
                       count * one / (int64_t)sizeof(float) / (int64_t)m->count);
    }
    tr_free(&values);
    return status;
}

/* -- settings -------------------------------------------------------------------------------------------- */

static bool is_auto(const char *text) {
    return strcmp(text, "auto") == 0;
}

static tr_status_t parse(const char *key, const char *text, bool positive, float *out, int *out_count) {
    bool good = tr_parse_floats(text, TR_TARGETS_MAX, out, out_count);
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

static void warn_far(const moments_t *m) {
    for (int i = 0; i < m->count; i++) {
        if (!tr_target_is_far(m->mean[i], deviation(m, i))) continue;
        TR_WARN(
            "the targets have mean %.4g and standard deviation %.4g; training wants about 0 and 1, and may "
            "diverge or stand still. Set data.target_mean=auto data.target_std=auto: predictions and "
            "scores stay in units of the data",
            m->mean[i], deviation(m, i));
        return;
    }
}

static tr_status_t read_keys(tr_session_t *s, const moments_t *m) {
    int means = m->count, stds = m->count;
    for (int i = 0; i < m->count; i++) {
        s->target_mean[i] = (float)m->mean[i];
        s->target_std[i] = deviation(m, i) > 0 ? (float)deviation(m, i) : 1;
    }
    if (!is_auto(s->data.target_mean))
        TR_TRY(parse("data.target_mean", s->data.target_mean, false, s->target_mean, &means));
    if (!is_auto(s->data.target_std))
        TR_TRY(parse("data.target_std", s->data.target_std, true, s->target_std, &stds));
    return match(s, means, stds);
}

tr_status_t tr_targets_resolve(tr_session_t *s) {
    const bool wants_moments = is_auto(s->data.target_mean) || is_auto(s->data.target_std);
    moments_t m = {.count = 1};
    if (s->info.classes > 0 || (!s->params.prediction && y_field(s) < 0)) return TR_OK;
    if (wants_moments && !s->params.training)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.target_mean and data.target_std = auto are of the training data, and what they "
                       "were is not known here: give the numbers");
    if (s->params.training && s->info.field[y_field(s)].dtype != TR_F32)
        return wants_moments ? TR_FAIL(TR_ERR_CONFIG, "data.target_mean and data.target_std = auto want "
                                                      "targets of type f32: give the numbers")
                             : read_keys(s, &m);
    if (s->params.training) TR_TRY(measure(s, wants_moments ? SAMPLE_BYTES : GLANCE_BYTES, &m));
    TR_TRY(read_keys(s, &m));
    if (s->targets == 0) warn_far(&m);
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
