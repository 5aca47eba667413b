/* Convolutions by Winograd's algorithm: which ones, forward, and the gradient of the input, which
 * is also a convolution. */
#include "cpu_winograd_int.h"
#include <string.h>

enum {
    PLACES = CPU_WINO_PLACES,
    LANES = CPU_VEC_LANES,
    COLUMNS = 4 * CPU_WINO_PANEL, /* of the products that a thread computes at a time */
    MAX_CHANNELS = 1024
};

/* -- which convolutions ------------------------------------------------------------------------ */

static cpu_images_t images_of(const tr_view_t *view, int spatial) {
    const int64_t *plane = view->shape.dim + spatial - 1;
    return (cpu_images_t){view->shape.dim[0], spatial == 3 ? view->shape.dim[1] : 1, plane[0],
                          plane[1], plane[2]};
}

/* In multiply-adds: the products, and about 4 per value of a transformed tile and 8 per value of a
 * transformed filter. */
static double cost(const cpu_winograd_t *conv, bool without_filters) {
    const cpu_wino_tiles_t t = cpu_wino_tiles(conv);
    const double in = (double)conv->x.c, out = (double)conv->y.c, products = conv->depth * in * out,
                 tiles = (double)(t.count * conv->y.d),
                 again = (double)cpu_wino_planes_of_x(&t, t.planes) / (double)t.planes;
    return PLACES *
           (tiles * (products + 4 * (again * in + out)) + 8 * (without_filters ? 0 : products));
}

bool tr_cpu_winograd_suits(const tr_conv_attr_t *attr, bool alone, const tr_view_t *x,
                           const tr_view_t *w, const tr_view_t *y, cpu_winograd_t *out) {
    const int size = tr_winograd_size(attr), h = attr->spatial - 2; /* the dimension of rows */
    if (size == 0) return false;
    if (attr->act != TR_ACT_NONE && attr->act != TR_ACT_RELU) return false;
    if (y->dtype != x->dtype) return false;
    *out = (cpu_winograd_t){.x = images_of(x, attr->spatial),
                            .y = images_of(y, attr->spatial),
                            .depth = h > 0 ? attr->kernel[0] : 1,
                            .size = size,
                            .pad_d = h > 0 ? attr->pad_lo[0] : 0,
                            .pad_h = attr->pad_lo[h],
                            .pad_w = attr->pad_lo[h + 1],
                            .type = x->dtype};
    if (out->x.c % LANES || out->y.c % LANES || out->x.c > MAX_CHANNELS || out->y.c > MAX_CHANNELS)
        return false;
    const double direct = (double)(out->y.n * out->y.d * out->y.h * out->y.w) *
                          (double)(out->depth * size * size) * (double)(out->x.c * out->y.c);
    return cost(out, alone) < 0.8 * direct;
}

/* -- forward ----------------------------------------------------------------------------------- */

typedef struct {
    cpu_wino_tiles_t tiles;
    const void *x, *zeros;
    const float *packed;
    cpu_wino_output_t out;
    int64_t block; /* tiles at a time */
    int64_t step_v, step_m, step_packed;
} pass_t;

static int64_t cpu_winograd_columns_of(const cpu_winograd_t *conv) {
    return conv->y.c < COLUMNS ? conv->y.c : COLUMNS;
}

/* Blocks of equal size, so that threads have about the same number of tiles. */
static int64_t block_of(const cpu_wino_tiles_t *tiles, int threads) {
    const int64_t own = (tiles->count + threads - 1) / threads,
                  most = CPU_WINO_TILES / tiles->planes, blocks = (own + most - 1) / most;
    return (own + blocks - 1) / blocks;
}

static pass_t cpu_winograd_pass_of(const tr_device_t *device, const cpu_winograd_t *conv) {
    pass_t p = {.tiles = cpu_wino_tiles(conv)};
    const int64_t planes = p.tiles.planes;
    p.block = block_of(&p.tiles, device->threads);
    p.step_v = cpu_wino_apart(cpu_wino_planes_of_x(&p.tiles, planes) * p.block * conv->x.c);
    p.step_m = cpu_wino_apart(planes * p.block * cpu_winograd_columns_of(conv));
    p.step_packed = cpu_wino_apart(conv->depth * conv->x.c * conv->y.c);
    return p;
}

static size_t pass_bytes(const tr_device_t *device, const cpu_winograd_t *conv) {
    const pass_t p = cpu_winograd_pass_of(device, conv);
    int64_t own = PLACES * (p.step_v + p.step_m);
    return (size_t)(PLACES * p.step_packed + cpu_wino_zeros(conv->x.c) + device->threads * own) *
           sizeof(float);
}

/* Tiles [first, first + count) of planes [plane, plane + planes). */
static void pass_block(const pass_t *p, int64_t first, int64_t count, int64_t plane, int64_t planes,
                       float *v, float *m) {
    const cpu_wino_tiles_t *tiles = &p->tiles;
    const cpu_winograd_t *conv = &tiles->conv;
    const int64_t in = conv->x.c, out = conv->y.c, depth = conv->depth;
    for (int64_t i = 0; i < cpu_wino_planes_of_x(tiles, planes); i++)
        for (int64_t t = 0; t < count; t++)
            tr_cpu_wino_input(tiles, first + t, plane + i - conv->pad_d, p->x, p->zeros,
                              v + (i * count + t) * in, p->step_v);
    for (int64_t column = 0; column < out; column += COLUMNS) {
        int64_t columns = out - column < COLUMNS ? out - column : COLUMNS;
        for (int place = 0; place < PLACES; place++) {
            const cpu_range_t need = cpu_wino_needing(tiles, place, first, first + count);
            const int64_t rows = need.last - need.first;
            const bool all = rows == count; /* then planes follow each other without a gap */
            for (int64_t i = 0; i < (all ? 1 : planes); i++) {
                const int64_t row = i * count + need.first - first;
                tr_cpu_wino_multiply(
                    (cpu_wino_product_t){.a = v + place * p->step_v + row * in,
                                         .row_a = in,
                                         .part_a = count * in,
                                         .step_a = 1,
                                         .b = p->packed + place * p->step_packed +
                                              column * depth * in,
                                         .parts = depth,
                                         .terms = in,
                                         .c = m + place * p->step_m + row * columns,
                                         .row_c = columns},
                    all ? planes * count : rows, columns);
            }
        }
        for (int64_t i = 0; i < planes; i++)
            for (int64_t t = 0; t < count; t++)
                tr_cpu_wino_output(tiles, first + t, plane + i, m + (i * count + t) * columns,
                                   p->step_m, column, columns, &p->out);
    }
}

/* The work of one thread of a team. */
static void pack_filters(const cpu_wino_filters_t *f, float *packed) {
#pragma omp for schedule(static) collapse(3)
    for (int64_t out = 0; out < f->outputs; out += CPU_WINO_PANEL)
        for (int64_t plane = 0; plane < f->depth; plane++)
            for (int64_t in = 0; in < f->inputs; in++) tr_cpu_wino_pack(f, plane, in, out, packed);
}

static void pass_run(const tr_device_t *device, const cpu_winograd_t *conv,
                     cpu_wino_filters_t filters, const void *x, cpu_wino_output_t out,
                     float *scratch) {
    pass_t p = cpu_winograd_pass_of(device, conv);
    const cpu_range_t of_row = cpu_wino_needing(&p.tiles, PLACES - CPU_WINO_SIDE, 0, p.tiles.count),
                      of_column = cpu_wino_needing(&p.tiles, CPU_WINO_SIDE - 1, 0, p.tiles.count);
    filters.rows = CPU_WINO_SIDE - (of_row.last == of_row.first);
    filters.columns = CPU_WINO_SIDE - (of_column.last == of_column.first);
    float *packed = scratch, *zeros = packed + PLACES * p.step_packed,
          *own = zeros + cpu_wino_zeros(conv->x.c);
    p.x = x, p.out = out, p.packed = packed, p.zeros = zeros;
    memset(zeros, 0, (size_t)cpu_wino_zeros(conv->x.c) * sizeof *zeros);
#pragma omp parallel num_threads(device->threads)
    {
        float *v = own + omp_get_thread_num() * PLACES * (p.step_v + p.step_m),
              *m = v + PLACES * p.step_v;
        pack_filters(&filters, packed);
/* Block by block, because whole tiles take longer than those that are cut. */
#pragma omp for schedule(static, 1) collapse(2)
        for (int64_t first = 0; first < p.tiles.count; first += p.block)
            for (int64_t plane = 0; plane < conv->y.d; plane += p.tiles.planes) {
                const int64_t tiles = p.tiles.count - first, planes = conv->y.d - plane;
                pass_block(&p, first, tiles < p.block ? tiles : p.block, plane,
                           planes < p.tiles.planes ? planes : p.tiles.planes, v, m);
            }
    }
}

size_t tr_cpu_winograd_fwd_scratch_bytes(const tr_device_t *device, const cpu_winograd_t *conv) {
    return pass_bytes(device, conv);
}

void tr_cpu_winograd_fwd(const tr_device_t *device, const cpu_winograd_t *conv, const void *x,
                         const void *w, const float *bias, bool relu, void *y, void *scratch) {
    const int64_t in = conv->x.c, plane = conv->size * conv->size * in;
    const cpu_wino_filters_t filters = {.size = conv->size,
                                        .inputs = in,
                                        .outputs = conv->y.c,
                                        .input_stride = 1,
                                        .output_stride = conv->depth * plane,
                                        .depth = conv->depth,
                                        .place_stride = in,
                                        .plane_stride = plane,
                                        .type = conv->type,
                                        .w = w};
    pass_run(device, conv, filters, x, (cpu_wino_output_t){bias, relu, y}, scratch);
}

/* -- the gradient of the input ----------------------------------------------------------------- */

/* dx is dy convolved with the filters rotated by 180 degrees, with input and output channels
 * exchanged. */
static cpu_winograd_t turned(const cpu_winograd_t *conv) {
    return (cpu_winograd_t){.x = conv->y,
                            .y = conv->x,
                            .depth = conv->depth,
                            .size = conv->size,
                            .pad_d = conv->depth - 1 - conv->pad_d,
                            .pad_h = conv->size - 1 - conv->pad_h,
                            .pad_w = conv->size - 1 - conv->pad_w,
                            .type = conv->type};
}

size_t tr_cpu_winograd_bwd_data_scratch_bytes(const tr_device_t *device,
                                              const cpu_winograd_t *conv) {
    cpu_winograd_t back = turned(conv);
    return pass_bytes(device, &back);
}

void tr_cpu_winograd_bwd_data(const tr_device_t *device, const cpu_winograd_t *conv, const void *dy,
                              const void *w, void *dx, void *scratch) {
    const int64_t in = conv->x.c, plane = conv->size * conv->size * in;
    const cpu_winograd_t back = turned(conv);
    const cpu_wino_filters_t filters = {.size = conv->size,
                                        .inputs = conv->y.c,
                                        .outputs = in,
                                        .input_stride = conv->depth * plane,
                                        .output_stride = 1,
                                        .depth = conv->depth,
                                        .place_stride = -in,
                                        .plane_stride = -plane,
                                        .first = conv->depth * plane - in,
                                        .type = conv->type,
                                        .w = w};
    pass_run(device, &back, filters, dy, (cpu_wino_output_t){.y = dx}, scratch);
}
