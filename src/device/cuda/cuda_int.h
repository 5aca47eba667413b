/*
 * The cuda device, private: C and CUDA C include it.
 *
 * A kernel slot is a function tr_cuda_<slot>; its row of kernels.def declares it. Slots that
 * cuBLASLt or cuDNN compute are in cuda_matmul.c, cuda_conv.c and cuda_head.c, all others in a .cu
 * file with their kernels.
 *
 * Rules for kernels: results do not depend on timing. Sums have an order that follows from the
 * shape alone, and no atomic operation is used where its order would change bits. Memory is
 * accessed in 16 bytes where all addresses allow it, and element by element elsewhere.
 */
#ifndef TR_DEVICE_CUDA_CUDA_INT_H
#define TR_DEVICE_CUDA_CUDA_INT_H

#ifdef __cplusplus
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#endif
#include <cuda_runtime_api.h>

#ifdef __cplusplus
extern "C" {
#endif
#include "device/device.h"
#include "trainer/status.h"

typedef struct tr_collectives tr_collectives_t; /* device/collectives.h, which C++ cannot read */

struct tr_stream {
    cudaStream_t handle;
};

struct tr_event {
    cudaEvent_t handle;
};

struct tr_executable {
    cudaGraphExec_t handle;
};

/* How a device gets memory that ranks share; NULL functions: as any other. */
typedef struct {
    tr_status_t (*alloc)(tr_device_t *device, size_t bytes, void **out);
    void (*free)(tr_device_t *device, void *memory);
    void *memory; /* what it gave; one block */
} cuda_shared_memory_t;

/* The open device. */
typedef struct {
    tr_device_t base;
    int ordinal; /* as the CUDA runtime counts */
    int multiprocessors;
    bool sync;                    /* a wait after every kernel, so that an error names its kernel */
    bool tune;                    /* algorithms are chosen by time: cuda_tune.h */
    struct cublasLtContext *blas; /* made when it is first needed: cuda_product.c */
    struct cudnnContext *dnn;     /* likewise: cuda_dnn.c */
    struct cuda_plan_store *plans; /* compiled plans of cuDNN: cuda_plan_store.c */
    /* cuDNN's descriptor of a GPU that need not be in this machine: cuda_model.c. Not NULL: only
     * `prepare` works. */
    void *model;
    tr_collectives_t *collectives; /* the open engine, which waits ask for errors; NULL: none */
    cuda_shared_memory_t shared;
} cuda_device_t;

static inline cuda_device_t *cuda_self(const tr_device_t *device) {
    return (cuda_device_t *)device;
}

/* Makes this device the current one of the calling thread. Every entry of the table begins with it.
 * */
tr_status_t tr_cuda_enter(const tr_device_t *device);

/* TR_OK, or the error of a call of the CUDA runtime with its name, meaning and remedy. */
tr_status_t tr_cuda_check_at(cudaError_t error, const char *call, const char *file, int line,
                             const char *func);
#define tr_cuda_check(error, call) tr_cuda_check_at((error), (call), __FILE__, __LINE__, __func__)
#define CUDA_TRY(call)             TR_TRY(tr_cuda_check((call), #call))

/* Whether an optional input or output is there; holds in `prepare` too, where all pointers are
 * NULL. */
static inline bool cuda_present(const tr_view_t *view) {
    return view->shape.ndim >= 0;
}

/* in3 of MATMUL and CONV_FWD: the bias in the type of the result; NULL: absent. */
static inline const tr_view_t *cuda_bias_copy(const tr_kernel_call_t *call) {
    return call->n_in > 3 && cuda_present(&call->in[3]) ? &call->in[3] : NULL;
}

/* The blocks that keep all multiprocessors busy: the limit for loops over any number of elements.
 * */
static inline int tr_cuda_grid_limit(const tr_device_t *device) {
    return 16 * cuda_self(device)->multiprocessors;
}

/* Of the GPU or of its model, free or not. */
tr_status_t tr_cuda_total_memory(tr_device_t *device, size_t *out_bytes);

/* y[r][c] = act(y[r][c] + bias[c]) in place, y f32, bf16 or f16 (rows, columns), bias f32 or NULL.
 * */
tr_status_t tr_cuda_bias_act(tr_device_t *device, tr_stream_t *stream, void *y, tr_dtype_t dtype,
                             int64_t rows, int64_t columns, const float *bias, tr_act_t act);
/* y[r][0 .. to) = x[r][0 .. from), zeros behind where to > from; both of `dtype`, f32, bf16
 * or f16. */
tr_status_t tr_cuda_pad_columns(tr_device_t *device, tr_stream_t *stream, const void *x, void *y,
                                tr_dtype_t dtype, int64_t rows, int64_t from, int64_t to);
/* f32 to `dtype`, bf16 or f16, `count` elements. */
tr_status_t tr_cuda_narrow(tr_device_t *device, tr_stream_t *stream, const float *x, void *y,
                           tr_dtype_t dtype, int64_t count);


/* cuda_model.c: the device that only plans, for params->model. */
tr_status_t tr_cuda_open_model(const tr_device_params_t *params, tr_device_t **out);
void tr_cuda_close_model(cuda_device_t *cuda);

/* cuda_device.c */
extern const tr_device_ops_t tr_cuda_device_ops;
tr_status_t tr_cuda_open(const tr_device_params_t *params, tr_device_t **out);
/* Returns when `stream` is done. The thread sleeps between its questions, and ends the wait where
 * the open collectives report an error: TR_ERR_RETRY. */
tr_status_t tr_cuda_stream_wait(const tr_device_t *device, cudaStream_t stream, const char *who);

/* cuda_nvtx.c: ranges for NVIDIA's profilers. False: this build has no nvtx3. */
bool tr_cuda_has_nvtx(void);
void tr_cuda_range_begin(tr_device_t *device, const char *name);
void tr_cuda_range_end(tr_device_t *device);

/* cuda_peak.c: `measure_peak` of the table of functions. Kept in the store of plans. */
tr_status_t tr_cuda_measure_peak(tr_device_t *device, tr_dtype_t dtype, double *out_flops,
                                 double *out_bytes);

/* cuda_nccl.c: in builds with TR_CUDA_NCCL */
extern const tr_collectives_engine_t tr_cuda_nccl;
/* cuda_progress.cu: adds 1 to *word (int64_t, pinned) in the order of the stream. */
tr_status_t tr_cuda_count(cudaStream_t stream, void *word);

/* cuda_kernels.c: every kernel of the device, with tr_cuda_enter before it; filled before a device
 * is opened. */
extern tr_kernel_t tr_cuda_kernels[TR_K_COUNT];
void tr_cuda_kernels_fill(void);

/* cuda_nvml.c: the driver and each GPU as NVML sees them, which opens none of them; why there are
 * none where that is so. */
void tr_cuda_nvml_report(tr_report_row_fn row, void *self);

/* cuda_nvml.c: `place` of the table of functions. */
void tr_cuda_nvml_place(const tr_device_t *device, tr_device_place_t *out);
/* As tr_backend_t.near_cores. */
void tr_cuda_nvml_near_cores(int count, cpu_set_t *out);
/* As tr_backend_t.sample. */
int tr_cuda_nvml_sample(const char *bus_id, tr_gpu_sample_t *out, int most);
/* The bytes that may be planned for where `available` are free. share: as
 * tr_device_params_t.memory_share. */
size_t tr_cuda_memory_limit(double share, size_t available);

/* cuda_backend.c: "13.0" from 13000 */
typedef struct {
    char text[32];
} cuda_version_t;
cuda_version_t tr_cuda_version(int number);

/* Kernels: tr_cuda_<slot>; those with something to plan also tr_cuda_<slot>_prepare and
 * tr_cuda_<slot>_release. */
#define CUDA_KERNEL(slot)                                                                          \
    tr_status_t tr_cuda_##slot(tr_device_t *device, tr_stream_t *stream,                           \
                               const tr_kernel_call_t *call)
#define CUDA_KERNEL_PREPARE(slot)                                                                  \
    tr_status_t tr_cuda_##slot##_prepare(tr_device_t *device, const tr_kernel_call_t *call,        \
                                         void **out_state, size_t *out_scratch_bytes)
#define CUDA_KERNEL_RELEASE(slot) void tr_cuda_##slot##_release(tr_device_t *device, void *state)

#define CUDA_KERNEL_DESCRIBE(slot)                                                                 \
    void tr_cuda_##slot##_describe(const void *state, char *text, size_t text_bytes)

/* The functions of the column cuda of kernels.def. */
#define NONE
#define RUN(f)                            CUDA_KERNEL(f);
#define PREPARED(f, p, adds)              RUN(f) CUDA_KERNEL_PREPARE(p);
#define PLANNED(f, p, r, adds)            PREPARED(f, p, adds) CUDA_KERNEL_RELEASE(r);
#define DESCRIBED(f, p, r, d, adds)       PLANNED(f, p, r, adds) CUDA_KERNEL_DESCRIBE(d);
#define KERNEL(name, required, kind, cpu, cuda, ...) cuda
#include "device/kernels.def"
#undef NONE
#undef RUN
#undef PREPARED
#undef PLANNED
#undef DESCRIBED
#undef KERNEL

/* Attention without cuDNN: any type, dropout, kept probabilities. */
CUDA_KERNEL(own_attention_fwd);
CUDA_KERNEL_PREPARE(own_attention_fwd);
CUDA_KERNEL(own_attention_bwd);
CUDA_KERNEL_PREPARE(own_attention_bwd);

#ifdef __cplusplus
}
#endif
#endif
