/* Sums of a convolution's output, and normalizations. What is reduced are the dimensions where the statistics have 1. */
#include "dnn_int.h"
#include <math.h>
#include <stdlib.h>

/* Sums over x of one(x, y) and two(x, y) for each element of the shape `stat`. */
static void sums(const dense_t *x, const dense_t *y, const dense_t *stat, double *sum, double *sum_of_products) {
    const dense_t *operands[] = {stat};
    walk_t w = walk_begin(x, 1, operands);
    for (int64_t i = 0; i < x->count; i++, walk_next(&w)) {
        sum[w.at[0]] += x->data[i];
        sum_of_products[w.at[0]] += (double)x->data[i] * y->data[i];
    }
}
static double *zeros(const dense_t *like) { return calloc((size_t)like->count, sizeof(double)); }
static double value(const dense_t *x, double otherwise) { return x ? x->data[0] : otherwise; }

/* in: x; out: sum, sum of squares */
void run_genstats(const op_t *op, const dense_t *const in[], dense_t *const out[]) {
    double *sum = zeros(out[0]), *squares = zeros(out[0]);
    (void)op;
    sums(in[0], in[0], out[0], sum, squares);
    for (int64_t i = 0; i < out[0]->count; i++) out[0]->data[i] = (float)sum[i], out[1]->data[i] = (float)squares[i];
    free(sum);
    free(squares);
}

/* in: sum, sum of squares, scale, bias, count, epsilon, factor, running mean and variance
 * out: equivalent scale and bias, mean, inverse deviation, new running mean and variance */
void run_bn_finalize(const op_t *op, const dense_t *const in[], dense_t *const out[]) {
    const double count = value(in[4], 1), epsilon = value(in[5], 0), factor = value(in[6], 0);
    const bool training = op->mode == CUDNN_BN_FINALIZE_STATISTICS_TRAINING;
    for (int64_t i = 0; i < out[0]->count; i++) {
        double mean = in[0]->data[i] / count, variance = in[1]->data[i] / count - mean * mean;
        if (!training) mean = in[7]->data[i], variance = in[8]->data[i];
        const double deviation = 1 / sqrt(variance + epsilon);
        out[0]->data[i] = (float)(in[2]->data[i] * deviation);
        out[1]->data[i] = (float)(in[3]->data[i] - mean * in[2]->data[i] * deviation);
        if (out[2]) out[2]->data[i] = (float)mean;
        if (out[3]) out[3]->data[i] = (float)deviation;
        const double unbiased = count > 1 ? variance * count / (count - 1) : variance;
        if (out[4]) out[4]->data[i] = (float)((1 - factor) * in[7]->data[i] + factor * mean);
        if (out[5]) out[5]->data[i] = (float)((1 - factor) * in[8]->data[i] + factor * unbiased);
    }
}

/* What the statistics of this normalization look like: scale's shape for batch norm, else one per sample (and group). */
static dense_t statistics_shape(const op_t *op, const dense_t *x, const dense_t *scale, const dense_t *mean) {
    dense_t shape = *scale;
    if (mean) return *mean;
    for (int i = 0; i < x->nd; i++)
        shape.dim[i] = op->mode == CUDNN_BATCH_NORM ? scale->dim[i] : scale->dim[i] == 1 ? x->dim[i] : 1;
    shape.count = 1;
    for (int i = 0; i < x->nd; i++) shape.count *= shape.dim[i];
    return shape;
}

/* in: x, scale, bias, epsilon, factor, running mean and variance, mean, inverse deviation (inference)
 * out: y, mean, inverse deviation, new running mean and variance */
void run_norm_forward(const op_t *op, const dense_t *const in[], dense_t *const out[]) {
    const dense_t *x = in[0];
    const dense_t stat = statistics_shape(op, x, in[1], in[7] ? in[7] : in[8] ? in[8] : out[1] ? out[1] : out[2]);
    const double each = (double)x->count / (double)stat.count, epsilon = value(in[3], 0), factor = value(in[4], 0);
    double *mean = zeros(&stat), *deviation = zeros(&stat);
    sums(x, x, &stat, mean, deviation);
    for (int64_t i = 0; i < stat.count; i++) {
        mean[i] = op->mode == CUDNN_RMS_NORM ? 0 : mean[i] / each;
        const double variance = deviation[i] / each - mean[i] * mean[i];
        deviation[i] = 1 / sqrt((variance > 0 ? variance : 0) + epsilon);
        if (in[7]) mean[i] = in[7]->data[i];
        if (in[8]) deviation[i] = in[8]->data[i];
        if (out[1]) out[1]->data[i] = (float)mean[i];
        if (out[2]) out[2]->data[i] = (float)deviation[i];
        if (out[3]) out[3]->data[i] = (float)((1 - factor) * in[5]->data[i] + factor * mean[i]);
        if (out[4]) out[4]->data[i] = (float)((1 - factor) * in[6]->data[i] + factor * variance * each / (each > 1 ? each - 1 : 1));
    }
    const dense_t *operands[] = {&stat, in[1], in[2]};
    walk_t w = walk_begin(x, 3, operands);
    for (int64_t i = 0; i < x->count; i++, walk_next(&w)) {
        const double normal = (x->data[i] - mean[w.at[0]]) * deviation[w.at[0]];
        out[0]->data[i] = (float)(normal * in[1]->data[w.at[1]] + (in[2] ? in[2]->data[w.at[2]] : 0));
    }
    free(mean);
    free(deviation);
}

/* in: x, dy, scale, mean, inverse deviation, epsilon; out: dx, dscale, dbias */
void run_norm_backward(const op_t *op, const dense_t *const in[], dense_t *const out[]) {
    const dense_t *x = in[0], *dy = in[1], *scale = in[2], *deviation = in[4];
    const dense_t stat = statistics_shape(op, x, scale, deviation), *operands[] = {&stat, scale};
    const double each = (double)x->count / (double)stat.count;
    double *sum = zeros(&stat), *product = zeros(&stat), *to_scale = zeros(scale), *to_bias = zeros(scale);
    walk_t w = walk_begin(x, 2, operands);
    for (int64_t i = 0; i < x->count; i++, walk_next(&w)) {
        const double mean = in[3] ? in[3]->data[w.at[0]] : 0, normal = (x->data[i] - mean) * deviation->data[w.at[0]];
        const double slope = (double)dy->data[i] * scale->data[w.at[1]];
        to_scale[w.at[1]] += dy->data[i] * normal;
        to_bias[w.at[1]] += dy->data[i];
        sum[w.at[0]] += op->mode == CUDNN_RMS_NORM ? 0 : slope;
        product[w.at[0]] += slope * normal;
    }
    w = walk_begin(x, 2, operands);
    for (int64_t i = 0; i < x->count; i++, walk_next(&w)) {
        const int64_t s = w.at[0];
        const double mean = in[3] ? in[3]->data[s] : 0, normal = (x->data[i] - mean) * deviation->data[s];
        out[0]->data[i] = (float)(deviation->data[s] * (dy->data[i] * scale->data[w.at[1]] - sum[s] / each - normal * product[s] / each));
    }
    for (int64_t i = 0; i < scale->count; i++) {
        out[1]->data[i] = (float)to_scale[i];
        if (out[2]) out[2]->data[i] = (float)to_bias[i];
    }
    free(sum);
    free(product);
    free(to_scale);
    free(to_bias);
}
