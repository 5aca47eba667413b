/*
 * Group normalisation of (N, S..., C).
 *
 * The sums are those of cuda_columns.cuh over rows of C channels, with the same number of chunks for
 * each sample, so that no chunk has rows of two. A kernel joins the chunks and the channels of a
 * group. Sums are of differences from a pivot near the mean of the group, so that a large mean costs
 * no digits.
 */
#include "cuda_columns.cuh"

enum { THREADS = 128, CHUNK_ROWS = 64, GRID_ROWS = 65535 };

typedef struct {
    int64_t samples, rows, channels, of_group; /* rows of a sample; channels of a group */
    int groups;
    bool cut; /* the activation is RELU */
} groupnorm_t;

static groupnorm_t cuda_groupnorm_of(const tr_kernel_call_t *call, const tr_view_t *x) {
    const tr_groupnorm_attr_t *attr = (const tr_groupnorm_attr_t *)call->attr;
    groupnorm_t gn = {x->shape.dim[0],         0, x->shape.dim[x->shape.ndim - 1], 0, attr->groups,
                      attr->act == TR_ACT_RELU};
    gn.rows = tr_shape_elems(&x->shape) / (gn.samples * gn.channels);
    gn.of_group = gn.channels / gn.groups;
    return gn;
}

/* With chunks of at least `elems` elements and `rows` rows; l.chunks are those of all samples. */
static column_layout_t groupnorm_layout(const groupnorm_t &gn, int pack, int64_t elems,
                                        int64_t rows) {
    column_layout_t l = column_layout(gn.samples * gn.rows, gn.channels, pack);
    int64_t chunks = gn.rows * gn.channels / elems;
    chunks = chunks < gn.rows / rows ? chunks : gn.rows / rows;
    chunks = chunks < GRID_ROWS / gn.samples ? chunks : GRID_ROWS / gn.samples;
    l.chunks = (unsigned)((chunks > 1 ? chunks : 1) * gn.samples);
    return l;
}

static column_layout_t sums_layout(const groupnorm_t &gn, int pack) {
    return groupnorm_layout(gn, pack, COLUMN_CHUNK_ELEMS, CHUNK_ROWS);
}

static size_t sums_bytes(const groupnorm_t &gn) {
    return (size_t)(sums_layout(gn, 1).chunks * gn.channels * 2) * sizeof(double);
}

/* The sample of the block's chunk. */
static __device__ __forceinline__ int64_t block_sample(const groupnorm_t &gn) {
    return (int64_t)blockIdx.y * gn.samples / gridDim.y;
}

/* -- forward ----------------------------------------------------------------------------------- */

/* Sums of differences from the pivot, and of their squares. */
template <typename T, int PACK> struct groupnorm_moments_t {
    enum { N = PACK, SUMS = 2 };
    groupnorm_t gn;
    const T *x;
    float pivot[PACK];
    /* Near the mean of the first channel of the group. */
    __device__ void begin(int64_t column) {
        const T *sample = x + block_sample(gn) * gn.rows * gn.channels;
        for (int k = 0; k < PACK; k++) {
            float first[1];
            find_pivot(sample, gn.rows, gn.channels, (column + k) / gn.of_group * gn.of_group,
                       first);
            pivot[k] = first[0];
        }
    }
    __device__ void add(int64_t row, int64_t column, float (&sum)[2][PACK]) const {
        float v[PACK];
        load(x + row * gn.channels + column, true, v);
        for (int k = 0; k < PACK; k++) {
            const float d = v[k] - pivot[k];
            sum[0][k] += d;
            sum[1][k] = fmaf(d, d, sum[1][k]);
        }
    }
};

/* Joins both sums over the chunks of a sample and the channels of a group, with factors of the
 * channels where there are some. A block for each group of each sample. */
static __device__ void join_group(const groupnorm_t &gn, int chunks, const double *partial,
                                  const float *factor, double (&out)[2]) {
    const int64_t sample = blockIdx.x / gn.groups, first = blockIdx.x % gn.groups * gn.of_group;
    double sum[2] = {0, 0};
    for (int64_t i = threadIdx.x; i < chunks * gn.of_group; i += THREADS) {
        const int64_t chunk = sample * chunks + i / gn.of_group, c = first + i % gn.of_group;
        const double weight = factor ? factor[c] : 1;
        sum[0] += weight * partial[chunk * 2 * gn.channels + c];
        sum[1] += weight * partial[(chunk * 2 + 1) * gn.channels + c];
    }
    for (int s = 0; s < 2; s++) out[s] = block_sum<THREADS>(sum[s]);
}

template <typename T>
static __global__ void __launch_bounds__(THREADS)
    groupnorm_moments_kernel(groupnorm_t gn, int chunks, const double *partial, const T *x,
                             double eps, float *mean, float *rstd) {
    const double count = (double)(gn.rows * gn.of_group);
    double sum[2];
    join_group(gn, chunks, partial, NULL, sum);
    if (threadIdx.x != 0) return;
    const T *sample = x + blockIdx.x / gn.groups * gn.rows * gn.channels;
    float pivot[1];
    find_pivot(sample, gn.rows, gn.channels, blockIdx.x % gn.groups * gn.of_group, pivot);
    const double shift = sum[0] / count, variance = sum[1] / count - shift * shift;
    mean[blockIdx.x] = (float)(pivot[0] + shift);
    /* below 0 by rounding; NaN stays */
    rstd[blockIdx.x] = (float)(1 / sqrt((variance < 0 ? 0 : variance) + eps));
}

/* What a thread knows of its N channels. */
template <int N> struct groupnorm_channel_t {
    float mean[N], rstd[N], factor[N], beta[N];
    __device__ void read(const groupnorm_t &gn, const float *means, const float *rstds,
                         const float *gammas, const float *betas, int64_t column) {
        for (int k = 0; k < N; k++) {
            const int64_t group = block_sample(gn) * gn.groups + (column + k) / gn.of_group;
            mean[k] = means[group];
            rstd[k] = rstds[group];
            factor[k] = gammas[column + k] * rstds[group];
            beta[k] = betas[column + k];
        }
    }
    __device__ float normalized(int k, float x) const {
        return affine(x, mean[k], factor[k], beta[k]);
    }
};

/* The rows of a block's chunk that a thread goes through. */
#define FOR_ROWS_OF_CHUNK(row, l)                                                                  \
    for (int64_t row = l.rows * blockIdx.y / l.chunks + threadIdx.x / l.tile_threads;              \
         row < l.rows * (blockIdx.y + 1) / l.chunks; row += COLUMN_THREADS / l.tile_threads)

template <typename T, int N>
static __global__ void __launch_bounds__(COLUMN_THREADS)
    groupnorm_kernel(groupnorm_t gn, const T *x, T *y, const float *mean, const float *rstd,
                     const float *gamma, const float *beta, column_layout_t l) {
    const int64_t column =
        ((int64_t)blockIdx.x * l.tile_threads + threadIdx.x % l.tile_threads) * N;
    groupnorm_channel_t<N> c;
    if (column >= l.columns) return;
    c.read(gn, mean, rstd, gamma, beta, column);
    FOR_ROWS_OF_CHUNK(row, l) {
        float v[N];
        load(x + row * l.columns + column, true, v);
        for (int k = 0; k < N; k++)
            v[k] = gn.cut ? relu(c.normalized(k, v[k])) : c.normalized(k, v[k]);
        store(y + row * l.columns + column, true, v);
    }
}

/* The layout of passes that write: with shorter chunks than for sums. */
static column_layout_t groupnorm_pass_layout(const groupnorm_t &gn, int pack) {
    return groupnorm_layout(gn, pack, COLUMN_CHUNK_ELEMS / 4, CHUNK_ROWS / 4);
}

template <typename T, int N>
static tr_status_t groupnorm_forward(tr_stream_t *stream, const tr_kernel_call_t *call) {
    const groupnorm_t gn = cuda_groupnorm_of(call, &call->in[0]);
    const T *x = (const T *)call->in[0].data;
    float *mean = (float *)call->out[1].data, *rstd = (float *)call->out[2].data;
    double *partial = (double *)call->scratch;
    const double eps = ((const tr_groupnorm_attr_t *)call->attr)->eps;
    const groupnorm_moments_t<T, N> f = {gn, x, {}};
    column_layout_t l = sums_layout(gn, N);
    CUDA_LAUNCH((column_sums_kernel<groupnorm_moments_t<T, N>>), dim3(l.tiles, l.chunks),
                COLUMN_THREADS, stream, f, l, partial);
    CUDA_LAUNCH(groupnorm_moments_kernel<T>, (unsigned)(gn.samples * gn.groups), THREADS, stream,
                gn, (int)(l.chunks / gn.samples), (const double *)partial, x, eps, mean, rstd);
    l = groupnorm_pass_layout(gn, N);
    CUDA_LAUNCH((groupnorm_kernel<T, N>), dim3(l.tiles, l.chunks), COLUMN_THREADS, stream, gn, x,
                (T *)call->out[0].data, (const float *)mean, (const float *)rstd,
                (const float *)call->in[1].data, (const float *)call->in[2].data, l);
    return TR_OK;
}

CUDA_KERNEL_PREPARE(groupnorm_fwd) {
    *out_state = NULL;
    *out_scratch_bytes = sums_bytes(cuda_groupnorm_of(call, &call->in[0]));
    return TR_OK;
}

CUDA_KERNEL(groupnorm_fwd) {
    const void *x = call->in[0].data, *y = call->out[0].data;
    const int64_t channels = call->in[0].shape.dim[call->in[0].shape.ndim - 1];
    CUDA_BY_TYPE(call->in[0].dtype, T,
                 CUDA_BY_PACK(rows_are_wide<T>(channels, x, y), T, N,
                              return (groupnorm_forward<T, N>(stream, call))));
    return TR_OK;
}

/* -- backward ---------------------------------------------------------------------------------- */

/* The inputs of the backward pass. */
template <typename T> struct groupnorm_backward_t {
    groupnorm_t gn;
    const T *dy, *x;
    const float *gamma, *beta, *mean, *rstd;
};

/* N elements of x - mean, and of dy before the activation: 0 where it cut the value off. */
template <typename T, int N>
static __device__ __forceinline__ void
groupnorm_gradient(const groupnorm_backward_t<T> &b, const groupnorm_channel_t<N> &c, int64_t at,
                   float (&g)[N], float (&difference)[N]) {
    float v[N];
    load(b.dy + at, true, g);
    load(b.x + at, true, v);
    for (int k = 0; k < N; k++) {
        difference[k] = v[k] - c.mean[k];
        if (b.gn.cut && !(c.normalized(k, v[k]) > 0.0f)) g[k] = 0.0f;
    }
}

/* Sums of g and of g (x - mean) rstd. */
template <typename T, int PACK> struct groupnorm_gradient_sums_t {
    enum { N = PACK, SUMS = 2 };
    groupnorm_backward_t<T> b;
    groupnorm_channel_t<PACK> c;
    __device__ void begin(int64_t column) { c.read(b.gn, b.mean, b.rstd, b.gamma, b.beta, column); }
    __device__ void add(int64_t row, int64_t column, float (&sum)[2][PACK]) const {
        float g[PACK], difference[PACK];
        groupnorm_gradient(b, c, row * b.gn.channels + column, g, difference);
        for (int k = 0; k < PACK; k++) {
            sum[0][k] += g[k];
            sum[1][k] = fmaf(g[k], difference[k] * c.rstd[k], sum[1][k]);
        }
    }
};

/* What dx needs of each group of each sample: dx = factor g - (shift + (x - mean) slope). */
static __global__ void __launch_bounds__(THREADS)
    groupnorm_shifts_kernel(groupnorm_t gn, int chunks, const double *partial, const float *gamma,
                            const float *rstd, float *shifts) {
    const double count = (double)(gn.rows * gn.of_group), factor = rstd[blockIdx.x];
    double sum[2];
    join_group(gn, chunks, partial, gamma, sum);
    if (threadIdx.x != 0) return;
    shifts[2 * blockIdx.x] = (float)(sum[0] / count * factor);
    shifts[2 * blockIdx.x + 1] = (float)(sum[1] / count * factor * factor);
}

template <typename T, int N>
static __global__ void __launch_bounds__(COLUMN_THREADS)
    groupnorm_dx_kernel(groupnorm_backward_t<T> b, const float *shifts, T *dx, column_layout_t l) {
    const int64_t column =
        ((int64_t)blockIdx.x * l.tile_threads + threadIdx.x % l.tile_threads) * N;
    groupnorm_channel_t<N> c;
    float shift[N], slope[N];
    if (column >= l.columns) return;
    c.read(b.gn, b.mean, b.rstd, b.gamma, b.beta, column);
    for (int k = 0; k < N; k++) {
        const int64_t group = block_sample(b.gn) * b.gn.groups + (column + k) / b.gn.of_group;
        shift[k] = shifts[2 * group];
        slope[k] = shifts[2 * group + 1];
    }
    FOR_ROWS_OF_CHUNK(row, l) {
        float g[N], difference[N];
        groupnorm_gradient(b, c, row * l.columns + column, g, difference);
        for (int k = 0; k < N; k++)
            g[k] = c.factor[k] * g[k] - fmaf(difference[k], slope[k], shift[k]);
        store(dx + row * l.columns + column, true, g);
    }
}

template <typename T, int N>
static tr_status_t groupnorm_backward(tr_stream_t *stream, const tr_kernel_call_t *call) {
    const groupnorm_t gn = cuda_groupnorm_of(call, &call->in[1]);
    const groupnorm_backward_t<T> b = {gn,
                                       (const T *)call->in[0].data,
                                       (const T *)call->in[1].data,
                                       (const float *)call->in[2].data,
                                       (const float *)call->in[3].data,
                                       (const float *)call->in[4].data,
                                       (const float *)call->in[5].data};
    double *partial = (double *)call->scratch;
    float *shifts = (float *)((char *)call->scratch + sums_bytes(gn));
    const groupnorm_gradient_sums_t<T, N> f = {b, {}};
    const write_two_t finish = {(float *)call->out[2].data, (float *)call->out[1].data,
                                adds(call, 2), adds(call, 1)};
    column_layout_t l = sums_layout(gn, N);
    CUDA_LAUNCH((column_sums_kernel<groupnorm_gradient_sums_t<T, N>>), dim3(l.tiles, l.chunks),
                COLUMN_THREADS, stream, f, l, partial);
    CUDA_LAUNCH((column_finish_kernel<2, write_two_t>),
                cuda_blocks(gn.channels, FINISH_COLUMNS, INT32_MAX), COLUMN_THREADS, stream, finish,
                gn.channels, (int)l.chunks, (const double *)partial);
    if (!cuda_present(&call->out[0])) return TR_OK;
    CUDA_LAUNCH(groupnorm_shifts_kernel, (unsigned)(gn.samples * gn.groups), THREADS, stream, gn,
                (int)(l.chunks / gn.samples), (const double *)partial, b.gamma, b.rstd, shifts);
    l = groupnorm_pass_layout(gn, N);
    CUDA_LAUNCH((groupnorm_dx_kernel<T, N>), dim3(l.tiles, l.chunks), COLUMN_THREADS, stream, b,
                (const float *)shifts, (T *)call->out[0].data, l);
    return TR_OK;
}

CUDA_KERNEL_PREPARE(groupnorm_bwd) {
    const groupnorm_t gn = cuda_groupnorm_of(call, &call->in[1]);
    *out_state = NULL;
    *out_scratch_bytes = sums_bytes(gn) + (size_t)(gn.samples * gn.groups * 2) * sizeof(float);
    return TR_OK;
}

CUDA_KERNEL(groupnorm_bwd) {
    const void *dy = call->in[0].data, *x = call->in[1].data,
               *dx = cuda_present(&call->out[0]) ? call->out[0].data : NULL;
    const int64_t channels = call->in[1].shape.dim[call->in[1].shape.ndim - 1];
    CUDA_BY_TYPE(call->in[1].dtype, T,
                 CUDA_BY_PACK(rows_are_wide<T>(channels, dy, x) && cuda_aligned(dx), T, N,
                              return (groupnorm_backward<T, N>(stream, call))));
    return TR_OK;
}
