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

/* For a label or `width` values of each position. */
static tr_status_t check_positions(const tr_graph_t *g, tr_tensor_t output, tr_tensor_t y,
                                   bool are_labels, int64_t width, const char *why) {
    char found[96], expected[96];
    tr_shape_t wanted = *tr_shape_of(g, y);
    wanted.ndim += are_labels;
    wanted.dim[wanted.ndim - 1] = width;
    if (tr_shape_equal(tr_shape_of(g, output), &wanted)) return TR_OK;
    memmove(wanted.dim, wanted.dim + 1, sizeof wanted.dim - sizeof wanted.dim[0]);
    wanted.ndim--;
    return TR_FAIL(TR_ERR_CONFIG,
                   "model: the last layer outputs %s per sample, but %s for each position: "
                   "expected %s. End with conv %lld 1, and give back with upsample or "
                   "convtranspose what pooling or strides take from the size, which must be a "
                   "multiple of the product of these (data.targets = sample reads y as one list of "
                   "numbers).",
                   sample_text(g, output, found), why, tr_shape_format(&wanted, expected),
                   (long long)width);
}

/* Above this, integers are probably not classes. */
enum { MANY_CLASSES = 50 };

/* Integers are treated as classes; one output, or many classes, suggest that they are not. */
static tr_status_t check_classes(const tr_graph_t *g, tr_tensor_t output, tr_tensor_t y,
                                 const tr_model_batch_t *batch) {
    char why[640], label[320] = "";
    const int64_t classes = batch->classes;
    const tr_shape_t *shape = tr_shape_of(g, output);
    const bool is_row = shape->ndim == 2 || batch->is_dense;
    const int64_t outputs = shape->dim[shape->ndim - 1];
    const bool may_be_numbers = classes > MANY_CLASSES || (is_row && outputs == 1);
    if (classes == 1)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.y has only the class 0: training needs two or more classes; set "
                       "data.classes to their number, or to 0 for a regression.");
    if (is_row && outputs < classes && batch->label_note)
        snprintf(label, sizeof label, "%s", batch->label_note);
    const char *numbers = outputs == 1 && classes == 2
                              ? "for one output, set data.classes = 0 and model.loss = "
                                "binary_cross_entropy"
                          : may_be_numbers ? "for a regression, set data.classes = 0"
                                           : "";
    snprintf(why, sizeof why, "data.y has %lld classes%s%s%s%s%s", (long long)classes,
             *label || *numbers ? " (" : "", label, *label && *numbers ? "; " : "", numbers,
             *label || *numbers ? ")" : "");
    return batch->is_dense ? check_positions(g, output, y, true, classes, why)
                           : check_width(g, output, classes, why);
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

/* The most classes of positions: their confusion matrix is a result of each batch. */
enum { DENSE_CLASSES = 2048 };

static tr_status_t loss_check_classes(const tr_model_settings_t *settings, const char *name,
                                      const tr_model_batch_t *batch) {
    if (batch->classes <= 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "model.loss = %s requires classes, but data.y has numbers: use mse (or "
                       "auto).",
                       name);
    if (settings->topk > batch->classes)
        return TR_FAIL(TR_ERR_CONFIG,
                       "model.topk = %lld requires at least as many classes, but data.y has %lld: "
                       "reduce it.",
                       (long long)settings->topk, (long long)batch->classes);
    if (settings->loss != TR_LOSS_CROSS_ENTROPY && !batch->is_dense)
        return TR_FAIL(TR_ERR_CONFIG,
                       "model.loss = %s requires a label of each position, but data.y has one of "
                       "each sample: use cross_entropy (or auto).",
                       name);
    if (batch->is_dense && batch->classes > DENSE_CLASSES)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.y has %lld classes of positions, and at most %d are supported: for "
                       "numbers to predict, set data.classes = 0.",
                       (long long)batch->classes, DENSE_CLASSES);
    return TR_OK;
}

/* Terms of cross-entropy are labels, and those of a Dice loss samples. */
static tr_status_t loss_of_classes(tr_graph_t *g, const tr_model_settings_t *settings,
                                   const char *name, const tr_model_batch_t *batch, tr_tensor_t y,
                                   tr_model_result_t *out) {
    const float smoothing = (float)settings->label_smoothing;
    tr_tensor_t counted = batch->weight, weight;
    TR_TRY(loss_check_classes(settings, name, batch));
    TR_TRY(check_classes(g, out->output, y, batch));
    if (batch->is_dense) TR_TRY(tr_term_weight(g, batch->weight, y, &counted));
    weight = counted;
    TR_TRY(weigh_classes(g, settings->class_weights, batch, y, &weight));
    if (batch->is_dense && tr_graph_mode(g) == TR_EVAL)
        TR_TRY(tr_confusion(g, out->output, y, counted, &out->scores));
    if (settings->loss != TR_LOSS_CROSS_ENTROPY)
        return tr_dice(g, out->output, y, counted,
                       settings->loss == TR_LOSS_DICE_CE ? weight : TR_NONE, smoothing, &out->loss);
    if (batch->is_dense) out->terms = counted;
    TR_TRY(tr_cross_entropy(g, out->output, y, weight, smoothing, &out->loss));
    TR_TRY(tr_topk_correct(g, out->output, y, counted, 1, &out->correct));
    if (settings->topk == 1) return TR_OK;
    return tr_topk_correct(g, out->output, y, counted, (int)settings->topk, &out->correct_topk);
}

/* Of rows of predictions and targets. */
static tr_status_t loss_of_rows(tr_graph_t *g, const tr_model_settings_t *settings, tr_tensor_t x,
                                tr_tensor_t y, tr_tensor_t weight, tr_tensor_t *out) {
    switch (settings->loss) {
    case TR_LOSS_HUBER: return tr_huber(g, x, y, weight, (float)settings->huber_delta, out);
    case TR_LOSS_BINARY_CROSS_ENTROPY: return tr_binary_cross_entropy(g, x, y, weight, out);
    case TR_LOSS_MAE: return tr_mae(g, x, y, weight, out);
    default: return tr_mse(g, x, y, weight, out);
    }
}

/* Each value of each position is a term, unless it is NaN. */
static tr_status_t loss_of_positions(tr_graph_t *g, const tr_model_settings_t *settings,
                                     const tr_model_batch_t *batch, tr_tensor_t y,
                                     tr_model_result_t *out) {
    const tr_shape_t *shape = tr_shape_of(g, y);
    const int64_t values = tr_shape_elems(shape), width = shape->dim[shape->ndim - 1];
    char why[64];
    tr_tensor_t x, found = out->output;
    snprintf(why, sizeof why, "data.y has %lld value%s", (long long)width, width == 1 ? "" : "s");
    TR_TRY(check_positions(g, out->output, y, false, width, why));
    TR_TRY(tr_term_weight(g, batch->weight, y, &out->terms));
    if (tr_graph_mode(g) == TR_EVAL) {
        if (settings->loss == TR_LOSS_BINARY_CROSS_ENTROPY)
            TR_TRY(tr_activation(g, found, TR_ACT_SIGMOID, &found));
        TR_TRY(tr_target_sums(g, found, y, out->terms, &out->scores));
    }
    TR_TRY(tr_reshape(g, out->output, &TR_SHAPE(values, 1), &x));
    TR_TRY(tr_reshape(g, y, &TR_SHAPE(values, 1), &y));
    return loss_of_rows(g, settings, x, y, out->terms, &out->loss);
}

static tr_status_t loss_of_numbers(tr_graph_t *g, const tr_model_settings_t *settings,
                                   const char *name, const tr_model_batch_t *batch, tr_tensor_t y,
                                   tr_model_result_t *out) {
    char why[64], of_x[96], of_y[96], found[96];
    const tr_tensor_t x = model_loss_field_of(batch, "x");
    const tr_shape_t *shape = tr_shape_of(g, y);
    int64_t rows = shape->dim[0], values = 1;
    if (batch->classes > 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "model.loss = %s requires numbers, but data.y has %lld classes: use "
                       "cross_entropy (or auto), "
                       "or set data.classes = 0.",
                       name, (long long)batch->classes);
    if (batch->is_dense) return loss_of_positions(g, settings, batch, y, out);
    if (shape->ndim > 2 && tr_shape_of(g, out->output)->ndim > 2 && !tr_is_none(x))
        return TR_FAIL(TR_ERR_CONFIG,
                       "model: the last layer outputs %s per sample, a sample of data.y is %s, and "
                       "one of data.x is %s: targets of each position must have the dimensions of "
                       "data.x without its channels, or these and one for their own channels. "
                       "Correct the file (and see data.layout and data.targets), or end with "
                       "flatten and linear.",
                       sample_text(g, out->output, found), sample_text(g, y, of_y),
                       sample_text(g, x, of_x));
    for (int i = 1; i < shape->ndim; i++) values *= shape->dim[i];
    snprintf(why, sizeof why, "data.y has %lld", (long long)values);
    TR_TRY(check_width(g, out->output, values, why));
    TR_TRY(tr_reshape(g, y, &TR_SHAPE(rows, values), &y));
    return loss_of_rows(g, settings, out->output, y, batch->weight, &out->loss);
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
    tr_status_t status = (tr_loss_has_classes(settings.loss) ? loss_of_classes : loss_of_numbers)(
        g, &settings, tr_config_get(config, "model.loss"), batch, y, out);
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
