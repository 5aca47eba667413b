/* Conversion of bf16 and f16, as bits, from and to float. Loops over them are vectorised. */
#ifndef TR_BASE_HALF_H
#define TR_BASE_HALF_H

#include <stdint.h>
#include <string.h>

#define TR_HALF static inline __attribute__((always_inline))

TR_HALF uint32_t tr_bits_of_float(float x) {
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

TR_HALF float tr_float_of_bits(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

TR_HALF float tr_float_of_bf16(uint16_t bits) {
    return tr_float_of_bits((uint32_t)bits << 16);
}

/* Rounds to nearest, ties to even. NaN stays NaN. */
TR_HALF uint16_t tr_bf16_of_float(float x) {
    uint32_t bits = tr_bits_of_float(x), rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    return (uint16_t)((x == x ? rounded : bits | 0x400000u) >> 16);
}

/* Branch-free: denormals, infinity and NaN, and all others differ only in the exponent adjustment.
 * */
TR_HALF float tr_float_of_f16(uint16_t bits) {
    uint32_t magnitude = (uint32_t)(bits & 0x7fff) << 13, sign = (uint32_t)(bits & 0x8000) << 16;
    uint32_t scaled = tr_bits_of_float((float)(bits & 0x3ff) * 0x1p-24f); /* a denormal's value */
    uint32_t value = magnitude >= 0x0f800000u  ? magnitude + 0x70000000u
                     : magnitude < 0x00800000u ? scaled
                                               : magnitude + 0x38000000u;
    return tr_float_of_bits(value | sign);
}

/* Rounds to nearest, ties to even; values from 65520 become infinity; NaN stays NaN. Denormals are
 * multiples of 2^-24, the spacing of floats at 0.5: adding 0.5 rounds them. */
TR_HALF uint16_t tr_f16_of_float(float x) {
    const uint32_t bits = tr_bits_of_float(x), magnitude = bits & 0x7fffffffu,
                   sign = bits >> 16 & 0x8000u;
    const uint32_t denormal = tr_bits_of_float(tr_float_of_bits(magnitude) + 0.5f) - 0x3f000000u;
    const uint32_t rounded = ((magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13) - (112u << 10);
    const uint32_t value = magnitude > 0x7f800000u    ? 0x7e00u
                           : magnitude >= 0x47800000u ? 0x7c00u
                           : magnitude < 0x38800000u  ? denormal
                                                      : rounded;
    return (uint16_t)(value | sign);
}

#endif
