/*
 * Products of small f32 matrices that fit in the L1 or L2 cache. Private to src/device/cpu.
 *
 * C (m, n) = A B or C += A B, summed in the order of k. Element (i, k) of A is a[i * a_row + k *
 * a_column], so A may be transposed. The rows of B (k, n) and C are ldb and ldc elements apart; n is
 * a multiple of CPU_VEC_LANES.
 */
#ifndef TR_DEVICE_CPU_CPU_TILE_H
#define TR_DEVICE_CPU_CPU_TILE_H

#include "cpu_vector.h"
#include <stdbool.h>

#define CPU_TILE_ALIGN 16

/* A block of C that is summed in registers: rows, and columns in two vectors. */
enum { CPU_TILE_ROWS = CPU_VEC_LANES == 16 ? 12 : 6, CPU_TILE_PANEL = 2 * CPU_VEC_LANES };

typedef struct {
    const float *at;
    int64_t row, column;
} cpu_tile_a_t;

/* A block of `rows` by `vecs` vectors, both compile-time constants. */
CPU_VECTOR void cpu_tile_block(int rows, int vecs, int64_t inner, cpu_tile_a_t a, const float *b,
                               int64_t ldb, bool add, float *c, int64_t ldc) {
    cpu_vec_t sum[CPU_TILE_ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++)
            sum[i][v] = add ? cpu_vec_load(c + i * ldc + v * CPU_VEC_LANES) : cpu_vec_all(0);
    for (int64_t k = 0; k < inner; k++, b += ldb, a.at += a.column) {
        cpu_vec_t right[2];
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) right[v] = cpu_vec_pin(cpu_vec_load(b + v * CPU_VEC_LANES));
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            const cpu_vec_t left = cpu_vec_all(a.at[i * a.row]);
#pragma GCC unroll 2
            for (int v = 0; v < vecs; v++) sum[i][v] = cpu_vec_fma(left, right[v], sum[i][v]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < vecs; v++) cpu_vec_store(c + i * ldc + v * CPU_VEC_LANES, sum[i][v]);
}

#define CPU_TILE_CASE(rows)                                                                        \
    case rows: cpu_tile_block(rows, vecs, inner, a, b, ldb, add, c, ldc); break
CPU_VECTOR void cpu_tile_rows(int64_t rows, int vecs, int64_t inner, cpu_tile_a_t a, const float *b,
                              int64_t ldb, bool add, float *c, int64_t ldc) {
    switch (rows) {
        CPU_TILE_CASE(1);
        CPU_TILE_CASE(2);
        CPU_TILE_CASE(3);
        CPU_TILE_CASE(4);
        CPU_TILE_CASE(5);
#if CPU_VEC_LANES == 16
        CPU_TILE_CASE(6);
        CPU_TILE_CASE(7);
        CPU_TILE_CASE(8);
        CPU_TILE_CASE(9);
        CPU_TILE_CASE(10);
        CPU_TILE_CASE(11);
#endif
    default: cpu_tile_block(CPU_TILE_ROWS, vecs, inner, a, b, ldb, add, c, ldc);
    }
}
#undef CPU_TILE_CASE

/* All rows of a column of blocks. The last two have about the same number of rows, because small
 * blocks are slow. */
CPU_VECTOR void cpu_tile_column(int vecs, int64_t m, int64_t inner, cpu_tile_a_t a, const float *b,
                                int64_t ldb, bool add, float *c, int64_t ldc) {
    while (m > 0) {
        const int64_t most = m < CPU_TILE_ROWS ? m : CPU_TILE_ROWS,
                      rows = m > most && m < 2 * CPU_TILE_ROWS ? (m + 1) / 2 : most;
        cpu_tile_rows(rows, vecs, inner, a, b, ldb, add, c, ldc);
        m -= rows, a.at += rows * a.row, c += rows * ldc;
    }
}

static inline void cpu_tile_product(int64_t m, int64_t n, int64_t inner, cpu_tile_a_t a,
                                    const float *b, int64_t ldb, bool add, float *c, int64_t ldc) {
    int64_t j = 0;
    for (; j + CPU_TILE_PANEL <= n; j += CPU_TILE_PANEL)
        cpu_tile_column(2, m, inner, a, b + j, ldb, add, c + j, ldc);
    for (; j < n; j += CPU_VEC_LANES) cpu_tile_column(1, m, inner, a, b + j, ldb, add, c + j, ldc);
}

/* y (columns, rows) = the transpose of x (rows, columns), both multiples of CPU_VEC_LANES; x_row and
 * y_row: from row to row. */
static inline void cpu_tile_transpose(const float *x, int64_t rows, int64_t columns, int64_t x_row,
                                      float *y, int64_t y_row) {
    for (int64_t i = 0; i < rows; i += CPU_VEC_LANES)
        for (int64_t j = 0; j < columns; j += CPU_VEC_LANES) {
            cpu_vec_t v[CPU_VEC_LANES];
#pragma GCC unroll 16
            for (int l = 0; l < CPU_VEC_LANES; l++) v[l] = cpu_vec_load(x + (i + l) * x_row + j);
            cpu_vec_transpose(v);
#pragma GCC unroll 16
            for (int l = 0; l < CPU_VEC_LANES; l++) cpu_vec_store(y + (j + l) * y_row + i, v[l]);
        }
}

#endif
