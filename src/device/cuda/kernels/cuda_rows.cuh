/* Private: what kernels share that give a row of a matrix to a block of threads. */
#ifndef TR_DEVICE_CUDA_KERNELS_CUDA_ROWS_CUH
#define TR_DEVICE_CUDA_KERNELS_CUDA_ROWS_CUH

#include "cuda_types.cuh"

/* Threads of a row: one warp for short rows, so that no barrier is needed. */
enum { FEW = 32, MANY = 256, LONG_ROW = 2048, ROW_SHORT = 32 };

typedef struct {
    int64_t rows, width;
} rows_t;

static inline rows_t rows_of(const tr_view_t *view) {
    rows_t r = {0, view->shape.dim[view->shape.ndim - 1]};
    r.rows = tr_shape_elems(&view->shape) / r.width;
    return r;
}

/* Launches KERNEL<..., THREADS> with one block a row. */
#define BY_ROW_LENGTH(width, THREADS, ...)                                                         \
    do {                                                                                           \
        if ((width) < LONG_ROW) {                                                                  \
            const int THREADS = FEW;                                                               \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            const int THREADS = MANY;                                                              \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* The threads of a row wait for each other. */
template <int THREADS> static __device__ __forceinline__ void row_barrier() {
    if (THREADS == 32)
        __syncwarp();
    else
        __syncthreads();
}

/* The sum of f(i) over a row, the same in all threads. A thread adds ROW_SHORT floats, and those sums
 * in double: a GPU may have few units for f64. */
template <int THREADS, typename F>
static __device__ __forceinline__ double row_sum(int64_t width, F f) {
    double total = 0;
    for (int64_t i = threadIdx.x; i < width;) {
        float sum = 0;
        for (int k = 0; k < ROW_SHORT && i < width; k++, i += THREADS) sum += f(i);
        total += sum;
    }
    return block_sum<THREADS>(total);
}

/* Labels of either type. */
typedef struct {
    const void *data;
    bool narrow; /* i32 */
} labels_t;

static inline labels_t labels_of(const tr_view_t *view) {
    const labels_t labels = {view->data, view->dtype == TR_I32};
    return labels;
}

static __device__ __forceinline__ int64_t label_at(labels_t labels, int64_t row) {
    return labels.narrow ? ((const int32_t *)labels.data)[row]
                         : ((const int64_t *)labels.data)[row];
}

/* The largest value of a block, the same in all threads. NaN is passed over. */
template <int THREADS> static __device__ float block_max(float x) {
    __shared__ float warps[THREADS / 32];
    for (int step = 16; step > 0; step /= 2) {
        const float other = __shfl_xor_sync(0xffffffffu, x, step);
        x = other > x || x != x ? other : x;
    }
    if (THREADS == 32) return x;
    __syncthreads();
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    x = warps[0];
    for (int i = 1; i < THREADS / 32; i++) x = warps[i] > x || x != x ? warps[i] : x;
    return x;
}

#endif
