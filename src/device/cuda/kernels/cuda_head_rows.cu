/* The cross-entropy of rows of logits with its gradient. */
#include "device/cuda/cuda_head.h"
#include "cuda_rows.cuh"
#include <float.h>

/* A row that is kept: two blocks of KEPT_THREADS have 200 KiB of a multiprocessor with GPT-2's 50304
 * tokens, and IN_FLIGHT loads of each thread hide the latency of memory. SUMS_BYTES: of shared memory,
 * for the sums of a block. */
enum { PACK = TR_CUDA_HEAD_PACK, KEPT_THREADS = 512, IN_FLIGHT = 4, SUMS_BYTES = 512 };

/* The logits x[0 .. PACK), of which the row has `left`; -INFINITY where it has none. */
template <typename L>
static __device__ __forceinline__ void load_logits(const L *x, int64_t left, float (&v)[PACK]) {
    if (left >= PACK) return load(x, true, v);
    for (int k = 0; k < PACK; k++) v[k] = k < left ? to_float(x[k]) : -INFINITY;
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

/* The softmax of a row x of 16-bit logits, which are copied to `kept`. Each thread reads later what it
 * copied itself. */
template <int THREADS, typename L>
static __device__ __forceinline__ void head_keep_row(const L *x, int64_t tokens, L *kept,
                                                softmax_t &seen) {
    const int64_t step = THREADS * PACK;
    float v[PACK];
    for (int64_t i = threadIdx.x * PACK; i < tokens; i += IN_FLIGHT * step) {
        __align__(16) L pack[IN_FLIGHT][PACK];
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++)
            if (i + k * step < tokens) move_wide<16>(pack[k], x + i + k * step);
#pragma unroll
        for (int k = 0; k < IN_FLIGHT; k++) {
            if (i + k * step >= tokens) break;
            move_wide<16>(kept + i + k * step, pack[k]);
            load_logits(pack[k], tokens - i - k * step, v);
            seen.add(v);
        }
    }
}

/* A row that counts as 0 has loss and gradient 0 whatever it holds; a label outside the vocabulary
 * gives NaN. KEPT: the row is in shared memory when it is read again; T is L, of 16 bits. */
template <int THREADS, typename L, typename T, bool KEPT>
static __global__ void __launch_bounds__(THREADS)
    head_rows_kernel(cuda_head_rows_t r, const L *logits, T *grad) {
    TR_DYNAMIC_SHARED(L, kept);
    const int64_t row = r.first + blockIdx.x, at = (int64_t)blockIdx.x * r.stride;
    const labels_t labels = {r.label, r.narrow_label};
    const int64_t label = label_at(labels, row);
    const float weight = label == -1 ? 0.0f : r.weight[row / r.per_sample];
    const bool known = label >= 0 && label < r.tokens;
    const float own = known ? to_float(logits[at + label]) : NAN;
    softmax_t seen = {-FLT_MAX, 0};
    float v[PACK];
    if constexpr (KEPT) {
        head_keep_row<THREADS>(logits + at, r.tokens, kept, seen);
    } else {
        for (int64_t i = threadIdx.x * PACK; i < r.tokens; i += THREADS * PACK) {
            load_logits(logits + at + i, r.tokens - i, v);
            seen.add(v);
        }
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
    for (int64_t i = threadIdx.x * PACK; i < r.columns; i += THREADS * PACK) {
        load_logits(KEPT ? kept + i : logits + at + i, r.tokens - i, v);
#pragma unroll
        for (int k = 0; k < PACK; k++) {
            const float d = expf(v[k] - seen.max) * share - (i + k == label ? 1.0f : 0.0f);
            v[k] = weight == 0.0f ? 0.0f : factor * d;
        }
        store_logits(grad + at + i, r.columns - i, v);
    }
}

tr_status_t tr_cuda_head_rows(tr_stream_t *stream, const cuda_head_rows_t *rows, float *logits,
                              void *grad, tr_dtype_t dtype) {
    CUDA_BY_TYPE(
        dtype, T,
        BY_ROW_LENGTH(rows->tokens, THREADS,
                      CUDA_LAUNCH((head_rows_kernel<THREADS, float, T, false>),
                                  (unsigned)rows->count, THREADS, stream, *rows,
                                  (const float *)logits, (T *)grad)));
    return TR_OK;
}

template <typename T>
static tr_status_t rows_in_place(tr_stream_t *stream, const cuda_head_rows_t *rows, T *logits,
                                 size_t kept_bytes) {
    const unsigned count = (unsigned)rows->count;
    if (kept_bytes)
        return tr_cuda_check(TR_LAUNCH((head_rows_kernel<KEPT_THREADS, T, T, true>), count,
                                       KEPT_THREADS, kept_bytes, stream->handle, *rows,
                                       (const T *)logits, logits),
                             "the launch of head_rows_kernel");
    BY_ROW_LENGTH(rows->tokens, THREADS,
                  CUDA_LAUNCH((head_rows_kernel<THREADS, T, T, false>), count, THREADS, stream,
                              *rows, (const T *)logits, logits));
    return TR_OK;
}

tr_status_t tr_cuda_head_rows_in_place(tr_stream_t *stream, const cuda_head_rows_t *rows,
                                       void *logits, tr_dtype_t dtype, size_t kept_bytes) {
    return dtype == TR_BF16 ? rows_in_place(stream, rows, (bf16_t *)logits, kept_bytes)
                            : rows_in_place(stream, rows, (f16_t *)logits, kept_bytes);
}

/* The limit is of the kernel, for all sizes of rows. */
tr_status_t tr_cuda_head_keep(tr_device_t *device, int64_t stride, tr_dtype_t dtype,
                              size_t *out_kept_bytes) {
    const size_t bytes = (size_t)stride * tr_dtype_bytes(dtype);
    const void *kernel =
        dtype == TR_BF16 ? (const void *)head_rows_kernel<KEPT_THREADS, bf16_t, bf16_t, true>
                         : (const void *)head_rows_kernel<KEPT_THREADS, f16_t, f16_t, true>;
    int most = 0;
    *out_kept_bytes = 0;
    CUDA_TRY(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                    cuda_self(device)->ordinal));
    if (stride < LONG_ROW || bytes + SUMS_BYTES > (size_t)most) return TR_OK;
    CUDA_TRY(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  most - SUMS_BYTES));
    *out_kept_bytes = bytes;
    return TR_OK;
}
