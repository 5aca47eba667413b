/* The table of the cpu device's kernels, from the column cpu of kernels.def. */
#include "cpu_int.h"

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

const tr_kernel_t tr_cpu_kernels[TR_K_COUNT] = {
#define KERNEL(name, required, kind, cpu, cuda, ...) [TR_K_##name] = cpu,
#include "device/kernels.def"
#undef KERNEL
};
