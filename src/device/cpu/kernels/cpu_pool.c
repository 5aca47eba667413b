/* Pooling. Every image and every block of channels is computed separately, with positions in one
 * order for any number of threads. Positions are flat indices of the spatial dimensions; missing
 * leading dimensions count as one. */
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_types.h"
#include "device/cpu/cpu_vector.h"
#include <math.h>
#include <string.h>

#define NARROW 64            /* channels per thread in the backward pass if there are few images */
#define LANES  CPU_VEC_LANES /* channels at a time */
#define BLOCK  64            /* positions that are summed in floats */

typedef struct {
    int64_t in[3], out[3], kernel[3], stride[3], pad[3];
    int64_t images, channels, in_size, out_size; /* sizes: positions in an image */
} geometry_t;

/* The part of a window that lies inside the image, per dimension: [first, last). */
typedef struct {
    int64_t first[3], last[3];
} window_t;

static geometry_t cpu_pool_geometry_of(const tr_pool_attr_t *attr, const tr_shape_t *image,
                                       const tr_shape_t *pooled) {
    geometry_t g = {.images = image->dim[0],
                    .channels = image->dim[image->ndim - 1],
                    .in_size = 1,
                    .out_size = 1};
    for (int i = 0; i < 3; i++) {
        int from = i - (3 - attr->spatial);
        g.in[i] = g.out[i] = g.kernel[i] = g.stride[i] = 1;
        if (from < 0) continue;
        g.in[i] = image->dim[1 + from], g.out[i] = pooled->dim[1 + from];
        g.kernel[i] = attr->kernel[from], g.stride[i] = attr->stride[from],
        g.pad[i] = attr->pad_lo[from];
    }
    for (int i = 0; i < 3; i++) g.in_size *= g.in[i], g.out_size *= g.out[i];
    return g;
}

static void window_edge(const geometry_t *g, int dim, int64_t at, window_t *w) {
    int64_t start = at * g->stride[dim] - g->pad[dim], end = start + g->kernel[dim];
    w->first[dim] = start > 0 ? start : 0;
    w->last[dim] = end < g->in[dim] ? end : g->in[dim];
}

/* The edges of output row `row` (flat over the outer two dimensions); window_edge of dimension 2
 * remains per position. */
static window_t window_row(const geometry_t *g, int64_t row) {
    window_t w;
    window_edge(g, 0, row / g->out[1], &w);
    window_edge(g, 1, row % g->out[1], &w);
    return w;
}

/* Never 0: padding is smaller than the kernel. */
static int64_t window_size(const window_t *w) {
    return (w->last[0] - w->first[0]) * (w->last[1] - w->first[1]) * (w->last[2] - w->first[2]);
}

/* Runs `body` with `pos` for each position of window `w`, in rising order. */
#define FOR_WINDOW(g, w, pos)                                                                      \
    for (int64_t d_ = (w)->first[0]; d_ < (w)->last[0]; d_++)                                      \
        for (int64_t h_ = (w)->first[1]; h_ < (w)->last[1]; h_++)                                  \
            for (int64_t pos = (d_ * (g)->in[1] + h_) * (g)->in[2] + (w)->first[2],                \
                         end_ = pos - (w)->first[2] + (w)->last[2];                                \
                 pos < end_; pos++)

/* -- forward: `lanes` channels of one window; always inlined, so that the full width is a constant
 */

/* Of any alignment. Written out because the compiler does not vectorise two selections behind one
 * comparison. */
typedef float lanes_f32_t __attribute__((vector_size(LANES * 4), aligned(4), may_alias));
typedef uint16_t lanes_u16_t __attribute__((vector_size(LANES * 2), aligned(2), may_alias));
typedef uint32_t lanes_u32_t __attribute__((vector_size(LANES * 4)));
typedef int32_t lanes_i32_t __attribute__((vector_size(LANES * 4), aligned(4), may_alias));

static int32_t first_position(const geometry_t *g, const window_t *w) {
    return (int32_t)((w->first[0] * g->in[1] + w->first[1]) * g->in[2] + w->first[2]);
}

/* LANES elements from x on, as floats. */
CPU_INLINE lanes_f32_t get_lanes(const void *x, int type) {
    if (type == TR_F32) return *(const lanes_f32_t *)x;
    if (type == TR_F16) {
        lanes_f32_t value;
        for (int c = 0; c < LANES; c++) value[c] = cpu_get(x, c, type);
        return value;
    }
    return (lanes_f32_t)(__builtin_convertvector(*(const lanes_u16_t *)x, lanes_u32_t) << 16);
}

/* `value` is one that get_lanes gave: there is nothing to round. */
CPU_INLINE void put_lanes(void *y, lanes_f32_t value, int type) {
    if (type == TR_F32)
        *(lanes_f32_t *)y = value;
    else if (type == TR_F16)
        for (int c = 0; c < LANES; c++) cpu_put(y, c, value[c], type);
    else
        *(lanes_u16_t *)y = __builtin_convertvector((lanes_u32_t)value >> 16, lanes_u16_t);
}

/* A NaN replaces any number, and nothing replaces a NaN. */
CPU_INLINE void max_window_lanes(const geometry_t *g, const window_t *w, const void *x, void *y,
                                 int32_t *index, int type) {
    lanes_f32_t best = (lanes_f32_t){0} - INFINITY;
    lanes_i32_t where = (lanes_i32_t){0} + first_position(g, w);
    FOR_WINDOW(g, w, pos) {
        lanes_f32_t here = get_lanes(cpu_at(x, pos * g->channels, type), type);
        lanes_i32_t take = (here > best) | ((here != here) & (best == best));
        best = (lanes_f32_t)(((lanes_i32_t)here & take) | ((lanes_i32_t)best & ~take));
        where = (((lanes_i32_t){0} + (int32_t)pos) & take) | (where & ~take);
    }
    put_lanes(y, best, type);
    if (index) *(lanes_i32_t *)index = where;
}

CPU_INLINE void max_window_one(const geometry_t *g, const window_t *w, const void *x, void *y,
                               int32_t *index, int type) {
    float best = -INFINITY;
    int32_t where = first_position(g, w);
    FOR_WINDOW(g, w, pos) {
        float here = cpu_get(x, pos * g->channels, type);
        if (!(here > best) && !(here != here && best == best)) continue;
        best = here, where = (int32_t)pos;
    }
    cpu_put(y, 0, best, type);
    if (index) *index = where;
}

/* The float sums of BLOCK positions at a time: in one float of a large image's sum each value is
 * lost in part. */
CPU_INLINE void sum_long_window(const geometry_t *g, const window_t *w, const void *x,
                                double *total, int lanes, int type) {
    float sum[LANES];
    int64_t count = 0;
    for (int c = 0; c < lanes; c++) sum[c] = 0.0f, total[c] = 0.0;
    FOR_WINDOW(g, w, pos) {
        const void *row = cpu_at(x, pos * g->channels, type);
        for (int c = 0; c < lanes; c++) sum[c] += cpu_get(row, c, type);
        if (++count % BLOCK != 0) continue;
        for (int c = 0; c < lanes; c++) total[c] += sum[c], sum[c] = 0.0f;
    }
    for (int c = 0; c < lanes; c++) total[c] += sum[c];
}

CPU_INLINE void avg_long_window(const geometry_t *g, const window_t *w, const void *x, void *y,
                                int lanes, int type) {
    double total[LANES], size = (double)window_size(w);
    sum_long_window(g, w, x, total, lanes, type);
    for (int c = 0; c < lanes; c++) cpu_put(y, c, (float)(total[c] / size), type);
}

CPU_INLINE void avg_window(const geometry_t *g, const window_t *w, const void *x, void *y,
                           int lanes, int type) {
    float sum[LANES];
    int64_t size = window_size(w);
    if (size > BLOCK) {
        avg_long_window(g, w, x, y, lanes, type);
        return;
    }
    for (int c = 0; c < lanes; c++) sum[c] = 0.0f;
    FOR_WINDOW(g, w, pos) {
        const void *row = cpu_at(x, pos * g->channels, type);
        for (int c = 0; c < lanes; c++) sum[c] += cpu_get(row, c, type);
    }
    for (int c = 0; c < lanes; c++) cpu_put(y, c, sum[c] / (float)size, type);
}

CPU_INLINE void max_row(const geometry_t *g, const window_t *w, const void *x, void *y,
                        int32_t *index, int t) {
    int64_t c = 0;
    for (; c + LANES <= g->channels; c += LANES)
        max_window_lanes(g, w, cpu_at(x, c, t), cpu_at_out(y, c, t), index ? index + c : NULL, t);
    for (; c < g->channels; c++)
        max_window_one(g, w, cpu_at(x, c, t), cpu_at_out(y, c, t), index ? index + c : NULL, t);
}

CPU_INLINE void avg_row(const geometry_t *g, const window_t *w, const void *x, void *y, int t) {
    int64_t c = 0;
    for (; c + LANES <= g->channels; c += LANES)
        avg_window(g, w, cpu_at(x, c, t), cpu_at_out(y, c, t), LANES, t);
    if (c < g->channels)
        avg_window(g, w, cpu_at(x, c, t), cpu_at_out(y, c, t), (int)(g->channels - c), t);
}

CPU_INLINE void forward_row(const geometry_t *g, bool max, int64_t row, const void *x, void *y,
                            int32_t *index, int t) {
    window_t w = window_row(g, row);
    for (int64_t i = 0; i < g->out[2]; i++) {
        int64_t at = (row * g->out[2] + i) * g->channels;
        window_edge(g, 2, i, &w);
        if (max)
            max_row(g, &w, x, cpu_at_out(y, at, t), index ? index + at : NULL, t);
        else
            avg_row(g, &w, x, cpu_at_out(y, at, t), t);
    }
}

CPU_KERNEL(pool_fwd) {
    const tr_pool_attr_t *attr = call->attr;
    const geometry_t g = cpu_pool_geometry_of(attr, &call->in[0].shape, &call->out[0].shape);
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    int32_t *index = attr->max ? call->out[1].data : NULL;
    int64_t rows = g.out[0] * g.out[1], in_elems = g.in_size * g.channels;
#pragma omp parallel for num_threads(cpu_threads(device, tr_shape_elems(&call->in[0].shape)))      \
    schedule(static)
    for (int64_t i = 0; i < g.images * rows; i++) {
        int64_t image = i / rows, out = image * g.out_size * g.channels;
        int32_t *where = index ? index + out : NULL;
        CPU_BY_TYPE(call->in[0].dtype, t,
                    forward_row(&g, attr->max, i % rows, cpu_at(x, image * in_elems, t),
                                cpu_at_out(y, out, t), where, t));
    }
    return TR_OK;
}

/* -- backward: a block of channels of one image; windows may overlap, so that contributions are
 * added, in f32  */

/* `line` elements from one position to the next in dx. */
CPU_INLINE void max_window_bwd(const geometry_t *g, const window_t *w, const void *dy,
                               const int32_t *index, float *dx, int64_t line, int64_t channels,
                               int type) {
    FOR_WINDOW(g, w, pos) {
        float *row = dx + pos * line;
        for (int64_t c = 0; c < channels; c++)
            row[c] += index[c] == (int32_t)pos ? cpu_get(dy, c, type) : 0.0f;
    }
}

CPU_INLINE void avg_window_bwd(const geometry_t *g, const window_t *w, const void *dy, float *dx,
                               int64_t line, int64_t channels, int type) {
    float size = (float)window_size(w);
    FOR_WINDOW(g, w, pos) {
        float *row = dx + pos * line;
        for (int64_t c = 0; c < channels; c++) row[c] += cpu_get(dy, c, type) / size;
    }
}

CPU_INLINE void backward_block(const geometry_t *g, const void *dy, const int32_t *index, float *dx,
                               int64_t line, int64_t channels, int type) {
    bool whole = channels == line;
    int64_t runs = whole ? 1 : g->in_size, run = whole ? g->in_size * channels : channels;
    for (int64_t i = 0; i < runs; i++) memset(dx + i * line, 0, (size_t)run * sizeof *dx);
    for (int64_t row = 0; row < g->out[0] * g->out[1]; row++) {
        window_t w = window_row(g, row);
        for (int64_t i = 0; i < g->out[2]; i++) {
            int64_t at = (row * g->out[2] + i) * g->channels;
            window_edge(g, 2, i, &w);
            if (index)
                max_window_bwd(g, &w, cpu_at(dy, at, type), index + at, dx, line, channels, type);
            else
                avg_window_bwd(g, &w, cpu_at(dy, at, type), dx, line, channels, type);
        }
    }
}

/* In 16 bits a block is summed in scratch and rounded once. */
CPU_INLINE void backward_block_narrow(const geometry_t *g, const uint16_t *dy, const int32_t *index,
                                      uint16_t *dx, int64_t channels, float *sum, int type) {
    backward_block(g, dy, index, sum, channels, channels, type);
    for (int64_t pos = 0; pos < g->in_size; pos++)
        for (int64_t c = 0; c < channels; c++)
            dx[pos * g->channels + c] = cpu_narrow(sum[pos * channels + c], type);
}

static int64_t block_channels(const tr_device_t *device, const geometry_t *g) {
    return g->images >= 4 * device->threads || g->channels < NARROW ? g->channels : NARROW;
}

CPU_KERNEL(pool_bwd) {
    const tr_pool_attr_t *attr = call->attr;
    const geometry_t g = cpu_pool_geometry_of(attr, &call->out[0].shape, &call->in[0].shape);
    const void *dy = call->in[0].data;
    const int32_t *index = attr->max ? call->in[1].data : NULL;
    void *dx = call->out[0].data;
    int64_t width = block_channels(device, &g), blocks = (g.channels + width - 1) / width;
#pragma omp parallel for num_threads(cpu_threads(device, tr_shape_elems(&call->out[0].shape)))     \
    schedule(static)
    for (int64_t i = 0; i < g.images * blocks; i++) {
        int64_t image = i / blocks, c = i % blocks * width,
                channels = g.channels - c < width ? g.channels - c : width;
        int64_t out = image * g.out_size * g.channels + c, in = image * g.in_size * g.channels + c;
        const int32_t *where = index ? index + out : NULL;
        float *sum = (float *)call->scratch + omp_get_thread_num() * g.in_size * width;
        CPU_BY_TYPE(call->out[0].dtype, t, {
            if ((int)t == (int)TR_F32)
                backward_block(&g, cpu_at(dy, out, t), where, cpu_at_out(dx, in, t), g.channels,
                               channels, t);
            else
                backward_block_narrow(&g, cpu_at(dy, out, t), where, cpu_at_out(dx, in, t),
                                      channels, sum, t);
        });
    }
    return TR_OK;
}

CPU_KERNEL_PREPARE(pool_bwd) {
    const geometry_t g = cpu_pool_geometry_of(call->attr, &call->out[0].shape, &call->in[0].shape);
    int64_t sums =
        call->out[0].dtype != TR_F32 ? device->threads * g.in_size * block_channels(device, &g) : 0;
    *out_state = NULL;
    *out_scratch_bytes = (size_t)sums * sizeof(float);
    return TR_OK;
}
