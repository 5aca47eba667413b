/*
 * Batch normalisation over (rows, channels), and the sum over rows.
 *
 * Forward and backward each read the data twice: for the sums of cuda_columns.cuh, then to write.
 * Sums are of differences from a pivot near the mean, so that a large mean costs no digits.
 * Where rows are wide, each thread has several rows in flight.
 */
#include "cuda_columns.cuh"

typedef struct {
    int64_t rows, channels;
} extent_t;

static extent_t extent_of(const tr_view_t *view) {
    const int64_t channels = view->shape.dim[view->shape.ndim - 1];
    const extent_t e = {tr_shape_elems(&view->shape) / channels, channels};
    return e;
}

/* -- the sum over rows ------------------------------------------------------------------------- */

template <typename T, int PACK> struct plain_sum_t {
    enum { N = PACK, SUMS = 1, AHEAD = 4, BLOCKS = 4 };
    typedef raw_t<T, N> row_t;
    const T *x;
    __device__ void begin(int64_t) {}
    __device__ void load(int64_t at, row_t &row) const { load_raw(x + at, row); }
    __device__ void add(int64_t, const row_t &row, float (&sum)[1][N]) const {
        float v[N];
        unpack(row, v);
        for (int k = 0; k < N; k++) sum[0][k] += v[k];
    }
};

CUDA_KERNEL_PREPARE(column_sum) {
    const extent_t e = extent_of(&call->in[0]);
    *out_state = NULL;
    *out_scratch_bytes = column_scratch_bytes(e.rows, e.channels, 1);
    return TR_OK;
}

CUDA_KERNEL(column_sum) {
    const extent_t e = extent_of(&call->in[0]);
    const void *x = call->in[0].data;
    const write_sum_t finish = {(float *)call->out[0].data, adds(call, 0)};
    CUDA_BY_TYPE(
        call->in[0].dtype, T, CUDA_BY_PACK(rows_are_wide<T>(e.channels, x, x), T, N, {
            const plain_sum_t<T, N> f = {(const T *)x};
            return sum_rows(stream, f, finish, e.rows, e.channels, call->scratch);
        }));
    return TR_OK;
}

/* -- forward ----------------------------------------------------------------------------------- */

/* Sums of differences from the pivot, and of their squares. */
template <typename T, int PACK> struct moments_t {
    enum { N = PACK, SUMS = 2, AHEAD = 4, BLOCKS = 4 };
    typedef raw_t<T, N> row_t;
    const T *x;
    int64_t rows, channels;
    float pivot[N];
    __device__ void begin(int64_t column) { find_pivot(x, rows, channels, column, pivot); }
    __device__ void load(int64_t at, row_t &row) const { load_raw(x + at, row); }
    __device__ void add(int64_t, const row_t &row, float (&sum)[2][N]) const {
        float v[N];
        unpack(row, v);
        for (int k = 0; k < N; k++) {
            const float d = v[k] - pivot[k];
            sum[0][k] += d;
            sum[1][k] = fmaf(d, d, sum[1][k]);
        }
    }
};

template <typename T> struct write_moments_t {
    const T *x;
    int64_t rows, channels;
    double eps;
    float *mean, *rstd, *moments; /* moments, which are added to, may be NULL */
    __device__ void operator()(int64_t c, const double (&sum)[2]) const {
        const double n = (double)rows, shift = sum[0] / n;
        double squares = sum[1] - sum[0] * shift;
        float pivot[1];
        find_pivot(x, rows, channels, c, pivot);
        squares = squares < 0 ? 0 : squares; /* below 0 by rounding; NaN stays */
        mean[c] = (float)(pivot[0] + shift);
        rstd[c] = (float)(1 / sqrt(squares / n + eps));
        if (!moments) return;
        moments[c] += mean[c];
        moments[channels + c] += (float)(squares / (rows > 1 ? n - 1 : 1));
    }
};

/* What a thread knows of its N channels. */
template <int N> struct channel_t {
    float mean[N], factor[N], beta[N];
    __device__ void read(const float *means, const float *rstds, const float *gammas,
                         const float *betas, int64_t c) {
        for (int k = 0; k < N; k++) {
            mean[k] = means[c + k];
            factor[k] = gammas[c + k] * rstds[c + k];
            beta[k] = betas[c + k];
        }
    }
};

enum { PASS_AHEAD = 4, DX_AHEAD = 2 }; /* wide rows in flight in passes that write */

/* The layout of passes that write: as for sums, with more, shorter chunks. */
static column_layout_t pass_layout(extent_t e, int pack, int limit) {
    column_layout_t l = column_layout(e.rows, e.channels, pack);
    const int64_t block_rows = COLUMN_THREADS / l.tile_threads, most = limit / l.tiles + 1;
    l.chunks = cuda_blocks(e.rows, (int)(4 * block_rows), most < 65535 ? most : 65535);
    return l;
}

/* y = act((x - mean) gamma rstd + beta), or act(that, rounded to T, + added) */
template <typename T, int N, int AHEAD>
static __global__ void __launch_bounds__(COLUMN_THREADS)
    normalize_kernel(const T *x, const T *added, T *y, const float *mean, const float *rstd,
                     const float *gamma, const float *beta, bool cut, column_layout_t l) {
    const int64_t column =
        ((int64_t)blockIdx.x * l.tile_threads + threadIdx.x % l.tile_threads) * N;
    const int block_rows = COLUMN_THREADS / l.tile_threads;
    const int64_t step = block_rows * l.columns;
    channel_t<N> c;
    if (column >= l.columns) return;
    c.read(mean, rstd, gamma, beta, column);
    for (int64_t row = (int64_t)blockIdx.y * AHEAD * block_rows + threadIdx.x / l.tile_threads;
         row < l.rows; row += (int64_t)gridDim.y * AHEAD * block_rows) {
        const int64_t at = row * l.columns + column;
        raw_t<T, N> from[AHEAD] = {}, more[AHEAD] = {};
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (row + i * block_rows >= l.rows) continue;
            load_raw(x + at + i * step, from[i]);
            if (added) load_raw(added + at + i * step, more[i]);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            float v[N], a[N];
            if (row + i * block_rows >= l.rows) continue;
            unpack(from[i], v), unpack(more[i], a);
            for (int k = 0; k < N; k++) {
                v[k] = affine(v[k], c.mean[k], c.factor[k], c.beta[k]);
                if (added) v[k] = rounded<T>(v[k]) + a[k];
                if (cut) v[k] = relu(v[k]);
            }
            store(y + at + i * step, true, v);
        }
    }
}

static tr_status_t normalize(tr_device_t *device, tr_stream_t *stream, const tr_kernel_call_t *call,
                             const void *added, const float *mean, const float *rstd) {
    const extent_t e = extent_of(&call->in[0]);
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    const float *gamma = (const float *)call->in[1].data, *beta = (const float *)call->in[2].data;
    const bool cut = ((const tr_norm_attr_t *)call->attr)->act == TR_ACT_RELU;
    CUDA_BY_TYPE(call->in[0].dtype, T, {
        const bool wide = rows_are_wide<T>(e.channels, x, y) && cuda_aligned(added);
        CUDA_BY_PACK(wide, T, N, {
            const column_layout_t l = pass_layout(e, N, tr_cuda_grid_limit(device));
            const dim3 grid(l.tiles, l.chunks);
            CUDA_LAUNCH((normalize_kernel<T, N, N == 1 ? 1 : PASS_AHEAD>), grid, COLUMN_THREADS,
                        stream, (const T *)x, (const T *)added, (T *)y, mean, rstd, gamma, beta,
                        cut, l);
        });
    });
    return TR_OK;
}

CUDA_KERNEL_PREPARE(batchnorm_train) {
    const extent_t e = extent_of(&call->in[0]);
    *out_state = NULL;
    *out_scratch_bytes = column_scratch_bytes(e.rows, e.channels, 2);
    return TR_OK;
}

static tr_status_t train(tr_device_t *device, tr_stream_t *stream, const tr_kernel_call_t *call,
                         const void *added) {
    const extent_t e = extent_of(&call->in[0]);
    const void *x = call->in[0].data;
    float *mean = (float *)call->out[1].data, *rstd = (float *)call->out[2].data;
    float *moments = cuda_present(&call->out[3]) ? (float *)call->out[3].data : NULL;
    const double eps = ((const tr_norm_attr_t *)call->attr)->eps;
    CUDA_BY_TYPE(
        call->in[0].dtype, T, CUDA_BY_PACK(rows_are_wide<T>(e.channels, x, x), T, N, {
            const moments_t<T, N> f = {(const T *)x, e.rows, e.channels, {}};
            const write_moments_t<T> finish = {(const T *)x, e.rows, e.channels, eps,
                                               mean,         rstd,   moments};
            TR_TRY(sum_rows(stream, f, finish, e.rows, e.channels, call->scratch));
        }));
    return normalize(device, stream, call, added, mean, rstd);
}

CUDA_KERNEL(batchnorm_train) {
    return train(device, stream, call, NULL);
}

CUDA_KERNEL(batchnorm_add_train) {
    return train(device, stream, call, call->in[3].data);
}

static __global__ void __launch_bounds__(COLUMN_THREADS)
    rstd_kernel(const float *variance, double eps, float *rstd, int64_t channels) {
    const int64_t c = global_thread();
    if (c < channels) rstd[c] = (float)(1 / sqrt(variance[c] + eps));
}

CUDA_KERNEL_PREPARE(batchnorm_eval) {
    *out_state = NULL;
    *out_scratch_bytes = (size_t)extent_of(&call->in[0]).channels * sizeof(float);
    return TR_OK;
}

CUDA_KERNEL(batchnorm_eval) {
    const int64_t channels = extent_of(&call->in[0]).channels;
    float *rstd = (float *)call->scratch;
    CUDA_LAUNCH(rstd_kernel, cuda_blocks(channels, COLUMN_THREADS, INT32_MAX), COLUMN_THREADS,
                stream, (const float *)call->in[4].data,
                (double)((const tr_norm_attr_t *)call->attr)->eps, rstd, channels);
    return normalize(device, stream, call, NULL, (const float *)call->in[3].data, rstd);
}

/* -- backward ---------------------------------------------------------------------------------- */

/* The inputs of the backward pass. */
template <typename T> struct backward_t {
    const T *dy, *x;
    const float *gamma, *beta, *mean, *rstd;
    int64_t channels;
    bool cut; /* the activation is RELU */
    /* Of y = relu(normalised x + a), else NULL: y, and where dy behind the relu goes. */
    const T *y;
    T *dsum;
};

/* How the gradient before the activation is had from dy: as it is, by the activation's mask from x,
 * or by that from y, where it is also stored. */
typedef enum { MASK_NONE, MASK_X, MASK_Y } mask_t;

/* Sums of that gradient g and of g (x - mean). */
template <typename T, int PACK, mask_t MASK> struct gradient_sums_t {
    enum { N = PACK, SUMS = 2, AHEAD = 2, BLOCKS = 3 };
    typedef struct {
        raw_t<T, N> dy, x, y;
    } row_t;
    backward_t<T> b;
    channel_t<N> c;
    __device__ void begin(int64_t column) { c.read(b.mean, b.rstd, b.gamma, b.beta, column); }
    __device__ void load(int64_t at, row_t &row) const {
        load_raw(b.dy + at, row.dy);
        load_raw(b.x + at, row.x);
        if (MASK == MASK_Y) load_raw(b.y + at, row.y);
    }
    __device__ void add(int64_t at, const row_t &row, float (&sum)[2][N]) const {
        float g[N], v[N], y[N];
        unpack(row.dy, g), unpack(row.x, v);
        if (MASK == MASK_Y) {
            unpack(row.y, y);
            for (int k = 0; k < N; k++) g[k] = y[k] > 0.0f ? g[k] : 0.0f;
            store(b.dsum + at, true, g);
        }
        for (int k = 0; k < N; k++) {
            if (MASK == MASK_X && !(affine(v[k], c.mean[k], c.factor[k], c.beta[k]) > 0.0f))
                g[k] = 0.0f;
            sum[0][k] += g[k];
            sum[1][k] = fmaf(g[k], v[k] - c.mean[k], sum[1][k]);
        }
    }
};

/* dgamma, dbeta, and what dx needs: dx = factor (g - (shift + (x - mean) slope)). */
struct write_gradients_t {
    double rows;
    const float *rstd;
    float *dgamma, *dbeta, *shift, *slope;
    bool add_gamma, add_beta;
    __device__ void operator()(int64_t c, const double (&sum)[2]) const {
        const double product = sum[1] * rstd[c];
        dbeta[c] = add_beta ? dbeta[c] + (float)sum[0] : (float)sum[0];
        dgamma[c] = add_gamma ? dgamma[c] + (float)product : (float)product;
        shift[c] = (float)(sum[0] / rows);
        slope[c] = (float)(product * rstd[c] / rows);
    }
};

template <typename T, int N, int AHEAD>
static __global__ void __launch_bounds__(COLUMN_THREADS)
    batchnorm_dx_kernel(backward_t<T> b, const float *shifts, const float *slopes, T *dx,
                        column_layout_t l) {
    const int64_t column =
        ((int64_t)blockIdx.x * l.tile_threads + threadIdx.x % l.tile_threads) * N;
    const int block_rows = COLUMN_THREADS / l.tile_threads;
    channel_t<N> c;
    float shift[N], slope[N];
    if (column >= l.columns) return;
    c.read(b.mean, b.rstd, b.gamma, b.beta, column);
    for (int k = 0; k < N; k++) shift[k] = shifts[column + k], slope[k] = slopes[column + k];
    const int64_t step = block_rows * l.columns;
    for (int64_t row = (int64_t)blockIdx.y * AHEAD * block_rows + threadIdx.x / l.tile_threads;
         row < l.rows; row += (int64_t)gridDim.y * AHEAD * block_rows) {
        const int64_t at = row * l.columns + column;
        raw_t<T, N> dy[AHEAD] = {}, x[AHEAD] = {};
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            if (row + i * block_rows >= l.rows) continue;
            load_raw(b.dy + at + i * step, dy[i]);
            load_raw(b.x + at + i * step, x[i]);
        }
#pragma unroll
        for (int i = 0; i < AHEAD; i++) {
            float g[N], v[N];
            if (row + i * block_rows >= l.rows) continue;
            unpack(dy[i], g), unpack(x[i], v);
            for (int k = 0; k < N; k++) {
                if (b.cut && !(affine(v[k], c.mean[k], c.factor[k], c.beta[k]) > 0.0f)) g[k] = 0.0f;
                g[k] = c.factor[k] * (g[k] - fmaf(v[k] - c.mean[k], slope[k], shift[k]));
            }
            store(dx + at + i * step, true, g);
        }
    }
}

CUDA_KERNEL_PREPARE(batchnorm_bwd) {
    const extent_t e = extent_of(&call->in[1]);
    *out_state = NULL;
    *out_scratch_bytes =
        column_scratch_bytes(e.rows, e.channels, 2) + 2 * (size_t)e.channels * sizeof(float);
    return TR_OK;
}

template <typename T, int N>
static tr_status_t backward(tr_device_t *device, tr_stream_t *stream, const tr_kernel_call_t *call,
                            extent_t e, const void *y, void *dsum) {
    backward_t<T> b = {(const T *)call->in[0].data,
                       (const T *)call->in[1].data,
                       (const float *)call->in[2].data,
                       (const float *)call->in[3].data,
                       (const float *)call->in[4].data,
                       (const float *)call->in[5].data,
                       e.channels,
                       ((const tr_norm_attr_t *)call->attr)->act == TR_ACT_RELU,
                       (const T *)y,
                       (T *)dsum};
    float *shift = (float *)((char *)call->scratch + column_scratch_bytes(e.rows, e.channels, 2));
    float *slope = shift + e.channels;
    const write_gradients_t finish = {(double)e.rows,
                                      b.rstd,
                                      (float *)call->out[1].data,
                                      (float *)call->out[2].data,
                                      shift,
                                      slope,
                                      adds(call, 1),
                                      adds(call, 2)};
    const gradient_sums_t<T, N, MASK_NONE> plain = {b, {}};
    const gradient_sums_t<T, N, MASK_X> by_x = {b, {}};
    const gradient_sums_t<T, N, MASK_Y> by_y = {b, {}};
    void *partial = call->scratch;
    TR_TRY(y       ? sum_rows(stream, by_y, finish, e.rows, e.channels, partial)
           : b.cut ? sum_rows(stream, by_x, finish, e.rows, e.channels, partial)
                   : sum_rows(stream, plain, finish, e.rows, e.channels, partial));
    if (y) b.dy = b.dsum, b.y = NULL;
    if (!cuda_present(&call->out[0])) return TR_OK;
    const column_layout_t l = pass_layout(e, N, tr_cuda_grid_limit(device));
    CUDA_LAUNCH((batchnorm_dx_kernel<T, N, N == 1 ? 1 : DX_AHEAD>), dim3(l.tiles, l.chunks),
                COLUMN_THREADS, stream, b, shift, slope, (T *)call->out[0].data, l);
    return TR_OK;
}

static tr_status_t backward_by_type(tr_device_t *device, tr_stream_t *stream,
                                    const tr_kernel_call_t *call, const void *y, void *dsum) {
    const extent_t e = extent_of(&call->in[1]);
    const void *dx = cuda_present(&call->out[0]) ? call->out[0].data : NULL;
    CUDA_BY_TYPE(call->in[1].dtype, T, {
        const bool wide = rows_are_wide<T>(e.channels, call->in[0].data, call->in[1].data) &&
                          cuda_aligned(dx) && cuda_aligned(y) && cuda_aligned(dsum);
        CUDA_BY_PACK(wide, T, N, return (backward<T, N>(device, stream, call, e, y, dsum)));
    });
    return TR_OK;
}

CUDA_KERNEL(batchnorm_bwd) {
    return backward_by_type(device, stream, call, NULL, NULL);
}

CUDA_KERNEL(batchnorm_add_bwd) {
    return backward_by_type(device, stream, call, call->in[6].data, call->out[3].data);
}
