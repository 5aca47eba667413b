/* Upsampling. A thread computes N channels of one position, from all that it reads, in rising
 * order: outputs read inputs, and in the backward pass inputs read outputs. */
#include "cuda_types.cuh"
#include "device/upsample.h"

enum { THREADS = 256 };

typedef struct {
    int64_t channels;
    int from[3], to[3], factor[3]; /* sizes of what is read and of what is written */
    int from_size, to_size;        /* positions in an image */
    float unit[3];
    bool linear, backward;
} upsample_t;

static upsample_t upsample_geometry(const tr_kernel_call_t *call, bool backward) {
    const tr_upsample_attr_t *attr = (const tr_upsample_attr_t *)call->attr;
    const tr_shape_t *from = &call->in[0].shape, *to = &call->out[0].shape;
    upsample_t g = {};
    g.channels = from->dim[from->ndim - 1];
    g.linear = attr->linear, g.backward = backward;
    g.from_size = g.to_size = 1;
    for (int i = 0; i < 3; i++) {
        const int d = i - (3 - attr->spatial);
        g.from[i] = d < 0 ? 1 : (int)from->dim[1 + d];
        g.to[i] = d < 0 ? 1 : (int)to->dim[1 + d];
        g.factor[i] = d < 0 ? 1 : attr->factor[d];
        g.unit[i] = 1.0f / (float)tr_upsample_unit(g.factor[i], g.linear);
        g.from_size *= g.from[i], g.to_size *= g.to[i];
    }
    return g;
}

/* What position `at` of a dimension reads: from `first` to before `last`. */
static __device__ __forceinline__ void upsample_reads(const upsample_t &g, int dim, int at,
                                                      int &first, int &last) {
    if (g.backward) {
        tr_upsample_readers(at, g.factor[dim], g.from[dim], g.linear, &first, &last);
        return;
    }
    const tr_upsample_source_t source =
        tr_upsample_source(at, g.from[dim], g.factor[dim], g.linear);
    first = source.index;
    last = first + (source.next > 0 ? 2 : 1);
}

static __device__ __forceinline__ float upsample_weight(const upsample_t &g, int dim, int at,
                                                        int read) {
    const int weight = g.backward
                           ? tr_upsample_weight(read, at, g.to[dim], g.factor[dim], g.linear)
                           : tr_upsample_weight(at, read, g.from[dim], g.factor[dim], g.linear);
    return (float)weight * g.unit[dim];
}

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS, 3)
    upsample_kernel(upsample_t g, const T *x, T *y, int64_t work) {
    const unsigned packs = (unsigned)(g.channels / N);
    for (int64_t i = global_thread(); i < work; i += global_threads()) {
        const int64_t channel = (int64_t)((uint64_t)i % packs) * N;
        const int64_t place = (int64_t)((uint64_t)i / packs), image = place / g.to_size;
        const int position = (int)(place - image * g.to_size);
        const int w = position % g.to[2], row = position / g.to[2];
        const int h = row % g.to[1], d = row / g.to[1];
        const T *from = x + image * g.from_size * g.channels + channel;
        int first[3], last[3];
        float sum[N] = {};
        upsample_reads(g, 0, d, first[0], last[0]);
        upsample_reads(g, 1, h, first[1], last[1]);
        upsample_reads(g, 2, w, first[2], last[2]);
        for (int a = first[0]; a < last[0]; a++)
            for (int b = first[1]; b < last[1]; b++) {
                const float outer = upsample_weight(g, 0, d, a) * upsample_weight(g, 1, h, b);
                for (int c = first[2]; c < last[2]; c++) {
                    const float weight = outer * upsample_weight(g, 2, w, c);
                    const int read = (a * g.from[1] + b) * g.from[2] + c;
                    float v[N];
                    load(from + read * g.channels, true, v);
                    for (int k = 0; k < N; k++) sum[k] += weight * v[k];
                }
            }
        store(y + place * g.channels + channel, true, sum);
    }
}

static tr_status_t upsample(tr_device_t *device, tr_stream_t *stream, const tr_kernel_call_t *call,
                            bool backward) {
    const upsample_t g = upsample_geometry(call, backward);
    const void *x = call->in[0].data;
    void *y = call->out[0].data;
    CUDA_BY_TYPE(call->in[0].dtype, T, {
        const bool wide = g.channels % CUDA_PACK(T) == 0 && cuda_aligned(x) && cuda_aligned(y);
        CUDA_BY_PACK(wide, T, N, {
            const int64_t work = tr_shape_elems(&call->out[0].shape) / N;
            const unsigned blocks =
                cuda_blocks(work, THREADS, 64 * (int64_t)tr_cuda_grid_limit(device));
            CUDA_LAUNCH((upsample_kernel<T, N>), blocks, THREADS, stream, g, (const T *)x, (T *)y,
                        work);
        });
    });
    return TR_OK;
}

CUDA_KERNEL(upsample_fwd) {
    return upsample(device, stream, call, false);
}

CUDA_KERNEL(upsample_bwd) {
    return upsample(device, stream, call, true);
}
