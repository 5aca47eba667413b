/* Embeddings. The gradient has no atomics: a block adds the rows of its own ids in a fixed order. */
#include "cuda_types.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, TOKEN_BLOCKS = 2048 };
enum { SCAN = 8, SCAN_ROWS = THREADS * SCAN }; /* rows that a thread, a block looks at in one go */

/* Ids of any type. */
typedef struct {
    const void *data;
    tr_dtype_t dtype;
} ids_t;

static inline ids_t ids_of(const tr_view_t *view) {
    const ids_t ids = {view->data, view->dtype};
    return ids;
}

static __device__ __forceinline__ int64_t id_at(ids_t ids, int64_t i) {
    if (ids.dtype == TR_U16) return ((const uint16_t *)ids.data)[i];
    if (ids.dtype == TR_U32) return ((const uint32_t *)ids.data)[i];
    return ((const int32_t *)ids.data)[i];
}

template <typename W, typename T, int N>
static __global__ void __launch_bounds__(THREADS)
    embedding_kernel(ids_t ids, const W *wte, const W *wpe, T *x, int64_t rows, int64_t steps,
                     int64_t vocabulary, int64_t width) {
    const int64_t packs = width / N;
    for (int64_t i = global_thread(); i < rows * packs; i += global_threads()) {
        const int64_t row = i / packs, column = i % packs * N, id = id_at(ids, row);
        const bool known = id >= 0 && id < vocabulary;
        float v[N], position[N] = {0};
        for (int k = 0; k < N; k++) v[k] = NAN;
        if (known) load(wte + id * width + column, true, v);
        if (wpe) load(wpe + row % steps * width + column, true, position);
        for (int k = 0; k < N; k++) v[k] += position[k];
        store(x + row * width + column, true, v);
    }
}

CUDA_KERNEL(embedding_fwd) {
    const tr_view_t *id = &call->in[0], *wte = &call->in[1], *y = &call->out[0];
    const int64_t rows = tr_shape_elems(&id->shape), steps = id->shape.dim[id->shape.ndim - 1],
                  width = wte->shape.dim[1];
    const void *wpe = cuda_present(&call->in[2]) ? call->in[2].data : NULL;
    const bool wide = cuda_aligned(wte->data) && cuda_aligned(wpe) && cuda_aligned(y->data);
    CUDA_BY_TYPE(
        wte->dtype, W, CUDA_BY_TYPE(y->dtype, T, {
            CUDA_BY_PACK(
                wide && width % CUDA_PACK(T) == 0, T, N,
                CUDA_LAUNCH((embedding_kernel<W, T, N>),
                            cuda_blocks(rows * width / N, THREADS, tr_cuda_grid_limit(device)),
                            THREADS, stream, ids_of(id), (const W *)wte->data, (const W *)wpe,
                            (T *)y->data, rows, steps, wte->shape.dim[0], width));
        }));
    return TR_OK;
}

/* The sum of `n` over the threads before this one; *out_all: over all. `of_warp` may be used again after
 * the next barrier. */
static __device__ __forceinline__ int sum_before(int n, int *of_warp, int *out_all) {
    const int lane = (int)threadIdx.x % 32, warp = (int)threadIdx.x / 32;
    int sum = n, before = 0, all = 0;
    for (int step = 1; step < 32; step *= 2) {
        const int other = __shfl_up_sync(0xffffffffu, sum, step);
        if (lane >= step) sum += other;
    }
    if (lane == 31) of_warp[warp] = sum;
    __syncthreads();
    for (int w = 0; w < WARPS; w++) {
        before += w < warp ? of_warp[w] : 0;
        all += of_warp[w];
    }
    *out_all = all;
    return before + sum - n;
}

/* A row of the gradient that a block adds: to the id of this number among its own. */
typedef struct {
    unsigned short row, own;
} found_t;

/* found, in the order of `own`; those of one id stay in their order. */
static __device__ void sort_found(const found_t *found, int all, found_t *sorted) {
    for (int i = (int)threadIdx.x; i < all; i += THREADS) {
        const found_t mine = found[i];
        int place = 0;
        for (int j = 0; j < all; j++)
            place += found[j].own < mine.own || (found[j].own == mine.own && j < i);
        sorted[place] = mine;
    }
}

/* sum[0 .. width) += the rows sorted[0 .. count) of dx: groups of threads take every groups-th row,
 * N columns a thread; the groups are joined in their order. */
template <typename T, int N>
static __device__ void add_rows(const T *dx, const found_t *sorted, int count, float *sum,
                                int64_t width, float *shared) {
    const int packs = (int)(width / N), lanes = packs < THREADS ? packs : (int)THREADS,
              groups = THREADS / lanes, group = (int)threadIdx.x / lanes,
              lane = (int)threadIdx.x % lanes;
    for (int64_t pack = lane; pack - lane < packs; pack += lanes) {
        float total[N] = {}, v[N];
        if (pack < packs && group < groups)
#pragma unroll 4
            for (int i = group; i < count; i += groups) {
                load(dx + sorted[i].row * width + pack * N, true, v);
                for (int k = 0; k < N; k++) total[k] += v[k];
            }
        for (int k = 0; k < N; k++) shared[threadIdx.x * N + k] = total[k];
        __syncthreads();
        if (pack < packs && group == 0)
            for (int k = 0; k < N; k++) {
                float whole = sum[pack * N + k];
                for (int g = 0; g < groups; g++) whole += shared[(g * lanes + lane) * N + k];
                sum[pack * N + k] = whole;
            }
        __syncthreads();
    }
}

/*
 * Block b has the ids b, b + blocks, ...: frequent ids, which often follow each other, are in
 * different blocks. It looks at SCAN_ROWS rows at a time, lists those with such an id, and adds
 * those of each id at once.
 */
template <typename T, int N>
static __global__ void __launch_bounds__(THREADS, 4)
    token_gradient_kernel(const T *dx, ids_t ids, float *dwte, int64_t rows, int64_t vocabulary,
                          int64_t width, bool add) {
    __shared__ found_t found[SCAN_ROWS], sorted[SCAN_ROWS];
    __shared__ float shared[THREADS * N];
    __shared__ int of_warp[WARPS];
    const int64_t blocks = gridDim.x;
    for (int64_t v = blockIdx.x; v < vocabulary && !add; v += blocks)
        for (int64_t c = threadIdx.x; c < width; c += THREADS) dwte[v * width + c] = 0;
    for (int64_t at = 0; at < rows; at += SCAN_ROWS) {
        const int64_t first = at + threadIdx.x * SCAN;
        unsigned mine = 0;
        int all = 0;
        for (int k = 0; k < SCAN; k++) {
            const int64_t id = first + k < rows ? id_at(ids, first + k) : -1;
            if (id >= 0 && id < vocabulary && id % blocks == blockIdx.x) mine |= 1u << k;
        }
        int place = sum_before(__popc(mine), of_warp, &all);
        for (int k = 0; k < SCAN; k++)
            if (mine >> k & 1) {
                found[place].row = (unsigned short)(threadIdx.x * SCAN + k);
                found[place++].own = (unsigned short)(id_at(ids, first + k) / blocks);
            }
        __syncthreads();
        sort_found(found, all, sorted);
        __syncthreads();
        for (int i = 0, end = 0; i < all; i = end) {
            while (end < all && sorted[end].own == sorted[i].own) end++;
            add_rows<T, N>(dx + at * width, sorted + i, end - i,
                           dwte + (blockIdx.x + sorted[i].own * blocks) * width, width, shared);
        }
    }
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    position_gradient_kernel(const T *dx, float *dwpe, int64_t samples, int64_t steps,
                             int64_t positions, int64_t width) {
    for (int64_t i = global_thread(); i < positions * width; i += global_threads()) {
        float sum = 0;
        for (int64_t b = 0; b < samples && i / width < steps; b++)
            sum += to_float(dx[b * steps * width + i]);
        dwpe[i] = sum;
    }
}

CUDA_KERNEL(embedding_bwd) {
    const tr_view_t *dx = &call->in[0], *id = &call->in[1], *dwte = &call->out[0],
                    *dwpe = &call->out[1];
    const int64_t rows = tr_shape_elems(&id->shape), steps = id->shape.dim[id->shape.ndim - 1],
                  width = dx->shape.dim[2];
    const bool add = ((const tr_embedding_attr_t *)call->attr)->add;
    CUDA_BY_TYPE(dx->dtype, T, {
        if (cuda_present(dwte)) {
            const int64_t vocabulary = dwte->shape.dim[0],
                          /* a number among a block's own ids has 16 bits */
                blocks = vocabulary < TOKEN_BLOCKS         ? vocabulary
                         : vocabulary >> 16 > TOKEN_BLOCKS ? (vocabulary >> 16) + 1
                                                           : (int64_t)TOKEN_BLOCKS;
            CUDA_BY_PACK(cuda_aligned(dx->data) && width % CUDA_PACK(T) == 0, T, N,
                         CUDA_LAUNCH((token_gradient_kernel<T, N>), (unsigned)blocks, THREADS,
                                     stream, (const T *)dx->data, ids_of(id), (float *)dwte->data,
                                     rows, vocabulary, width, add));
        }
        if (cuda_present(dwpe)) {
            const int64_t positions = dwpe->shape.dim[0];
            CUDA_LAUNCH((position_gradient_kernel<T>),
                        cuda_blocks(positions * width, THREADS, tr_cuda_grid_limit(device)),
                        THREADS, stream, (const T *)dx->data, (float *)dwpe->data, rows / steps,
                        steps, positions, width);
        }
    });
    return TR_OK;
}
