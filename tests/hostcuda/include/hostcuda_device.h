/* The language of kernels, for g++: index variables, barriers, warp exchanges, atomics and intrinsics. */
#ifndef HOSTCUDA_DEVICE_H
#define HOSTCUDA_DEVICE_H

#include "hostcuda.h"
#include <math.h>
#include <string.h>

#undef __shared__
#define __shared__ static
#undef __launch_bounds__
#define __launch_bounds__(...)

#define threadIdx (hostcuda_index.thread)
#define blockIdx  (hostcuda_index.block)
#define blockDim  (hostcuda_index.block_dim)
#define gridDim   (hostcuda_index.grid_dim)
#define warpSize  32

/* -- barriers -------------------------------------------------------------------------------------------------- */
#define HOSTCUDA_SITE const char *file = __builtin_FILE(), int line = __builtin_LINE()

static inline void __syncthreads(HOSTCUDA_SITE) { hostcuda_barrier(HOSTCUDA_ALL, 1, file, line); }
static inline int __syncthreads_and(int p, HOSTCUDA_SITE) {
    return hostcuda_barrier(HOSTCUDA_ALL, p, file, line);
}
static inline int __syncthreads_or(int p, HOSTCUDA_SITE) {
    return hostcuda_barrier(HOSTCUDA_ANY, p, file, line);
}
static inline int __syncthreads_count(int p, HOSTCUDA_SITE) {
    return hostcuda_barrier(HOSTCUDA_SUM, p, file, line);
}
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static inline void __threadfence_system() {}
static inline void hostcuda_trap_here(HOSTCUDA_SITE) { hostcuda_trap(file, line); }
#define __trap() hostcuda_trap_here()

/* -- warps ----------------------------------------------------------------------------------------------------- */
#define HOSTCUDA_ALL_LANES 0xffffffffu

static inline int hostcuda_lane() {
    const unsigned t = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    return (int)(t & 31);
}

static inline void __syncwarp(unsigned mask = HOSTCUDA_ALL_LANES, HOSTCUDA_SITE) {
    uint64_t none = 0;
    hostcuda_exchange(mask, &none, hostcuda_lane(), 0, file, line);
}
static inline unsigned __ballot_sync(unsigned mask, int p, HOSTCUDA_SITE) {
    uint64_t none = 0;
    return hostcuda_exchange(mask, &none, hostcuda_lane(), p, file, line);
}
static inline int __any_sync(unsigned mask, int p, HOSTCUDA_SITE) {
    return __ballot_sync(mask, p, file, line) != 0;
}
static inline int __all_sync(unsigned mask, int p, HOSTCUDA_SITE) {
    return __ballot_sync(mask, !p, file, line) == 0;
}

template <class T> static inline T hostcuda_shuffle(unsigned mask, T value, int source, const char *file, int line) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most 8 bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof(T));
    hostcuda_exchange(mask, &bits, source, 0, file, line);
    memcpy(&value, &bits, sizeof(T));
    return value;
}
template <class T>
static inline T __shfl_sync(unsigned mask, T value, int source, int width = 32, HOSTCUDA_SITE) {
    const int lane = hostcuda_lane();
    return hostcuda_shuffle(mask, value, (lane & ~(width - 1)) | (source & (width - 1)), file, line);
}
template <class T>
static inline T __shfl_xor_sync(unsigned mask, T value, int with, int width = 32, HOSTCUDA_SITE) {
    const int lane = hostcuda_lane(), source = lane ^ with;
    return hostcuda_shuffle(mask, value, source < (lane & ~(width - 1)) + width ? source : lane, file, line);
}
template <class T>
static inline T __shfl_down_sync(unsigned mask, T value, unsigned by, int width = 32, HOSTCUDA_SITE) {
    const int lane = hostcuda_lane(), source = lane + (int)by;
    return hostcuda_shuffle(mask, value, source < (lane & ~(width - 1)) + width ? source : lane, file, line);
}
template <class T>
static inline T __shfl_up_sync(unsigned mask, T value, unsigned by, int width = 32, HOSTCUDA_SITE) {
    const int lane = hostcuda_lane(), source = lane - (int)by;
    return hostcuda_shuffle(mask, value, source >= (lane & ~(width - 1)) ? source : lane, file, line);
}

#define HOSTCUDA_REDUCE(name, type, expression)                                                                  \
    static inline uint64_t hostcuda_##name##_##type(uint64_t p, uint64_t q) {                                    \
        const type a = (type)p, b = (type)q;                                                                     \
        return (uint64_t)(type)(expression);                                                                     \
    }                                                                                                            \
    static inline type __reduce_##name##_sync(unsigned mask, type value, HOSTCUDA_SITE) {                        \
        return (type)hostcuda_reduce(mask, (uint64_t)value, hostcuda_##name##_##type, file, line);               \
    }
HOSTCUDA_REDUCE(add, unsigned, a + b)
HOSTCUDA_REDUCE(add, int, (int)((unsigned)a + (unsigned)b))
HOSTCUDA_REDUCE(min, unsigned, a < b ? a : b)
HOSTCUDA_REDUCE(min, int, a < b ? a : b)
HOSTCUDA_REDUCE(max, unsigned, a > b ? a : b)
HOSTCUDA_REDUCE(max, int, a > b ? a : b)
HOSTCUDA_REDUCE(and, unsigned, a & b)
HOSTCUDA_REDUCE(or, unsigned, a | b)
HOSTCUDA_REDUCE(xor, unsigned, a ^ b)

/* -- atomics: threads run one at a time --------------------------------------------------------------------------- */
#define HOSTCUDA_ATOMIC(name, expression)                                                                        \
    template <class T> static inline T name(T *address, T value) {                                               \
        const T old = *address;                                                                                  \
        *address = expression;                                                                                   \
        return old;                                                                                              \
    }
HOSTCUDA_ATOMIC(atomicAdd, (T)(old + value))
HOSTCUDA_ATOMIC(atomicSub, (T)(old - value))
HOSTCUDA_ATOMIC(atomicExch, value)
HOSTCUDA_ATOMIC(atomicMin, value < old ? value : old)
HOSTCUDA_ATOMIC(atomicMax, value > old ? value : old)
HOSTCUDA_ATOMIC(atomicAnd, old &value)
HOSTCUDA_ATOMIC(atomicOr, old | value)
HOSTCUDA_ATOMIC(atomicXor, old ^ value)
HOSTCUDA_ATOMIC(atomicInc, old >= value ? 0 : old + 1)
template <class T> static inline T atomicCAS(T *address, T expected, T value) {
    const T old = *address;
    if (old == expected) *address = value;
    return old;
}

/* -- loads and stores with cache hints ------------------------------------------------------------------------------ */
template <class T> static inline T __ldg(const T *p) { return *p; }
template <class T> static inline T __ldcs(const T *p) { return *p; }
template <class T> static inline T __ldcg(const T *p) { return *p; }
template <class T> static inline T __ldca(const T *p) { return *p; }
template <class T> static inline T __ldlu(const T *p) { return *p; }
template <class T> static inline void __stcs(T *p, T value) { *p = value; }
template <class T> static inline void __stcg(T *p, T value) { *p = value; }
template <class T> static inline void __stwb(T *p, T value) { *p = value; }
template <class T> static inline void __stwt(T *p, T value) { *p = value; }

/* -- intrinsics ------------------------------------------------------------------------------------------------- */
template <class To, class From> static inline To hostcuda_bits(From from) {
    static_assert(sizeof(To) == sizeof(From), "");
    To to;
    memcpy(&to, &from, sizeof to);
    return to;
}
static inline unsigned __float_as_uint(float x) { return hostcuda_bits<unsigned>(x); }
static inline int __float_as_int(float x) { return hostcuda_bits<int>(x); }
static inline float __uint_as_float(unsigned x) { return hostcuda_bits<float>(x); }
static inline float __int_as_float(int x) { return hostcuda_bits<float>(x); }
static inline long long __double_as_longlong(double x) { return hostcuda_bits<long long>(x); }
static inline double __longlong_as_double(long long x) { return hostcuda_bits<double>(x); }

/* Macros, for the C library declares functions of these names. */
#define __expf(x)    expf(x)
#define __exp10f(x)  powf(10.0f, x)
#define __logf(x)    logf(x)
#define __log2f(x)   log2f(x)
#define __log10f(x)  log10f(x)
#define __powf(x, y) powf(x, y)
#define __sinf(x)    sinf(x)
#define __cosf(x)    cosf(x)
#define __tanf(x)    tanf(x)
static inline float __fdividef(float x, float y) { return x / y; }
static inline float __fdiv_rn(float x, float y) { return x / y; }
static inline float __frcp_rn(float x) { return 1.0f / x; }
static inline float __fsqrt_rn(float x) { return sqrtf(x); }
static inline float __frsqrt_rn(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline float __fadd_rn(float x, float y) { return x + y; }
static inline float __fsub_rn(float x, float y) { return x - y; }
static inline float __fmul_rn(float x, float y) { return x * y; }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
static inline float __saturatef(float x) { return x > 0 ? (x < 1 ? x : 1.0f) : 0.0f; }
static inline float rsqrtf(float x) { return (float)(1.0 / sqrt((double)x)); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float normcdff(float x) { return 0.5f * erfcf(-x * 0.70710678118654752f); }
static inline int __float2int_rn(float x) { return (int)rintf(x); }
static inline int __float2int_rz(float x) { return (int)x; }
static inline int __float2int_rd(float x) { return (int)floorf(x); }
static inline int __float2int_ru(float x) { return (int)ceilf(x); }
static inline unsigned __float2uint_rn(float x) { return (unsigned)rintf(x); }
static inline float __int2float_rn(int x) { return (float)x; }
static inline float __uint2float_rn(unsigned x) { return (float)x; }
static inline float __double2float_rn(double x) { return (float)x; }

static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __popcll(unsigned long long x) { return __builtin_popcountll(x); }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline int __clz(int x) { return x ? __builtin_clz((unsigned)x) : 32; }
static inline int __clzll(long long x) { return x ? __builtin_clzll((unsigned long long)x) : 64; }
static inline unsigned __brev(unsigned x) {
    unsigned y = 0;
    for (int i = 0; i < 32; i++) y |= (x >> i & 1) << (31 - i);
    return y;
}
static inline unsigned __umulhi(unsigned x, unsigned y) { return (unsigned)((uint64_t)x * y >> 32); }
static inline int __mulhi(int x, int y) { return (int)((int64_t)x * y >> 32); }
static inline unsigned long long __umul64hi(unsigned long long x, unsigned long long y) {
    return (unsigned long long)((unsigned __int128)x * y >> 64);
}
static inline unsigned __funnelshift_l(unsigned lo, unsigned hi, unsigned by) {
    return (unsigned)((((uint64_t)hi << 32 | lo) << (by & 31)) >> 32);
}
static inline unsigned __funnelshift_r(unsigned lo, unsigned hi, unsigned by) {
    return (unsigned)(((uint64_t)hi << 32 | lo) >> (by & 31));
}

/* min and max of every arithmetic type, as nvcc has them; NaN loses against a number, as in fmin. */
#define HOSTCUDA_MIN_MAX(type)                                                                                   \
    static inline type min(type a, type b) { return a < b ? a : b; }                                             \
    static inline type max(type a, type b) { return a > b ? a : b; }
HOSTCUDA_MIN_MAX(int)
HOSTCUDA_MIN_MAX(unsigned)
HOSTCUDA_MIN_MAX(long)
HOSTCUDA_MIN_MAX(unsigned long)
HOSTCUDA_MIN_MAX(long long)
HOSTCUDA_MIN_MAX(unsigned long long)
static inline float min(float a, float b) { return fminf(a, b); }
static inline float max(float a, float b) { return fmaxf(a, b); }
static inline double min(double a, double b) { return fmin(a, b); }
static inline double max(double a, double b) { return fmax(a, b); }

/* -- what cuda_runtime.h has as templates under nvcc only ------------------------------------------------------------ */
template <class T> static inline cudaError_t cudaFuncSetAttribute(T *kernel, cudaFuncAttribute attribute, int value) {
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attribute, value);
}

#endif
