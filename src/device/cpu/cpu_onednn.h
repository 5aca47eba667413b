/*
 * oneDNN. Private to src/device/cpu. One interface for matrix products and convolutions with either
 * version of oneDNN's C API (2.x, 3.x). Tensors are f32, bf16 or f16; biases and sums are f32.
 */
#ifndef TR_DEVICE_CPU_CPU_ONEDNN_H
#define TR_DEVICE_CPU_CPU_ONEDNN_H

#include "device/device.h"

#define CPU_DNN_MAX_DIMS 6

/* Logical dimensions in oneDNN's order (N, C, S...; [groups,] K, C, kernel...; batch, rows,
 * columns), strides in elements. */
typedef struct {
    int ndim; /* 0: absent */
    int64_t dim[CPU_DNN_MAX_DIMS], stride[CPU_DNN_MAX_DIMS];
    tr_dtype_t dtype;
} cpu_dnn_tensor_t;

typedef enum {
    CPU_DNN_MATMUL,
    CPU_DNN_CONV_FWD,
    CPU_DNN_CONV_BWD_DATA,
    CPU_DNN_CONV_BWD_WEIGHTS
} cpu_dnn_kind_t;

/* Tensors are named by their role in the forward pass. A gradient kind writes to the tensor of
 * which it computes the gradient. */
typedef struct {
    cpu_dnn_kind_t kind;
    cpu_dnn_tensor_t src, weights, bias, dst;
    int64_t stride[3], dilation[3], pad_lo[3], pad_hi[3]; /* convolutions; dilation 1 is dense */
    float alpha, beta; /* MATMUL: alpha only without bias, beta only without alpha and act */
    tr_act_t act;      /* MATMUL and CONV_FWD */
    int threads;
} cpu_dnn_desc_t;

typedef struct {
    void *src, *weights, *bias, *dst;
} cpu_dnn_data_t;

/* A compiled primitive with everything that a run needs; running it does not allocate. One thread
 * at a time. */
typedef struct cpu_dnn cpu_dnn_t;

tr_status_t tr_cpu_dnn_create(const cpu_dnn_desc_t *desc, cpu_dnn_t **out);
void tr_cpu_dnn_destroy(cpu_dnn_t **dnn);
/* scratch: tr_cpu_dnn_scratch_bytes, aligned to at least 64 bytes. */
size_t tr_cpu_dnn_scratch_bytes(const cpu_dnn_t *dnn);
tr_status_t tr_cpu_dnn_run(cpu_dnn_t *dnn, const cpu_dnn_data_t *data, void *scratch);
/* oneDNN's name of the implementation ("brgconv:avx512_core"). "ref..." is hundreds of times slower
 * than others. */
const char *tr_cpu_dnn_implementation(const cpu_dnn_t *dnn);

/* Limits oneDNN to a set of instructions (cpu_int.h), unless the environment says what it may use. To
 * be called before all others; later it has no effect. */
void tr_cpu_dnn_limit(int set);
/* Whether the processor has instructions for bf16 products and oneDNN uses them; otherwise they are
 * emulated, slower than f32. */
bool tr_cpu_dnn_has_bf16(void);
/* Whether it multiplies bf16 with matrix units, much faster than f32; has_bf16: of
 * tr_cpu_dnn_has_bf16. */
bool tr_cpu_dnn_has_matrix_units(bool has_bf16);
/* Whether oneDNN uses AVX2, and nothing later. */
bool tr_cpu_dnn_is_avx2(void);

/* C (m, n) = alpha op(A) op(B) + beta C, row-major with leading dimensions. */
tr_status_t tr_cpu_dnn_sgemm(int threads, bool trans_a, bool trans_b, int64_t m, int64_t n,
                             int64_t k, float alpha, const float *a, int64_t lda, const float *b,
                             int64_t ldb, float beta, float *c, int64_t ldc);

#endif
