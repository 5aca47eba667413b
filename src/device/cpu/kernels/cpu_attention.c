/* Attention, forward. */
#include "cpu_attention.h"
#include <string.h>

enum { TILE = CPU_ATTENTION_TILE };

static int64_t tile_keys(const cpu_attention_t *a, const tr_kernel_call_t *call) {
    return cpu_present(&call->out[2]) || a->tall < TILE ? a->tall : TILE;
}

CPU_KERNEL_PREPARE(attention_fwd) {
    const cpu_attention_t a = cpu_attention_of(call, &call->in[0], 1);
    *out_state = NULL;
    *out_scratch_bytes =
        (size_t)(device->threads * cpu_attention_work_elems(&a, tile_keys(&a, call))) *
        sizeof(float);
    return TR_OK;
}

/* Replaces the scores of one query by exp(scale (score - maximum)) for `seen` of `count` keys, and
 * by 0 for the others. */
static void softmax_row(const cpu_attention_t *a, const cpu_attention_work_t *w, int64_t i,
                        int64_t seen, int64_t count) {
    float *score = w->score + i * w->keys, *out = w->out + i * a->wide, max = w->max[i];
    double sum = 0;
#pragma omp simd reduction(max : max)
    for (int64_t k = 0; k < seen; k++) max = score[k] * a->scale > max ? score[k] * a->scale : max;
    const float shrink = w->max[i] == max ? 1.0f : cpu_exp_nonpositive(w->max[i] - max);
#pragma omp simd
    for (int64_t k = 0; k < seen; k++) score[k] = cpu_exp_nonpositive(score[k] * a->scale - max);
    CPU_LANE_SUM(sum, seen, k, score[k]);
    for (int64_t k = seen; k < count; k++) score[k] = 0;
    w->sum[i] = w->sum[i] * shrink + (float)sum;
    w->max[i] = max;
    if (shrink == 1.0f) return;
#pragma omp simd
    for (int64_t d = 0; d < a->wide; d++) out[d] *= shrink;
}

static void drop_row(const cpu_attention_t *a, const cpu_attention_work_t *w, int64_t sample,
                     int64_t head, int64_t t, int64_t key, int64_t seen, float *score) {
    cpu_attention_dropout(a, sample, head, t, key, seen, w->dropped);
    for (int64_t k = 0; k < seen; k++) score[k] *= w->dropped[k];
}

/* The probabilities of one query from the unnormalised ones in `score`. */
static void keep_row(const cpu_attention_t *a, const float *score, int64_t seen, float sum,
                     float *kept) {
    for (int64_t k = 0; k < seen; k++) kept[k] = score[k] / sum;
    memset(kept + seen, 0, (size_t)(a->steps - seen) * sizeof *kept);
}

void tr_cpu_attention_attend(const cpu_attention_t *a, const cpu_attention_work_t *w,
                             int64_t sample, int64_t head, int64_t first, int64_t rows,
                             float *kept) {
    memset(w->out, 0, (size_t)(TILE * a->wide) * sizeof(float));
    for (int64_t i = 0; i < rows; i++) w->max[i] = -INFINITY, w->sum[i] = 0;
    for (int64_t key = 0; key < first + rows; key += w->keys) {
        const int64_t left = first + rows - key, count = left < w->keys ? left : w->keys;
        cpu_tile_product(rows, cpu_attention_pad(count), a->size, (cpu_tile_a_t){w->q, a->wide, 1},
                         w->kt + key * a->size, w->keys, false, w->score, w->keys);
        for (int64_t i = 0; i < rows; i++) {
            const int64_t past = first + i - key + 1, seen = past < count ? past : count;
            float *score = w->score + i * w->keys;
            softmax_row(a, w, i, seen, count);
            if (kept) keep_row(a, score, seen, w->sum[i], kept + i * a->steps);
            if (a->sample_id) drop_row(a, w, sample, head, first + i, key, seen, score);
        }
        cpu_tile_product(rows, a->wide, count, (cpu_tile_a_t){w->score, w->keys, 1},
                         w->v + key * a->wide, a->wide, true, w->out, a->wide);
    }
}

CPU_INLINE void head_forward(const cpu_attention_t *a, const cpu_attention_work_t *w,
                             const tr_kernel_call_t *call, int64_t sample, int64_t head, int type) {
    const int64_t width = a->heads * a->size, index = sample * a->heads + head;
    const void *q = cpu_at(call->in[0].data, sample * a->steps * a->row + head * a->size, type);
    float *lse = (float *)call->out[1].data + index * a->steps;
    float *kept = cpu_present(&call->out[2]) ? call->out[2].data : NULL;
    if (kept) kept += index * a->steps * a->steps;
    cpu_attention_pack_transposed(cpu_at(q, width, type), a->steps, a->row, a->size, w->keys, w->kt,
                                  type);
    cpu_attention_pack(cpu_at(q, 2 * width, type), a->steps, a->row, a->size, a->wide, w->v, type);
    for (int64_t first = 0; first < a->steps; first += TILE) {
        const int64_t left = a->steps - first, rows = left < TILE ? left : TILE;
        cpu_attention_pack(cpu_at(q, first * a->row, type), rows, a->row, a->size, a->wide, w->q,
                           type);
        tr_cpu_attention_attend(a, w, sample, head, first, rows,
                                kept ? kept + first * a->steps : NULL);
        for (int64_t i = 0; i < rows; i++) {
            void *y = cpu_at_out(call->out[0].data,
                                 (sample * a->steps + first + i) * width + head * a->size, type);
            const float *out = w->out + i * a->wide, share = 1.0f / w->sum[i];
            for (int64_t d = 0; d < a->size; d++) cpu_put(y, d, out[d] * share, type);
            lse[first + i] = w->max[i] + logf(w->sum[i]);
        }
    }
}

CPU_KERNEL(attention_fwd) {
    const cpu_attention_t a = cpu_attention_of(call, &call->in[0], 1);
    const int64_t keys = tile_keys(&a, call), elems = cpu_attention_work_elems(&a, keys);
    const int threads = cpu_threads(device, a.samples * a.heads * a.steps * (a.steps + a.size));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < a.samples * a.heads; i++) {
        const cpu_attention_work_t w =
            cpu_attention_work_at(&a, keys, (float *)call->scratch + omp_get_thread_num() * elems);
        CPU_BY_TYPE(call->in[0].dtype, t, head_forward(&a, &w, call, i / a.heads, i % a.heads, t));
    }
    return TR_OK;
}
