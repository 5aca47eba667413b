/* What standard attention computes between its products. */
#include "device/cuda/cuda_plain_rows.h"
#include "cuda_rows.cuh"

enum { ROW_THREADS = 128 };

template <bool MERGE, typename T>
static __global__ void heads_kernel(cuda_heads_t h, const T *x, T *y) {
    const int64_t columns = h.parts * h.heads * h.size, count = h.steps * columns;
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        const int64_t column = i % columns, step = i / columns,
                      at = (column / h.size * h.steps + step) * h.size + column % h.size;
        if (MERGE)
            y[i] = x[at];
        else
            y[at] = x[i];
    }
}

/* A block has one row: one query of one head. */
template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS)
    causal_softmax_kernel(int64_t steps, float scale, const float *scores, T *shares, float *lse) {
    const int64_t row = blockIdx.x, at = row * steps, keys = row % steps + 1;
    float largest = -INFINITY, sum = 0;
    for (int64_t i = threadIdx.x; i < keys; i += ROW_THREADS)
        largest = scores[at + i] > largest ? scores[at + i] : largest;
    const float max = scale * block_max<ROW_THREADS>(largest);
    for (int64_t i = threadIdx.x; i < keys; i += ROW_THREADS)
        sum += expf(scale * scores[at + i] - max);
    sum = block_sum<ROW_THREADS>(sum);
    const float factor = 1 / sum;
    for (int64_t i = threadIdx.x; i < steps; i += ROW_THREADS)
        shares[at + i] =
            from_float<T>(i < keys ? expf(scale * scores[at + i] - max) * factor : 0.0f);
    if (threadIdx.x == 0) lse[row] = max + logf(sum);
}

template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS)
    causal_softmax_bwd_kernel(cuda_heads_t h, float scale, cuda_causal_rows_t r, const T *dy,
                              const T *y, T *shares, T *dscores) {
    const int64_t row = blockIdx.x, step = row % h.steps, at = row * h.steps, keys = step + 1,
                  y_at = (step * h.heads + row / h.steps) * h.size;
    const float lse = r.lse[row];
    float delta = 0;
    for (int64_t i = threadIdx.x; i < h.size; i += ROW_THREADS)
        delta += to_float(dy[row * h.size + i]) * to_float(y[y_at + i]);
    delta = block_sum<ROW_THREADS>(delta);
    for (int64_t i = threadIdx.x; i < h.steps; i += ROW_THREADS) {
        const float share = i < keys ? expf(scale * r.scores[at + i] - lse) : 0.0f;
        shares[at + i] = from_float<T>(share);
        dscores[at + i] =
            from_float<T>(i < keys ? share * (r.dshares[at + i] - delta) * scale : 0.0f);
    }
}

template <bool MERGE>
static tr_status_t heads_move(tr_device_t *device, tr_stream_t *stream, const cuda_heads_t *h,
                              const void *x, void *y) {
    const int64_t count = h->parts * h->heads * h->steps * h->size;
    const unsigned blocks = cuda_blocks(count, 256, tr_cuda_grid_limit(device));
    CUDA_BY_TYPE(
        h->dtype, T,
        CUDA_LAUNCH((heads_kernel<MERGE, T>), blocks, 256, stream, *h, (const T *)x, (T *)y));
    return TR_OK;
}

tr_status_t tr_cuda_heads_split(tr_device_t *device, tr_stream_t *stream, const cuda_heads_t *h,
                                const void *packed, void *split) {
    return heads_move<false>(device, stream, h, packed, split);
}

tr_status_t tr_cuda_heads_merge(tr_device_t *device, tr_stream_t *stream, const cuda_heads_t *h,
                                const void *split, void *packed) {
    return heads_move<true>(device, stream, h, split, packed);
}

tr_status_t tr_cuda_causal_softmax(tr_stream_t *stream, const cuda_heads_t *h, float scale,
                                   const float *scores, void *shares, float *lse) {
    CUDA_BY_TYPE(h->dtype, T,
                 CUDA_LAUNCH(causal_softmax_kernel<T>, (unsigned)(h->heads * h->steps), ROW_THREADS,
                             stream, h->steps, scale, scores, (T *)shares, lse));
    return TR_OK;
}

tr_status_t tr_cuda_causal_softmax_bwd(tr_stream_t *stream, const cuda_heads_t *h, float scale,
                                       const cuda_causal_rows_t *rows, const void *dy,
                                       const void *y, void *shares, void *dscores) {
    CUDA_BY_TYPE(h->dtype, T,
                 CUDA_LAUNCH(causal_softmax_bwd_kernel<T>, (unsigned)(h->heads * h->steps),
                             ROW_THREADS, stream, *h, scale, *rows, (const T *)dy, (const T *)y,
                             (T *)shares, (T *)dscores));
    return TR_OK;
}
