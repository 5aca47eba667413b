/* The cross-entropy of rows of logits with its gradient. */
#include "device/cuda/cuda_head.h"
#include "cuda_rows.cuh"
#include <float.h>

enum { PACK = TR_CUDA_HEAD_PACK };

/* The logits x[0 .. PACK), of which the row has `left`; -INFINITY where it has none. */
static __device__ __forceinline__ void load_logits(const float *x, int64_t left, float (&v)[PACK]) {
    if (left >= PACK) return load(x, true, v);
    for (int k = 0; k < PACK; k++) v[k] = k < left ? x[k] : -INFINITY;
}

template <typename T>
static __device__ __forceinline__ void store_logits(T *y, int64_t left, const float (&v)[PACK]) {
    if (left >= PACK) return store(y, true, v);
    for (int k = 0; k < PACK; k++)
        if (k < left) y[k] = from_float<T>(v[k]);
}

/* The largest logit and the sum of exp(logit - max) of those that a thread has seen (Milakov and
 * Gimelshein 2018). `max` begins with a number, so that a logit of -INFINITY adds 0. NaN stays in
 * the sum. */
struct softmax_t {
    float max, sum;
    __device__ __forceinline__ void rescale(float larger) {
        sum *= expf(max - larger);
        max = larger;
    }
    __device__ __forceinline__ void add(const float (&v)[PACK]) {
        float largest = max, part = 0;
#pragma unroll
        for (int k = 0; k < PACK; k++) largest = v[k] > largest ? v[k] : largest;
        if (largest > max) rescale(largest);
#pragma unroll
        for (int k = 0; k < PACK; k++) part += expf(v[k] - max);
        sum += part;
    }
};

/* A row that counts as 0 has loss and gradient 0 whatever it holds; a label outside the vocabulary
 * gives NaN. */
template <int THREADS, typename T>
static __global__ void __launch_bounds__(THREADS)
    head_rows_kernel(cuda_head_rows_t r, const float *logits, T *grad) {
    const int64_t row = r.first + blockIdx.x, at = (int64_t)blockIdx.x * r.stride;
    const labels_t labels = {r.label, r.narrow_label};
    const int64_t label = label_at(labels, row);
    const float weight = label == -1 ? 0.0f : r.weight[row / r.per_sample];
    const bool known = label >= 0 && label < r.tokens;
    const float own = known ? logits[at + label] : NAN;
    softmax_t seen = {-FLT_MAX, 0};
    float v[PACK];
    for (int64_t i = threadIdx.x * PACK; i < r.tokens; i += THREADS * PACK) {
        load_logits(logits + at + i, r.tokens - i, v);
        seen.add(v);
    }
    seen.rescale(block_max<THREADS>(seen.max));
    const double sum = block_sum<THREADS>((double)seen.sum);
    if (threadIdx.x == 0) {
        r.counted[row] = weight;
        r.loss[row] = weight == 0.0f ? 0.0f : (float)(weight * (log(sum) + seen.max - own));
    }
    if (!grad) return;
    row_barrier<THREADS>(); /* `own` is read: grad may be logits */
    const float factor = known ? (r.dloss ? weight * r.dloss[row] : 0.0f) : NAN;
    const float share = 1.0f / (float)sum;
    for (int64_t i = threadIdx.x * PACK; i < r.tokens; i += THREADS * PACK) {
        load_logits(logits + at + i, r.tokens - i, v);
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            const float d = expf(v[k] - seen.max) * share - (i + k == label ? 1.0f : 0.0f);
            v[k] = weight == 0.0f ? 0.0f : factor * d;
        }
        store_logits(grad + at + i, r.tokens - i, v);
    }
}

tr_status_t tr_cuda_head_rows(tr_stream_t *stream, const cuda_head_rows_t *rows, float *logits,
                              void *grad, tr_dtype_t dtype) {
    CUDA_BY_TYPE(
        dtype, T,
        BY_ROW_LENGTH(rows->tokens, THREADS,
                      CUDA_LAUNCH((head_rows_kernel<THREADS, T>), (unsigned)rows->count, THREADS,
                                  stream, *rows, (const float *)logits, (T *)grad)));
    return TR_OK;
}
