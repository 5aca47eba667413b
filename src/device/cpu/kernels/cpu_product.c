/*
 * Products of f32 matrices, as Goto and van de Geijn 2008 block them: a panel of B, some columns of
 * a block of the inner dimension, stays in the first cache, while the rows of A, packed in tiles,
 * come from the second one. All threads pack A; then each packs the columns of B that it needs.
 */
#include "device/cpu/cpu_product.h"
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_math.h"
#include "device/cpu/cpu_tile.h"
#include "base/int_math.h"
#include "base/mem.h"

enum {
    ROWS = CPU_TILE_ROWS,
    PANEL = CPU_TILE_PANEL,
    DEPTH = 256,              /* most of a block of the inner dimension */
    BLOCK_TILES = 264 / ROWS, /* tiles of A in the second cache */
    PACK_TILES = 8,           /* tiles that are packed together */
    CHUNK = 64,               /* most columns of B that are packed together */
    PACKED = 1 << 20,         /* about as many elements of A are packed at a time */
    LINE = 16,                /* elements of a cache line */
    PARALLEL = 65536          /* multiply-adds; for fewer, other threads take longer to start */
};

struct cpu_product {
    cpu_dnn_t *dnn; /* NULL: our own */
    cpu_dnn_desc_t desc;
    int64_t rows, columns, inner;
    int64_t depth;      /* of a block of the inner dimension */
    int64_t span_inner; /* of what is packed of A at a time, a multiple of depth, and its rows, a */
    int64_t span_rows;  /* multiple of block_rows */
    int64_t block_rows; /* a multiple of ROWS */
    int64_t tile_elems; /* from one packed tile to the next */
    int64_t chunks;     /* parts of the columns */
};

/* What a run multiplies; of A the rows from i on, and of the inner dimension [k, last). */
typedef struct {
    const cpu_product_t *p;
    const float *a, *b, *bias;
    float *c, *packed;
    int64_t i, rows, k, last;
} span_t;

/* -- packing ----------------------------------------------------------------------------------- */

/* The first `count` elements of CPU_VEC_LANES rows, a multiple of that, as columns: vectors that are
 * `apart` elements apart, of which each may overlap the one before it. */
static void pack_transposed(const float *const *row, int64_t count, int64_t apart, float *out) {
    const float *from[CPU_VEC_LANES];
    for (int l = 0; l < CPU_VEC_LANES; l++) from[l] = row[l];
    for (int64_t k = 0; k < count; k += CPU_VEC_LANES) {
        cpu_vec_t v[CPU_VEC_LANES];
#pragma GCC unroll 16
        for (int l = 0; l < CPU_VEC_LANES; l++) v[l] = cpu_vec_load(from[l] + k);
        cpu_vec_transpose(v);
#pragma GCC unroll 16
        for (int l = 0; l < CPU_VEC_LANES; l++) cpu_vec_store(out + (k + l) * apart, v[l]);
    }
}

/* Up to PACK_TILES tiles of A, from tile `first` of the span on: out (tile, inner, ROWS). A vector
 * that is stored overlaps the next one, which comes later, or the end of its tile. */
static void pack_a(const span_t *s, int64_t first) {
    const cpu_product_t *p = s->p;
    const int64_t row = p->desc.src.stride[0], column = p->desc.src.stride[1], n = s->last - s->k,
                  end = min64(first + PACK_TILES, ceil_div(s->rows, ROWS));
    const float *a = s->a + s->i * row + s->k * column;
    const bool is_wide = CPU_VEC_LANES >= ROWS;
    int64_t tile = first;
    if (is_wide && row == 1) {
        int64_t whole = first;
        while (whole < end && whole * ROWS + CPU_VEC_LANES <= s->rows) whole++;
        for (int64_t k = 0; k < n; k++)
            for (tile = first; tile < whole; tile++)
                cpu_vec_store(s->packed + tile * p->tile_elems + k * ROWS,
                              cpu_vec_load(a + k * column + tile * ROWS));
    }
    for (; tile < end; tile++) {
        float *out = s->packed + tile * p->tile_elems;
        const float *from[CPU_VEC_LANES > ROWS ? CPU_VEC_LANES : ROWS];
        int64_t k = 0;
        for (int64_t r = 0; r < (int64_t)(sizeof from / sizeof *from); r++)
            from[r] = a + min64(tile * ROWS + r, s->rows - 1) * row;
        if (is_wide && column == 1) {
            k = n - n % CPU_VEC_LANES;
            pack_transposed(from, k, ROWS, out);
        }
        for (; k < n; k++)
            for (int r = 0; r < ROWS; r++) out[k * ROWS + r] = from[r][k * column];
    }
}

/* `columns` columns of B from j on, and `depth` of the inner dimension from k on: out (panel, depth,
 * PANEL). What is behind the columns is 0 or a copy of the last one. */
static void pack_b(const span_t *s, int64_t j, int64_t columns, int64_t k, int64_t depth,
                   float *out) {
    const int64_t row = s->p->desc.weights.stride[0], column = s->p->desc.weights.stride[1];
    const float *b = s->b + k * row + j * column;
    for (int64_t at = 0; at < columns; at += PANEL, out += depth * PANEL) {
        const int64_t some = min64(columns - at, PANEL);
        int64_t d = 0;
        for (; column == 1 && some == PANEL && d < depth; d++)
#pragma GCC unroll 2
            for (int v = 0; v < PANEL; v += CPU_VEC_LANES)
                cpu_vec_store(out + d * PANEL + v, cpu_vec_load(b + d * row + at + v));
        if (row == 1) d = depth - depth % CPU_VEC_LANES;
        for (int h = 0; row == 1 && h < PANEL; h += CPU_VEC_LANES) {
            const float *from[CPU_VEC_LANES];
            for (int l = 0; l < CPU_VEC_LANES; l++)
                from[l] = b + min64(at + h + l, columns - 1) * column;
            pack_transposed(from, d, PANEL, out + h);
        }
        for (; d < depth; d++)
            for (int64_t c = 0; c < PANEL; c++)
                out[d * PANEL + c] = c < some ? b[d * row + (at + c) * column] : 0;
    }
}

/* Brings what pack_b reads to the second cache: part `part` of `parts`. */
static void fetch_b(const span_t *s, cpu_range_t columns, int64_t k, int64_t depth, int64_t part,
                    int64_t parts) {
    const int64_t row = s->p->desc.weights.stride[0], column = s->p->desc.weights.stride[1],
                  some = columns.last - columns.first;
    const int64_t runs = column == 1 ? depth : some, run = column == 1 ? some : depth,
                  apart = column == 1 ? row : column;
    const float *b = s->b + k * row + columns.first * column;
    for (int64_t r = runs * part / parts; r < runs * (part + 1) / parts; r++)
        for (int64_t at = 0; at < run; at += LINE) __builtin_prefetch(b + r * apart + at, 0, 2);
}

/* -- multiplying ------------------------------------------------------------------------------- */

/* A tile of `rows` rows, a constant, and a panel. bias (PANEL) or NULL. */
CPU_VECTOR void tile_product(int rows, int64_t depth, const float *a, const float *b, bool add,
                             const float *bias, float *c, int64_t c_row) {
    cpu_vec_t sum[ROWS][2];
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++) {
        sum[i][0] = sum[i][1] = cpu_vec_all(0);
        __builtin_prefetch(c + i * c_row, 1);
        __builtin_prefetch(c + i * c_row + PANEL - 1, 1);
    }
    for (int64_t k = 0; k < depth; k++, a += ROWS, b += PANEL) {
        const cpu_vec_t right[2] = {cpu_vec_pin(cpu_vec_load(b)),
                                    cpu_vec_pin(cpu_vec_load(b + CPU_VEC_LANES))};
#pragma GCC unroll 12
        for (int i = 0; i < rows; i++) {
            const cpu_vec_t left = cpu_vec_all(a[i]);
            sum[i][0] = cpu_vec_fma(left, right[0], sum[i][0]);
            sum[i][1] = cpu_vec_fma(left, right[1], sum[i][1]);
        }
    }
#pragma GCC unroll 12
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int v = 0; v < 2; v++) {
            float *to = c + i * c_row + v * CPU_VEC_LANES;
            if (add) sum[i][v] += cpu_vec_load(to);
            if (bias) sum[i][v] += cpu_vec_load(bias + v * CPU_VEC_LANES);
            cpu_vec_store(to, sum[i][v]);
        }
}

#define TILE_CASE(n)                                                                               \
    case n: tile_product(n, depth, a, b, add, bias, c, c_row); break
static void any_tile_product(int64_t rows, int64_t depth, const float *a, const float *b, bool add,
                             const float *bias, float *c, int64_t c_row) {
    switch (rows) {
        TILE_CASE(1);
        TILE_CASE(2);
        TILE_CASE(3);
        TILE_CASE(4);
        TILE_CASE(5);
#if CPU_VEC_LANES == 16
        TILE_CASE(6);
        TILE_CASE(7);
        TILE_CASE(8);
        TILE_CASE(9);
        TILE_CASE(10);
        TILE_CASE(11);
#endif
    default: tile_product(ROWS, depth, a, b, add, bias, c, c_row);
    }
}
#undef TILE_CASE

/* The same where C has only `columns` columns. */
static void edge_product(int64_t rows, int64_t columns, int64_t depth, const float *a,
                         const float *b, bool add, const float *bias, float *c, int64_t c_row) {
    float edge[ROWS * PANEL];
    any_tile_product(rows, depth, a, b, false, NULL, edge, PANEL);
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++) {
            float sum = edge[i * PANEL + j];
            if (add) sum += c[i * c_row + j];
            if (bias) sum += bias[j];
            c[i * c_row + j] = sum;
        }
}

/* A block of rows times a chunk of columns. b: a thread's memory for a packed chunk. */
static void block_product(const span_t *s, int64_t block, int64_t chunk, float *b) {
    const cpu_product_t *p = s->p;
    const cpu_range_t part = cpu_range(p->columns, PANEL, (int)p->chunks, (int)chunk);
    const cpu_range_t next =
        cpu_range(p->columns, PANEL, (int)p->chunks, (int)((chunk + 1) % p->chunks));
    const int64_t first = block * p->block_rows, last = min64(first + p->block_rows, s->rows),
                  c_row = p->desc.dst.stride[0];
    for (int64_t k = s->k; k < s->last; k += p->depth) {
        const int64_t depth = min64(s->last - k, p->depth);
        const bool add = p->desc.beta != 0.0f || k > 0;
        const float *bias = k + depth == p->inner ? s->bias : NULL;
        const bool goes_on = k + depth < s->last;
        const int64_t next_k = goes_on ? k + depth : s->k,
                      next_depth = min64(s->last - next_k, p->depth),
                      tiles = ceil_div(last - first, ROWS),
                      parts = tiles * ceil_div(part.last - part.first, PANEL);
        int64_t done = 0;
        pack_b(s, part.first, part.last - part.first, k, depth, b);
        for (int64_t j = part.first; j < part.last; j += PANEL) {
            const float *panel = b + (j - part.first) * depth;
            for (int64_t i = first; i < last; i += ROWS) {
                const float *a = s->packed + i / ROWS * p->tile_elems + (k - s->k) * ROWS;
                float *c = s->c + (s->i + i) * c_row + j;
                const int64_t rows = min64(last - i, ROWS), columns = part.last - j;
                fetch_b(s, goes_on ? part : next, next_k, next_depth, done++, parts);
                if (columns >= PANEL)
                    any_tile_product(rows, depth, a, panel, add, bias ? bias + j : NULL, c, c_row);
                else
                    edge_product(rows, columns, depth, a, panel, add, bias ? bias + j : NULL, c,
                                 c_row);
            }
        }
    }
}

static void own_product(const cpu_product_t *p, const cpu_dnn_data_t *data, float *scratch) {
    float *const chunk_b = scratch + p->span_rows / ROWS * p->tile_elems;
#pragma omp parallel num_threads(p->desc.threads)
    {
        float *const b = chunk_b + omp_get_thread_num() * p->depth * CHUNK;
        span_t s = {.p = p,
                    .a = data->src,
                    .b = data->weights,
                    .c = data->dst,
                    .bias = p->desc.bias.ndim ? data->bias : NULL,
                    .packed = scratch};
        for (s.i = 0; s.i < p->rows; s.i += p->span_rows)
            for (s.k = 0; s.k < p->inner; s.k += p->span_inner) {
                s.rows = min64(p->rows - s.i, p->span_rows);
                s.last = min64(p->inner, s.k + p->span_inner);
                const int64_t tiles = ceil_div(s.rows, ROWS),
                              blocks = ceil_div(s.rows, p->block_rows);
#pragma omp for schedule(static)
                for (int64_t tile = 0; tile < tiles; tile += PACK_TILES) pack_a(&s, tile);
#pragma omp for schedule(static)
                for (int64_t i = 0; i < blocks * p->chunks; i++)
                    block_product(&s, i / p->chunks, i % p->chunks, b);
            }
    }
}

/* -- choosing ---------------------------------------------------------------------------------- */

/* `whole` in equal parts of at most `most`, which are multiples of `align`. */
static int64_t part_of_at_most(int64_t whole, int64_t most, int64_t align) {
    const int64_t parts = ceil_div(whole, most), part = ceil_div(whole, parts);
    return ceil_div(part, align) * align;
}

static void cpu_product_plan(cpu_product_t *p) {
    const int64_t panels = ceil_div(p->columns, PANEL), threads = p->desc.threads;
    p->depth = part_of_at_most(p->inner, DEPTH, LINE);
    p->block_rows = part_of_at_most(p->rows, BLOCK_TILES * ROWS, ROWS);
    const int64_t depths = ceil_div(p->inner, p->depth), blocks = ceil_div(p->rows, p->block_rows),
                  block_elems = p->block_rows * p->depth, fit = max64(PACKED / block_elems, 1),
                  span_depths = min64(depths, fit), more = fit / span_depths,
                  span_blocks = min64(blocks, max64(more, threads));
    p->span_inner = span_depths * p->depth;
    p->span_rows = span_blocks * p->block_rows;
    p->tile_elems = p->span_inner * ROWS + 2 * LINE;
    p->chunks = ceil_div(p->columns, CHUNK);
    if (span_blocks * p->chunks < 4 * threads)
        p->chunks = min64(panels, ceil_div(p->chunks, threads) * threads);
}

static bool cpu_product_can(const cpu_dnn_desc_t *d) {
    return d->src.ndim == 2 && d->src.dtype == TR_F32 && d->weights.dtype == TR_F32 &&
           d->dst.dtype == TR_F32 && d->dst.stride[1] == 1 && d->alpha == 1.0f &&
           (d->beta == 0.0f || d->beta == 1.0f) && d->act == TR_ACT_NONE;
}

/*
 * Where ours was measured to be faster, on one thread with AVX2: where oneDNN reads a matrix where it
 * lies, and its rows fall on few lines of the first cache or come from memory. GFLOP/s of oneDNN and
 * of ours, of 102 at most: gradients of small weights 63 to 78 and 78 to 88; rows of B that are a
 * multiple of 2 KiB apart 43 and 82; B transposed and larger than the caches 77 to 80 and 86. Else
 * oneDNN has 85 to 97.
 */
enum { FEWEST = 48, MOST = 512, SMALL = 1 << 18, LARGE = 1 << 20 };

static bool cpu_product_is_faster(const cpu_dnn_desc_t *d) {
    const int64_t rows = d->dst.dim[0], columns = d->dst.dim[1], inner = d->src.dim[1];
    const bool trans_a = d->src.stride[1] != 1, trans_b = d->weights.stride[1] != 1;
    if (!tr_cpu_dnn_is_avx2()) return false;
    if (trans_a) return columns % 128 == 0 && rows >= 96 && rows * columns <= SMALL;
    if (rows < FEWEST || rows > MOST) return false;
    return trans_b ? inner * columns >= LARGE : columns % 512 == 0;
}

tr_status_t tr_cpu_product_create(const cpu_dnn_desc_t *desc, cpu_product_t **out) {
    cpu_product_t *p = NULL;
    *out = NULL;
    TR_TRY(tr_alloc(sizeof *p, "a product", &p));
    p->desc = *desc;
    tr_status_t status = TR_OK;
    if (cpu_product_can(desc) && cpu_product_is_faster(desc)) {
        p->rows = desc->dst.dim[0], p->columns = desc->dst.dim[1], p->inner = desc->src.dim[1];
        if (p->rows * p->columns * p->inner < PARALLEL) p->desc.threads = 1;
        cpu_product_plan(p);
    } else {
        status = tr_cpu_dnn_create(desc, &p->dnn);
    }
    if (status != TR_OK) return tr_free(&p), status;
    *out = p;
    return TR_OK;
}

void tr_cpu_product_destroy(cpu_product_t **product) {
    if (*product) tr_cpu_dnn_destroy(&(*product)->dnn);
    tr_free(product);
}

size_t tr_cpu_product_scratch_bytes(const cpu_product_t *p) {
    if (p->dnn) return tr_cpu_dnn_scratch_bytes(p->dnn);
    return (size_t)(p->span_rows / ROWS * p->tile_elems + p->desc.threads * p->depth * CHUNK) *
           sizeof(float);
}

tr_status_t tr_cpu_product_run(cpu_product_t *p, const cpu_dnn_data_t *data, void *scratch) {
    if (p->dnn) return tr_cpu_dnn_run(p->dnn, data, scratch);
    own_product(p, data, scratch);
    return TR_OK;
}
