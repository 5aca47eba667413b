/* The measurement of a training step on data already in memory. Private to src/cmd. */
#ifndef TR_CMD_BENCH_BENCH_STEP_H
#define TR_CMD_BENCH_BENCH_STEP_H

#include "bench.h"
#include "run/run.h"
#include "session/trial.h"

/* {.steps = N} initially: the steps that are timed. */
typedef struct {
    tr_trial_t trial;
    double median_sec, best_sec, exposed, busy, peak_flops;
    double product_flops, copy_bytes; /* per second, of one rank: what floors are computed from */
    int64_t steps, warm;
    double *step_sec;    /* [steps] */
    double *compute_sec; /* [steps] step times less exposed communication, ascending */
    bench_op_t *op;      /* [ops of last] */
    double update_sec, update_floor_sec;
    double flops;                      /* of one step on all ranks */
    double programs_sec;               /* of one step; NAN on an immediate device */
    double idle;                       /* share of a step; NAN likewise */
    size_t planned_bytes, taken_bytes; /* of the device; taken_bytes 0: not known */
} bench_step_t;

/* Opens the trial and times its steps, after some that warm up; programs_sec, op, update_sec and
 * flops stay 0. Call bench_step_close also after an error. Collective. */
tr_status_t bench_step_measure(bench_step_t *b, tr_world_t *world, const char *path,
                               cmd_words_t settings);
/* Times the programs and the ops of the step. Collective, as the ranks reduce. */
tr_status_t bench_step_time_parts(bench_step_t *b);
/* As tr_trial_close. */
void bench_step_close(bench_step_t *b, tr_status_t status);

#endif
