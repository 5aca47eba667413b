/* What is said of the inputs before a training begins. */
#include "inputs.h"
#include "moments.h"
#include "trainer/log.h"
#include "trainer/model.h"

#include <math.h>
#include <string.h>

#define MOST_BYTES   (64 << 20) /* of inputs that are looked at */
#define GLANCE_BYTES (1 << 16)  /* usually: their chunks may be large */
#define NARROW       16         /* channels of a series, at most, where its shape alone tells */
#define LEAST        8 /* samples that are looked at where they are large: one may be like no other */

/* Of which nothing is told by their size: bytes become 0 to 1, and bf16 is made for the network. */
static bool has_no_units(const tr_field_t *f) {
    return f->dtype == TR_U8 || f->dtype == TR_BF16;
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
        for (int i = 0; i < m->count; i++) tr_str_printf(&keys, "%s%.9g", i ? "," : "", m->of[i].mean);
        tr_str_append(&keys, " data.std=");
        for (int i = 0; i < m->count; i++) {
            const double deviation = tr_stats_deviation(&m->of[i]);
            tr_str_printf(&keys, "%s%.9g", i ? "," : "", deviation > 0 ? deviation : 1);
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
    const int64_t most = MOST_BYTES, several = (LEAST - 1) * sample_bytes;
    return several < GLANCE_BYTES ? GLANCE_BYTES : several < most ? several : most;
}

/* Images that are so narrow are rare. */
static bool is_series_shape(int64_t rows, int64_t columns) {
    const int64_t less = rows < columns ? rows : columns, more = rows < columns ? columns : rows;
    return less <= NARROW && 4 * less <= more;
}

/* Neighbours in an image are alike, but for its edges; what several instruments measure is not. */
static bool are_columns_unlike(const tr_field_moments_t *m) {
    int unlike = 0;
    for (int i = 1; i < m->count; i++) {
        const double a = tr_stats_deviation(&m->of[i - 1]), b = tr_stats_deviation(&m->of[i]),
                     distance = fabs(m->of[i].mean - m->of[i - 1].mean);
        unlike += distance > 3 * (a + b) || (a > 0 && b > 5 * a) || (b > 0 && a > 5 * b);
    }
    return 2 * unlike > m->count - 1;
}

static tr_status_t check_guess(const tr_session_t *s, int x) {
    const tr_field_t *f = &s->info.field[x];
    const int64_t rows = f->shape.dim[0], columns = f->shape.dim[1];
    char text[256];
    bool is_series = is_series_shape(rows, columns);
    if (!is_series && !has_no_units(f)) {
        tr_field_moments_t m;
        TR_TRY(tr_field_moments(s->dataset[TR_SPLIT_TRAIN], x, columns, input_bytes(f->sample_bytes), &m));
        is_series = are_columns_unlike(&m);
    }
    if (is_series)
        TR_WARN("the inputs are %s; nhw says that they are images", tr_image_guess_text(&f->shape, text));
    return TR_OK;
}

static void warn_of(const tr_field_moments_t *m, int64_t channels, bool may_be_large) {
    char text[640];
    if (tr_is_rounded_away(m->of, m->count, false, text)) TR_WARN("%s", text);
    for (int i = 0; i < m->count && may_be_large; i++) {
        if (!tr_input_is_large(m->of[i].mean, tr_stats_deviation(&m->of[i]))) continue;
        warn_large(m, channels, i);
        return;
    }
}

/* Bytes are brought to [0, 1] where nothing else is said. */
tr_status_t tr_inputs_check(const tr_session_t *s) {
    const int x = tr_field_of(&s->info, "x");
    if (x < 0 || !s->params.training || (s->world && s->params.rank > 0)) return TR_OK;
    const tr_field_t *f = &s->info.field[x];
    if (f->kind == TR_FIELD_TOKENS) return TR_OK;
    if (s->info.is_image_guessed) TR_TRY(check_guess(s, x));
    if (has_no_units(f)) return TR_OK;
    const bool may_be_large = s->info.channels == 0 && !begins_with_norm(s),
               may_be_rounded = s->info.is_rounded[x] || f->dtype == TR_I32;
    tr_field_moments_t m;
    if (!may_be_large && !may_be_rounded) return TR_OK;
    TR_TRY(
        tr_field_moments(s->dataset[TR_SPLIT_TRAIN], x, tr_field_width(f), input_bytes(f->sample_bytes), &m));
    warn_of(&m, tr_field_width(f), may_be_large);
    return TR_OK;
}
