/* Upsampling. Every position is computed from all that it reads, in rising order: outputs read
 * inputs, and in the backward pass inputs read outputs. Positions are flat indices of the spatial
 * dimensions; missing leading dimensions count as one. */
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_types.h"
#include "device/upsample.h"

enum { LANES = 16 /* channels at a time */, READ = 2 * TR_UPSAMPLE_MAX_FACTOR + 1 };

typedef struct {
    int64_t images, channels;
    int from[3], to[3], factor[3]; /* sizes of what is read and of what is written */
    bool linear, backward;
} geometry_t;

/* What a position reads, along each dimension: `count` from `first` on, with their weights. */
typedef struct {
    int first[3], count[3];
    float weight[3][READ];
} reads_t;

static geometry_t cpu_upsample_geometry(const tr_kernel_call_t *call, bool backward) {
    const tr_upsample_attr_t *attr = call->attr;
    const tr_shape_t *from = &call->in[0].shape, *to = &call->out[0].shape;
    geometry_t g = {.images = from->dim[0],
                    .channels = from->dim[from->ndim - 1],
                    .linear = attr->linear,
                    .backward = backward};
    for (int i = 0; i < 3; i++) {
        const int d = i - (3 - attr->spatial);
        g.from[i] = d < 0 ? 1 : (int)from->dim[1 + d];
        g.to[i] = d < 0 ? 1 : (int)to->dim[1 + d];
        g.factor[i] = d < 0 ? 1 : attr->factor[d];
    }
    return g;
}

static void cpu_upsample_reads(const geometry_t *g, int dim, int at, reads_t *reads) {
    const int factor = g->factor[dim];
    const float unit = 1.0f / (float)tr_upsample_unit(factor, g->linear);
    int last;
    if (g->backward) {
        tr_upsample_readers(at, factor, g->from[dim], g->linear, &reads->first[dim], &last);
        reads->count[dim] = last - reads->first[dim];
    } else {
        const tr_upsample_source_t source = tr_upsample_source(at, g->from[dim], factor, g->linear);
        reads->first[dim] = source.index;
        reads->count[dim] = source.next > 0 ? 2 : 1;
    }
    for (int k = 0; k < reads->count[dim]; k++) {
        const int read = reads->first[dim] + k;
        const int weight = g->backward
                               ? tr_upsample_weight(read, at, g->to[dim], factor, g->linear)
                               : tr_upsample_weight(at, read, g->from[dim], factor, g->linear);
        reads->weight[dim][k] = (float)weight * unit;
    }
}

/* `lanes` channels of one position; always inlined, so that the full width is a constant. */
CPU_INLINE void cpu_upsample_lanes(const geometry_t *g, const reads_t *reads, const void *x,
                                   void *y, int lanes, int type) {
    float sum[LANES];
    for (int c = 0; c < lanes; c++) sum[c] = 0;
    for (int i = 0; i < reads->count[0]; i++)
        for (int j = 0; j < reads->count[1]; j++) {
            const float outer = reads->weight[0][i] * reads->weight[1][j];
            const int64_t row = (int64_t)(reads->first[0] + i) * g->from[1] + reads->first[1] + j;
            const void *at = cpu_at(x, (row * g->from[2] + reads->first[2]) * g->channels, type);
            for (int k = 0; k < reads->count[2]; k++, at = cpu_at(at, g->channels, type)) {
                const float weight = outer * reads->weight[2][k];
                for (int c = 0; c < lanes; c++) sum[c] += weight * cpu_get(at, c, type);
            }
        }
    for (int c = 0; c < lanes; c++) cpu_put(y, c, sum[c], type);
}

/* A row of positions, flat over the outer two dimensions, of one image. */
CPU_INLINE void cpu_upsample_row(const geometry_t *g, int row, const void *x, void *y, int type) {
    reads_t reads;
    cpu_upsample_reads(g, 0, row / g->to[1], &reads);
    cpu_upsample_reads(g, 1, row % g->to[1], &reads);
    for (int i = 0; i < g->to[2]; i++, y = cpu_at_out(y, g->channels, type)) {
        int64_t c = 0;
        cpu_upsample_reads(g, 2, i, &reads);
        for (; c + LANES <= g->channels; c += LANES)
            cpu_upsample_lanes(g, &reads, cpu_at(x, c, type), cpu_at_out(y, c, type), LANES, type);
        if (c < g->channels)
            cpu_upsample_lanes(g, &reads, cpu_at(x, c, type), cpu_at_out(y, c, type),
                               (int)(g->channels - c), type);
    }
}

static void cpu_upsample_run(tr_device_t *device, const tr_kernel_call_t *call, bool backward) {
    const geometry_t g = cpu_upsample_geometry(call, backward);
    const int64_t rows = (int64_t)g.to[0] * g.to[1], row_elems = g.to[2] * g.channels;
    const int64_t image_elems = (int64_t)g.from[0] * g.from[1] * g.from[2] * g.channels;
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    const int threads = cpu_threads(device, g.images * rows * row_elems);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t i = 0; i < g.images * rows; i++)
        CPU_BY_TYPE(call->in[0].dtype, t,
                    cpu_upsample_row(&g, (int)(i % rows), cpu_at(x, i / rows * image_elems, t),
                                     cpu_at_out(y, i * row_elems, t), t));
}

CPU_KERNEL(upsample_fwd) {
    cpu_upsample_run(device, call, false);
    return TR_OK;
}

CPU_KERNEL(upsample_bwd) {
    cpu_upsample_run(device, call, true);
    return TR_OK;
}
