/* Dropout. The mask is computed where it is used; kernels.h specifies its bits. */
#include "cpu_dropout.h"
#include "device/cpu/cpu_types.h"
#include <string.h>

/* Elements of a task, a multiple of 4; operations per element, relative to a copy. */
enum { TASK = 4096, TILE = CPU_DROPOUT_TILE, COST = 8 };

/* Elements [first, last) of one sample. */
CPU_INLINE void drop(const cpu_dropout_t *mask, int64_t sample, int64_t first, int64_t last,
                     const void *x, void *y, int type) {
    uint32_t words[TILE], least = mask->least;
    float factor = mask->factor;
    for (int64_t at = first; at < last; at += TILE) {
        int64_t n = last - at < TILE ? last - at : TILE;
        cpu_dropout_words(mask, sample, at, n, words);
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
    cpu_dropout_t mask = cpu_dropout_make(step, attr->stream, attr->p);
#pragma omp parallel for num_threads(cpu_threads(device, n *COST)) schedule(static)
    for (int64_t task = 0; task < samples * parts; task++) {
        int64_t sample = task / parts, first = task % parts * TASK;
        int64_t last = width - first < TASK ? width : first + TASK, at = sample * width;
        CPU_BY_TYPE(
            dtype, t,
            drop(&mask, ids[sample], first, last, cpu_at(x, at, t), cpu_at_out(y, at, t), t));
    }
    return TR_OK;
}
