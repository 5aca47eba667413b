/*
 * Winograd's minimal filtering (Winograd 1980; Lavin and Gray 2016) on tiles of 6 x 6. In one dimension, for a filter g of r
 * values, m = 7 - r outputs y and 6 inputs d:
 *
 *     y = A' [(G g) . (B' d)]        dg = G' [(A dy) . (B' d)]
 *
 * and in two dimensions the same over rows and columns. The products in the brackets are, for each of the 36 places of a tile,
 * one matrix product over channels (forward) or over tiles (gradient of the filters).
 *
 * G and A evaluate a polynomial at the points 0, +-a, +-b and infinity, so that one function (`spread`) serves for both and its
 * transpose (`collect`) for A' and G'; what G has more is a factor for each point. B' follows from the points. With a = sqrt(1/2)
 * and b = sqrt(2) rounding errors are one and a half to four times those of direct sums (measured against double), twice on average; with the usual 1 and 2 four to five times.
 */
#include "cpu_winograd.h"
#include "cpu_vector.h"
#include <string.h>

enum {
    SIDE = 6,
    PLACES = SIDE * SIDE,
    LANES = CPU_VEC_LANES,
    ROWS = 6,            /* of a product that are summed in registers, */
    PANEL = 2 * LANES,   /* and columns */
    TILES = 48,          /* that a thread takes through all three stages at a time */
    COLUMNS = 4 * PANEL, /* of the products that it takes at a time */
    MAX_CHANNELS = 1024,
    LINE = 16 /* floats in a line of cache */
};
#define STAGED_FLOATS (1 << 19) /* of transformed tiles that threads share in bwd_weights, at most */
#define GROUP_FLOATS  (1 << 20) /* of sums of all groups, at most */
#define MAX_GROUPS    16

static const float A1 = 0.70710678f, B1 = 1.41421356f;

/* 1 / prod (p_i - p_j) over the finite points j. */
static const float point_factor[SIDE] = {1, -2 / 3.0f, -2 / 3.0f, 1 / 6.0f, 1 / 6.0f, 1};

static int outputs_of(int size) {
    return SIDE + 1 - size;
}

/* Rows of the places are kept an odd number of cache lines apart: at a power of two they would share a few sets. */
static int64_t apart(int64_t floats) {
    return ((floats + LINE - 1) / LINE | 1) * LINE;
}

/* -- transforms in one dimension -------------------------------------------------------------------------- */

CPU_VECTOR void spread(const cpu_vec_t *g, int count, cpu_vec_t out[SIDE]) {
    const cpu_vec_t half = cpu_vec_all(0.5f), two = cpu_vec_all(2), a = cpu_vec_all(A1), b = cpu_vec_all(B1);
    cpu_vec_t even_a = g[0], even_b = g[0], odd_a = g[1], odd_b = g[1];
    if (count > 2) even_a = cpu_vec_fma(half, g[2], even_a), even_b = cpu_vec_fma(two, g[2], even_b);
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

/* -- transforms of one tile, all its channels ------------------------------------------------------------- */

/* The addresses of a window of `side` x `side` pixels; `outside` for those that lie beyond the image. */
CPU_VECTOR void window(const cpu_images_t *images, const float *data, int64_t image, int64_t row,
                       int64_t column, const int side, const float *outside, const float *at[PLACES]) {
    int64_t offset[SIDE];
    const float *first = data + image * images->h * images->w * images->c;
    for (int j = 0; j < side; j++)
        offset[j] = column + j >= 0 && column + j < images->w ? (column + j) * images->c : -1;
    for (int i = 0; i < side; i++) {
        bool inside = row + i >= 0 && row + i < images->h;
        const float *line = first + (row + i) * images->w * images->c;
        for (int j = 0; j < side; j++)
            at[i * side + j] = inside && offset[j] >= 0 ? line + offset[j] : outside;
    }
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

/* act(A' m A + bias) to a window of count x count; `at` is NULL beyond the image. */
CPU_VECTOR void output_tile(const float *m, int64_t step, int count, int64_t channels, const float *bias,
                            bool relu, const float *const at[PLACES], int64_t column) {
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

/* -- products --------------------------------------------------------------------------------------------- */

/* c (rows, vectors of lanes) = or += a b, the sum over `depth`: element (i, k) of a is at a[i * row_a + k * step_a], row k of b at
 * b + k * row_b. */
CPU_VECTOR void product(const float *a, int64_t row_a, int64_t step_a, const float *b, int64_t row_b,
                        int64_t depth, float *c, int64_t row_c, const int rows, const int vectors, bool add) {
    cpu_vec_t sum[ROWS][2];
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++)
            sum[i][j] = add ? cpu_vec_load(c + i * row_c + j * LANES) : cpu_vec_all(0);
    for (int64_t k = 0; k < depth; k++) {
        cpu_vec_t right[2];
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) right[j] = cpu_vec_load(b + k * row_b + j * LANES);
#pragma GCC unroll 6
        for (int i = 0; i < rows; i++) {
            cpu_vec_t left = cpu_vec_all(a[i * row_a + k * step_a]);
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) sum[i][j] = cpu_vec_fma(left, right[j], sum[i][j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < rows; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) cpu_vec_store(c + i * row_c + j * LANES, sum[i][j]);
}

typedef struct {
    const float *a, *b;
    int64_t row_a, step_a, row_b, depth;
    float *c;
    int64_t row_c;
} operands_t;

#define PRODUCT(rows, vectors)                                                                               \
    product(o->a, o->row_a, o->step_a, o->b, o->row_b, o->depth, o->c, o->row_c, rows, vectors, add)

CPU_VECTOR void product_rows(const operands_t *o, int64_t rows, const int vectors, bool add) {
    switch (rows) {
    case 1: PRODUCT(1, vectors); break;
    case 2: PRODUCT(2, vectors); break;
    case 3: PRODUCT(3, vectors); break;
    case 4: PRODUCT(4, vectors); break;
    case 5: PRODUCT(5, vectors); break;
    default: PRODUCT(6, vectors); break;
    }
}

/* Rows of up to 6; a remainder of less than 4 is shared with the block before. */
static int64_t rows_next(int64_t left) {
    return left > ROWS && left < ROWS + 4 ? (left + 1) / 2 : left < ROWS ? left : ROWS;
}

CPU_VECTOR void product_panel(operands_t o, int64_t rows, const int vectors, bool add) {
    while (rows > 0) {
        int64_t now = rows_next(rows);
        product_rows(&o, now, vectors, add);
        o.a += now * o.row_a, o.c += now * o.row_c, rows -= now;
    }
}

/* Columns beyond a full panel are one vector. */
static void product_columns(operands_t o, int64_t rows, int64_t columns, int64_t panel_b) {
    for (; columns >= PANEL; columns -= PANEL, o.b += panel_b, o.c += PANEL) product_panel(o, rows, 2, false);
    o.row_b = LANES;
    if (columns > 0) product_panel(o, rows, 1, false);
}
static void product_columns_add(operands_t o, int64_t rows, int64_t columns) {
    for (; columns >= PANEL; columns -= PANEL, o.b += PANEL, o.c += PANEL) product_panel(o, rows, 2, true);
    if (columns > 0) product_panel(o, rows, 1, true);
}

/* -- filters ---------------------------------------------------------------------------------------------- */

/* G g G', as the products read them: (place, panel of outputs, input channel, lane). */
typedef struct {
    int size;
    int64_t inputs, outputs;             /* channels of the product */
    int64_t input_stride, output_stride; /* in w */
    int64_t place_stride;                /* in w; negative: turned by 180 degrees */
    const float *w;
} filters_t;

static int64_t packed_floats(const filters_t *f) {
    return apart(f->inputs * f->outputs);
}

CPU_VECTOR cpu_vec_t lanes_apart(const float *w, int64_t stride) {
    if (stride == 1) return cpu_vec_load(w);
    cpu_vec_t value;
    for (int i = 0; i < LANES; i++) value[i] = w[i * stride];
    return value;
}

CPU_VECTOR void pack_filter(const filters_t *f, int size, int64_t in, int64_t out, float *packed) {
    const float *w = f->w + in * f->input_stride + out * f->output_stride;
    int64_t full = f->outputs / PANEL * PANEL, width = out < full ? PANEL : LANES;
    float *to = packed + out / PANEL * PANEL * f->inputs + in * width + out % PANEL;
    cpu_vec_t g[PLACES], u[PLACES];
    for (int i = 0; i < size * size; i++) g[i] = lanes_apart(w + i * f->place_stride, f->output_stride);
    spread_square(g, size, u);
    for (int i = 0; i < SIDE; i++)
        for (int j = 0; j < SIDE; j++)
            cpu_vec_store(to + (i * SIDE + j) * packed_floats(f),
                          u[i * SIDE + j] * cpu_vec_all(point_factor[i] * point_factor[j]));
}

/* Work of one thread in a team. */
static void pack_filters(const filters_t *f, float *packed) {
#pragma omp for schedule(static) collapse(2)
    for (int64_t out = 0; out < f->outputs; out += LANES)
        for (int64_t in = 0; in < f->inputs; in++) {
            if (f->size == 3)
                pack_filter(f, 3, in, out, packed);
            else
                pack_filter(f, 5, in, out, packed);
        }
}

/* -- forward, and the gradient of the input, which is a convolution too ----------------------------------- */

typedef struct {
    cpu_winograd_t conv;
    const float *x, *bias, *packed, *zeros;
    float *y;
    int64_t tiles_h, tiles_w, tiles;
    int64_t block; /* tiles at a time */
    int64_t place_v, place_m, place_u;
    bool relu;
} pass_t;

static int64_t tiles_along(int64_t length, int size) {
    return (length + outputs_of(size) - 1) / outputs_of(size);
}
static int64_t tiles_of(const cpu_winograd_t *conv) {
    return conv->y.n * tiles_along(conv->y.h, conv->size) * tiles_along(conv->y.w, conv->size);
}
static int64_t columns_of(const cpu_winograd_t *conv) {
    return conv->y.c < COLUMNS ? conv->y.c : COLUMNS;
}
/* Equal blocks, as every thread has about as many tiles. */
static int64_t block_of(const cpu_winograd_t *conv, int threads) {
    int64_t own = (tiles_of(conv) + threads - 1) / threads, blocks = (own + TILES - 1) / TILES;
    return (own + blocks - 1) / blocks;
}

typedef struct {
    int64_t image, row, column; /* in tiles */
} tile_t;
static tile_t tile_at(const pass_t *p, int64_t tile) {
    int64_t in_image = tile % (p->tiles_h * p->tiles_w);
    return (tile_t){tile / (p->tiles_h * p->tiles_w), in_image / p->tiles_w, in_image % p->tiles_w};
}

static void input_at(const pass_t *p, int64_t tile, float *v) {
    const cpu_winograd_t *conv = &p->conv;
    const float *at[PLACES];
    tile_t t = tile_at(p, tile);
    int m = outputs_of(conv->size);
    window(&conv->x, p->x, t.image, t.row * m - conv->pad_h, t.column * m - conv->pad_w, SIDE, p->zeros, at);
    input_tile(at, conv->x.c, v, p->place_v);
}

static void output_at(const pass_t *p, int64_t tile, const float *m, int64_t column, int64_t columns) {
    const float *at[PLACES], *bias = p->bias ? p->bias + column : NULL;
    tile_t t = tile_at(p, tile);
    if (p->conv.size == 3) {
        window(&p->conv.y, p->y, t.image, t.row * 4, t.column * 4, 4, NULL, at);
        output_tile(m, p->place_m, 4, columns, bias, p->relu, at, column);
    } else {
        window(&p->conv.y, p->y, t.image, t.row * 2, t.column * 2, 2, NULL, at);
        output_tile(m, p->place_m, 2, columns, bias, p->relu, at, column);
    }
}

static void pass_block(const pass_t *p, int64_t first, int64_t count, float *v, float *m) {
    int64_t in = p->conv.x.c, out = p->conv.y.c;
    for (int64_t t = 0; t < count; t++) input_at(p, first + t, v + t * in);
    for (int64_t column = 0; column < out; column += COLUMNS) {
        int64_t columns = out - column < COLUMNS ? out - column : COLUMNS;
        for (int place = 0; place < PLACES; place++)
            product_columns((operands_t){.a = v + place * p->place_v,
                                         .row_a = in,
                                         .step_a = 1,
                                         .b = p->packed + place * p->place_u + column * in,
                                         .row_b = PANEL,
                                         .depth = in,
                                         .c = m + place * p->place_m,
                                         .row_c = columns},
                            count, columns, PANEL * in);
        for (int64_t t = 0; t < count; t++) output_at(p, first + t, m + t * columns, column, columns);
    }
}

static size_t pass_bytes(const tr_device_t *device, const cpu_winograd_t *conv) {
    int64_t block = block_of(conv, device->threads);
    int64_t own = PLACES * (apart(block * conv->x.c) + apart(block * columns_of(conv)));
    int64_t packed = PLACES * apart(conv->x.c * conv->y.c);
    return (size_t)(packed + apart(conv->x.c) + device->threads * own) * sizeof(float);
}

static void pass_run(const tr_device_t *device, pass_t p, const filters_t *filters, float *scratch) {
    const cpu_winograd_t *conv = &p.conv;
    float *packed = scratch, *zeros = packed + PLACES * packed_floats(filters),
          *own = zeros + apart(conv->x.c);
    p.tiles_h = tiles_along(conv->y.h, conv->size), p.tiles_w = tiles_along(conv->y.w, conv->size);
    p.tiles = tiles_of(conv), p.block = block_of(conv, device->threads);
    p.place_v = apart(p.block * conv->x.c), p.place_m = apart(p.block * columns_of(conv));
    p.place_u = packed_floats(filters), p.packed = packed, p.zeros = zeros;
    memset(zeros, 0, (size_t)conv->x.c * sizeof *zeros);
#pragma omp parallel num_threads(device->threads)
    {
        float *v = own + omp_get_thread_num() * PLACES * (p.place_v + p.place_m), *m = v + PLACES * p.place_v;
        pack_filters(filters, packed);
#pragma omp for schedule(static)
        for (int64_t first = 0; first < p.tiles; first += p.block)
            pass_block(&p, first, p.tiles - first < p.block ? p.tiles - first : p.block, v, m);
    }
}

size_t tr_cpu_winograd_fwd_scratch_bytes(const tr_device_t *device, const cpu_winograd_t *conv) {
    return pass_bytes(device, conv);
}

void tr_cpu_winograd_fwd(const tr_device_t *device, const cpu_winograd_t *conv, const float *x,
                         const float *w, const float *bias, bool relu, float *y, void *scratch) {
    int64_t in = conv->x.c, places = conv->size * conv->size;
    filters_t filters = {conv->size, in, conv->y.c, 1, places * in, in, w};
    pass_run(device, (pass_t){.conv = *conv, .x = x, .bias = bias, .y = y, .relu = relu}, &filters, scratch);
}

/* dx is dy convolved with the filters turned by 180 degrees, input and output channels exchanged. */
static cpu_winograd_t turned(const cpu_winograd_t *conv) {
    return (cpu_winograd_t){conv->y, conv->x, conv->size, conv->size - 1 - conv->pad_h,
                            conv->size - 1 - conv->pad_w};
}

size_t tr_cpu_winograd_bwd_data_scratch_bytes(const tr_device_t *device, const cpu_winograd_t *conv) {
    cpu_winograd_t back = turned(conv);
    return pass_bytes(device, &back);
}

void tr_cpu_winograd_bwd_data(const tr_device_t *device, const cpu_winograd_t *conv, const float *dy,
                              const float *w, float *dx, void *scratch) {
    int64_t in = conv->x.c, places = conv->size * conv->size;
    filters_t filters = {conv->size, conv->y.c, in, places * in, 1, -in, w + (places - 1) * in};
    pass_run(device, (pass_t){.conv = turned(conv), .x = dy, .y = dx}, &filters, scratch);
}

/* -- the gradient of the filters -------------------------------------------------------------------------- */

/*
 * Tiles are transformed a block at a time, then each place's product is added to its sums. Where the sums are small, tiles are cut into
 * groups, whose number follows from the shape alone: a group is one thread's and has sums of its own, which are joined in their order.
 * Where they are large there is one group, and all threads share its tiles and then its places.
 */
typedef struct {
    pass_t p;
    const float *dy;
    int groups;
    int64_t block, place_z, place_w;
    float *staged, *sums;
} weights_pass_t;

/* Who of how many works at a block. */
typedef struct {
    int member, members;
} share_t;

static int groups_of(const cpu_winograd_t *conv) {
    int64_t fit = GROUP_FLOATS / (PLACES * conv->x.c * conv->y.c), tiles = tiles_of(conv) / TILES;
    int64_t groups = fit < tiles ? fit : tiles;
    if (groups > MAX_GROUPS) groups = MAX_GROUPS;
    while (groups & (groups - 1)) groups &= groups - 1; /* a power of two: as much for each thread */
    return groups < 1 ? 1 : (int)groups;
}

static weights_pass_t weights_pass(const cpu_winograd_t *conv) {
    int64_t fit = STAGED_FLOATS / (PLACES * (conv->x.c + conv->y.c)), tiles = tiles_of(conv);
    weights_pass_t q = {.p = {.conv = *conv, .tiles = tiles}, .groups = groups_of(conv)};
    q.block = q.groups > 1 || fit < TILES ? TILES : fit;
    if (q.block > tiles) q.block = tiles;
    q.p.tiles_h = tiles_along(conv->y.h, conv->size), q.p.tiles_w = tiles_along(conv->y.w, conv->size);
    q.p.place_v = apart(q.block * conv->x.c), q.place_z = apart(q.block * conv->y.c);
    q.place_w = apart(conv->x.c * conv->y.c);
    return q;
}

static int64_t staged_floats(const weights_pass_t *q) {
    return PLACES * (q->p.place_v + q->place_z);
}
static int64_t zeros_floats(const cpu_winograd_t *conv) {
    return apart(conv->x.c > conv->y.c ? conv->x.c : conv->y.c);
}

size_t tr_cpu_winograd_bwd_weights_scratch_bytes(const tr_device_t *device, const cpu_winograd_t *conv) {
    weights_pass_t q = weights_pass(conv);
    int64_t staged = (q.groups > 1 ? device->threads : 1) * staged_floats(&q);
    return (size_t)(zeros_floats(conv) + staged + q.groups * PLACES * q.place_w) * sizeof(float);
}

static void gradient_at(const weights_pass_t *q, int64_t tile, float *z) {
    const float *at[PLACES];
    tile_t t = tile_at(&q->p, tile);
    if (q->p.conv.size == 3) {
        window(&q->p.conv.y, q->dy, t.image, t.row * 4, t.column * 4, 4, q->p.zeros, at);
        gradient_tile(at, 4, q->p.conv.y.c, z, q->place_z);
    } else {
        window(&q->p.conv.y, q->dy, t.image, t.row * 2, t.column * 2, 2, q->p.zeros, at);
        gradient_tile(at, 2, q->p.conv.y.c, z, q->place_z);
    }
}

static void add_block(const weights_pass_t *q, int64_t first, int64_t count, float *staged, float *sums,
                      share_t s) {
    int64_t in = q->p.conv.x.c, out = q->p.conv.y.c;
    float *v = staged, *z = staged + PLACES * q->p.place_v;
    cpu_range_t tiles = cpu_range(count, 1, s.members, s.member);
    cpu_range_t places = cpu_range(PLACES, 1, s.members, s.member);
    for (int64_t t = tiles.first; t < tiles.last; t++) {
        input_at(&q->p, first + t, v + t * in);
        gradient_at(q, first + t, z + t * out);
    }
    if (s.members > 1) {
#pragma omp barrier
    }
    for (int64_t place = places.first; place < places.last; place++)
        product_columns_add((operands_t){.a = z + place * q->place_z,
                                         .row_a = 1,
                                         .step_a = out,
                                         .b = v + place * q->p.place_v,
                                         .row_b = in,
                                         .depth = count,
                                         .c = sums + place * q->place_w,
                                         .row_c = in},
                            out, in);
    if (s.members > 1) {
#pragma omp barrier
    }
}

static void add_group(const weights_pass_t *q, int group, float *staged, share_t s) {
    cpu_range_t tiles = cpu_range(q->p.tiles, 1, q->groups, group);
    float *sums = q->sums + group * PLACES * q->place_w;
    for (int64_t first = tiles.first; first < tiles.last; first += q->block)
        add_block(q, first, tiles.last - first < q->block ? tiles.last - first : q->block, staged, sums, s);
}

/* G' sums G to the filter's gradient, (r, r, C) of output channel `out`. */
CPU_VECTOR void unpack_filter(const weights_pass_t *q, int size, int64_t out, float *dw) {
    int64_t channels = q->p.conv.x.c;
    for (int64_t c = 0; c < channels; c += LANES) {
        cpu_vec_t u[PLACES], g[PLACES];
        for (int place = 0; place < PLACES; place++) {
            const float *sums = q->sums + place * q->place_w + out * channels + c;
            cpu_vec_t sum = cpu_vec_load(sums);
            for (int i = 1; i < q->groups; i++) sum += cpu_vec_load(sums + i * PLACES * q->place_w);
            u[place] = sum * cpu_vec_all(point_factor[place / SIDE] * point_factor[place % SIDE]);
        }
        collect_square(u, size, g);
        for (int i = 0; i < size * size; i++) cpu_vec_store(dw + i * channels + c, g[i]);
    }
}

static void unpack_filters(const weights_pass_t *q, float *dw) {
    int size = q->p.conv.size;
    int64_t floats = size * size * q->p.conv.x.c;
#pragma omp for schedule(static)
    for (int64_t out = 0; out < q->p.conv.y.c; out++) {
        if (size == 3)
            unpack_filter(q, 3, out, dw + out * floats);
        else
            unpack_filter(q, 5, out, dw + out * floats);
    }
}

void tr_cpu_winograd_bwd_weights(const tr_device_t *device, const cpu_winograd_t *conv, const float *x,
                                 const float *dy, float *dw, void *scratch) {
    weights_pass_t q = weights_pass(conv);
    int64_t own = q.groups > 1 ? staged_floats(&q) : 0, floats = PLACES * q.place_w;
    q.p.x = x, q.dy = dy, q.p.zeros = scratch;
    q.sums = (float *)scratch + zeros_floats(conv), q.staged = q.sums + q.groups * floats;
    memset(scratch, 0, (size_t)zeros_floats(conv) * sizeof(float));
#pragma omp parallel num_threads(device->threads)
    {
        int member = omp_get_thread_num(), members = omp_get_num_threads();
#pragma omp for schedule(static)
        for (int64_t i = 0; i < q.groups * PLACES; i++)
            memset(q.sums + i * q.place_w, 0, (size_t)q.place_w * sizeof(float));
        if (q.groups == 1)
            add_group(&q, 0, q.staged, (share_t){member, members});
        else
#pragma omp for schedule(static)
            for (int group = 0; group < q.groups; group++)
                add_group(&q, group, q.staged + member * own, (share_t){0, 1});
        unpack_filters(&q, dw);
    }
}

/* -- which convolutions ----------------------------------------------------------------------------------- */

static cpu_images_t images_of(const tr_view_t *view) {
    const int64_t *dim = view->shape.dim;
    return (cpu_images_t){dim[0], dim[1], dim[2], dim[3]};
}

/* In multiply-adds: the products, about 4 for each value of a transformed tile and 8 for that of a filter. */
static double cost(const cpu_winograd_t *conv) {
    double in = (double)conv->x.c, out = (double)conv->y.c, tiles = (double)tiles_of(conv);
    return PLACES * (tiles * (in * out + 4 * (in + out)) + 8 * in * out);
}

bool tr_cpu_winograd_suits(const tr_conv_attr_t *attr, const tr_view_t *x, const tr_view_t *w,
                           const tr_view_t *y, cpu_winograd_t *out) {
    int size = attr->kernel[0];
    if (attr->spatial != 2 || attr->groups != 1 || attr->kernel[1] != size || (size != 3 && size != 5))
        return false;
    for (int i = 0; i < 2; i++)
        if (attr->stride[i] != 1 || attr->dilation[i] != 1 || attr->pad_lo[i] >= size) return false;
    if (attr->act != TR_ACT_NONE && attr->act != TR_ACT_RELU) return false;
    if (x->dtype != TR_F32 || w->dtype != TR_F32 || y->dtype != TR_F32) return false;
    *out = (cpu_winograd_t){images_of(x), images_of(y), size, attr->pad_lo[0], attr->pad_lo[1]};
    if (out->x.c % LANES || out->y.c % LANES || out->x.c > MAX_CHANNELS || out->y.c > MAX_CHANNELS)
        return false;
    double direct = (double)(out->y.n * out->y.h * out->y.w * size * size) * (double)(out->x.c * out->y.c);
    return cost(out) < 0.8 * direct;
}
