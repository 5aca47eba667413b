/* state.json: what a run says of its order and its data, and what must agree for another to go on from it or to evaluate its weights. */
#include "targets.h"
#include "state.h"
#include "trainer/log.h"
#include "trainer/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METADATA_KEY "trainer"

/* -- writing it ------------------------------------------------------------------------------------------ */

static json_t *order_json(const tr_session_t *s) {
    const tr_order_t *o = &s->order;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "seed", (json_int_t)o->seed, "samples",
                     (json_int_t)o->samples, "batch_size", (json_int_t)o->batch_size, "micro_batch",
                     (json_int_t)o->micro_batch, "block", (json_int_t)o->block, "shuffle",
                     (json_int_t)o->shuffle);
}

/* NULL where memory was short: half a text would pass for the whole. */
static json_t *take_text(tr_str_t *text) {
    json_t *result = text->status == TR_OK ? json_string(text->text ? text->text : "") : NULL;
    tr_str_free(text);
    return result;
}

/* "33.3,12": the normalisation of x as it was done, in the form of data.mean. */
static json_t *moments_json(const tr_session_t *s, const float *values, double fallback) {
    tr_str_t text = {0};
    for (int c = 0; c < s->info.channels; c++)
        tr_str_printf(&text, "%s%.9g", c ? "," : "", (double)values[c]);
    if (s->info.channels == 0) tr_str_printf(&text, "%g", fallback);
    return take_text(&text);
}

static json_t *targets_json(const tr_session_t *s, const float *values, const char *none) {
    tr_str_t text = {0};
    tr_targets_text(s, values, none, &text);
    return take_text(&text);
}

static const tr_field_t *input_field(const tr_session_t *s) {
    for (int f = 0; f < s->info.field_count; f++)
        if (strcmp(s->info.field[f].name, "x") == 0) return &s->info.field[f];
    return NULL;
}

/* None where one is not UTF-8: JSON cannot hold it, and the others would move up. */
static json_t *names_json(const tr_names_t *names) {
    bool is_utf8 = true;
    json_t *array = json_array();
    for (int64_t i = 0; i < names->count; i++) {
        const size_t bytes = strlen(names->name[i]);
        is_utf8 = is_utf8 && tr_utf8_bytes(names->name[i], bytes) == bytes;
    }
    for (int64_t i = 0; is_utf8 && i < names->count; i++)
        if (json_array_append_new(array, json_string(names->name[i])) != 0) {
            json_decref(array);
            return NULL;
        }
    return array;
}

static bool add_names(const tr_session_t *s, json_t *data) {
    const tr_dataset_t *train = s->dataset[TR_SPLIT_TRAIN];
    bool added = true;
    for (int list = 0; train && list < TR_NAMES_LISTS; list++)
        added =
            json_object_set_new(data, tr_names_key(list), names_json(&train->info.names[list])) == 0 && added;
    return added;
}

/* What an evaluation on other data has to do as this training did; NULL: no memory. */
static json_t *data_json(const tr_session_t *s) {
    const tr_field_t *x = input_field(s);
    const bool scaled = x && x->dtype == TR_U8; /* programs.c: bytes without statistics go to [0, 1] */
    json_t *data =
        json_pack("{s:I, s:o, s:o, s:o, s:o, s:s}", "classes", (json_int_t)s->info.classes, "mean",
                  moments_json(s, s->info.mean, 0), "std", moments_json(s, s->info.std, scaled ? 255 : 1),
                  "target_mean", targets_json(s, s->target_mean, "0"), "target_std",
                  targets_json(s, s->target_std, "1"), "x", x ? tr_dtype_name(x->dtype) : "");
    bool added = add_names(s, data);
    if (x && x->shape.ndim == 1)
        added = json_object_set_new(data, "inputs", json_integer(x->shape.dim[0])) == 0 && added;
    if (added) return data;
    json_decref(data);
    return NULL;
}

static void format_fingerprint(const tr_session_t *s, char text[32]) {
    snprintf(text, 32, "%016llx", (unsigned long long)s->info.fingerprint);
}

json_t *tr_state_json(const tr_session_t *s, int64_t step) {
    char fingerprint[32];
    tr_str_t config = {0};
    format_fingerprint(s, fingerprint);
    (void)tr_config_serialize(s->config, &config); /* its failure stays in `config` */
    return json_pack("{s:i, s:I, s:I, s:f, s:o, s:o, s:s, s:s, s:i, s:o}", "format", 1, "step",
                     (json_int_t)step, "samples", (json_int_t)(step * s->order.batch_size), "epoch",
                     (double)step / s->steps_per_epoch, "order", order_json(s), "data", data_json(s),
                     "data_fingerprint", fingerprint, "dataset", s->info.description, "ranks", s->params.size,
                     "config", take_text(&config));
}

/* -- what it says ---------------------------------------------------------------------------------------- */

char *tr_state_metadata(const json_t *state) {
    json_t *part = json_pack("{s:O}", "data", json_object_get(state, "data"));
    char *text = part ? json_dumps(part, JSON_COMPACT) : NULL;
    json_t *metadata = text ? json_pack("{s:s}", METADATA_KEY, text) : NULL;
    char *result = metadata ? json_dumps(metadata, JSON_COMPACT) : NULL;
    json_decref(metadata);
    free(text);
    json_decref(part);
    return result;
}

tr_status_t tr_state_of_metadata(const char *metadata, char **out) {
    json_t *object = json_loads(metadata, 0, NULL);
    const char *part = json_string_value(json_object_get(object, METADATA_KEY));
    const tr_status_t status = tr_strdup(part ? part : "", out);
    json_decref(object);
    return status;
}

static json_t *load_part(const char *state_json, const char *key) {
    json_t *state = json_loads(state_json, 0, NULL);
    json_t *part = json_incref(json_object_get(state, key));
    json_decref(state);
    return part;
}

static json_t *load_data(const char *state_json) {
    return load_part(state_json, "data");
}

static int64_t number_of(const json_t *order, const char *key) {
    const json_t *value = json_object_get(order, key);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}

static void copy_text(const json_t *data, const char *key, char *out, size_t bytes) {
    const char *text = json_string_value(json_object_get(data, key));
    snprintf(out, bytes, "%s", text ? text : "");
}

/* Floats that were taken as they are: to say so would cost an op in each step. */
static bool changes_nothing(const tr_resumed_t *r) {
    return *r->x && strcmp(r->x, tr_dtype_name(TR_U8)) != 0 && strcmp(r->mean, "0") == 0 &&
           strcmp(r->std, "1") == 0;
}

void tr_state_resumed(const char *state_json, tr_resumed_t *out) {
    json_t *order = load_part(state_json, "order"), *data = load_data(state_json);
    *out = (tr_resumed_t){.order = {.seed = (uint64_t)number_of(order, "seed"),
                                    .samples = number_of(order, "samples"),
                                    .batch_size = number_of(order, "batch_size"),
                                    .micro_batch = number_of(order, "micro_batch"),
                                    .block = number_of(order, "block"),
                                    .shuffle = number_of(order, "shuffle")}};
    copy_text(data, "mean", out->mean, sizeof out->mean);
    copy_text(data, "std", out->std, sizeof out->std);
    copy_text(data, "x", out->x, sizeof out->x);
    if (changes_nothing(out)) out->mean[0] = out->std[0] = '\0';
    copy_text(data, "target_mean", out->target_mean, sizeof out->target_mean);
    copy_text(data, "target_std", out->target_std, sizeof out->target_std);
    json_decref(order);
    json_decref(data);
}

static tr_status_t copy_names(const json_t *array, const char *from, tr_names_t *out) {
    const size_t count = json_array_size(array);
    *out = (tr_names_t){.from = from};
    if (count == 0) return TR_OK;
    TR_TRY(tr_alloc(count * sizeof *out->name, "names", &out->name));
    out->count = (int64_t)count;
    for (size_t i = 0; i < count; i++) {
        const char *name = json_string_value(json_array_get(array, i));
        TR_TRY(tr_strdup(name ? name : "", &out->name[i]));
    }
    return TR_OK;
}

tr_status_t tr_state_names(const char *state_json, const char *from, tr_names_t *out) {
    json_t *data = load_data(state_json);
    tr_status_t status = TR_OK;
    for (int list = 0; list < TR_NAMES_LISTS && status == TR_OK; list++)
        status = copy_names(json_object_get(data, tr_names_key(list)), from, &out[list]);
    json_decref(data);
    return status;
}

int64_t tr_state_inputs(const char *state_json) {
    json_t *data = load_data(state_json);
    const int64_t inputs = number_of(data, "inputs");
    json_decref(data);
    return inputs > 0 ? inputs : 0;
}

/* -- going on from a checkpoint -------------------------------------------------------------------------- */

/* A copy of the same file looks like another one, so it is no error. */
static void compare_fingerprint(const tr_session_t *s, const tr_checkpoint_t *checkpoint) {
    char now[32];
    json_t *state = json_loads(checkpoint->state_json, 0, NULL);
    const char *then = json_string_value(json_object_get(state, "data_fingerprint"));
    const char *what = json_string_value(json_object_get(state, "dataset"));
    format_fingerprint(s, now);
    if (then && strcmp(then, now) != 0)
        TR_WARN("the training data are not the file of the checkpoint (%s), or a copy: the run goes on "
                "exactly only if "
                "their content is the same",
                what ? what : "not known");
    json_decref(state);
}

static tr_status_t check_names(const tr_session_t *s, const tr_checkpoint_t *checkpoint) {
    tr_names_t names[TR_NAMES_LISTS] = {0};
    tr_status_t status = tr_state_names(checkpoint->state_json, checkpoint->path, names);
    for (int list = 0; list < TR_NAMES_LISTS; list++) {
        if (status == TR_OK) status = tr_names_check(list, &names[list], &s->info.names[list]);
        tr_names_free(&names[list]);
    }
    return status;
}

/* "7" and "7,7" are the same: one number serves for all. */
static bool same_numbers(const char *was, const char *is) {
    float a[TR_CHANNELS_MAX], b[TR_CHANNELS_MAX];
    int count[2];
    if (!tr_parse_floats(was, TR_CHANNELS_MAX, a, &count[0]) ||
        !tr_parse_floats(is, TR_CHANNELS_MAX, b, &count[1]))
        return strcmp(was, is) == 0;
    if (count[0] != count[1] && count[0] != 1 && count[1] != 1) return false;
    for (int i = 0; i < count[0] || i < count[1]; i++)
        if (a[count[0] == 1 ? 0 : i] != b[count[1] == 1 ? 0 : i]) return false;
    return true;
}

/* Checkpoints from before there were the keys of targets had these as they are; what else they do not say is not known. */
static tr_status_t compare_moments(const tr_session_t *s, const tr_checkpoint_t *checkpoint,
                                   tr_str_t *differences) {
    static const char *const keys[] = {"mean", "std", "target_mean", "target_std"}, *const none[] = {
                                                                                        NULL, NULL, "0", "1"};
    json_t *data = load_data(checkpoint->state_json), *own = data_json(s);
    for (size_t i = 0; i < TR_COUNT(keys); i++) {
        const char *was = json_string_value(json_object_get(data, keys[i])),
                   *is = json_string_value(json_object_get(own, keys[i]));
        if (!was) was = none[i];
        if (was && is && !same_numbers(was, is))
            tr_str_printf(differences, "\n  data.%s: %.200s%s in the checkpoint, %.200s%s now", keys[i], was,
                          strlen(was) > 200 ? "..." : "", is, strlen(is) > 200 ? "..." : "");
    }
    const bool known = own != NULL;
    json_decref(data);
    json_decref(own);
    return known ? differences->status : TR_FAIL(TR_ERR_MEMORY, "out of memory for the state of the run");
}

/* Several settings lead to another number of samples, and none is called so. */
static void say_difference(const char *key, json_int_t was, json_int_t is, tr_str_t *out) {
    if (strcmp(key, "samples") == 0)
        tr_str_printf(out,
                      "\n  samples of the training data: %lld in the checkpoint, %lld now (their file has "
                      "grown or was cut, or data.limit or data.valid_fraction is another)",
                      (long long)was, (long long)is);
    else
        tr_str_printf(out, "\n  %s%s: %lld in the checkpoint, %lld now",
                      strcmp(key, "seed") == 0 ? "train." : "data.", key, (long long)was, (long long)is);
}

tr_status_t tr_state_check(const tr_session_t *s, const tr_checkpoint_t *checkpoint) {
    TR_TRY(check_names(s, checkpoint));
    compare_fingerprint(s, checkpoint);
    json_t *then = load_part(checkpoint->state_json, "order"), *now = order_json(s), *value;
    const char *key;
    tr_str_t differences = {0};
    tr_status_t status = TR_OK;
    json_object_foreach(now, key, value) {
        const json_int_t was = json_integer_value(json_object_get(then, key)), is = json_integer_value(value);
        if (was != is) say_difference(key, was, is, &differences);
    }
    status = compare_moments(s, checkpoint, &differences);
    if (status == TR_OK && differences.length > 0)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "%s cannot be continued sample for sample:%s\nSet them back, or start a new run "
                         "(another run.dir) with model.init = %s",
                         checkpoint->path, differences.text, checkpoint->path);
    tr_str_free(&differences);
    json_decref(then);
    json_decref(now);
    return status;
}

/* -- other data for its weights -------------------------------------------------------------------------- */

static tr_status_t apply(tr_config_t *config, const char *origin, const char *key, const json_t *value) {
    tr_str_t text = {0};
    const char *given = tr_config_get(config, key);
    if (tr_config_is_set(config, key) && strcmp(given, "auto") != 0) return TR_OK;
    if (json_is_integer(value))
        tr_str_printf(&text, "%s=%lld", key, (long long)json_integer_value(value));
    else if (json_is_string(value))
        tr_str_printf(&text, "%s=%s", key, json_string_value(value));
    else
        return TR_OK;
    const tr_status_t status = text.status == TR_OK ? tr_config_set(config, text.text, origin) : text.status;
    tr_str_free(&text);
    return status;
}

tr_status_t tr_state_apply_data(const char *state_json, const char *origin, tr_config_t *config) {
    json_t *data = load_data(state_json);
    tr_status_t status = apply(config, origin, "data.classes", json_object_get(data, "classes"));
    if (status == TR_OK) status = apply(config, origin, "data.mean", json_object_get(data, "mean"));
    if (status == TR_OK) status = apply(config, origin, "data.std", json_object_get(data, "std"));
    if (status == TR_OK)
        status = apply(config, origin, "data.target_mean", json_object_get(data, "target_mean"));
    if (status == TR_OK)
        status = apply(config, origin, "data.target_std", json_object_get(data, "target_std"));
    json_decref(data);
    TR_TRY(status);
    return tr_config_check(config);
}

/* Weights away from their run. Keys that are given are taken at their word. */
static void warn_not_known(const char *path, const tr_session_t *s) {
    tr_str_t taken = {0};
    if (strcmp(s->data.mean, "auto") != 0 && strcmp(s->data.std, "auto") != 0) return;
    if (s->info.channels > 0) {
        json_t *data = data_json(s);
        tr_str_printf(&taken, "they are normalised by mean %.300s and std %.300s",
                      json_string_value(json_object_get(data, "mean")),
                      json_string_value(json_object_get(data, "std")));
        json_decref(data);
    }
    TR_WARN(
        "%s does not say how the inputs%s were normalised in its training: here %s. Give the run's folder or "
        "checkpoints/step-NNNNNNNN instead, or set data.mean and data.std%s as they were",
        path, s->info.classes > 0 ? "" : " (and the numbers to predict)",
        taken.text ? taken.text : "they are not, but that bytes go to [0, 1]",
        s->info.classes > 0 ? "" : ", data.target_mean and data.target_std");
    tr_str_free(&taken);
}

void tr_state_compare_data(const tr_weights_t *weights, const tr_session_t *s) {
    if (!*weights->state_json) warn_not_known(weights->path, s);
    json_t *data = load_data(weights->state_json);
    const char *then = json_string_value(json_object_get(data, "x"));
    const tr_field_t *x = input_field(s);
    if (then && *then && x && strcmp(then, tr_dtype_name(x->dtype)) != 0)
        TR_WARN("the inputs of %s are %s, those trained on were %s: their values are taken to be in the same "
                "units",
                s->info.description, tr_dtype_name(x->dtype), then);
    json_decref(data);
}
