/*
 * The self-test of a device: the kernels and library calls of a configuration, on a small
 * micro-batch, against the CPU (graph/compare.h). A pass is kept in cuda.plan_cache, for this GPU,
 * driver, libraries, build and configuration. Private to src/session and src/cmd.
 */
#ifndef TR_SESSION_SELF_TEST_H
#define TR_SESSION_SELF_TEST_H

#include "graph/compare.h"
#include "session.h"

typedef struct {
    tr_comparisons_t rows; /* empty if was_kept */
    bool was_kept;         /* it passed earlier, and was not run again */
    double sec;
} tr_self_test_t;

/*
 * Tests `device` for the configuration, data and programs of `s`, with random samples. It builds
 * and runs the model once on the device and frees it again. again: also if a pass is kept.
 * TR_ERR_INTERNAL: an op differs, and the message has the op, the difference and what to report;
 * other errors are those of the device. Not collective.
 */
tr_status_t tr_self_test_run(const tr_session_t *s, tr_device_t *device, bool again,
                             tr_self_test_t *out);
void tr_self_test_free(tr_self_test_t *test);
/* The number of rows that were compared. */
size_t tr_self_test_compared(const tr_self_test_t *test);
/* The row that differs most for its tolerance; NULL: nothing was compared. */
const tr_comparison_t *tr_self_test_worst(const tr_self_test_t *test);

/*
 * device = auto: opens the GPU of this rank if every rank has one whose self-test passes. Else
 * *out is NULL, for the CPU, and a line says why; but where GPUs were allocated to the job, that is
 * an error: TR_ERR_RETRY for hardware, TR_ERR_INTERNAL for a wrong result, TR_ERR_CONFIG if the
 * device cannot be used at all. Resolves precision = auto if a GPU is taken. Collective.
 */
tr_status_t tr_device_choose(tr_session_t *s, tr_device_t **out);

#endif
