/*
 * Counter-based random numbers: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as
 * 1, 2, 3", SC'11). A value is a pure function of key and counter. There is no state to save or
 * send, and values do not depend on ranks or threads.
 */
#ifndef TR_BASE_RNG_H
#define TR_BASE_RNG_H

#include "base/philox.h"
#include <stdint.h>

/* The use of a random stream. It is part of the key, so different uses never share numbers. */
typedef enum {
    TR_RNG_INIT = 1,  /* parameter initialisation; counter: parameter name hash, element */
    TR_RNG_BLOCKS,    /* order of blocks in an epoch */
    TR_RNG_WINDOW,    /* order within a shuffle window of a sample stream */
    TR_RNG_DROPOUT,   /* stream: op; counter: step, sample id, element */
    TR_RNG_AUGMENT,   /* counter: step, sample id, transform */
    TR_RNG_SYNTHETIC, /* synthetic data; counter: sample id */
    TR_RNG_TEST,
    TR_RNG_SAMPLE, /* tokens of generated texts; counter: text, position */
    TR_RNG_SWEEP   /* values of keys in a sweep; stream: key; counter: draw */
} tr_rng_purpose_t;

/*
 * 128 random bits for (seed, purpose, stream, counter a, counter b). Different (a, b) of one key
 * give different blocks. philox.h describes the key and has the functions for kernels. Callers pack
 * counters of three parts: dropout uses a = sample id, b = step << 32 | element / 4.
 */
tr_rng_block_t tr_rng_philox(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t a,
                             uint64_t b);

/* A sequence for host code: the successive blocks with b = 0, 1, 2, ... */
typedef struct {
    uint64_t seed, a, b;
    uint32_t purpose, stream;
    tr_rng_block_t block;
    int used; /* words of `block` already returned */
} tr_rng_t;
tr_rng_t tr_rng_make(uint64_t seed, tr_rng_purpose_t purpose, uint32_t stream, uint64_t a);
uint32_t tr_rng_u32(tr_rng_t *rng);
uint64_t tr_rng_below(tr_rng_t *rng, uint64_t n); /* uniform in [0, n), without bias; n > 0 */
double tr_rng_uniform(tr_rng_t *rng);             /* [0, 1) */
double tr_rng_between(tr_rng_t *rng, double low, double high); /* [low, high) */
double tr_rng_normal(tr_rng_t *rng);              /* mean 0, standard deviation 1 (Box-Muller) */
void tr_rng_shuffle(tr_rng_t *rng, int64_t *items, int64_t count); /* Fisher-Yates */

#endif
