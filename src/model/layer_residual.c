/* residual { main } { shortcut }: main(x) + shortcut(x). */
#include "layer_int.h"
#include <stdio.h>

/* The shortcut that would fit, for the message: a 1x1 convolution, with the stride of the main path
 * if that is plain. */
static void residual_suggest(const tr_graph_t *g, tr_tensor_t x, tr_tensor_t main, char text[128]) {
    const tr_shape_t *in = tr_shape_of(g, x), *out = tr_shape_of(g, main);
    int64_t channels = out->dim[out->ndim - 1];
    int64_t stride = in->ndim == out->ndim && in->ndim > 2 && out->dim[1] > 0
                         ? (in->dim[1] + out->dim[1] - 1) / out->dim[1]
                         : 1;
    if (in->ndim == 2)
        snprintf(text, 128, "{ linear %lld }", (long long)channels);
    else if (stride > 1)
        snprintf(text, 128, "{ conv %lld 1 stride=%lld bias=no, batchnorm }", (long long)channels,
                 (long long)stride);
    else
        snprintf(text, 128, "{ conv %lld 1 bias=no, batchnorm }", (long long)channels);
}

static tr_status_t check_equal(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                               tr_tensor_t x, tr_tensor_t main, tr_tensor_t shortcut) {
    char main_text[96], shortcut_text[96], remedy[128];
    if (tr_shape_equal(tr_shape_of(context->g, main), tr_shape_of(context->g, shortcut)))
        return TR_OK;
    residual_suggest(context->g, x, main, remedy);
    return TR_LAYER_FAIL(
        spec,
        "residual (%s): its block outputs %s, its shortcut%s %s; they are added, so the shapes "
        "must be equal. %s the shortcut %s after the block, or keep size and channels in the block "
        "(pad=same).",
        tr_scope(context->g), tr_layer_sample_text(context->g, main, main_text),
        spec->block_count == 2 ? "" : " (its input)",
        tr_layer_sample_text(context->g, shortcut, shortcut_text),
        spec->block_count == 2 ? "Make" : "Add", remedy);
}

static tr_status_t residual_build(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                  const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                  bool *out_fused) {
    tr_tensor_t main, shortcut = x;
    const tr_layer_block_t *block = spec->blocks;
    TR_TRY(tr_layers_build(context, block[0].specs, block[0].count, x, &main));
    if (spec->block_count == 2) {
        tr_scope_push(context->g, "shortcut");
        tr_status_t status = tr_layers_build(context, block[1].specs, block[1].count, x, &shortcut);
        tr_scope_pop(context->g);
        TR_TRY(status);
    }
    TR_TRY(check_equal(context, spec, x, main, shortcut));
    *out_fused = tr_layer_is_plain_relu(next);
    return tr_add(context->g, main, shortcut, *out_fused ? TR_ACT_RELU : TR_ACT_NONE, out);
}

const tr_layer_t tr_layer_residual = {
    .name = "residual",
    .elsewhere = "skip shortcut",
    .help = "Adds a block of layers and a shortcut: the second block, or the input itself.",
    .min_blocks = 1,
    .max_blocks = 2,
    .build = residual_build,
};
