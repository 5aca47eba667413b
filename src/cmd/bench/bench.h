/* Shared by the targets of `trainer bench`. Private to src/cmd. */
#ifndef TR_CMD_BENCH_BENCH_H
#define TR_CMD_BENCH_BENCH_H

#include "cmd/cmd.h"
#include "session/session.h"

extern const cmd_command_t bench_step, bench_batch, bench_allreduce, bench_attention, bench_matmul,
    bench_precision, bench_generate, bench_memory;
#define BENCH_SVG(S, what) CMD_OPTION_TEXT(S, svg, "--svg", "FILE", NULL, "Draws " what ".")
#define BENCH_JSON "Also writes the results as JSON; - writes only JSON to standard output."

/* Seconds of one op of a program, over several runs of the program. */
typedef struct {
    double best_sec, median_sec, p95_sec;
    /* The larger of the times of its tr_op_least_flops at the rate of a large product and of its
     * bytes at that of a large copy. 0: not known, and for collectives. */
    double floor_sec;
} bench_op_t;

/* Runs `program` `repeats` times with a wait after every op. *out (tr_free) has one entry per op;
 * entries of collectives are 0. Not collective. */
tr_status_t bench_time_ops(tr_graph_t *g, int program, int repeats, bench_op_t **out);

/*
 * Adds the data for a timeline of the step to `to`: "slots" of this rank; "config", the resolved
 * configuration; "compute_sec", the step times without exposed communication, ascending; "ops" of
 * the program `last`, in order; "buckets" with their bytes and the index in "ops" of the op after
 * which they are reduced (-1: before the first).
 */
struct json_t;
tr_status_t bench_add_timeline(struct json_t *to, const tr_session_t *s, const bench_op_t *op,
                               const double *compute_sec, int64_t steps);

#endif
