/* Pointwise operations, reductions, products. */
#include "dnn_int.h"
#include <math.h>

#define ROOT_2_OVER_PI 0.79788456080286536

static double sigmoid(double x) {
    return 1 / (1 + exp(-x));
}
static double gelu_tanh(double x) {
    return tanh(ROOT_2_OVER_PI * (x + 0.044715 * x * x * x));
}

static double unary(const op_t *op, double x) {
    switch (op->mode) {
    case CUDNN_POINTWISE_ABS: return fabs(x);
    case CUDNN_POINTWISE_CEIL: return ceil(x);
    case CUDNN_POINTWISE_FLOOR: return floor(x);
    case CUDNN_POINTWISE_COS: return cos(x);
    case CUDNN_POINTWISE_SIN: return sin(x);
    case CUDNN_POINTWISE_TAN: return tan(x);
    case CUDNN_POINTWISE_EXP: return exp(x);
    case CUDNN_POINTWISE_LOG: return log(x);
    case CUDNN_POINTWISE_NEG: return -x;
    case CUDNN_POINTWISE_SQRT: return sqrt(x);
    case CUDNN_POINTWISE_RSQRT: return 1 / sqrt(x);
    case CUDNN_POINTWISE_ERF: return erf(x);
    case CUDNN_POINTWISE_RECIPROCAL: return 1 / x;
    case CUDNN_POINTWISE_LOGICAL_NOT: return x == 0;
    case CUDNN_POINTWISE_RELU_FWD:
        if (x > op->upper_clip) return op->upper_clip;
        return x > op->lower_clip || isnan(x)
                   ? x
                   : op->lower_clip + op->lower_slope * (x - op->lower_clip);
    case CUDNN_POINTWISE_TANH_FWD: return tanh(x);
    case CUDNN_POINTWISE_SIGMOID_FWD: return sigmoid(x);
    case CUDNN_POINTWISE_ELU_FWD: return x > 0 ? x : op->elu_alpha * expm1(x);
    case CUDNN_POINTWISE_GELU_FWD: return 0.5 * x * (1 + erf(x * M_SQRT1_2));
    case CUDNN_POINTWISE_GELU_APPROX_TANH_FWD: return 0.5 * x * (1 + gelu_tanh(x));
    case CUDNN_POINTWISE_SOFTPLUS_FWD: return log1p(exp(op->softplus_beta * x)) / op->softplus_beta;
    case CUDNN_POINTWISE_SWISH_FWD: return x * sigmoid(op->swish_beta * x);
    default: return x; /* identity */
    }
}

static double binary(const op_t *op, double x, double b) {
    switch (op->mode) {
    case CUDNN_POINTWISE_ADD: return x + b;
    case CUDNN_POINTWISE_ADD_SQUARE: return x + b * b;
    case CUDNN_POINTWISE_SUB: return x - b;
    case CUDNN_POINTWISE_MUL: return x * b;
    case CUDNN_POINTWISE_DIV: return x / b;
    case CUDNN_POINTWISE_MOD: return fmod(x, b);
    case CUDNN_POINTWISE_POW: return pow(x, b);
    case CUDNN_POINTWISE_MIN: return fmin(x, b);
    case CUDNN_POINTWISE_MAX: return fmax(x, b);
    case CUDNN_POINTWISE_CMP_EQ: return x == b;
    case CUDNN_POINTWISE_CMP_NEQ: return x != b;
    case CUDNN_POINTWISE_CMP_GT: return x > b;
    case CUDNN_POINTWISE_CMP_GE: return x >= b;
    case CUDNN_POINTWISE_CMP_LT: return x < b;
    case CUDNN_POINTWISE_CMP_LE: return x <= b;
    case CUDNN_POINTWISE_LOGICAL_AND: return x != 0 && b != 0;
    case CUDNN_POINTWISE_LOGICAL_OR: return x != 0 || b != 0;
    default: return NAN;
    }
}

/* The slope at x. */
static double slope(const op_t *op, double x) {
    const double s = sigmoid(x), t = gelu_tanh(x);
    switch (op->mode) {
    case CUDNN_POINTWISE_RELU_BWD:
        return x > op->lower_clip && x <= op->upper_clip ? 1
               : x > op->upper_clip                      ? 0
                                                         : op->lower_slope;
    case CUDNN_POINTWISE_TANH_BWD: return 1 - tanh(x) * tanh(x);
    case CUDNN_POINTWISE_SIGMOID_BWD: return s * (1 - s);
    case CUDNN_POINTWISE_ELU_BWD: return x > 0 ? 1 : op->elu_alpha * exp(x);
    case CUDNN_POINTWISE_GELU_BWD:
        return 0.5 * (1 + erf(x * M_SQRT1_2)) + x * exp(-0.5 * x * x) * 0.3989422804014327;
    case CUDNN_POINTWISE_GELU_APPROX_TANH_BWD:
        return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * ROOT_2_OVER_PI * (1 + 3 * 0.044715 * x * x);
    case CUDNN_POINTWISE_SOFTPLUS_BWD: return sigmoid(op->softplus_beta * x);
    case CUDNN_POINTWISE_SWISH_BWD: {
        const double b = sigmoid(op->swish_beta * x);
        return b + op->swish_beta * x * b * (1 - b);
    }
    default: return NAN;
    }
}

/* in: x, b, t, dy; out: y, dx. */
void run_pointwise(const op_t *op, const dense_t *const in[], dense_t *const out[]) {
    dense_t *y = out[0] ? out[0] : out[1];
    const dense_t *operands[] = {in[0], in[1], in[2], in[3]};
    walk_t w = walk_begin(y, 4, operands);
    for (int64_t i = 0; i < y->count; i++, walk_next(&w)) {
        const double x = op->alpha * in[0]->data[w.at[0]],
                     b = in[1] ? op->beta * in[1]->data[w.at[1]] : 0;
        double result;
        if (op->mode == CUDNN_POINTWISE_GEN_INDEX)
            result = (double)w.index[op->axis];
        else if (op->mode == CUDNN_POINTWISE_BINARY_SELECT)
            result = in[2]->data[w.at[2]] != 0 ? x : b;
        else if (out[1])
            result = slope(op, in[0]->data[w.at[0]]) * in[3]->data[w.at[3]];
        else
            result = in[1] ? binary(op, x, b) : unary(op, x);
        y->data[i] = (float)result;
    }
}

void run_reduction(const op_t *op, const dense_t *const in[], dense_t *const out[]) {
    const dense_t *operands[] = {out[0]};
    dense_t *y = out[0];
    const int64_t each = in[0]->count / y->count;
    const int mode = op->mode;
    for (int64_t i = 0; i < y->count; i++)
        y->data[i] = mode == CUDNN_REDUCE_TENSOR_MAX   ? -INFINITY
                     : mode == CUDNN_REDUCE_TENSOR_MIN ? INFINITY
                                                       : mode == CUDNN_REDUCE_TENSOR_MUL;
    walk_t w = walk_begin(in[0], 1, operands);
    for (int64_t i = 0; i < in[0]->count; i++, walk_next(&w)) {
        const float x = in[0]->data[i];
        float *to = &y->data[w.at[0]];
        switch (mode) {
        case CUDNN_REDUCE_TENSOR_MUL: *to *= x; break;
        case CUDNN_REDUCE_TENSOR_MIN: *to = fminf(*to, x); break;
        case CUDNN_REDUCE_TENSOR_MAX: *to = fmaxf(*to, x); break;
        case CUDNN_REDUCE_TENSOR_AMAX: *to = fmaxf(*to, fabsf(x)); break;
        case CUDNN_REDUCE_TENSOR_NORM1: *to += fabsf(x); break;
        case CUDNN_REDUCE_TENSOR_NORM2: *to += x * x; break;
        default: *to += x;
        }
    }
    for (int64_t i = 0; i < y->count; i++) {
        if (mode == CUDNN_REDUCE_TENSOR_AVG) y->data[i] /= (float)each;
        if (mode == CUDNN_REDUCE_TENSOR_NORM2) y->data[i] = sqrtf(y->data[i]);
    }
}

/* Batches of B may be fewer: as many of C's use one (grouped heads). */
void run_matmul(const op_t *op, const dense_t *const in[], dense_t *const out[]) {
    const dense_t *a = in[0], *b = in[1];
    dense_t *c = out[0];
    const int nd = c->nd;
    const int64_t m = c->dim[nd - 2], n = c->dim[nd - 1], k = a->dim[nd - 1];
    (void)op;
    for (int64_t batch = 0; batch < c->count / (m * n); batch++) {
        int64_t rest = batch, at_a = 0, at_b = 0, size_a = 1, size_b = 1;
        for (int i = nd - 3; i >= 0; i--) {
            const int64_t index = rest % c->dim[i];
            rest /= c->dim[i];
            at_a += (a->dim[i] == 1 ? 0 : index) * size_a;
            at_b += index / (c->dim[i] / b->dim[i]) * size_b;
            size_a *= a->dim[i], size_b *= b->dim[i];
        }
        num_gemm(m, n, k, a->data + at_a * m * k, b->data + at_b * k * n, c->data + batch * m * n);
    }
}
