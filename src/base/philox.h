/*
 * Philox4x32-10 (Salmon, Moraes, Dror, Shaw, "Parallel random numbers: as easy as 1, 2, 3", SC'11)
 * for kernels, identical on the host and in CUDA. rng.h has sequences for host code.
 */
#ifndef TR_BASE_PHILOX_H
#define TR_BASE_PHILOX_H

#include <stdint.h>

#ifdef __CUDACC__
#define TR_PHILOX_INLINE static __host__ __device__ __forceinline__
#else
#define TR_PHILOX_INLINE static inline __attribute__((always_inline))
#endif

typedef struct {
    uint32_t v[4];
} tr_rng_block_t;

typedef struct {
    uint32_t v[2];
} tr_philox_key_t;

TR_PHILOX_INLINE void tr_philox_round_(uint32_t c[4], uint32_t k0, uint32_t k1) {
    uint64_t p0 = (uint64_t)0xD2511F53u * c[0];
    uint64_t p1 = (uint64_t)0xCD9E8D57u * c[2];
    uint32_t c1 = c[1], c3 = c[3];
    c[0] = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
    c[1] = (uint32_t)p1;
    c[2] = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
    c[3] = (uint32_t)p0;
}

/* The block at counter (a, b): counter words 0 and 1 are b (low, high), words 2 and 3 are a. */
TR_PHILOX_INLINE tr_rng_block_t tr_philox(tr_philox_key_t key, uint64_t a, uint64_t b) {
    tr_rng_block_t x;
    uint32_t k0 = key.v[0], k1 = key.v[1];
    x.v[0] = (uint32_t)b;
    x.v[1] = (uint32_t)(b >> 32);
    x.v[2] = (uint32_t)a;
    x.v[3] = (uint32_t)(a >> 32);
    for (int round = 0; round < 10; round++) {
        tr_philox_round_(x.v, k0, k1);
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return x;
}

/* A bijection of 64-bit words that separates neighbouring values: the finalizer of SplitMix64
 * (Steele, Lea, Flood). */
TR_PHILOX_INLINE uint64_t tr_philox_mix_(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
}

/*
 * The key of (seed, purpose, stream), 128 bits folded into 64. For one seed, keys of different
 * (purpose, stream) differ; for one (purpose, stream), keys of different seeds differ. If both
 * differ, keys collide with probability 2^-64. Compute the key outside the loop over elements.
 */
TR_PHILOX_INLINE tr_philox_key_t tr_philox_key(uint64_t seed, uint32_t purpose, uint32_t stream) {
    uint64_t mixed = tr_philox_mix_(tr_philox_mix_(seed + 0x9E3779B97F4A7C15u) ^
                                    ((uint64_t)purpose << 32 | stream));
    tr_philox_key_t key;
    key.v[0] = (uint32_t)mixed;
    key.v[1] = (uint32_t)(mixed >> 32);
    return key;
}

/* A 32-bit word as a float in [0, 1), 24 bits. */
TR_PHILOX_INLINE float tr_rng_to_float(uint32_t word) {
    return (float)(word >> 8) * (1.0f / 16777216.0f);
}

#endif
