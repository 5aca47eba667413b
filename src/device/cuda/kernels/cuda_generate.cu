/* Generation: products of few rows, the caches, and attention to what is cached. Sums are computed
 * in one order for any number of rows, so that a text does not depend on the others. */
#include "cuda_rows.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, ROWS = 8, QUERY_THREADS = 128 };
enum { SHARED_BYTES = 47 * 1024 }; /* of the 48 KiB of a block, the rest is for sums over it */
enum { ROW, FIRST, COUNT, PLACE }; /* of a sample's place */

/* -- products of few rows ---------------------------------------------------------------------- */

typedef struct {
    const float *a, *bias;
    float *c;
    int64_t rows, inner, columns;
} product_t;

/* Row `r` of A; the last one where there are fewer. */
static __device__ __forceinline__ const float *row_of(const product_t &p, int64_t r) {
    return p.a + (r < p.rows ? r : p.rows - 1) * p.inner;
}

static __device__ __forceinline__ void put(const product_t &p, int64_t r, int64_t j, float sum) {
    if (r < p.rows && j < p.columns) p.c[r * p.columns + j] = p.bias ? sum + p.bias[j] : sum;
}

/* B (K, N): a block has 32 columns, each of its warps a part of K. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) columns_kernel(product_t p, const T *b) {
    __shared__ float part[WARPS][ROWS][32];
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    const int64_t j = (int64_t)blockIdx.x * 32 + lane, first = (int64_t)blockIdx.y * ROWS,
                  share = (p.inner + WARPS - 1) / WARPS, begin = warp * share,
                  end = begin + share < p.inner ? begin + share : p.inner;
    float sum[ROWS] = {0};
    for (int64_t k = begin; k < end; k++) {
        const float right = j < p.columns ? to_float(b[k * p.columns + j]) : 0.0f;
#pragma unroll
        for (int r = 0; r < ROWS; r++) sum[r] = fmaf(row_of(p, first + r)[k], right, sum[r]);
    }
    for (int r = 0; r < ROWS; r++) part[warp][r][lane] = sum[r];
    __syncthreads();
    for (int r = warp; r < ROWS; r += WARPS) {
        float total = 0;
        for (int w = 0; w < WARPS; w++) total += part[w][r][lane];
        put(p, first + r, j, total);
    }
}

/* B (N, K): a warp has a column. */
template <typename T>
static __global__ void __launch_bounds__(THREADS) rows_kernel(product_t p, const T *b) {
    const int lane = (int)threadIdx.x % 32;
    const int64_t j = (int64_t)blockIdx.x * WARPS + threadIdx.x / 32,
                  first = (int64_t)blockIdx.y * ROWS;
    float sum[ROWS] = {0};
    for (int64_t k = lane; k < p.inner && j < p.columns; k += 32) {
        const float right = to_float(b[j * p.inner + k]);
#pragma unroll
        for (int r = 0; r < ROWS; r++) sum[r] = fmaf(row_of(p, first + r)[k], right, sum[r]);
    }
    for (int r = 0; r < ROWS; r++) {
        const float total = warp_sum(sum[r]);
        if (lane == 0) put(p, first + r, j, total);
    }
}

CUDA_KERNEL(matmul_rows) {
    const bool trans_b = ((const tr_matmul_attr_t *)call->attr)->trans_b;
    const tr_view_t *b = &call->in[1];
    product_t p;
    p.inner = b->shape.dim[trans_b ? 1 : 0];
    p.columns = b->shape.dim[trans_b ? 0 : 1];
    p.rows = tr_shape_elems(&call->out[0].shape) / p.columns;
    p.a = (const float *)call->in[0].data;
    p.bias = cuda_present(&call->in[2]) ? (const float *)call->in[2].data : NULL;
    p.c = (float *)call->out[0].data;
    const int64_t width = trans_b ? WARPS : 32;
    const dim3 grid((unsigned)((p.columns + width - 1) / width),
                    (unsigned)((p.rows + ROWS - 1) / ROWS));
    (void)device;
    CUDA_BY_TYPE(b->dtype, T, {
        if (trans_b)
            CUDA_LAUNCH((rows_kernel<T>), grid, THREADS, stream, p, (const T *)b->data);
        else
            CUDA_LAUNCH((columns_kernel<T>), grid, THREADS, stream, p, (const T *)b->data);
    });
    return TR_OK;
}

/* -- caches ------------------------------------------------------------------------------------ */

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    append_kernel(const float *qkv, const int32_t *places, T *keys, T *values, int64_t samples,
                  int64_t steps, int64_t positions, int64_t width) {
    for (int64_t i = global_thread(); i < samples * steps * width; i += global_threads()) {
        const int64_t token = i / width, c = i % width, t = token % steps;
        const int32_t *place = places + token / steps * PLACE;
        if (t >= place[COUNT]) continue;
        const int64_t at = (place[ROW] * positions + place[FIRST] + t) * width + c;
        keys[at] = from_float<T>(qkv[(token * 3 + 1) * width + c]);
        values[at] = from_float<T>(qkv[(token * 3 + 2) * width + c]);
    }
}

CUDA_KERNEL(cache_append) {
    const tr_shape_t *x = &call->in[0].shape;
    const int64_t width = x->dim[2] / 3, elems = x->dim[0] * x->dim[1] * width;
    CUDA_BY_TYPE(call->out[0].dtype, T, {
        CUDA_LAUNCH((append_kernel<T>), cuda_blocks(elems, THREADS, tr_cuda_grid_limit(device)),
                    THREADS, stream, (const float *)call->in[0].data,
                    (const int32_t *)call->in[1].data, (T *)call->out[0].data,
                    (T *)call->out[1].data, x->dim[0], x->dim[1], call->out[0].shape.dim[1], width);
    });
    return TR_OK;
}

/* -- attention --------------------------------------------------------------------------------- */

typedef struct {
    const float *qkv;
    const void *keys, *values;
    const int32_t *places;
    float *y;
    int64_t steps, positions, heads, size; /* T, P, H, D */
    float scale;
} cached_t;

/* A block has a query of a head, and goes over its keys with a running maximum and sum. */
template <typename T>
static __global__ void __launch_bounds__(QUERY_THREADS) cached_kernel(cached_t a) {
    TR_DYNAMIC_SHARED(float, shared);
    const T *keys = (const T *)a.keys, *values = (const T *)a.values;
    const int64_t sample = blockIdx.x / a.heads, head = blockIdx.x % a.heads, t = blockIdx.y,
                  width = a.heads * a.size, token = sample * a.steps + t;
    const int32_t *place = a.places + sample * PLACE;
    const int64_t row = place[ROW] * a.positions * width + head * a.size,
                  seen = t < place[COUNT] ? place[FIRST] + t + 1 : 0;
    float *q = shared, *out = q + a.size, *score = out + a.size,
          *y = a.y + token * width + head * a.size;
    float max = -INFINITY, sum = 0;
    for (int64_t d = threadIdx.x; d < a.size; d += QUERY_THREADS)
        q[d] = a.qkv[token * 3 * width + head * a.size + d], out[d] = 0;
    for (int64_t first = 0; first < seen; first += QUERY_THREADS) {
        const int64_t u = first + threadIdx.x,
                      last = first + QUERY_THREADS < seen ? first + QUERY_THREADS : seen;
        float s = 0;
        __syncthreads(); /* q is written; the last scores are read */
        for (int64_t d = 0; d < a.size && u < last; d++)
            s = fmaf(q[d], to_float(keys[row + u * width + d]), s);
        s = u < last ? s * a.scale : -INFINITY;
        const float tile = block_max<QUERY_THREADS>(s), most = tile > max ? tile : max,
                    shrink = expf(max - most);
        score[threadIdx.x] = expf(s - most);
        sum = sum * shrink + block_sum<QUERY_THREADS>(score[threadIdx.x]); /* has barriers */
        max = most;
        for (int64_t d = threadIdx.x; d < a.size; d += QUERY_THREADS) {
            float total = out[d] * shrink;
            for (int64_t k = first; k < last; k++)
                total = fmaf(score[k - first], to_float(values[row + k * width + d]), total);
            out[d] = total;
        }
    }
    for (int64_t d = threadIdx.x; d < a.size; d += QUERY_THREADS)
        y[d] = seen > 0 ? out[d] / sum : 0.0f;
}

/* A query, its output and a tile of scores, in the shared memory of a block. */
static size_t shared_bytes(const tr_kernel_call_t *call) {
    const int64_t heads = ((const tr_attention_attr_t *)call->attr)->heads;
    return (size_t)(2 * (call->in[0].shape.dim[2] / 3 / heads) + QUERY_THREADS) * sizeof(float);
}

CUDA_KERNEL_PREPARE(attention_cached) {
    (void)device;
    *out_state = NULL, *out_scratch_bytes = 0;
    if (shared_bytes(call) <= SHARED_BYTES) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "device cuda: attention heads of %lld channels are too large for the shared "
                   "memory of a block. Use device = cpu",
                   (long long)call->in[0].shape.dim[2] / 3 /
                       ((const tr_attention_attr_t *)call->attr)->heads);
}

CUDA_KERNEL(attention_cached) {
    const tr_shape_t *x = &call->in[0].shape;
    cached_t a;
    a.qkv = (const float *)call->in[0].data;
    a.places = (const int32_t *)call->in[1].data;
    a.keys = call->in[2].data;
    a.values = call->in[3].data;
    a.y = (float *)call->out[0].data;
    a.steps = x->dim[1];
    a.positions = call->in[2].shape.dim[1];
    a.heads = ((const tr_attention_attr_t *)call->attr)->heads;
    a.size = x->dim[2] / 3 / a.heads;
    a.scale = (float)(1 / sqrt((double)a.size));
    const dim3 grid((unsigned)(x->dim[0] * a.heads), (unsigned)a.steps);
    (void)device;
    CUDA_BY_TYPE(call->in[2].dtype, T, {
        TR_TRY(tr_cuda_check(TR_LAUNCH((cached_kernel<T>), grid, QUERY_THREADS, shared_bytes(call),
                                       stream->handle, a),
                             "the launch of cached_kernel"));
    });
    return TR_OK;
}
