/* state.json: the progress, order and data of a run, and what must match when it is resumed or
 * evaluated. */
#include "state.h"
#include "base/json_text.h"
#include "device/isa.h"
#include "trainer/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define METADATA_KEY "trainer"
#define LAYOUT_KEY   "layout"

/* -- writing it -------------------------------------------------------------------------------- */

static json_t *order_json(const tr_session_t *s) {
    const tr_sampler_t *o = &s->order;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "seed", (json_int_t)o->seed, "samples",
                     (json_int_t)o->samples, "batch_size", (json_int_t)o->batch_size, "micro_batch",
                     (json_int_t)o->micro_batch, "block", (json_int_t)o->block, "shuffle",
                     (json_int_t)o->shuffle);
}

/* NULL without memory: a partial text would look complete. */
static json_t *take_text(tr_str_t *text) {
    json_t *result = text->status == TR_OK ? json_string(text->text ? text->text : "") : NULL;
    tr_str_free(text);
    return result;
}

static void format_hash(uint64_t hash, char text[32]) {
    snprintf(text, 32, "%016llx", (unsigned long long)hash);
}

static const char checksums_key[] = "data_checksums", isa_key[] = "isa";

/* Unknown ones are left out. */
static json_t *checksums_json(const tr_session_t *s) {
    json_t *sums = json_object();
    char text[32];
    for (int split = TR_SPLIT_TRAIN; split <= TR_SPLIT_VALID; split++) {
        format_hash(s->checksum[split], text);
        if (s->checksum[split])
            json_object_set_new(sums, tr_split_name((tr_split_t)split), json_string(text));
    }
    return sums;
}

/* Only of parameters whose optimizer state began later than the run. */
static json_t *ages_json(const tr_graph_t *g) {
    json_t *ages = json_object();
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_info_t *info = tr_tensor_info(g, (tr_tensor_t){id});
        if (!tr_is_trained(g, (tr_tensor_t){id}) || info->updates_before == 0) continue;
        if (json_object_set_new(ages, info->name, json_integer(info->updates_before)) != 0) {
            json_decref(ages);
            return NULL;
        }
    }
    return ages;
}

/* NULL: the device is no CPU. */
static const char *isa_of(const tr_session_t *s) {
    return s->device->threads > 0 ? tr_isa_name(tr_isa_used()) : NULL;
}

json_t *tr_state_json(const tr_session_t *s, int64_t step) {
    char fingerprint[32];
    tr_str_t config = {0};
    format_hash(s->info.fingerprint, fingerprint);
    (void)tr_config_serialize(s->config, &config); /* its failure stays in `config` */
    json_t *state = json_pack(
        "{s:i, s:I, s:I, s:f, s:o, s:o, s:s, s:o, s:s, s:i, s:s, s:o}", "format", 1, "step",
        (json_int_t)step, "samples", (json_int_t)(step * s->order.batch_size), "epoch",
        (double)step / s->steps_per_epoch, "order", order_json(s), "data",
        tr_preprocess_json(s->preprocess), "data_fingerprint", fingerprint, checksums_key,
        checksums_json(s), "dataset", s->info.description, "ranks", s->params.size, "precision",
        tr_precision_name((tr_precision_t)s->main.precision), "config", take_text(&config));
    json_t *ages = ages_json(s->g);
    const char *isa = isa_of(s);
    const bool is_whole =
        ages &&
        (json_object_size(ages) == 0 || json_object_set(state, "updates_before", ages) == 0) &&
        (!isa || json_object_set_new(state, isa_key, json_string(isa)) == 0);
    json_decref(ages);
    if (is_whole) return state;
    json_decref(state);
    return NULL;
}

/* -- contents ---------------------------------------------------------------------------------- */

char *tr_state_metadata(const json_t *state) {
    json_t *part = json_pack("{s:O}", "data", json_object_get(state, "data"));
    char *text = part ? json_dumps(part, JSON_COMPACT) : NULL;
    if (text) tr_json_shorten(text);
    json_t *metadata = text ? json_pack("{s:s, s:s}", "format", "pt", METADATA_KEY, text) : NULL;
    char *result = metadata ? json_dumps(metadata, JSON_COMPACT) : NULL;
    json_decref(metadata);
    free(text);
    json_decref(part);
    return result;
}

char *tr_state_metadata_with_layout(const json_t *state, tr_init_layout_t layout) {
    char *text = state ? tr_state_metadata(state) : NULL;
    json_t *metadata = text ? json_loads(text, 0, NULL) : json_pack("{s:s}", "format", "pt");
    json_t *value = json_string(layout == TR_INIT_LAYOUT_TORCH ? "torch" : "trainer");
    const bool is_set = json_object_set_new(metadata, LAYOUT_KEY, value) == 0;
    char *result = is_set ? json_dumps(metadata, JSON_COMPACT) : NULL;
    json_decref(metadata);
    free(text);
    return result;
}

tr_init_layout_t tr_state_layout(const char *metadata) {
    json_t *object = json_loads(metadata, 0, NULL);
    const char *layout = json_string_value(json_object_get(object, LAYOUT_KEY));
    tr_init_layout_t result = TR_INIT_LAYOUT_AUTO;
    if (layout && strcmp(layout, "torch") == 0)
        result = TR_INIT_LAYOUT_TORCH;
    else if (layout ? strcmp(layout, "trainer") == 0
                    : json_object_get(object, METADATA_KEY) != NULL)
        result = TR_INIT_LAYOUT_TRAINER;
    json_decref(object);
    return result;
}

tr_status_t tr_state_of_metadata(const char *metadata, char **out) {
    json_t *object = json_loads(metadata, 0, NULL);
    const char *part = json_string_value(json_object_get(object, METADATA_KEY));
    const tr_status_t status = tr_strdup(part ? part : "", out);
    json_decref(object);
    return status;
}

static int64_t state_number_of(const json_t *order, const char *key) {
    const json_t *value = json_object_get(order, key);
    return json_is_integer(value) ? (int64_t)json_integer_value(value) : -1;
}

tr_status_t tr_state_preprocess(const json_t *state, const char *origin, tr_preprocess_t **out) {
    return tr_preprocess_from_json(json_object_get(state, "data"), origin, out);
}

void tr_state_order(const json_t *state, tr_sampler_t *out) {
    const json_t *order = json_object_get(state, "order");
    *out = (tr_sampler_t){.seed = (uint64_t)state_number_of(order, "seed"),
                          .samples = state_number_of(order, "samples"),
                          .batch_size = state_number_of(order, "batch_size"),
                          .micro_batch = state_number_of(order, "micro_batch"),
                          .block = state_number_of(order, "block"),
                          .shuffle = state_number_of(order, "shuffle")};
}

void tr_state_ages(tr_graph_t *g, const json_t *state) {
    const json_t *ages = json_object_get(state, "updates_before");
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_t t = {id};
        const json_t *age = json_object_get(ages, tr_tensor_info(g, t)->name);
        if (tr_is_trained(g, t)) tr_param_began(g, t, (int32_t)json_integer_value(age));
    }
}

tr_precision_t tr_state_precision(const json_t *state) {
    return tr_precision_find(json_string_value(json_object_get(state, "precision")));
}

/* -- going on from a checkpoint ---------------------------------------------------------------- */

typedef enum { DATA_UNKNOWN, DATA_SAME, DATA_OTHER } data_match_t;

static data_match_t match_data(const tr_session_t *s, const json_t *state, tr_split_t split) {
    const json_t *sums = json_object_get(state, checksums_key);
    const char *then = json_string_value(json_object_get(sums, tr_split_name(split)));
    char now[32];
    format_hash(s->checksum[split], now);
    if (!then || s->checksum[split] == 0) return DATA_UNKNOWN;
    return strcmp(then, now) == 0 ? DATA_SAME : DATA_OTHER;
}

bool tr_state_has_other_data(const tr_session_t *s, const json_t *state, tr_split_t split) {
    return match_data(s, state, split) == DATA_OTHER;
}

/* Other training data are no error: some samples may have been corrected. Without checksums, a copy of
 * the same file looks like another one. */
static void compare_data(const tr_session_t *s, const json_t *state) {
    char now[32];
    const char *then = json_string_value(json_object_get(state, "data_fingerprint"));
    const char *what = json_string_value(json_object_get(state, "dataset"));
    const data_match_t match = match_data(s, state, TR_SPLIT_TRAIN);
    format_hash(s->info.fingerprint, now);
    if (match == DATA_OTHER)
        TR_WARN("the contents of the training data (data.train) have changed since the checkpoint, "
                "whose data are %s: the results will be those of both. For the results of the data "
                "as they are now, start a new run",
                what ? what : "not known");
    else if (match == DATA_UNKNOWN && then && strcmp(then, now) != 0)
        TR_WARN("the training data is not the file of the checkpoint (%s), or is a copy: results "
                "are exact only if the contents are the same",
                what ? what : "not known");
}

/* Other instructions are no error: they round some sums differently. */
static void compare_isa(const tr_session_t *s, const json_t *state) {
    const char *then = json_string_value(json_object_get(state, isa_key));
    const char *now = isa_of(s);
    if (then && now && strcmp(then, now) != 0)
        TR_INFO("instructions: %s, and %s in the run so far: the results may differ in their last "
                "bits from those of one processor",
                now, then);
}

/* The resolved values of keys. samples, seed and batch_size are compared as written. */
static void compare_order(const json_t *then, const json_t *now, tr_str_t *out) {
    static const char *const kept[] = {"micro_batch", "block", "shuffle"};
    for (size_t i = 0; i < TR_COUNT(kept); i++) {
        const long long was = (long long)state_number_of(then, kept[i]),
                        is = (long long)state_number_of(now, kept[i]);
        if (was != is)
            tr_str_printf(out, "\n  data.%s: %lld in the checkpoint, %lld now", kept[i], was, is);
    }
    const long long was = (long long)state_number_of(then, "samples"),
                    is = (long long)state_number_of(now, "samples");
    if (was != is)
        tr_str_printf(
            out,
            "\n"
            "  samples of the training data (data.train): %lld in the checkpoint, %lld now: the "
            "file has grown or shrunk, or is a different one",
            was, is);
}

/* Frees the list of differences. */
static tr_status_t state_agree(const tr_checkpoint_t *checkpoint, tr_str_t *differences) {
    tr_status_t status = differences->status;
    if (status == TR_OK && differences->length > 0)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "%s belongs to a run with other settings:%.3000s\n"
                         "To start a new run, choose another run.dir, and set model.init = %s to "
                         "start from these weights. To continue that run, restore its settings "
                         "(config.ini in its folder)",
                         checkpoint->path, differences->text, checkpoint->path);
    tr_str_free(differences);
    return status;
}

tr_status_t tr_state_check_keys(const tr_config_t *config, const tr_checkpoint_t *checkpoint) {
    tr_str_t differences = {0};
    tr_state_compare_keys(checkpoint->state, config, &differences);
    tr_state_compare_model(checkpoint->state, config, &differences);
    return state_agree(checkpoint, &differences);
}

tr_status_t tr_state_check(const tr_session_t *s, const tr_checkpoint_t *checkpoint) {
    json_t *now = order_json(s);
    tr_str_t differences = {0};
    compare_data(s, checkpoint->state);
    compare_isa(s, checkpoint->state);
    compare_order(json_object_get(checkpoint->state, "order"), now, &differences);
    if (s->params.trained_preprocess)
        tr_preprocess_compare(s->params.trained_preprocess, s->preprocess, &differences);
    if (s->params.trained_preprocess &&
        (s->params.trained_preprocess->classes > 0) != (s->preprocess->classes > 0))
        tr_str_printf(&differences,
                      "\n  data.classes: %lld in the checkpoint, %lld now (auto: from the labels)",
                      (long long)s->params.trained_preprocess->classes,
                      (long long)s->preprocess->classes);
    tr_state_say_origin(checkpoint->state, s->config, &differences);
    json_decref(now);
    return state_agree(checkpoint, &differences);
}
