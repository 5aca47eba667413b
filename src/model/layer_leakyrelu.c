/* leakyrelu. */
#include "layer_int.h"

typedef struct {
    double slope;
} leakyrelu_t;

static const tr_config_field_t fields[] = {
    TR_FIELD_FLOAT(leakyrelu_t, slope, "0.01", 0, 1, "Factor of values below 0."),
};

static tr_status_t leakyrelu_build(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                   const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                   bool *out_fused) {
    leakyrelu_t settings;
    TR_TRY(tr_layer_read(&tr_layer_leakyrelu, spec, &settings, NULL));
    return tr_leaky_relu(context->g, x, (float)settings.slope, out);
}

const tr_layer_t tr_layer_leakyrelu = {
    .name = "leakyrelu",
    .alias = "leaky_relu",
    .elsewhere = "lrelu",
    .help = "x above 0, else slope times x.",
    .fields = fields,
    .field_count = TR_COUNT_INT(fields),
    .positional = 1,
    .build = leakyrelu_build,
};
