/*
 * Attention, backward (Dao et al. 2022, algorithm 4), in two kernels so that no two blocks add to
 * one element: a tile of queries for dq, a tile of keys for dk and dv.
 *
 *     p = exp(scale q k^T - lse)      w = dropout factor      ds = p (w dy v^T - dy y^T)
 *     dq = scale ds k                 dk = scale ds^T q       dv = (w p)^T dy
 */
#include "cuda_attention.cuh"

enum { DY, QKV, Y, LSE, KEPT, SAMPLE_ID };
/* Shared memory: q, k, v, dy and one or two gradients (TILE, D + 1); ds, and for dv w p (TILE,
 * TILE + 1). */
enum { Q_COLUMNS = 5, Q_SQUARE = 1, K_COLUMNS = 6, K_SQUARE = 2 };

typedef struct {
    const float *lse, *delta, *kept; /* kept: probabilities, or NULL */
} known_t;

/* delta (B, H, T) = dy y^T of each row. */
template <typename T>
static __global__ void __launch_bounds__(ATTENTION_THREADS)
    delta_kernel(attention_t a, const T *dy, const T *y, float *delta, int64_t n) {
    for (int64_t i = global_thread(); i < n; i += global_threads()) {
        const int64_t t = i % a.steps, head = i / a.steps % a.heads, sample = i / a.steps / a.heads;
        const int64_t at = ((sample * a.steps + t) * a.heads + head) * a.size;
        float sum = 0;
        for (int64_t d = 0; d < a.size; d++)
            sum = fmaf(to_float(dy[at + d]), to_float(y[at + d]), sum);
        delta[i] = sum;
    }
}

/* ds, and w p where `weighted` is not NULL, of a tile of queries and one of keys. */
template <int TILE>
static __device__ void score_gradients(const attention_t &a, const known_t &known, int64_t first,
                                       int64_t key, const float *q, const float *k, const float *v,
                                       const float *dy, float *ds, float *weighted) {
    const int64_t wide = a.size + 1, sample = blockIdx.x / a.heads, head = blockIdx.x % a.heads;
    for (int i = (int)threadIdx.x; i < TILE * TILE; i += ATTENTION_THREADS) {
        const int r = i / TILE, c = i % TILE;
        const int64_t t = first + r, u = key + c, row = (int64_t)blockIdx.x * a.steps + t;
        float slope = 0, share = 0;
        if (u <= t && t < a.steps) {
            const float p =
                known.kept
                    ? known.kept[row * a.steps + u]
                    : expf(a.scale * attention_dot(a, q + r * wide, k + c * wide) - known.lse[row]);
            const float w = attention_dropout(a, sample, head, t, u);
            share = w * p;
            slope = p * (w * attention_dot(a, dy + r * wide, v + c * wide) - known.delta[row]);
        }
        ds[r * (TILE + 1) + c] = slope;
        if (weighted) weighted[r * (TILE + 1) + c] = share;
    }
}

template <int TILE, typename T>
static __global__ void __launch_bounds__(ATTENTION_THREADS)
    query_gradient_kernel(attention_t a, known_t known, const T *dy, const T *qkv, T *dqkv) {
    TR_DYNAMIC_SHARED(float, shared);
    const int64_t wide = a.size + 1, channels = a.heads * a.size;
    float *q = shared, *k = q + TILE * wide, *v = k + TILE * wide, *g = v + TILE * wide,
          *dq = g + TILE * wide, *ds = dq + TILE * wide;
    const int64_t sample = blockIdx.x / a.heads, head = blockIdx.x % a.heads,
                  first = (int64_t)blockIdx.y * TILE;
    const T *at = qkv + sample * a.steps * a.row + head * a.size;
    attention_load<TILE>(a, at, a.row, first, q);
    attention_load<TILE>(a, dy + sample * a.steps * channels + head * a.size, channels, first, g);
    for (int64_t i = threadIdx.x; i < TILE * wide; i += ATTENTION_THREADS) dq[i] = 0;
    for (int64_t key = 0; key <= first; key += TILE) {
        __syncthreads(); /* the last tile has been read */
        attention_load<TILE>(a, at + channels, a.row, key, k);
        attention_load<TILE>(a, at + 2 * channels, a.row, key, v);
        __syncthreads();
        score_gradients<TILE>(a, known, first, key, q, k, v, g, ds, NULL);
        __syncthreads();
        for (int64_t i = threadIdx.x; i < TILE * a.size; i += ATTENTION_THREADS) {
            const int64_t r = i / a.size, d = i % a.size;
            float sum = dq[r * wide + d];
            for (int c = 0; c < TILE; c++) sum = fmaf(ds[r * (TILE + 1) + c], k[c * wide + d], sum);
            dq[r * wide + d] = sum;
        }
    }
    for (int64_t i = threadIdx.x; i < TILE * a.size; i += ATTENTION_THREADS) {
        const int64_t r = i / a.size, d = i % a.size;
        if (first + r < a.steps)
            dqkv[(sample * a.steps + first + r) * a.row + head * a.size + d] =
                from_float<T>(a.scale * dq[r * wide + d]);
    }
}

template <int TILE, typename T>
static __global__ void __launch_bounds__(ATTENTION_THREADS, 6)
    key_gradient_kernel(attention_t a, known_t known, const T *dy, const T *qkv, T *dqkv) {
    TR_DYNAMIC_SHARED(float, shared);
    const int64_t wide = a.size + 1, channels = a.heads * a.size;
    float *q = shared, *k = q + TILE * wide, *v = k + TILE * wide, *g = v + TILE * wide,
          *dk = g + TILE * wide, *dv = dk + TILE * wide, *ds = dv + TILE * wide,
          *weighted = ds + TILE * (TILE + 1);
    const int64_t sample = blockIdx.x / a.heads, head = blockIdx.x % a.heads,
                  key = (int64_t)blockIdx.y * TILE;
    const T *at = qkv + sample * a.steps * a.row + head * a.size;
    attention_load<TILE>(a, at + channels, a.row, key, k);
    attention_load<TILE>(a, at + 2 * channels, a.row, key, v);
    for (int64_t i = threadIdx.x; i < TILE * wide; i += ATTENTION_THREADS) dk[i] = dv[i] = 0;
    for (int64_t first = key; first < a.steps; first += TILE) {
        __syncthreads(); /* the last tile has been read */
        attention_load<TILE>(a, at, a.row, first, q);
        attention_load<TILE>(a, dy + sample * a.steps * channels + head * a.size, channels, first,
                             g);
        __syncthreads();
        score_gradients<TILE>(a, known, first, key, q, k, v, g, ds, weighted);
        __syncthreads();
        for (int64_t i = threadIdx.x; i < TILE * a.size; i += ATTENTION_THREADS) {
            const int64_t c = i / a.size, d = i % a.size;
            float key_sum = dk[c * wide + d], value_sum = dv[c * wide + d];
            for (int r = 0; r < TILE; r++) {
                key_sum = fmaf(ds[r * (TILE + 1) + c], q[r * wide + d], key_sum);
                value_sum = fmaf(weighted[r * (TILE + 1) + c], g[r * wide + d], value_sum);
            }
            dk[c * wide + d] = key_sum;
            dv[c * wide + d] = value_sum;
        }
    }
    for (int64_t i = threadIdx.x; i < TILE * a.size; i += ATTENTION_THREADS) {
        const int64_t c = i / a.size, d = i % a.size;
        T *to = dqkv + (sample * a.steps + key + c) * a.row + head * a.size + d;
        if (key + c >= a.steps) continue;
        to[channels] = from_float<T>(a.scale * dk[c * wide + d]);
        to[2 * channels] = from_float<T>(dv[c * wide + d]);
    }
}

CUDA_KERNEL_PREPARE(own_attention_bwd) {
    const attention_t a = attention_of(call, &call->in[QKV], SAMPLE_ID);
    (void)device;
    *out_state = NULL;
    *out_scratch_bytes = (size_t)tr_shape_elems(&call->in[LSE].shape) * sizeof(float);
    return attention_tile(a.size, K_COLUMNS, K_SQUARE, 0) ? TR_OK : attention_fail(a.size);
}

/* Launches KERNEL with tiles of TILE rows. */
#define LAUNCH_TILES(KERNEL, TILE, COLUMNS, SQUARE)                                                \
    tr_cuda_check(                                                                                 \
        TR_LAUNCH((KERNEL<TILE, T>),                                                               \
                  dim3((unsigned)(samples * a.heads), (unsigned)((a.steps + TILE - 1) / TILE)),    \
                  ATTENTION_THREADS,                                                               \
                  (size_t)(TILE * (COLUMNS * (a.size + 1) + SQUARE * (TILE + 1))) * sizeof(float), \
                  stream->handle, a, known, (const T *)call->in[DY].data,                          \
                  (const T *)call->in[QKV].data, (T *)call->out[0].data),                          \
        "the launch of " #KERNEL)
#define BY_TILE(KERNEL, COLUMNS, SQUARE)                                                           \
    do {                                                                                           \
        const int tile = attention_tile(a.size, COLUMNS, SQUARE, 0);                               \
        if (tile == 32)                                                                            \
            TR_TRY(LAUNCH_TILES(KERNEL, 32, COLUMNS, SQUARE));                                     \
        else if (tile == 16)                                                                       \
            TR_TRY(LAUNCH_TILES(KERNEL, 16, COLUMNS, SQUARE));                                     \
        else                                                                                       \
            TR_TRY(LAUNCH_TILES(KERNEL, 8, COLUMNS, SQUARE));                                      \
    } while (0)

CUDA_KERNEL(own_attention_bwd) {
    const attention_t a = attention_of(call, &call->in[QKV], SAMPLE_ID);
    const int64_t samples = call->in[QKV].shape.dim[0], rows = samples * a.heads * a.steps;
    const known_t known = {(const float *)call->in[LSE].data, (const float *)call->scratch,
                           cuda_present(&call->in[KEPT]) ? (const float *)call->in[KEPT].data
                                                         : NULL};
    CUDA_BY_TYPE(call->in[QKV].dtype, T, {
        CUDA_LAUNCH((delta_kernel<T>),
                    cuda_blocks(rows, ATTENTION_THREADS, tr_cuda_grid_limit(device)),
                    ATTENTION_THREADS, stream, a, (const T *)call->in[DY].data,
                    (const T *)call->in[Y].data, (float *)call->scratch, rows);
        BY_TILE(query_gradient_kernel, Q_COLUMNS, Q_SQUARE);
        BY_TILE(key_gradient_kernel, K_COLUMNS, K_SQUARE);
    });
    return TR_OK;
}
