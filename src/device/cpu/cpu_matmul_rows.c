/* Products with few rows on the left. The time is that of reading the right side from memory, which
 * is therefore read once and in long runs. Sums are computed in the same order for any number of
 * rows and threads. */
#include "cpu_int.h"
#include "cpu_types.h"
#include "cpu_vector.h"

enum {
    DEPTH = 16, /* rows of B that are read side by side */
    ALIGN = 64, /* columns of a thread's share begin at multiples of this */
    ROWS = 4,
    VECS = CPU_VEC_LANES == 16 ? 4 : 2 /* as many sums as registers hold */
};

typedef uint16_t bf16_vec_t __attribute__((vector_size(CPU_VEC_LANES * 2), aligned(2), may_alias));
typedef uint32_t bits_vec_t __attribute__((vector_size(CPU_VEC_LANES * 4)));

CPU_VECTOR cpu_vec_t load(const void *x, int64_t at, int type) {
    if (type == TR_F32) return cpu_vec_load((const float *)x + at);
    const bf16_vec_t half = *(const bf16_vec_t *)((const uint16_t *)x + at);
    return (cpu_vec_t)(__builtin_convertvector(half, bits_vec_t) << 16);
}

typedef struct {
    int64_t rows, inner, columns;
    const float *a, *bias;
    const void *b;
    float *c;
} product_t;

/* -- B (K, N) ---------------------------------------------------------------------------------- */

/* C += A B for `rows` by `vecs` vectors, both constants, from (i, j) on, of the terms [k, last). */
CPU_VECTOR void block(const product_t *p, int rows, int vecs, int type, int64_t i, int64_t j,
                      int64_t k, int64_t last) {
    cpu_vec_t sum[ROWS][4];
    float *c = p->c + i * p->columns + j;
    const float *a = p->a + i * p->inner;
#pragma GCC unroll 8
    for (int r = 0; r < rows; r++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++)
            sum[r][v] =
                k > 0 ? cpu_vec_load(c + r * p->columns + v * CPU_VEC_LANES) : cpu_vec_all(0);
    for (; k < last; k++)
#pragma GCC unroll 4
        for (int v = 0; v < vecs; v++) {
            const cpu_vec_t right = load(p->b, k * p->columns + j + v * CPU_VEC_LANES, type);
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

CPU_VECTOR void panel(const product_t *p, int vecs, int type, int64_t j, int64_t k, int64_t last) {
    int64_t i = 0;
    for (; i + ROWS <= p->rows; i += ROWS) block(p, ROWS, vecs, type, i, j, k, last);
    for (; i < p->rows; i++) block(p, 1, vecs, type, i, j, k, last);
}

CPU_INLINE void column(const product_t *p, int type, int64_t j, int64_t k, int64_t last) {
    for (int64_t i = 0; i < p->rows; i++) {
        float sum = k > 0 ? p->c[i * p->columns + j] : 0.0f;
        for (int64_t at = k; at < last; at++)
            sum += p->a[i * p->inner + at] * cpu_get(p->b, at * p->columns + j, type);
        p->c[i * p->columns + j] = sum;
    }
}

CPU_INLINE void by_columns(const product_t *p, cpu_range_t part, int type) {
    for (int64_t k = 0; k < p->inner; k += DEPTH) {
        const int64_t last = k + DEPTH < p->inner ? k + DEPTH : p->inner;
        int64_t j = part.first;
        for (; j + VECS * CPU_VEC_LANES <= part.last; j += VECS * CPU_VEC_LANES)
            panel(p, VECS, type, j, k, last);
        for (; j < part.last; j++) column(p, type, j, k, last);
    }
}

/* -- B (N, K) ---------------------------------------------------------------------------------- */

CPU_VECTOR float join(cpu_vec_t lanes) {
    for (int half = CPU_VEC_LANES / 2; half > 0; half /= 2)
        for (int l = 0; l < half; l++) lanes[l] += lanes[l + half];
    return lanes[0];
}

/* `rows` of A times `count` rows of B, both constants. */
CPU_VECTOR void dots(const product_t *p, int rows, int count, int type, int64_t i, int64_t j) {
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
            const cpu_vec_t right = load(p->b, (j + n) * p->inner + k, type);
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
    for (; i + 4 <= p->rows; i += 4) dots(p, 4, count, type, i, j);
    for (; i < p->rows; i++) dots(p, 1, count, type, i, j);
}

CPU_INLINE void by_rows(const product_t *p, cpu_range_t part, int type) {
    int64_t j = part.first;
    for (; j + 4 <= part.last; j += 4) rows_by(p, 4, type, j);
    for (; j < part.last; j++) rows_by(p, 1, type, j);
}

/* -- both -------------------------------------------------------------------------------------- */

static void add_bias(const product_t *p, cpu_range_t part) {
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
        add_bias(&p, part);
    }
    return TR_OK;
}
