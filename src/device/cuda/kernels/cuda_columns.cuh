/*
 * Private: sums over the rows of a matrix (rows, columns), for batch and layer normalisation and
 * biases.
 *
 * A functor gives one or two values for each element. A block takes a tile of columns and a chunk
 * of rows; a thread adds N columns of every block_rows-th row. The threads of a column are joined as a
 * tree in shared memory, the chunks in scratch by a second kernel. Chunks follow from the shape alone,
 * so the order is fixed.
 *
 * Where rows are not whole packs, N is 1, and a thread adds floats over COLUMN_SHORT rows and then
 * doubles.
 *
 * A functor F has
 *     enum { N = columns per thread, SUMS = 1 or 2 };
 *     void begin(int64_t column);                                reads what it needs of N columns
 *     void add(int64_t row, int64_t column, float (&sum)[SUMS][N]);
 * and one that finishes a column from its sums
 *     void operator()(int64_t column, const double (&sum)[SUMS]);
 *
 * Where rows are wide, a thread has F::AHEAD rows in flight. Its sums are floats over its rows of a
 * chunk, which are at most COLUMN_LONG, and so are those of the chunk; chunks are joined in doubles.
 * Such a functor has
 *     enum { N, SUMS, AHEAD, BLOCKS = blocks that a multiprocessor is to hold };
 *     struct row_t;                           what is loaded of N columns of a row
 *     void begin(int64_t column);
 *     void load(int64_t at, row_t &row);      at = row * columns + column
 *     void add(int64_t at, const row_t &row, float (&sum)[SUMS][N]);
 */
#ifndef TR_DEVICE_CUDA_KERNELS_CUDA_COLUMNS_CUH
#define TR_DEVICE_CUDA_KERNELS_CUDA_COLUMNS_CUH

#include "cuda_types.cuh"

enum {
    COLUMN_THREADS = 256,
    COLUMN_SHORT = 32,           /* rows that are summed in floats */
    COLUMN_LONG = 512,           /* by a thread that has several rows in flight */
    COLUMN_CHUNKS = 1024,        /* most chunks of rows */
    COLUMN_CHUNK_ELEMS = 1 << 14 /* elements that a chunk has at least */
};

typedef struct {
    int64_t rows, columns;
    int tile_threads; /* threads along the columns, a power of two up to 32 */
    unsigned tiles, chunks;
} column_layout_t;

/* `pack` columns for each thread. The number of chunks does not depend on it. */
static inline column_layout_t column_layout(int64_t rows, int64_t columns, int pack) {
    column_layout_t l = {rows, columns, 1, 1, 1};
    while (l.tile_threads < 32 && (int64_t)l.tile_threads * pack < columns) l.tile_threads *= 2;
    const int64_t tile = (int64_t)l.tile_threads * pack;
    l.tiles = (unsigned)((columns + tile - 1) / tile);
    int64_t chunks = rows * columns / COLUMN_CHUNK_ELEMS, most = (1 << 18) / columns;
    chunks = chunks < COLUMN_CHUNKS ? chunks : (int64_t)COLUMN_CHUNKS;
    chunks = chunks < most ? chunks : most;
    chunks = chunks < rows ? chunks : rows;
    l.chunks = (unsigned)(chunks > 1 ? chunks : 1);
    return l;
}

static inline column_layout_t column_ahead_layout(int64_t rows, int64_t columns, int pack) {
    column_layout_t l = column_layout(rows, columns, pack);
    const int64_t least = rows * l.tile_threads / (COLUMN_THREADS * COLUMN_LONG), most = 65535;
    if (l.chunks < least) l.chunks = (unsigned)(least < most ? least : most);
    return l;
}

/* For either way. */
static inline size_t column_scratch_bytes(int64_t rows, int64_t columns, int sums) {
    const size_t each = (size_t)(columns * sums),
                 doubles = column_layout(rows, columns, 1).chunks * each * sizeof(double),
                 floats = column_ahead_layout(rows, columns, 1).chunks * each * sizeof(float);
    return doubles > floats ? doubles : floats;
}

/* Adds over the block's threads with the same threadIdx % tile_threads; the result is in the first
 * of them. */
template <int N>
static __device__ void join_rows(double (&sum)[N], int tile_threads, double *shared) {
    double *own = shared + threadIdx.x * N;
    __syncthreads(); /* what was joined before has been read */
    for (int k = 0; k < N; k++) own[k] = sum[k];
    for (int half = COLUMN_THREADS / 2; half >= tile_threads; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            for (int k = 0; k < N; k++) own[k] += own[half * N + k];
    }
    for (int k = 0; k < N; k++) sum[k] = own[k];
}

template <typename F>
static __global__ void __launch_bounds__(COLUMN_THREADS, 2)
    column_sums_kernel(F f, column_layout_t l, double *partial) {
    const int N = F::N, SUMS = F::SUMS;
    __shared__ double shared[COLUMN_THREADS * N];
    const int64_t column =
        ((int64_t)blockIdx.x * l.tile_threads + threadIdx.x % l.tile_threads) * N;
    const int64_t first = l.rows * blockIdx.y / l.chunks,
                  last = l.rows * (blockIdx.y + 1) / l.chunks;
    const int block_rows = COLUMN_THREADS / l.tile_threads;
    double total[SUMS][N] = {};
    if (column < l.columns) {
        f.begin(column);
        for (int64_t row = first + threadIdx.x / l.tile_threads; row < last;) {
            float sum[SUMS][N] = {};
            for (int i = 0; i < COLUMN_SHORT && row < last; i++, row += block_rows)
                f.add(row, column, sum);
            for (int s = 0; s < SUMS; s++)
                for (int k = 0; k < N; k++) total[s][k] += sum[s][k];
        }
    }
    for (int s = 0; s < SUMS; s++) {
        join_rows<N>(total[s], l.tile_threads, shared);
        if ((int)threadIdx.x >= l.tile_threads || column >= l.columns) continue;
        double *out = partial + ((int64_t)blockIdx.y * SUMS + s) * l.columns + column;
        for (int k = 0; k < N; k++) out[k] = total[s][k];
    }
}

/* As join_rows; a column of `shared` for each thread. */
template <int N>
static __device__ void join_rows_ahead(float (&sum)[N], int tile_threads, float *shared) {
    float *own = shared + threadIdx.x;
    __syncthreads(); /* what was joined before has been read */
    for (int k = 0; k < N; k++) own[k * COLUMN_THREADS] = sum[k];
    for (int half = COLUMN_THREADS / 2; half >= tile_threads; half /= 2) {
        __syncthreads();
        if ((int)threadIdx.x < half)
            for (int k = 0; k < N; k++)
                own[k * COLUMN_THREADS] += own[k * COLUMN_THREADS + half];
    }
    for (int k = 0; k < N; k++) sum[k] = own[k * COLUMN_THREADS];
}

template <typename F>
static __global__ void __launch_bounds__(COLUMN_THREADS, F::BLOCKS)
    column_ahead_kernel(F f, column_layout_t l, float *partial) {
    const int N = F::N, SUMS = F::SUMS, AHEAD = F::AHEAD;
    __shared__ float shared[COLUMN_THREADS * N];
    const int64_t column =
        ((int64_t)blockIdx.x * l.tile_threads + threadIdx.x % l.tile_threads) * N;
    const int64_t first = l.rows * blockIdx.y / l.chunks,
                  last = l.rows * (blockIdx.y + 1) / l.chunks;
    const int64_t block_rows = COLUMN_THREADS / l.tile_threads, step = block_rows * l.columns;
    float sum[SUMS][N] = {};
    if (column < l.columns) {
        int64_t row = first + threadIdx.x / l.tile_threads, at = row * l.columns + column;
        f.begin(column);
        for (; row + (AHEAD - 1) * block_rows < last; row += AHEAD * block_rows) {
            typename F::row_t loaded[AHEAD];
#pragma unroll
            for (int i = 0; i < AHEAD; i++) f.load(at + i * step, loaded[i]);
#pragma unroll
            for (int i = 0; i < AHEAD; i++) f.add(at + i * step, loaded[i], sum);
            at += AHEAD * step;
        }
        for (; row < last; row += block_rows, at += step) {
            typename F::row_t loaded;
            f.load(at, loaded);
            f.add(at, loaded, sum);
        }
    }
#pragma unroll
    for (int s = 0; s < SUMS; s++) {
        join_rows_ahead<N>(sum[s], l.tile_threads, shared);
        if ((int)threadIdx.x >= l.tile_threads || column >= l.columns) continue;
        store(partial + ((int64_t)blockIdx.y * SUMS + s) * l.columns + column, true, sum[s]);
    }
}

enum { FINISH_COLUMNS = 8, FINISH_LANES = COLUMN_THREADS / FINISH_COLUMNS };

/* A block joins the chunks of FINISH_COLUMNS columns. */
template <int SUMS, typename G, typename P = double>
static __global__ void __launch_bounds__(COLUMN_THREADS)
    column_finish_kernel(G finish, int64_t columns, int chunks, const P *partial) {
    __shared__ double shared[COLUMN_THREADS];
    const int64_t column = (int64_t)blockIdx.x * FINISH_COLUMNS + threadIdx.x % FINISH_COLUMNS;
    double total[SUMS] = {};
    if (column < columns) {
#pragma unroll 4
        for (int i = (int)threadIdx.x / FINISH_COLUMNS; i < chunks; i += FINISH_LANES)
            for (int s = 0; s < SUMS; s++)
                total[s] += (double)partial[((int64_t)i * SUMS + s) * columns + column];
    }
    for (int s = 0; s < SUMS; s++) {
        double sum[1] = {total[s]};
        join_rows<1>(sum, FINISH_COLUMNS, shared);
        total[s] = sum[0];
    }
    if (threadIdx.x < FINISH_COLUMNS && column < columns) finish(column, total);
}

/* Both kernels; `partial` has column_scratch_bytes. */
template <typename F, typename G>
static tr_status_t sum_columns(tr_stream_t *stream, F f, G finish, int64_t rows, int64_t columns,
                               void *partial) {
    const column_layout_t l = column_layout(rows, columns, F::N);
    CUDA_LAUNCH((column_sums_kernel<F>), dim3(l.tiles, l.chunks), COLUMN_THREADS, stream, f, l,
                (double *)partial);
    CUDA_LAUNCH((column_finish_kernel<F::SUMS, G>), cuda_blocks(columns, FINISH_COLUMNS, INT32_MAX),
                COLUMN_THREADS, stream, finish, columns, (int)l.chunks, (const double *)partial);
    return TR_OK;
}

/* The same with several rows in flight. */
template <typename F, typename G>
static tr_status_t sum_columns_ahead(tr_stream_t *stream, F f, G finish, int64_t rows,
                                     int64_t columns, void *partial) {
    const column_layout_t l = column_ahead_layout(rows, columns, F::N);
    CUDA_LAUNCH((column_ahead_kernel<F>), dim3(l.tiles, l.chunks), COLUMN_THREADS, stream, f, l,
                (float *)partial);
    CUDA_LAUNCH((column_finish_kernel<F::SUMS, G, float>),
                cuda_blocks(columns, FINISH_COLUMNS, INT32_MAX), COLUMN_THREADS, stream, finish,
                columns, (int)l.chunks, (const float *)partial);
    return TR_OK;
}

/* A functor for rows in flight, used for one row after the other. */
template <typename F> struct one_by_one_t {
    enum { N = F::N, SUMS = F::SUMS };
    F f;
    int64_t columns;
    __device__ void begin(int64_t column) { f.begin(column); }
    __device__ void add(int64_t row, int64_t column, float (&sum)[SUMS][N]) {
        typename F::row_t loaded;
        f.load(row * columns + column, loaded);
        f.add(row * columns + column, loaded, sum);
    }
};

/* Either way, with such a functor. */
template <typename F, typename G>
static tr_status_t sum_rows(tr_stream_t *stream, F f, G finish, int64_t rows, int64_t columns,
                            void *partial) {
    if constexpr (F::N > 1)
        return sum_columns_ahead(stream, f, finish, rows, columns, partial);
    else
        return sum_columns(stream, one_by_one_t<F>{f, columns}, finish, rows, columns, partial);
}

/* -- for normalisations -------------------------------------------------------------------------- */

/* Whether whole packs of T fit a row, at aligned addresses. */
template <typename T> static bool rows_are_wide(int64_t channels, const void *a, const void *b) {
    return channels % CUDA_PACK(T) == 0 && cuda_aligned(a) && cuda_aligned(b);
}

/* Output `index` of the call is added to, not overwritten. */
static inline bool adds(const tr_kernel_call_t *call, int index) {
    return call->adds >> index & 1;
}

/* Finishes a column with its sum. */
struct write_sum_t {
    float *y;
    bool add;
    __device__ void operator()(int64_t column, const double (&sum)[1]) const {
        y[column] = add ? y[column] + (float)sum[0] : (float)sum[0];
    }
};

/* Finishes a column with two gradients of parameters. */
struct write_two_t {
    float *a, *b;
    bool add_a, add_b;
    __device__ void operator()(int64_t column, const double (&sum)[2]) const {
        a[column] = add_a ? a[column] + (float)sum[0] : (float)sum[0];
        b[column] = add_b ? b[column] + (float)sum[1] : (float)sum[1];
    }
};

enum { PIVOT_ROWS = 8 };

/* The mean of PIVOT_ROWS rows that are spread over all of them, for N channels. */
template <int N, typename T>
static __device__ void find_pivot(const T *x, int64_t rows, int64_t channels, int64_t column,
                                  float (&pivot)[N]) {
    const int64_t count = rows < PIVOT_ROWS ? rows : (int64_t)PIVOT_ROWS;
    for (int k = 0; k < N; k++) pivot[k] = 0;
    for (int64_t i = 0; i < count; i++) {
        float v[N];
        load(x + rows * (2 * i + 1) / (2 * count) * channels + column, true, v);
        for (int k = 0; k < N; k++) pivot[k] += v[k];
    }
    for (int k = 0; k < N; k++) pivot[k] /= (float)count;
}

/* Backward finds the activation's mask by the same operations, hence the same bits. */
static __device__ __forceinline__ float affine(float x, float mean, float factor, float beta) {
    return fmaf(x - mean, factor, beta);
}

#endif
