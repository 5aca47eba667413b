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

static cpu_images_t images_of(const tr_view_t *view) {
    const int64_t *dim = view->shape.dim;
    return (cpu_images_t){dim[0], dim[1], dim[2], dim[3]};
}

/* In multiply-adds: the products, and about 4 per value of a transformed tile and 8 per value of a
 * transformed filter. */
static double cost(const cpu_winograd_t *conv, bool without_filters) {
    double in = (double)conv->x.c, out = (double)conv->y.c,
           tiles = (double)cpu_wino_tiles(conv).count, filters = without_filters ? 0 : in * out;
    return PLACES * (tiles * (in * out + 4 * (in + out)) + 8 * filters);
}

bool tr_cpu_winograd_suits(const tr_conv_attr_t *attr, bool alone, const tr_view_t *x,
                           const tr_view_t *w, const tr_view_t *y, cpu_winograd_t *out) {
    int size = attr->kernel[0];
    if (attr->spatial != 2 || attr->groups != 1 || attr->kernel[1] != size ||
        (size != 3 && size != 5))
        return false;
    for (int i = 0; i < 2; i++)
        if (attr->stride[i] != 1 || attr->dilation[i] != 1 || attr->pad_lo[i] >= size) return false;
    if (attr->act != TR_ACT_NONE && attr->act != TR_ACT_RELU) return false;
    if (x->dtype != TR_F32 || w->dtype != TR_F32 || y->dtype != TR_F32) return false;
    *out = (cpu_winograd_t){images_of(x), images_of(y), size, attr->pad_lo[0], attr->pad_lo[1]};
    if (out->x.c % LANES || out->y.c % LANES || out->x.c > MAX_CHANNELS || out->y.c > MAX_CHANNELS)
        return false;
    double direct =
        (double)(out->y.n * out->y.h * out->y.w * size * size) * (double)(out->x.c * out->y.c);
    return cost(out, alone) < 0.8 * direct;
}

/* -- forward ----------------------------------------------------------------------------------- */

typedef struct {
    cpu_wino_tiles_t tiles;
    const float *x, *packed, *zeros;
    cpu_wino_output_t out;
    int64_t block; /* tiles at a time */
    int64_t step_v, step_m, step_packed;
} pass_t;

static int64_t cpu_winograd_columns_of(const cpu_winograd_t *conv) {
    return conv->y.c < COLUMNS ? conv->y.c : COLUMNS;
}

/* Blocks of equal size, so that threads have about the same number of tiles. */
static int64_t block_of(int64_t tiles, int threads) {
    int64_t own = (tiles + threads - 1) / threads,
            blocks = (own + CPU_WINO_TILES - 1) / CPU_WINO_TILES;
    return (own + blocks - 1) / blocks;
}

static pass_t cpu_winograd_pass_of(const tr_device_t *device, const cpu_winograd_t *conv) {
    pass_t p = {.tiles = cpu_wino_tiles(conv)};
    p.block = block_of(p.tiles.count, device->threads);
    p.step_v = cpu_wino_apart(p.block * conv->x.c);
    p.step_m = cpu_wino_apart(p.block * cpu_winograd_columns_of(conv));
    p.step_packed = cpu_wino_apart(conv->x.c * conv->y.c);
    return p;
}

static size_t pass_bytes(const tr_device_t *device, const cpu_winograd_t *conv) {
    const pass_t p = cpu_winograd_pass_of(device, conv);
    int64_t own = PLACES * (p.step_v + p.step_m);
    return (size_t)(PLACES * p.step_packed + cpu_wino_apart(conv->x.c) + device->threads * own) *
           sizeof(float);
}

static void pass_block(const pass_t *p, int64_t first, int64_t count, float *v, float *m) {
    const cpu_wino_tiles_t *tiles = &p->tiles;
    int64_t in = tiles->conv.x.c, out = tiles->conv.y.c;
    for (int64_t t = 0; t < count; t++)
        tr_cpu_wino_input(tiles, first + t, p->x, p->zeros, v + t * in, p->step_v);
    for (int64_t column = 0; column < out; column += COLUMNS) {
        int64_t columns = out - column < COLUMNS ? out - column : COLUMNS;
        for (int place = 0; place < PLACES; place++)
            tr_cpu_wino_multiply(
                (cpu_wino_product_t){.a = v + place * p->step_v,
                                     .row_a = in,
                                     .step_a = 1,
                                     .b = p->packed + place * p->step_packed + column * in,
                                     .depth = in,
                                     .c = m + place * p->step_m,
                                     .row_c = columns},
                count, columns);
        for (int64_t t = 0; t < count; t++)
            tr_cpu_wino_output(tiles, first + t, m + t * columns, p->step_m, column, columns,
                               &p->out);
    }
}

/* The work of one thread of a team. */
static void pack_filters(const cpu_wino_filters_t *f, float *packed) {
#pragma omp for schedule(static) collapse(2)
    for (int64_t out = 0; out < f->outputs; out += LANES)
        for (int64_t in = 0; in < f->inputs; in++) tr_cpu_wino_pack(f, in, out, packed);
}

static void pass_run(const tr_device_t *device, const cpu_winograd_t *conv,
                     const cpu_wino_filters_t *filters, const float *x, cpu_wino_output_t out,
                     float *scratch) {
    pass_t p = cpu_winograd_pass_of(device, conv);
    float *packed = scratch, *zeros = packed + PLACES * p.step_packed,
          *own = zeros + cpu_wino_apart(conv->x.c);
    p.x = x, p.out = out, p.packed = packed, p.zeros = zeros;
    memset(zeros, 0, (size_t)conv->x.c * sizeof *zeros);
#pragma omp parallel num_threads(device->threads)
    {
        float *v = own + omp_get_thread_num() * PLACES * (p.step_v + p.step_m),
              *m = v + PLACES * p.step_v;
        pack_filters(filters, packed);
#pragma omp for schedule(static)
        for (int64_t first = 0; first < p.tiles.count; first += p.block)
            pass_block(&p, first, p.tiles.count - first < p.block ? p.tiles.count - first : p.block,
                       v, m);
    }
}

size_t tr_cpu_winograd_fwd_scratch_bytes(const tr_device_t *device, const cpu_winograd_t *conv) {
    return pass_bytes(device, conv);
}

void tr_cpu_winograd_fwd(const tr_device_t *device, const cpu_winograd_t *conv, const float *x,
                         const float *w, const float *bias, bool relu, float *y, void *scratch) {
    int64_t in = conv->x.c, places = conv->size * conv->size;
    const cpu_wino_filters_t filters = {conv->size, in, conv->y.c, 1, places * in, in, w};
    pass_run(device, conv, &filters, x, (cpu_wino_output_t){bias, relu, y}, scratch);
}

/* -- the gradient of the input ----------------------------------------------------------------- */

/* dx is dy convolved with the filters rotated by 180 degrees, with input and output channels
 * exchanged. */
static cpu_winograd_t turned(const cpu_winograd_t *conv) {
    return (cpu_winograd_t){conv->y, conv->x, conv->size, conv->size - 1 - conv->pad_h,
                            conv->size - 1 - conv->pad_w};
}

size_t tr_cpu_winograd_bwd_data_scratch_bytes(const tr_device_t *device,
                                              const cpu_winograd_t *conv) {
    cpu_winograd_t back = turned(conv);
    return pass_bytes(device, &back);
}

void tr_cpu_winograd_bwd_data(const tr_device_t *device, const cpu_winograd_t *conv,
                              const float *dy, const float *w, float *dx, void *scratch) {
    int64_t in = conv->x.c, places = conv->size * conv->size;
    const cpu_winograd_t back = turned(conv);
    const cpu_wino_filters_t filters = {conv->size,           conv->y.c, in, places * in, 1, -in,
                                        w + (places - 1) * in};
    pass_run(device, &back, &filters, dy, (cpu_wino_output_t){.y = dx}, scratch);
}
