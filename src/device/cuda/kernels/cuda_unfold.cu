/* The pixels under each filter of a convolution as rows of a matrix. */
#include "cuda_types.cuh"
#include "device/cuda/cudnn/cuda_unfold.h"

enum { THREADS = 256, PACK = CUDA_UNFOLD_PACK };

/* A block makes a line of positions: it copies the lines of pixels under their filters to shared
 * memory, with zeros around the image, and gathers from there. Elements are only moved. */
static __global__ void __launch_bounds__(THREADS)
    unfold_kernel(const uint16_t *x, uint16_t *to, cuda_unfold_t u) {
    TR_DYNAMIC_SHARED(uint16_t, place); /* of each column's pixel; then the lines */
    const uint16_t none = 0xffff;
    uint16_t *const lines = place + u.columns;
    const int before = u.pad[2] * u.channels, width = u.size[2] * u.channels;
    const int64_t image = blockIdx.x / (unsigned)(u.out[0] * u.out[1]);
    const int at = (int)(blockIdx.x % (unsigned)(u.out[0] * u.out[1]));
    const int first[2] = {at / u.out[1] * u.stride[0] - u.pad[0],
                          at % u.out[1] * u.stride[1] - u.pad[1]};
    for (int i = (int)threadIdx.x; i < u.columns; i += THREADS) {
        const int tap = i / u.channels;
        place[i] = tap < u.taps ? (uint16_t)(tap / u.kernel[2] * u.line +
                                           tap % u.kernel[2] * u.dilation[2] * u.channels +
                                           i % u.channels)
                              : none;
    }
    for (int l = 0; l < u.taps / u.kernel[2]; l++) {
        const int d = first[0] + l / u.kernel[1] * u.dilation[0],
                  h = first[1] + l % u.kernel[1] * u.dilation[1];
        const bool inside = d >= 0 && d < u.size[0] && h >= 0 && h < u.size[1];
        const uint16_t *from = x + ((image * u.size[0] + d) * u.size[1] + h) * width;
        for (int i = (int)threadIdx.x; i < u.line; i += THREADS) {
            const int j = i - before;
            lines[l * u.line + i] = inside && j >= 0 && j < width ? from[j] : (uint16_t)0;
        }
    }
    __syncthreads();
    const int packs = u.columns / PACK, step = u.stride[2] * u.channels;
    uint16_t *const rows = to + (int64_t)blockIdx.x * u.out[2] * u.columns;
    for (int i = (int)threadIdx.x; i < u.out[2] * packs; i += THREADS) {
        const uint16_t *from = lines + i / packs * step;
        __align__(16) uint16_t v[PACK], pixel[PACK];
        move_wide<PACK *(int)sizeof(uint16_t)>(pixel, place + i % packs * PACK);
#pragma unroll
        for (int k = 0; k < PACK; k++) v[k] = pixel[k] != none ? from[pixel[k]] : (uint16_t)0;
        move_wide<PACK *(int)sizeof(uint16_t)>(rows + (int64_t)i * PACK, v);
    }
}

tr_status_t tr_cuda_unfold(tr_stream_t *stream, const void *x, void *u, const cuda_unfold_t *unfold,
                           int64_t images) {
    const unsigned blocks = (unsigned)(images * unfold->out[0] * unfold->out[1]);
    return tr_cuda_check(TR_LAUNCH(unfold_kernel, blocks, THREADS,
                                   cuda_unfold_shared_bytes(unfold), stream->handle,
                                   (const uint16_t *)x, (uint16_t *)u, *unfold),
                         "the launch of unfold_kernel");
}
