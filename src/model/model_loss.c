/* Loss and metrics of a model's output. */
#include "model/model.h"
#include "base/mem.h"
#include "trainer/ops.h"
#include <stdio.h>
#include <string.h>

static tr_tensor_t model_loss_field_of(const tr_model_batch_t *batch, const char *name) {
    for (int i = 0; i < batch->count; i++)
        if (strcmp(batch->name[i], name) == 0) return batch->tensor[i];
    return TR_NONE;
}

static char *sample_text(const tr_graph_t *g, tr_tensor_t t, char text[96]) {
    tr_shape_t shape = *tr_shape_of(g, t);
    memmove(shape.dim, shape.dim + 1, sizeof shape.dim - sizeof shape.dim[0]);
    shape.ndim--;
    return tr_shape_format(&shape, text);
}

static tr_status_t check_width(const tr_graph_t *g, tr_tensor_t output, int64_t wanted,
                               const char *why) {
    char text[96];
    const tr_shape_t *shape = tr_shape_of(g, output);
    if (shape->ndim != 2)
        return TR_FAIL(TR_ERR_CONFIG,
                       "model: the last layer outputs %s per sample, %s: end with globalpool or "
                       "flatten, then linear %lld.",
                       sample_text(g, output, text), why, (long long)wanted);
    if (shape->dim[1] != wanted)
        return TR_FAIL(TR_ERR_CONFIG,
                       "model: the last layer outputs %lld value%s per sample, %s: make it linear "
                       "%lld.",
                       (long long)shape->dim[1], shape->dim[1] == 1 ? "" : "s", why,
                       (long long)wanted);
    return TR_OK;
}

/* Above this, integers are probably not classes. */
enum { MANY_CLASSES = 50 };

/* Integers are treated as classes; one output, or many classes, suggest that they are not. */
static tr_status_t check_classes(const tr_graph_t *g, tr_tensor_t output,
                                 const tr_model_batch_t *batch) {
    char why[640], label[320] = "";
    const int64_t classes = batch->classes;
    const tr_shape_t *shape = tr_shape_of(g, output);
    const bool may_be_numbers = classes > MANY_CLASSES || (shape->ndim == 2 && shape->dim[1] == 1);
    if (classes == 1)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.y has only the class 0: training needs two or more classes; set "
                       "data.classes to their number, or to 0 for a regression.");
    if (shape->ndim == 2 && shape->dim[1] < classes && batch->label_note)
        snprintf(label, sizeof label, "%s", batch->label_note);
    const char *numbers = may_be_numbers ? "for a regression, set data.classes = 0" : "";
    snprintf(why, sizeof why, "data.y has %lld classes%s%s%s%s%s", (long long)classes,
             *label || *numbers ? " (" : "", label, *label && *numbers ? "; " : "", numbers,
             *label || *numbers ? ")" : "");
    return check_width(g, output, classes, why);
}

/* *weight: of the samples, times the weight of each sample's class if model.class_weights is
 * set. */
static tr_status_t weigh_classes(tr_graph_t *g, const char *text, const tr_model_batch_t *batch,
                                 tr_tensor_t y, tr_tensor_t *weight) {
    float *values = NULL;
    int count = 0;
    tr_tensor_t table;
    if (!text[0]) return TR_OK;
    if (strcmp(text, "balanced") == 0 && batch->class_weights) {
        TR_TRY(tr_const_values(g, "class_weights", batch->class_weights, batch->classes, &table));
        return tr_class_weight(g, *weight, y, table, weight);
    }
    TR_TRY(tr_alloc((size_t)batch->classes * sizeof *values, "class weights", &values));
    bool is_valid =
        tr_parse_floats(text, (int)batch->classes, values, &count) && count == batch->classes;
    for (int i = 0; i < count && is_valid; i++) is_valid = values[i] >= 0;
    tr_status_t status =
        is_valid
            ? tr_const_values(g, "class_weights", values, count, &table)
            : TR_FAIL(TR_ERR_CONFIG,
                      "model.class_weights expects %lld numbers of at least 0, one for each class, "
                      "comma separated, or balanced; found '%s'",
                      (long long)batch->classes, text);
    tr_free(&values);
    TR_TRY(status);
    return tr_class_weight(g, *weight, y, table, weight);
}

static tr_status_t cross_entropy(tr_graph_t *g, const tr_model_settings_t *settings,
                                 const tr_model_batch_t *batch, tr_tensor_t y,
                                 tr_model_result_t *out) {
    tr_tensor_t weight = batch->weight;
    if (batch->classes <= 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "model.loss = cross_entropy requires classes, but data.y has numbers: use "
                       "mse (or auto).");
    if (settings->topk > batch->classes)
        return TR_FAIL(TR_ERR_CONFIG,
                       "model.topk = %lld requires at least as many classes, but data.y has %lld: "
                       "reduce it.",
                       (long long)settings->topk, (long long)batch->classes);
    TR_TRY(check_classes(g, out->output, batch));
    TR_TRY(weigh_classes(g, settings->class_weights, batch, y, &weight));
    TR_TRY(
        tr_cross_entropy(g, out->output, y, weight, (float)settings->label_smoothing, &out->loss));
    TR_TRY(tr_topk_correct(g, out->output, y, batch->weight, 1, &out->correct));
    if (settings->topk == 1) return TR_OK;
    return tr_topk_correct(g, out->output, y, batch->weight, (int)settings->topk,
                           &out->correct_topk);
}

static tr_status_t loss_of_numbers(tr_graph_t *g, const tr_model_settings_t *settings,
                                   const char *name, const tr_model_batch_t *batch, tr_tensor_t y,
                                   tr_model_result_t *out) {
    char why[64];
    const tr_shape_t *shape = tr_shape_of(g, y);
    int64_t rows = shape->dim[0], values = 1;
    if (batch->classes > 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "model.loss = %s requires numbers, but data.y has %lld classes: use "
                       "cross_entropy (or auto), "
                       "or set data.classes = 0.",
                       name, (long long)batch->classes);
    for (int i = 1; i < shape->ndim; i++) values *= shape->dim[i];
    snprintf(why, sizeof why, "data.y has %lld", (long long)values);
    TR_TRY(check_width(g, out->output, values, why));
    TR_TRY(tr_reshape(g, y, &TR_SHAPE(rows, values), &y));
    switch (settings->loss) {
    case TR_LOSS_HUBER:
        return tr_huber(g, out->output, y, batch->weight, (float)settings->huber_delta, &out->loss);
    case TR_LOSS_BINARY_CROSS_ENTROPY:
        return tr_binary_cross_entropy(g, out->output, y, batch->weight, &out->loss);
    default: return tr_mse(g, out->output, y, batch->weight, &out->loss);
    }
}

/* Binary cross-entropy is computed from scores; predictions are their probabilities. */
static tr_status_t finish_output(tr_graph_t *g, const tr_model_settings_t *settings,
                                 tr_model_result_t *out) {
    if (settings->loss != TR_LOSS_BINARY_CROSS_ENTROPY || tr_graph_mode(g) != TR_EVAL) return TR_OK;
    return tr_activation(g, out->output, TR_ACT_SIGMOID, &out->output);
}

tr_status_t tr_model_loss(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                          tr_tensor_t output, tr_model_result_t *out) {
    tr_model_settings_t settings;
    tr_tensor_t y = model_loss_field_of(batch, "y");
    tr_config_read(config, &tr_model_config, &settings);
    TR_TRY(tr_cast(g, output, TR_F32, &output));
    *out = (tr_model_result_t){.output = output};
    if (tr_is_none(y)) return finish_output(g, &settings, out);
    if (settings.loss == TR_LOSS_AUTO)
        settings.loss = batch->classes > 0 ? TR_LOSS_CROSS_ENTROPY : TR_LOSS_MSE;
    tr_scope_push(g, "loss");
    tr_status_t status =
        settings.loss == TR_LOSS_CROSS_ENTROPY
            ? cross_entropy(g, &settings, batch, y, out)
            : loss_of_numbers(g, &settings, tr_config_get(config, "model.loss"), batch, y, out);
    tr_scope_pop(g);
    TR_TRY(status);
    return finish_output(g, &settings, out);
}

tr_status_t tr_model_loss_seed(tr_graph_t *g, const tr_model_batch_t *batch, int64_t terms,
                               tr_tensor_t *out) {
    const int64_t rows = tr_shape_elems(tr_shape_of(g, batch->weight));
    const int64_t samples = batch->step_samples > 0 ? batch->step_samples : rows;
    const double all = (double)samples * ((double)terms / (double)rows);
    tr_tensor_t scale;
    TR_TRY(tr_const(g, "loss.seed", &TR_SHAPE(terms), 1 / all, out));
    if (tr_is_none(batch->loss_scale) || tr_graph_mode(g) != TR_TRAIN) return TR_OK;
    TR_TRY(tr_slice(g, batch->loss_scale, 0, 1, &scale));
    TR_TRY(tr_reshape(g, *out, &TR_SHAPE(terms, 1), out));
    TR_TRY(tr_cast_normalize(g, *out, scale, TR_NONE, out));
    return tr_reshape(g, *out, &TR_SHAPE(terms), out);
}
