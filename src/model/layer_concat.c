/* concat { a } { b } ...: a(x), b(x), ... concatenated along the channels. */
#include "layer_int.h"

#include <stdio.h>

/* The check of the op names no remedy that fits a model's text. */
static tr_status_t concat_check_sizes(const tr_layer_context_t *context,
                                      const tr_layer_spec_t *spec, const tr_tensor_t *branch) {
    char first_text[96], other_text[96];
    const tr_shape_t first = *tr_shape_of(context->g, branch[0]);
    for (int i = 1; i < spec->block_count; i++) {
        tr_shape_t other = *tr_shape_of(context->g, branch[i]);
        if (other.ndim == first.ndim) other.dim[other.ndim - 1] = first.dim[first.ndim - 1];
        if (tr_shape_equal(&first, &other)) continue;
        return TR_LAYER_FAIL(spec,
                             "concat (%s): its first block outputs %s, block %d outputs %s; they "
                             "are joined along the channels, so the other sizes must be equal. Use "
                             "the same stride in each block, and pad=same.",
                             tr_scope(context->g),
                             tr_layer_sample_text(context->g, branch[0], first_text), i + 1,
                             tr_layer_sample_text(context->g, branch[i], other_text));
    }
    return TR_OK;
}

static tr_status_t concat_build(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                bool *out_fused) {
    tr_tensor_t branch[TR_LAYER_MAX_BLOCKS];
    for (int i = 0; i < spec->block_count; i++) {
        char name[32];
        snprintf(name, sizeof name, "branch%d", i + 1);
        tr_scope_push(context->g, name);
        const tr_status_t status =
            tr_layers_build(context, spec->blocks[i].specs, spec->blocks[i].count, x, &branch[i]);
        tr_scope_pop(context->g);
        TR_TRY(status);
    }
    TR_TRY(concat_check_sizes(context, spec, branch));
    return tr_concat(context->g, branch, spec->block_count, out);
}

const tr_layer_t tr_layer_concat = {
    .name = "concat",
    .elsewhere = "concatenate cat join dense inception",
    .help = "Joins the outputs of its blocks along the channels. Each block gets the layer's "
            "input; an empty block passes it through.",
    .min_blocks = 2,
    .max_blocks = TR_LAYER_MAX_BLOCKS,
    .build = concat_build,
};
