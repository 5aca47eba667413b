/* Attention, backward (Dao et al. 2022, algorithm 4): scores are recomputed from lse if
 * probabilities were not kept. */
#include "cpu_attention.h"
#include <string.h>

enum { TILE = CPU_ATTENTION_TILE };
enum { DY, QKV, Y, LSE, KEPT, SAMPLE_ID };

/* A thread's memory. */
typedef struct {
    float *q, *k, *v, *dy, *dq, *dk, *dv; /* (tall, wide) */
    float *kt, *vt;                       /* (tiles, size, TILE) */
    float *p, *dp;          /* (TILE, TILE): dropped probabilities; the gradient of scores */
    float *delta, *dropped; /* (tall), (TILE) */
} work_t;

static int64_t cpu_attention_bwd_work_elems(const cpu_attention_t *a) {
    return 7 * a->tall * a->wide + 2 * cpu_attention_tiled(a, TILE) + 2 * TILE * TILE + a->tall +
           TILE;
}

static work_t cpu_attention_bwd_work_at(const cpu_attention_t *a, float *at) {
    work_t w = {0};
    float **const dense[] = {&w.q, &w.k, &w.v, &w.dy, &w.dq, &w.dk, &w.dv};
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++, at += a->tall * a->wide)
        *dense[i] = at;
    w.kt = at;
    w.vt = w.kt + cpu_attention_tiled(a, TILE);
    w.p = w.vt + cpu_attention_tiled(a, TILE);
    w.dp = w.p + TILE * TILE;
    w.delta = w.dp + TILE * TILE;
    w.dropped = w.delta + a->tall;
    return w;
}

CPU_KERNEL_PREPARE(attention_bwd) {
    const cpu_attention_t a = cpu_attention_of(call, &call->in[QKV], SAMPLE_ID);
    *out_state = NULL;
    *out_scratch_bytes =
        (size_t)(device->threads * cpu_attention_bwd_work_elems(&a)) * sizeof(float);
    return TR_OK;
}

/* One query and the keys of a tile that it attends to. In: scores p, gradients dp of the
 * probabilities after dropout. Out: probabilities p after dropout, gradients dp of the unscaled
 * scores. */
static void row_backward(const cpu_attention_t *a, const float *dropped, const float *kept,
                         float lse, float delta, int64_t seen, int64_t count, float *restrict p,
                         float *restrict dp) {
    const float scale = a->scale;
    if (kept)
        for (int64_t k = 0; k < seen; k++) p[k] = kept[k];
    else
#pragma omp simd
        for (int64_t k = 0; k < seen; k++) p[k] = cpu_exp_nonpositive(p[k] * scale - lse);
    if (dropped)
        for (int64_t k = 0; k < seen; k++) {
            dp[k] = p[k] * (dp[k] * dropped[k] - delta) * scale;
            p[k] *= dropped[k];
        }
    else
        for (int64_t k = 0; k < seen; k++) dp[k] = p[k] * (dp[k] - delta) * scale;
    for (int64_t k = seen; k < count; k++) p[k] = dp[k] = 0;
}

/* Processes queries [first, first + rows) and keys [key, key + count). */
static void tile_backward(const cpu_attention_t *a, const work_t *w, int64_t sample, int64_t head,
                          int64_t first, int64_t rows, int64_t key, int64_t count, const float *lse,
                          const float *kept) {
    const int64_t wide = a->wide, padded = cpu_attention_pad(count);
    const cpu_tile_a_t p_t = {w->p, 1, TILE}, dp = {w->dp, TILE, 1}, dp_t = {w->dp, 1, TILE};
    if (!kept)
        cpu_tile_product(rows, padded, a->size, (cpu_tile_a_t){w->q + first * wide, wide, 1},
                         w->kt + key * a->size, TILE, false, w->p, TILE);
    cpu_tile_product(rows, padded, a->size, (cpu_tile_a_t){w->dy + first * wide, wide, 1},
                     w->vt + key * a->size, TILE, false, w->dp, TILE);
    for (int64_t i = 0; i < rows; i++) {
        const int64_t t = first + i, past = t - key + 1, seen = past < count ? past : count;
        if (a->sample_id) cpu_attention_dropout(a, sample, head, t, key, seen, w->dropped);
        row_backward(a, a->sample_id ? w->dropped : NULL, kept ? kept + t * a->steps + key : NULL,
                     lse[t], w->delta[t], seen, count, w->p + i * TILE, w->dp + i * TILE);
    }
    cpu_tile_product(count, wide, rows, p_t, w->dy + first * wide, wide, true, w->dv + key * wide,
                     wide);
    cpu_tile_product(count, wide, rows, dp_t, w->q + first * wide, wide, true, w->dk + key * wide,
                     wide);
    cpu_tile_product(rows, wide, count, dp, w->k + key * wide, wide, true, w->dq + first * wide,
                     wide);
}

CPU_INLINE void load_head(const cpu_attention_t *a, const work_t *w, const tr_kernel_call_t *call,
                          int64_t sample, int64_t head, int type) {
    const int64_t width = a->heads * a->size, at = sample * a->steps * width + head * a->size;
    const void *q = cpu_at(call->in[QKV].data, sample * a->steps * a->row + head * a->size, type);
    const void *k = cpu_at(q, width, type), *v = cpu_at(q, 2 * width, type),
               *y = cpu_at(call->in[Y].data, at, type), *dy = cpu_at(call->in[DY].data, at, type);
    cpu_attention_pack(q, a->steps, a->row, a->size, a->wide, w->q, type);
    cpu_attention_pack(k, a->steps, a->row, a->size, a->wide, w->k, type);
    cpu_attention_pack(dy, a->steps, width, a->size, a->wide, w->dy, type);
    cpu_attention_pack_transposed(k, a->steps, a->row, a->size, TILE, w->kt, type);
    cpu_attention_pack_transposed(v, a->steps, a->row, a->size, TILE, w->vt, type);
    for (int64_t t = 0; t < a->steps; t++) {
        double sum = 0;
        CPU_LANE_SUM(sum, a->size, d,
                     cpu_get(y, t * width + d, type) * cpu_get(dy, t * width + d, type));
        w->delta[t] = (float)sum;
    }
    memset(w->dq, 0, (size_t)(3 * a->tall * a->wide) * sizeof(float)); /* dk and dv too */
}

CPU_INLINE void store_head(const cpu_attention_t *a, const work_t *w, void *dqkv, int64_t sample,
                           int64_t head, int type) {
    const float *const from[] = {w->dq, w->dk, w->dv};
    for (int64_t t = 0; t < a->steps; t++)
        for (int part = 0; part < 3; part++) {
            void *to = cpu_at_out(
                dqkv, (sample * a->steps + t) * a->row + (part * a->heads + head) * a->size, type);
            for (int64_t d = 0; d < a->size; d++) cpu_put(to, d, from[part][t * a->wide + d], type);
        }
}

static void head_backward(const cpu_attention_t *a, const work_t *w, const tr_kernel_call_t *call,
                          int64_t sample, int64_t head) {
    const int64_t index = sample * a->heads + head, steps = a->steps;
    const float *lse = (const float *)call->in[LSE].data + index * steps;
    const float *kept = cpu_present(&call->in[KEPT]) ? call->in[KEPT].data : NULL;
    if (kept) kept += index * steps * steps;
    for (int64_t first = 0; first < steps; first += TILE)
        for (int64_t key = 0; key <= first; key += TILE) {
            const int64_t rows = steps - first < TILE ? steps - first : TILE,
                          count = steps - key < TILE ? steps - key : TILE;
            tile_backward(a, w, sample, head, first, rows, key, count, lse, kept);
        }
}

CPU_KERNEL(attention_bwd) {
    const cpu_attention_t a = cpu_attention_of(call, &call->in[QKV], SAMPLE_ID);
    const int64_t elems = cpu_attention_bwd_work_elems(&a);
    const int threads = cpu_threads(device, a.samples * a.heads * a.steps * (a.steps + a.size));
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < a.samples * a.heads; i++) {
        const work_t w =
            cpu_attention_bwd_work_at(&a, (float *)call->scratch + omp_get_thread_num() * elems);
        const int64_t sample = i / a.heads, head = i % a.heads;
        CPU_BY_TYPE(call->in[QKV].dtype, t, load_head(&a, &w, call, sample, head, t));
        head_backward(&a, &w, call, sample, head);
        CPU_BY_TYPE(call->in[QKV].dtype, t, store_head(&a, &w, call->out[0].data, sample, head, t));
    }
    return TR_OK;
}
