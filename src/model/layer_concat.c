/* concat { a } { b } ...: a(x), b(x), ... concatenated along the channels; concat TAP: x and what
 * `save TAP` kept. */
#include "layer_int.h"

#include <stdio.h>

typedef struct {
    const char *tap;
} concat_t;

static const tr_config_field_t fields[] = {
    TR_FIELD_STRING(concat_t, tap, "", "Name that a `save` before it gave, in place of blocks."),
};

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

static tr_status_t concat_build_tap(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                    const char *name, tr_tensor_t x, tr_tensor_t *out) {
    tr_tensor_t part[2] = {x};
    char x_text[96], tap_text[96], remedy[256];
    TR_TRY(tr_layer_tap(context, spec, name, &part[1]));
    const tr_shape_t in = *tr_shape_of(context->g, x);
    tr_shape_t tap = *tr_shape_of(context->g, part[1]);
    if (tap.ndim == in.ndim) tap.dim[tap.ndim - 1] = in.dim[in.ndim - 1];
    if (tr_shape_equal(&in, &tap)) return tr_concat(context->g, part, 2, out);
    tr_layer_say_multiple(context, remedy);
    return TR_LAYER_FAIL(
        spec,
        "concat (%s): its input is %s, '%.64s' is %s; they are joined along the channels, so "
        "the other sizes must be equal. %s.",
        tr_scope(context->g), tr_layer_sample_text(context->g, x, x_text), name,
        tr_layer_sample_text(context->g, part[1], tap_text), remedy);
}

static tr_status_t concat_build(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                bool *out_fused) {
    concat_t settings;
    tr_tensor_t branch[TR_LAYER_MAX_BLOCKS];
    TR_TRY(tr_layer_read(&tr_layer_concat, spec, &settings, NULL));
    if ((settings.tap[0] != '\0') == (spec->block_count > 0) || spec->block_count == 1)
        return TR_LAYER_FAIL(spec, "concat requires the name of a saved tensor, as in 'concat a', "
                                   "or at least two blocks in braces, as in 'concat { conv 8 3 "
                                   "pad=same } { conv 8 1 }'.");
    if (settings.tap[0] != '\0') return concat_build_tap(context, spec, settings.tap, x, out);
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
    .help = "Joins tensors along the channels: the outputs of its blocks, each of which gets the "
            "layer's input (an empty block passes it through); or, with a name, its input and the "
            "tensor that `save TAP` kept.",
    .fields = fields,
    .field_count = TR_COUNT_INT(fields),
    .positional = 1,
    .max_blocks = TR_LAYER_MAX_BLOCKS,
    .build = concat_build,
};
