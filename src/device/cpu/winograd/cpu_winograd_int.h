/*
 * Tiles, their transforms and matrix products. Private to cpu_winograd*.c. The output is split into
 * tiles; each needs a 6 x 6 window of the input. A transform converts a window to 36 "places", and
 * there is one matrix product per place.
 *
 * Transformed tiles are ordered by place, then plane and tile, then channel; places are `step`
 * floats apart.
 */
#ifndef TR_DEVICE_CPU_WINOGRAD_CPU_WINOGRAD_INT_H
#define TR_DEVICE_CPU_WINOGRAD_CPU_WINOGRAD_INT_H

#include "device/cpu/cpu_types.h"
#include "device/winograd.h"
#include "cpu_winograd.h"

enum {
    CPU_WINO_SIDE = TR_WINOGRAD_SIDE,
    CPU_WINO_PLACES = TR_WINOGRAD_PLACES,
    CPU_WINO_PANEL = 2 * CPU_VEC_LANES, /* columns of a product summed in registers */
    CPU_WINO_TILES = 24,                /* tiles of y that a thread processes at a time */
    CPU_WINO_PLANES = 12                /* most planes of y at a time; x needs depth - 1 more */
};

/* Places are an odd number of cache lines apart: with a power of two they would map to a few cache
 * sets. */
static inline int64_t cpu_wino_apart(int64_t floats) {
    enum { LINE = 16 };
    return ((floats + LINE - 1) / LINE | 1) * LINE;
}

/* Of a row of a window of zeros, of any type. */
static inline int64_t cpu_wino_zeros(int64_t channels) {
    return cpu_wino_apart(CPU_WINO_SIDE * channels);
}

/*
 * Tiles of a plane; each has one in every plane. The edge of y cuts tiles if its size is no multiple
 * of theirs. The last row of outputs alone needs the last row of places, so a tile whose rows are cut
 * does without, and likewise with columns. Tiles are therefore numbered by parts: first those of which
 * only the columns are cut, then whole ones, those of which only the rows are cut, and those of which
 * both are; in each part across columns, rows and images. The tiles that need a place are neighbours.
 */
typedef struct {
    int64_t first;         /* tile */
    int64_t row, column;   /* of its first tile in an image, in tiles */
    int64_t rows, columns; /* of an image, in tiles */
} cpu_wino_part_t;
enum { CPU_WINO_PARTS = 4 };
typedef struct {
    cpu_winograd_t conv;
    cpu_wino_part_t part[CPU_WINO_PARTS];
    int64_t count;
    int64_t planes; /* of y, processed at a time */
} cpu_wino_tiles_t;

static inline cpu_wino_tiles_t cpu_wino_tiles(const cpu_winograd_t *conv) {
    const int64_t outputs = CPU_WINO_SIDE + 1 - conv->size, rows = conv->y.h / outputs,
                  columns = conv->y.w / outputs, cut_rows = conv->y.h % outputs > 0,
                  cut_columns = conv->y.w % outputs > 0;
    cpu_wino_tiles_t t = {.conv = *conv,
                          .part = {{0, 0, columns, rows, cut_columns},
                                   {0, 0, 0, rows, columns},
                                   {0, rows, 0, cut_rows, columns},
                                   {0, rows, columns, cut_rows, cut_columns}}};
    for (int i = 0; i < CPU_WINO_PARTS; i++) {
        t.part[i].first = t.count;
        t.count += conv->y.n * t.part[i].rows * t.part[i].columns;
    }
    const int64_t blocks = (conv->y.d + CPU_WINO_PLANES - 1) / CPU_WINO_PLANES;
    t.planes = (conv->y.d + blocks - 1) / blocks;
    return t;
}

/* The tiles of [first, last) that need a place, which may be none. */
static inline cpu_range_t cpu_wino_needing(const cpu_wino_tiles_t *t, int place, int64_t first,
                                           int64_t last) {
    const bool last_row = place / CPU_WINO_SIDE == CPU_WINO_SIDE - 1,
               last_column = place % CPU_WINO_SIDE == CPU_WINO_SIDE - 1;
    const int64_t from = last_column ? t->part[1].first : 0, to = last_row      ? t->part[2].first
                                                                  : last_column ? t->part[3].first
                                                                                : t->count;
    cpu_range_t r = {first > from ? first : from, last < to ? last : to};
    if (r.last < r.first) r.last = r.first;
    return r;
}

/* Planes of x that so many planes of y need. */
static inline int64_t cpu_wino_planes_of_x(const cpu_wino_tiles_t *t, int64_t planes) {
    return planes + t->conv.depth - 1;
}

/* -- cpu_winograd_math.c ----------------------------------------------------------------------- */

/* Transforms the window of a tile of a plane of x, which may be in the padding, to v + place * step.
 * zeros: a row of a window of them. */
void tr_cpu_wino_input(const cpu_wino_tiles_t *tiles, int64_t tile, int64_t plane, const void *x,
                       const void *zeros, float *v, int64_t step);
/* Transforms a tile of dy for the gradient of the filters. */
void tr_cpu_wino_gradient(const cpu_wino_tiles_t *tiles, int64_t tile, int64_t plane,
                          const void *dy, const void *zeros, float *z, int64_t step);

/* Transforms products m to a tile of y = act(m + bias), channels [column, column + columns). */
typedef struct {
    const float *bias; /* may be NULL */
    bool relu;
    void *y;
} cpu_wino_output_t;
void tr_cpu_wino_output(const cpu_wino_tiles_t *tiles, int64_t tile, int64_t plane, const float *m,
                        int64_t step, int64_t column, int64_t columns,
                        const cpu_wino_output_t *out);

/* Filters for tr_cpu_wino_multiply: (place, panel of outputs, plane, input channel, lane). */
typedef struct {
    int size;
    int64_t inputs, outputs;             /* channels of the product */
    int64_t input_stride, output_stride; /* in w */
    int64_t depth;                       /* planes */
    int64_t place_stride, plane_stride;  /* in w; negative: rotated by 180 degrees */
    int64_t first;                       /* element of w */
    int rows, columns;                   /* of places that tiles need */
    tr_dtype_t type;
    const void *w;
} cpu_wino_filters_t;
/* Distance between places in floats. */
static inline int64_t cpu_wino_packed_step(const cpu_wino_filters_t *f) {
    return cpu_wino_apart(f->depth * f->inputs * f->outputs);
}
/* Packs input channel `in` of a plane and the panel of output channels from `out` on. */
void tr_cpu_wino_pack(const cpu_wino_filters_t *f, int64_t plane, int64_t in, int64_t out,
                      float *packed);

/* The gradient of the filters from sums of products: (group, place, plane and output channel, input
 * channel), with the groups added in order. */
typedef struct {
    int size, groups;
    int64_t inputs;
    int64_t step; /* distance between places in floats; a group has all places */
    const float *sums;
} cpu_wino_sums_t;
/* Writes a plane of an output channel, `row` of the sums, to dw: (r, r, C). */
void tr_cpu_wino_unpack(const cpu_wino_sums_t *s, int64_t row, float *dw);

/* c (rows, columns) = a b, summed over `parts` parts of `terms`. Of part p, element (i, k) of a is
 * a[i * row_a + p * part_a + k * step_a], row k of b is at b + p * part_b + k * row_b; columns are a
 * multiple of the vector lanes. Each element is summed in the order of p and k, regardless of
 * blocking. */
typedef struct {
    const float *a, *b;
    int64_t row_a, part_a, step_a, row_b, part_b, parts, terms;
    float *c;
    int64_t row_c;
} cpu_wino_product_t;
/* b from tr_cpu_wino_pack; row_b and part_b are not read. */
void tr_cpu_wino_multiply(cpu_wino_product_t o, int64_t rows, int64_t columns);
/* b is not packed; with add, c += a b. */
void tr_cpu_wino_multiply_add(cpu_wino_product_t o, int64_t rows, int64_t columns, bool add);

#endif
