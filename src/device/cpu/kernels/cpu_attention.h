/*
 * Shared by the forward and backward pass of attention. Private to src/device/cpu.
 *
 * A thread processes one head of one sample at a time. It copies the head's q, k and v to dense f32
 * matrices and loops over tiles of TILE queries by some keys, skipping tiles that are zero because
 * of causality. The running maximum and sum of a row follow Milakov and Gimelshein 2018 and Dao et
 * al. 2022. If probabilities are kept, a tile has all keys.
 */
#ifndef TR_DEVICE_CPU_KERNELS_CPU_ATTENTION_H
#define TR_DEVICE_CPU_KERNELS_CPU_ATTENTION_H

#include "cpu_dropout.h"
#include "device/cpu/cpu_tile.h"
#include "device/cpu/cpu_types.h"

enum { CPU_ATTENTION_TILE = 64 };

static inline int64_t cpu_attention_pad(int64_t n) {
    return (n + CPU_TILE_ALIGN - 1) / CPU_TILE_ALIGN * CPU_TILE_ALIGN;
}

typedef struct {
    int64_t samples, steps, heads, size; /* B, T, H, D */
    int64_t row;                         /* elements from one token's q to the next one's: 3 C */
    int64_t wide, tall;                  /* D and T, padded for cpu_tile.h */
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

/* out (rows, wide) f32 from x, whose rows are `stride` apart; columns beyond `size` are 0. */
CPU_INLINE void cpu_attention_pack(const void *x, int64_t rows, int64_t stride, int64_t size,
                                   int64_t wide, float *restrict out, int type) {
    for (int64_t i = 0; i < rows; i++, x = cpu_at(x, stride, type), out += wide) {
        for (int64_t d = 0; d < size; d++) out[d] = cpu_get(x, d, type);
        for (int64_t d = size; d < wide; d++) out[d] = 0;
    }
}

/* As above, transposed, in tiles of `keys` rows of x: out (tiles, size, keys); what is beyond `rows`
 * is 0. One wide matrix would put the rows of a tile on the same lines of the first cache. */
CPU_INLINE void cpu_attention_pack_transposed(const void *x, int64_t rows, int64_t stride,
                                              int64_t size, int64_t keys, float *restrict out,
                                              int type) {
    for (int64_t first = 0; first < rows; first += keys, out += size * keys) {
        const int64_t some = rows - first < keys ? rows - first : keys;
        for (int64_t i = 0; i < some; i++, x = cpu_at(x, stride, type))
            for (int64_t d = 0; d < size; d++) out[d * keys + i] = cpu_get(x, d, type);
        for (int64_t d = 0; d < size; d++)
            for (int64_t i = some; i < keys; i++) out[d * keys + i] = 0;
    }
}
/* Elements of what it makes. */
static inline int64_t cpu_attention_tiled(const cpu_attention_t *a, int64_t keys) {
    return (a->steps + keys - 1) / keys * keys * a->size;
}

/* A thread's memory: `cpu_attention_work_elems` floats. */
typedef struct {
    float *q, *kt, *v;          /* (TILE, wide), (tiles, size, keys), (tall, wide) */
    float *score, *out;         /* (TILE, keys), (TILE, wide) */
    float *max, *sum, *dropped; /* (TILE), (TILE), (keys) */
    int64_t keys;               /* of a tile */
} cpu_attention_work_t;

static inline int64_t cpu_attention_work_elems(const cpu_attention_t *a, int64_t keys) {
    return 2 * CPU_ATTENTION_TILE * a->wide + cpu_attention_tiled(a, keys) + a->tall * a->wide +
           CPU_ATTENTION_TILE * keys + 2 * CPU_ATTENTION_TILE + keys;
}

static inline cpu_attention_work_t cpu_attention_work_at(const cpu_attention_t *a, int64_t keys,
                                                         float *at) {
    cpu_attention_work_t w = {.keys = keys};
    w.q = at;
    w.kt = w.q + CPU_ATTENTION_TILE * a->wide;
    w.v = w.kt + cpu_attention_tiled(a, keys);
    w.score = w.v + a->tall * a->wide;
    w.out = w.score + CPU_ATTENTION_TILE * keys;
    w.max = w.out + CPU_ATTENTION_TILE * a->wide;
    w.sum = w.max + CPU_ATTENTION_TILE;
    w.dropped = w.sum + CPU_ATTENTION_TILE;
    return w;
}

/* w->out (rows, wide), to be divided by w->sum (rows): queries [first, first + rows) of a head, in
 * w->q, over the keys and values up to each, in w->kt and w->v. kept: receives their probabilities;
 * or NULL. */
void tr_cpu_attention_attend(const cpu_attention_t *a, const cpu_attention_work_t *w,
                             int64_t sample, int64_t head, int64_t first, int64_t rows,
                             float *kept);

/* factor[0 .. count): dropout factors of the probabilities of query `t` for the keys from `key`. */
static inline void cpu_attention_dropout(const cpu_attention_t *a, int64_t sample, int64_t head,
                                         int64_t t, int64_t key, int64_t count, float *factor) {
    uint32_t words[CPU_DROPOUT_TILE];
    const int64_t first = (head * a->steps + t) * a->steps + key, skip = first % 4;
    for (int64_t at = -skip; at < count; at += CPU_DROPOUT_TILE) {
        const int64_t from = at < 0 ? skip : 0, left = count - at,
                      n = left < CPU_DROPOUT_TILE ? left : CPU_DROPOUT_TILE;
        cpu_dropout_words(&a->dropout, a->sample_id[sample], first + at, n, words);
        for (int64_t i = from; i < n; i++)
            factor[at + i] = words[i] >= a->dropout.least ? a->dropout.factor : 0.0f;
    }
}

#endif
