/* The layers of the activations in activations.def. */
#include "layer_int.h"

#define ACTIVATION(NAME, symbol, keeps_input, text)                                                \
    static tr_status_t build_##symbol(const tr_layer_context_t *context,                           \
                                      const tr_layer_spec_t *spec, const tr_layer_spec_t *next,    \
                                      tr_tensor_t x, tr_tensor_t *out, bool *out_fused) {          \
        return tr_activation(context->g, x, TR_ACT_##NAME, out);                                   \
    }                                                                                              \
    extern const tr_layer_t tr_layer_##symbol; /* layers.def names those of model.layers */        \
    const tr_layer_t tr_layer_##symbol = {.name = #symbol, .help = text, .build = build_##symbol};
#include "trainer/activations.def"
