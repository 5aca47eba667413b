/* batchnorm, layernorm, groupnorm. */
#include "layer_int.h"

typedef struct {
    double eps, momentum;
    int init;
} batchnorm_t;
typedef struct {
    double eps;
} layernorm_t;
typedef struct {
    int64_t groups;
    double eps;
} groupnorm_t;
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

static const tr_config_field_t groupnorm_fields[] = {
    TR_FIELD_INT(groupnorm_t, groups, NULL, 1, 1 << 20,
                 "Number of groups, which divides the number of channels. As many groups as "
                 "channels are an instance normalisation."),
    TR_FIELD_FLOAT(groupnorm_t, eps, "1e-5", 1e-12, 1, "Added to the variance."),
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

static tr_status_t build_groupnorm(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                   const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                   bool *out_fused) {
    groupnorm_t settings;
    tr_tensor_t gamma, beta;
    char sample[96];
    const int64_t channels = channels_of(context, x);
    TR_TRY(tr_layer_read(&tr_layer_groupnorm, spec, &settings, NULL));
    if (channels % settings.groups)
        return TR_LAYER_FAIL(
            spec, "groupnorm (%s): %lld channels cannot be divided into %lld groups of equal size.",
            tr_scope(context->g), (long long)channels, (long long)settings.groups);
    const tr_shape_t *shape = tr_shape_of(context->g, x);
    if (tr_shape_elems(shape) == shape->dim[0] * settings.groups)
        return TR_LAYER_FAIL(
            spec,
            "groupnorm (%s): each of the %lld groups of a sample %s has one value, "
            "which would become 0: use fewer groups.",
            tr_scope(context->g), (long long)settings.groups,
            tr_layer_sample_text(context->g, x, sample));
    TR_TRY(norm_make_params(context, channels, 1, &gamma, &beta));
    *out_fused = tr_layer_is_plain_relu(next);
    const tr_groupnorm_attr_t attr = {.eps = (float)settings.eps,
                                      .act = *out_fused ? TR_ACT_RELU : TR_ACT_NONE,
                                      .groups = (int)settings.groups};
    return tr_groupnorm(context->g, x, gamma, beta, &attr, out);
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

const tr_layer_t tr_layer_groupnorm = {
    .name = "groupnorm",
    .elsewhere = "gn groupnormalization group_normalization group_norm instancenorm instance_norm",
    .help = "Normalisation of each sample over its positions and the channels of a group.",
    .fields = groupnorm_fields,
    .field_count = TR_COUNT_INT(groupnorm_fields),
    .positional = 1,
    .build = build_groupnorm,
};
