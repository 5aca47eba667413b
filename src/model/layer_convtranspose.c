/* convtranspose: transposed convolution over one to three spatial dimensions. */
#include "layer_int.h"
#include <math.h>

typedef struct {
    int64_t channels;
    tr_sizes_t kernel, stride, outpad;
    tr_pad_t pad;
    bool bias;
} convtranspose_t;

static const tr_config_field_t fields[] = {
    TR_FIELD_INT(convtranspose_t, channels, NULL, 1, 1 << 20, "Output channels."),
    TR_FIELD_SIZES(convtranspose_t, kernel, NULL, 1, 1024, "Size of the kernel: 2, 2x2, 3x3x3."),
    TR_FIELD_SIZES(convtranspose_t, stride, "1", 1, 1024,
                   "Distance of the outputs of neighbouring inputs."),
    TR_FIELD_PAD(convtranspose_t, pad, "valid", 0, 4096,
                 "Outputs that are cut off at each side: valid (none), same (the output is stride "
                 "times as large as the input), or sizes."),
    TR_FIELD_SIZES(convtranspose_t, outpad, "0", 0, 1024,
                   "Outputs that are added at the end, fewer than the stride."),
    TR_FIELD_BOOL(convtranspose_t, bias, "yes", "Adds a bias. It is redundant before a batchnorm."),
};

static tr_status_t convtranspose_window(const tr_layer_context_t *context,
                                        const tr_layer_spec_t *spec,
                                        const convtranspose_t *settings, tr_tensor_t x,
                                        tr_conv_attr_t *attr, int out_pad[3]) {
    char sample[96];
    TR_TRY(tr_layer_need_spatial(context, spec, x, &attr->spatial));
    TR_TRY(tr_layer_expand(spec, "kernel", &settings->kernel, attr->spatial, attr->kernel));
    TR_TRY(tr_layer_expand(spec, "stride", &settings->stride, attr->spatial, attr->stride));
    TR_TRY(tr_layer_expand(spec, "outpad", &settings->outpad, attr->spatial, out_pad));
    if (!settings->pad.same)
        TR_TRY(tr_layer_expand(spec, "pad", &settings->pad.sizes, attr->spatial, attr->pad_lo));
    for (int d = 0; d < attr->spatial; d++) {
        const int kernel = attr->kernel[d], stride = attr->stride[d];
        const int64_t in = tr_shape_of(context->g, x)->dim[d + 1];
        attr->dilation[d] = 1;
        attr->pad_hi[d] = attr->pad_lo[d];
        if (settings->pad.same && (kernel < stride || out_pad[d] > 0))
            return TR_LAYER_FAIL(spec,
                                 "convtranspose (%s): pad=same requires a kernel of at least the "
                                 "stride, and no outpad; found kernel %d, stride %d, outpad %d.",
                                 tr_scope(context->g), kernel, stride, out_pad[d]);
        if (settings->pad.same) {
            attr->pad_lo[d] = (kernel - stride) / 2;
            attr->pad_hi[d] = kernel - stride - attr->pad_lo[d];
        }
        if (out_pad[d] >= stride)
            return TR_LAYER_FAIL(
                spec,
                "convtranspose (%s): outpad must be smaller than the stride; found "
                "outpad %d, stride %d.",
                tr_scope(context->g), out_pad[d], stride);
        if ((in - 1) * stride + kernel + out_pad[d] <= attr->pad_lo[d] + attr->pad_hi[d])
            return TR_LAYER_FAIL(spec,
                                 "convtranspose (%s): a padding of %d leaves nothing of its input "
                                 "of %s. Use a smaller pad.",
                                 tr_scope(context->g), attr->pad_lo[d],
                                 tr_layer_sample_text(context->g, x, sample));
    }
    return TR_OK;
}

static tr_status_t convtranspose_build(const tr_layer_context_t *context,
                                       const tr_layer_spec_t *spec, const tr_layer_spec_t *next,
                                       tr_tensor_t x, tr_tensor_t *out, bool *out_fused) {
    convtranspose_t settings;
    tr_conv_attr_t attr = {.groups = 1};
    int out_pad[3] = {0};
    tr_tensor_t w, b;
    TR_TRY(tr_layer_read(&tr_layer_convtranspose, spec, &settings, NULL));
    TR_TRY(convtranspose_window(context, spec, &settings, x, &attr, out_pad));
    const tr_shape_t *in = tr_shape_of(context->g, x);
    tr_shape_t shape = {.ndim = in->ndim, .dim = {in->dim[in->ndim - 1]}};
    double fan_in = (double)shape.dim[0]; /* terms of an output, on average */
    for (int d = 0; d < attr.spatial; d++) {
        shape.dim[d + 1] = attr.kernel[d];
        fan_in *= (double)attr.kernel[d] / attr.stride[d];
    }
    shape.dim[shape.ndim - 1] = settings.channels;
    TR_TRY(tr_layer_param(context, "weight", &shape, (tr_init_t){TR_INIT_NORMAL, sqrt(2 / fan_in)},
                          &w));
    TR_TRY(tr_conv_transpose(context->g, x, w, &attr, out_pad, out));
    if (!settings.bias) return TR_OK;
    TR_TRY(tr_layer_param(context, "bias", &TR_SHAPE(settings.channels),
                          (tr_init_t){TR_INIT_CONST, 0}, &b));
    *out_fused = tr_layer_is_plain_relu(next);
    return tr_bias(context->g, *out, b, *out_fused ? TR_ACT_RELU : TR_ACT_NONE, out);
}

const tr_layer_t tr_layer_convtranspose = {
    .name = "convtranspose",
    .elsewhere = "conv_transpose convtranspose2d conv2dtranspose conv_transpose2d deconv upconv",
    .help =
        "Transposed convolution over all spatial dimensions of its input (one to three): each "
        "input adds its multiple of the kernel to the output. A size becomes (size - 1) x stride + "
        "kernel - padding at both sides + outpad. The weight is initialised from a "
        "normal distribution with standard deviation sqrt(2 x strides / (kernel size x "
        "inputs)), the bias with 0.",
    .fields = fields,
    .field_count = TR_COUNT_INT(fields),
    .positional = 2,
    .build = convtranspose_build,
};
