#include "numeric.h"
#include <math.h>

static float bf16_to_float(uint16_t h) {
    const uint32_t bits = (uint32_t)h << 16;
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}
static uint16_t float_to_bf16(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    if (isnan(x)) return 0x7fff;
    return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
static float f16_to_float(uint16_t h) {
    _Float16 x;
    memcpy(&x, &h, sizeof x);
    return (float)x;
}
static uint16_t float_to_f16(float value) {
    const _Float16 x = (_Float16)value;
    uint16_t h;
    memcpy(&h, &x, sizeof h);
    return h;
}

float num_tf32(float x) {
    uint32_t bits;
    if (!isfinite(x)) return x;
    memcpy(&bits, &x, sizeof bits);
    bits = (bits + 0xfff + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(&x, &bits, sizeof x);
    return x;
}

size_t num_size(num_type_t type) {
    static const size_t sizes[NUM_COUNT] = {4, 2, 2, 8, 4, 8, 1, 1};
    return sizes[type];
}

double num_load(num_type_t type, const void *array, int64_t i) {
    switch (type) {
    case NUM_F32: return ((const float *)array)[i];
    case NUM_BF16: return bf16_to_float(((const uint16_t *)array)[i]);
    case NUM_F16: return f16_to_float(((const uint16_t *)array)[i]);
    case NUM_F64: return ((const double *)array)[i];
    case NUM_I32: return ((const int32_t *)array)[i];
    case NUM_I64: return (double)((const int64_t *)array)[i];
    case NUM_I8: return ((const int8_t *)array)[i];
    case NUM_U8: return ((const uint8_t *)array)[i];
    case NUM_COUNT: break;
    }
    return NAN;
}

void num_store(num_type_t type, void *array, int64_t i, double value) {
    switch (type) {
    case NUM_F32: ((float *)array)[i] = (float)value; break;
    case NUM_BF16: ((uint16_t *)array)[i] = float_to_bf16((float)value); break;
    case NUM_F16: ((uint16_t *)array)[i] = float_to_f16((float)value); break;
    case NUM_F64: ((double *)array)[i] = value; break;
    case NUM_I32: ((int32_t *)array)[i] = (int32_t)value; break;
    case NUM_I64: ((int64_t *)array)[i] = (int64_t)value; break;
    case NUM_I8: ((int8_t *)array)[i] = (int8_t)value; break;
    case NUM_U8: ((uint8_t *)array)[i] = (uint8_t)value; break;
    case NUM_COUNT: break;
    }
}

void num_read(num_type_t type, const void *from, int64_t at, int64_t step, int64_t n, float *to) {
    if (type == NUM_F32 && step == 1) memcpy(to, (const float *)from + at, (size_t)n * sizeof *to);
    else if (type == NUM_BF16)
        for (int64_t i = 0; i < n; i++) to[i] = bf16_to_float(((const uint16_t *)from)[at + i * step]);
    else
        for (int64_t i = 0; i < n; i++) to[i] = (float)num_load(type, from, at + i * step);
}
void num_write(num_type_t type, void *to, int64_t at, int64_t step, int64_t n, const float *from) {
    if (type == NUM_F32 && step == 1) memcpy((float *)to + at, from, (size_t)n * sizeof *from);
    else
        for (int64_t i = 0; i < n; i++) num_store(type, to, at + i * step, from[i]);
}

/* Four rows of c at a time, so that each row of b is read once for four; sums in blocks of 256 of k. */
#define ROWS  4
#define BLOCK 256
#define WIDTH 64
static void panel(int64_t rows, int64_t width, int64_t n, int64_t k, const float *a, int64_t lda, const float *b, float *c) {
    float sum[ROWS][WIDTH];
    memset(sum, 0, sizeof sum);
    for (int64_t p = 0; p < k; p++)
        for (int64_t r = 0; r < rows; r++) {
            const float x = a[r * lda + p];
            for (int64_t j = 0; j < width; j++) sum[r][j] += x * b[p * n + j];
        }
    for (int64_t r = 0; r < rows; r++)
        for (int64_t j = 0; j < width; j++) c[r * n + j] += sum[r][j];
}
/* The same with constant bounds, for the compiler. */
static void full_panel(int64_t n, int64_t k, const float *restrict a, int64_t lda, const float *restrict b, float *restrict c) {
    float sum[ROWS][WIDTH];
    memset(sum, 0, sizeof sum);
    for (int64_t p = 0; p < k; p++)
        for (int r = 0; r < ROWS; r++) {
            const float x = a[r * lda + p];
            for (int j = 0; j < WIDTH; j++) sum[r][j] += x * b[p * n + j];
        }
    for (int r = 0; r < ROWS; r++)
        for (int j = 0; j < WIDTH; j++) c[r * n + j] += sum[r][j];
}
void num_gemm(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c) {
    for (int64_t p = 0; p < k; p += BLOCK) {
        const int64_t depth = k - p < BLOCK ? k - p : BLOCK;
        for (int64_t j = 0; j < n; j += WIDTH) {
            const int64_t width = n - j < WIDTH ? n - j : WIDTH;
            for (int64_t i = 0; i < m; i += ROWS) {
                const int64_t rows = m - i < ROWS ? m - i : ROWS;
                const float *x = a + i * k + p, *y = b + p * n + j;
                if (rows == ROWS && width == WIDTH) full_panel(n, depth, x, k, y, c + i * n + j);
                else panel(rows, width, n, depth, x, k, y, c + i * n + j);
            }
        }
    }
}
