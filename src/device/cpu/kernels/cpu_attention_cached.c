/* Attention to the cached keys and values of a text. One thread computes a head of a sample, so
 * that its result does not depend on anything else: a single query by dot products with the keys
 * where they lie, several by tiles. */
#include "cpu_attention.h"
#include <string.h>

enum { ROW, FIRST, COUNT, PLACE }; /* of a sample's place */
enum {
    LINE = 64,                         /* bytes of a cache line */
    AHEAD = 64,                        /* rows */
    WIDE = CPU_VEC_LANES == 16 ? 4 : 8 /* vectors of a head that are mixed at the same time */
};

static void append_row(const float *x, int64_t count, const tr_view_t *cache, int64_t at) {
    if (cache->dtype == TR_F32)
        memcpy((float *)cache->data + at, x, (size_t)count * sizeof *x);
    else
        tr_cpu_narrow(x, count, cache->data, at, cache->dtype);
}

CPU_KERNEL(cache_append) {
    const int32_t *place = call->in[1].data;
    const int64_t samples = call->in[0].shape.dim[0], steps = call->in[0].shape.dim[1],
                  width = call->in[0].shape.dim[2] / 3, positions = call->out[0].shape.dim[1];
    const float *qkv = call->in[0].data;
    for (int64_t b = 0; b < samples; b++, place += PLACE)
        for (int64_t t = 0; t < place[COUNT]; t++) {
            const float *from = qkv + (b * steps + t) * 3 * width;
            const int64_t at = (place[ROW] * positions + place[FIRST] + t) * width;
            append_row(from + width, width, &call->out[0], at);
            append_row(from + 2 * width, width, &call->out[1], at);
        }
    return TR_OK;
}

/* -- one query --------------------------------------------------------------------------------- */

/* What a head has of a row is too short for the processor to see what is read next. */
CPU_INLINE void fetch_row(const void *x, int64_t at, int64_t size, int type) {
    for (int64_t d = 0; d < size; d += LINE / (type == TR_F32 ? 4 : 2))
        __builtin_prefetch(cpu_at(x, at + d, type));
}

/* v[i] for i below half: of its pairs of `half` lanes, and those of v[i + half], the sums. */
CPU_VECTOR void add_halves(cpu_vec_t v[CPU_VEC_LANES], int half) {
#pragma GCC unroll 8
    for (int i = 0; i < half; i++) {
        cpu_vec_t low, high;
        cpu_vec_zip(v[i], v[i + half], half, &low, &high);
        v[i] = low + high;
    }
}

/* Lane i: the sum of the lanes of v[i]. */
CPU_VECTOR cpu_vec_t sums_of_lanes(cpu_vec_t v[CPU_VEC_LANES]) {
    if (CPU_VEC_LANES > 8) add_halves(v, 8 % CPU_VEC_LANES);
    if (CPU_VEC_LANES > 4) add_halves(v, 4 % CPU_VEC_LANES);
    add_halves(v, 2);
    add_halves(v, 1);
    return v[0];
}

/* score[0 .. seen): the products of q with the keys, which are `width` apart. Writes whole vectors. */
CPU_INLINE void query_score(const cpu_attention_t *a, const float *q, const void *keys,
                            int64_t width, int64_t seen, float *score, int type) {
    const int64_t whole = a->size - a->size % CPU_VEC_LANES;
    for (int64_t k = 0; k < seen; k += CPU_VEC_LANES) {
        cpu_vec_t sum[CPU_VEC_LANES];
#pragma GCC unroll 16
        for (int i = 0; i < CPU_VEC_LANES; i++) {
            const int64_t key = (k + i < seen ? k + i : k) * width;
            sum[i] = cpu_vec_all(0);
            fetch_row(keys, key + AHEAD * width, a->size, type);
            for (int64_t d = 0; d < whole; d += CPU_VEC_LANES)
                sum[i] = cpu_vec_fma(cpu_vec_load(q + d), cpu_vec_get(keys, key + d, type), sum[i]);
        }
        cpu_vec_store(score + k, sums_of_lanes(sum));
        for (int64_t i = k; whole < a->size && i < seen && i < k + CPU_VEC_LANES; i++)
            for (int64_t d = whole; d < a->size; d++)
                score[i] += q[d] * cpu_get(keys, i * width + d, type);
    }
}

/* y = the sum of the values with these weights, `vecs` vectors of it. */
CPU_VECTOR void query_mix(int vecs, const float *weight, const void *values, int64_t width,
                          int64_t seen, float *y, int type) {
    cpu_vec_t sum[WIDE];
#pragma GCC unroll 8
    for (int v = 0; v < vecs; v++) sum[v] = cpu_vec_all(0);
    for (int64_t k = 0; k < seen; k++) {
        fetch_row(values, (k + AHEAD) * width, vecs * CPU_VEC_LANES, type);
#pragma GCC unroll 8
        for (int v = 0; v < vecs; v++)
            sum[v] = cpu_vec_fma(cpu_vec_all(weight[k]),
                                 cpu_vec_get(values, k * width + v * CPU_VEC_LANES, type), sum[v]);
    }
#pragma GCC unroll 8
    for (int v = 0; v < vecs; v++) cpu_vec_store(y + v * CPU_VEC_LANES, sum[v]);
}

CPU_INLINE void query_attend(const cpu_attention_t *a, const float *q, const void *keys,
                             const void *values, int64_t width, int64_t seen, float *score,
                             float *y, int type) {
    float max = -INFINITY;
    double sum = 0;
    int64_t d = 0;
    query_score(a, q, keys, width, seen, score, type);
#pragma omp simd reduction(max : max)
    for (int64_t k = 0; k < seen; k++) {
        score[k] *= a->scale;
        max = score[k] > max ? score[k] : max;
    }
#pragma omp simd
    for (int64_t k = 0; k < seen; k++) score[k] = cpu_exp_nonpositive(score[k] - max);
    CPU_LANE_SUM(sum, seen, k, score[k]);
    for (; d + WIDE * CPU_VEC_LANES <= a->size; d += WIDE * CPU_VEC_LANES)
        query_mix(WIDE, score, cpu_at(values, d, type), width, seen, y + d, type);
    for (; d + CPU_VEC_LANES <= a->size; d += CPU_VEC_LANES)
        query_mix(1, score, cpu_at(values, d, type), width, seen, y + d, type);
    for (; d < a->size; d++) {
        y[d] = 0;
        for (int64_t k = 0; k < seen; k++) y[d] += score[k] * cpu_get(values, k * width + d, type);
    }
    const float share = (float)(1 / sum);
    for (d = 0; d < a->size; d++) y[d] *= share;
}

/* -- several queries --------------------------------------------------------------------------- */

static void queries_attend(const cpu_attention_t *a, const cpu_attention_work_t *w, const float *q,
                           const void *keys, const void *values, tr_dtype_t type, int64_t first,
                           int64_t count, float *y) {
    const int64_t width = a->row / 3;
    cpu_attention_head_t h = {
        .k = keys, .v = values, .q_row = a->row, .kv_row = width, .type = TR_F32, .kv_type = type};
    for (int64_t t = 0; t < count; t += CPU_ATTENTION_QUERIES) {
        const int64_t left = count - t,
                      rows = left < CPU_ATTENTION_QUERIES ? left : CPU_ATTENTION_QUERIES;
        h.q = q + t * a->row;
        tr_cpu_attention_attend(a, w, &h, first + t, rows, NULL);
        for (int64_t i = 0; i < rows; i++)
            for (int64_t d = 0; d < a->size; d++)
                y[(t + i) * width + d] = w->out[i * a->wide + d] / w->sum[i];
    }
}

/* -- the kernel -------------------------------------------------------------------------------- */

/* With the positions of the caches as steps. */
static cpu_attention_t cached_of(const tr_kernel_call_t *call) {
    cpu_attention_t a = cpu_attention_of(call, &call->in[0], PLACE);
    a.steps = call->in[2].shape.dim[1];
    a.tall = cpu_attention_pad(a.steps);
    return a;
}

static int64_t cached_elems(const cpu_attention_t *a, int64_t queries) {
    return queries == 1 ? a->tall : cpu_attention_work_elems(a, CPU_ATTENTION_KEYS);
}

CPU_KERNEL_PREPARE(attention_cached) {
    const cpu_attention_t a = cached_of(call);
    *out_state = NULL;
    *out_scratch_bytes =
        (size_t)(device->threads * cached_elems(&a, call->in[0].shape.dim[1])) * sizeof(float);
    return TR_OK;
}

static void cached_head(const cpu_attention_t *a, const tr_kernel_call_t *call, int64_t b,
                        int64_t head, float *work) {
    const int32_t *place = (const int32_t *)call->in[1].data + b * PLACE;
    const int64_t steps = call->in[0].shape.dim[1], width = a->row / 3, at = head * a->size,
                  row = place[ROW] * a->steps * width + at, first = place[FIRST],
                  count = place[COUNT];
    const tr_dtype_t type = call->in[2].dtype;
    const float *q = (const float *)call->in[0].data + b * steps * a->row + at;
    const void *keys = cpu_at(call->in[2].data, row, type),
               *values = cpu_at(call->in[3].data, row, type);
    float *y = (float *)call->out[0].data + b * steps * width + at;
    for (int64_t t = count; t < steps; t++) memset(y + t * width, 0, (size_t)a->size * sizeof *y);
    if (count == 0) return;
    if (steps == 1) {
        CPU_BY_TYPE(type, t, query_attend(a, q, keys, values, width, first + 1, work, y, t));
        return;
    }
    const cpu_attention_work_t w = cpu_attention_work_at(a, CPU_ATTENTION_KEYS, work);
    queries_attend(a, &w, q, keys, values, type, first, count, y);
}

CPU_KERNEL(attention_cached) {
    const cpu_attention_t a = cached_of(call);
    const int64_t queries = call->in[0].shape.dim[1], elems = cached_elems(&a, queries);
    const int threads = cpu_threads(device, a.samples * queries * a.row * a.steps);
#pragma omp parallel for num_threads(threads) schedule(static, 1)
    for (int64_t i = 0; i < a.samples * a.heads; i++)
        cached_head(&a, call, i / a.heads, i % a.heads,
                    (float *)call->scratch + omp_get_thread_num() * elems);
    return TR_OK;
}
