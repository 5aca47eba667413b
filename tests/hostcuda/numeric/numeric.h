/* Numbers of the GPU's types on the host; linked into each fake that computes. */
#ifndef HOSTCUDA_NUMERIC_H
#define HOSTCUDA_NUMERIC_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef enum { NUM_F32, NUM_BF16, NUM_F16, NUM_F64, NUM_I32, NUM_I64, NUM_I8, NUM_U8, NUM_COUNT } num_type_t;

size_t num_size(num_type_t type);
/* Element `i` of an array. Stores round to nearest even; bf16 and fp16 overflow to infinity. */
double num_load(num_type_t type, const void *array, int64_t i);
void num_store(num_type_t type, void *array, int64_t i, double value);
/* to[k] = from[at + k * step], k < n, and back. */
void num_read(num_type_t type, const void *from, int64_t at, int64_t step, int64_t n, float *to);
void num_write(num_type_t type, void *to, int64_t at, int64_t step, int64_t n, const float *from);
/* c += a b; row-major, a (m, k), b (k, n), c (m, n), without gaps. */
void num_gemm(int64_t m, int64_t n, int64_t k, const float *a, const float *b, float *c);
/* x with the 10 bits of mantissa that TF32 has. */
float num_tf32(float x);

#endif
