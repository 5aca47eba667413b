/* Convolutions as graphs of cuDNN. */
#include "cuda_dnn_int.h"
#include "base/str.h"
#include <string.h>

#define WORKSPACE_BYTES ((size_t)128 << 20)

enum { UID_X = 1, UID_W, UID_BIAS, UID_Y };

/* An image or filter, channels last. uid 0: inside the graph. */
static tr_status_t image(cuda_dnn_plan_t *p, const tr_shape_t *shape, tr_dtype_t dtype, int64_t uid,
                         desc_t *out) {
    const int n = shape->ndim;
    int64_t dim[TR_MAX_DIMS], stride[TR_MAX_DIMS], step = shape->dim[n - 1];
    dim[0] = shape->dim[0], dim[1] = shape->dim[n - 1], stride[1] = 1;
    for (int i = n - 1; i >= 2; i--) {
        dim[i] = shape->dim[i - 1], stride[i] = step;
        step *= dim[i];
    }
    stride[0] = step;
    return tr_cuda_dnn_tensor(p, n, dim, stride, tr_cuda_dnn_type(dtype), uid, out);
}

static tr_status_t convolution(cuda_dnn_plan_t *p, const tr_conv_attr_t *attr, desc_t *out) {
    const int64_t n = attr->spatial;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t lo[3], hi[3], dilation[3], stride[3];
    for (int i = 0; i < attr->spatial; i++) {
        lo[i] = attr->pad_lo[i], hi[i] = attr->pad_hi[i];
        dilation[i] = attr->dilation[i], stride[i] = attr->stride[i];
    }
    TR_TRY(tr_cuda_dnn_create(p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out));
    TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n));
    TR_TRY(
        tr_cuda_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1,
                           &mode));
    TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n, lo));
    TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, hi));
    TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, dilation));
    TR_TRY(
        tr_cuda_dnn_set(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, stride));
    return tr_cuda_dnn_finalize(*out);
}

/* The attributes of one of the three operations. */
typedef struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
} operation_row_t;

static const operation_row_t operation_rows[] = {
    [CUDA_DNN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CUDA_DNN_BACKWARD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CUDA_DNN_BACKWARD_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static tr_status_t operation(cuda_dnn_plan_t *p, const cuda_dnn_conv_t *conv, desc_t x, desc_t w,
                             desc_t y) {
    const operation_row_t *row = &operation_rows[conv->kind];
    const float one = 1, zero = 0; /* of the computation's type: a double is taken, and read as 0 */
    desc_t how, op;
    TR_TRY(convolution(p, conv->attr, &how));
    TR_TRY(tr_cuda_dnn_add(p, row->type, &op));
    TR_TRY(tr_cuda_dnn_set_desc(op, row->conv, how));
    TR_TRY(tr_cuda_dnn_set_desc(op, row->x, x));
    TR_TRY(tr_cuda_dnn_set_desc(op, row->w, w));
    TR_TRY(tr_cuda_dnn_set_desc(op, row->y, y));
    TR_TRY(tr_cuda_dnn_set(op, row->alpha, CUDNN_TYPE_FLOAT, 1, &one));
    TR_TRY(tr_cuda_dnn_set(op, row->beta, CUDNN_TYPE_FLOAT, 1, &zero));
    return tr_cuda_dnn_finalize(op);
}

/* -- graphs ------------------------------------------------------------------------------------ */

/* conv, then bias, then relu: what lies between two of them is f32 and stays inside. */
static tr_status_t forward_operations(cuda_dnn_plan_t *p, const cuda_dnn_conv_t *conv, desc_t x,
                                      desc_t w) {
    desc_t y, next, bias;
    tr_shape_t bias_shape = conv->y;
    for (int i = 0; i < bias_shape.ndim - 1; i++) bias_shape.dim[i] = 1;
    const bool more = conv->bias || conv->relu;
    TR_TRY(image(p, &conv->y, more ? TR_F32 : conv->dtype, more ? 0 : UID_Y, &y));
    TR_TRY(operation(p, conv, x, w, y));
    if (conv->bias) {
        TR_TRY(image(p, &bias_shape, conv->dtype, UID_BIAS, &bias));
        TR_TRY(
            image(p, &conv->y, conv->relu ? TR_F32 : conv->dtype, conv->relu ? 0 : UID_Y, &next));
        TR_TRY(tr_cuda_dnn_pointwise(p, CUDNN_POINTWISE_ADD, y, bias, next));
        y = next;
    }
    if (!conv->relu) return TR_OK;
    TR_TRY(image(p, &conv->y, conv->dtype, UID_Y, &next));
    return tr_cuda_dnn_pointwise(p, CUDNN_POINTWISE_RELU_FWD, y, NULL, next);
}

/* The filter gradient of bf16 and f16 is f32 only through an identity: the operation itself writes
 * its inputs' type. */
static tr_status_t weights_operations(cuda_dnn_plan_t *p, const cuda_dnn_conv_t *conv, desc_t x,
                                      desc_t y) {
    desc_t w, inside;
    const bool direct = conv->dtype == TR_F32;
    TR_TRY(image(p, &conv->w, TR_F32, UID_W, &w));
    if (direct) return operation(p, conv, x, w, y);
    TR_TRY(image(p, &conv->w, TR_F32, 0, &inside));
    TR_TRY(operation(p, conv, x, inside, y));
    return tr_cuda_dnn_pointwise(p, CUDNN_POINTWISE_IDENTITY, inside, NULL, w);
}

static tr_status_t dnn_conv_build(cuda_dnn_plan_t *p, const void *self) {
    const cuda_dnn_conv_t *conv = self;
    desc_t x, w, y;
    TR_TRY(image(p, &conv->x, conv->dtype, UID_X, &x));
    if (conv->kind == CUDA_DNN_BACKWARD_WEIGHTS) {
        TR_TRY(image(p, &conv->y, conv->dtype, UID_Y, &y));
        return weights_operations(p, conv, x, y);
    }
    TR_TRY(image(p, &conv->w, conv->dtype, UID_W, &w));
    if (conv->kind == CUDA_DNN_FORWARD) return forward_operations(p, conv, x, w);
    TR_TRY(image(p, &conv->y, conv->dtype, UID_Y, &y));
    return operation(p, conv, x, w, y);
}

/* Names all that `build` looks at. */
static tr_status_t cuda_dnn_conv_key_of(const cuda_dnn_conv_t *conv, cuda_dnn_math_t math,
                                        tr_str_t *key) {
    static const char *const kinds[] = {[CUDA_DNN_FORWARD] = "forward",
                                        [CUDA_DNN_BACKWARD_DATA] = "backward data",
                                        [CUDA_DNN_BACKWARD_WEIGHTS] = "backward weights"};
    const tr_conv_attr_t *a = conv->attr;
    char x[96], w[96], y[96];
    tr_str_printf(key, "convolution %s %s x %s w %s y %s%s%s", kinds[conv->kind],
                  math == CUDA_DNN_TF32 ? "tf32" : tr_dtype_name(conv->dtype),
                  tr_shape_format(&conv->x, x), tr_shape_format(&conv->w, w),
                  tr_shape_format(&conv->y, y), conv->bias ? " bias" : "",
                  conv->relu ? " relu" : "");
    for (int i = 0; i < a->spatial; i++)
        tr_str_printf(key, " %lld:%lld/%lld+%lld,%lld", (long long)a->kernel[i],
                      (long long)a->dilation[i], (long long)a->stride[i], (long long)a->pad_lo[i],
                      (long long)a->pad_hi[i]);
    return key->status;
}

/* -- plans and runs ---------------------------------------------------------------------------- */

static void insert_dim(tr_shape_t *shape) {
    for (int i = shape->ndim++; i > 1; i--) shape->dim[i] = shape->dim[i - 1];
    shape->dim[1] = 1;
}

/* cuDNN has two spatial dimensions or three: a series is an image of height 1. */
static cuda_dnn_conv_t two_dimensional(const cuda_dnn_conv_t *conv, tr_conv_attr_t *attr) {
    cuda_dnn_conv_t c = *conv;
    *attr = *conv->attr;
    c.attr = attr;
    if (attr->spatial != 1) return c;
    attr->spatial = 2;
    attr->kernel[1] = attr->kernel[0], attr->kernel[0] = 1;
    attr->stride[1] = attr->stride[0], attr->stride[0] = 1;
    attr->dilation[1] = attr->dilation[0], attr->dilation[0] = 1;
    attr->pad_lo[1] = attr->pad_lo[0], attr->pad_lo[0] = 0;
    attr->pad_hi[1] = attr->pad_hi[0], attr->pad_hi[0] = 0;
    insert_dim(&c.x), insert_dim(&c.w), insert_dim(&c.y);
    return c;
}

tr_status_t tr_cuda_dnn_plan(tr_device_t *device, const cuda_dnn_conv_t *conv,
                             cuda_dnn_plan_t **out, size_t *out_workspace_bytes) {
    tr_conv_attr_t attr;
    tr_str_t key = {0};
    const cuda_dnn_conv_t images = two_dimensional(conv, &attr);
    cuda_dnn_graph_t graph = {.math = conv->dtype != TR_F32 ? CUDA_DNN_HALF
                                      : device->tf32        ? CUDA_DNN_TF32
                                                            : CUDA_DNN_F32,
                              .workspace_limit = WORKSPACE_BYTES,
                              .bound = WORKSPACE_BYTES,
                              .build = dnn_conv_build,
                              .self = &images};
    *out = NULL, *out_workspace_bytes = 0;
    tr_status_t status = cuda_dnn_conv_key_of(&images, graph.math, &key);
    graph.key = key.text;
    if (status == TR_OK) status = tr_cuda_dnn_make(device, &graph, out);
    tr_str_free(&key);
    if (*out) *out_workspace_bytes = tr_cuda_dnn_workspace(*out);
    return status;
}

tr_status_t tr_cuda_dnn_run(tr_device_t *device, tr_stream_t *stream, const cuda_dnn_plan_t *plan,
                            const cuda_dnn_data_t *data, void *workspace) {
    int64_t uid[4] = {UID_X, UID_W, UID_Y}, count = 3;
    void *address[4] = {data->x, data->w, data->y};
    if (data->bias) uid[count] = UID_BIAS, address[count++] = data->bias;
    for (int64_t i = 0; i < count; i++)
        if ((uintptr_t)address[i] % CUDA_DNN_ALIGNMENT != 0)
            return TR_FAIL(TR_ERR_INTERNAL,
                           "a convolution's tensor at %p is not aligned to %d bytes", address[i],
                           CUDA_DNN_ALIGNMENT);
    return tr_cuda_dnn_execute(device, stream, plan, count, uid, address, workspace);
}
