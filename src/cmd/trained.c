#include "trained.h"
#include "trainer/log.h"
#include "trainer/mem.h"
#include "train/huggingface.h"
#include "train/state.h"

#include <stdio.h>
#include <string.h>

/* Rank 0 finds the checkpoint; how its training read the data goes into every rank's configuration.
 */
static tr_status_t find_weights(cmd_trained_t *t, const char *path, tr_weights_t **weights) {
    tr_status_t status = TR_OK;
    const bool is_root = t->info->rank == 0;
    if (is_root) {
        status = tr_weights_open(path, weights);
        if (status == TR_OK) status = tr_strdup((*weights)->path, &t->weights_path);
        if (status == TR_OK) status = tr_strdup((*weights)->state_json, &t->state_json);
        if (status == TR_OK) t->step = (*weights)->step;
    }
    TR_TRY(tr_world_agree(t->world, status));
    TR_TRY(tr_world_broadcast_text(t->world, &t->weights_path, 0));
    TR_TRY(tr_world_broadcast(t->world, &t->step, sizeof t->step, 0));
    TR_TRY(tr_world_broadcast_text(t->world, &t->state_json, 0));
    TR_TRY(tr_state_preprocess(t->state_json, t->weights_path, &t->kept));
    tr_state_compare_model(t->state_json, t->config, &t->model_difference);
    return t->model_difference.status;
}

static tr_status_t fill_root(tr_session_t *s, const tr_weights_t *weights) {
    tr_snapshot_t *snapshot = NULL;
    TR_TRY(tr_snapshot_create(s, &snapshot));
    const tr_status_t status = tr_snapshot_load(snapshot, weights);
    tr_snapshot_destroy(&snapshot);
    return status;
}

/* Weights away from their run. Keys that are given are taken at their word. */
static void warn_not_known(const cmd_trained_t *t) {
    const tr_session_t *s = t->s;
    const tr_normalize_t *input = &s->preprocess->input;
    char used[192] = "they are not normalised";
    if (strcmp(s->data.mean, "auto") != 0 && strcmp(s->data.std, "auto") != 0) return;
    if (input->mean.count > 0)
        snprintf(used, sizeof used, "they are normalised with mean %.9g%s and std %.9g%s",
                 (double)input->mean.data[0], input->mean.count > 1 ? ",..." : "",
                 (double)input->std.data[0], input->std.count > 1 ? ",..." : "");
    TR_WARN(
        "%s does not record how the inputs%s were normalised during training: here %s. Name the "
        "run folder or checkpoints/step-NNNNNNNN instead, or set data.mean and data.std%s to the "
        "values used in training",
        t->weights_path, s->info.classes > 0 ? "" : " (and the targets)", used,
        s->info.classes > 0 ? "" : ", data.target_mean and data.target_std");
}

static tr_status_t open_session(cmd_trained_t *t, const cmd_trained_params_t *params,
                                const tr_weights_t *weights) {
    const tr_session_params_t session = {.evaluation = true,
                                         .prediction = params->prediction,
                                         .build = params->build,
                                         .build_self = params->build_self,
                                         .split = params->split,
                                         .kept = t->kept,
                                         .rank = t->info->rank,
                                         .size = t->info->size};
    TR_TRY(tr_session_create(t->config, t->world, &session, &t->s));
    if (!t->kept && !params->build && t->info->rank == 0) warn_not_known(t);
    tr_status_t status = tr_session_start(t->s);
    if (status == TR_OK && weights) status = fill_root(t->s, weights);
    TR_TRY(tr_world_agree(t->world, status));
    if (weights && t->model_difference.length > 0)
        TR_WARN("checkpoint %s was trained with a different [model]:%s\n"
                "Its weights fit, but the results may be wrong: use the configuration it was "
                "trained with (config.ini in its run folder)",
                t->weights_path, t->model_difference.text);
    return tr_state_broadcast(t->s);
}

/* Samples of another shape than the training's, which no weights may fit: an error that says so,
 * else TR_OK. */
static tr_status_t check_shape(const cmd_trained_t *t, const cmd_trained_params_t *params) {
    tr_data_settings_t settings;
    tr_dataset_t *data = NULL;
    char was[96], is[96];
    tr_config_read(t->config, &tr_data_config, &settings);
    if (!t->kept || t->kept->shape.ndim == 0) return TR_OK;
    if (tr_dataset_open_inputs(&settings, params->split, &data) != TR_OK || !data) return TR_OK;
    tr_status_t status = TR_OK;
    const int x = tr_field_find(&data->info, "x");
    if (x >= 0 && !tr_shape_equal(&data->info.field[x].shape, &t->kept->shape))
        status =
            TR_FAIL(TR_ERR_DATA,
                    "the samples of %s have shape %s, but %s was trained on samples of shape %s: "
                    "expected the same shape",
                    data->info.description, tr_shape_format(&data->info.field[x].shape, is),
                    t->weights_path, tr_shape_format(&t->kept->shape, was));
    tr_dataset_close(&data);
    return status;
}

/* What does not fit may be the data, or a model that is another than the checkpoint's. */
static tr_status_t explain(const cmd_trained_t *t, const cmd_trained_params_t *params) {
    tr_error_t error = *tr_error_last();
    char text[TR_ERROR_MESSAGE_BYTES];
    if (t->model_difference.length == 0) {
        const tr_status_t status = check_shape(t, params);
        return status == TR_ERR_DATA ? status : tr_error_set(&error);
    }
    snprintf(text, sizeof text,
             "%.2000s\n"
             "Checkpoint %.500s was trained with a different [model]:%.1000s\n"
             "Use the configuration it was trained with (config.ini in its run folder)",
             error.message, t->weights_path, t->model_difference.text);
    memcpy(error.message, text, sizeof text);
    return tr_error_set(&error);
}

/* A folder of Hugging Face has no configuration file: its config.json says all. */
static tr_status_t load_foreign(cmd_trained_t *t, const cmd_trained_params_t *params) {
    char init[4096 + 16];
    char **list = NULL;
    snprintf(init, sizeof init, "model.init=%s", params->weights);
    char *const first[] = {(char *)"model.type=gpt", init};
    const size_t count = TR_COUNT(first) + (size_t)params->count;
    TR_TRY(tr_alloc(count * sizeof *list, "assignments", &list));
    memcpy(list, first, sizeof first);
    if (params->count > 0)
        memcpy(list + TR_COUNT(first), params->assignments, (size_t)params->count * sizeof *list);
    const tr_status_t status = cmd_config_load_all(t->world, NULL, (int)count, list, &t->config);
    tr_free(&list);
    return status;
}

static tr_status_t load_config(cmd_trained_t *t, const cmd_trained_params_t *params) {
    char config[4096];
    if (!params->config && tr_hf_is_folder(params->weights)) return load_foreign(t, params);
    const bool found = cmd_config_path(params->config ? params->config : params->weights, config);
    if (!found && !params->config && t->info->rank == 0)
        return TR_FAIL(
            TR_ERR_NOINPUT,
            "%s is not a run folder: it has no config.ini. Name a configuration file before it",
            params->weights);
    return cmd_config_load_all(t->world, config, params->count, params->assignments, &t->config);
}

tr_status_t cmd_trained_open(const cmd_trained_params_t *params, cmd_trained_t *t) {
    tr_weights_t *weights = NULL;
    *t = (cmd_trained_t){.step = -1};
    TR_TRY(cmd_world_open(&t->world));
    t->info = tr_world_info(t->world);
    tr_log_set_rank(t->info->rank, t->info->size, t->info->host);
    TR_TRY(load_config(t, params));
    tr_status_t status = find_weights(t, params->weights, &weights);
    if (status == TR_OK) {
        status = open_session(t, params, weights);
        if (status == TR_ERR_CONFIG) status = explain(t, params);
    }
    tr_weights_close(&weights);
    return status;
}

tr_status_t cmd_trained_close(cmd_trained_t *t, tr_status_t status) {
    tr_session_destroy(&t->s);
    tr_config_destroy(&t->config);
    tr_preprocess_destroy(&t->kept);
    tr_str_free(&t->model_difference);
    tr_free(&t->weights_path);
    tr_free(&t->state_json);
    if (status == TR_OK && t->world) cmd_world_close(&t->world);
    return status;
}
