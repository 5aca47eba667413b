/* Kernels of the fakes' own tests, some with mistakes in them. */
#include "device/cuda/kernels/cuda_types.cuh"
#include "device/cpu/cpu_types.h"
#include <cuda_bf16.h>

#define ALL 0xffffffffu

/* A delay that only the order of streams decides: y = x + 1. */
__global__ void add_one(float *y, const float *x, int n) {
    for (int i = (int)(blockIdx.x * blockDim.x + threadIdx.x); i < n;
         i += (int)(blockDim.x * gridDim.x))
        y[i] = x[i] + 1;
}

/* One sum per block: shuffles, static and dynamic shared memory. BARRIER false is the planted
 * mistake. */
template <class T, bool BARRIER> __global__ void sum_rows(float *y, const T *x, int n) {
    __shared__ float warps[32];
    TR_DYNAMIC_SHARED(float, copy);
    const int thread = (int)threadIdx.x;
    float v = 0;
    for (int i = thread; i < n; i += (int)blockDim.x)
        v += (float)__ldg(x + (int)blockIdx.x * n + i);
    copy[thread] = v;
    for (int k = 16; k; k >>= 1) v += __shfl_xor_sync(ALL, v, k);
    if (thread % 32 == 0) warps[thread / 32] = v;
    if (BARRIER) __syncthreads();
    if (thread) return;
    v = 0;
    for (int i = 0; i < (int)blockDim.x / 32; i++) v += warps[i];
    y[blockIdx.x] = v;
}

__global__ void count_up(unsigned *counter, unsigned *ballots) {
    const unsigned odd = __ballot_sync(ALL, threadIdx.x & 1);
    atomicAdd(counter, 1u);
    const int many = __syncthreads_count(threadIdx.x < 40);
    const unsigned total = __reduce_add_sync(ALL, threadIdx.x & 31);
    if (threadIdx.x == 0) ballots[0] = odd, ballots[1] = (unsigned)many, ballots[2] = total;
}

__global__ void divergent(float *y) {
    if (threadIdx.x < 7) {
        y[0] = 1;
        __syncthreads();
    } else
        __syncthreads();
}

__global__ void missing_lane(float *y) {
    if (threadIdx.x == 3) __syncthreads();
    y[threadIdx.x] = __shfl_sync(ALL, y[threadIdx.x], 0);
    __syncthreads();
}

extern "C" {
cudaError_t run_add_one(float *y, const float *x, int n, cudaStream_t stream) {
    return TR_LAUNCH(add_one, 4, 64, 0, stream, y, x, n);
}
cudaError_t run_sum(float *y, const float *x, int rows, int n, int threads, bool barrier,
                    cudaStream_t stream) {
    const size_t bytes = (size_t)threads * sizeof(float);
    return barrier ? TR_LAUNCH((sum_rows<float, true>), rows, threads, bytes, stream, y, x, n)
                   : TR_LAUNCH((sum_rows<float, false>), rows, threads, bytes, stream, y, x, n);
}
cudaError_t run_sum_bf16(float *y, const void *x, int rows, int n, cudaStream_t stream) {
    return TR_LAUNCH((sum_rows<__nv_bfloat16, true>), rows, 256, 1024, stream, y,
                     (const __nv_bfloat16 *)x, n);
}
/* A kernel's rounding where the GPU has no instruction for it, and the CPU's. */
uint16_t round_by_kernel(float x) {
    return from_float<bf16_t>(x).bits;
}
uint16_t round_by_cpu(float x) {
    return tr_bf16_of_float(x);
}
cudaError_t run_count(unsigned *counter, unsigned *ballots, cudaStream_t stream) {
    return TR_LAUNCH(count_up, dim3(3, 2), dim3(32, 4), 0, stream, counter, ballots);
}
cudaError_t run_divergent(float *y, cudaStream_t stream) {
    return TR_LAUNCH(divergent, 1, 32, 0, stream, y);
}
cudaError_t run_missing_lane(float *y, cudaStream_t stream) {
    return TR_LAUNCH(missing_lane, 1, 32, 0, stream, y);
}
cudaError_t run_shape(float *y, dim3 grid, dim3 block, size_t shared_bytes) {
    return TR_LAUNCH(divergent, grid, block, shared_bytes, 0, y);
}
}
