/* The random words of dropout, as specified in kernels.h. Private to src/device/cpu. */
#ifndef TR_DEVICE_CPU_KERNELS_CPU_DROPOUT_H
#define TR_DEVICE_CPU_KERNELS_CPU_DROPOUT_H

#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_math.h"
#include "base/rng.h"

/* Words drawn at once, a multiple of 4. */
enum { CPU_DROPOUT_TILE = 256 };

typedef struct {
    tr_philox_key_t key;
    uint32_t least; /* elements with smaller words are dropped */
    float factor;   /* of the kept elements */
    int64_t step;
} cpu_dropout_t;

static inline cpu_dropout_t cpu_dropout_make(const tr_step_t *step, uint32_t stream, float p) {
    return (cpu_dropout_t){.key = tr_philox_key(step->seed, TR_RNG_DROPOUT, stream),
                           .least = (uint32_t)((double)p * 0x1p32),
                           .factor = (float)(1 / (1 - (double)p)),
                           .step = step->step};
}

/* The words of `count` elements, at most CPU_DROPOUT_TILE, from `first`, a multiple of 4. Stored by
 * word of the block, so that the rounds vectorise. */
static inline void cpu_dropout_words(const cpu_dropout_t *mask, int64_t sample, int64_t first,
                                     int64_t count, uint32_t *restrict words) {
    enum { MOST = CPU_DROPOUT_TILE / 4 };
    uint64_t a = (uint64_t)sample, b = (uint64_t)mask->step << 32 | (uint64_t)first / 4;
    uint32_t w0[MOST], w1[MOST], w2[MOST], w3[MOST];
    tr_philox_key_t key = mask->key;
    const int blocks = (int)((count + 3) / 4);
#pragma omp simd
    for (int i = 0; i < blocks; i++) {
        tr_rng_block_t block = tr_philox(key, a, b + (uint64_t)i);
        w0[i] = block.v[0];
        w1[i] = block.v[1];
        w2[i] = block.v[2];
        w3[i] = block.v[3];
    }
    for (int i = 0; i < blocks; i++) {
        words[4 * i] = w0[i];
        words[4 * i + 1] = w1[i];
        words[4 * i + 2] = w2[i];
        words[4 * i + 3] = w3[i];
    }
}

#endif
