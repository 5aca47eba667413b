/*
 * How a kernel is launched, on a GPU and on the host.
 *
 *     error = TR_LAUNCH((scale_kernel<float, 4>), grid, block, 0, stream, y, x, n, alpha);
 *
 * nvcc compiles this to a launch on `stream`. g++ with -DTR_HOSTCUDA and the headers of
 * tests/hostcuda/include compiles the same file for the fake libcudart: the launch is queued with
 * copies of its arguments, and the threads of each block run one after the other in a seeded order.
 * tests/hostcuda/README.md lists what a kernel may use.
 *
 * grid, block    int or dim3
 * shared_bytes   size of the dynamic shared memory; 0 where the kernel has none
 * value          the error of this launch, or an error that an earlier call of this thread left
 *                behind; errors while the kernel runs are reported by later calls
 *
 * A kernel with commas in its template arguments needs parentheses around it, as above. Not
 * collective.
 */
#ifndef TR_DEVICE_CUDA_KERNELS_LAUNCH_CUH
#define TR_DEVICE_CUDA_KERNELS_LAUNCH_CUH

#include <cuda_runtime.h>

#ifdef TR_HOSTCUDA
#include "hostcuda_launch.h"
#define TR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    (hostcuda::launch(#kernel, kernel, dim3(grid), dim3(block), (shared_bytes), (stream),          \
                      __VA_ARGS__),                                                                \
     cudaGetLastError())
/* A pointer `name` to the dynamic shared memory of the block, aligned to 16 bytes. */
#define TR_DYNAMIC_SHARED(type, name) type *const name = (type *)hostcuda_shared_memory()
#else
#define TR_LAUNCH(kernel, grid, block, shared_bytes, stream, ...)                                  \
    (kernel<<<(grid), (block), (shared_bytes), (stream)>>>(__VA_ARGS__), cudaGetLastError())
#define TR_DYNAMIC_SHARED(type, name)                                                              \
    extern __shared__ __align__(16) unsigned char tr_dynamic_shared[];                             \
    type *const name = (type *)tr_dynamic_shared
#endif

#endif
