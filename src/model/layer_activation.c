/* relu, gelu, silu, sigmoid, tanh. */
#include "layer_int.h"

#define ACTIVATION(symbol, act, text)                                                              \
    static tr_status_t build_##symbol(const tr_layer_context_t *context,                           \
                                      const tr_layer_spec_t *spec, const tr_layer_spec_t *next,    \
                                      tr_tensor_t x, tr_tensor_t *out, bool *out_fused) {          \
        return tr_activation(context->g, x, act, out);                                             \
    }                                                                                              \
    const tr_layer_t tr_layer_##symbol = {.name = #symbol, .help = text, .build = build_##symbol};

ACTIVATION(relu, TR_ACT_RELU, "max(x, 0).")
ACTIVATION(gelu, TR_ACT_GELU, "x Phi(x), Phi the normal distribution (exact, with erf).")
ACTIVATION(silu, TR_ACT_SILU, "x / (1 + exp(-x)), also called swish.")
ACTIVATION(sigmoid, TR_ACT_SIGMOID, "1 / (1 + exp(-x)).")
ACTIVATION(tanh, TR_ACT_TANH, "Hyperbolic tangent.")
