/* Products with few rows on the left. The time is that of reading the right side from memory, which
 * is therefore read once and in long runs. Sums are computed in the same order for any number of
 * rows and threads. */
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_types.h"

enum {
    DEPTH = 16, /* rows of B read at the same time */
    ALIGN = 64, /* the columns of a thread start at multiples of this */
    ROWS = 4,
    VECS = CPU_VEC_LANES == 16 ? 4 : 2, /* as many sums as fit in registers */
    DOTS = CPU_VEC_LANES == 16 ? 4 : 2, /* the same for sums over whole rows */
    COPIED = 8,                         /* rows of A from which B is copied */
    LINE = 64,                          /* bytes of a cache line */
    PACK = 32                           /* rows of B copied together */
};

typedef struct {
    int64_t rows, inner, columns;
    const float *a, *bias;
    const void *b;
    float *c;
} product_t;

/* -- B (K, N) ---------------------------------------------------------------------------------- */

/* A part of B: rows k to last, columns from j; rows are `stride` apart. */
typedef struct {
    const void *data;
    int64_t stride, k, last, j;
} part_t;

/* C += A B for `rows` by `vecs` vectors, both constants, from row i. */
CPU_VECTOR void block(const product_t *p, int rows, int vecs, int type, int64_t i, part_t b) {
    cpu_vec_t sum[ROWS][4];
    float *c = p->c + i * p->columns + b.j;
    const float *a = p->a + i * p->inner + b.k;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            sum[r][v] =
                b.k > 0 ? cpu_vec_load(c + r * p->columns + v * CPU_VEC_LANES) : cpu_vec_all(0);
    for (int64_t k = 0; k < b.last - b.k; k++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            cpu_vec_t right = cpu_vec_get(b.data, k * b.stride + v * CPU_VEC_LANES, type);
            if (rows > 1) right = cpu_vec_pin(right);
#pragma GCC unroll 8
            for (int r = 0; r < rows; r++)
                sum[r][v] = cpu_vec_fma(cpu_vec_all(a[r * p->inner + k]), right, sum[r][v]);
        }
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            cpu_vec_store(c + r * p->columns + v * CPU_VEC_LANES, sum[r][v]);
}

/* What is used next: `columns` elements of each row of `b`, `ahead` of those there. With several rows
 * of A the processor is too busy to see it early enough; and runs of halves are too short for it. */
typedef struct {
    part_t b;
    int type;
    int64_t ahead, columns;
} next_t;

/* The part number `pass` of `passes`: memory takes only so many requests at a time. */
CPU_VECTOR void fetch(const next_t *next, int64_t pass, int64_t passes) {
    const int64_t size = next->type == TR_F32 ? 4 : 2, depth = next->b.last - next->b.k;
    for (int64_t at = next->ahead; at < next->ahead + next->columns; at += LINE / size)
        for (int64_t k = depth * pass / passes; k < depth * (pass + 1) / passes; k++)
            __builtin_prefetch((const char *)next->b.data + (k * next->b.stride + at) * size);
}

CPU_VECTOR void panel(const product_t *p, int vecs, int type, part_t b, const next_t *next) {
    int64_t i = 0;
    for (; i + ROWS <= p->rows; i += ROWS) {
        fetch(next, i / ROWS, p->rows / ROWS);
        block(p, ROWS, vecs, type, i, b);
    }
    for (; i < p->rows; i++) block(p, 1, vecs, type, i, b);
}

CPU_INLINE void column(const product_t *p, int type, part_t b) {
    for (int64_t i = 0; i < p->rows; i++) {
        float sum = b.k > 0 ? p->c[i * p->columns + b.j] : 0.0f;
        for (int64_t k = b.k; k < b.last; k++)
            sum += p->a[i * p->inner + k] * cpu_get(p->b, k * p->columns + b.j, type);
        p->c[i * p->columns + b.j] = sum;
    }
}

CPU_VECTOR part_t part_of(const product_t *p, int type, int64_t j, int64_t k, int64_t depth) {
    return (part_t){.data = (const char *)p->b + (k * p->columns + j) * (type == TR_F32 ? 4 : 2),
                    .stride = p->columns,
                    .k = k,
                    .last = k + depth < p->inner ? k + depth : p->inner,
                    .j = j};
}

CPU_INLINE void by_panels(const product_t *p, int64_t first, int64_t last, int type) {
    for (int64_t k = 0; k < p->inner; k += DEPTH) {
        int64_t j = first;
        for (; p->rows < ROWS && j + 4 * CPU_VEC_LANES <= last; j += 4 * CPU_VEC_LANES) {
            const part_t b = part_of(p, type, j, k, DEPTH);
            const next_t next = {b, type, DEPTH * p->columns, 4 * CPU_VEC_LANES};
            if (type != TR_F32) fetch(&next, 0, 1);
            for (int64_t i = 0; i < p->rows; i++) block(p, 1, 4, type, i, b);
        }
        for (; j + VECS * CPU_VEC_LANES <= last; j += VECS * CPU_VEC_LANES) {
            const part_t b = part_of(p, type, j, k, DEPTH);
            const next_t next = {b, type, type == TR_F32 ? ALIGN : DEPTH * p->columns,
                                 VECS * CPU_VEC_LANES};
            panel(p, VECS, type, b, &next);
        }
        for (; j < last; j++) column(p, type, part_of(p, type, j, k, DEPTH));
    }
}

/* With several rows of A, ALIGN columns of B are copied first: rows of B may be a multiple of 4 KiB
 * apart, and then too many of them fall on the same lines of the first cache. */
CPU_VECTOR void copied_panel(const product_t *p, int type, part_t b, float *copy) {
    for (int64_t k = 0; k < b.last - b.k; k++)
#pragma GCC unroll 8
        for (int64_t c = 0; c < ALIGN; c += CPU_VEC_LANES)
            cpu_vec_store(copy + k * ALIGN + c, cpu_vec_get(b.data, k * b.stride + c, type));
    for (int64_t c = 0; c < ALIGN; c += VECS * CPU_VEC_LANES) {
        const part_t copied = {
            .data = copy + c, .stride = ALIGN, .k = b.k, .last = b.last, .j = b.j + c};
        const next_t next = {b, type, ALIGN + c, VECS * CPU_VEC_LANES};
        panel(p, VECS, TR_F32, copied, &next);
    }
}

CPU_INLINE void by_columns(const product_t *p, cpu_range_t part, int type) {
    float copy[PACK * ALIGN];
    const int64_t whole =
        p->rows < COPIED ? part.first : part.last - (part.last - part.first) % ALIGN;
    for (int64_t k = 0; k < p->inner; k += PACK)
        for (int64_t j = part.first; j < whole; j += ALIGN)
            copied_panel(p, type, part_of(p, type, j, k, PACK), copy);
    by_panels(p, whole, part.last, type);
}

/* -- B (N, K) ---------------------------------------------------------------------------------- */

CPU_VECTOR float join(cpu_vec_t lanes) {
    for (int half = CPU_VEC_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
    return lanes[0];
}

/* `rows` of A times `count` rows of B, both constants. */
CPU_VECTOR void dots(const product_t *p, int rows, int count, int type, int64_t i, int64_t j) {
    /* the next rows of B, some with each use of these */
    const int64_t passes = p->rows >= ROWS ? p->rows / ROWS : 1, pass = i / ROWS;
    enum { MOST = 4 };
    cpu_vec_t sum[MOST][MOST];
    const float *a = p->a + i * p->inner;
    int64_t k = 0;
#pragma GCC unroll 4
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int n = 0; n < count; n++) sum[r][n] = cpu_vec_all(0);
    for (; k + CPU_VEC_LANES <= p->inner; k += CPU_VEC_LANES)
#pragma GCC unroll 4
        for (int n = 0; n < count; n++) {
            if (n % passes == pass)
                __builtin_prefetch((const char *)p->b +
                                   ((j + count + n) * p->inner + k) * (type == TR_F32 ? 4 : 2));
            cpu_vec_t right = cpu_vec_get(p->b, (j + n) * p->inner + k, type);
            if (rows > 1) right = cpu_vec_pin(right);
#pragma GCC unroll 4
            for (int r = 0; r < rows; r++)
                sum[r][n] = cpu_vec_fma(cpu_vec_load(a + r * p->inner + k), right, sum[r][n]);
        }
    for (int r = 0; r < rows; r++)
        for (int n = 0; n < count; n++) {
            float total = join(sum[r][n]);
            for (int64_t at = k; at < p->inner; at++)
                total += a[r * p->inner + at] * cpu_get(p->b, (j + n) * p->inner + at, type);
            p->c[(i + r) * p->columns + j + n] = total;
        }
}

CPU_VECTOR void rows_by(const product_t *p, int count, int type, int64_t j) {
    int64_t i = 0;
    for (; i + ROWS <= p->rows; i += ROWS) dots(p, ROWS, count, type, i, j);
    for (; i < p->rows; i++) dots(p, 1, count, type, i, j);
}

CPU_INLINE void by_rows(const product_t *p, cpu_range_t part, int type) {
    int64_t j = part.first;
    for (; p->rows < ROWS && j + 4 <= part.last; j += 4) rows_by(p, 4, type, j);
    for (; j + DOTS <= part.last; j += DOTS) rows_by(p, DOTS, type, j);
    for (; j < part.last; j++) rows_by(p, 1, type, j);
}

/* -- both -------------------------------------------------------------------------------------- */

static void cpu_matmul_rows_add_bias(const product_t *p, cpu_range_t part) {
    for (int64_t i = 0; p->bias && i < p->rows; i++)
        for (int64_t j = part.first; j < part.last; j++) p->c[i * p->columns + j] += p->bias[j];
}

CPU_KERNEL(matmul_rows) {
    const bool trans_b = ((const tr_matmul_attr_t *)call->attr)->trans_b;
    const tr_shape_t *b = &call->in[1].shape;
    const product_t p = {.inner = b->dim[trans_b ? 1 : 0],
                         .columns = b->dim[trans_b ? 0 : 1],
                         .rows = tr_shape_elems(&call->out[0].shape) / b->dim[trans_b ? 0 : 1],
                         .a = call->in[0].data,
                         .b = call->in[1].data,
                         .bias = cpu_present(&call->in[2]) ? call->in[2].data : NULL,
                         .c = call->out[0].data};
    const int parts = cpu_threads(device, p.rows * p.inner * p.columns);
#pragma omp parallel for num_threads(parts) schedule(static)
    for (int i = 0; i < parts; i++) {
        const cpu_range_t part = cpu_range(p.columns, ALIGN, parts, i);
        if (trans_b)
            CPU_BY_TYPE(call->in[1].dtype, t, by_rows(&p, part, t));
        else
            CPU_BY_TYPE(call->in[1].dtype, t, by_columns(&p, part, t));
        cpu_matmul_rows_add_bias(&p, part);
    }
    return TR_OK;
}
