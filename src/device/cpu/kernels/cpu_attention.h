/*
 * Shared by the forward and backward pass of attention. Private to src/device/cpu.
 *
 * Scores are computed in panels: a row for each of some keys, a lane for each of CPU_TILE_PANEL
 * queries. So the maximum and the sum of a query are found without sums across lanes, its keys and
 * values need no transposition, and a panel ends with the last key that one of its queries sees. The
 * running maximum and sum of a query follow Milakov and Gimelshein 2018 and Dao et al. 2022. Results
 * depend neither on the number of threads nor on the width of vectors.
 */
#ifndef TR_DEVICE_CPU_KERNELS_CPU_ATTENTION_H
#define TR_DEVICE_CPU_KERNELS_CPU_ATTENTION_H

#include "cpu_dropout.h"
#include "device/cpu/cpu_tile.h"
#include "device/cpu/cpu_types.h"

/* Queries of a block of the forward pass; keys of a block. */
enum { CPU_ATTENTION_QUERIES = 128, CPU_ATTENTION_KEYS = 64 };

static inline int64_t cpu_attention_pad(int64_t n) {
    return (n + CPU_TILE_ALIGN - 1) / CPU_TILE_ALIGN * CPU_TILE_ALIGN;
}

typedef struct {
    int64_t samples, steps, heads, size; /* B, T, H, D */
    int64_t row;                         /* elements from one token's q to the next one's: 3 C */
    int64_t wide, tall;                  /* D and T, padded to CPU_TILE_ALIGN */
    float scale;
    cpu_dropout_t dropout;
    const int64_t *sample_id; /* NULL: no dropout */
} cpu_attention_t;

/* ids: the index of the input sample_id; the step block follows it. No dropout in `prepare`. */
static inline cpu_attention_t cpu_attention_of(const tr_kernel_call_t *call, const tr_view_t *qkv,
                                               int ids) {
    const tr_attention_attr_t *attr = call->attr;
    cpu_attention_t a = {.samples = qkv->shape.dim[0],
                         .steps = qkv->shape.dim[1],
                         .heads = attr->heads,
                         .size = qkv->shape.dim[2] / 3 / attr->heads,
                         .row = qkv->shape.dim[2]};
    a.wide = cpu_attention_pad(a.size);
    a.tall = cpu_attention_pad(a.steps);
    a.scale = (float)(1 / sqrt((double)a.size));
    if (attr->p == 0.0f || !call->in[ids].data) return a;
    a.sample_id = call->in[ids].data;
    a.dropout = cpu_dropout_make(call->in[ids + 1].data, attr->stream, attr->p);
    return a;
}

/* Where a head of a sample lies. */
typedef struct {
    int64_t sample, index; /* index: of the head */
    const void *q, *k, *v; /* of the first query and the first position */
    int64_t q_row, kv_row; /* elements from one to the next */
    tr_dtype_t type, kv_type;
} cpu_attention_head_t;

/* out (all, wide) f32 = factor x of `rows` rows that are `stride` apart; the rest is 0. */
static inline void cpu_attention_pack(const cpu_attention_t *a, const void *x, int64_t rows,
                                      int64_t all, int64_t stride, float factor, tr_dtype_t dtype,
                                      float *restrict out) {
    CPU_BY_TYPE(
        dtype, t, for (int64_t i = 0; i < rows; i++) {
            for (int64_t d = 0; d < a->size; d++)
                out[i * a->wide + d] = factor * cpu_get(x, i * stride + d, t);
            for (int64_t d = a->size; d < a->wide; d++) out[i * a->wide + d] = 0;
        });
    for (int64_t i = rows * a->wide; i < all * a->wide; i++) out[i] = 0;
}

/* The rows of x (rows, wide) as the columns of panels, out (panels, wide, CPU_TILE_PANEL). */
static inline void cpu_attention_panels(const cpu_attention_t *a, const float *x, int64_t rows,
                                        float *out) {
    for (int64_t p = 0; p < rows; p += CPU_TILE_PANEL)
        cpu_tile_transpose(x + p * a->wide, CPU_TILE_PANEL, a->wide, a->wide, out + p * a->wide,
                           CPU_TILE_PANEL);
}
static inline int64_t cpu_attention_panel_rows(int64_t queries) {
    return (queries + CPU_TILE_PANEL - 1) / CPU_TILE_PANEL * CPU_TILE_PANEL;
}

/* Sets what the queries of a panel from position t do not see of `count` keys from position `key`:
 * x (count, panel), whose rows are `row` apart. */
static inline void cpu_attention_hide(int64_t t, int64_t key, int64_t count, float value, float *x,
                                      int64_t row) {
    for (int64_t k = t - key < 0 ? 0 : t - key + 1; k < count; k++) {
        const int64_t before = key + k - t,
                      hidden = before < CPU_TILE_PANEL ? before : CPU_TILE_PANEL;
        for (int64_t i = 0; i < hidden; i++) x[k * row + i] = value;
    }
}

/* Dropout factors of the probabilities of `queries` queries of a panel from position t for the keys
 * from `key`: factor (count, panel); rows (panel, count padded) is memory for it. */
static inline void cpu_attention_factors(const cpu_attention_t *a, const cpu_attention_head_t *h,
                                         int64_t t, int64_t queries, int64_t key, int64_t count,
                                         float *rows, float *factor) {
    uint32_t words[CPU_DROPOUT_TILE];
    const int64_t padded = cpu_attention_pad(count);
    for (int64_t i = 0; i < queries; i++, rows += padded) {
        const int64_t first = (h->index * a->steps + t + i) * a->steps + key, skip = first % 4;
        for (int64_t at = -skip; at < count; at += CPU_DROPOUT_TILE) {
            const int64_t from = at < 0 ? skip : 0, left = count - at,
                          n = left < CPU_DROPOUT_TILE ? left : CPU_DROPOUT_TILE;
            cpu_dropout_words(&a->dropout, a->sample_id[h->sample], first + at, n, words);
            for (int64_t j = from; j < n; j++)
                rows[at + j] = words[j] >= a->dropout.least ? a->dropout.factor : 0.0f;
        }
    }
    cpu_tile_transpose(rows - queries * padded, CPU_TILE_PANEL, padded, padded, factor,
                       CPU_TILE_PANEL);
}

/* -- forward ----------------------------------------------------------------------------------- */

/* A thread's memory: `cpu_attention_work_elems` floats. */
typedef struct {
    float *q;             /* panels of queries, (QUERIES, wide) elements */
    float *k, *v;         /* (keys, wide) */
    float *score;         /* (keys, panel) */
    float *out;           /* (QUERIES, wide) */
    float *max, *sum;     /* (QUERIES) */
    float *rows, *factor; /* (panel, keys), (keys, panel) */
    int64_t keys;         /* of a block, a multiple of CPU_TILE_ALIGN */
} cpu_attention_work_t;

static inline int64_t cpu_attention_work_elems(const cpu_attention_t *a, int64_t keys) {
    return 2 * CPU_ATTENTION_QUERIES * (a->wide + 1) + keys * (2 * a->wide + 3 * CPU_TILE_PANEL);
}

static inline cpu_attention_work_t cpu_attention_work_at(const cpu_attention_t *a, int64_t keys,
                                                         float *at) {
    cpu_attention_work_t w = {.keys = keys};
    w.q = at;
    w.out = w.q + CPU_ATTENTION_QUERIES * a->wide;
    w.k = w.out + CPU_ATTENTION_QUERIES * a->wide;
    w.v = w.k + keys * a->wide;
    w.score = w.v + keys * a->wide;
    w.rows = w.score + keys * CPU_TILE_PANEL;
    w.factor = w.rows + keys * CPU_TILE_PANEL;
    w.max = w.factor + keys * CPU_TILE_PANEL;
    w.sum = w.max + CPU_ATTENTION_QUERIES;
    return w;
}

/* w->out (rows, wide), to be divided by w->sum (rows): `rows` queries of a head, at most
 * CPU_ATTENTION_QUERIES, the first of which, h->q, has position `first`. kept: receives their
 * probabilities, which are a->steps apart, and needs w->keys of all positions; or NULL. */
void tr_cpu_attention_attend(const cpu_attention_t *a, const cpu_attention_work_t *w,
                             const cpu_attention_head_t *h, int64_t first, int64_t rows,
                             float *kept);

#endif
