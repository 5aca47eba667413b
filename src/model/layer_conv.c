/* conv: convolution over one to three spatial dimensions. */
#include "layer_int.h"
#include <math.h>
#include <string.h>

typedef struct {
    int64_t channels, groups;
    tr_sizes_t kernel, stride, dilation;
    tr_pad_t pad;
    bool bias;
} conv_t;

static const tr_config_field_t fields[] = {
    TR_FIELD_INT(conv_t, channels, NULL, 1, 1 << 20, "Output channels."),
    TR_FIELD_SIZES(conv_t, kernel, NULL, 1, 1024, "Size of the kernel: 5, 5x5, 3x3x3."),
    TR_FIELD_SIZES(conv_t, stride, "1", 1, 1024, "Stride of the kernel."),
    TR_FIELD_PAD(
        conv_t, pad, "valid", 0, 4096,
        "Padding with zeros: valid (none), same (ceil(in / stride) outputs; the same on both "
        "sides, and one more at the end for even kernels), or sizes."),
    TR_FIELD_SIZES(conv_t, dilation, "1", 1, 1024,
                   "Dilation: distance between the elements of the kernel."),
    TR_FIELD_INT(conv_t, groups, "1", 1, 1 << 20,
                 "Number of groups of channels that are convolved separately."),
    TR_FIELD_BOOL(conv_t, bias, "yes", "Adds a bias. It is redundant before a batchnorm."),
};

static tr_status_t conv_make_params(const tr_layer_context_t *context, const conv_t *settings,
                                    const tr_layer_window_t *window, int64_t in_channels,
                                    tr_tensor_t *w, tr_tensor_t *b) {
    tr_shape_t shape = {.ndim = window->spatial + 2};
    double taps = 1;
    shape.dim[0] = settings->channels;
    for (int i = 0; i < window->spatial; i++) {
        shape.dim[1 + i] = window->kernel[i];
        taps *= window->kernel[i];
    }
    shape.dim[1 + window->spatial] = in_channels / settings->groups;
    /* He et al. 2015 over fan-out, as residual networks are usually started. */
    double fan_out = taps * (double)settings->channels / (double)settings->groups;
    TR_TRY(tr_layer_param(context, "weight", &shape, (tr_init_t){TR_INIT_NORMAL, sqrt(2 / fan_out)},
                          w));
    *b = TR_NONE;
    if (!settings->bias) return TR_OK;
    return tr_layer_param(context, "bias", &TR_SHAPE(settings->channels),
                          (tr_init_t){TR_INIT_CONST, 0}, b);
}

static tr_status_t conv_build(const tr_layer_context_t *context, const tr_layer_spec_t *spec,
                              const tr_layer_spec_t *next, tr_tensor_t x, tr_tensor_t *out,
                              bool *out_fused) {
    conv_t settings;
    tr_layer_window_t window;
    tr_tensor_t w, b;
    TR_TRY(tr_layer_read(&tr_layer_conv, spec, &settings, NULL));
    TR_TRY(tr_layer_window(context, spec, x, &settings.kernel, &settings.stride, &settings.pad,
                           &settings.dilation, &window));
    int64_t in_channels = tr_shape_of(context->g, x)->dim[window.spatial + 1];
    if (in_channels % settings.groups != 0 || settings.channels % settings.groups != 0)
        return TR_LAYER_FAIL(spec,
                             "conv (%s): groups=%lld must divide its %lld input channels and its "
                             "%lld output channels.",
                             tr_scope(context->g), (long long)settings.groups,
                             (long long)in_channels, (long long)settings.channels);
    TR_TRY(conv_make_params(context, &settings, &window, in_channels, &w, &b));
    tr_conv_attr_t attr = {.spatial = window.spatial, .groups = (int)settings.groups};
    memcpy(attr.kernel, window.kernel, sizeof attr.kernel);
    memcpy(attr.stride, window.stride, sizeof attr.stride);
    memcpy(attr.pad_lo, window.pad_lo, sizeof attr.pad_lo);
    memcpy(attr.pad_hi, window.pad_hi, sizeof attr.pad_hi);
    memcpy(attr.dilation, window.dilation, sizeof attr.dilation);
    *out_fused = tr_layer_is_plain_relu(next);
    attr.act = *out_fused ? TR_ACT_RELU : TR_ACT_NONE;
    return tr_conv(context->g, x, w, b, &attr, out);
}

const tr_layer_t tr_layer_conv = {
    .name = "conv",
    .elsewhere = "convolution convolution2d conv1d conv2d conv3d",
    .help = "Convolution over all spatial dimensions of its input (one to three). The weight is "
            "initialised from a normal distribution with standard deviation sqrt(2 / (kernel size "
            "x outputs / groups)), the bias with 0.",
    .fields = fields,
    .field_count = TR_COUNT_INT(fields),
    .positional = 2,
    .build = conv_build,
};
