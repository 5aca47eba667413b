/* Labels and targets of each position: which of them count, the Dice loss, and scores. A thread
 * takes a row, because there are many rows of few classes. */
#include "cuda_rows.cuh"
#include "device/kernels.h"

struct dense_t {
    const float *x, *weight;
    labels_t label;
    int64_t rows, classes;
    /* The label of a row; -1: it does not count. */
    __device__ int64_t label_of(int64_t row) const {
        const int64_t found = label_at(label, row);
        return weight[row] == 0.0f || found >= classes ? -1 : found;
    }
};

static dense_t dense_of(const tr_kernel_call_t *call) {
    const rows_t r = rows_of(&call->in[0]);
    const dense_t d = {(const float *)call->in[0].data, (const float *)call->in[2].data,
                       labels_of(&call->in[1]), r.rows, r.width};
    return d;
}

static __global__ void __launch_bounds__(MANY)
    term_weight_kernel(const float *weight, const void *target, labels_t labels, bool are_numbers,
                       float *out, int64_t rows, int64_t each) {
    for (int64_t i = global_thread(); i < rows; i += global_threads()) {
        const float number = are_numbers ? ((const float *)target)[i] : 0.0f;
        const bool counts = are_numbers ? number == number : label_at(labels, i) != -1;
        out[i] = counts ? weight[i / each] : 0.0f;
    }
}

CUDA_KERNEL(term_weight) {
    const int64_t rows = tr_shape_elems(&call->in[1].shape),
                  each = rows / tr_shape_elems(&call->in[0].shape);
    CUDA_LAUNCH(term_weight_kernel, cuda_blocks(rows, MANY, tr_cuda_grid_limit(device)), MANY,
                stream, (const float *)call->in[0].data, call->in[1].data, labels_of(&call->in[1]),
                call->in[1].dtype == TR_F32, (float *)call->out[0].data, rows, each);
    return TR_OK;
}

/* -- Dice -------------------------------------------------------------------------------------- */

static __global__ void __launch_bounds__(MANY) dice_lse_kernel(dense_t d, float *lse) {
    for (int64_t r = global_thread(); r < d.rows; r += global_threads()) {
        const float *x = d.x + r * d.classes;
        float max = x[0], sum = 0;
        for (int64_t c = 1; c < d.classes; c++) max = x[c] > max ? x[c] : max;
        for (int64_t c = 0; c < d.classes; c++) sum += expf(x[c] - max);
        lse[r] = (float)(max + log((double)sum));
    }
}

/* A block for each class of a sample, and one behind the classes for its cross-entropy. */
static __global__ void __launch_bounds__(MANY)
    dice_sums_kernel(dense_t d, const float *lse, const float *factor, double smoothing,
                     float *slopes, int64_t rows) {
    const int64_t b = blockIdx.x / (d.classes + 1), c = blockIdx.x % (d.classes + 1);
    const bool is_cross = c == d.classes;
    double both = 0, found = 0, truth = 0, count = 0, sum = 0;
    for (int64_t r = b * rows + threadIdx.x; r < (b + 1) * rows; r += MANY) {
        const int64_t label = d.label_of(r);
        const float *x = d.x + r * d.classes;
        if (label < 0) continue;
        count++;
        if (!is_cross) {
            const double p = expf(x[c] - lse[r]);
            found += p;
            if (label == c) both += p, truth++;
        } else if (factor && factor[r] != 0.0f) {
            double mean = 0;
            for (int64_t k = 0; k < d.classes && smoothing > 0; k++) mean += x[k];
            sum += factor[r] *
                   (lse[r] - (1 - smoothing) * x[label] - smoothing * mean / (double)d.classes);
        }
    }
    count = block_sum<MANY>(count);
    sum = block_sum<MANY>(sum);
    both = block_sum<MANY>(both);
    found = block_sum<MANY>(found);
    truth = block_sum<MANY>(truth);
    if (threadIdx.x > 0) return;
    float *slope = slopes + b * (2 * d.classes + 2) + 2 * c;
    const double divisor = found + truth + TR_DICE_SMOOTH, classes = (double)d.classes;
    if (is_cross) {
        slope[0] = count > 0 ? (float)(1 / count) : 0.0f;
        slope[1] = count > 0 ? (float)(sum / count) : 0.0f;
    } else {
        slope[0] = (float)((2 * both + TR_DICE_SMOOTH) / divisor / (classes * divisor));
        slope[1] = (float)(-2 / (classes * divisor));
    }
}

static __global__ void __launch_bounds__(MANY)
    dice_loss_kernel(const float *slopes, int64_t classes, float *loss, int64_t samples) {
    for (int64_t b = global_thread(); b < samples; b += global_threads()) {
        const float *slope = slopes + b * (2 * classes + 2);
        double dice = 0;
        for (int64_t c = 0; c < classes; c++) dice -= 2.0 * slope[2 * c] / slope[2 * c + 1];
        loss[b] = (float)(1 - dice / (double)classes + slope[2 * classes + 1]);
    }
}

static const float *dice_factor(const tr_kernel_call_t *call) {
    return cuda_present(&call->in[3]) ? (const float *)call->in[3].data : NULL;
}

CUDA_KERNEL(dice_fwd) {
    const dense_t d = dense_of(call);
    const int64_t samples = tr_shape_elems(&call->out[0].shape), limit = tr_cuda_grid_limit(device);
    const double smoothing = ((const tr_xent_attr_t *)call->attr)->smoothing;
    float *lse = (float *)call->out[1].data, *slopes = (float *)call->out[2].data;
    CUDA_LAUNCH(dice_lse_kernel, cuda_blocks(d.rows, MANY, limit), MANY, stream, d, lse);
    CUDA_LAUNCH(dice_sums_kernel, (unsigned)(samples * (d.classes + 1)), MANY, stream, d, lse,
                dice_factor(call), smoothing, slopes, d.rows / samples);
    CUDA_LAUNCH(dice_loss_kernel, cuda_blocks(samples, MANY, limit), MANY, stream, slopes,
                d.classes, (float *)call->out[0].data, samples);
    return TR_OK;
}

/* The gradient of softmax, dx = p (g - sum p g), of g_c = A_c + B_c t_c, plus that of the
 * cross-entropy. dx may be d.x. */
static __global__ void __launch_bounds__(MANY)
    dice_gradient_kernel(dense_t d, const float *factor, const float *lse, const float *slopes,
                         const float *dloss, float smoothing, float *dx, int64_t rows) {
    const float off = smoothing / (float)d.classes;
    for (int64_t r = global_thread(); r < d.rows; r += global_threads()) {
        const float *slope = slopes + r / rows * (2 * d.classes + 2);
        const int64_t label = d.label_of(r), at = r * d.classes;
        const float scale = dloss[r / rows],
                    cross = factor && label >= 0 ? factor[r] * slope[2 * d.classes] : 0.0f;
        float mean = 0;
        for (int64_t c = 0; c < d.classes && label >= 0; c++)
            mean += expf(d.x[at + c] - lse[r]) *
                    (slope[2 * c] + (c == label ? slope[2 * c + 1] : 0.0f));
        for (int64_t c = 0; c < d.classes; c++) {
            const float p = label < 0 ? 0.0f : expf(d.x[at + c] - lse[r]),
                        t = c == label ? 1.0f : 0.0f;
            const float all = scale * (p * (slope[2 * c] + t * slope[2 * c + 1] - mean) +
                                       cross * (p - off - t * (1.0f - smoothing)));
            dx[at + c] = label < 0 ? 0.0f : all;
        }
    }
}

CUDA_KERNEL(dice_bwd) {
    const dense_t d = dense_of(call);
    CUDA_LAUNCH(dice_gradient_kernel, cuda_blocks(d.rows, MANY, tr_cuda_grid_limit(device)), MANY,
                stream, d, dice_factor(call), (const float *)call->in[4].data,
                (const float *)call->in[5].data, (const float *)call->in[6].data,
                ((const tr_xent_attr_t *)call->attr)->smoothing, (float *)call->out[0].data,
                d.rows / tr_shape_elems(&call->in[6].shape));
    return TR_OK;
}

/* -- scores ------------------------------------------------------------------------------------ */

enum { CONFUSION_CELLS = 2048 }; /* counted in shared memory first, up to so many */

static __global__ void __launch_bounds__(MANY)
    confusion_kernel(dense_t d, unsigned long long *count, int cells) {
    __shared__ unsigned own[CONFUSION_CELLS];
    for (int i = threadIdx.x; i < cells; i += MANY) own[i] = 0;
    __syncthreads();
    for (int64_t r = global_thread(); r < d.rows; r += global_threads()) {
        const int64_t label = d.label_of(r);
        const float *x = d.x + r * d.classes;
        int64_t best = 0;
        if (label < 0) continue;
        for (int64_t c = 0; c < d.classes && best < d.classes; c++)
            best = x[c] != x[c] ? d.classes : x[c] > x[best] ? c : best;
        const int64_t cell = label * (d.classes + 1) + best;
        if (cells > 0)
            atomicAdd(&own[cell], 1u);
        else
            atomicAdd(&count[cell], 1ull);
    }
    __syncthreads();
    for (int i = threadIdx.x; i < cells; i += MANY)
        if (own[i] > 0) atomicAdd(&count[i], (unsigned long long)own[i]);
}

CUDA_KERNEL(confusion) {
    const dense_t d = dense_of(call);
    const int64_t cells = d.classes * (d.classes + 1);
    unsigned long long *count = (unsigned long long *)call->out[0].data;
    CUDA_TRY(cudaMemsetAsync(count, 0, (size_t)cells * sizeof *count, stream->handle));
    CUDA_LAUNCH(confusion_kernel, cuda_blocks(d.rows, MANY, tr_cuda_grid_limit(device)), MANY,
                stream, d, count, cells <= CONFUSION_CELLS ? (int)cells : 0);
    return TR_OK;
}

/* A block for each column. */
static __global__ void __launch_bounds__(MANY)
    target_sums_kernel(const float *y, const float *target, const float *weight, double *out,
                       int64_t rows, int64_t width) {
    double sum[8] = {0, 0, 0, 0, 0, 0, 0, 0};
    for (int64_t r = threadIdx.x; r < rows; r += MANY) {
        const int64_t i = r * width + blockIdx.x;
        if (weight[i] == 0.0f) continue;
        const double t = target[i], error = y[i] - t;
        sum[0]++;
        sum[1] += error < 0 ? -error : error;
        sum[2] += error * error;
        sum[3] += t;
        sum[4] += t * t;
        sum[5] += y[i] >= 0.5f && target[i] >= 0.5f;
        sum[6] += y[i] >= 0.5f;
        sum[7] += target[i] >= 0.5f;
    }
    for (int k = 0; k < 8; k++) {
        const double all = block_sum<MANY>(sum[k]);
        if (threadIdx.x == 0) out[blockIdx.x * 8 + k] = all;
    }
}

CUDA_KERNEL(target_sums) {
    const int64_t width = call->out[0].shape.dim[0],
                  rows = tr_shape_elems(&call->in[0].shape) / width;
    CUDA_LAUNCH(target_sums_kernel, (unsigned)width, MANY, stream, (const float *)call->in[0].data,
                (const float *)call->in[1].data, (const float *)call->in[2].data,
                (double *)call->out[0].data, rows, width);
    return TR_OK;
}
