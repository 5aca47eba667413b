/* batchnorm, layernorm. */
#include "layer_int.h"

typedef struct {
    double eps, momentum;
    int init;
} batchnorm_t;
typedef struct {
    double eps;
} layernorm_t;
enum { INIT_ONE, INIT_ZERO };

static const tr_config_field_t batchnorm_fields[] = {
    TR_FIELD_FLOAT(batchnorm_t, eps, "1e-5", 1e-12, 1, "Added to the variance."),
    TR_FIELD_FLOAT(batchnorm_t, momentum, "0.1", 0, 1,
                   "Weight of the current step in the running mean and variance."),
    TR_FIELD_ENUM(batchnorm_t, init, "one", "one|zero",
                  "Initial value of gamma; with zero a residual block starts as the identity."),
};
static const tr_config_field_t layernorm_fields[] = {
    TR_FIELD_FLOAT(layernorm_t, eps, "1e-5", 1e-12, 1, "Added to the variance."),
};

static tr_status_t norm_make_params(const tr_layer_context_t *context, int64_t channels,
                                    double gamma, tr_tensor_t *out_gamma, tr_tensor_t *out_beta) {
    TR_TRY(tr_layer_param(context, "weight", &TR_SHAPE(channels), (tr_init_t){TR_INIT_CONST, gamma},
                          out_gamma));
    return tr_layer_param(context, "bias", &TR_SHAPE(channels), (tr_init_t){TR_INIT_CONST, 0},
                          out_beta);
}

static int64_t channels_of(const tr_layer_context_t *context, tr_tensor_t x) {
    const tr_shape_t *shape = tr_shape_of(context->g, x);
    return shape->dim[shape->ndim - 1];
}

static tr_status_t build_batchnorm(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                   const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                   bool *out_fused) {
    batchnorm_t settings;
    tr_tensor_t gamma, beta, mean, variance;
    int64_t channels = channels_of(context, x);
    TR_TRY(tr_layer_read(&tr_layer_batchnorm, spec, &settings, NULL));
    TR_TRY(norm_make_params(context, channels, settings.init == INIT_ZERO ? 0 : 1, &gamma, &beta));
    TR_TRY(tr_model_state(context->g, "running_mean", &TR_SHAPE(channels), 0, &mean));
    TR_TRY(tr_model_state(context->g, "running_var", &TR_SHAPE(channels), 1, &variance));
    *out_fused = tr_layer_is_plain_relu(next);
    return tr_batchnorm(context->g, x, gamma, beta, mean, variance, (float)settings.eps,
                        (float)settings.momentum, *out_fused ? TR_ACT_RELU : TR_ACT_NONE, out);
}

static tr_status_t build_layernorm(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                   const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                   bool *out_fused) {
    layernorm_t settings;
    tr_tensor_t gamma, beta;
    TR_TRY(tr_layer_read(&tr_layer_layernorm, spec, &settings, NULL));
    TR_TRY(norm_make_params(context, channels_of(context, x), 1, &gamma, &beta));
    return tr_layernorm(context->g, x, gamma, beta, (float)settings.eps, out);
}

const tr_layer_t tr_layer_batchnorm = {
    .name = "batchnorm",
    .elsewhere = "bn batchnormalization batch_normalization batchnorm1d batchnorm2d batchnorm3d",
    .help = "Batch normalisation of each channel. Evaluation uses the running mean and variance.",
    .fields = batchnorm_fields,
    .field_count = TR_COUNT_INT(batchnorm_fields),
    .build = build_batchnorm,
};

const tr_layer_t tr_layer_layernorm = {
    .name = "layernorm",
    .elsewhere = "ln layernormalization layer_normalization",
    .help = "Layer normalisation over the last dimension (the channels of each position).",
    .fields = layernorm_fields,
    .field_count = TR_COUNT_INT(layernorm_fields),
    .build = build_layernorm,
};
