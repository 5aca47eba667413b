/*
 * Products of small f32 matrices that fit in the L1 or L2 cache. Private to src/device/cpu.
 *
 * C (m, n) = A B or C += A B. Element (i, k) of A is a[i * a_row + k * a_column], so A may be
 * transposed. The rows of B (k, n) and C are ldb and ldc elements apart; n, ldb and ldc are
 * multiples of CPU_TILE_ALIGN.
 */
#ifndef TR_DEVICE_CPU_CPU_TILE_H
#define TR_DEVICE_CPU_CPU_TILE_H

#include "cpu_vector.h"
#include <stdbool.h>

#define CPU_TILE_ALIGN 16

typedef struct {
    const float *at;
    int64_t row, column;
} cpu_tile_a_t;

/* A block of `rows` by `vecs` vectors, both compile-time constants: sums stay in registers. */
CPU_VECTOR void cpu_tile_block(int rows, int vecs, int64_t inner, cpu_tile_a_t a, const float *b,
                               int64_t ldb, bool add, float *c, int64_t ldc) {
    cpu_vec_t sum[8][4];
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int v = 0; v < vecs; v++)
            sum[i][v] = add ? cpu_vec_load(c + i * ldc + v * CPU_VEC_LANES) : cpu_vec_all(0);
    for (int64_t k = 0; k < inner; k++)
#pragma GCC unroll 8
        for (int v = 0; v < vecs; v++) {
            const cpu_vec_t right = cpu_vec_pin(cpu_vec_load(b + k * ldb + v * CPU_VEC_LANES));
#pragma GCC unroll 8
            for (int i = 0; i < rows; i++)
                sum[i][v] =
                    cpu_vec_fma(cpu_vec_all(a.at[i * a.row + k * a.column]), right, sum[i][v]);
        }
#pragma GCC unroll 8
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 8
        for (int v = 0; v < vecs; v++) cpu_vec_store(c + i * ldc + v * CPU_VEC_LANES, sum[i][v]);
}

/* All rows of a column of blocks. */
CPU_VECTOR void cpu_tile_column(int vecs, int64_t m, int64_t inner, cpu_tile_a_t a, const float *b,
                                int64_t ldb, bool add, float *c, int64_t ldc) {
    enum { ROWS = CPU_VEC_LANES == 16 ? 8 : 4 };
    int64_t i = 0;
    for (; i + ROWS <= m; i += ROWS, a.at += ROWS * a.row, c += ROWS * ldc)
        cpu_tile_block(ROWS, vecs, inner, a, b, ldb, add, c, ldc);
    for (; i < m; i++, a.at += a.row, c += ldc)
        cpu_tile_block(1, vecs, inner, a, b, ldb, add, c, ldc);
}

static inline void cpu_tile_product(int64_t m, int64_t n, int64_t inner, cpu_tile_a_t a,
                                    const float *b, int64_t ldb, bool add, float *c, int64_t ldc) {
    enum { WIDE = 2 * CPU_VEC_LANES };
    int64_t j = 0;
    for (; j + WIDE <= n; j += WIDE) cpu_tile_column(2, m, inner, a, b + j, ldb, add, c + j, ldc);
    for (; j < n; j += CPU_VEC_LANES) cpu_tile_column(1, m, inner, a, b + j, ldb, add, c + j, ldc);
}

#endif
