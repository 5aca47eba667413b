/*
 * Loops over f32, bf16 or f16 elements that compute in f32. Private to src/device/cpu.
 *
 * cpu_get and cpu_put take the type as an int, because the constants come from different
 * enumerations. CPU_BY_TYPE runs a statement with the type as a constant, so that the functions
 * inlined into it are compiled separately for each type. The other types do not slow down the f32
 * code.
 */
#ifndef TR_DEVICE_CPU_CPU_TYPES_H
#define TR_DEVICE_CPU_CPU_TYPES_H

#include "cpu_math.h"
#include "trainer/tensor_types.h"

CPU_INLINE float cpu_from_bf16(uint16_t bits) {
    return cpu_from_bits((uint32_t)bits << 16);
}

/* Rounds to nearest, ties to even. NaN stays NaN. */
CPU_INLINE uint16_t cpu_to_bf16(float x) {
    uint32_t bits = cpu_bits(x), rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return (uint16_t)((x == x ? rounded : bits | 0x400000u) >> 16);
}

/* Branch-free: denormals, infinity and NaN, and all others differ only in the exponent adjustment.
 * */
CPU_INLINE float cpu_from_f16(uint16_t bits) {
    uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13, sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t scaled = cpu_bits((float)(bits & 0x3ff) * 0x1p-24f); /* a denormal's value */
    uint32_t value = magnitude >= 0x0f800000u  ? magnitude + 0x70000000u
                     : magnitude < 0x00800000u ? scaled
                                               : magnitude + 0x38000000u;
    return cpu_from_bits(value | sign);
}

/* Rounds to nearest, ties to even; values from 65520 become infinity; NaN stays NaN. Denormals are
 * multiples of 2^-24, the spacing of floats at 0.5: adding 0.5 rounds them. */
CPU_INLINE uint16_t cpu_to_f16(float x) {
    const uint32_t bits = cpu_bits(x), magnitude = bits & 0x7fffffffu, sign = bits >> 16 & 0x8000u;
    const uint32_t denormal = cpu_bits(cpu_from_bits(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t rounded = ((magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13) - (112u << 10);
    const uint32_t value = magnitude > 0x7f800000u    ? 0x7e00u
                           : magnitude >= 0x47800000u ? 0x7c00u
                           : magnitude < 0x38800000u  ? denormal
                                                      : rounded;
    return (uint16_t)(value | sign);
}

/* A 16-bit element of type `type`, TR_BF16 or TR_F16. */
CPU_INLINE float cpu_widen(uint16_t bits, int type) {
    return type == TR_F16 ? cpu_from_f16(bits) : cpu_from_bf16(bits);
}
CPU_INLINE uint16_t cpu_narrow(float value, int type) {
    return type == TR_F16 ? cpu_to_f16(value) : cpu_to_bf16(value);
}

CPU_INLINE float cpu_get(const void *x, int64_t i, int type) {
    return type == TR_F32 ? ((const float *)x)[i] : cpu_widen(((const uint16_t *)x)[i], type);
}

CPU_INLINE void cpu_put(void *y, int64_t i, float value, int type) {
    if (type != TR_F32)
        ((uint16_t *)y)[i] = cpu_narrow(value, type);
    else
        ((float *)y)[i] = value;
}

/* What cpu_get gives of what cpu_put wrote. */
CPU_INLINE float cpu_round(float value, int type) {
    return type == TR_F32 ? value : cpu_widen(cpu_narrow(value, type), type);
}

/* The address of element i. */
CPU_INLINE const void *cpu_at(const void *x, int64_t i, int type) {
    return (const char *)x + i * (type == TR_F32 ? 4 : 2);
}
CPU_INLINE void *cpu_at_out(void *y, int64_t i, int type) {
    return (char *)y + i * (type == TR_F32 ? 4 : 2);
}

/* Runs the statement with the constant `type` = `dtype`, TR_BF16, TR_F16 or TR_F32. */
#define CPU_BY_TYPE(dtype, type, ...)                                                              \
    do {                                                                                           \
        if ((dtype) == TR_BF16) {                                                                  \
            enum { type = TR_BF16 };                                                               \
            __VA_ARGS__;                                                                           \
        } else if ((dtype) == TR_F16) {                                                            \
            enum { type = TR_F16 };                                                                \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            enum { type = TR_F32 };                                                                \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

#endif
