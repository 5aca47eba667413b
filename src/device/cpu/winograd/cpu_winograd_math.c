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
    ROWS = 6 /* of a product summed in registers */
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

/* -- transforms in two dimensions -------------------------------------------------------------- */

/* A d A' of count x count vectors. */
CPU_VECTOR void spread_square(const cpu_vec_t *d, int count, cpu_vec_t out[PLACES]) {
    cpu_vec_t half[SIDE][SIDE], line[SIDE];
    for (int j = 0; j < count; j++) {
        cpu_vec_t column[SIDE];
        for (int i = 0; i < count; i++) column[i] = d[i * count + j];
        spread(column, count, line);
        for (int i = 0; i < SIDE; i++) half[i][j] = line[i];
    }
    for (int i = 0; i < SIDE; i++) spread(half[i], count, out + i * SIDE);
}

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

/* -- tiles, all their channels ----------------------------------------------------------------- */

/* The addresses of a window of `side` x `side` pixels; `outside` for pixels outside the image. */
CPU_VECTOR void window(const cpu_images_t *images, const float *data, int64_t image, int64_t plane,
                       int64_t row, int64_t column, const int side, const float *outside,
                       const float *at[PLACES]) {
    int64_t offset[SIDE];
    const float *first = data + (image * images->d + plane) * images->h * images->w * images->c;
    for (int j = 0; j < side; j++)
        offset[j] = column + j >= 0 && column + j < images->w ? (column + j) * images->c : -1;
    for (int i = 0; i < side; i++) {
        bool inside = plane >= 0 && plane < images->d && row + i >= 0 && row + i < images->h;
        const float *line = first + (row + i) * images->w * images->c;
        for (int j = 0; j < side; j++)
            at[i * side + j] = inside && offset[j] >= 0 ? line + offset[j] : outside;
    }
}

typedef struct {
    int64_t image, row, column; /* row and column in tiles */
} tile_t;
static tile_t tile_at(const cpu_wino_tiles_t *tiles, int64_t tile) {
    int64_t in_image = tile % (tiles->rows * tiles->columns);
    return (tile_t){tile / (tiles->rows * tiles->columns), in_image / tiles->columns,
                    in_image % tiles->columns};
}

/* B' d B of a window of 6 x 6; place p goes to v + p * step. */
static void input_tile(const float *const at[PLACES], int64_t channels, float *v, int64_t step) {
    for (int64_t c = 0; c < channels; c += LANES) {
        cpu_vec_t half[SIDE][SIDE], line[SIDE], out[SIDE];
        for (int j = 0; j < SIDE; j++) {
            for (int i = 0; i < SIDE; i++) line[i] = cpu_vec_load(at[i * SIDE + j] + c);
            input(line, out);
            for (int i = 0; i < SIDE; i++) half[i][j] = out[i];
        }
        for (int i = 0; i < SIDE; i++) {
            input(half[i], out);
            for (int j = 0; j < SIDE; j++) cpu_vec_store(v + (i * SIDE + j) * step + c, out[j]);
        }
    }
}

void tr_cpu_wino_input(const cpu_wino_tiles_t *tiles, int64_t tile, int64_t plane, const float *x,
                       const float *zeros, float *v, int64_t step) {
    const cpu_winograd_t *conv = &tiles->conv;
    const float *at[PLACES];
    const tile_t t = tile_at(tiles, tile);
    const int m = SIDE + 1 - conv->size;
    window(&conv->x, x, t.image, plane, t.row * m - conv->pad_h, t.column * m - conv->pad_w, SIDE,
           zeros, at);
    input_tile(at, conv->x.c, v, step);
}

/* A dy A' of a window of count x count. */
CPU_VECTOR void gradient_tile(const float *const at[PLACES], int count, int64_t channels, float *z,
                              int64_t step) {
    for (int64_t c = 0; c < channels; c += LANES) {
        cpu_vec_t d[PLACES], out[PLACES];
        for (int i = 0; i < count * count; i++) d[i] = cpu_vec_load(at[i] + c);
        spread_square(d, count, out);
        for (int p = 0; p < PLACES; p++) cpu_vec_store(z + p * step + c, out[p]);
    }
}

void tr_cpu_wino_gradient(const cpu_wino_tiles_t *tiles, int64_t tile, int64_t plane,
                          const float *dy, const float *zeros, float *z, int64_t step) {
    const cpu_images_t *y = &tiles->conv.y;
    const float *at[PLACES];
    const tile_t t = tile_at(tiles, tile);
    if (tiles->conv.size == 3) {
        window(y, dy, t.image, plane, t.row * 4, t.column * 4, 4, zeros, at);
        gradient_tile(at, 4, y->c, z, step);
    } else {
        window(y, dy, t.image, plane, t.row * 2, t.column * 2, 2, zeros, at);
        gradient_tile(at, 2, y->c, z, step);
    }
}

/* act(A' m A + bias) to a window of count x count; `at` is NULL beyond the image. */
CPU_VECTOR void output_tile(const float *m, int64_t step, int count, int64_t channels,
                            const float *bias, bool relu, const float *const at[PLACES],
                            int64_t column) {
    for (int64_t c = 0; c < channels; c += LANES) {
        cpu_vec_t in[PLACES], out[PLACES], shift = bias ? cpu_vec_load(bias + c) : cpu_vec_all(0);
        for (int p = 0; p < PLACES; p++) in[p] = cpu_vec_load(m + p * step + c);
        collect_square(in, count, out);
        for (int i = 0; i < count * count; i++) {
            cpu_vec_t y = out[i] + shift;
            if (relu) y = cpu_vec_relu(y);
            if (at[i]) cpu_vec_store((float *)at[i] + column + c, y);
        }
    }
}

void tr_cpu_wino_output(const cpu_wino_tiles_t *tiles, int64_t tile, int64_t plane, const float *m,
                        int64_t step, int64_t column, int64_t columns,
                        const cpu_wino_output_t *out) {
    const cpu_images_t *y = &tiles->conv.y;
    const float *at[PLACES], *bias = out->bias ? out->bias + column : NULL;
    const tile_t t = tile_at(tiles, tile);
    if (tiles->conv.size == 3) {
        window(y, out->y, t.image, plane, t.row * 4, t.column * 4, 4, NULL, at);
        output_tile(m, step, 4, columns, bias, out->relu, at, column);
    } else {
        window(y, out->y, t.image, plane, t.row * 2, t.column * 2, 2, NULL, at);
        output_tile(m, step, 2, columns, bias, out->relu, at, column);
    }
}

/* -- filters ----------------------------------------------------------------------------------- */

CPU_VECTOR cpu_vec_t lanes_apart(const float *w, int64_t stride) {
    if (stride == 1) return cpu_vec_load(w);
    cpu_vec_t value;
    for (int i = 0; i < LANES; i++) value[i] = w[i * stride];
    return value;
}

/* G g G' */
CPU_VECTOR void pack_filter(const cpu_wino_filters_t *f, int size, int64_t plane, int64_t in,
                            int64_t out, float *packed) {
    const float *w = f->w + plane * f->plane_stride + in * f->input_stride + out * f->output_stride;
    int64_t full = f->outputs / PANEL * PANEL, width = out < full ? PANEL : LANES;
    float *to = packed + out / PANEL * PANEL * f->depth * f->inputs +
                (plane * f->inputs + in) * width + out % PANEL;
    cpu_vec_t g[PLACES], u[PLACES];
    for (int i = 0; i < size * size; i++)
        g[i] = lanes_apart(w + i * f->place_stride, f->output_stride);
    spread_square(g, size, u);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            cpu_vec_store(to + (i * SIDE + j) * cpu_wino_packed_step(f),
                          u[i * SIDE + j] * cpu_vec_all(point_factor[i] * point_factor[j]));
}

void tr_cpu_wino_pack(const cpu_wino_filters_t *f, int64_t plane, int64_t in, int64_t out,
                      float *packed) {
    if (f->size == 3)
        pack_filter(f, 3, plane, in, out, packed);
    else
        pack_filter(f, 5, plane, in, out, packed);
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

void tr_cpu_wino_multiply_add(cpu_wino_product_t o, int64_t rows, int64_t columns) {
    for (; columns >= PANEL; columns -= PANEL, o.b += PANEL, o.c += PANEL)
        product_panel(o, rows, 2, true);
    if (columns > 0) product_panel(o, rows, 1, true);
}
