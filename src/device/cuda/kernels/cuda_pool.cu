/*
 * Pooling, NHWC. A thread computes N channels of one position. Positions are flat indices of the
 * spatial dimensions; missing leading dimensions count as one.
 */
#include "cuda_types.cuh"

enum { THREADS = 256, SHORT_SUM = 64 /* positions that are summed in floats */ };

typedef struct {
    int in[3], out[3], kernel[3], stride[3], pad[3];
    int64_t images, channels;
    int in_size, out_size; /* positions in an image */
} geometry_t;

static geometry_t geometry_of(const tr_pool_attr_t *attr, const tr_shape_t *image,
                              const tr_shape_t *pooled) {
    geometry_t g = {};
    g.images = image->dim[0], g.channels = image->dim[image->ndim - 1];
    g.in_size = g.out_size = 1;
    for (int i = 0; i < 3; i++) {
        const int from = i - (3 - attr->spatial);
        g.in[i] = g.out[i] = g.kernel[i] = g.stride[i] = 1;
        if (from < 0) continue;
        g.in[i] = (int)image->dim[1 + from], g.out[i] = (int)pooled->dim[1 + from];
        g.kernel[i] = attr->kernel[from], g.stride[i] = attr->stride[from],
        g.pad[i] = attr->pad_lo[from];
    }
    for (int i = 0; i < 3; i++) g.in_size *= g.in[i], g.out_size *= g.out[i];
    return g;
}

/* A box of positions: [first, last) in each dimension. */
typedef struct {
    int first[3], last[3];
} box_t;

static __device__ __forceinline__ void split(int position, const int (&size)[3], int (&at)[3]) {
    at[2] = position % size[2];
    position /= size[2];
    at[1] = position % size[1];
    at[0] = position / size[1];
}

/* The window of an output position, inside the image. */
static __device__ __forceinline__ box_t window_of(const geometry_t &g, const int (&at)[3]) {
    box_t w;
    for (int i = 0; i < 3; i++) {
        const int start = at[i] * g.stride[i] - g.pad[i], end = start + g.kernel[i];
        w.first[i] = start > 0 ? start : 0;
        w.last[i] = end < g.in[i] ? end : g.in[i];
    }
    return w;
}

static __device__ __forceinline__ int box_size(const box_t &w) {
    return (w.last[0] - w.first[0]) * (w.last[1] - w.first[1]) * (w.last[2] - w.first[2]);
}

/* Calls f(position) for each position of the box in an image of `size`, in rising order. */
template <typename F>
static __device__ __forceinline__ void for_box(const box_t &w, const int (&size)[3], F f) {
    for (int d = w.first[0]; d < w.last[0]; d++)
        for (int h = w.first[1]; h < w.last[1]; h++)
            for (int x = w.first[2]; x < w.last[2]; x++) f((d * size[1] + h) * size[2] + x);
}

/* What thread `i` computes: an image, a position of `positions` and the first of its channels. */
typedef struct {
    int64_t image, channel;
    int position;
} place_t;

template <int N>
static __device__ __forceinline__ place_t place_of(const geometry_t &g, int64_t i, int positions) {
    const unsigned packs = (unsigned)(g.channels / N);
    place_t p;
    p.channel = (int64_t)((uint64_t)i % packs) * N;
    i = (int64_t)((uint64_t)i / packs);
    p.position = (int)(i % positions);
    p.image = i / positions;
    return p;
}

/* -- forward ----------------------------------------------------------------------------------- */

/* A NaN replaces any number, and nothing replaces a NaN; of equal values the first counts. */
template <int N, typename T>
static __device__ void pool_max(const geometry_t &g, const box_t &w, const T *x, float (&best)[N],
                                int32_t (&where)[N]) {
    const int first = (w.first[0] * g.in[1] + w.first[1]) * g.in[2] + w.first[2];
    for (int k = 0; k < N; k++) best[k] = -INFINITY, where[k] = first;
    for_box(w, g.in, [&](int position) {
        float v[N];
        load(x + position * g.channels, true, v);
        for (int k = 0; k < N; k++)
            if (v[k] > best[k] || (v[k] != v[k] && best[k] == best[k]))
                best[k] = v[k], where[k] = position;
    });
}

template <int N, typename T>
static __device__ void pool_mean(const geometry_t &g, const box_t &w, const T *x,
                                 float (&mean)[N]) {
    const int size = box_size(w);
    float sum[N] = {};
    double total[N] = {}; /* of windows larger than SHORT_SUM */
    int count = 0;
    for_box(w, g.in, [&](int position) {
        float v[N];
        load(x + position * g.channels, true, v);
        for (int k = 0; k < N; k++) sum[k] += v[k];
        if (++count % SHORT_SUM != 0) return;
        for (int k = 0; k < N; k++) total[k] += sum[k], sum[k] = 0;
    });
    for (int k = 0; k < N; k++) {
        if (size >= SHORT_SUM) sum[k] = (float)(total[k] + sum[k]);
        mean[k] = sum[k] / (float)size;
    }
}

template <typename T, int N, bool MAX>
static __global__ void __launch_bounds__(THREADS, 3)
    pool_kernel(geometry_t g, const T *x, T *y, int32_t *index, int64_t work) {
    for (int64_t i = global_thread(); i < work; i += global_threads()) {
        const place_t p = place_of<N>(g, i, g.out_size);
        const int64_t at = (p.image * g.out_size + p.position) * g.channels + p.channel;
        int out[3];
        float v[N];
        split(p.position, g.out, out);
        const box_t w = window_of(g, out);
        const T *from = x + p.image * g.in_size * g.channels + p.channel;
        if (MAX) {
            int32_t where[N];
            pool_max(g, w, from, v, where);
            if (index)
                for (int k = 0; k < N; k++) index[at + k] = where[k];
        } else {
            pool_mean(g, w, from, v);
        }
        store(y + at, true, v);
    }
}

/* Launches kernel<T, N, MAX> over all positions. */
#define LAUNCH_POOL(kernel, T, N, max, positions, ...)                                             \
    do {                                                                                           \
        const int64_t work = g.images * (positions) * (g.channels / N);                            \
        const unsigned blocks =                                                                    \
            cuda_blocks(work, THREADS, 64 * (int64_t)tr_cuda_grid_limit(device));                  \
        if (max)                                                                                   \
            CUDA_LAUNCH((kernel<T, N, true>), blocks, THREADS, stream, __VA_ARGS__, work);         \
        else                                                                                       \
            CUDA_LAUNCH((kernel<T, N, false>), blocks, THREADS, stream, __VA_ARGS__, work);        \
    } while (0)

CUDA_KERNEL(pool_fwd) {
    const tr_pool_attr_t *attr = (const tr_pool_attr_t *)call->attr;
    const geometry_t g = geometry_of(attr, &call->in[0].shape, &call->out[0].shape);
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    int32_t *index = attr->max && cuda_present(&call->out[1]) ? (int32_t *)call->out[1].data : NULL;
    CUDA_BY_TYPE(call->in[0].dtype, T, {
        const bool wide = g.channels % CUDA_PACK(T) == 0 && cuda_aligned(x) && cuda_aligned(y);
        CUDA_BY_PACK(
            wide, T, N,
            LAUNCH_POOL(pool_kernel, T, N, attr->max, g.out_size, g, (const T *)x, (T *)y, index));
    });
    return TR_OK;
}

/* -- backward: a thread gathers from the windows that hold its position, in their order -------- */

/* The outputs whose windows hold an input position. */
static __device__ __forceinline__ box_t windows_with(const geometry_t &g, const int (&at)[3]) {
    box_t w;
    for (int i = 0; i < 3; i++) {
        const int last = at[i] + g.pad[i], first = last - g.kernel[i];
        w.first[i] = first < 0 ? 0 : first / g.stride[i] + 1;
        w.last[i] = last / g.stride[i] + 1 < g.out[i] ? last / g.stride[i] + 1 : g.out[i];
    }
    return w;
}

template <typename T, int N, bool MAX>
static __global__ void __launch_bounds__(THREADS, 3)
    pool_gradient_kernel(geometry_t g, const T *dy, const int32_t *index, T *dx, int64_t work) {
    for (int64_t i = global_thread(); i < work; i += global_threads()) {
        const place_t p = place_of<N>(g, i, g.in_size);
        const int64_t outputs = p.image * g.out_size * g.channels + p.channel;
        int in[3];
        float sum[N] = {};
        split(p.position, g.in, in);
        for_box(windows_with(g, in), g.out, [&](int position) {
            const int64_t at = outputs + position * g.channels;
            float v[N];
            int out[3];
            load(dy + at, true, v);
            split(position, g.out, out);
            const float size = MAX ? 1.0f : (float)box_size(window_of(g, out));
            for (int k = 0; k < N; k++)
                if (!MAX)
                    sum[k] += v[k] / size;
                else if (index[at + k] == p.position)
                    sum[k] += v[k];
        });
        store(dx + (p.image * g.in_size + p.position) * g.channels + p.channel, true, sum);
    }
}

CUDA_KERNEL(pool_bwd) {
    const tr_pool_attr_t *attr = (const tr_pool_attr_t *)call->attr;
    const geometry_t g = geometry_of(attr, &call->out[0].shape, &call->in[0].shape);
    const void *dy = call->in[0].data;
    const int32_t *index = attr->max ? (const int32_t *)call->in[1].data : NULL;
    void *dx = call->out[0].data;
    CUDA_BY_TYPE(call->out[0].dtype, T, {
        const bool wide = g.channels % CUDA_PACK(T) == 0 && cuda_aligned(dy) && cuda_aligned(dx);
        CUDA_BY_PACK(wide, T, N,
                     LAUNCH_POOL(pool_gradient_kernel, T, N, attr->max, g.in_size, g, (const T *)dy,
                                 index, (T *)dx));
    });
    return TR_OK;
}
