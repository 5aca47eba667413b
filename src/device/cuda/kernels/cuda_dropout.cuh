/* Private: the factors with which dropout multiplies probabilities of attention. */
#ifndef TR_DEVICE_CUDA_KERNELS_CUDA_DROPOUT_CUH
#define TR_DEVICE_CUDA_KERNELS_CUDA_DROPOUT_CUH

#include "cuda_types.cuh"
#include "device/cuda/cuda_plain_rows.h"
#include "base/rng.h"

/* The words of elements 4 block .. 4 block + 3 of a sample. */
static __device__ __forceinline__ tr_rng_block_t dropout_words(const cuda_attention_dropout_t &d,
                                                               int64_t sample, int64_t block) {
    return tr_philox(tr_philox_key(d.step->seed, TR_RNG_DROPOUT, d.stream),
                     (uint64_t)d.sample_id[sample],
                     (uint64_t)d.step->step << 32 | (uint64_t)block);
}

static __device__ __forceinline__ float dropout_factor(const cuda_attention_dropout_t &d,
                                                       int64_t sample, int64_t element) {
    if (!d.sample_id) return 1.0f;
    return dropout_words(d, sample, element / 4).v[element % 4] >= d.least ? d.factor : 0.0f;
}

/* Those of four elements: by one block of words where they are one. */
static __device__ __forceinline__ void dropout_factors(const cuda_attention_dropout_t &d,
                                                       int64_t sample, int64_t element,
                                                       float (&out)[4]) {
    if (d.sample_id && element % 4 == 0) {
        const tr_rng_block_t words = dropout_words(d, sample, element / 4);
#pragma unroll
        for (int k = 0; k < 4; k++) out[k] = words.v[k] >= d.least ? d.factor : 0.0f;
        return;
    }
#pragma unroll
    for (int k = 0; k < 4; k++) out[k] = dropout_factor(d, sample, element + k);
}

#endif
