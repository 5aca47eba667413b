/* Embeddings. The gradient has no atomics: a block adds the rows of its own ids in their order. */
#include "cuda_types.cuh"

enum { THREADS = 256, WARPS = THREADS / 32, TOKEN_BLOCKS = 2048 };

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

/* The lanes below this one that are in `votes`. */
static __device__ __forceinline__ int votes_before(unsigned votes) {
    return __popc(votes & ((1u << threadIdx.x % 32) - 1u));
}

/*
 * The ids [first, first + count) of a block: it looks at THREADS rows at a time, lists those with
 * such an id in their order, and adds them. A column is one thread's, so nothing else orders the
 * sums.
 */
template <typename T>
static __global__ void __launch_bounds__(THREADS, 4)
    token_gradient_kernel(const T *dx, ids_t ids, float *dwte, int64_t rows, int64_t vocabulary,
                          int64_t width, int64_t count, bool add) {
    __shared__ int found[THREADS], of_warp[WARPS];
    const int64_t first = (int64_t)blockIdx.x * count,
                  last = first + count < vocabulary ? first + count : vocabulary;
    const int warp = (int)threadIdx.x / 32;
    for (int64_t v = first; v < last && !add; v++)
        for (int64_t c = threadIdx.x; c < width; c += THREADS) dwte[v * width + c] = 0;
    for (int64_t at = 0; at < rows; at += THREADS) {
        const int64_t row = at + threadIdx.x, id = row < rows ? id_at(ids, row) : -1;
        const bool mine = id >= first && id < last;
        const unsigned votes = __ballot_sync(0xffffffffu, mine);
        if (threadIdx.x % 32 == 0) of_warp[warp] = __popc(votes);
        __syncthreads();
        int before = 0, all = 0;
        for (int w = 0; w < WARPS; w++) {
            before += w < warp ? of_warp[w] : 0;
            all += of_warp[w];
        }
        if (mine) found[before + votes_before(votes)] = (int)threadIdx.x;
        __syncthreads();
        for (int i = 0; i < all; i++) {
            const int64_t from = at + found[i];
            float *sum = dwte + id_at(ids, from) * width;
            for (int64_t c = threadIdx.x; c < width; c += THREADS)
                sum[c] += to_float(dx[from * width + c]);
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
                          count = (vocabulary + TOKEN_BLOCKS - 1) / TOKEN_BLOCKS;
            CUDA_LAUNCH((token_gradient_kernel<T>), (unsigned)((vocabulary + count - 1) / count),
                        THREADS, stream, (const T *)dx->data, ids_of(id), (float *)dwte->data, rows,
                        vocabulary, width, count, add);
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
