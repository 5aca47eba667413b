/* Dropout. The mask is made as it is used; kernels.h fixes its bits. */
#include "cpu_int.h"
#include "cpu_types.h"
#include "trainer/rng.h"
#include <string.h>

/* Elements of a task, and those whose words are made at once: multiples of 4. */
enum { TASK = 4096, TILE = 256, COST = 8 };

typedef struct {
    tr_philox_key_t key;
    uint32_t least; /* words below are dropped */
    float factor;
    int64_t step;
} mask_t;

/* The words of TILE elements from `first` on, a multiple of 4. Word by word first: so the rounds vectorise. */
static void draw_words(const mask_t *mask, int64_t sample, int64_t first, uint32_t *restrict words) {
    uint64_t a = (uint64_t)sample, b = (uint64_t)mask->step << 32 | (uint64_t)first / 4;
    uint32_t w0[TILE / 4], w1[TILE / 4], w2[TILE / 4], w3[TILE / 4];
    tr_philox_key_t key = mask->key;
#pragma omp simd
    for (int i = 0; i < TILE / 4; i++) {
        tr_rng_block_t block = tr_philox(key, a, b + (uint64_t)i);
        w0[i] = block.v[0];
        w1[i] = block.v[1];
        w2[i] = block.v[2];
        w3[i] = block.v[3];
    }
    for (int i = 0; i < TILE / 4; i++) {
        words[4 * i] = w0[i];
        words[4 * i + 1] = w1[i];
        words[4 * i + 2] = w2[i];
        words[4 * i + 3] = w3[i];
    }
}

/* Elements [first, last) of one sample. */
CPU_INLINE void drop(const mask_t *mask, int64_t sample, int64_t first, int64_t last, const void *x, void *y,
                     int type) {
    uint32_t words[TILE], least = mask->least;
    float factor = mask->factor;
    for (int64_t at = first; at < last; at += TILE) {
        int64_t n = last - at < TILE ? last - at : TILE;
        draw_words(mask, sample, at, words);
#pragma omp simd
        for (int64_t i = 0; i < n; i++) {
            float kept = cpu_get(x, at + i, type) * factor;
            cpu_put(y, at + i, words[i] >= least ? kept : 0.0f, type);
        }
    }
}

CPU_KERNEL(dropout) {
    const tr_dropout_attr_t *attr = call->attr;
    const int64_t *ids = call->in[1].data;
    const tr_step_t *step = call->in[2].data;
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    tr_dtype_t dtype = call->out[0].dtype;
    int64_t n = tr_shape_elems(&call->in[0].shape), samples = tr_shape_elems(&call->in[1].shape);
    int64_t width = n / samples, parts = (width + TASK - 1) / TASK;
    if (attr->p >= 1.0f) {
        memset(y, 0, (size_t)n * tr_dtype_bytes(dtype));
        return TR_OK;
    }
    mask_t mask = {.key = tr_philox_key(step->seed, TR_RNG_DROPOUT, attr->stream),
                   .least = (uint32_t)((double)attr->p * 0x1p32),
                   .factor = (float)(1 / (1 - (double)attr->p)),
                   .step = step->step};
#pragma omp parallel for num_threads(cpu_threads(device, n *COST)) schedule(static)
    for (int64_t task = 0; task < samples * parts; task++) {
        int64_t sample = task / parts, first = task % parts * TASK;
        int64_t last = width - first < TASK ? width : first + TASK, at = sample * width;
        CPU_BY_TYPE(dtype, t,
                    drop(&mask, ids[sample], first, last, cpu_at(x, at, t), cpu_at_out(y, at, t), t));
    }
    return TR_OK;
}
