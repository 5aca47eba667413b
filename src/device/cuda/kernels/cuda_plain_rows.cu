/* What standard attention computes between its products, and masks of dropout. */
#include "cuda_dropout.cuh"
#include "cuda_rows.cuh"

/* A thread has four keys at a time. */
enum { ROW_THREADS = 64, KEYS = 4 };

template <bool MERGE, typename T>
static __global__ void heads_kernel(cuda_heads_t h, const T *x, T *y) {
    const int64_t columns = h.parts * h.heads * h.size, count = h.samples * h.steps * columns;
    for (int64_t i = global_thread(); i < count; i += global_threads()) {
        const int64_t column = i % columns, step = i / columns % h.steps,
                      sample = i / columns / h.steps, head = column / h.size,
                      matrix = (head / h.heads * h.samples + sample) * h.heads + head % h.heads,
                      at = (matrix * h.steps + step) * h.size + column % h.size;
        if (MERGE)
            y[i] = x[at];
        else
            y[at] = x[i];
    }
}

/* A block has one row: one query of one head of one sample. */
struct causal_row_t {
    int64_t step, head, sample, at;
    int64_t keys; /* those that the query sees */
    bool wide;    /* rows are whole packs of keys */
    __device__ __forceinline__ causal_row_t(const cuda_heads_t &h, unsigned row)
        : step(row % (unsigned)h.steps), head(row / (unsigned)h.steps % (unsigned)h.heads),
          sample(row / (unsigned)h.steps / (unsigned)h.heads), at(row * h.steps), keys(step + 1),
          wide(h.steps % KEYS == 0) {}
    /* The values of KEYS keys; `other` where there are none. */
    __device__ __forceinline__ void read(const float *x, int64_t key, float other,
                                         float (&v)[KEYS]) const {
        if (wide)
            load(x + at + key, true, v);
        else
            for (int k = 0; k < KEYS; k++) v[k] = key + k < keys ? x[at + key + k] : other;
        for (int k = 0; k < KEYS; k++) v[k] = key + k < keys ? v[k] : other;
    }
    template <typename T>
    __device__ __forceinline__ void write(T *y, int64_t key, int64_t steps,
                                          const float (&v)[KEYS]) const {
        if (wide) return store(y + at + key, true, v);
        for (int k = 0; k < KEYS; k++)
            if (key + k < steps) y[at + key + k] = from_float<T>(v[k]);
    }
};

template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS)
    causal_softmax_kernel(cuda_heads_t h, float scale, cuda_attention_dropout_t dropout,
                          const float *scores, T *shares, float *lse) {
    const causal_row_t row(h, blockIdx.x);
    const int64_t first = threadIdx.x * KEYS, elements = (row.head * h.steps + row.step) * h.steps;
    float v[KEYS], w[KEYS], largest = -INFINITY, sum = 0;
    for (int64_t i = first; i < row.keys; i += ROW_THREADS * KEYS) {
        row.read(scores, i, -INFINITY, v);
        for (int k = 0; k < KEYS; k++) largest = v[k] > largest ? v[k] : largest;
    }
    const float max = scale * block_max<ROW_THREADS>(largest);
    for (int64_t i = first; i < row.keys; i += ROW_THREADS * KEYS) {
        row.read(scores, i, -INFINITY, v);
        for (int k = 0; k < KEYS; k++) sum += expf(scale * v[k] - max);
    }
    sum = block_sum<ROW_THREADS>(sum);
    const float factor = 1 / sum;
    for (int64_t i = first; i < h.steps; i += ROW_THREADS * KEYS) {
        row.read(scores, i, -INFINITY, v);
        dropout_factors(dropout, row.sample, elements + i, w);
        for (int k = 0; k < KEYS; k++) v[k] = expf(scale * v[k] - max) * factor * w[k];
        row.write(shares, i, h.steps, v);
    }
    if (threadIdx.x == 0) lse[blockIdx.x] = max + logf(sum);
}

template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS)
    causal_softmax_bwd_kernel(cuda_heads_t h, float scale, cuda_attention_dropout_t dropout,
                              cuda_causal_rows_t r, const T *dy, const T *y, T *shares,
                              T *dscores) {
    const causal_row_t row(h, blockIdx.x);
    const int64_t split = (int64_t)blockIdx.x * h.size,
                  packed = ((row.sample * h.steps + row.step) * h.heads + row.head) * h.size,
                  elements = (row.head * h.steps + row.step) * h.steps;
    const float lse = r.lse[blockIdx.x];
    float s[KEYS], dp[KEYS], w[KEYS], delta = 0;
    for (int64_t i = threadIdx.x; i < h.size; i += ROW_THREADS)
        delta += to_float(dy[split + i]) * to_float(y[packed + i]);
    delta = block_sum<ROW_THREADS>(delta);
    for (int64_t i = threadIdx.x * KEYS; i < h.steps; i += ROW_THREADS * KEYS) {
        row.read(r.scores, i, -INFINITY, s);
        row.read(r.dshares, i, 0.0f, dp);
        dropout_factors(dropout, row.sample, elements + i, w);
        for (int k = 0; k < KEYS; k++) {
            const float share = expf(scale * s[k] - lse);
            s[k] = share * w[k];
            dp[k] = share * (w[k] * dp[k] - delta) * scale;
        }
        row.write(shares, i, h.steps, s);
        row.write(dscores, i, h.steps, dp);
    }
}

/* The words of later keys are not drawn: cuDNN makes their probabilities zero. */
template <typename T>
static __global__ void __launch_bounds__(ROW_THREADS)
    dropout_mask_kernel(cuda_heads_t h, cuda_attention_dropout_t dropout, T *mask) {
    const causal_row_t row(h, blockIdx.x);
    const int64_t elements = (row.head * h.steps + row.step) * h.steps;
    for (int64_t i = threadIdx.x * KEYS; i < h.steps; i += ROW_THREADS * KEYS) {
        float kept[KEYS] = {0};
        if (i < row.keys) dropout_factors(dropout, row.sample, elements + i, kept);
        for (int k = 0; k < KEYS; k++) kept[k] = i + k < row.keys ? kept[k] : 0.0f;
        row.write(mask, i, h.steps, kept);
    }
}

template <bool MERGE>
static tr_status_t heads_move(tr_device_t *device, tr_stream_t *stream, const cuda_heads_t *h,
                              const void *x, void *y) {
    const int64_t count = h->samples * h->parts * h->heads * h->steps * h->size;
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

static unsigned rows_of_heads(const cuda_heads_t *h) {
    return (unsigned)(h->samples * h->heads * h->steps);
}

tr_status_t tr_cuda_dropout_mask(tr_stream_t *stream, const cuda_heads_t *h,
                                 const cuda_attention_dropout_t *dropout, void *mask) {
    CUDA_BY_TYPE(h->dtype, T,
                 CUDA_LAUNCH(dropout_mask_kernel<T>, rows_of_heads(h), ROW_THREADS, stream, *h,
                             *dropout, (T *)mask));
    return TR_OK;
}

tr_status_t tr_cuda_causal_softmax(tr_stream_t *stream, const cuda_heads_t *h, float scale,
                                   const cuda_attention_dropout_t *dropout, const float *scores,
                                   void *shares, float *lse) {
    CUDA_BY_TYPE(h->dtype, T,
                 CUDA_LAUNCH(causal_softmax_kernel<T>, rows_of_heads(h), ROW_THREADS, stream, *h,
                             scale, *dropout, scores, (T *)shares, lse));
    return TR_OK;
}

tr_status_t tr_cuda_causal_softmax_bwd(tr_stream_t *stream, const cuda_heads_t *h, float scale,
                                       const cuda_attention_dropout_t *dropout,
                                       const cuda_causal_rows_t *rows, const void *dy,
                                       const void *y, void *shares, void *dscores) {
    CUDA_BY_TYPE(h->dtype, T,
                 CUDA_LAUNCH(causal_softmax_bwd_kernel<T>, rows_of_heads(h), ROW_THREADS, stream,
                             *h, scale, *dropout, *rows, (const T *)dy, (const T *)y, (T *)shares,
                             (T *)dscores));
    return TR_OK;
}
