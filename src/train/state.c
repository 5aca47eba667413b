#include "targets.h"
#include "trainer/state.h"
#include "trainer/log.h"
#include "trainer/mem.h"
#include "trainer/train.h"

#include <stdio.h>
#include <string.h>

enum { REGIONS = 3 };
static const tr_role_t roles[REGIONS] = {TR_ROLE_PARAM, TR_ROLE_MODEL_STATE, TR_ROLE_OPTIM_STATE};

typedef TR_VEC(tr_named_tensor_t) names_t;

struct tr_snapshot {
    tr_session_t *s;
    char *host[REGIONS];
    size_t bytes[REGIONS];
    names_t model, optimizer; /* names owned; data point into host */
};

/* -- names ----------------------------------------------------------------------------------------------- */

static tr_status_t add_name(names_t *list, const char *name, const char *suffix, const tr_tensor_info_t *info,
                            const void *data) {
    tr_str_t text = {0};
    char *full = NULL;
    tr_str_printf(&text, suffix ? "%s.%s" : "%s", name, suffix);
    TR_TRY(tr_str_take(&text, &full));
    const tr_named_tensor_t tensor = {full, info->dtype, info->shape, data};
    const tr_status_t status = tr_vec_push(list, tensor);
    if (status != TR_OK) tr_free(&full);
    return status;
}

/* A state that mirrors the parameters is saved per parameter, "conv1.weight.adam.m", so that the block's
 * order may change. */
static tr_status_t name_mirror(tr_snapshot_t *n, const tr_tensor_info_t *state) {
    const tr_graph_t *g = n->s->g;
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_info_t *p = tr_tensor_info(g, (tr_tensor_t){id});
        if (!tr_is_param(g, (tr_tensor_t){id}) || p->block_elems >= tr_graph_layout(g).trainable_elems)
            continue;
        const char *data = n->host[2] + state->offset_bytes + (size_t)p->block_elems * sizeof(float);
        TR_TRY(add_name(&n->optimizer, p->name, state->name, p, data));
    }
    return TR_OK;
}

static tr_status_t name_tensors(tr_snapshot_t *n) {
    const tr_graph_t *g = n->s->g;
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_info_t *info = tr_tensor_info(g, (tr_tensor_t){id});
        if (tr_is_param(g, (tr_tensor_t){id}))
            TR_TRY(add_name(&n->model, info->name, NULL, info, n->host[0] + info->offset_bytes));
        if (info->role == TR_ROLE_MODEL_STATE)
            TR_TRY(add_name(&n->model, info->name, NULL, info, n->host[1] + info->offset_bytes));
        if (info->role != TR_ROLE_OPTIM_STATE) continue;
        if (info->mirrors_params)
            TR_TRY(name_mirror(n, info));
        else
            TR_TRY(add_name(&n->optimizer, info->name, NULL, info, n->host[2] + info->offset_bytes));
    }
    return TR_OK;
}

/* -- life ------------------------------------------------------------------------------------------------ */

static void free_names(names_t *list) {
    for (size_t i = 0; i < list->count; i++) tr_free(&list->data[i].name);
    tr_vec_free(list);
}

void tr_snapshot_destroy(tr_snapshot_t **snapshot) {
    tr_snapshot_t *n = *snapshot;
    if (!n) return;
    for (int i = 0; i < REGIONS; i++)
        if (n->host[i]) n->s->device->ops->host_free(n->s->device, n->host[i]);
    free_names(&n->model);
    free_names(&n->optimizer);
    tr_free(snapshot);
}

tr_status_t tr_snapshot_create(tr_session_t *s, tr_snapshot_t **out) {
    tr_snapshot_t *n = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *n, "snapshot", &n));
    n->s = s;
    for (int i = 0; i < REGIONS; i++) {
        void *host = NULL;
        (void)tr_graph_region(s->g, roles[i], &n->bytes[i]);
        if (n->bytes[i] == 0) continue;
        TR_TRY_GOTO(s->device->ops->host_alloc(s->device, n->bytes[i], &host), fail);
        n->host[i] = host;
        memset(host, 0, n->bytes[i]);
    }
    TR_TRY_GOTO(name_tensors(n), fail);
    *out = n;
    return TR_OK;
fail:
    tr_snapshot_destroy(&n);
    return status;
}

size_t tr_snapshot_bytes(const tr_snapshot_t *n) {
    return n->bytes[0] + n->bytes[1] + n->bytes[2];
}

static tr_status_t move(tr_snapshot_t *n, tr_copy_kind_t kind) {
    tr_session_t *s = n->s;
    for (int i = 0; i < REGIONS; i++) {
        size_t bytes;
        void *device = tr_graph_region(s->g, roles[i], &bytes);
        void *dst = kind == TR_COPY_TO_HOST ? (void *)n->host[i] : device,
             *src = kind == TR_COPY_TO_HOST ? device : (void *)n->host[i];
        if (bytes > 0) TR_TRY(s->device->ops->copy(s->device, tr_graph_stream(s->g), dst, src, bytes, kind));
    }
    return tr_graph_sync(s->g);
}

tr_status_t tr_snapshot_take(tr_snapshot_t *n) {
    return move(n, TR_COPY_TO_HOST);
}

void tr_snapshot_content(const tr_snapshot_t *n, tr_checkpoint_content_t *out) {
    *out = (tr_checkpoint_content_t){.model = n->model.data,
                                     .model_count = n->model.count,
                                     .optimizer = n->optimizer.data,
                                     .optimizer_count = n->optimizer.count};
}

/* -- restoring ------------------------------------------------------------------------------------------- */

static size_t tensor_bytes(const tr_named_tensor_t *t) {
    return (size_t)tr_shape_elems(&t->shape) * tr_dtype_bytes(t->dtype);
}

static bool fits(const tr_named_tensor_t *want, const tr_named_tensor_t *have) {
    return have->dtype == want->dtype && tr_shape_equal(&have->shape, &want->shape);
}

/* Copies what fits; a line of `problems` for each that does not. */
static size_t copy_matching(const names_t *wanted, const tr_safetensors_t *file, tr_str_t *problems) {
    size_t copied = 0;
    for (size_t i = 0; i < wanted->count; i++) {
        const tr_named_tensor_t *want = &wanted->data[i], *have = tr_safetensors_find(file, want->name);
        char a[96], b[96];
        if (!have) {
            tr_str_printf(problems, "\n  %s %s: not in the checkpoint", want->name,
                          tr_shape_format(&want->shape, a));
        } else if (!fits(want, have)) {
            tr_str_printf(problems, "\n  %s: %s %s here, %s %s in the checkpoint", want->name,
                          tr_dtype_name(want->dtype), tr_shape_format(&want->shape, a),
                          tr_dtype_name(have->dtype), tr_shape_format(&have->shape, b));
        } else {
            memcpy((void *)(uintptr_t)want->data, have->data, tensor_bytes(want));
            copied++;
        }
    }
    return copied;
}

static void list_left_over(const names_t *wanted, const tr_safetensors_t *file, tr_str_t *problems) {
    for (size_t k = 0; k < tr_safetensors_count(file); k++) {
        const tr_named_tensor_t *have = tr_safetensors_at(file, k);
        bool known = false;
        char text[96];
        for (size_t i = 0; i < wanted->count && !known; i++)
            known = strcmp(wanted->data[i].name, have->name) == 0;
        if (!known)
            tr_str_printf(problems, "\n  %s %s: only in the checkpoint", have->name,
                          tr_shape_format(&have->shape, text));
    }
}

/* To what an error has room for. */
static void shorten(tr_str_t *problems) {
    if (problems->length <= 1500) return;
    problems->length = 1500;
    tr_str_append(problems, "\n  ...");
}

tr_status_t tr_snapshot_restore(tr_snapshot_t *n, const tr_checkpoint_t *checkpoint) {
    tr_str_t problems = {0};
    tr_status_t status = TR_OK;
    if (!checkpoint->optimizer)
        return TR_FAIL(TR_ERR_DATA, "%s has weights only; to start from them set model.init",
                       checkpoint->path);
    tr_state_compare_model(checkpoint->state_json, n->s->config, &problems);
    copy_matching(&n->model, checkpoint->model, &problems);
    list_left_over(&n->model, checkpoint->model, &problems);
    const bool is_same_model = problems.length == 0;
    if (is_same_model) { /* else its state differs wherever the parameters do */
        copy_matching(&n->optimizer, checkpoint->optimizer, &problems);
        list_left_over(&n->optimizer, checkpoint->optimizer, &problems);
    }
    shorten(&problems);
    if (problems.length > 0)
        status = TR_FAIL(
            TR_ERR_CONFIG,
            "the checkpoint %s is of another %s:%s\nSet it back (config.ini in the run's folder), or start a "
            "new run (another run.dir), with model.init = %s to begin with the weights that fit",
            checkpoint->path, is_same_model ? "optimizer" : "model", problems.text, checkpoint->path);
    tr_str_free(&problems);
    return status == TR_OK ? move(n, TR_COPY_TO_DEVICE) : status;
}

static tr_status_t init_from(tr_snapshot_t *n, const tr_safetensors_t *weights, const char *path) {
    tr_str_t problems = {0};
    TR_TRY(tr_snapshot_take(n));
    const size_t copied = copy_matching(&n->model, weights, &problems);
    if (copied > 0) TR_INFO("model.init: %zu of %zu tensors from %s", copied, n->model.count, path);
    if (copied > 0 && problems.length > 0) TR_INFO("model.init: left as initialised:%s", problems.text);
    tr_str_free(&problems);
    if (copied == 0)
        return TR_FAIL(TR_ERR_CONFIG, "model.init: no tensor of %s fits this model by name and shape", path);
    return move(n, TR_COPY_TO_DEVICE);
}

tr_status_t tr_state_init_from_path(tr_snapshot_t *n, const char *path) {
    tr_weights_t *weights = NULL;
    TR_TRY(tr_weights_open(path, &weights));
    const tr_status_t status = init_from(n, weights->model, weights->path);
    tr_weights_close(&weights);
    return status;
}

/* Parameters become their averages; how many. */
static size_t copy_averages(const names_t *wanted, const tr_safetensors_t *optimizer) {
    size_t copied = 0;
    for (size_t i = 0; i < wanted->count; i++) {
        const tr_named_tensor_t *want = &wanted->data[i], *have;
        char name[512];
        snprintf(name, sizeof name, "%s." TR_EMA_STATE, want->name);
        have = tr_safetensors_find(optimizer, name);
        if (!have || !fits(want, have)) continue;
        memcpy((void *)(uintptr_t)want->data, have->data, tensor_bytes(want));
        copied++;
    }
    return copied;
}

tr_status_t tr_snapshot_load(tr_snapshot_t *n, const tr_weights_t *weights) {
    const tr_safetensors_t *optimizer = weights->checkpoint ? weights->checkpoint->optimizer : NULL;
    tr_str_t problems = {0};
    tr_status_t status = TR_OK;
    TR_TRY(tr_snapshot_take(n));
    copy_matching(&n->model, weights->model, &problems);
    list_left_over(&n->model, weights->model, &problems);
    shorten(&problems);
    if (problems.length > 0)
        status = TR_FAIL(
            TR_ERR_CONFIG,
            "%s has the weights of another model:%s\nUse the configuration it was trained with (config.ini "
            "in its run folder)",
            weights->path, problems.text);
    tr_str_free(&problems);
    TR_TRY(status);
    if (n->s->optim.ema > 0 && optimizer && copy_averages(&n->model, optimizer) > 0)
        TR_INFO("evaluating the averaged weights (optimizer.ema = 0: the last ones)");
    return move(n, TR_COPY_TO_DEVICE);
}

static tr_status_t broadcast_staged(tr_session_t *s, void *device, size_t bytes) {
    const tr_device_ops_t *ops = s->device->ops;
    tr_stream_t *stream = tr_graph_stream(s->g);
    tr_status_t status = TR_OK;
    void *host = NULL;
    TR_TRY(ops->host_alloc(s->device, bytes, &host));
    TR_TRY_GOTO(ops->copy(s->device, stream, host, device, bytes, TR_COPY_TO_HOST), done);
    TR_TRY_GOTO(tr_graph_sync(s->g), done);
    TR_TRY_GOTO(tr_world_broadcast(s->world, host, bytes, 0), done);
    TR_TRY_GOTO(ops->copy(s->device, stream, device, host, bytes, TR_COPY_TO_DEVICE), done);
    TR_TRY_GOTO(tr_graph_sync(s->g), done);
done:
    ops->host_free(s->device, host);
    return status;
}

tr_status_t tr_state_broadcast(tr_session_t *s) {
    if (!s->world || tr_world_info(s->world)->size == 1) return TR_OK;
    TR_TRY(tr_graph_sync(s->g));
    for (int i = 0; i < REGIONS; i++) {
        size_t bytes;
        void *device = tr_graph_region(s->g, roles[i], &bytes);
        if (bytes == 0) continue;
        TR_TRY(s->device->host_visible ? tr_world_broadcast(s->world, device, bytes, 0)
                                       : broadcast_staged(s, device, bytes));
    }
    return TR_OK;
}

/* -- state.json ------------------------------------------------------------------------------------------ */

static json_t *order_json(const tr_session_t *s) {
    const tr_order_t *o = &s->order;
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I}", "seed", (json_int_t)o->seed, "samples",
                     (json_int_t)o->samples, "batch_size", (json_int_t)o->batch_size, "micro_batch",
                     (json_int_t)o->micro_batch, "block", (json_int_t)o->block, "shuffle",
                     (json_int_t)o->shuffle);
}

/* "33.3,12": the normalisation of x as it was done, in the form of data.mean. */
static json_t *moments_json(const tr_session_t *s, const float *values, double fallback) {
    tr_str_t text = {0};
    for (int c = 0; c < s->info.channels; c++)
        tr_str_printf(&text, "%s%.9g", c ? "," : "", (double)values[c]);
    if (s->info.channels == 0) tr_str_printf(&text, "%g", fallback);
    json_t *result = json_string(text.text);
    tr_str_free(&text);
    return result;
}

static json_t *targets_json(const tr_session_t *s, const float *values, const char *none) {
    tr_str_t text = {0};
    tr_targets_text(s, values, none, &text);
    json_t *result = json_string(text.text);
    tr_str_free(&text);
    return result;
}

static const tr_field_t *input_field(const tr_session_t *s) {
    for (int f = 0; f < s->info.field_count; f++)
        if (strcmp(s->info.field[f].name, "x") == 0) return &s->info.field[f];
    return NULL;
}

/* None where one is not UTF-8: JSON cannot hold it, and the others would move up. */
static json_t *names_json(const tr_names_t *names) {
    json_t *array = json_array();
    for (int64_t i = 0; i < names->count; i++)
        if (json_array_append_new(array, json_string(names->name[i])) != 0) {
            json_array_clear(array);
            break;
        }
    return array;
}

static void add_names(const tr_session_t *s, json_t *data) {
    const tr_dataset_t *train = s->dataset[TR_SPLIT_TRAIN];
    for (int list = 0; train && list < TR_NAMES_LISTS; list++)
        json_object_set_new(data, tr_names_key(list), names_json(&train->info.names[list]));
}

/* What an evaluation on other data has to do as this training did. */
static json_t *data_json(const tr_session_t *s) {
    const tr_field_t *x = input_field(s);
    const bool scaled = x && x->dtype == TR_U8; /* session.c: bytes without statistics go to [0, 1] */
    json_t *data =
        json_pack("{s:I, s:o, s:o, s:o, s:o, s:s}", "classes", (json_int_t)s->info.classes, "mean",
                  moments_json(s, s->info.mean, 0), "std", moments_json(s, s->info.std, scaled ? 255 : 1),
                  "target_mean", targets_json(s, s->target_mean, "0"), "target_std",
                  targets_json(s, s->target_std, "1"), "x", x ? tr_dtype_name(x->dtype) : "");
    if (x && x->shape.ndim == 1) json_object_set_new(data, "inputs", json_integer(x->shape.dim[0]));
    add_names(s, data);
    return data;
}

static void format_fingerprint(const tr_session_t *s, char text[32]) {
    snprintf(text, 32, "%016llx", (unsigned long long)s->info.fingerprint);
}

json_t *tr_state_json(const tr_session_t *s, int64_t step) {
    char fingerprint[32];
    tr_str_t config = {0};
    format_fingerprint(s, fingerprint);
    (void)tr_config_serialize(s->config, &config);
    json_t *state = json_pack("{s:i, s:I, s:I, s:f, s:o, s:o, s:s, s:s, s:i, s:s}", "format", 1, "step",
                              (json_int_t)step, "samples", (json_int_t)(step * s->order.batch_size), "epoch",
                              (double)step / s->steps_per_epoch, "order", order_json(s), "data", data_json(s),
                              "data_fingerprint", fingerprint, "dataset", s->info.description, "ranks",
                              s->params.size, "config", config.text ? config.text : "");
    tr_str_free(&config);
    return state;
}

static json_t *load_data(const char *state_json) {
    json_t *state = json_loads(state_json, 0, NULL);
    json_t *data = json_incref(json_object_get(state, "data"));
    json_decref(state);
    return data;
}

static json_t *load_order(const tr_checkpoint_t *checkpoint) {
    json_t *state = json_loads(checkpoint->state_json, 0, NULL);
    json_t *order = json_incref(json_object_get(state, "order"));
    json_decref(state);
    return order;
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
static bool changes_nothing(const json_t *data, const tr_resumed_t *r) {
    const char *x = json_string_value(json_object_get(data, "x"));
    return x && strcmp(x, tr_dtype_name(TR_U8)) != 0 && strcmp(r->mean, "0") == 0 && strcmp(r->std, "1") == 0;
}

void tr_state_resumed(const tr_checkpoint_t *checkpoint, tr_resumed_t *out) {
    json_t *order = load_order(checkpoint), *data = load_data(checkpoint->state_json);
    *out = (tr_resumed_t){.order = {.seed = (uint64_t)number_of(order, "seed"),
                                    .samples = number_of(order, "samples"),
                                    .batch_size = number_of(order, "batch_size"),
                                    .micro_batch = number_of(order, "micro_batch"),
                                    .block = number_of(order, "block"),
                                    .shuffle = number_of(order, "shuffle")}};
    copy_text(data, "mean", out->mean, sizeof out->mean);
    copy_text(data, "std", out->std, sizeof out->std);
    if (changes_nothing(data, out)) out->mean[0] = out->std[0] = '\0';
    copy_text(data, "target_mean", out->target_mean, sizeof out->target_mean);
    copy_text(data, "target_std", out->target_std, sizeof out->target_std);
    json_decref(order);
    json_decref(data);
}

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
static void compare_moments(const tr_session_t *s, const tr_checkpoint_t *checkpoint, tr_str_t *differences) {
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
    json_decref(data);
    json_decref(own);
}

tr_status_t tr_state_check(const tr_session_t *s, const tr_checkpoint_t *checkpoint) {
    TR_TRY(check_names(s, checkpoint));
    compare_fingerprint(s, checkpoint);
    json_t *then = load_order(checkpoint), *now = order_json(s), *value;
    const char *key;
    tr_str_t differences = {0};
    tr_status_t status = TR_OK;
    json_object_foreach(now, key, value) {
        const json_int_t was = json_integer_value(json_object_get(then, key)), is = json_integer_value(value);
        if (was != is)
            tr_str_printf(&differences, "\n  %s%s: %lld in the checkpoint, %lld now",
                          strcmp(key, "seed") == 0 ? "train." : "data.", key, (long long)was, (long long)is);
    }
    compare_moments(s, checkpoint, &differences);
    if (differences.length > 0)
        status = TR_FAIL(TR_ERR_CONFIG,
                         "%s cannot be continued sample for sample:%s\nSet them back, or start a new run "
                         "(another run.dir) with model.init = %s",
                         checkpoint->path, differences.text, checkpoint->path);
    tr_str_free(&differences);
    json_decref(then);
    json_decref(now);
    return status;
}

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

int64_t tr_state_inputs(const char *state_json) {
    json_t *data = load_data(state_json);
    const int64_t inputs = number_of(data, "inputs");
    json_decref(data);
    return inputs > 0 ? inputs : 0;
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
