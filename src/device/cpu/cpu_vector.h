/* A vector register of f32, with the width of the target. Private to src/device/cpu. */
#ifndef TR_DEVICE_CPU_CPU_VECTOR_H
#define TR_DEVICE_CPU_CPU_VECTOR_H

#include "base/half.h"
#if defined(__AVX512F__) || defined(__FMA__)
#include <immintrin.h>
#endif

#if defined(__AVX512F__)
#define CPU_VEC_LANES 16
#elif defined(__AVX__)
#define CPU_VEC_LANES 8
#else
#define CPU_VEC_LANES 4
#endif

#define CPU_VECTOR static inline __attribute__((always_inline))

typedef float cpu_vec_t __attribute__((vector_size(CPU_VEC_LANES * 4)));
typedef int32_t cpu_vec_mask_t __attribute__((vector_size(CPU_VEC_LANES * 4)));
typedef float cpu_vec_anywhere_t
    __attribute__((vector_size(CPU_VEC_LANES * 4), aligned(4), may_alias));

CPU_VECTOR cpu_vec_t cpu_vec_load(const float *x) {
    return *(const cpu_vec_anywhere_t *)x;
}
/* Of bf16; intrinsics, because GCC 12 widens the halves one by one. */
CPU_VECTOR cpu_vec_t cpu_vec_load_bf16(const uint16_t *x) {
#if defined(__AVX512F__)
    const __m512i bits = _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i_u *)x));
    return (cpu_vec_t)_mm512_slli_epi32(bits, 16);
#elif defined(__AVX2__) && defined(__FMA__)
    const __m256i bits = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i_u *)x));
    return (cpu_vec_t)_mm256_slli_epi32(bits, 16);
#else
    typedef uint32_t bits_vec_t __attribute__((vector_size(CPU_VEC_LANES * 4)));
    bits_vec_t bits;
    for (int i = 0; i < CPU_VEC_LANES; i++) bits[i] = (uint32_t)x[i] << 16;
    return (cpu_vec_t)bits;
#endif
}
CPU_VECTOR cpu_vec_t cpu_vec_load_f16(const uint16_t *x) {
#if defined(__AVX512F__)
    return (cpu_vec_t)_mm512_cvtph_ps(_mm256_loadu_si256((const __m256i_u *)x));
#elif defined(__F16C__) && defined(__FMA__)
    return (cpu_vec_t)_mm256_cvtph_ps(_mm_loadu_si128((const __m128i_u *)x));
#else
    cpu_vec_t value;
    for (int i = 0; i < CPU_VEC_LANES; i++) value[i] = tr_float_of_f16(x[i]);
    return value;
#endif
}
CPU_VECTOR void cpu_vec_store(float *x, cpu_vec_t value) {
    *(cpu_vec_anywhere_t *)x = value;
}
CPU_VECTOR cpu_vec_t cpu_vec_all(float x) {
    return x - (cpu_vec_t){0}; /* "+" would turn -0 into 0, and so not be free */
}

/* x in a register: compilers otherwise load it again for each use, which takes longer than a
 * multiply-add. */
CPU_VECTOR cpu_vec_t cpu_vec_pin(cpu_vec_t x) {
#if defined(__AVX512F__)
    __asm__("" : "+v"(x));
#elif defined(__x86_64__)
    __asm__("" : "+x"(x));
#endif
    return x;
}

/* max(x, 0); NaN stays. */
CPU_VECTOR cpu_vec_t cpu_vec_relu(cpu_vec_t x) {
    cpu_vec_mask_t negative = x < cpu_vec_all(0);
    return (cpu_vec_t)((cpu_vec_mask_t)x & ~negative);
}

/* a b + c, rounded once if the processor has fma. */
CPU_VECTOR cpu_vec_t cpu_vec_fma(cpu_vec_t a, cpu_vec_t b, cpu_vec_t c) {
#if defined(__AVX512F__)
    return (cpu_vec_t)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (cpu_vec_t)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#elif defined(__FP_FAST_FMAF)
    cpu_vec_t sum;
    for (int i = 0; i < CPU_VEC_LANES; i++) sum[i] = __builtin_fmaf(a[i], b[i], c[i]);
    return sum;
#else
    return a * b + c;
#endif
}

/* The larger of each; x where one of them is NaN. */
CPU_VECTOR cpu_vec_t cpu_vec_max(cpu_vec_t x, cpu_vec_t y) {
    const cpu_vec_mask_t larger = y > x;
    return (cpu_vec_t)(((cpu_vec_mask_t)y & larger) | ((cpu_vec_mask_t)x & ~larger));
}

/* Lane l: that of lane at[l] of a, followed by b. */
CPU_VECTOR cpu_vec_t cpu_vec_pick(cpu_vec_t a, cpu_vec_t b, cpu_vec_mask_t at) {
#ifdef __clang__ /* has no shuffle whose lanes are variables, and sees by itself that they are not */
    cpu_vec_t out;
    for (int l = 0; l < CPU_VEC_LANES; l++)
        out[l] = at[l] < CPU_VEC_LANES ? a[at[l]] : b[at[l] - CPU_VEC_LANES];
    return out;
#else
    return __builtin_shuffle(a, b, at);
#endif
}

/* Of pairs of `half` lanes, a literal: *low has the first ones of x and y, *high the second ones. The
 * lanes are listed: GCC takes a loop over them for variables, and shuffles by many instructions. */
CPU_VECTOR void cpu_vec_zip(cpu_vec_t x, cpu_vec_t y, int half, cpu_vec_t *low, cpu_vec_t *high) {
#define FIRST(l)      (l) & half ? CPU_VEC_LANES + (l)-half : (l)
#define SECOND(l)     (l) & half ? CPU_VEC_LANES + (l) : (l) + half
#define FOUR(lane, l) lane(l), lane(l + 1), lane(l + 2), lane(l + 3)
#if CPU_VEC_LANES == 16
#define LANES(lane) FOUR(lane, 0), FOUR(lane, 4), FOUR(lane, 8), FOUR(lane, 12)
#elif CPU_VEC_LANES == 8
#define LANES(lane) FOUR(lane, 0), FOUR(lane, 4)
#else
#define LANES(lane) FOUR(lane, 0)
#endif
    *low = cpu_vec_pick(x, y, (cpu_vec_mask_t){LANES(FIRST)});
    *high = cpu_vec_pick(x, y, (cpu_vec_mask_t){LANES(SECOND)});
#undef FIRST
#undef SECOND
#undef FOUR
#undef LANES
}

/* Lane j of v[i] <-> lane i of v[j]. */
CPU_VECTOR void cpu_vec_swap(cpu_vec_t v[CPU_VEC_LANES], int half) {
#pragma GCC unroll 16
    for (int i = 0; i < CPU_VEC_LANES; i++)
        if (!(i & half)) cpu_vec_zip(v[i], v[i + half], half, &v[i], &v[i + half]);
}
CPU_VECTOR void cpu_vec_transpose(cpu_vec_t v[CPU_VEC_LANES]) {
    if (CPU_VEC_LANES > 8) cpu_vec_swap(v, 8 % CPU_VEC_LANES);
    if (CPU_VEC_LANES > 4) cpu_vec_swap(v, 4 % CPU_VEC_LANES);
    cpu_vec_swap(v, 2);
    cpu_vec_swap(v, 1);
}

#endif
