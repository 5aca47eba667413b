/* Whether the operands of an operation fit each other. */
#include "dnn_int.h"

#define CONV_FWD    CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
#define CONV_DATA   CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
#define CONV_FILTER CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR

bool dnn_is_operation(int kind) {
    switch (kind) {
    case CONV_FWD:
    case CONV_DATA:
    case CONV_FILTER:
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR: return true;
    default: return false;
    }
}

static cudnnStatus_t mismatch(const char *what) {
    return dnn_refuse(CUDNN_STATUS_BAD_PARAM_SHAPE_MISMATCH, "shapes do not fit: %s", what);
}

static cudnnStatus_t check_convolution(const op_t *op, const tensor_t *x, const tensor_t *w,
                                       const tensor_t *y) {
    const int nd = op->spatial + 2;
    if (x->nd != nd || w->nd != nd || y->nd != nd)
        return mismatch("number of dimensions of a convolution");
    if (x->dim[0] != y->dim[0] || w->dim[0] != y->dim[1])
        return mismatch("batch or output channels of a convolution");
    if (x->dim[1] % w->dim[1] || w->dim[0] % (x->dim[1] / w->dim[1]))
        return mismatch("channels and groups of a convolution");
    for (int i = 0; i < op->spatial; i++) {
        const int64_t reach = (w->dim[2 + i] - 1) * op->dilation[i] + 1,
                      room = x->dim[2 + i] + op->pre[i] + op->post[i];
        if (room < reach || y->dim[2 + i] != (room - reach) / op->step[i] + 1)
            return mismatch("extent of a convolution");
    }
    return CUDNN_STATUS_SUCCESS;
}

static bool broadcasts(const tensor_t *from, const tensor_t *to) {
    if (from->nd != to->nd) return false;
    for (int i = 0; i < to->nd; i++)
        if (from->dim[i] != to->dim[i] && from->dim[i] != 1) return false;
    return true;
}

static cudnnStatus_t check_pointwise(const program_t *p, const op_t *op) {
    const bool backward =
        op->mode >= CUDNN_POINTWISE_RELU_BWD && op->mode <= CUDNN_POINTWISE_GELU_APPROX_TANH_BWD;
    const int out = backward ? op->out[1] : op->out[0];
    if (out < 0 || (backward && op->in[3] < 0))
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "a pointwise operation lacks an operand");
    for (int i = 0; i < 4; i++)
        if (op->in[i] >= 0 && !broadcasts(&p->tensor[op->in[i]], &p->tensor[out]))
            return mismatch("pointwise");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_matmul(const tensor_t *a, const tensor_t *b, const tensor_t *c) {
    const int nd = c->nd;
    if (nd < 2 || a->nd != nd || b->nd != nd) return mismatch("number of dimensions of a product");
    if (a->dim[nd - 2] != c->dim[nd - 2] || b->dim[nd - 1] != c->dim[nd - 1] ||
        a->dim[nd - 1] != b->dim[nd - 2])
        return mismatch("product");
    for (int i = 0; i < nd - 2; i++)
        if ((a->dim[i] != c->dim[i] && a->dim[i] != 1) || c->dim[i] % b->dim[i])
            return mismatch("batches of a product");
    return CUDNN_STATUS_SUCCESS;
}

static int64_t elements(const tensor_t *t) {
    int64_t n = 1;
    for (int i = 0; i < t->nd; i++) n *= t->dim[i];
    return n;
}
/* From the first element to the last. */
static int64_t extent(const tensor_t *t) {
    int64_t n = 0;
    for (int i = 0; i < t->nd; i++) n += (t->dim[i] - 1) * t->stride[i];
    return n;
}

cudnnStatus_t dnn_check_op(const program_t *p, const op_t *op) {
    const tensor_t *in0 = op->in[0] < 0 ? NULL : &p->tensor[op->in[0]],
                   *in1 = op->in[1] < 0 ? NULL : &p->tensor[op->in[1]];
    const tensor_t *out0 = op->out[0] < 0 ? NULL : &p->tensor[op->out[0]];
    switch (op->kind) {
    case CONV_FWD: return check_convolution(op, in0, in1, out0);
    case CONV_DATA: return check_convolution(op, out0, in1, in0);
    case CONV_FILTER: return check_convolution(op, in0, out0, in1);
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return check_pointwise(p, op);
    case CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR: return check_matmul(in0, in1, out0);
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        return broadcasts(out0, in0) ? CUDNN_STATUS_SUCCESS : mismatch("reduction");
    case CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR:
        return elements(in0) == elements(out0) && extent(in0) == extent(out0) ? CUDNN_STATUS_SUCCESS
                                                                              : mismatch("reshape");
    default: return CUDNN_STATUS_SUCCESS;
    }
}
