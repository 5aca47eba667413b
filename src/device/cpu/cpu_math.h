/*
 * Elementary functions and reductions that vectorise. Private to src/device/cpu.
 *
 * The functions have no branches or calls, so loops over them are vectorised. They use only IEEE
 * operations and explicit fma, so the result does not depend on the position of an element in a
 * vector. NaN gives NaN.
 */
#ifndef TR_DEVICE_CPU_CPU_MATH_H
#define TR_DEVICE_CPU_CPU_MATH_H

#include "trainer/attributes.h"
#include <math.h>
#include <stdbool.h>
#include <stdint.h>

#define CPU_INLINE static inline __attribute__((always_inline))

/* One instruction if the processor has fma. Otherwise fmaf would be a function call, and rounding
 * twice is accurate enough. */
CPU_INLINE float cpu_fma(float a, float b, float c) {
#ifdef __FP_FAST_FMAF
    return __builtin_fmaf(a, b, c);
#else
    return a * b + c;
#endif
}

CPU_INLINE uint32_t cpu_bits(float x) {
    union {
        float f;
        uint32_t u;
    } value = {.f = x};
    return value.u;
}

CPU_INLINE float cpu_from_bits(uint32_t bits) {
    union {
        uint32_t u;
        float f;
    } value = {.u = bits};
    return value.f;
}

/* x^2 - square, where `square` is x * x as rounded. */
CPU_INLINE float cpu_square_rest(float x, float square) {
#ifdef __FP_FAST_FMAF
    return __builtin_fmaf(x, x, -square);
#else
    float head = cpu_from_bits(cpu_bits(x) & 0xfffff000u); /* 12 bits: its square is exact */
    return (head * head - square) + (x - head) * (x + head);
#endif
}

/* exp(x) for x <= ln 2 / 2; 0 if the result would be denormal. 1 ulp. */
CPU_INLINE float cpu_exp_nonpositive(float x) {
    const float lowest = -87.33654f, round = 0x1.8p23f;
    float clamped = x < lowest ? lowest : x;
    /* the integer n = x / ln 2 in the low bits */
    float shifted = cpu_fma(clamped, 0x1.715476p0f, round);
    float n = shifted - round;
    float r = cpu_fma(n, 0x1.bd0106p-13f, cpu_fma(n, -0x1.63p-1f, clamped));
    float p = cpu_fma(0x1.6a235cp-10f, r, 0x1.123a62p-7f);
    p = cpu_fma(p, r, 0x1.5558f4p-5f);
    p = cpu_fma(p, r, 0x1.555490p-3f);
    p = cpu_fma(p, r, 0x1.fffffcp-2f);
    p = cpu_fma(p * r, r, r) + 1.0f;
    float scale = cpu_from_bits((cpu_bits(shifted) << 23) + 0x3f800000u);
    return x < lowest ? 0.0f : p * scale;
}

/* Activations, as activations.def names them. cpu_NAME_grad(dy, v): the gradient, v is x where the
 * activation keeps its input, else y. */
/* NaN stays NaN. */
CPU_INLINE float cpu_relu(float x) {
    return x < 0.0f ? 0.0f : x;
}
CPU_INLINE float cpu_relu_grad(float dy, float y) {
    return y > 0.0f ? dy : 0.0f;
}

CPU_INLINE float cpu_sigmoid(float x) {
    float e = cpu_exp_nonpositive(-fabsf(x)), r = 1.0f / (1.0f + e);
    return x < 0.0f ? e * r : r;
}
CPU_INLINE float cpu_sigmoid_grad(float dy, float y) {
    return dy * y * (1.0f - y);
}

CPU_INLINE float cpu_silu(float x) {
    return x * cpu_sigmoid(x);
}
CPU_INLINE float cpu_silu_grad(float dy, float x) {
    float s = cpu_sigmoid(x);
    return dy * cpu_fma(x * s, 1.0f - s, s);
}

/* An odd polynomial near 0, otherwise by exp. 2 ulp. */
CPU_INLINE float cpu_tanh(float x) {
    float a = fabsf(x), s = x * x;
    float p = cpu_fma(-0x1.75e1a8p-8f, s, 0x1.522692p-6f);
    p = cpu_fma(p, s, -0x1.b83c58p-5f);
    p = cpu_fma(p, s, 0x1.110726p-3f);
    p = cpu_fma(p, s, -0x1.555532p-2f);
    float small = cpu_fma(p * s, x, x);
    float e = cpu_exp_nonpositive(-2.0f * a);
    float large = copysignf((1.0f - e) / (1.0f + e), x);
    return a < 0.625f ? small : large;
}
CPU_INLINE float cpu_tanh_grad(float dy, float y) {
    return dy * ((1.0f - y) * (1.0f + y));
}

/*
 * The cumulative distribution function of the normal distribution, relatively accurate in the left
 * tail, and its density. exp(x^2 / 2) Phi(-|x|) (|x| + 3) is smooth in u = (|x| - 3) / (|x| + 3);
 * the polynomial is its minimax fit.
 */
CPU_INLINE float cpu_normal_cdf(float x, float *out_density) {
    float a = fabsf(x);
    a = a > 15.0f ? 15.0f : a;
    float q = 1.0f / (a + 3.0f), u = cpu_fma(-6.0f, q, 1.0f);
    float p = cpu_fma(0x1.9b38dap-15f, u, -0x1.b5f2dap-13f);
    p = cpu_fma(p, u, -0x1.f03a30p-11f);
    p = cpu_fma(p, u, 0x1.0ba22ap-10f);
    p = cpu_fma(p, u, 0x1.c6b43cp-8f);
    p = cpu_fma(p, u, -0x1.56dd3cp-7f);
    p = cpu_fma(p, u, -0x1.832408p-5f);
    p = cpu_fma(p, u, 0x1.d71390p-3f);
    p = cpu_fma(p, u, -0x1.04c730p-1f);
    p = cpu_fma(p, u, 0x1.754a76p-1f);
    /* exp would magnify the rounding of a * a */
    float square = a * a, rest = cpu_square_rest(a, square);
    float e = cpu_exp_nonpositive(-0.5f * square);
    e *= cpu_fma(-0.5f, rest, 1.0f);
    float tail = e * p * q;
    *out_density = 0.39894228f * e;
    return x < 0.0f ? tail : 1.0f - tail;
}

CPU_INLINE float cpu_gelu(float x) {
    float density;
    return x * cpu_normal_cdf(x, &density);
}

CPU_INLINE float cpu_gelu_grad(float dy, float x) {
    float density, cdf = cpu_normal_cdf(x, &density);
    return dy * cpu_fma(x, density, cdf);
}

/* 1/2 (1 + tanh u) = sigmoid(2 u), which has no cancellation for large negative u. */
#define CPU_SQRT_2_PI 0.79788456f
CPU_INLINE float cpu_gelu_tanh(float x) {
    return x * cpu_sigmoid(2 * CPU_SQRT_2_PI * x * cpu_fma(0.044715f * x, x, 1.0f));
}

CPU_INLINE float cpu_gelu_tanh_grad(float dy, float x) {
    float s = cpu_sigmoid(2 * CPU_SQRT_2_PI * x * cpu_fma(0.044715f * x, x, 1.0f));
    float rise = 2 * CPU_SQRT_2_PI * x * cpu_fma(3 * 0.044715f * x, x, 1.0f), rest = s * (1.0f - s);
    return dy * (rest == 0.0f ? s : cpu_fma(rise, rest, s)); /* rise may be infinite */
}

CPU_INLINE float cpu_act(tr_act_t act, float x) {
    switch (act) {
#define ACTIVATION(NAME, name, ...)                                                                \
    case TR_ACT_##NAME:                                                                            \
        return cpu_##name(x);
#include "trainer/activations.def"
#undef ACTIVATION
    default: return x;
    }
}

/*
 * Reductions. Their order depends only on the count: CPU_LANES partial sums, joined pairwise. The
 * result depends neither on the vector width that the compiler chooses nor on alignment.
 */
#define CPU_LANES 32

CPU_INLINE double cpu_join_lanes(double *lane) {
    for (int half = CPU_LANES / 2; half >= 1; half /= 2)
        for (int l = 0; l < half; l++) lane[l] += lane[l + half];
    return lane[0];
}

CPU_INLINE double cpu_join_float_lanes(const float *lane) {
    double wide[CPU_LANES];
    for (int l = 0; l < CPU_LANES; l++) wide[l] = lane[l];
    return cpu_join_lanes(wide);
}

/* Adds the sum over i in [begin, end) of `expr` to `total`, in lanes of `type`; the last, fewer
 * than CPU_LANES elements are added directly. */
#define CPU_LANE_SUM_(type, join, total, begin, end, i, expr)                                      \
    do {                                                                                           \
        type lane_[CPU_LANES] = {0};                                                               \
        int64_t begin_ = (begin), at_ = begin_, end_ = (end);                                      \
        for (; at_ + CPU_LANES <= end_; at_ += CPU_LANES) {                                        \
            _Pragma("omp simd") for (int l_ = 0; l_ < CPU_LANES; l_++) {                           \
                int64_t i = at_ + l_;                                                              \
                lane_[l_] += (expr);                                                               \
            }                                                                                      \
        }                                                                                          \
        if (at_ > begin_) (total) += join(lane_);                                                  \
        for (int64_t i = at_; i < end_; i++) (total) += (expr);                                    \
    } while (0)

/* double total += the sum over i in [0, n) of `expr` for any n: parts of CPU_LANE_PART elements are
 * summed in lanes of floats, the parts in double. */
#define CPU_LANE_PART 4096
#define CPU_LANE_SUM(total, n, i, expr)                                                            \
    do {                                                                                           \
        int64_t n_ = (n);                                                                          \
        for (int64_t part_ = 0; part_ < n_; part_ += CPU_LANE_PART)                                \
            CPU_LANE_SUM_(float, cpu_join_float_lanes, total, part_,                               \
                          n_ - part_ < CPU_LANE_PART ? n_ : part_ + CPU_LANE_PART, i, expr);       \
    } while (0)
/* The same with elements and lanes in double. */
#define CPU_LANE_SUM_DOUBLE(total, n, i, expr)                                                     \
    CPU_LANE_SUM_(double, cpu_join_lanes, total, 0, n, i, expr)

/*
 * The number of chunks for a sum over `count` elements, with at least `grain` elements each: from 1
 * to CPU_CHUNKS, and 2, 4 or a multiple of 8, so that teams of these sizes get equal shares. Chunk
 * i is cpu_range(count, 1, chunks, i) for any number of threads.
 */
#define CPU_CHUNKS 64
CPU_INLINE int cpu_chunks(int64_t count, int64_t grain) {
    int64_t chunks = count / grain;
    if (chunks >= CPU_CHUNKS) return CPU_CHUNKS;
    if (chunks >= 8) return (int)(chunks - chunks % 8);
    return chunks >= 4 ? 4 : chunks >= 2 ? 2 : 1;
}

#endif
