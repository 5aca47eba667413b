/* dropout: zeroes random elements during training. */
#include "layer_int.h"

typedef struct {
    double p;
} dropout_t;

static const tr_config_field_t fields[] = {
    TR_FIELD_FLOAT(dropout_t, p, "0.5", 0, 0.999, "Probability of zeroing an element."),
};

static tr_status_t dropout_build(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                 const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                 bool *out_fused) {
    dropout_t settings;
    TR_TRY(tr_layer_read(&tr_layer_dropout, spec, &settings, NULL));
    return tr_dropout(context->g, x, context->batch->sample_id, (float)settings.p, out);
}

const tr_layer_t tr_layer_dropout = {
    .name = "dropout",
    .help = "In training, zeros each element with probability P and scales the others by 1 / (1 - "
            "P). P is 0.5 by default.",
    .fields = fields,
    .field_count = TR_COUNT_INT(fields),
    .positional = 1,
    .build = dropout_build,
};
