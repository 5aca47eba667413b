/*
 * Checks of ops against double precision: a case names an op's inputs, builds it and has a
 * reference in double. On every device that is present op_check compares the forward result with
 * the reference, and the gradient of sum(y * seed) for random seeds with central finite differences
 * of the reference (never of the float code). Then it demands the same bits
 * - where inputs and gradients are activations that the planner may overwrite and recycle,
 * - where every activation is kept, so that nothing is,
 * - without gradients, so that inputs end at the op,
 * - where the op is recomputed before its gradient,
 * - where gradients are accumulated over two runs (and halved),
 * and compares the gradient of each input alone, the others being frozen.
 *
 * Cases with an input that may be bf16 or f16 are checked again in both, with values that the type
 * holds: results and gradients of such inputs to its precision, gradients of parameters as closely
 * as in f32.
 */
#ifndef TEST_OP_HARNESS_H
#define TEST_OP_HARNESS_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <cmocka.h>

#include "graph/program.h"
#include "trainer/ops.h"

/* Tables of cases leave out what is zero. */
#pragma GCC diagnostic ignored "-Wmissing-field-initializers"

#define OP_MAX_IN 8
/* The step block that op_ready writes. */
#define OP_SEED 11
#define OP_STEP 3

typedef struct {
    const char *name;
    tr_shape_t shape;
    /* uniform in [low, high], whole numbers but for f32 and f64; both 0: -1 to 1 */
    double low, high;
    tr_dtype_t dtype;
    bool fixed;           /* no gradient flows here: an input of the batch, not a parameter */
    const double *values; /* these instead of random ones */
    bool half;            /* an activation: cast to bf16, and to f16, in further passes */
} op_input_t;

typedef struct op_case op_case_t;
struct op_case {
    const char *name;
    int n_in;
    op_input_t in[OP_MAX_IN];
    const void *attr; /* for build and reference */
    tr_mode_t mode;   /* TR_EVAL: no gradient is asked for */
    tr_shape_t out;   /* expected shape of the result */
    tr_status_t (*build)(tr_graph_t *g, const op_case_t *c, const tr_tensor_t *in,
                         tr_tensor_t *out);
    void (*reference)(const op_case_t *c, const double *const *in, double *y);
    double tolerance, grad_tolerance; /* relative to the largest value; 0: 1e-5 and 3e-5 */
    /* a half type rounds between two ops, or a gradient is had from a rounded result: all gradients are
     * rough */
    bool rounds_inside;
    /* Kernels of the gradients may add to a sum within their own sums, which rounds otherwise than a
     * record that adds (products). */
    bool adds_inside;
    /* An optional kernel without which the op cannot be composed: devices that lack it are left
     * out. */
    tr_kernel_id_t needs;
};

void op_check(const op_case_t *c);

/* Names of the devices that can be opened here (with OP_DEVICE=NAME, of this one alone), and one of
 * them opened. */
typedef struct {
    int count;
    const char *name[8];
} op_devices_t;
op_devices_t op_devices(void);
tr_device_t *op_open(const char *name);

/* Fails the test with the error's message. */
void op_must(tr_status_t status, const char *what);
#define MUST(expr) op_must((expr), #expr)
/* The status is a configuration error whose message has all of the names (names.h). */
void op_assert_refused(tr_status_t status, const char *names);
#define REFUSED(expr, names) op_assert_refused((expr), (names))
/* |found - expected| <= tolerance * max(largest |expected|, 1e-3), for all; NaN fails. */
void op_assert_close(const char *what, const float *found, const double *expected, int64_t count,
                     double tolerance);

/* A graph with one open program in scope "op", and what follows when it is built. */
typedef struct {
    tr_device_t *device;
    tr_graph_t *g;
    int program;
} op_bench_t;
op_bench_t op_begin(const char *device, tr_mode_t mode);
void op_ready(
    /* ends the program if one is open, plans, allocates, initialises, writes a step block */
    op_bench_t *b);
void op_write(op_bench_t *b, tr_tensor_t t, const double *values); /* converted to t's type */
float *op_read(op_bench_t *b, tr_tensor_t t);                      /* f32; test_free */
void op_run(op_bench_t *b);
void op_end(op_bench_t *b);

/* The nearest value of `type`, bf16 or f16; of any other the value itself. */
double op_round(tr_dtype_t type, double value);

/* Element `i` of sequence `key`, uniform in [low, high]. */
double op_random(const char *key, int64_t i, double low, double high);

/* The activations of activations.def in double, accurate in both tails, and their slopes by what the
 * gradient kernel is given: x where tr_act_keeps_input, else y. */
double op_act(tr_act_t act, double x);
double op_act_slope(tr_act_t act, double v);

#endif
