/*
 * Runs one kernel on every device present (cpu with one and with two threads, strict), twice each,
 * and compares its outputs with what the test expects: within a tolerance per element, and bit for
 * bit from run to run. Outputs and scratch begin as NaN, or as `before` where a kernel reads its
 * output.
 */
#ifndef KERNEL_RUN_H
#define KERNEL_RUN_H

#include "device/device.h"

typedef struct {
    tr_dtype_t dtype;
    tr_shape_t shape;     /* ndim -1: absent */
    const void *data;     /* an input's content; an output's content before, or NULL */
    const double *expect; /* outputs: F32 */
    const double *bound;  /* F32: allowed error per element, absolute */
    const int32_t *exact; /* I32 outputs */
} kernel_run_tensor_t;

#define KERNEL_RUN_ABSENT ((kernel_run_tensor_t){.shape = {.ndim = -1}})

typedef struct {
    tr_kernel_id_t id;
    const char *what; /* names the case in messages */
    const void *attr;
    int n_in, n_out;
    kernel_run_tensor_t in[TR_KERNEL_MAX_IN], out[TR_KERNEL_MAX_OUT];
    bool same_for_threads; /* the result of one thread and of two are equal bit for bit */
} kernel_run_t;

/* Fails the running cmocka test where an output differs. */
void kernel_run(const kernel_run_t *run);

/* `count` numbers in [-1, 1) from `seed`; free with tr_free. */
float *kernel_run_random(int64_t count, uint32_t seed);
double *kernel_run_zeros(int64_t count);

#endif
