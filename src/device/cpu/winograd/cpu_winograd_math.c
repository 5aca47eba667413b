/*
 * The arithmetic of Winograd's minimal filtering (Winograd 1980; Lavin and Gray 2016) on 6 x 6
 * tiles: transforms and products. In one dimension, for a filter g of r values, m = 7 - r outputs y
 * and 6 inputs d:
 *
 *     y = A' [(G g) . (B' d)]        dg = G' [(A dy) . (B' d)]
 *
 * In two dimensions, the same is applied to rows and columns. For each of the 36 places of a tile,
 * the products in brackets are one matrix product over channels (forward) or over tiles (gradient
 * of the filters).
 *
 * G and A evaluate a polynomial at the points 0, +-a, +-b and infinity, so one function (`spread`)
 * serves both, and its transpose (`collect`) serves A' and G'. G has an additional factor per
 * point. B' follows from the points. With a = sqrt(1/2) and b = sqrt(2), rounding errors are 1.5 to
 * 4 times those of direct sums (measured against double), twice on average; with the usual 1 and 2,
 * they are 4 to 5 times as large.
 */
#include "cpu_winograd_int.h"

enum {
    SIDE = CPU_WINO_SIDE,
    PLACES = CPU_WINO_PLACES,
    PANEL = CPU_WINO_PANEL,
    LANES = CPU_VEC_LANES,
    ROWS = 6,             /* of a product summed in registers */
    FETCH_ELEMS = 1 << 15 /* of rows of pixels that stay in the second cache until they are used */
};

static const float A1 = 0.70710678f, B1 = 1.41421356f;

/* 1 / prod (p_i - p_j) over the finite points j. */
static const float point_factor[SIDE] = {1, -2 / 3.0f, -2 / 3.0f, 1 / 6.0f, 1 / 6.0f, 1};

/* -- transforms in one dimension --------------------------------------------------------------- */

CPU_VECTOR void spread(const cpu_vec_t *g, int count, cpu_vec_t out[SIDE]) {
    const cpu_vec_t half = cpu_vec_all(0.5f), two = cpu_vec_all(2), a = cpu_vec_all(A1),
                    b = cpu_vec_all(B1);
    cpu_vec_t even_a = g[0], even_b = g[0], odd_a = g[1], odd_b = g[1];
    if (count > 2)
        even_a = cpu_vec_fma(half, g[2], even_a), even_b = cpu_vec_fma(two, g[2], even_b);
    if (count > 3) odd_a = cpu_vec_fma(half, g[3], odd_a), odd_b = cpu_vec_fma(two, g[3], odd_b);
    if (count > 4) {
        even_a = cpu_vec_fma(cpu_vec_all(0.25f), g[4], even_a);
        even_b = cpu_vec_fma(cpu_vec_all(4), g[4], even_b);
    }
    out[0] = g[0];
    out[1] = cpu_vec_fma(a, odd_a, even_a);
    out[2] = cpu_vec_fma(-a, odd_a, even_a);
    out[3] = cpu_vec_fma(b, odd_b, even_b);
    out[4] = cpu_vec_fma(-b, odd_b, even_b);
    out[5] = g[count - 1];
}

CPU_VECTOR void collect(const cpu_vec_t u[SIDE], int count, cpu_vec_t *out) {
    const cpu_vec_t half = cpu_vec_all(0.5f), two = cpu_vec_all(2);
    cpu_vec_t even_a = u[1] + u[2], even_b = u[3] + u[4];
    cpu_vec_t odd_a = cpu_vec_all(A1) * (u[1] - u[2]), odd_b = cpu_vec_all(B1) * (u[3] - u[4]);
    out[0] = u[0] + (even_a + even_b);
    out[1] = odd_a + odd_b;
    if (count > 2) out[2] = cpu_vec_fma(half, even_a, two * even_b);
    if (count > 3) out[3] = cpu_vec_fma(half, odd_a, two * odd_b);
    if (count > 4) out[4] = cpu_vec_fma(cpu_vec_all(0.25f), even_a, cpu_vec_all(4) * even_b);
    out[count - 1] += u[5];
}

CPU_VECTOR void input(const cpu_vec_t d[SIDE], cpu_vec_t out[SIDE]) {
    const cpu_vec_t half = cpu_vec_all(-0.5f), two = cpu_vec_all(-2), sum = cpu_vec_all(-2.5f);
    const cpu_vec_t a = cpu_vec_all(A1), b = cpu_vec_all(B1);
    cpu_vec_t even_a = cpu_vec_fma(two, d[2], d[4]), odd_a = cpu_vec_fma(two, d[1], d[3]);
    cpu_vec_t even_b = cpu_vec_fma(half, d[2], d[4]), odd_b = cpu_vec_fma(half, d[1], d[3]);
    out[0] = cpu_vec_fma(sum, d[2], d[0] + d[4]);
    out[1] = cpu_vec_fma(a, odd_a, even_a);
    out[2] = cpu_vec_fma(-a, odd_a, even_a);
    out[3] = cpu_vec_fma(b, odd_b, even_b);
    out[4] = cpu_vec_fma(-b, odd_b, even_b);
    out[5] = cpu_vec_fma(sum, d[3], d[1] + d[5]);
}

/* -- tiles, all their channels ----------------------------------------------------------------- */

typedef struct {
    int64_t image, row, column; /* of its first output */
} tile_t;

static tile_t tile_at(const cpu_wino_tiles_t *tiles, int64_t tile) {
    const int m = SIDE + 1 - tiles->conv.size;
    const cpu_wino_part_t *part = &tiles->part[CPU_WINO_PARTS - 1];
    while (tile < part->first) part--;
    const int64_t size = part->rows * part->columns, at = (tile - part->first) % size;
    return (tile_t){(tile - part->first) / size, (part->row + at / part->columns) * m,
                    (part->column + at % part->columns) * m};
}

CPU_VECTOR int64_t pixel_at(const cpu_images_t *images, tile_t from, int64_t plane) {
    return ((from.image * images->d + plane) * images->h + from.row) * images->w + from.column;
}

/* Fetches what the tile below reads or writes first, `side` x `side` pixels from row `from.row` on.
 * Tiles have many short rows, which the prefetchers of processors do not follow. */
CPU_VECTOR void fetch_below(const cpu_images_t *images, const void *data, tile_t from,
                            int64_t plane, int side, bool writes, int type) {
    const int64_t first = pixel_at(images, from, plane), row = images->w * images->c,
                  line = type == TR_F32 ? 16 : 32;
    if (side * row > FETCH_ELEMS) return;
    for (int i = 0; i < side; i++)
        for (int64_t k = 0; k < side * images->c; k += line) {
            const void *at = cpu_at(data, first * images->c + i * row + k, type);
            if (writes)
                __builtin_prefetch(at, 1);
            else
                __builtin_prefetch(at);
        }
}

/* A window of an image from (row, column) on, which may be outside. */
typedef struct {
    const void *row[SIDE]; /* from its first column on; zeros where the row is outside */
    int64_t first, last;   /* the columns [first, last) are inside */
} window_t;

CPU_VECTOR window_t window_at(const cpu_images_t *images, const void *data, tile_t from,
                              int64_t plane, const int side, const void *zeros, int type) {
    const int64_t left = images->w - from.column, first = pixel_at(images, from, plane);
    window_t w = {.first = from.column < 0 ? -from.column : 0, .last = left < side ? left : side};
    for (int i = 0; i < side; i++) {
        const bool inside =
            plane >= 0 && plane < images->d && from.row + i >= 0 && from.row + i < images->h;
        w.row[i] = inside ? cpu_at(data, (first + i * images->w) * images->c, type) : zeros;
    }
    return w;
}

/* The loops over columns and rows of a tile stay loops: its 36 vectors are more than there are
 * registers, and addresses of their own would be more still. */

/* B' d B of a window of 6 x 6; place p goes to v + p * step. */
CPU_VECTOR void input_tile(const window_t *w, int64_t channels, float *v, int64_t step, int type) {
    for (int64_t c = 0; c < channels; c += LANES) {
        cpu_vec_t half[SIDE][SIDE], line[SIDE], out[SIDE];
#pragma GCC unroll 1
        for (int64_t j = 0; j < SIDE; j++) {
            const bool inside = j >= w->first && j < w->last;
            for (int i = 0; i < SIDE; i++)
                line[i] = inside ? cpu_vec_get(w->row[i], j * channels + c, type) : cpu_vec_all(0);
            input(line, out);
            for (int i = 0; i < SIDE; i++) half[i][j] = out[i];
        }
#pragma GCC unroll 1
        for (int i = 0; i < SIDE; i++) {
            input(half[i], out);
            for (int j = 0; j < SIDE; j++) cpu_vec_store(v + (i * SIDE + j) * step + c, out[j]);
        }
    }
}

void tr_cpu_wino_input(const cpu_wino_tiles_t *tiles, int64_t tile, int64_t plane, const void *x,
                       const void *zeros, float *v, int64_t step) {
    const cpu_winograd_t *conv = &tiles->conv;
    tile_t from = tile_at(tiles, tile);
    from.row -= conv->pad_h, from.column -= conv->pad_w;
    CPU_BY_TYPE(conv->type, t, {
        const window_t w = window_at(&conv->x, x, from, plane, SIDE, zeros, t);
        from.row += SIDE;
        fetch_below(&conv->x, x, from, plane, SIDE + 1 - conv->size, false, t);
        input_tile(&w, conv->x.c, v, step, t);
    });
}

/* A dy A' of a window of count x count. */
CPU_VECTOR void gradient_tile(const window_t *w, const int count, int64_t channels, float *z,
                              int64_t step, int type) {
    for (int64_t c = 0; c < channels; c += LANES) {
        cpu_vec_t half[SIDE][SIDE], line[SIDE], out[SIDE];
#pragma GCC unroll 1
        for (int64_t j = 0; j < count; j++) {
            for (int i = 0; i < count; i++)
                line[i] =
                    j < w->last ? cpu_vec_get(w->row[i], j * channels + c, type) : cpu_vec_all(0);
            spread(line, count, out);
            for (int i = 0; i < SIDE; i++) half[i][j] = out[i];
        }
#pragma GCC unroll 1
        for (int i = 0; i < SIDE; i++) {
            spread(half[i], count, out);
            for (int j = 0; j < SIDE; j++) cpu_vec_store(z + (i * SIDE + j) * step + c, out[j]);
        }
    }
}

void tr_cpu_wino_gradient(const cpu_wino_tiles_t *tiles, int64_t tile, int64_t plane,
                          const void *dy, const void *zeros, float *z, int64_t step) {
    const cpu_winograd_t *conv = &tiles->conv;
    tile_t from = tile_at(tiles, tile);
    CPU_BY_TYPE(conv->type, t, {
        const int count = conv->size == 3 ? 4 : 2;
        const window_t w = window_at(&conv->y, dy, from, plane, count, zeros, t);
        from.row += count;
        fetch_below(&conv->y, dy, from, plane, count, false, t);
        if (count == 4)
            gradient_tile(&w, 4, conv->y.c, z, step, t);
        else
            gradient_tile(&w, 2, conv->y.c, z, step, t);
    });
}

/* What a tile of count x count outputs writes: (rows, columns) of it, as many as are inside. */
typedef struct {
    int64_t rows, columns;
    int64_t row_step, column_step; /* in elements */
    void *y;                       /* of type `type` */
} area_t;

/* act(A' m A + bias) to an area. */
CPU_VECTOR void output_tile(const float *m, int64_t step, const int count, int64_t channels,
                            const float *bias, bool relu, const area_t *to, int type) {
    for (int64_t c = 0; c < channels; c += LANES) {
        cpu_vec_t half[SIDE][SIDE], line[SIDE], out[SIDE],
            shift = bias ? cpu_vec_load(bias + c) : cpu_vec_all(0);
#pragma GCC unroll 1
        for (int j = 0; j < SIDE; j++) {
            for (int i = 0; i < SIDE; i++) line[i] = cpu_vec_load(m + (i * SIDE + j) * step + c);
            collect(line, count, out);
            for (int i = 0; i < count; i++) half[i][j] = out[i];
        }
#pragma GCC unroll 1
        for (int64_t i = 0; i < to->rows; i++) {
            collect(half[i], count, out);
            for (int j = 0; j < count && j < to->columns; j++) {
                cpu_vec_t y = out[j] + shift;
                if (relu) y = cpu_vec_relu(y);
                cpu_vec_put(to->y, i * to->row_step + j * to->column_step + c, y, type);
            }
        }
    }
}

void tr_cpu_wino_output(const cpu_wino_tiles_t *tiles, int64_t tile, int64_t plane, const float *m,
                        int64_t step, int64_t column, int64_t columns,
                        const cpu_wino_output_t *out) {
    const cpu_images_t *y = &tiles->conv.y;
    const int count = SIDE + 1 - tiles->conv.size;
    const float *bias = out->bias ? out->bias + column : NULL;
    const tile_t from = tile_at(tiles, tile), below = {from.image, from.row + count, from.column};
    const int64_t rows = y->h - from.row, pixels = y->w - from.column,
                  first = pixel_at(y, from, plane);
    area_t to = {.rows = rows < count ? rows : count,
                 .columns = pixels < count ? pixels : count,
                 .row_step = y->w * y->c,
                 .column_step = y->c};
    CPU_BY_TYPE(tiles->conv.type, t, {
        to.y = cpu_at_out(out->y, first * y->c + column, t);
        if (column == 0) fetch_below(y, out->y, below, plane, count, true, t);
        if (count == 4)
            output_tile(m, step, 4, columns, bias, out->relu, &to, t);
        else
            output_tile(m, step, 2, columns, bias, out->relu, &to, t);
    });
}

/* -- filters ----------------------------------------------------------------------------------- */

/* A' m A to count x count vectors. */
CPU_VECTOR void collect_square(const cpu_vec_t m[PLACES], int count, cpu_vec_t *out) {
    cpu_vec_t half[SIDE][SIDE], column[SIDE], line[SIDE];
    for (int j = 0; j < SIDE; j++) {
        for (int i = 0; i < SIDE; i++) column[i] = m[i * SIDE + j];
        collect(column, count, line);
        for (int i = 0; i < count; i++) half[i][j] = line[i];
    }
    for (int i = 0; i < count; i++) collect(half[i], count, out + i * count);
}

CPU_VECTOR cpu_vec_t lanes_apart(const void *w, int64_t at, int64_t stride, int type) {
    if (stride == 1) return cpu_vec_get(w, at, type);
    cpu_vec_t value;
    for (int i = 0; i < LANES; i++) value[i] = cpu_get(w, at + i * stride, type);
    return value;
}

/* G g G' of a panel of outputs from `out` on, or of the vector after the last one. */
CPU_VECTOR void pack_filter(const cpu_wino_filters_t *f, int size, int64_t plane, int64_t in,
                            int64_t out, float *packed, int type) {
    const int64_t width = f->outputs - out < PANEL ? LANES : PANEL, step = cpu_wino_packed_step(f);
    for (int64_t l = 0; l < width; l += LANES) {
        const int64_t first = f->first + plane * f->plane_stride + in * f->input_stride +
                              (out + l) * f->output_stride;
        float *to = packed + out * f->depth * f->inputs + (plane * f->inputs + in) * width + l;
        cpu_vec_t half[SIDE][SIDE], line[SIDE], u[SIDE];
#pragma GCC unroll 1
        for (int j = 0; j < size; j++) {
            for (int i = 0; i < size; i++)
                line[i] = lanes_apart(f->w, first + (i * size + j) * f->place_stride,
                                      f->output_stride, type);
            spread(line, size, u);
            for (int i = 0; i < SIDE; i++) half[i][j] = u[i];
        }
#pragma GCC unroll 1
        for (int i = 0; i < f->rows; i++) {
            spread(half[i], size, u);
            for (int j = 0; j < SIDE; j++)
                if (j < f->columns)
                    cpu_vec_store(to + (i * SIDE + j) * step,
                                  u[j] * cpu_vec_all(point_factor[i] * point_factor[j]));
        }
    }
}

void tr_cpu_wino_pack(const cpu_wino_filters_t *f, int64_t plane, int64_t in, int64_t out,
                      float *packed) {
    CPU_BY_TYPE(f->type, t, {
        if (f->size == 3)
            pack_filter(f, 3, plane, in, out, packed, t);
        else
            pack_filter(f, 5, plane, in, out, packed, t);
    });
}

/* G' sums G */
CPU_VECTOR void unpack_filter(const cpu_wino_sums_t *s, int size, int64_t row, float *dw) {
    for (int64_t c = 0; c < s->inputs; c += LANES) {
        cpu_vec_t u[PLACES], g[PLACES];
        for (int place = 0; place < PLACES; place++) {
            const float *sums = s->sums + place * s->step + row * s->inputs + c;
            cpu_vec_t sum = cpu_vec_load(sums);
            for (int i = 1; i < s->groups; i++) sum += cpu_vec_load(sums + i * PLACES * s->step);
            u[place] = sum * cpu_vec_all(point_factor[place / SIDE] * point_factor[place % SIDE]);
        }
        collect_square(u, size, g);
        for (int i = 0; i < size * size; i++) cpu_vec_store(dw + i * s->inputs + c, g[i]);
    }
}

void tr_cpu_wino_unpack(const cpu_wino_sums_t *s, int64_t row, float *dw) {
    if (s->size == 3)
        unpack_filter(s, 3, row, dw);
    else
        unpack_filter(s, 5, row, dw);
}

/* -- products ---------------------------------------------------------------------------------- */

/* c (rows, vectors of lanes) = or += a b. */
CPU_VECTOR void product(const cpu_wino_product_t *o, const int rows, const int vectors, bool add) {
    const int64_t row_a = o->row_a, step_a = o->step_a, row_b = o->row_b, row_c = o->row_c;
    float *c = o->c;
    cpu_vec_t sum[ROWS][2];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            sum[i][j] = add ? cpu_vec_load(c + i * row_c + j * LANES) : cpu_vec_all(0);
    for (int64_t part = 0; part < o->parts; part++) {
        const float *a = o->a + part * o->part_a, *b = o->b + part * o->part_b;
        for (int64_t k = 0; k < o->terms; k++, a += step_a, b += row_b) {
            cpu_vec_t right[2];
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) right[j] = cpu_vec_pin(cpu_vec_load(b + j * LANES));
#pragma GCC unroll 6
            for (int i = 0; i < rows; i++) {
                cpu_vec_t left = cpu_vec_all(a[i * row_a]);
#pragma GCC unroll 2
                for (int j = 0; j < vectors; j++)
                    sum[i][j] = cpu_vec_fma(left, right[j], sum[i][j]);
            }
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) cpu_vec_store(c + i * row_c + j * LANES, sum[i][j]);
}

CPU_VECTOR void product_rows(const cpu_wino_product_t *o, int64_t rows, const int vectors,
                             bool add) {
    switch (rows) {
    case 1: product(o, 1, vectors, add); break;
    case 2: product(o, 2, vectors, add); break;
    case 3: product(o, 3, vectors, add); break;
    case 4: product(o, 4, vectors, add); break;
    case 5: product(o, 5, vectors, add); break;
    default: product(o, 6, vectors, add); break;
    }
}

/* Blocks of up to 6 rows; a remainder of less than 4 rows is shared with the previous block. */
static int64_t rows_next(int64_t left) {
    return left > ROWS && left < ROWS + 4 ? (left + 1) / 2 : left < ROWS ? left : ROWS;
}

CPU_VECTOR void product_panel(cpu_wino_product_t o, int64_t rows, const int vectors, bool add) {
    while (rows > 0) {
        int64_t now = rows_next(rows);
        product_rows(&o, now, vectors, add);
        o.a += now * o.row_a, o.c += now * o.row_c, rows -= now;
    }
}

/* The columns after the last full panel are one vector. */
void tr_cpu_wino_multiply(cpu_wino_product_t o, int64_t rows, int64_t columns) {
    o.row_b = PANEL, o.part_b = PANEL * o.terms;
    for (; columns >= PANEL; columns -= PANEL, o.b += PANEL * o.parts * o.terms, o.c += PANEL)
        product_panel(o, rows, 2, false);
    o.row_b = LANES, o.part_b = LANES * o.terms;
    if (columns > 0) product_panel(o, rows, 1, false);
}

CPU_VECTOR void multiply_panels(cpu_wino_product_t o, int64_t rows, int64_t columns, bool add) {
    for (; columns >= PANEL; columns -= PANEL, o.b += PANEL, o.c += PANEL)
        product_panel(o, rows, 2, add);
    if (columns > 0) product_panel(o, rows, 1, add);
}

void tr_cpu_wino_multiply_add(cpu_wino_product_t o, int64_t rows, int64_t columns, bool add) {
    if (add)
        multiply_panels(o, rows, columns, true);
    else
        multiply_panels(o, rows, columns, false);
}
