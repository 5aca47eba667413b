/* Attention to the cached keys and values of a text. One thread computes a head of a sample, so
 * that its result does not depend on anything else. */
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_math.h"
#include <string.h>

enum { ROW, FIRST, COUNT, PLACE }; /* of a sample's place */

CPU_KERNEL(cache_append) {
    const int32_t *place = call->in[1].data;
    const int64_t samples = call->in[0].shape.dim[0], steps = call->in[0].shape.dim[1],
                  width = call->in[0].shape.dim[2] / 3, positions = call->out[0].shape.dim[1];
    const float *qkv = call->in[0].data;
    float *keys = call->out[0].data, *values = call->out[1].data;
    const size_t bytes = (size_t)width * sizeof(float);
    for (int64_t b = 0; b < samples; b++, place += PLACE)
        for (int64_t t = 0; t < place[COUNT]; t++) {
            const float *from = qkv + (b * steps + t) * 3 * width;
            const int64_t at = (place[ROW] * positions + place[FIRST] + t) * width;
            memcpy(keys + at, from + width, bytes);
            memcpy(values + at, from + 2 * width, bytes);
        }
    return TR_OK;
}

CPU_KERNEL_PREPARE(attention_cached) {
    *out_state = NULL;
    *out_scratch_bytes = (size_t)device->threads * (size_t)call->in[2].shape.dim[1] * sizeof(float);
    return TR_OK;
}

typedef struct {
    int64_t steps, width, size; /* T, C, D */
    float scale;
} attention_t;

/* One query over `seen` keys and values, whose rows are `width` apart; score [seen]. */
static void cpu_attention_cached_attend(const attention_t *a, const float *q, const float *keys,
                                        const float *values, int64_t seen, float *score, float *y) {
    float max = -INFINITY, sum = 0;
    for (int64_t k = 0; k < seen; k++) {
        float dot = 0;
        CPU_LANE_SUM(dot, a->size, d, q[d] * keys[k * a->width + d]);
        score[k] = dot * a->scale;
        max = score[k] > max ? score[k] : max;
    }
#pragma omp simd
    for (int64_t k = 0; k < seen; k++) score[k] = cpu_exp_nonpositive(score[k] - max);
    CPU_LANE_SUM(sum, seen, k, score[k]);
    memset(y, 0, (size_t)a->size * sizeof *y);
    for (int64_t k = 0; k < seen; k++) {
        const float *v = values + k * a->width;
#pragma omp simd
        for (int64_t d = 0; d < a->size; d++) y[d] += score[k] * v[d];
    }
    for (int64_t d = 0; d < a->size; d++) y[d] /= sum;
}

static void sample_head(const attention_t *a, const tr_kernel_call_t *call, int64_t b, int64_t head,
                        float *score) {
    const int32_t *place = (const int32_t *)call->in[1].data + b * PLACE;
    const int64_t first = place[FIRST],
                  row = place[ROW] * call->in[2].shape.dim[1] * a->width + head * a->size;
    const float *q = (const float *)call->in[0].data + b * a->steps * 3 * a->width + head * a->size;
    float *y = (float *)call->out[0].data + b * a->steps * a->width + head * a->size;
    for (int64_t t = 0; t < a->steps; t++, q += 3 * a->width, y += a->width)
        if (t < place[COUNT])
            cpu_attention_cached_attend(a, q, (const float *)call->in[2].data + row,
                                        (const float *)call->in[3].data + row, first + t + 1, score,
                                        y);
        else
            memset(y, 0, (size_t)a->size * sizeof *y);
}

CPU_KERNEL(attention_cached) {
    const int64_t samples = call->in[0].shape.dim[0],
                  heads = ((const tr_attention_attr_t *)call->attr)->heads,
                  positions = call->in[2].shape.dim[1];
    const attention_t a = {
        .steps = call->in[0].shape.dim[1],
        .width = call->in[0].shape.dim[2] / 3,
        .size = call->in[0].shape.dim[2] / 3 / heads,
        .scale = (float)(1 / sqrt((double)call->in[0].shape.dim[2] / 3 / (double)heads))};
    const int threads = cpu_threads(device, samples * a.steps * a.width * positions);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int64_t i = 0; i < samples * heads; i++)
        sample_head(&a, call, i / heads, i % heads,
                    (float *)call->scratch + omp_get_thread_num() * positions);
    return TR_OK;
}
