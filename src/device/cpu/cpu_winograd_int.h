/*
 * Private to cpu_winograd*.c: tiles, their transforms and the products between. An output is cut
 * into tiles; each takes a window of 6 x 6 of the input. Transforms turn a window into 36 "places";
 * for each place there is one matrix product.
 *
 * Transformed tiles are kept by place, then tile, then channel: `step` floats from one place to the
 * next.
 */
#ifndef TRAINER_CPU_WINOGRAD_INT_H
#define TRAINER_CPU_WINOGRAD_INT_H

#include "cpu_vector.h"
#include "cpu_winograd.h"

enum {
    CPU_WINO_SIDE = 6,
    CPU_WINO_PLACES = CPU_WINO_SIDE * CPU_WINO_SIDE,
    CPU_WINO_PANEL = 2 * CPU_VEC_LANES, /* columns of a product that are summed in registers */
    CPU_WINO_TILES = 48                 /* that a thread takes through all its stages at a time */
};

/* Rows of the places are kept an odd number of cache lines apart: at a power of two they would
 * share a few sets. */
static inline int64_t cpu_wino_apart(int64_t floats) {
    enum { LINE = 16 };
    return ((floats + LINE - 1) / LINE | 1) * LINE;
}

/* Tiles are counted through rows, columns and images. */
typedef struct {
    cpu_winograd_t conv;
    int64_t rows, columns, count; /* of one image; of all */
} cpu_wino_tiles_t;

static inline cpu_wino_tiles_t cpu_wino_tiles(const cpu_winograd_t *conv) {
    const int64_t outputs = CPU_WINO_SIDE + 1 - conv->size;
    cpu_wino_tiles_t t = {.conv = *conv};
    t.rows = (conv->y.h + outputs - 1) / outputs, t.columns = (conv->y.w + outputs - 1) / outputs;
    t.count = conv->y.n * t.rows * t.columns;
    return t;
}

/* -- cpu_winograd_math.c ----------------------------------------------------------------------- */

/* The window of x, its places to v + place * step. zeros: as many as x has channels. */
void tr_cpu_wino_input(const cpu_wino_tiles_t *tiles, int64_t tile, const float *x,
                       const float *zeros, float *v, int64_t step);
/* The tile of dy for the gradient of the filters. zeros: as many as dy has channels. */
void tr_cpu_wino_gradient(const cpu_wino_tiles_t *tiles, int64_t tile, const float *dy,
                          const float *zeros, float *z, int64_t step);

/* The tile of y = act(products m + bias), channels [column, column + columns). */
typedef struct {
    const float *bias; /* may be NULL */
    bool relu;
    float *y;
} cpu_wino_output_t;
void tr_cpu_wino_output(const cpu_wino_tiles_t *tiles, int64_t tile, const float *m, int64_t step,
                        int64_t column, int64_t columns, const cpu_wino_output_t *out);

/* Filters for tr_cpu_wino_multiply: (place, panel of outputs, input channel, lane). */
typedef struct {
    int size;
    int64_t inputs, outputs;             /* channels of the product */
    int64_t input_stride, output_stride; /* in w */
    int64_t place_stride;                /* in w; negative: turned by 180 degrees */
    const float *w;
} cpu_wino_filters_t;
/* Floats from one place to the next. */
static inline int64_t cpu_wino_packed_step(const cpu_wino_filters_t *f) {
    return cpu_wino_apart(f->inputs * f->outputs);
}
/* Input channel `in`, a vector of output channels from `out` on. */
void tr_cpu_wino_pack(const cpu_wino_filters_t *f, int64_t in, int64_t out, float *packed);

/* The filters' gradient from sums of products: (group, place, output channel, input channel),
 * groups added up in their order. */
typedef struct {
    int size, groups;
    int64_t inputs;
    int64_t step; /* floats from one place to the next; a group has all places */
    const float *sums;
} cpu_wino_sums_t;
/* Output channel `out`: (r, r, C). */
void tr_cpu_wino_unpack(const cpu_wino_sums_t *s, int64_t out, float *dw);

/* c (rows, columns) = a b, sums over `depth`. Element (i, k) of a is at a[i * row_a + k * step_a];
 * columns are a multiple of the vector's lanes. Each element's sum is in the order of k, however
 * rows and columns are cut. */
typedef struct {
    const float *a, *b;
    int64_t row_a, step_a, row_b, depth;
    float *c;
    int64_t row_c;
} cpu_wino_product_t;
/* b as tr_cpu_wino_pack leaves it; row_b is not read. */
void tr_cpu_wino_multiply(cpu_wino_product_t o, int64_t rows, int64_t columns);
/* c += a b; row k of b at b + k * row_b. */
void tr_cpu_wino_multiply_add(cpu_wino_product_t o, int64_t rows, int64_t columns);

#endif
