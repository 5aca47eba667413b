/*
 * Loops over f32 or bf16 elements that compute in f32. Private to src/device/cpu.
 *
 * cpu_get and cpu_put take the type as an int, because the constants come from different
 * enumerations. CPU_BY_TYPE runs a statement with the type as a constant, so that the functions
 * inlined into it are compiled separately for each type. bf16 does not slow down the f32 code.
 */
#ifndef TRAINER_CPU_TYPES_H
#define TRAINER_CPU_TYPES_H

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

CPU_INLINE float cpu_get(const void *x, int64_t i, int type) {
    return type == TR_BF16 ? cpu_from_bf16(((const uint16_t *)x)[i]) : ((const float *)x)[i];
}

CPU_INLINE void cpu_put(void *y, int64_t i, float value, int type) {
    if (type == TR_BF16)
        ((uint16_t *)y)[i] = cpu_to_bf16(value);
    else
        ((float *)y)[i] = value;
}

/* What cpu_get gives of what cpu_put wrote. */
CPU_INLINE float cpu_round(float value, int type) {
    return type == TR_BF16 ? cpu_from_bf16(cpu_to_bf16(value)) : value;
}

/* The address of element i. */
CPU_INLINE const void *cpu_at(const void *x, int64_t i, int type) {
    return (const char *)x + i * (type == TR_BF16 ? 2 : 4);
}
CPU_INLINE void *cpu_at_out(void *y, int64_t i, int type) {
    return (char *)y + i * (type == TR_BF16 ? 2 : 4);
}

/* Runs the statement with the constant `type` = `dtype`, TR_BF16 or TR_F32. */
#define CPU_BY_TYPE(dtype, type, ...)                                                              \
    do {                                                                                           \
        if ((dtype) == TR_BF16) {                                                                  \
            enum { type = TR_BF16 };                                                               \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            enum { type = TR_F32 };                                                                \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

#endif
