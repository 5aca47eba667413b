/* Layer normalisation, cross-entropy and its metric: a block of threads for each row. */
#include "cuda_columns.cuh"
#include "cuda_rows.cuh"
#include "device/bias_sum.h"

/* -- layer normalisation ----------------------------------------------------------------------- */

/* Calls f(index, N values) for the packs of N elements of a row that are this thread's. */
template <int N, int THREADS, typename T, typename F>
static __device__ __forceinline__ void for_packs(const T *x, int64_t width, F f) {
    for (int64_t i = (int64_t)threadIdx.x * N; i < width; i += THREADS * N) {
        float v[N];
        load(x + i, true, v);
        f(i, v);
    }
}

/* Of x + b, which is written to `total`, or of x where b is NULL. The mean first, then the squares
 * of differences: a large mean costs no digits. */
template <typename T, int N, int THREADS>
static __global__ void __launch_bounds__(THREADS)
    layernorm_kernel(const T *x, const T *b, T *total, const float *gamma, const float *beta, T *y,
                     float *mean, float *rstd, int64_t width, double eps, bool cut) {
    const int64_t at = (int64_t)blockIdx.x * width;
    const float first = to_float(x[at]);
    float sum = 0, squares = 0;
    if (b) {
        row_barrier<THREADS>(); /* `first` is read: total may be x */
        for_packs<N, THREADS>(x + at, width, [&](int64_t i, float(&v)[N]) {
            float w[N];
            load(b + at + i, true, w);
            for (int k = 0; k < N; k++) v[k] += w[k];
            store(total + at + i, true, v);
        });
        x = total; /* a thread reads what it wrote itself */
    }
    for_packs<N, THREADS>(x + at, width, [&](int64_t, float(&v)[N]) {
        for (int k = 0; k < N; k++) sum += v[k] - first;
    });
    const double exact = first + block_sum<THREADS>((double)sum) / (double)width;
    const float m = (float)exact;
    for_packs<N, THREADS>(x + at, width, [&](int64_t, float(&v)[N]) {
        for (int k = 0; k < N; k++) squares = fmaf(v[k] - m, v[k] - m, squares);
    });
    double variance =
        block_sum<THREADS>((double)squares) / (double)width - (exact - m) * (exact - m);
    variance = variance < 0 ? 0 : variance;
    const float s = (float)(1 / sqrt(variance + eps));
    for_packs<N, THREADS>(x + at, width, [&](int64_t i, float(&v)[N]) {
        for (int k = 0; k < N; k++) {
            v[k] = (v[k] - m) * s * gamma[i + k] + beta[i + k];
            if (cut) v[k] = relu(v[k]);
        }
        store(y + at + i, true, v);
    });
    if (threadIdx.x == 0) mean[blockIdx.x] = m, rstd[blockIdx.x] = s;
}

/* b, total NULL: of x alone. gamma and beta are two inputs, y, mean and rstd three outputs. */
static tr_status_t layernorm(tr_stream_t *stream, const tr_kernel_call_t *call, const void *b,
                             void *total, const tr_view_t *in, const tr_view_t *out) {
    const rows_t r = rows_of(&call->in[0]);
    const void *x = call->in[0].data;
    const float *gamma = (const float *)in[0].data, *beta = (const float *)in[1].data;
    float *mean = (float *)out[1].data, *rstd = (float *)out[2].data;
    const tr_norm_attr_t *attr = (const tr_norm_attr_t *)call->attr;
    CUDA_BY_TYPE(call->in[0].dtype, T, {
        const bool wide = r.width % CUDA_PACK(T) == 0 && cuda_aligned(x) &&
                          cuda_aligned(out[0].data) && cuda_aligned(b) && cuda_aligned(total);
        CUDA_BY_PACK(
            wide, T, N,
            BY_ROW_LENGTH(r.width, THREADS,
                          CUDA_LAUNCH((layernorm_kernel<T, N, THREADS>), (unsigned)r.rows, THREADS,
                                      stream, (const T *)x, (const T *)b, (T *)total, gamma, beta,
                                      (T *)out[0].data, mean, rstd, r.width, (double)attr->eps,
                                      attr->act == TR_ACT_RELU)));
    });
    return TR_OK;
}

CUDA_KERNEL(layernorm_fwd) {
    return layernorm(stream, call, NULL, NULL, &call->in[1], &call->out[0]);
}

CUDA_KERNEL(residual_layernorm_fwd) {
    return layernorm(stream, call, call->in[1].data, call->out[0].data, &call->in[2],
                     &call->out[1]);
}

/* With h = (x - mean) rstd and g = dy gamma: dx = rstd (g - mean(g) - h mean(g h)), plus dsum
 * where that is not NULL. dx may be dy or dsum. */
template <typename T, int N, int THREADS>
static __global__ void __launch_bounds__(THREADS)
    layernorm_dx_kernel(const T *dy, const T *x, const float *gamma, const float *mean,
                        const float *rstd, const T *dsum, T *dx, int64_t width) {
    const int64_t at = (int64_t)blockIdx.x * width;
    const float m = mean[blockIdx.x], s = rstd[blockIdx.x];
    float sum = 0, product = 0;
    for_packs<N, THREADS>(x + at, width, [&](int64_t i, float(&v)[N]) {
        float g[N];
        load(dy + at + i, true, g);
        for (int k = 0; k < N; k++) {
            const float scaled = g[k] * gamma[i + k];
            sum += scaled;
            product = fmaf(scaled, (v[k] - m) * s, product);
        }
    });
    const float shift = (float)(block_sum<THREADS>((double)sum) / (double)width);
    const float slope = (float)(block_sum<THREADS>((double)product) / (double)width);
    for_packs<N, THREADS>(x + at, width, [&](int64_t i, float(&v)[N]) {
        float g[N];
        load(dy + at + i, true, g);
        for (int k = 0; k < N; k++)
            v[k] = s * (g[k] * gamma[i + k] - (shift + (v[k] - m) * s * slope));
        if (dsum) {
            load(dsum + at + i, true, g);
            for (int k = 0; k < N; k++) v[k] += g[k];
        }
        store(dx + at + i, true, v);
    });
}

/* dgamma and dbeta are sums over rows. */
template <typename T, int PACK> struct layernorm_sums_t {
    enum { N = PACK, SUMS = 2 };
    const T *dy, *x;
    const float *mean, *rstd;
    int64_t width;
    __device__ void begin(int64_t) {}
    __device__ void add(int64_t row, int64_t column, float (&sum)[2][PACK]) const {
        float g[PACK], v[PACK];
        const float m = mean[row], s = rstd[row];
        load(dy + row * width + column, true, g);
        load(x + row * width + column, true, v);
        for (int k = 0; k < PACK; k++) {
            sum[0][k] = fmaf(g[k], (v[k] - m) * s, sum[0][k]);
            sum[1][k] += g[k];
        }
    }
};

/* -- all gradients of layer normalisation in one pass --------------------------------------------
 *
 * A block takes a chunk of rows, ONCE_ROWS of them at a time, and a thread N columns of each. So dy
 * and x are read once, and the sums over the rows of a chunk stay in registers, as floats. Chunks
 * follow from the number of rows alone; they are joined in doubles.
 */
enum { ONCE_ROWS = 4, ONCE_THREADS = 256, ONCE_CHUNKS = 512 };

template <typename T> struct layernorm_once_t {
    const T *dy, *x, *dsum; /* dsum may be NULL */
    const float *gamma, *mean, *rstd;
    T *dx; /* may be dy or dsum */
    float *partial;
    int64_t rows, width;
};

static unsigned once_chunks(int64_t rows) {
    return cuda_blocks(rows, ONCE_ROWS, ONCE_CHUNKS);
}

template <typename T>
static __global__ void __launch_bounds__(ONCE_THREADS, 2)
    layernorm_once_kernel(layernorm_once_t<T> l) {
    const int N = CUDA_PACK(T), WARPS = ONCE_THREADS / 32, SUMS = 3;
    __shared__ float joined[2][ONCE_ROWS][2][WARPS]; /* of rows; the next are written meanwhile */
    const int64_t first = l.rows * blockIdx.x / gridDim.x,
                  last = l.rows * (blockIdx.x + 1) / gridDim.x;
    const int64_t column = (int64_t)threadIdx.x * N;
    const bool has_columns = column < l.width;
    float scale[N] = {}, sum[SUMS][N] = {};
    int turn = 0;
    if (has_columns)
        for (int k = 0; k < N; k++) scale[k] = l.gamma[column + k];
    for (int64_t row = first; row < last; row += ONCE_ROWS, turn ^= 1) {
        raw_t<T, N> dy[ONCE_ROWS] = {}, x[ONCE_ROWS] = {}, more[ONCE_ROWS] = {};
        float mean[ONCE_ROWS], rstd[ONCE_ROWS];
#pragma unroll
        for (int i = 0; i < ONCE_ROWS; i++) {
            const int64_t own = row + i < last ? row + i : last - 1;
            mean[i] = l.mean[own], rstd[i] = l.rstd[own];
            if (!has_columns || row + i >= last) continue;
            load_raw(l.dy + own * l.width + column, dy[i]);
            load_raw(l.x + own * l.width + column, x[i]);
            if (l.dsum) load_raw(l.dsum + own * l.width + column, more[i]);
        }
#pragma unroll
        for (int i = 0; i < ONCE_ROWS; i++) {
            float g[N], v[N], both[2] = {0, 0};
            unpack(dy[i], g), unpack(x[i], v);
            for (int k = 0; k < N; k++) {
                const float h = (v[k] - mean[i]) * rstd[i], scaled = g[k] * scale[k];
                both[0] += scaled;
                both[1] = fmaf(scaled, h, both[1]);
                sum[0][k] = fmaf(g[k], h, sum[0][k]);
                sum[1][k] += g[k];
            }
            for (int j = 0; j < 2; j++) {
                const float of_warp = warp_sum(both[j]);
                if (threadIdx.x % 32 == 0) joined[turn][i][j][threadIdx.x / 32] = of_warp;
            }
        }
        __syncthreads();
#pragma unroll
        for (int i = 0; i < ONCE_ROWS; i++) {
            float g[N], v[N], rest[N], both[2] = {0, 0};
            for (int w = 0; w < (int)blockDim.x / 32; w++)
                for (int j = 0; j < 2; j++) both[j] += joined[turn][i][j][w];
            if (!has_columns || row + i >= last) continue;
            const float shift = both[0] / (float)l.width, slope = both[1] / (float)l.width;
            unpack(dy[i], g), unpack(x[i], v), unpack(more[i], rest);
            for (int k = 0; k < N; k++) {
                const float h = (v[k] - mean[i]) * rstd[i];
                v[k] = rstd[i] * (g[k] * scale[k] - (shift + h * slope));
                if (l.dsum) v[k] += rest[k];
                sum[2][k] += rounded<T>(v[k]);
            }
            store(l.dx + (row + i) * l.width + column, true, v);
        }
    }
    if (!has_columns) return;
#pragma unroll
    for (int s = 0; s < SUMS; s++)
        store(l.partial + ((int64_t)blockIdx.x * SUMS + s) * l.width + column, true, sum[s]);
}

/* Finishes a column with its sums over the rows of dy h, dy and dx; the last may be unwanted. */
struct write_three_t {
    write_two_t two;
    write_sum_t bias;
    __device__ void operator()(int64_t column, const double (&sum)[3]) const {
        const double first[2] = {sum[0], sum[1]}, last[1] = {sum[2]};
        two(column, first);
        if (bias.y) bias(column, last);
    }
};

/* Rows of whole packs, 16 to ONCE_THREADS of them. */
static bool once_suits(const tr_kernel_call_t *call, rows_t r) {
    const int64_t pack = 16 / (int64_t)tr_dtype_bytes(call->in[1].dtype), packs = r.width / pack;
    return r.width % pack == 0 && packs >= 16 && packs <= ONCE_THREADS;
}

CUDA_KERNEL_PREPARE(layernorm_bwd) {
    const rows_t r = rows_of(&call->in[1]);
    const size_t once =
        once_suits(call, r) ? once_chunks(r.rows) * (size_t)r.width * 3 * sizeof(float) : 0;
    *out_state = NULL;
    *out_scratch_bytes = column_scratch_bytes(r.rows, r.width, 2);
    if (once > *out_scratch_bytes) *out_scratch_bytes = once;
    return TR_OK;
}

template <typename T, int N>
static tr_status_t layernorm_backward(tr_device_t *device, tr_stream_t *stream,
                                      const tr_kernel_call_t *call, rows_t r, const void *dsum) {
    const T *dy = (const T *)call->in[0].data, *x = (const T *)call->in[1].data;
    const float *gamma = (const float *)call->in[2].data, *mean = (const float *)call->in[3].data,
                *rstd = (const float *)call->in[4].data;
    const layernorm_sums_t<T, N> f = {dy, x, mean, rstd, r.width};
    const write_two_t finish = {(float *)call->out[1].data, (float *)call->out[2].data,
                                adds(call, 1), adds(call, 2)};
    if (N == CUDA_PACK(T) && once_suits(call, r) && cuda_present(&call->out[0])) {
        float *partial = (float *)call->scratch,
              *bias = tr_has_bias_sum(call, 3) ? (float *)call->out[3].data : NULL;
        const layernorm_once_t<T> l = {
            dy,      x,      (const T *)dsum, gamma, mean, rstd, (T *)call->out[0].data,
            partial, r.rows, r.width};
        const unsigned chunks = once_chunks(r.rows), threads = cuda_blocks(r.width / N, 32, 8) * 32;
        CUDA_LAUNCH((layernorm_once_kernel<T>), chunks, threads, stream, l);
        CUDA_LAUNCH((column_finish_kernel<3, write_three_t, float>),
                    cuda_blocks(r.width, FINISH_COLUMNS, INT32_MAX), COLUMN_THREADS, stream,
                    write_three_t{finish, {bias, adds(call, 3)}}, r.width, (int)chunks,
                    (const float *)partial);
        return TR_OK;
    }
    TR_TRY(sum_columns(stream, f, finish, r.rows, r.width, call->scratch));
    if (!cuda_present(&call->out[0])) return TR_OK;
    BY_ROW_LENGTH(r.width, THREADS,
                  CUDA_LAUNCH((layernorm_dx_kernel<T, N, THREADS>), (unsigned)r.rows, THREADS,
                              stream, dy, x, gamma, mean, rstd, (const T *)dsum,
                              (T *)call->out[0].data, r.width));
    if (!tr_has_bias_sum(call, 3)) return TR_OK;
    const tr_kernel_call_t bias = tr_bias_sum_call(call, 3);
    return tr_cuda_column_sum(device, stream, &bias);
}

static tr_status_t layernorm_gradients(tr_device_t *device, tr_stream_t *stream,
                                       const tr_kernel_call_t *call, const void *dsum) {
    const rows_t r = rows_of(&call->in[1]);
    const void *dx = cuda_present(&call->out[0]) ? call->out[0].data : NULL;
    CUDA_BY_TYPE(call->in[1].dtype, T, {
        const bool wide = r.width % CUDA_PACK(T) == 0 && cuda_aligned(call->in[0].data) &&
                          cuda_aligned(call->in[1].data) && cuda_aligned(dx) && cuda_aligned(dsum);
        CUDA_BY_PACK(wide, T, N, return (layernorm_backward<T, N>(device, stream, call, r, dsum)));
    });
    return TR_OK;
}

CUDA_KERNEL(layernorm_bwd) {
    return layernorm_gradients(device, stream, call, NULL);
}

CUDA_KERNEL(residual_layernorm_bwd) {
    return layernorm_gradients(device, stream, call,
                               cuda_present(&call->in[5]) ? call->in[5].data : NULL);
}

/* -- losses ------------------------------------------------------------------------------------ */

template <int THREADS>
static __global__ void __launch_bounds__(THREADS)
    xent_kernel(const float *logits, labels_t labels, const float *weight, float *loss, float *lse,
                int64_t width, double smoothing) {
    const int64_t row = blockIdx.x;
    const float *x = logits + row * width;
    float largest = -INFINITY;
    for (int64_t i = threadIdx.x; i < width; i += THREADS)
        largest = x[i] > largest ? x[i] : largest;
    const float max = block_max<THREADS>(largest);
    const double sum = row_sum<THREADS>(width, [&](int64_t i) { return expf(x[i] - max); });
    double mean = 0;
    if (smoothing > 0)
        mean = row_sum<THREADS>(width, [&](int64_t i) { return x[i]; }) / (double)width;
    if (threadIdx.x > 0) return;
    const double exact = max + log(sum);
    const int64_t label = label_at(labels, row);
    lse[row] = (float)exact;
    if (label == -1 || weight[row] == 0.0f)
        loss[row] = 0.0f;
    else if (label < 0 || label >= width)
        loss[row] = NAN;
    else
        loss[row] =
            (float)(weight[row] * (exact - ((1 - smoothing) * x[label] + smoothing * mean)));
}

CUDA_KERNEL(xent_fwd) {
    const rows_t r = rows_of(&call->in[0]);
    const double smoothing = ((const tr_xent_attr_t *)call->attr)->smoothing;
    BY_ROW_LENGTH(r.width, THREADS,
                  CUDA_LAUNCH((xent_kernel<THREADS>), (unsigned)r.rows, THREADS, stream,
                              (const float *)call->in[0].data, labels_of(&call->in[1]),
                              (const float *)call->in[2].data, (float *)call->out[0].data,
                              (float *)call->out[1].data, r.width, smoothing));
    return TR_OK;
}

/* dlogits = dloss weight (softmax - target); a row of weight 0 is 0 whatever it holds. */
template <int THREADS>
static __global__ void __launch_bounds__(THREADS)
    xent_gradient_kernel(const float *logits, labels_t labels, const float *weight,
                         const float *lse, const float *dloss, float *dlogits, int64_t width,
                         float smoothing) {
    const int64_t row = blockIdx.x, label = label_at(labels, row);
    const bool live = label != -1 && weight[row] != 0.0f;
    const float factor = label >= -1 && label < width ? weight[row] * dloss[row] : NAN;
    const float off = smoothing / (float)width;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        const int64_t at = row * width + i;
        float d = factor * (expf(logits[at] - lse[row]) - off);
        if (i == label) d -= factor * (1.0f - smoothing);
        dlogits[at] = live && factor != 0.0f ? d : 0.0f;
    }
}

CUDA_KERNEL(xent_bwd) {
    const rows_t r = rows_of(&call->in[0]);
    const float smoothing = ((const tr_xent_attr_t *)call->attr)->smoothing;
    BY_ROW_LENGTH(r.width, THREADS,
                  CUDA_LAUNCH((xent_gradient_kernel<THREADS>), (unsigned)r.rows, THREADS, stream,
                              (const float *)call->in[0].data, labels_of(&call->in[1]),
                              (const float *)call->in[2].data, (const float *)call->in[3].data,
                              (const float *)call->in[4].data, (float *)call->out[0].data, r.width,
                              smoothing));
    return TR_OK;
}

/* Counts the elements before the label's in descending order, ties by index, and the NaNs. */
template <int THREADS>
static __global__ void __launch_bounds__(THREADS)
    topk_kernel(const float *logits, labels_t labels, const float *weight, float *correct,
                int64_t width, int k) {
    const int64_t row = blockIdx.x, label = label_at(labels, row);
    const float *x = logits + row * width;
    const bool known = label >= 0 && label < width;
    const float own = known ? x[label] : 0.0f;
    int before = 0, bad = 0;
    for (int64_t i = threadIdx.x; i < width; i += THREADS) {
        before += i < label ? x[i] >= own : x[i] > own;
        bad += x[i] != x[i];
    }
    before = block_sum<THREADS>(before);
    bad = block_sum<THREADS>(bad);
    if (threadIdx.x == 0) correct[row] = known && bad == 0 && before < k ? weight[row] : 0.0f;
}

CUDA_KERNEL(topk_correct) {
    const rows_t r = rows_of(&call->in[0]);
    const int k = ((const tr_topk_attr_t *)call->attr)->k;
    BY_ROW_LENGTH(r.width, THREADS,
                  CUDA_LAUNCH((topk_kernel<THREADS>), (unsigned)r.rows, THREADS, stream,
                              (const float *)call->in[0].data, labels_of(&call->in[1]),
                              (const float *)call->in[2].data, (float *)call->out[0].data, r.width,
                              k));
    return TR_OK;
}
