/* The table of the cpu device's kernels, from the column cpu of kernels.def. */
#include "cpu_int.h"

#ifndef CPU_TABLE /* one of several */
#define CPU_TABLE tr_cpu_kernels
#endif
#if defined(__AVX512F__)
#define LABEL "AVX-512"
#elif defined(__AVX2__)
#define LABEL "AVX2"
#elif defined(__x86_64__)
#define LABEL "SSE2"
#elif defined(__ARM_FEATURE_SVE2)
#define LABEL "SVE2"
#elif defined(__ARM_FEATURE_SVE)
#define LABEL "SVE"
#elif defined(__aarch64__)
#define LABEL "NEON"
#else
#define LABEL "generic"
#endif

#define NONE                                                                                       \
    { 0 }
#define RUN(f)                                                                                     \
    { .run = tr_cpu_##f }
#define PREPARED(f, p, n)                                                                          \
    { .run = tr_cpu_##f, .prepare = tr_cpu_##p##_prepare, .adds = n }
#define PLANNED(f, p, r, n)                                                                        \
    {                                                                                              \
        .run = tr_cpu_##f, .prepare = tr_cpu_##p##_prepare, .release = tr_cpu_##r##_release,       \
        .adds = n                                                                                  \
    }

extern const cpu_kernels_t CPU_TABLE;
const cpu_kernels_t CPU_TABLE = {
    .isa = CPU_ISA_COMPILED,
    .label = LABEL,
    .measure_peak = tr_cpu_measure_peak,
    .measure_read = tr_cpu_measure_read,
    .kernel =
        {
#define KERNEL(name, required, kind, cpu, cuda, ...) [TR_K_##name] = cpu,
#include "device/kernels.def"
#undef KERNEL
        },
};
