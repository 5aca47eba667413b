/* repeat N { ... }: the layers, repeated N times. */
#include "layer_int.h"

typedef struct {
    int64_t times;
} repeat_t;

static const tr_config_field_t fields[] = {
    TR_FIELD_INT(repeat_t, times, NULL, 1, 1000, "Number of repetitions."),
};

static tr_status_t repeat_build(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                bool *out_fused) {
    repeat_t settings;
    TR_TRY(tr_layer_read(&tr_layer_repeat, spec, &settings, NULL));
    for (int64_t i = 0; i < settings.times; i++)
        TR_TRY(
            tr_layers_build_inside(context, spec->blocks[0].specs, spec->blocks[0].count, x, &x));
    *out = x;
    return TR_OK;
}

const tr_layer_t tr_layer_repeat = {
    .name = "repeat",
    .help = "Equivalent to writing the layers between the braces N times; each repetition has its "
            "own parameters.",
    .fields = fields,
    .field_count = TR_COUNT_INT(fields),
    .positional = 1,
    .min_blocks = 1,
    .max_blocks = 1,
    .transparent = true,
    .build = repeat_build,
};
