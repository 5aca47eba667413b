/* linear: y = x w^T + b. */
#include "layer_int.h"
#include <math.h>

typedef struct {
    int64_t features;
    bool bias;
} linear_t;

static const tr_config_field_t fields[] = {
    TR_FIELD_INT(linear_t, features, NULL, 1, 1 << 24, "Output features."),
    TR_FIELD_BOOL(linear_t, bias, "yes", "Adds a bias."),
};

static tr_status_t linear_build(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                bool *out_fused) {
    linear_t settings;
    char sample[96];
    tr_tensor_t w, b = TR_NONE;
    TR_TRY(tr_layer_read(&tr_layer_linear, spec, &settings, NULL));
    const tr_shape_t *shape = tr_shape_of(context->g, x);
    if (shape->ndim != 2)
        return TR_LAYER_FAIL(
            spec,
            "linear (%s) requires a vector of features, found samples of shape %s: put globalpool "
            "(the mean of each channel) or flatten before it.",
            tr_scope(context->g), tr_layer_sample_text(context->g, x, sample));
    int64_t in = shape->dim[1];
    /* Kaiming uniform with a = sqrt(5), which makes the half-width 1 / sqrt(fan-in) for weight and
     * bias alike. */
    tr_init_t init = {TR_INIT_UNIFORM, 1 / sqrt((double)in)};
    TR_TRY(tr_layer_param(context, "weight", &TR_SHAPE(settings.features, in), init, &w));
    if (settings.bias)
        TR_TRY(tr_layer_param(context, "bias", &TR_SHAPE(settings.features), init, &b));
    *out_fused = tr_layer_is_plain_relu(next);
    return tr_linear(context->g, x, w, b, *out_fused ? TR_ACT_RELU : TR_ACT_NONE, out);
}

const tr_layer_t tr_layer_linear = {
    .name = "linear",
    .elsewhere = "dense fc fullyconnected fully_connected",
    .help = "Fully connected layer on (B, F). Weight and bias are initialised uniformly within 1 / "
            "sqrt(inputs).",
    .fields = fields,
    .field_count = TR_COUNT_INT(fields),
    .positional = 1,
    .build = linear_build,
};
