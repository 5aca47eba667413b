/*
 * Tiles, their transforms and matrix products. Private to cpu_winograd*.c. The output is split into
 * tiles; each needs a 6 x 6 window of the input. A transform converts a window to 36 "places", and
 * there is one matrix product per place.
 *
 * Transformed tiles are ordered by place, then tile, then channel; places are `step` floats apart.
 */
#ifndef TR_DEVICE_CPU_WINOGRAD_CPU_WINOGRAD_INT_H
#define TR_DEVICE_CPU_WINOGRAD_CPU_WINOGRAD_INT_H

#include "device/cpu/cpu_vector.h"
#include "cpu_winograd.h"

enum {
    CPU_WINO_SIDE = 6,
    CPU_WINO_PLACES = CPU_WINO_SIDE * CPU_WINO_SIDE,
    CPU_WINO_PANEL = 2 * CPU_VEC_LANES, /* columns of a product summed in registers */
    CPU_WINO_TILES = 48                 /* tiles that a thread processes at a time */
};

/* Places are an odd number of cache lines apart: with a power of two they would map to a few cache
 * sets. */
static inline int64_t cpu_wino_apart(int64_t floats) {
    enum { LINE = 16 };
    return ((floats + LINE - 1) / LINE | 1) * LINE;
}

/* Tiles are numbered across rows, columns and images. */
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

/* Transforms the window of a tile of x to v + place * step. zeros: one per channel of x. */
void tr_cpu_wino_input(const cpu_wino_tiles_t *tiles, int64_t tile, const float *x,
                       const float *zeros, float *v, int64_t step);
/* Transforms a tile of dy for the gradient of the filters. zeros: one per channel of dy. */
void tr_cpu_wino_gradient(const cpu_wino_tiles_t *tiles, int64_t tile, const float *dy,
                          const float *zeros, float *z, int64_t step);

/* Transforms products m to a tile of y = act(m + bias), channels [column, column + columns). */
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
    int64_t place_stride;                /* in w; negative: rotated by 180 degrees */
    const float *w;
} cpu_wino_filters_t;
/* Distance between places in floats. */
static inline int64_t cpu_wino_packed_step(const cpu_wino_filters_t *f) {
    return cpu_wino_apart(f->inputs * f->outputs);
}
/* Packs input channel `in` and a vector of output channels from `out`. */
void tr_cpu_wino_pack(const cpu_wino_filters_t *f, int64_t in, int64_t out, float *packed);

/* The gradient of the filters from sums of products: (group, place, output channel, input channel),
 * with the groups added in order. */
typedef struct {
    int size, groups;
    int64_t inputs;
    int64_t step; /* distance between places in floats; a group has all places */
    const float *sums;
} cpu_wino_sums_t;
/* Writes output channel `out` of dw: (r, r, C). */
void tr_cpu_wino_unpack(const cpu_wino_sums_t *s, int64_t out, float *dw);

/* c (rows, columns) = a b, summed over `depth`. Element (i, k) of a is a[i * row_a + k * step_a];
 * columns are a multiple of the vector lanes. Each element is summed in the order of k, regardless
 * of blocking. */
typedef struct {
    const float *a, *b;
    int64_t row_a, step_a, row_b, depth;
    float *c;
    int64_t row_c;
} cpu_wino_product_t;
/* b from tr_cpu_wino_pack; row_b is not read. */
void tr_cpu_wino_multiply(cpu_wino_product_t o, int64_t rows, int64_t columns);
/* c += a b; row k of b at b + k * row_b. */
void tr_cpu_wino_multiply_add(cpu_wino_product_t o, int64_t rows, int64_t columns);

#endif
