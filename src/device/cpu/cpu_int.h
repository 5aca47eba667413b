/*
 * The cpu device, private. A kernel is defined in kernels/cpu_<family>.c; its row of kernels.def
 * declares it.
 *
 * Threads: a parallel loop is written as
 *
 *     #pragma omp parallel for num_threads(cpu_threads(device, elems)) schedule(static)
 *
 * cpu_threads returns one thread or all of them, because OpenMP reuses its team only if the size is
 * the same. If a result must not depend on the number of threads, split the work into chunks whose
 * number depends only on the shape, and combine the parts in the order of the chunks.
 *
 * Denormals are treated as zero on all computing threads (see cpu_threads.c). Do not use
 * -ffast-math: NaN and infinity must be preserved.
 */
#ifndef TR_DEVICE_CPU_CPU_INT_H
#define TR_DEVICE_CPU_CPU_INT_H

#include "device/device.h"
#include <omp.h>

/* Elements per thread that pay for waking a thread (about 5 us of streaming work). */
#define CPU_GRAIN 16384

/* Threads for a loop of `elems` element operations: one or all. */
static inline int cpu_threads_of(int all, int64_t elems) {
    return elems >= 2 * (int64_t)CPU_GRAIN ? all : 1;
}
static inline int cpu_threads(const tr_device_t *device, int64_t elems) {
    return cpu_threads_of(device->threads, elems);
}

/* Part `part` of [0, count), split into `parts` parts of equal size, rounded up to multiples of
 * `align` elements. */
typedef struct {
    int64_t first, last; /* [first, last); may be empty */
} cpu_range_t;
static inline cpu_range_t cpu_range(int64_t count, int64_t align, int parts, int part) {
    int64_t units = (count + align - 1) / align;
    int64_t first = units * part / parts * align, last = units * (part + 1) / parts * align;
    return (cpu_range_t){first < count ? first : count, last < count ? last : count};
}

/* Whether an optional input or output is present; also valid in `prepare`, where pointers are
 * NULL. */
static inline bool cpu_present(const tr_view_t *view) {
    return view->shape.ndim >= 0;
}

/* Whether output `index` is added to instead of overwritten. */
static inline bool cpu_adds(const tr_kernel_call_t *call, int index) {
    return call->adds >> index & 1;
}

extern const tr_backend_t tr_backend_cpu;

/* Sets of instructions, each with those before it; cpu_isa.c has their names. CPU_ISA_COMPILED: what
 * this file is compiled for. */
enum {
    CPU_ISA_BASE,
#if defined(__x86_64__)
    CPU_ISA_V3,
    CPU_ISA_V4,
    CPU_ISA_V4_BF16,
    CPU_ISA_V4_AMX,
#elif defined(__aarch64__)
    CPU_ISA_SVE,
#endif
};
#if defined(__AMX_TILE__) && defined(__AVX512BF16__)
#define CPU_ISA_COMPILED CPU_ISA_V4_AMX
#elif defined(__AVX512BF16__)
#define CPU_ISA_COMPILED CPU_ISA_V4_BF16
#elif defined(__AVX512F__)
#define CPU_ISA_COMPILED CPU_ISA_V4
#elif defined(__AVX2__)
#define CPU_ISA_COMPILED CPU_ISA_V3
#elif defined(__ARM_FEATURE_SVE)
#define CPU_ISA_COMPILED CPU_ISA_SVE
#else
#define CPU_ISA_COMPILED CPU_ISA_BASE
#endif

/*
 * The code that depends on the set: kernels/, winograd/, cpu_peak.c and cpu_kernels.c. A build for
 * several sets compiles it for each, and of each copy only this table has a name outside of it.
 */
typedef struct {
    tr_kernel_t kernel[TR_K_COUNT]; /* tr_device_ops_t.kernels of a device */
    int isa;                        /* the set that they need */
    const char *label;              /* "AVX-512" */
    tr_status_t (*measure_peak)(tr_device_t *device, tr_dtype_t dtype, double *out_flops_per_sec,
                                double *out_bytes_per_sec);
    tr_status_t (*measure_read)(tr_device_t *device, double *out_bytes_per_sec);
} cpu_kernels_t;

/* cpu_isa.c */
/* Before oneDNN is used: chooses the set of a device, and limits oneDNN to it where the process is
 * limited. Errors are those of tr_isa_find. */
tr_status_t tr_cpu_isa_enter(const cpu_kernels_t **out);

/* cpu_threads.c */
/* OMP_NUM_THREADS, else the processors of the process's affinity and control group. */
int tr_cpu_threads_default(void);
/* Prepares the calling thread and its team. Returns the size of the team, which is smaller than
 * requested if OMP_THREAD_LIMIT is lower. oneDNN must be given this number: it splits work by it,
 * and the parts of missing threads would not be computed. */
int tr_cpu_threads_enter(int threads);

/* cpu_host.c */
/* "AMD EPYC 9B14, 2 threads, AVX-512" */
void tr_cpu_host_describe(const tr_device_t *device, char *text, size_t text_bytes);
/* processor, cores of this process, instruction set, memory */
tr_status_t tr_cpu_host_report(tr_device_t *device, tr_report_row_fn row, void *self);

/* cpu_peak.c */
tr_status_t tr_cpu_measure_peak(tr_device_t *device, tr_dtype_t dtype, double *out_flops_per_sec,
                                double *out_bytes_per_sec);
tr_status_t tr_cpu_measure_read(tr_device_t *device, double *out_bytes_per_sec);

/* Kernels: tr_cpu_<name>; those with a plan also have tr_cpu_<name>_prepare and
 * tr_cpu_<name>_release. */
#define CPU_KERNEL(slot)                                                                           \
    tr_status_t tr_cpu_##slot(tr_device_t *device, tr_stream_t *stream,                            \
                              const tr_kernel_call_t *call)
#define CPU_KERNEL_PREPARE(slot)                                                                   \
    tr_status_t tr_cpu_##slot##_prepare(tr_device_t *device, const tr_kernel_call_t *call,         \
                                        void **out_state, size_t *out_scratch_bytes)
#define CPU_KERNEL_RELEASE(slot) void tr_cpu_##slot##_release(tr_device_t *device, void *state)

/* cpu_adding.c */
typedef tr_status_t tr_cpu_run_fn(tr_device_t *device, tr_stream_t *stream,
                                  const tr_kernel_call_t *call);
/* Scratch of tr_cpu_run_adding beyond that of `run`, which comes after it. */
size_t tr_cpu_adding_bytes(const tr_kernel_call_t *call);
/* Elements that are converted at once: few enough for the first cache. */
enum { CPU_NORMALIZE_TILE = 1024 };

/* Conversion of x (..., C), of any type, to f32 as x * scale[c] + shift[c]; the factors are spread
 * over a tile. */
typedef struct {
    const tr_view_t *x, *scale, *shift; /* scale and shift (C) may be absent */
    int64_t channels, tile;             /* tile: a multiple of channels, or is_wide */
    bool is_plain, is_wide;             /* neither scale nor shift; more channels than a tile */
    float scales[CPU_NORMALIZE_TILE], shifts[CPU_NORMALIZE_TILE];
} cpu_normalize_t;
cpu_normalize_t tr_cpu_normalize_begin(const tr_view_t *x, const tr_view_t *scale,
                                       const tr_view_t *shift);
/* y[0 .. count) from the elements of x at `first`, a multiple of channels unless is_wide. */
void tr_cpu_normalize(const cpu_normalize_t *n, int64_t first, int64_t count, float *y);
/* Rounds x to elements `at` and on of y, which is bf16 or f16. */
void tr_cpu_narrow(const float *x, int64_t count, void *y, int64_t at, tr_dtype_t dtype);

/* Lets `run`, which overwrites its outputs, add to those that call->adds names. */
tr_status_t tr_cpu_run_adding(tr_device_t *device, tr_stream_t *stream,
                              const tr_kernel_call_t *call, tr_cpu_run_fn *run);

/* The functions of the column cpu of kernels.def. */
#define NONE
#define RUN(f)                            CPU_KERNEL(f);
#define PREPARED(f, p, adds)              RUN(f) CPU_KERNEL_PREPARE(p);
#define PLANNED(f, p, r, adds)            PREPARED(f, p, adds) CPU_KERNEL_RELEASE(r);
#define KERNEL(name, required, kind, cpu, cuda, ...) cpu
#include "device/kernels.def"
#undef NONE
#undef RUN
#undef PREPARED
#undef PLANNED
#undef KERNEL

#endif
