/* Loss and metrics on a model's output. */
#include "trainer/model.h"
#include "trainer/ops.h"
#include <stdio.h>
#include <string.h>

static tr_tensor_t field_of(const tr_model_batch_t *batch, const char *name) {
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

static tr_status_t check_width(const tr_graph_t *g, tr_tensor_t output, int64_t wanted, const char *why) {
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
                       (long long)shape->dim[1], shape->dim[1] == 1 ? "" : "s", why, (long long)wanted);
    return TR_OK;
}

/* From here on whole numbers may well be no classes. */
enum { MANY_CLASSES = 50 };

/* Whole numbers are taken for classes: one output, or many classes, may mean that they are none. */
static tr_status_t check_classes(const tr_graph_t *g, tr_tensor_t output, const tr_model_batch_t *batch) {
    char why[640], label[320] = "";
    const int64_t classes = batch->classes;
    const tr_shape_t *shape = tr_shape_of(g, output);
    const bool may_be_numbers = classes > MANY_CLASSES || (shape->ndim == 2 && shape->dim[1] == 1);
    if (classes == 1)
        return TR_FAIL(TR_ERR_CONFIG, "data.y has only the class 0: training needs two or more classes; set "
                                      "data.classes to their number, or to 0 for a regression.");
    if (shape->ndim == 2 && shape->dim[1] < classes && batch->label_note)
        snprintf(label, sizeof label, "%s", batch->label_note);
    const char *numbers = may_be_numbers ? "for a regression, set data.classes = 0" : "";
    snprintf(why, sizeof why, "data.y has %lld classes%s%s%s%s%s", (long long)classes,
             *label || *numbers ? " (" : "", label, *label && *numbers ? "; " : "", numbers,
             *label || *numbers ? ")" : "");
    return check_width(g, output, classes, why);
}

static tr_status_t cross_entropy(tr_graph_t *g, const tr_model_settings_t *settings,
                                 const tr_model_batch_t *batch, tr_tensor_t y, tr_model_result_t *out) {
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
    TR_TRY(tr_cross_entropy(g, out->output, y, batch->weight, (float)settings->label_smoothing, &out->loss));
    TR_TRY(tr_topk_correct(g, out->output, y, batch->weight, 1, &out->correct));
    if (settings->topk == 1) return TR_OK;
    return tr_topk_correct(g, out->output, y, batch->weight, (int)settings->topk, &out->correct_topk);
}

static tr_status_t mean_squared(tr_graph_t *g, const tr_model_batch_t *batch, tr_tensor_t y,
                                tr_model_result_t *out) {
    char why[64];
    const tr_shape_t *shape = tr_shape_of(g, y);
    int64_t rows = shape->dim[0], values = 1;
    if (batch->classes > 0)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "model.loss = mse requires numbers, but data.y has %lld classes: use cross_entropy (or "
            "auto).",
            (long long)batch->classes);
    for (int i = 1; i < shape->ndim; i++) values *= shape->dim[i];
    snprintf(why, sizeof why, "data.y has %lld", (long long)values);
    TR_TRY(check_width(g, out->output, values, why));
    TR_TRY(tr_reshape(g, y, &TR_SHAPE(rows, values), &y));
    return tr_mse(g, out->output, y, batch->weight, &out->loss);
}

tr_status_t tr_model_loss(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                          tr_tensor_t output, tr_model_result_t *out) {
    tr_model_settings_t settings;
    tr_tensor_t y = field_of(batch, "y");
    tr_config_read(config, &tr_model_config, &settings);
    TR_TRY(tr_cast(g, output, TR_F32, &output));
    *out = (tr_model_result_t){.output = output};
    if (tr_is_none(y)) return TR_OK;
    if (settings.loss == TR_LOSS_AUTO)
        settings.loss = batch->classes > 0 ? TR_LOSS_CROSS_ENTROPY : TR_LOSS_MSE;
    tr_scope_push(g, "loss");
    tr_status_t status = settings.loss == TR_LOSS_MSE ? mean_squared(g, batch, y, out)
                                                      : cross_entropy(g, &settings, batch, y, out);
    tr_scope_pop(g);
    TR_TRY(status);
    return TR_OK;
}

tr_status_t tr_model_loss_seed(tr_graph_t *g, const tr_model_batch_t *batch, int64_t terms,
                               tr_tensor_t *out) {
    const int64_t rows = tr_shape_elems(tr_shape_of(g, batch->weight));
    const int64_t samples = batch->step_samples > 0 ? batch->step_samples : rows;
    const double all = (double)samples * ((double)terms / (double)rows);
    return tr_const(g, "loss.seed", &TR_SHAPE(terms), 1 / all, out);
}
