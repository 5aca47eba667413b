/* Sliding windows of convolution and pooling: resolves the user's sizes for an input. */
#include "layer_int.h"
#include <stdio.h>

/* One number applies to all spatial dimensions. */
tr_status_t tr_layer_expand(const tr_layer_spec_t *spec, const char *what, const tr_sizes_t *sizes,
                            int spatial, int out[3]) {
    if (sizes->count != 1 && sizes->count != spatial)
        return TR_LAYER_FAIL(
            spec,
            "%s of '%s' has %d sizes, its input has %d spatial dimensions: give one number "
            "or %d.",
            what, spec->name, sizes->count, spatial, spatial);
    for (int i = 0; i < spatial; i++) out[i] = sizes->size[sizes->count == 1 ? 0 : i];
    return TR_OK;
}

/*
 * "same" pads dilation * (kernel - 1) in all, whatever the stride: ceil(in / stride) positions
 * remain, and for odd kernels it is the usual symmetric kernel / 2.
 */
static tr_status_t resolve_pad(const tr_layer_spec_t *spec, const tr_pad_t *pad,
                               tr_layer_window_t *window) {
    if (!pad->same) {
        TR_TRY(tr_layer_expand(spec, "pad", &pad->sizes, window->spatial, window->pad_lo));
        for (int i = 0; i < window->spatial; i++) window->pad_hi[i] = window->pad_lo[i];
        return TR_OK;
    }
    for (int i = 0; i < window->spatial; i++) {
        int total = window->dilation[i] * (window->kernel[i] - 1);
        window->pad_lo[i] = total / 2;
        window->pad_hi[i] = total - total / 2;
    }
    return TR_OK;
}

static tr_status_t check_fits(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                              tr_tensor_t x, const tr_layer_window_t *window) {
    const tr_shape_t *shape = tr_shape_of(context->g, x);
    for (int i = 0; i < window->spatial; i++) {
        int64_t extent = (int64_t)window->dilation[i] * (window->kernel[i] - 1) + 1;
        if (extent <= shape->dim[1 + i] + window->pad_lo[i] + window->pad_hi[i]) continue;
        char kernel[48], sample[96];
        for (int k = 0, used = 0; k < window->spatial; k++)
            used += snprintf(kernel + used, sizeof kernel - (size_t)used, k ? "x%d" : "%d",
                             window->kernel[k]);
        return TR_LAYER_FAIL(
            spec,
            "%s (%s): its window of %s is larger than its input of %s. Use pad=same in the "
            "convolutions before it, so that only poolings and strides reduce the size, or remove "
            "a pooling.",
            spec->name, tr_scope(context->g), kernel, tr_layer_sample_text(context->g, x, sample));
    }
    return TR_OK;
}

tr_status_t tr_layer_need_spatial(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                                  tr_tensor_t x, int *out) {
    char sample[96];
    *out = tr_layer_spatial(context->g, x);
    if (*out > 0) return TR_OK;
    return TR_LAYER_FAIL(
        spec,
        "%s (%s) requires an input with one to three spatial dimensions and channels, such as "
        "(28, 28, 1); found samples of shape %s.",
        spec->name, tr_scope(context->g), tr_layer_sample_text(context->g, x, sample));
}

tr_status_t tr_layer_window(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                            tr_tensor_t x, const tr_sizes_t *kernel, const tr_sizes_t *stride,
                            const tr_pad_t *pad, const tr_sizes_t *dilation,
                            tr_layer_window_t *out) {
    tr_layer_window_t window = {0};
    TR_TRY(tr_layer_need_spatial(context, spec, x, &window.spatial));
    TR_TRY(tr_layer_expand(spec, "kernel", kernel, window.spatial, window.kernel));
    TR_TRY(tr_layer_expand(spec, "stride", stride->count > 0 ? stride : kernel, window.spatial,
                           window.stride));
    TR_TRY(tr_layer_expand(spec, "dilation", dilation, window.spatial, window.dilation));
    TR_TRY(resolve_pad(spec, pad, &window));
    TR_TRY(check_fits(context, spec, x, &window));
    *out = window;
    return TR_OK;
}
