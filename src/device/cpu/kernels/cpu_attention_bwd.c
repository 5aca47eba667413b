/*
 * Attention, backward (Dao et al. 2022, algorithm 4): scores are recomputed from lse if
 * probabilities were not kept.
 *
 * The work is cut into pairs of a block of queries and one of keys. The gradient of a query adds its
 * keys from the last block to the first, that of a key its queries from the first block to the last,
 * whoever computes them: a thread that has a head for itself, or all threads, wave by wave. The pairs
 * of a wave have the same number of blocks between queries and keys, so none shares a gradient.
 */
#include "cpu_attention.h"
#include <string.h>

enum { BLOCK = CPU_ATTENTION_KEYS, PANEL = CPU_TILE_PANEL };
enum { DY, QKV, Y, LSE, KEPT, SAMPLE_ID };

/* A thread's memory. */
typedef struct {
    float *q, *dy, *k, *v; /* (BLOCK, wide); q is scaled */
    float *qt, *dyt;       /* panels of q and dy */
    float *p, *ds; /* (keys, queries), each BLOCK: dropped probabilities; the gradient of scores */
    float *lse, *delta;   /* (BLOCK) */
    float *rows, *factor; /* (PANEL, BLOCK), (BLOCK, PANEL) */
} work_t;

static int64_t cpu_attention_bwd_work_elems(const cpu_attention_t *a) {
    return 6 * BLOCK * a->wide + 2 * BLOCK * BLOCK + 2 * BLOCK + 2 * BLOCK * PANEL;
}

static work_t cpu_attention_bwd_work_at(const cpu_attention_t *a, float *at) {
    work_t w = {0};
    float **const dense[] = {&w.q, &w.dy, &w.k, &w.v, &w.qt, &w.dyt};
    for (size_t i = 0; i < sizeof dense / sizeof *dense; i++, at += BLOCK * a->wide) *dense[i] = at;
    w.p = at;
    w.ds = w.p + BLOCK * BLOCK;
    w.rows = w.ds + BLOCK * BLOCK;
    w.factor = w.rows + BLOCK * PANEL;
    w.lse = w.factor + BLOCK * PANEL;
    w.delta = w.lse + BLOCK;
    return w;
}

/* How the work is shared. Gradients are summed in f32: 3 (tall, wide) for each head in work. */
typedef struct {
    int64_t heads, blocks; /* of all samples; of a head */
    int threads;
    bool by_waves;
} shares_t;

static shares_t cpu_attention_bwd_shares(const tr_device_t *device, const cpu_attention_t *a) {
    shares_t s = {.heads = a->samples * a->heads, .blocks = (a->steps + BLOCK - 1) / BLOCK};
    s.threads = cpu_threads(device, s.heads * a->steps * (a->steps + a->size));
    s.by_waves = s.blocks > 1 && s.heads < 4 * s.threads && s.heads % s.threads != 0;
    return s;
}

CPU_KERNEL_PREPARE(attention_bwd) {
    const cpu_attention_t a = cpu_attention_of(call, &call->in[QKV], SAMPLE_ID);
    const shares_t s = cpu_attention_bwd_shares(device, &a);
    *out_state = NULL;
    *out_scratch_bytes = (size_t)(s.threads * cpu_attention_bwd_work_elems(&a) +
                                  (s.by_waves ? s.heads : s.threads) * 3 * a.tall * a.wide) *
                         sizeof(float);
    return TR_OK;
}

/* A head that is in work. */
typedef struct {
    const cpu_attention_t *a;
    const tr_kernel_call_t *call;
    cpu_attention_head_t at;
    float *dq, *dk, *dv; /* (tall, wide) */
} head_t;

static head_t cpu_attention_bwd_head(const cpu_attention_t *a, const tr_kernel_call_t *call,
                                     int64_t index, float *sums) {
    const tr_view_t *qkv = &call->in[QKV];
    const int64_t width = a->heads * a->size, sample = index / a->heads, head = index % a->heads;
    head_t h = {.a = a, .call = call, .dq = sums};
    h.at = (cpu_attention_head_t){
        .sample = sample, .index = head, .q_row = a->row, .kv_row = a->row, .type = qkv->dtype};
    h.at.q = cpu_at(qkv->data, sample * a->steps * a->row + head * a->size, qkv->dtype);
    h.at.k = cpu_at(h.at.q, width, qkv->dtype);
    h.at.v = cpu_at(h.at.k, width, qkv->dtype);
    h.dk = h.dq + a->tall * a->wide;
    h.dv = h.dk + a->tall * a->wide;
    return h;
}

static int64_t cpu_attention_bwd_rows(const cpu_attention_t *a, int64_t block) {
    const int64_t left = a->steps - block * BLOCK;
    return left < BLOCK ? left : BLOCK;
}

/* What does not depend on keys: q, dy, lse and delta = the sum of y dy, of a block of queries. */
static void load_queries(const head_t *h, const work_t *w, int64_t block) {
    const cpu_attention_t *a = h->a;
    const tr_dtype_t type = h->at.type;
    const int64_t first = block * BLOCK, rows = cpu_attention_bwd_rows(a, block),
                  padded = cpu_attention_panel_rows(rows), width = a->heads * a->size,
                  at = (h->at.sample * a->steps + first) * width + h->at.index * a->size;
    const float *lse = (const float *)h->call->in[LSE].data +
                       (h->at.sample * a->heads + h->at.index) * a->steps + first;
    float *yt = w->v;
    cpu_attention_pack(a, cpu_at(h->at.q, first * a->row, type), rows, padded, a->row, a->scale,
                       type, w->q);
    cpu_attention_pack(a, cpu_at(h->call->in[DY].data, at, type), rows, padded, width, 1, type,
                       w->dy);
    cpu_attention_pack(a, cpu_at(h->call->in[Y].data, at, type), rows, padded, width, 1, type,
                       w->k);
    cpu_attention_panels(a, w->q, padded, w->qt);
    cpu_attention_panels(a, w->dy, padded, w->dyt);
    cpu_attention_panels(a, w->k, padded, yt);
    for (int64_t i = 0; i < padded; i++) w->lse[i] = i < rows ? lse[i] : 0, w->delta[i] = 0;
    for (int64_t p = 0; p < padded; p += PANEL)
        for (int64_t d = 0; d < a->size; d++)
#pragma omp simd
            for (int i = 0; i < PANEL; i++) {
                const int64_t e = p * a->wide + d * PANEL + i;
                w->delta[p + i] = cpu_fma(yt[e], w->dyt[e], w->delta[p + i]);
            }
}

/* The probabilities that were kept of a panel of queries from position t, `count` keys from `key`. */
static void load_kept(const head_t *h, const work_t *w, int64_t t, int64_t queries, int64_t key,
                      int64_t count, float *p) {
    const int64_t steps = h->a->steps, index = h->at.sample * h->a->heads + h->at.index;
    const float *kept = (const float *)h->call->in[KEPT].data + (index * steps + t) * steps + key;
    memset(w->rows, 0, BLOCK * PANEL * sizeof(float));
    for (int64_t i = 0; i < queries; i++)
        memcpy(w->rows + i * BLOCK, kept + i * steps, (size_t)count * sizeof(float));
    cpu_tile_transpose(w->rows, PANEL, cpu_attention_pad(count), BLOCK, p, BLOCK);
}

/* A panel of queries, `at` of its block of `queries` rows, and `count` keys from `key`. Makes w->p
 * and w->ds. */
static void panel_backward(const head_t *h, const work_t *w, int64_t first, int64_t at,
                           int64_t queries, int64_t key, int64_t count) {
    const cpu_attention_t *a = h->a;
    const int64_t t = first + at, past = t + PANEL - key, seen = past < count ? past : count,
                  some = queries - at < PANEL ? queries - at : PANEL;
    const bool is_kept = cpu_present(&h->call->in[KEPT]);
    const float *lse = w->lse + at, *delta = w->delta + at;
    float *p = w->p + at, *ds = w->ds + at;
    if (is_kept) {
        load_kept(h, w, t, some, key, seen, p);
    } else {
        cpu_tile_product(seen, PANEL, a->size, (cpu_tile_a_t){w->k, a->wide, 1},
                         w->qt + at * a->wide, PANEL, false, p, BLOCK);
        for (int64_t k = 0; k < seen; k++)
#pragma omp simd
            for (int i = 0; i < PANEL; i++)
                p[k * BLOCK + i] = cpu_exp_nonpositive(p[k * BLOCK + i] - lse[i]);
    }
    cpu_tile_product(seen, PANEL, a->size, (cpu_tile_a_t){w->v, a->wide, 1}, w->dyt + at * a->wide,
                     PANEL, false, ds, BLOCK);
    if (a->sample_id) {
        cpu_attention_factors(a, &h->at, t, some, key, seen, w->rows, w->factor);
        for (int64_t k = 0; k < seen; k++)
#pragma omp simd
            for (int i = 0; i < PANEL; i++) {
                const float factor = w->factor[k * PANEL + i], value = p[k * BLOCK + i];
                ds[k * BLOCK + i] = value * (ds[k * BLOCK + i] * factor - delta[i]);
                p[k * BLOCK + i] = value * factor;
            }
    } else {
        for (int64_t k = 0; k < seen; k++)
#pragma omp simd
            for (int i = 0; i < PANEL; i++)
                ds[k * BLOCK + i] = p[k * BLOCK + i] * (ds[k * BLOCK + i] - delta[i]);
    }
    cpu_attention_hide(t, key, seen, 0, p, BLOCK);
    cpu_attention_hide(t, key, seen, 0, ds, BLOCK);
}

/* A block of queries, which is loaded, and one of keys. */
static void pair_backward(const head_t *h, const work_t *w, int64_t block, int64_t key_block) {
    const cpu_attention_t *a = h->a;
    const int64_t first = block * BLOCK, key = key_block * BLOCK, wide = a->wide,
                  queries = cpu_attention_bwd_rows(a, block),
                  keys = cpu_attention_bwd_rows(a, key_block);
    const bool is_diagonal = block == key_block, adds = !is_diagonal; /* it comes first */
    float *dq = h->dq + first * wide, *dk = h->dk + key * wide, *dv = h->dv + key * wide;
    cpu_attention_pack(a, cpu_at(h->at.k, key * a->row, h->at.type), keys, keys, a->row, 1,
                       h->at.type, w->k);
    cpu_attention_pack(a, cpu_at(h->at.v, key * a->row, h->at.type), keys, keys, a->row, 1,
                       h->at.type, w->v);
    for (int64_t at = 0; at < queries; at += PANEL)
        panel_backward(h, w, first, at, queries, key, keys);
    /* on the diagonal, a panel at a time, without what is hidden from all of it */
    const int64_t step = is_diagonal ? PANEL : BLOCK;
    for (int64_t k = 0; k < keys; k += step) {
        const int64_t some = keys - k < step ? keys - k : step, from = is_diagonal ? k : 0,
                      at = k * BLOCK + from;
        cpu_tile_product(some, wide, queries - from, (cpu_tile_a_t){w->p + at, BLOCK, 1},
                         w->dy + from * wide, wide, adds, dv + k * wide, wide);
        cpu_tile_product(some, wide, queries - from, (cpu_tile_a_t){w->ds + at, BLOCK, 1},
                         w->q + from * wide, wide, adds, dk + k * wide, wide);
    }
    for (int64_t i = 0; i < queries; i += step) {
        const int64_t some = queries - i < step ? queries - i : step,
                      seen = is_diagonal && i + PANEL < keys ? i + PANEL : keys;
        cpu_tile_product(some, wide, seen, (cpu_tile_a_t){w->ds + i, 1, BLOCK}, w->k, wide, adds,
                         dq + i * wide, wide);
    }
}

/* The sums of a block are complete: part 0 of dqkv is that of queries, 1 of keys, 2 of values. */
static void store_block(const head_t *h, int64_t block, int part, const float *sums, float factor) {
    const cpu_attention_t *a = h->a;
    const int64_t first = block * BLOCK, rows = cpu_attention_bwd_rows(a, block);
    const int64_t at =
        (h->at.sample * a->steps + first) * a->row + (part * a->heads + h->at.index) * a->size;
    sums += first * a->wide;
    CPU_BY_TYPE(
        h->at.type, type, for (int64_t i = 0; i < rows; i++) {
            void *to = cpu_at_out(h->call->out[0].data, at + i * a->row, type);
            for (int64_t d = 0; d < a->size; d++)
                cpu_put(to, d, sums[i * a->wide + d] * factor, type);
        });
}

static void store_complete(const head_t *h, int64_t blocks, int64_t block, int64_t key_block) {
    if (key_block == 0) store_block(h, block, 0, h->dq, h->a->scale);
    if (block + 1 < blocks) return;
    store_block(h, key_block, 1, h->dk, 1);
    store_block(h, key_block, 2, h->dv, 1);
}

CPU_KERNEL(attention_bwd) {
    const cpu_attention_t a = cpu_attention_of(call, &call->in[QKV], SAMPLE_ID);
    const shares_t s = cpu_attention_bwd_shares(device, &a);
    const int64_t elems = cpu_attention_bwd_work_elems(&a), sums_elems = 3 * a.tall * a.wide;
    float *sums = (float *)call->scratch + s.threads * elems;
#pragma omp parallel num_threads(s.threads)
    {
        const int thread = omp_get_thread_num();
        const work_t w = cpu_attention_bwd_work_at(&a, (float *)call->scratch + thread * elems);
        for (int64_t wave = 0; s.by_waves && wave < s.blocks; wave++)
#pragma omp for schedule(dynamic)
            for (int64_t i = 0; i < s.heads * (s.blocks - wave); i++) {
                const int64_t index = i % s.heads, key_block = i / s.heads,
                              block = key_block + wave;
                const head_t h = cpu_attention_bwd_head(&a, call, index, sums + index * sums_elems);
                load_queries(&h, &w, block);
                pair_backward(&h, &w, block, key_block);
                store_complete(&h, s.blocks, block, key_block);
            }
#pragma omp for schedule(dynamic)
        for (int64_t index = 0; index < (s.by_waves ? 0 : s.heads); index++) {
            const head_t h = cpu_attention_bwd_head(&a, call, index, sums + thread * sums_elems);
            for (int64_t block = 0; block < s.blocks; block++) {
                load_queries(&h, &w, block);
                for (int64_t key_block = block; key_block >= 0; key_block--) {
                    pair_backward(&h, &w, block, key_block);
                    store_complete(&h, s.blocks, block, key_block);
                }
            }
        }
    }
    return TR_OK;
}
