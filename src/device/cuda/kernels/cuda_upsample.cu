/* Upsampling. A thread computes N channels of one position, from all that it reads, in rising
 * order: outputs read inputs, and in the backward pass inputs read outputs. */
#include "cuda_types.cuh"
#include "device/upsample.h"

enum { THREADS = 256 };

typedef struct {
    int64_t channels;
    int from[3], to[3], factor[3]; /* sizes of what is read and of what is written */
    bool linear, backward;
} geometry_t;

static geometry_t upsample_geometry(const tr_kernel_call_t *call, bool backward) {
    const tr_upsample_attr_t *attr = (const tr_upsample_attr_t *)call->attr;
    const tr_shape_t *from = &call->in[0].shape, *to = &call->out[0].shape;
    geometry_t g = {};
    g.channels = from->dim[from->ndim - 1];
    g.linear = attr->linear, g.backward = backward;
    for (int i = 0; i < 3; i++) {
        const int d = i - (3 - attr->spatial);
        g.from[i] = d < 0 ? 1 : (int)from->dim[1 + d];
        g.to[i] = d < 0 ? 1 : (int)to->dim[1 + d];
        g.factor[i] = d < 0 ? 1 : attr->factor[d];
    }
    return g;
}

static __device__ __forceinline__ void upsample_reads(const geometry_t &g, int dim, int at, int &first,
                                                int &last) {
    if (g.backward) {
        tr_upsample_readers(at, g.factor[dim], g.from[dim], g.linear, &first, &last);
        return;
    }
    const tr_upsample_source_t source = tr_upsample_source(at, g.from[dim], g.factor[dim],
                                                           g.linear);
    first = source.index;
    last = first + (source.next > 0 ? 2 : 1);
}

static __device__ __forceinline__ float upsample_weight(const geometry_t &g, int dim, int at, int read) {
    return g.backward ? tr_upsample_weight(read, at, g.to[dim], g.factor[dim], g.linear)
                      : tr_upsample_weight(at, read, g.from[dim], g.factor[dim], g.linear);
}

template <typename T, int N>
static __global__ void __launch_bounds__(THREADS)
    upsample_kernel(geometry_t g, const T *x, T *y, int64_t work) {
    const unsigned packs = (unsigned)(g.channels / N);
    const int64_t image_elems = (int64_t)g.from[0] * g.from[1] * g.from[2] * g.channels;
    for (int64_t i = global_thread(); i < work; i += global_threads()) {
        const int64_t position = i / packs, channel = i % packs * N;
        const int w = (int)(position % g.to[2]), h = (int)(position / g.to[2] % g.to[1]);
        const int64_t slice = position / g.to[2] / g.to[1];
        const int d = (int)(slice % g.to[0]);
        const T *from = x + slice / g.to[0] * image_elems + channel;
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
                    const int64_t read = ((int64_t)a * g.from[1] + b) * g.from[2] + c;
                    float v[N];
                    load(from + read * g.channels, true, v);
                    for (int k = 0; k < N; k++) sum[k] += weight * v[k];
                }
            }
        store(y + position * g.channels + channel, true, sum);
    }
}

static tr_status_t upsample(tr_device_t *device, tr_stream_t *stream, const tr_kernel_call_t *call,
                            bool backward) {
    const geometry_t g = upsample_geometry(call, backward);
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
