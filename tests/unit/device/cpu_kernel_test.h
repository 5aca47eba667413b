/*
 * For the tests of the cpu device's kernels: run one kernel on devices of one, two and seven
 * threads, whose results must agree bit for bit, and compare with references computed in double.
 */
#ifndef TRAINER_TESTS_CPU_KERNEL_TEST_H
#define TRAINER_TESTS_CPU_KERNEL_TEST_H

#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "device/device.h"
#include "base/rng.h"

#define F32(pointer, ...)                                                                          \
    ((tr_view_t){.data = (void *)(pointer), .dtype = TR_F32, .shape = TR_SHAPE(__VA_ARGS__)})
#define I64(pointer, ...)                                                                          \
    ((tr_view_t){.data = (void *)(pointer), .dtype = TR_I64, .shape = TR_SHAPE(__VA_ARGS__)})
#define I32(pointer, ...)                                                                          \
    ((tr_view_t){.data = (void *)(pointer), .dtype = TR_I32, .shape = TR_SHAPE(__VA_ARGS__)})
#define BYTES(pointer)                                                                             \
    ((tr_view_t){.data = (void *)(pointer), .dtype = TR_U8, .shape = TR_SHAPE(sizeof *(pointer))})
#define ABSENT     ((tr_view_t){.shape = {.ndim = -1}})
#define VIEWS(...) ((tr_view_t[]){__VA_ARGS__})

/* Runs kernel TR_K_<name>: RUN(ADD, &attr, VIEWS(in...), VIEWS(out...)). */
#define RUN(name, attr, ins, ...) RUN_(TR_K_##name, attr, ins, __VA_ARGS__)
#define COUNT(...)                ((int)(sizeof(__VA_ARGS__) / sizeof(tr_view_t)))
#define RUN_(id, attr, ins, outs) kt_run(id, attr, COUNT(ins), ins, COUNT(outs), outs)

enum { KT_DEVICES = 3 };
extern tr_device_t
    /* of one, two and seven threads; open between kt_setup and kt_teardown */
    *kt_devices[KT_DEVICES];
int kt_setup(void **state);
int kt_teardown(void **state);

/* On all of them. */
void kt_run(tr_kernel_id_t id, const void *attr, int n_in, const tr_view_t *in, int n_out,
            const tr_view_t *out);

/* On one device alone, for kernels whose results depend on the number of threads. */
void kt_run_on(tr_device_t *device, tr_kernel_id_t id, const void *attr, int n_in,
               const tr_view_t *in, int n_out, const tr_view_t *out);

/* Each |got - want| at most absolute + relative |want|, or both NaN, or the same infinity. */
void kt_close(const float *got, const double *want, int64_t n, double relative, double absolute,
              const char *what);

/* Memory that the caller frees. */
float *kt_zeros(int64_t n);
float *kt_normal(int64_t n, uint32_t stream, double mean, double deviation);

#endif
