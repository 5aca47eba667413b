/* conv, conv_transpose, conv_bwd_data, conv_bwd_weights; the builders tr_conv, tr_conv_transpose. */
#include "op_int.h"
#include "device/winograd.h"

/* The size of dx does not follow from dy where the stride skips pixels, so it travels behind the
 * kernel's attributes. */
typedef struct {
    tr_conv_attr_t conv;
    int64_t in_spatial[3];
} conv_bwd_attr_t;

static int64_t conv_out_size(const tr_conv_attr_t *attr, int d, int64_t in) {
    int64_t room = in + attr->pad_lo[d] + attr->pad_hi[d] -
                   (int64_t)attr->dilation[d] * (attr->kernel[d] - 1) - 1;
    return room < 0 ? 0 : room / attr->stride[d] + 1;
}

static tr_status_t conv_check_attr(const tr_op_t *op, const tr_conv_attr_t *attr) {
    if (attr->spatial < 1 || attr->spatial > 3)
        return TR_FAIL(TR_ERR_CONFIG, "%s: a convolution has 1 to 3 spatial dimensions, found %d",
                       tr_op_where(op), attr->spatial);
    if (attr->groups < 1)
        return TR_FAIL(TR_ERR_CONFIG, "%s: groups must be at least 1, found %d", tr_op_where(op),
                       attr->groups);
    for (int d = 0; d < attr->spatial; d++)
        if (attr->kernel[d] < 1 || attr->stride[d] < 1 || attr->dilation[d] < 1 ||
            attr->pad_lo[d] < 0 || attr->pad_hi[d] < 0)
            return TR_FAIL(
                TR_ERR_CONFIG,
                "%s: kernel, stride and dilation must be at least 1 and padding at least 0; "
                "dimension %d has kernel %d, stride %d, dilation %d, padding %d and %d",
                tr_op_where(op), d, attr->kernel[d], attr->stride[d], attr->dilation[d],
                attr->pad_lo[d], attr->pad_hi[d]);
    return TR_OK;
}

static tr_status_t conv_nothing_left(const tr_op_t *op, const tr_conv_attr_t *attr,
                                     const tr_shape_t *x) {
    tr_str_t kernel = {0}, size = {0};
    bool padded = false;
    for (int d = 0; d < attr->spatial; d++) {
        tr_str_printf(&kernel, "%s%d", d ? "x" : "", attr->kernel[d]);
        padded |= attr->pad_lo[d] + attr->pad_hi[d] > 0;
    }
    tr_shape_describe(&size, x->dim + 1, x->ndim - 1);
    tr_status_t status = TR_FAIL(
        TR_ERR_CONFIG,
        "%s: convolution %s %s on an input of %s has an empty output; use pad=same, or remove a "
        "pooling or a stride before it",
        tr_op_where(op), kernel.text, padded ? "with this little padding" : "without padding",
        size.text);
    tr_str_free(&kernel);
    tr_str_free(&size);
    return status;
}

static tr_status_t conv_check_weights(const tr_graph_t *g, const tr_op_t *op,
                                      const tr_conv_attr_t *attr, int64_t channels) {
    char text[96];
    const tr_shape_t *w = tr_shape_of(g, op->in[1]);
    bool fits = w->ndim == attr->spatial + 2 && w->dim[w->ndim - 1] * attr->groups == channels &&
                w->dim[0] % attr->groups == 0;
    for (int d = 0; fits && d < attr->spatial; d++) fits = w->dim[d + 1] == attr->kernel[d];
    if (fits) return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG,
        "%s: weight %s does not fit a convolution of %lld channels in %d groups; expected "
        "(outputs, kernel..., channels / groups), and channels and outputs that groups divides",
        tr_op_where(op), tr_shape_format(w, text), (long long)channels, attr->groups);
}

static tr_status_t conv_check_input(const tr_graph_t *g, const tr_op_t *op,
                                    const tr_conv_attr_t *attr) {
    char text[96];
    const tr_shape_t *x = tr_shape_of(g, op->in[0]);
    if (x->ndim == attr->spatial + 2) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "%s: a convolution of %d dimensions requires an input of %d (samples, sizes, "
                   "channels), found %s; give the kernel as many sizes as the data has spatial "
                   "dimensions",
                   tr_op_where(op), attr->spatial, attr->spatial + 2, tr_shape_format(x, text));
}

static tr_status_t conv_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_conv_attr_t *attr = op->attr;
    const char *const what[] = {"its input", "its weight", "its bias"};
    for (int i = 0; i < 2; i++) TR_TRY(tr_op_check_present(op, i, what[i]));
    TR_TRY(tr_op_check_float(g, op, 0, what[0]));
    TR_TRY(tr_op_check_type(g, op, 1, tr_dtype_of(g, op->in[0]), what[1]));
    TR_TRY(conv_check_attr(op, attr));
    TR_TRY(conv_check_input(g, op, attr));
    tr_shape_t x = *tr_shape_of(g, op->in[0]), y = x;
    TR_TRY(conv_check_weights(g, op, attr, x.dim[x.ndim - 1]));
    for (int d = 0; d < attr->spatial; d++) {
        y.dim[d + 1] = conv_out_size(attr, d, x.dim[d + 1]);
        if (y.dim[d + 1] == 0) return conv_nothing_left(op, attr, &x);
    }
    y.dim[y.ndim - 1] = tr_shape_of(g, op->in[1])->dim[0];
    TR_TRY(tr_op_check_vector(g, op, 2, y.dim[y.ndim - 1], what[2]));
    TR_TRY(tr_op_check_bias_copy(g, op, y.dim[y.ndim - 1]));
    return tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &y);
}

/* Two per multiply-add; taps on padding count, as is usual. `channels` of the input per group. */
static double conv_flops_of(const tr_graph_t *g, const tr_conv_attr_t *attr, tr_tensor_t y,
                            tr_tensor_t with_channels, int64_t divide) {
    const tr_shape_t *x = tr_shape_of(g, with_channels);
    double volume = 1; /* of the kernel */
    for (int d = 0; d < attr->spatial; d++) volume *= attr->kernel[d];
    return 2 * tr_op_elems(g, y) * volume * (double)(x->dim[x->ndim - 1] / divide);
}

static double conv_flops(const tr_graph_t *g, const tr_op_t *op) {
    return conv_flops_of(g, op->attr, op->out[0], op->in[1], 1);
}

/* Of multiplications, where the device may use Winograd's algorithm; 1: as direct sums. With vectors
 * of 16 lanes it wants as many channels. */
static double conv_least_share(const tr_graph_t *g, const tr_conv_attr_t *attr, tr_tensor_t x,
                               tr_tensor_t y) {
    enum { LANES = 8 };
    const tr_shape_t *in = tr_shape_of(g, x), *out = tr_shape_of(g, y);
    const int size = tr_winograd_size(attr);
    const bool fits = tr_graph_has_winograd(g, tr_dtype_of(g, x)) && size > 0 &&
                      in->dim[in->ndim - 1] % LANES == 0 && out->dim[out->ndim - 1] % LANES == 0;
    return fits ? tr_winograd_share(size) : 1;
}

static double conv_least_flops(const tr_graph_t *g, const tr_op_t *op) {
    return conv_flops(g, op) * conv_least_share(g, op->attr, op->in[0], op->out[0]);
}

/* -- gradients --------------------------------------------------------------------------------- */

static tr_status_t bwd_data_shape(tr_graph_t *g, tr_op_t *op) {
    const conv_bwd_attr_t *attr = op->attr;
    const tr_shape_t *w = tr_shape_of(g, op->in[1]);
    tr_shape_t x = *tr_shape_of(g, op->in[0]);
    for (int d = 0; d < attr->conv.spatial; d++) x.dim[d + 1] = attr->in_spatial[d];
    x.dim[x.ndim - 1] = w->dim[w->ndim - 1] * attr->conv.groups;
    return tr_op_output(g, op, 0, tr_dtype_of(g, op->in[0]), &x);
}

static double bwd_data_flops(const tr_graph_t *g, const tr_op_t *op) {
    return conv_flops_of(g, op->attr, op->in[0], op->in[1], 1);
}

static double bwd_data_least_flops(const tr_graph_t *g, const tr_op_t *op) {
    const conv_bwd_attr_t *attr = op->attr;
    return bwd_data_flops(g, op) * conv_least_share(g, &attr->conv, op->in[0], op->out[0]);
}

static const tr_op_row_t bwd_data_row = {.name = "conv_bwd_data",
                                         .kernel = TR_K_CONV_BWD_DATA,
                                         .shape = bwd_data_shape,
                                         .flops = bwd_data_flops,
                                         .least_flops = bwd_data_least_flops};

static tr_status_t bwd_weights_shape(tr_graph_t *g, tr_op_t *op) {
    const tr_conv_attr_t *attr = op->attr;
    const tr_shape_t *x = tr_shape_of(g, op->in[0]), *y = tr_shape_of(g, op->in[1]);
    tr_shape_t w = {.ndim = attr->spatial + 2, .dim = {y->dim[y->ndim - 1]}};
    for (int d = 0; d < attr->spatial; d++) w.dim[d + 1] = attr->kernel[d];
    w.dim[w.ndim - 1] = x->dim[x->ndim - 1] / attr->groups;
    int64_t outputs = w.dim[0];
    TR_TRY(tr_op_output(g, op, 0, TR_F32, &w));
    return tr_op_output(g, op, 1, TR_F32, &TR_SHAPE(outputs));
}

static double bwd_weights_flops(const tr_graph_t *g, const tr_op_t *op) {
    const tr_conv_attr_t *attr = op->attr;
    double bias = op->n_out > 1 && !tr_is_none(op->out[1]) ? tr_op_elems(g, op->in[1]) : 0;
    return conv_flops_of(g, attr, op->in[1], op->in[0], attr->groups) + bias;
}

static double bwd_weights_least_flops(const tr_graph_t *g, const tr_op_t *op) {
    return bwd_weights_flops(g, op) * conv_least_share(g, op->attr, op->in[0], op->in[1]);
}

static const tr_op_row_t bwd_weights_row = {.name = "conv_bwd_weights",
                                            .kernel = TR_K_CONV_BWD_WEIGHTS,
                                            .shape = bwd_weights_shape,
                                            .flops = bwd_weights_flops,
                                            .least_flops = bwd_weights_least_flops};

static tr_status_t conv_grad_weights(tr_graph_t *g, const tr_conv_attr_t *attr, tr_tensor_t x,
                                     tr_tensor_t dy, const bool *need, tr_tensor_t *din) {
    tr_tensor_t rows, dw[2];
    if (!need[1]) {
        TR_TRY(tr_fold_rows(g, dy, &rows));
        return tr_column_sum(g, rows, &din[2]);
    }
    TR_TRY(tr_op_append(g, &bwd_weights_row, (tr_tensor_t[]){x, dy}, 2, attr, sizeof *attr,
                        (bool[]){true, need[2]}, dw, 2));
    din[1] = dw[0];
    if (need[2]) din[2] = dw[1];
    return TR_OK;
}

static tr_status_t conv_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                             const bool *need, tr_tensor_t *din) {
    tr_tensor_t x = op->in[0], w = op->in[1], dy;
    if (tr_is_none(dout[0])) return TR_OK;
    conv_bwd_attr_t attr = {.conv = *(const tr_conv_attr_t *)op->attr};
    TR_TRY(tr_op_unfuse_act(g, attr.conv.act, dout[0], op->out[0], &dy));
    attr.conv.act = TR_ACT_NONE;
    for (int d = 0; d < attr.conv.spatial; d++) attr.in_spatial[d] = tr_shape_of(g, x)->dim[d + 1];
    if (need[1] || need[2]) TR_TRY(conv_grad_weights(g, &attr.conv, x, dy, need, din));
    if (need[0])
        TR_TRY(tr_op_append(g, &bwd_data_row, (tr_tensor_t[]){dy, w}, 2, &attr, sizeof attr, NULL,
                            &din[0], 1));
    return TR_OK;
}

static const tr_op_row_t conv_row = {.name = "conv",
                                     .kernel = TR_K_CONV_FWD,
                                     .shape = conv_shape,
                                     .grad = conv_grad,
                                     .flops = conv_flops,
                                     .least_flops = conv_least_flops};

tr_status_t tr_conv(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w, tr_tensor_t b,
                    const tr_conv_attr_t *attr, tr_tensor_t *out) {
    tr_conv_attr_t fused = *attr;
    if (!tr_op_can_fuse(g, attr->act)) fused.act = TR_ACT_NONE;
    tr_tensor_t copy;
    TR_TRY(tr_op_weight(g, x, w, &w));
    TR_TRY(tr_op_bias_copy(g, x, b, &copy));
    TR_TRY(tr_op_append(g, &conv_row, (tr_tensor_t[]){x, w, b, copy}, 4, &fused, sizeof fused, NULL,
                        out, 1));
    return tr_activation(g, *out, fused.act == attr->act ? TR_ACT_NONE : attr->act, out);
}

/* -- transposed -------------------------------------------------------------------------------- */

/* The gradient of a convolution by its input, as a layer: x takes the part of dy. */
static tr_status_t conv_transpose_shape(tr_graph_t *g, tr_op_t *op) {
    const conv_bwd_attr_t *attr = op->attr;
    char text[96];
    const char *const what[] = {"its input", "its weight"};
    for (int i = 0; i < 2; i++) TR_TRY(tr_op_check_present(op, i, what[i]));
    TR_TRY(tr_op_check_float(g, op, 0, what[0]));
    TR_TRY(tr_op_check_type(g, op, 1, tr_dtype_of(g, op->in[0]), what[1]));
    TR_TRY(conv_check_attr(op, &attr->conv));
    TR_TRY(conv_check_input(g, op, &attr->conv));
    const tr_shape_t *x = tr_shape_of(g, op->in[0]), *w = tr_shape_of(g, op->in[1]);
    bool fits = w->ndim == attr->conv.spatial + 2 && w->dim[0] == x->dim[x->ndim - 1] &&
                w->dim[0] % attr->conv.groups == 0;
    for (int d = 0; fits && d < attr->conv.spatial; d++)
        fits = w->dim[d + 1] == attr->conv.kernel[d];
    if (!fits)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: weight %s does not fit a transposed convolution of %lld channels in %d "
                       "groups; expected (channels, kernel..., outputs / groups)",
                       tr_op_where(op), tr_shape_format(w, text), (long long)x->dim[x->ndim - 1],
                       attr->conv.groups);
    for (int d = 0; d < attr->conv.spatial; d++)
        if (attr->in_spatial[d] < 1 ||
            conv_out_size(&attr->conv, d, attr->in_spatial[d]) != x->dim[d + 1])
            return TR_FAIL(TR_ERR_CONFIG,
                           "%s: a transposed convolution of %lld positions with this kernel, "
                           "stride and padding cannot output %lld; expected an output padding "
                           "smaller than the stride",
                           tr_op_where(op), (long long)x->dim[d + 1],
                           (long long)attr->in_spatial[d]);
    return bwd_data_shape(g, op);
}

static tr_status_t conv_transpose_grad(tr_graph_t *g, const tr_op_t *op, const tr_tensor_t *dout,
                                       const bool *need, tr_tensor_t *din) {
    const tr_conv_attr_t *attr = &((const conv_bwd_attr_t *)op->attr)->conv;
    if (tr_is_none(dout[0])) return TR_OK;
    if (need[1]) {
        tr_tensor_t dw[2];
        TR_TRY(tr_op_append(g, &bwd_weights_row, (tr_tensor_t[]){dout[0], op->in[0]}, 2, attr,
                            sizeof *attr, (bool[]){true, false}, dw, 2));
        din[1] = dw[0];
    }
    if (!need[0]) return TR_OK;
    return tr_op_append(g, &conv_row, (tr_tensor_t[]){dout[0], op->in[1], TR_NONE, TR_NONE}, 4,
                        attr, sizeof *attr, NULL, &din[0], 1);
}

static const tr_op_row_t conv_transpose_row = {.name = "conv_transpose",
                                               .kernel = TR_K_CONV_BWD_DATA,
                                               .shape = conv_transpose_shape,
                                               .grad = conv_transpose_grad,
                                               .flops = bwd_data_flops,
                                               .least_flops = bwd_data_least_flops};

tr_status_t tr_conv_transpose(tr_graph_t *g, tr_tensor_t x, tr_tensor_t w,
                              const tr_conv_attr_t *attr, const int *out_pad, tr_tensor_t *out) {
    conv_bwd_attr_t all = {.conv = *attr};
    const tr_shape_t *shape = tr_shape_of(g, x);
    for (int d = 0; d < attr->spatial && d + 1 < shape->ndim; d++)
        all.in_spatial[d] = (shape->dim[d + 1] - 1) * attr->stride[d] - attr->pad_lo[d] -
                            attr->pad_hi[d] + (int64_t)attr->dilation[d] * (attr->kernel[d] - 1) +
                            out_pad[d] + 1;
    TR_TRY(tr_op_weight(g, x, w, &w));
    return tr_op_append(g, &conv_transpose_row, (tr_tensor_t[]){x, w}, 2, &all, sizeof all, NULL,
                        out, 1);
}
