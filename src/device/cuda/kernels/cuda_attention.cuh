/*
 * Private: what the two directions of attention share.
 *
 * A block has a tile of TILE queries or keys of one head and goes over the tiles of the other side,
 * without those that causality makes zero (Dao et al. 2022). Tiles are f32 in shared memory; the
 * largest TILE that fits is taken. Products are plain multiplications and additions: no tensor
 * cores.
 */
#ifndef TR_DEVICE_CUDA_KERNELS_CUDA_ATTENTION_CUH
#define TR_DEVICE_CUDA_KERNELS_CUDA_ATTENTION_CUH

#include "cuda_dropout.cuh"

enum { ATTENTION_THREADS = 128, SHARED_FLOATS = 48 * 256 };

typedef struct {
    int64_t steps, heads, size; /* T, H, D */
    int64_t row;                /* elements from one token's q to the next one's: 3 C */
    float scale;
    cuda_attention_dropout_t dropout;
} attention_t;

/* ids: the index of in?: sample_id; the step block follows it. */
static inline attention_t attention_of(const tr_kernel_call_t *call, const tr_view_t *qkv,
                                       int ids) {
    const tr_attention_attr_t *attr = (const tr_attention_attr_t *)call->attr;
    attention_t a;
    memset(&a, 0, sizeof a);
    a.steps = qkv->shape.dim[1];
    a.heads = attr->heads;
    a.row = qkv->shape.dim[2];
    a.size = a.row / 3 / a.heads;
    a.scale = (float)(1 / sqrt((double)a.size));
    a.dropout = cuda_attention_dropout_of(call, ids);
    return a;
}

/* The largest of 32, 16 and 8 rows so that `columns` D + `square` TILE + `more` floats for each row
 * fit; 0: none. */
static inline int attention_tile(int64_t size, int columns, int square, int more) {
    for (int tile = 32; tile >= 8; tile /= 2)
        if (tile * (columns * (size + 1) + square * (tile + 1) + more) <= SHARED_FLOATS)
            return tile;
    return 0;
}

static inline tr_status_t attention_fail(int64_t size) {
    return TR_FAIL(TR_ERR_CONFIG,
                   "device cuda: attention heads of %lld channels are too large for the shared "
                   "memory of a block. Use more heads",
                   (long long)size);
}

/* What dropout multiplies the probability of query t and key u with. */
static __device__ __forceinline__ float attention_dropout(const attention_t &a, int64_t sample,
                                                          int64_t head, int64_t t, int64_t u) {
    return dropout_factor(a.dropout, sample, (head * a.steps + t) * a.steps + u);
}

/* Rows [first, first + TILE) of T tokens to shared memory, D + 1 floats a row; 0 beyond the last.
 * `x` is at the head's columns, `stride` elements from token to token. */
template <int TILE, typename T>
static __device__ void attention_load(const attention_t &a, const T *x, int64_t stride,
                                      int64_t first, float *tile) {
    for (int64_t i = threadIdx.x; i < TILE * a.size; i += ATTENTION_THREADS) {
        const int64_t row = i / a.size, d = i % a.size;
        tile[row * (a.size + 1) + d] =
            first + row < a.steps ? to_float(x[(first + row) * stride + d]) : 0.0f;
    }
}

static __device__ __forceinline__ float attention_dot(const attention_t &a, const float *x,
                                                      const float *y) {
    float sum = 0;
    for (int64_t d = 0; d < a.size; d++) sum = fmaf(x[d], y[d], sum);
    return sum;
}

#endif
