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

#include "base/half.h"
#include "cpu_math.h"
#include "cpu_vector.h"
#include "trainer/tensor_types.h"

/* A 16-bit element of type `type`, TR_BF16 or TR_F16. */
CPU_INLINE float cpu_widen(uint16_t bits, int type) {
    return type == TR_F16 ? tr_float_of_f16(bits) : tr_float_of_bf16(bits);
}
CPU_INLINE uint16_t cpu_narrow(float value, int type) {
    return type == TR_F16 ? tr_f16_of_float(value) : tr_bf16_of_float(value);
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

/* The elements from i on that fill a vector. */
CPU_INLINE cpu_vec_t cpu_vec_get(const void *x, int64_t i, int type) {
    return type == TR_F32    ? cpu_vec_load((const float *)x + i)
           : type == TR_BF16 ? cpu_vec_load_bf16((const uint16_t *)x + i)
                             : cpu_vec_load_f16((const uint16_t *)x + i);
}

/* Rounds a vector to the elements from i on. */
CPU_INLINE void cpu_vec_put(void *y, int64_t i, cpu_vec_t value, int type) {
    float lane[CPU_VEC_LANES];
    if (type == TR_F32) {
        cpu_vec_store((float *)y + i, value);
        return;
    }
    cpu_vec_store(lane, value);
#pragma omp simd
    for (int l = 0; l < CPU_VEC_LANES; l++) cpu_put(y, i + l, lane[l], type);
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
