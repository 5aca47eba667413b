/* Attention, forward. A thread processes one block of queries of one head at a time. */
#include "cpu_attention.h"
#include <string.h>

enum { QUERIES = CPU_ATTENTION_QUERIES, PANEL = CPU_TILE_PANEL };

/* Probabilities can be kept only if all keys are one block. */
static int64_t block_keys(const cpu_attention_t *a, const tr_kernel_call_t *call) {
    return cpu_present(&call->out[2]) || a->tall < CPU_ATTENTION_KEYS ? a->tall
                                                                      : CPU_ATTENTION_KEYS;
}

CPU_KERNEL_PREPARE(attention_fwd) {
    const cpu_attention_t a = cpu_attention_of(call, &call->in[0], 1);
    *out_state = NULL;
    *out_scratch_bytes =
        (size_t)(device->threads * cpu_attention_work_elems(&a, block_keys(&a, call))) *
        sizeof(float);
    return TR_OK;
}

/* Replaces the scores of a panel by exp(score - maximum). max, sum (panel), out (queries, wide): so
 * far, and then with these keys. */
static void softmax_panel(int64_t count, float *restrict score, float *restrict max,
                          float *restrict sum, int64_t queries, int64_t wide, float *restrict out) {
    float shrink[PANEL];
    cpu_vec_t most[2] = {cpu_vec_load(max), cpu_vec_load(max + CPU_VEC_LANES)};
    for (int64_t k = 0; k < count; k++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++)
            most[v] = cpu_vec_max(most[v], cpu_vec_load(score + k * PANEL + v * CPU_VEC_LANES));
    for (int i = 0; i < PANEL; i++) {
        const float now = most[i / CPU_VEC_LANES][i % CPU_VEC_LANES];
        shrink[i] = max[i] == now ? 1.0f : cpu_exp_nonpositive(max[i] - now);
        max[i] = now;
        sum[i] *= shrink[i];
    }
    for (int64_t first = 0; first < count; first += CPU_ATTENTION_KEYS) {
        const int64_t left = count - first,
                      last = first + (left < CPU_ATTENTION_KEYS ? left : CPU_ATTENTION_KEYS);
        float part[PANEL] = {0}; /* a sum of many small numbers would lose them */
        for (int64_t k = first; k < last; k++)
#pragma omp simd
            for (int i = 0; i < PANEL; i++) {
                const float p = cpu_exp_nonpositive(score[k * PANEL + i] - max[i]);
                score[k * PANEL + i] = p;
                part[i] += p;
            }
        for (int i = 0; i < PANEL; i++) sum[i] += part[i];
    }
    for (int64_t i = 0; i < queries; i++, out += wide)
        for (int64_t d = 0; shrink[i] != 1.0f && d < wide; d++) out[d] *= shrink[i];
}

/* The probabilities of a panel of queries from position t: `count` keys from 0 on, and 0 behind. */
static void keep_panel(const cpu_attention_t *a, const cpu_attention_work_t *w, const float *sum,
                       int64_t t, int64_t queries, int64_t count, float *kept) {
    const int64_t padded = cpu_attention_pad(count);
    cpu_tile_transpose(w->score, padded, PANEL, PANEL, w->rows, padded);
    for (int64_t i = 0; i < queries; i++, kept += a->steps) {
        const float *row = w->rows + i * padded;
        for (int64_t k = 0; k <= t + i; k++) kept[k] = row[k] / sum[i];
        memset(kept + t + i + 1, 0, (size_t)(a->steps - t - i - 1) * sizeof *kept);
    }
}

void tr_cpu_attention_attend(const cpu_attention_t *a, const cpu_attention_work_t *w,
                             const cpu_attention_head_t *h, int64_t first, int64_t rows,
                             float *kept) {
    const int64_t wide = a->wide, padded = cpu_attention_panel_rows(rows);
    cpu_attention_pack(a, h->q, rows, padded, h->q_row, a->scale, h->type, w->out);
    cpu_attention_panels(a, w->out, padded, w->q);
    memset(w->out, 0, (size_t)(rows * wide) * sizeof(float));
    for (int64_t i = 0; i < padded; i++) w->max[i] = -INFINITY, w->sum[i] = 0;
    for (int64_t key = 0; key < first + rows; key += w->keys) {
        const int64_t left = first + rows - key, count = left < w->keys ? left : w->keys;
        cpu_attention_pack(a, cpu_at(h->k, key * h->kv_row, h->kv_type), count, count, h->kv_row, 1,
                           h->kv_type, w->k);
        cpu_attention_pack(a, cpu_at(h->v, key * h->kv_row, h->kv_type), count, count, h->kv_row, 1,
                           h->kv_type, w->v);
        for (int64_t p = 0; p < rows; p += PANEL) {
            const int64_t t = first + p, past = t + PANEL - key, seen = past < count ? past : count,
                          queries = rows - p < PANEL ? rows - p : PANEL;
            float *out = w->out + p * wide;
            if (seen <= 0) continue;
            cpu_tile_product(seen, PANEL, a->size, (cpu_tile_a_t){w->k, wide, 1}, w->q + p * wide,
                             PANEL, false, w->score, PANEL);
            cpu_attention_hide(t, key, seen, -INFINITY, w->score, PANEL);
            softmax_panel(seen, w->score, w->max + p, w->sum + p, queries, wide, out);
            if (kept) keep_panel(a, w, w->sum + p, t, queries, seen, kept + p * a->steps);
            if (a->sample_id) {
                cpu_attention_factors(a, h, t, queries, key, seen, w->rows, w->factor);
                for (int64_t i = 0; i < seen * PANEL; i++) w->score[i] *= w->factor[i];
            }
            cpu_tile_product(queries, wide, seen, (cpu_tile_a_t){w->score, 1, PANEL}, w->v, wide,
                             true, out, wide);
        }
    }
}

/* Queries [first, first + rows) of a head. */
static void block_forward(const cpu_attention_t *a, const cpu_attention_work_t *w,
                          const tr_kernel_call_t *call, int64_t index, int64_t first,
                          int64_t rows) {
    const tr_dtype_t type = call->in[0].dtype;
    const int64_t sample = index / a->heads, head = index % a->heads, width = a->heads * a->size;
    const void *q = cpu_at(call->in[0].data, sample * a->steps * a->row + head * a->size, type);
    const cpu_attention_head_t h = {.sample = sample,
                                    .index = head,
                                    .q = cpu_at(q, first * a->row, type),
                                    .k = cpu_at(q, width, type),
                                    .v = cpu_at(q, 2 * width, type),
                                    .q_row = a->row,
                                    .kv_row = a->row,
                                    .type = type,
                                    .kv_type = type};
    float *lse = (float *)call->out[1].data + index * a->steps + first, *kept = NULL;
    if (cpu_present(&call->out[2]))
        kept = (float *)call->out[2].data + (index * a->steps + first) * a->steps;
    tr_cpu_attention_attend(a, w, &h, first, rows, kept);
    for (int64_t i = 0; i < rows; i++) {
        void *y = cpu_at_out(call->out[0].data,
                             (sample * a->steps + first + i) * width + head * a->size, type);
        const float *out = w->out + i * a->wide, share = 1.0f / w->sum[i];
        CPU_BY_TYPE(type, t,
                    for (int64_t d = 0; d < a->size; d++) cpu_put(y, d, out[d] * share, t));
        lse[i] = w->max[i] + logf(w->sum[i]);
    }
}

/* The last blocks have most keys, and come first. */
CPU_KERNEL(attention_fwd) {
    const cpu_attention_t a = cpu_attention_of(call, &call->in[0], 1);
    const int64_t keys = block_keys(&a, call), elems = cpu_attention_work_elems(&a, keys),
                  heads = a.samples * a.heads, blocks = (a.steps + QUERIES - 1) / QUERIES;
    const int threads = cpu_threads(device, heads * a.steps * (a.steps + a.size));
#pragma omp parallel for num_threads(threads) schedule(dynamic)
    for (int64_t i = 0; i < heads * blocks; i++) {
        const cpu_attention_work_t w =
            cpu_attention_work_at(&a, keys, (float *)call->scratch + omp_get_thread_num() * elems);
        const int64_t first = (blocks - 1 - i / heads) * QUERIES, left = a.steps - first;
        block_forward(&a, &w, call, i % heads, first, left < QUERIES ? left : QUERIES);
    }
    return TR_OK;
}
