/* The cross-entropy of rows of logits with its gradient. */
#include "device/cuda/cuda_head.h"
#include "cuda_rows.cuh"

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
    float largest = -INFINITY;
    for (int64_t i = threadIdx.x; i < r.tokens; i += THREADS)
        largest = logits[at + i] > largest ? logits[at + i] : largest;
    const float max = block_max<THREADS>(largest);
    double sum = 0;
    for (int64_t i = threadIdx.x; i < r.tokens; i += THREADS) sum += expf(logits[at + i] - max);
    sum = block_sum<THREADS>(sum);
    if (threadIdx.x == 0) {
        r.counted[row] = weight;
        r.loss[row] = weight == 0.0f ? 0.0f : (float)(weight * (log(sum) + max - own));
    }
    if (!grad) return;
    row_barrier<THREADS>(); /* `own` is read: grad may be logits */
    const float factor = known ? (r.dloss ? weight * r.dloss[row] : 0.0f) : NAN;
    for (int64_t i = threadIdx.x; i < r.tokens; i += THREADS) {
        const float share = (float)(expf(logits[at + i] - max) / sum) - (i == label ? 1.0f : 0.0f);
        grad[at + i] = from_float<T>(weight == 0.0f ? 0.0f : factor * share);
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
