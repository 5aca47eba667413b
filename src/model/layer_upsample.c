/* upsample. */
#include "layer_int.h"

typedef struct {
    tr_sizes_t factor;
    int mode;
} upsample_t;
enum { NEAREST, LINEAR };

static const tr_config_field_t fields[] = {
    TR_FIELD_SIZES(upsample_t, factor, NULL, 1, 16, "Factor of each size: 2, 2x2, 1x2x2."),
    TR_FIELD_ENUM(upsample_t, mode, "nearest", "nearest|linear",
                  "nearest repeats values; linear interpolates between them in every dimension "
                  "(PyTorch's linear, bilinear and trilinear with align_corners=False)."),
};

static tr_status_t upsample_build(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                  const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                                  bool *out_fused) {
    upsample_t settings;
    tr_upsample_attr_t attr = {0};
    TR_TRY(tr_layer_read(&tr_layer_upsample, spec, &settings, NULL));
    TR_TRY(tr_layer_need_spatial(context, spec, x, &attr.spatial));
    TR_TRY(tr_layer_expand(spec, "factor", &settings.factor, attr.spatial, attr.factor));
    attr.linear = settings.mode == LINEAR;
    return tr_upsample(context->g, x, &attr, out);
}

const tr_layer_t tr_layer_upsample = {
    .name = "upsample",
    .elsewhere = "upsampling upsampling2d interpolate resize",
    .help =
        "Makes each spatial size (one to three) a multiple of what it was, by whole factors up to "
        "16.",
    .fields = fields,
    .field_count = TR_COUNT_INT(fields),
    .positional = 1,
    .build = upsample_build,
};
