/* flatten: (B, S..., C) -> (B, F), channels fastest. */
#include "layer_int.h"

static tr_status_t flatten_build(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                 const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                 bool *out_fused) {
    const tr_shape_t *shape = tr_shape_of(context->g, x);
    int64_t features = 1;
    for (int i = 1; i < shape->ndim; i++) features *= shape->dim[i];
    return tr_reshape(context->g, x, &TR_SHAPE(shape->dim[0], features), out);
}

const tr_layer_t tr_layer_flatten = {
    .name = "flatten",
    .help = "Flattens a sample to a vector, channels fastest: (S..., C) -> (F).",
    .build = flatten_build,
};
