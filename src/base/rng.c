/* Random sequences for host code, based on Philox4x32-10. */
#include "base/rng.h"

#include <math.h>

tr_rng_block_t tr_rng_philox(uint64_t seed, uint32_t purpose, uint32_t stream, uint64_t a,
                             uint64_t b) {
    return tr_philox(tr_philox_key(seed, purpose, stream), a, b);
}

tr_rng_t tr_rng_make(uint64_t seed, tr_rng_purpose_t purpose, uint32_t stream, uint64_t a) {
    return (tr_rng_t){.seed = seed, .a = a, .purpose = purpose, .stream = stream, .used = 4};
}

uint32_t tr_rng_u32(tr_rng_t *rng) {
    if (rng->used == 4) {
        rng->block = tr_rng_philox(rng->seed, rng->purpose, rng->stream, rng->a, rng->b++);
        rng->used = 0;
    }
    return rng->block.v[rng->used++];
}

static uint64_t rng_next_u64(tr_rng_t *rng) {
    uint64_t low = tr_rng_u32(rng);
    return (uint64_t)tr_rng_u32(rng) << 32 | low;
}

/* Lemire, "Fast random integer generation in an interval" (2019): multiply, and draw again in the
 * biased rest. */
uint64_t tr_rng_below(tr_rng_t *rng, uint64_t n) {
    unsigned __int128 product = (unsigned __int128)rng_next_u64(rng) * n;
    if ((uint64_t)product < n) {
        uint64_t rest = -n % n;
        while ((uint64_t)product < rest) product = (unsigned __int128)rng_next_u64(rng) * n;
    }
    return (uint64_t)(product >> 64);
}

double tr_rng_between(tr_rng_t *rng, double low, double high) {
    return low + (high - low) * tr_rng_uniform(rng);
}

double tr_rng_uniform(tr_rng_t *rng) {
    return (double)(rng_next_u64(rng) >> 11) * 0x1p-53;
}

double tr_rng_normal(tr_rng_t *rng) {
    /* 1 - u is in (0, 1]: no log of 0 */
    double radius = sqrt(-2.0 * log(1.0 - tr_rng_uniform(rng)));
    return radius * cos(2.0 * M_PI * tr_rng_uniform(rng));
}

void tr_rng_shuffle(tr_rng_t *rng, int64_t *items, int64_t count) {
    for (int64_t i = count - 1; i > 0; i--) {
        int64_t j = (int64_t)tr_rng_below(rng, (uint64_t)i + 1);
        int64_t item = items[i];
        items[i] = items[j];
        items[j] = item;
    }
}
