/* maxpool, avgpool, globalpool. */
#include "layer_int.h"
#include <string.h>

typedef struct {
    tr_sizes_t kernel, stride;
    tr_pad_t pad;
} pool_t;

static const tr_config_field_t fields[] = {
    TR_FIELD_SIZES(pool_t, kernel, NULL, 1, 1024, "Size of the window: 2, 3x3."),
    TR_FIELD_SIZES(pool_t, stride, "", 1, 1024,
                   "Stride of the window; default: the size of the window."),
    TR_FIELD_PAD(pool_t, pad, "valid", 0, 4096,
                 "Padding: valid (none), same, or sizes. Padding is excluded from the "
                 "result."),
};

static tr_status_t build_pool(const tr_layer_t *layer, bool max, const tr_layer_context_t *context,
                              const tr_layer_spec_t *spec, tr_tensor_t x, tr_tensor_t *out) {
    pool_t settings;
    tr_layer_window_t window;
    tr_sizes_t one = {1, {1}};
    TR_TRY(tr_layer_read(layer, spec, &settings, NULL));
    TR_TRY(tr_layer_window(context, spec, x, &settings.kernel, &settings.stride, &settings.pad,
                           &one, &window));
    tr_pool_attr_t attr = {.spatial = window.spatial, .max = max};
    for (int i = 0; i < window.spatial; i++)
        if (window.pad_hi[i] >= window.kernel[i])
            return TR_LAYER_FAIL(
                spec,
                "%s (%s): a padding of %d leaves windows of %d without a value; it must be smaller "
                "than the window.",
                layer->name, tr_scope(context->g), window.pad_hi[i], window.kernel[i]);
    memcpy(attr.kernel, window.kernel, sizeof attr.kernel);
    memcpy(attr.stride, window.stride, sizeof attr.stride);
    memcpy(attr.pad_lo, window.pad_lo, sizeof attr.pad_lo);
    memcpy(attr.pad_hi, window.pad_hi, sizeof attr.pad_hi);
    return tr_pool(context->g, x, &attr, out);
}

static tr_status_t build_max(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                             const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                             bool *out_fused) {
    return build_pool(&tr_layer_maxpool, true, context, spec, x, out);
}

static tr_status_t build_avg(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                             const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                             bool *out_fused) {
    return build_pool(&tr_layer_avgpool, false, context, spec, x, out);
}

static tr_status_t build_global(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                bool *out_fused) {
    char sample[96];
    if (tr_layer_spatial(context->g, x) < 0)
        return TR_LAYER_FAIL(
            spec,
            "globalpool (%s) requires an input with spatial dimensions, found samples of shape %s: "
            "remove globalpool.",
            tr_scope(context->g), tr_layer_sample_text(context->g, x, sample));
    return tr_global_avgpool(context->g, x, out);
}

const tr_layer_t tr_layer_maxpool = {
    .name = "maxpool",
    .elsewhere = "maxpooling maxpooling2d max_pooling2d maxpool1d maxpool2d maxpool3d",
    .help = "Maximum of each window.",
    .fields = fields,
    .field_count = TR_COUNT_INT(fields),
    .positional = 1,
    .build = build_max,
};

const tr_layer_t tr_layer_avgpool = {
    .name = "avgpool",
    .elsewhere = "averagepooling averagepooling2d average_pooling2d avgpool1d avgpool2d avgpool3d",
    .help = "Mean of each window, without padding.",
    .fields = fields,
    .field_count = TR_COUNT_INT(fields),
    .positional = 1,
    .build = build_avg,
};

const tr_layer_t tr_layer_globalpool = {
    .name = "globalpool",
    .alias = "global_avgpool",
    .elsewhere = "gap adaptiveavgpool adaptiveavgpool2d globalaveragepooling2d",
    .help = "Mean of each channel over all spatial dimensions: (S..., C) -> (C).",
    .build = build_global,
};
