/* Opens a trained model: weights, configuration and session. */
#include "trained.h"
#include "weights/state.h"
#include "trainer/log.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

/* Rank 0 reads the checkpoint and shares its preprocessing with every rank. */
static tr_status_t trained_find_weights(tr_trained_t *t, const tr_trained_params_t *params,
                                        tr_weights_t **weights) {
    tr_status_t status = TR_OK;
    char *text = NULL;
    const bool is_root = t->info->rank == 0;
    if (is_root) {
        status = (params->last ? tr_weights_open_last : tr_weights_open)(params->weights, weights);
        if (status == TR_OK) status = tr_strdup((*weights)->path, &t->weights_path);
        if (status == TR_OK) status = tr_strdup((*weights)->state_json, &text);
        if (status == TR_OK) {
            t->step = (*weights)->step;
            t->is_best = (*weights)->is_best;
            t->is_last = (*weights)->is_last;
        }
    }
    TR_TRY_GOTO(tr_world_agree(t->world, status), done);
    TR_TRY_GOTO(tr_world_broadcast_text(t->world, &t->weights_path, 0), done);
    TR_TRY_GOTO(tr_world_broadcast(t->world, &t->step, sizeof t->step, 0), done);
    TR_TRY_GOTO(tr_world_broadcast(t->world, &t->is_best, sizeof t->is_best, 0), done);
    TR_TRY_GOTO(tr_world_broadcast(t->world, &t->is_last, sizeof t->is_last, 0), done);
    TR_TRY_GOTO(tr_world_broadcast_text(t->world, &text, 0), done);
    t->state = is_root ? json_incref((*weights)->state) : json_loads(text, 0, NULL);
    TR_TRY_GOTO(tr_state_preprocess(t->state, t->weights_path, &t->preprocess), done);
    tr_state_compare_model(t->state, t->config, &t->model_difference);
    status = t->model_difference.status;
done:
    tr_free(&text);
    return status;
}

static tr_status_t trained_fill_root(tr_session_t *s, const tr_weights_t *weights) {
    tr_snapshot_t *snapshot = NULL;
    TR_TRY(tr_snapshot_create(s, &snapshot));
    const tr_status_t status = tr_snapshot_load(snapshot, weights);
    tr_snapshot_destroy(&snapshot);
    return status;
}

/* For weights without a record of their run: keys that are set are used. */
static void trained_warn_not_known(const tr_trained_t *t) {
    const tr_session_t *s = t->s;
    const tr_normalize_t *input = &s->preprocess->input;
    char used[192] = "they are not normalised";
    if (strcmp(s->data.mean, "auto") != 0 && strcmp(s->data.std, "auto") != 0) return;
    if (input->mean.count > 0)
        tr_snprintf(used, sizeof used, "they are normalised with mean %.9g%s and std %.9g%s",
                    (double)input->mean.data[0], input->mean.count > 1 ? ",..." : "",
                    (double)input->std.data[0], input->std.count > 1 ? ",..." : "");
    TR_WARN(
        "%s does not record how the inputs%s were normalised during training: here %s. Name the "
        "run folder or checkpoints/step-NNNNNNNN instead, or set data.mean and data.std%s to the "
        "values used in training",
        t->weights_path, s->info.classes > 0 ? "" : " (and the targets)", used,
        s->info.classes > 0 ? "" : ", data.target_mean and data.target_std");
}

/* The fields of samples in host memory are those of the training. */
static tr_status_t trained_describe_inputs(const tr_trained_t *t, tr_dataset_info_t *out) {
    const tr_field_t *x = t->preprocess ? tr_preprocess_field(t->preprocess, "x") : NULL;
    if (!t->preprocess || (x && x->shape.ndim == 0))
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s does not record type and shape of the inputs: name the run folder or "
                       "checkpoints/step-NNNNNNNN",
                       t->weights_path);
    *out = (tr_dataset_info_t){.samples = 1,
                               .field_count = t->preprocess->field_count,
                               .classes = t->preprocess->classes,
                               .is_dense = t->preprocess->is_dense,
                               .read_unit = 1};
    memcpy(out->field, t->preprocess->field, sizeof out->field);
    snprintf(out->description, sizeof out->description, "samples in memory");
    return TR_OK;
}

static tr_status_t trained_open_session(tr_trained_t *t, const tr_trained_params_t *params,
                                        const tr_weights_t *weights) {
    tr_dataset_info_t inputs;
    if (params->from_memory) TR_TRY(trained_describe_inputs(t, &inputs));
    /* Each rank predicts its own samples in memory. */
    const tr_session_params_t session = {.purpose = params->purpose,
                                         .loaded = true,
                                         .build = params->build,
                                         .build_self = params->build_self,
                                         .split = params->split,
                                         .or_valid = params->or_valid,
                                         .inputs = params->from_memory ? &inputs : NULL,
                                         .trained_preprocess = t->preprocess,
                                         .precision = tr_state_precision(t->state),
                                         .rank = params->from_memory ? 0 : t->info->rank,
                                         .size = params->from_memory ? 1 : t->info->size};
    TR_TRY(tr_session_create(t->config, t->world, &session, &t->s));
    if (!t->preprocess && params->purpose != TR_SESSION_BUILD && t->info->rank == 0)
        trained_warn_not_known(t);
    tr_status_t status = tr_session_start(t->s, NULL);
    if (status == TR_OK && weights) status = trained_fill_root(t->s, weights);
    TR_TRY(tr_world_agree(t->world, status));
    if (weights && t->model_difference.length > 0)
        TR_WARN("checkpoint %s was trained with a different [model]:%s\n"
                "Its weights fit, but the results may be wrong: use the configuration it was "
                "trained with (config.ini in its run folder)",
                t->weights_path, t->model_difference.text);
    return tr_state_broadcast(t->s, NULL, true);
}

/* TR_ERR_DATA if the shape of samples differs from the training. */
static tr_status_t trained_check_shape(const tr_trained_t *t, const tr_trained_params_t *params) {
    tr_data_settings_t settings;
    tr_dataset_t *data = NULL;
    char was[96], is[96];
    tr_config_read(t->config, &tr_data_config, &settings);
    const tr_field_t *was_x = t->preprocess ? tr_preprocess_field(t->preprocess, "x") : NULL;
    if (!was_x || was_x->shape.ndim == 0) return TR_OK;
    settings.trained = t->preprocess;
    if (tr_dataset_open(&settings, params->split, &data) == TR_OK && !data) return TR_OK;
    tr_dataset_close(&data);
    if (tr_dataset_open_inputs(&settings, params->split, &data) != TR_OK || !data) return TR_OK;
    tr_status_t status = TR_OK;
    const int x = tr_field_find(&data->info, "x");
    if (x >= 0 && !tr_shape_equal(&data->info.field[x].shape, &was_x->shape))
        status =
            TR_FAIL(TR_ERR_DATA,
                    "the samples of %s have shape %s, but %s was trained on samples of shape %s: "
                    "expected the same shape",
                    data->info.description, tr_shape_format(&data->info.field[x].shape, is),
                    t->weights_path, tr_shape_format(&was_x->shape, was));
    tr_dataset_close(&data);
    return status;
}

/* The cause of a mismatch may be the data, or a model that differs from the checkpoint's. */
static tr_status_t trained_explain(const tr_trained_t *t, const tr_trained_params_t *params) {
    tr_error_t error = *tr_error_last();
    char text[TR_ERROR_MESSAGE_BYTES];
    if (t->model_difference.length == 0) {
        const tr_status_t status = trained_check_shape(t, params);
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

tr_status_t tr_trained_open(const tr_trained_params_t *params, tr_trained_t *t) {
    tr_weights_t *weights = NULL;
    t->info = tr_world_info(t->world);
    t->step = -1;
    tr_status_t status = trained_find_weights(t, params, &weights);
    if (status == TR_OK) {
        status = trained_open_session(t, params, weights);
        if (status == TR_ERR_CONFIG && !params->from_memory) status = trained_explain(t, params);
    }
    tr_weights_close(&weights);
    return status;
}

void tr_trained_close(tr_trained_t *t) {
    tr_session_destroy(&t->s);
    tr_preprocess_destroy(&t->preprocess);
    tr_str_free(&t->model_difference);
    tr_free(&t->weights_path);
    json_decref(t->state);
    t->state = NULL;
}

tr_status_t tr_trained_is_classifier(const tr_trained_t *t, bool *out) {
    const tr_session_t *s = t->s;
    *out = tr_loss_has_classes(s->model.loss) ||
           (s->model.loss == TR_LOSS_AUTO && s->data.classes > 0);
    if (s->model.loss != TR_LOSS_AUTO || s->data.classes >= 0) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "%s does not record the data that the model was trained on: set "
                   "data.classes to the number of classes, or to 0 for a regression",
                   t->weights_path);
}

bool tr_trained_is_selected_on(const tr_trained_t *t, tr_split_t split) {
    const tr_session_t *s = t->s;
    tr_dataset_t *valid = NULL;
    const bool is_stopped_early = t->is_last && s->train.patience > 0;
    if (strcmp(s->train.valid_every, "0") == 0 || !(t->is_best || is_stopped_early)) return false;
    if (split == TR_SPLIT_VALID) return true;
    if (tr_dataset_open(&s->data, TR_SPLIT_VALID, &valid) != TR_OK) tr_error_clear();
    const bool shares = tr_dataset_shares(valid, s->dataset[split]);
    tr_dataset_close(&valid);
    return shares;
}

/* -- scores ------------------------------------------------------------------------------------ */

typedef struct {
    tr_trained_scores_t *scores;
    int y;         /* index of the field "y" */
    float *output; /* (micro_batch, width) */
} pass_t;

static tr_status_t trained_add_batch(void *self, tr_session_t *s, const tr_batch_t *batch) {
    pass_t *p = self;
    TR_TRY(tr_tensor_read(s->g, s->result.output, p->output));
    tr_class_counts_add(p->scores->classes, p->output, batch->field[p->y], batch->weight,
                        s->order.micro_batch);
    return TR_OK;
}

static tr_status_t trained_prepare(const tr_session_t *s, pass_t *p) {
    const tr_shape_t *shape = tr_shape_of(s->g, s->result.output);
    const int64_t width = tr_shape_elems(shape) / s->order.micro_batch;
    p->y = tr_field_find(&s->info, "y");
    if (p->y < 0 || s->info.classes <= 0 || shape->ndim != 2)
        return TR_FAIL(TR_ERR_CONFIG,
                       "eval requires a model with one output and one y per sample; model.type = "
                       "%s is not such a model",
                       s->model.type);
    TR_TRY(tr_alloc((size_t)tr_shape_elems(shape) * sizeof *p->output, "outputs", &p->output));
    return tr_class_counts_create(width, &p->scores->classes);
}

tr_status_t tr_trained_evaluate(tr_trained_t *t, tr_split_t split, tr_trained_scores_t *out) {
    pass_t p = {.scores = out};
    *out = (tr_trained_scores_t){0};
    if (t->s->info.tokens > 0) /* a language model: a loss, and no output of the whole sample */
        return tr_session_evaluate(t->s, split, NULL, NULL, &out->outcome);
    if (t->s->targets > 0) {
        TR_TRY(tr_session_evaluate(t->s, split, NULL, NULL, &out->outcome));
        out->targets = t->s->target_sums;
        return TR_OK;
    }
    if (t->s->info.is_dense) {
        TR_TRY(tr_session_evaluate(t->s, split, NULL, NULL, &out->outcome));
        TR_TRY(tr_class_counts_create(t->s->info.classes, &out->classes));
        return tr_class_counts_take(out->classes, t->s->confusion), TR_OK;
    }
    tr_status_t status = trained_prepare(t->s, &p);
    if (status == TR_OK)
        status = tr_session_evaluate(
            t->s, split, &(tr_eval_each_t){trained_add_batch, &p, INT64_MAX}, NULL, &out->outcome);
    tr_free(&p.output);
    TR_TRY(status);
    return tr_class_counts_reduce(out->classes, t->world);
}

void tr_trained_scores_free(tr_trained_scores_t *scores) {
    tr_class_counts_destroy(&scores->classes);
}
