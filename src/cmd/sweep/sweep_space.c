/* The values of a sweep: lists, ranges, and the points that they span. */
#include "sweep.h"

#include "base/json_text.h"
#include "base/rng.h"
#include <math.h>
#include <string.h>

enum { DIGITS = 4 }; /* of a number that is drawn */

/* The values of one key. */
typedef struct {
    char *key;
    TR_VEC(char *) values; /* of a list */
    bool is_range, is_whole;
    double low, high;
} axis_t;
typedef TR_VEC(axis_t) axes_t;

static void axes_free(axes_t *axes) {
    for (size_t i = 0; i < axes->count; i++) {
        axis_t *axis = &axes->data[i];
        tr_free(&axis->key);
        for (size_t k = 0; k < axis->values.count; k++) tr_free(&axis->values.data[k]);
        tr_vec_free(&axis->values);
    }
    tr_vec_free(axes);
}

/* A value that is already listed is left out. */
static tr_status_t axis_add_value(axis_t *axis, const char *value) {
    char *own = NULL;
    for (size_t i = 0; i < axis->values.count; i++)
        if (strcmp(axis->values.data[i], value) == 0) return TR_OK;
    TR_TRY(tr_strdup(value, &own));
    const tr_status_t status = tr_vec_push(&axis->values, own);
    if (status != TR_OK) tr_free(&own);
    return status;
}

/* "1e-4..1e-2" of a key with numbers. The values themselves are checked with the members. */
static tr_status_t axis_parse_range(axis_t *axis, const tr_config_field_t *field, char *text) {
    char *dots = strstr(text, "..");
    *dots = '\0';
    const bool is_parsed = tr_parse_float(text, &axis->low) && tr_parse_float(dots + 2, &axis->high);
    *dots = '.';
    if (!is_parsed || axis->low >= axis->high)
        return TR_FAIL(TR_ERR_USAGE,
                       "%s=%s: expected a range LOW..HIGH of two numbers, the lower one first",
                       axis->key, text);
    if (field->min <= field->max && (axis->low < field->min || axis->high > field->max))
        return TR_FAIL(TR_ERR_USAGE, "%s=%s: expected a range within %.15g..%.15g", axis->key, text,
                       field->min, field->max);
    axis->is_range = true;
    axis->is_whole = field->type != TR_TYPE_FLOAT;
    if (axis->is_whole && (axis->low != floor(axis->low) || axis->high != floor(axis->high)))
        return TR_FAIL(TR_ERR_USAGE, "%s=%s: expected a range of whole numbers", axis->key, text);
    return TR_OK;
}

/* "A,B,C". The configuration refuses an unknown key with its usual message. A key with text may have
 * commas in its value (model.layers, data.mean), unless the text is a name (optimizer.type), as its
 * default shows. */
static tr_status_t axis_parse_list(axis_t *axis, const tr_config_field_t *field, char *text) {
    const char *fallback = field ? field->fallback : "";
    const bool is_computed = strncmp(axis->key, "data.", 5) == 0 && strcmp(fallback, "auto") == 0,
               is_text = !field || field->type == TR_TYPE_STRING;
    if (is_text && (!*fallback || strchr(fallback, ',') || is_computed))
        return axis_add_value(axis, text);
    for (char *value = text, *rest; value; value = rest) {
        if ((rest = strchr(value, ','))) *rest++ = '\0';
        TR_TRY(axis_add_value(axis, value));
    }
    return TR_OK;
}

static tr_status_t axes_parse(const tr_config_t *base, cmd_words_t words, axes_t *axes) {
    for (int i = 0; i < words.count; i++) {
        const char *equals = strchr(words.word[i], '=');
        const int length = equals ? (int)(equals - words.word[i]) : 0;
        axis_t axis = {.key = NULL}, *found = NULL;
        tr_str_t key = {0};
        char *text = NULL;
        if (length == 0)
            return TR_FAIL(TR_ERR_USAGE, "sweep: expected KEY=VALUES, found '%s'", words.word[i]);
        if (strncmp(words.word[i], "run.", 4) == 0)
            return TR_FAIL(TR_ERR_USAGE,
                           "%.*s: expected a key of the training; the sweep sets the keys of the "
                           "run folder itself",
                           length, words.word[i]);
        for (size_t k = 0; k < axes->count; k++)
            if (strncmp(axes->data[k].key, words.word[i], (size_t)length) == 0 &&
                axes->data[k].key[length] == '\0')
                found = &axes->data[k];
        if (!found) {
            tr_str_append_bytes(&key, words.word[i], (size_t)length);
            TR_TRY(tr_str_take(&key, &axis.key));
            TR_TRY(tr_vec_push(axes, axis));
            found = &axes->data[axes->count - 1];
        }
        const tr_config_field_t *field = tr_config_field(base, found->key);
        const bool has_number =
            field && (field->type == TR_TYPE_INT || field->type == TR_TYPE_FLOAT ||
                      field->type == TR_TYPE_AUTO_INT);
        if (found->is_range)
            return TR_FAIL(TR_ERR_USAGE, "%s: the key has a range already", words.word[i]);
        TR_TRY(tr_strdup(equals + 1, &text));
        const tr_status_t status = has_number && strstr(text, "..") && found->values.count == 0
                                       ? axis_parse_range(found, field, text)
                                       : axis_parse_list(found, field, text);
        tr_free(&text);
        TR_TRY(status);
    }
    return TR_OK;
}

/* Value `draw` of a range depends on the key, the seed and the number of the draw alone. A range
 * over a factor of 10 and more is drawn by its logarithm. */
static void axis_draw(const axis_t *axis, int64_t draw, int64_t seed, tr_str_t *out) {
    const bool is_log = axis->low > 0 && axis->high >= 10 * axis->low;
    tr_rng_t rng = tr_rng_make((uint64_t)seed, TR_RNG_SWEEP, (uint32_t)tr_hash_name(axis->key),
                               (uint64_t)draw);
    /* A whole number stands for an interval of length 1. */
    const double half = axis->is_whole ? 0.5 : 0, u = tr_rng_uniform(&rng);
    const double low = is_log ? log(axis->low - half) : axis->low - half,
                 high = is_log ? log(axis->high + half) : axis->high + half;
    double value = is_log ? exp(low + u * (high - low)) : low + u * (high - low);
    value = axis->is_whole ? round(value) : tr_round_digits(value, DIGITS);
    tr_str_printf(out, "%.15g", fmin(fmax(value, axis->low), axis->high));
}

/* The point with this draw and this combination of the listed values: the last key varies first. */
static tr_status_t axes_point(const axes_t *axes, int64_t draw, int64_t seed, int64_t combination,
                              json_t **out) {
    tr_status_t status = TR_OK;
    tr_str_t drawn = {0};
    *out = json_object();
    for (size_t i = 0; i < axes->count && status == TR_OK; i++) {
        const axis_t *axis = &axes->data[i];
        int64_t below = 1; /* combinations of the keys after this one */
        for (size_t k = i + 1; k < axes->count; k++)
            if (!axes->data[k].is_range) below *= (int64_t)axes->data[k].values.count;
        drawn.length = 0;
        if (axis->is_range)
            axis_draw(axis, draw, seed, &drawn);
        else
            tr_str_append(&drawn,
                          axis->values.data[combination / below % (int64_t)axis->values.count]);
        status = drawn.status;
        if (status == TR_OK &&
            json_object_set_new(*out, axis->key, json_string(drawn.text)) != 0)
            status = TR_FAIL(TR_ERR_USAGE, "%s: expected text in UTF-8", axis->key);
    }
    tr_str_free(&drawn);
    return status;
}

tr_status_t sweep_points(const tr_config_t *base, cmd_words_t words, int64_t draws, int64_t seed,
                         sweep_members_t *out) {
    axes_t axes = {0};
    tr_status_t status;
    int64_t combinations = 1;
    const char *range = NULL;
    TR_TRY_GOTO(axes_parse(base, words, &axes), done);
    for (size_t i = 0; i < axes.count; i++) {
        if (axes.data[i].is_range) range = axes.data[i].key;
        if (!axes.data[i].is_range) combinations *= (int64_t)axes.data[i].values.count;
        if (combinations * (draws > 0 ? draws : 1) > SWEEP_MAX_MEMBERS)
            TR_TRY_GOTO(TR_FAIL(TR_ERR_USAGE, "sweep: expected at most %d members, found more",
                                SWEEP_MAX_MEMBERS),
                        done);
    }
    if (range && draws == 0)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_USAGE, "%s has a range: --random N says how many points to draw",
                            range),
                    done);
    if (!range && draws > 0)
        TR_TRY_GOTO(
            TR_FAIL(TR_ERR_USAGE, "--random %lld: expected a key with a range, KEY=LOW..HIGH",
                    (long long)draws),
            done);
    for (int64_t i = 0; i < combinations * (range ? draws : 1); i++) {
        sweep_member_t member = {.best = NAN};
        status = axes_point(&axes, i / combinations, seed, i % combinations, &member.settings);
        if (status == TR_OK) status = tr_vec_push(out, member);
        if (status != TR_OK) json_decref(member.settings);
        TR_TRY_GOTO(status, done);
    }
done:
    axes_free(&axes);
    return status;
}
