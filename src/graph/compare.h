/*
 * Compares the kernels of a program with those of another device: every kernel call of the program
 * runs on both, from the same inputs. For the self-test of a device.
 */
#ifndef TR_GRAPH_COMPARE_H
#define TR_GRAPH_COMPARE_H

#include "base/mem.h"
#include "program.h"

/* Kernel calls with the same kernel, types, shapes and attributes. */
typedef struct {
    tr_kernel_id_t kernel;
    tr_dtype_t dtype; /* the half-precision type among its operands, if there is one; else F32 */
    char label[64];   /* of the first op that made such a call: "conv1" */
    char shapes[128]; /* of its operands: "2x1024x768 768x2304" */
    /* The largest |found - expected| of an output, as a share of that output's largest |expected|;
     * of integers, the share that differs. NaN: some value is NaN on one device only. The output
     * with the largest difference for its tolerance. */
    double difference, tolerance;
    const char *skipped; /* why it was not compared; NULL: it was */
    uint64_t key;
} tr_comparison_t;
typedef TR_VEC(tr_comparison_t) tr_comparisons_t;

/* Whether `a` differs more than `b` for its tolerance; of what was not compared: never. */
bool tr_comparison_is_worse(const tr_comparison_t *a, const tr_comparison_t *b);
static inline bool tr_comparison_failed(const tr_comparison_t *c) {
    return !c->skipped && !(c->difference <= c->tolerance);
}

/*
 * Runs the program op by op and appends a row for each kind of call that `rows` does not hold yet.
 * reference: an immediate device whose memory the host can read, with a thread of its own or more.
 * Linear kernels get random operands for the comparison, because sums of a real step may cancel.
 * The program's result is that of a run. An error of a kernel of the graph's device is returned as
 * it is, with the op that it belongs to. Not collective: the program runs without collectives.
 */
tr_status_t tr_program_compare(tr_graph_t *g, int program, tr_device_t *reference,
                               tr_comparisons_t *rows);

#endif
