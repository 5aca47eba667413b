/*
 * Private to the .cu files: elements of all types, wide loads and stores, and launches by element
 * type.
 *
 * A kernel computes in f32 and is compiled for each type of its data. `load` and `store` move N
 * elements between memory and floats: in words of up to 16 bytes where `wide` says that the address
 * allows it, else one by one.
 */
#ifndef TR_DEVICE_CUDA_KERNELS_CUDA_TYPES_CUH
#define TR_DEVICE_CUDA_KERNELS_CUDA_TYPES_CUH

#include "device/cuda/cuda_int.h"
#include "launch.cuh"
#include <string.h>

struct bf16_t {
    uint16_t bits;
};
struct f16_t {
    uint16_t bits;
};

template <typename T> static __device__ __forceinline__ float to_float(T x) {
    return (float)x;
}
template <> __device__ __forceinline__ float to_float<bf16_t>(bf16_t x) {
    return __uint_as_float((uint32_t)x.bits << 16);
}
/* On the host by integers and one product, so that its compiler needs no type for it. */
template <> __device__ __forceinline__ float to_float<f16_t>(f16_t x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
    return y;
#else
    const uint32_t magnitude = (uint32_t)(x.bits & 0x7fff) << 13, sign = (uint32_t)(x.bits & 0x8000)
                                                                         << 16;
    const uint32_t subnormal = __float_as_uint((float)(x.bits & 0x3ff) * (1.0f / 16777216.0f));
    const uint32_t value = magnitude >= 0x0f800000u   ? magnitude + 0x70000000u
                           : magnitude >= 0x00800000u ? magnitude + 0x38000000u
                                                      : subnormal;
    return __uint_as_float(value | sign);
#endif
}

template <typename T> static __device__ __forceinline__ T from_float(float x);
template <> __device__ __forceinline__ float from_float<float>(float x) {
    return x;
}
/* To the nearest, ties to even; NaN stays NaN. By integers on GPUs before compute capability 8.0
 * and on the host. */
template <> __device__ __forceinline__ bf16_t from_float<bf16_t>(float x) {
    bf16_t y;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    const uint32_t bits = __float_as_uint(x), rounded = bits + 0x7fffu + (bits >> 16 & 1u);
    y.bits = (uint16_t)((x == x ? rounded : bits | 0x400000u) >> 16);
#endif
    return y;
}

/* To the nearest, ties to even; from 65520 on infinity; NaN stays NaN. On the host an addition to
 * 0.5, whose unit is the smallest f16, rounds those that are subnormal. */
template <> __device__ __forceinline__ f16_t from_float<f16_t>(float x) {
    f16_t y;
#ifdef __CUDA_ARCH__
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
#else
    const uint32_t bits = __float_as_uint(x), magnitude = bits & 0x7fffffffu;
    const uint32_t subnormal =
        __float_as_uint(__uint_as_float(magnitude) + 0.5f) - __float_as_uint(0.5f);
    const uint32_t rounded = ((magnitude + 0xfffu + (magnitude >> 13 & 1u)) >> 13) - (112u << 10);
    const uint32_t value = magnitude > 0x7f800000u    ? 0x7e00u
                           : magnitude >= 0x47800000u ? 0x7c00u
                           : magnitude < 0x38800000u  ? subnormal
                                                      : rounded;
    y.bits = (uint16_t)(value | (bits >> 16 & 0x8000u));
#endif
    return y;
}

/* BYTES bytes by words of type W. */
template <typename W, int BYTES>
static __device__ __forceinline__ void move_words(void *to, const void *from) {
    for (int i = 0; i < BYTES / (int)sizeof(W); i++) ((W *)to)[i] = ((const W *)from)[i];
}

/* BYTES bytes that are aligned to the largest power of two in BYTES, at most 16. */
template <int BYTES> static __device__ __forceinline__ void move_wide(void *to, const void *from) {
    if (BYTES % 16 == 0)
        move_words<uint4, BYTES>(to, from);
    else if (BYTES % 8 == 0)
        move_words<uint2, BYTES>(to, from);
    else if (BYTES % 4 == 0)
        move_words<uint32_t, BYTES>(to, from);
    else if (BYTES % 2 == 0)
        move_words<uint16_t, BYTES>(to, from);
    else
        move_words<uint8_t, BYTES>(to, from);
}

template <int N, typename T>
static __device__ __forceinline__ void load(const T *x, bool wide, float (&out)[N]) {
    __align__(16) T values[N];
    if (wide)
        move_wide<N *(int)sizeof(T)>(values, x);
    else
        for (int i = 0; i < N; i++) values[i] = x[i];
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = to_float(values[i]);
}

template <int N, typename T>
static __device__ __forceinline__ void store(T *y, bool wide, const float (&x)[N]) {
    __align__(16) T values[N];
#pragma unroll
    for (int i = 0; i < N; i++) values[i] = from_float<T>(x[i]);
    if (wide)
        move_wide<N *(int)sizeof(T)>(y, values);
    else
        for (int i = 0; i < N; i++) y[i] = values[i];
}

/* N elements as they lie in memory, at an address that allows it: rows that are loaded before they
 * are used take few registers. */
template <typename T, int N> struct raw_t {
    __align__(16) T v[N];
};

template <typename T, int N>
static __device__ __forceinline__ void load_raw(const T *x, raw_t<T, N> &out) {
    move_wide<N *(int)sizeof(T)>(out.v, x);
}

template <typename T, int N>
static __device__ __forceinline__ void unpack(const raw_t<T, N> &raw, float (&out)[N]) {
#pragma unroll
    for (int i = 0; i < N; i++) out[i] = to_float(raw.v[i]);
}

/* As it is when it was stored as T and is read again. */
template <typename T> static __device__ __forceinline__ float rounded(float x) {
    return to_float(from_float<T>(x));
}

/* Elements of type T in 16 bytes. */
#define CUDA_PACK(T) (16 / (int)sizeof(T))

static inline bool cuda_aligned(const void *pointer) {
    return ((uintptr_t)pointer & 15) == 0;
}

/* Blocks of `threads` threads for `work` threads' work, at most `limit`. */
static inline unsigned cuda_blocks(int64_t work, int threads, int64_t limit) {
    const int64_t blocks = (work + threads - 1) / threads;
    return (unsigned)(blocks < 1 ? 1 : blocks < limit ? blocks : limit);
}

/* Runs the statement with T as the type of the elements. */
#define CUDA_BY_TYPE(dtype, T, ...)                                                                \
    do {                                                                                           \
        if ((dtype) == TR_BF16) {                                                                  \
            typedef bf16_t T;                                                                      \
            __VA_ARGS__;                                                                           \
        } else if ((dtype) == TR_F16) {                                                            \
            typedef f16_t T;                                                                       \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            typedef float T;                                                                       \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* Runs the statement with N elements per thread: 16 bytes where `wide`, else one. */
#define CUDA_BY_PACK(wide, T, N, ...)                                                              \
    do {                                                                                           \
        if (wide) {                                                                                \
            const int N = CUDA_PACK(T);                                                            \
            __VA_ARGS__;                                                                           \
        } else {                                                                                   \
            const int N = 1;                                                                       \
            __VA_ARGS__;                                                                           \
        }                                                                                          \
    } while (0)

/* Launches a kernel, or returns the error. */
#define CUDA_LAUNCH(kernel, grid, block, stream, ...)                                              \
    TR_TRY(tr_cuda_check(TR_LAUNCH(kernel, grid, block, 0, (stream)->handle, __VA_ARGS__),         \
                         "the launch of " #kernel))

static __device__ __forceinline__ int64_t global_thread() {
    return (int64_t)blockIdx.x * blockDim.x + threadIdx.x;
}
static __device__ __forceinline__ int64_t global_threads() {
    return (int64_t)gridDim.x * blockDim.x;
}

/* NaN stays NaN, so that a bad value is not hidden. */
static __device__ __forceinline__ float relu(float x) {
    return x < 0.0f ? 0.0f : x;
}

/* The sum over a warp, the same in all lanes, in one fixed order. */
template <typename T> static __device__ __forceinline__ T warp_sum(T x) {
    for (int step = 16; step > 0; step /= 2) x += __shfl_xor_sync(0xffffffffu, x, step);
    return x;
}

/* The sum over a block of THREADS threads, the same in all of them. Contains barriers. */
template <int THREADS, typename T> static __device__ __forceinline__ T block_sum(T x) {
    __shared__ T warps[THREADS / 32];
    x = warp_sum(x);
    if (THREADS == 32) return x;
    __syncthreads(); /* the last sum has been read */
    if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = x;
    __syncthreads();
    T sum = 0;
    for (int i = 0; i < THREADS / 32; i++) sum += warps[i];
    return sum;
}

#endif
