/*
 * The fingerprint of a block of 4-byte values: the sum, modulo 2^64, of one mixed number per value.
 * A sum has no order, so threads add in any. A number depends on the bits of its value and on its
 * place, and different bits at one place give different numbers: a change of one value is always
 * seen, one of several values unless by a chance of 2^-64.
 *
 * C and CUDA C include this file.
 */
#ifndef TR_DEVICE_FINGERPRINT_H
#define TR_DEVICE_FINGERPRINT_H

#include <stdint.h>

#ifdef __CUDACC__
#define TR_FINGERPRINT_INLINE static __host__ __device__ __forceinline__
#else
#define TR_FINGERPRINT_INLINE static inline
#endif

/* The finaliser of SplitMix64 (Steele, Lea, Flood 2014), which is a permutation, of a Weyl sequence
 * plus the bits. */
TR_FINGERPRINT_INLINE uint64_t tr_fingerprint_of(uint32_t bits, int64_t place) {
    uint64_t z = bits + (uint64_t)(place + 1) * 0x9e3779b97f4a7c15u;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
    z = (z ^ z >> 27) * 0x94d049bb133111ebu;
    return z ^ z >> 31;
}

#endif
