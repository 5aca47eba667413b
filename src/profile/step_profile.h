/*
 * The profile of some steps: where their time went, and what to do about it. Numbers only; spans
 * come from the trace (base/trace.h). Times are in seconds per step, unless said. Not collective.
 */
#ifndef TR_PROFILE_STEP_PROFILE_H
#define TR_PROFILE_STEP_PROFILE_H

#include "base/mem.h"
#include "base/trace.h"
#include "graph/program.h"
#include <jansson.h>

/* A device that computes for less of a step than this waits for something. */
#define TR_UTILISATION_MARK 0.8

/* One rank. Has no pointers: ranks exchange it. */
typedef struct {
    char host[64];
    double step_sec;                /* mean */
    double median_sec, longest_sec; /* of the steps; NaN: unknown */
    int64_t longest_step;
    double compute_sec;  /* ops */
    double data_sec;     /* training waits for batches */
    double wait_sec;     /* the device waits for collectives */
    double progress_sec; /* the computing thread works for the communication, between ops */
    double read_sec;     /* of all threads of the loader together */
    double read_bytes;
    double dropped; /* spans that the trace had no room for */
    /* busy, and that threads waited for while others ran on them; NaN: unknown */
    double cores_used, cores_waited;
    double clock_error_sec;
} tr_rank_profile_t;

/* All ops of one row and layer, on rank 0. */
typedef struct {
    const char *name, *layer, *phase; /* forward, backward, update; borrowed from the graph */
    double calls, sec, flops, bytes;  /* per step */
    double floor_sec;                 /* by the peaks of the device; NaN: unknown */
    bool is_memory_bound;             /* its bytes take longer than its least FLOPs */
    double least_flops;               /* per step: tr_op_least_flops */
} tr_op_profile_t;

/* A bucket of gradients. */
typedef struct {
    char layers[96];
    double bytes, sec;  /* on rank 0, of all micro-batches that reduce it */
    double exposed_sec; /* that the device waited for it, on the rank where that is least */
} tr_bucket_profile_t;

typedef struct {
    int64_t first, last; /* the steps, from 1 */
    TR_VEC(tr_rank_profile_t) ranks;
    TR_VEC(tr_op_profile_t) ops; /* by time, largest first */
    TR_VEC(tr_bucket_profile_t) buckets;
    double peak_flops, peak_bytes; /* per second, of one device; NaN: unknown */
    double untraced_sec;           /* median of some steps before the trace; NaN: unknown */
    /* What remedies depend on: is_captured: steps are, but not while they are traced */
    bool is_immediate, is_captured, overlaps, polls, may_use_bf16;
    int64_t workers, prefetch, micro_batch, batch_size;
} tr_step_profile_t;

void tr_step_profile_free(tr_step_profile_t *profile);

/* The programs of a step, -1 if absent, and what they belong to. Borrowed. */
typedef struct {
    const tr_graph_t *g;
    int last, update;
} tr_step_programs_t;

/* Sums the spans of one rank. False: there is no step among them. */
bool tr_rank_profile_take(const tr_spans_t *spans, tr_rank_profile_t *out);
/* Fills the buckets of `last` from the spans of this rank. */
tr_status_t tr_step_profile_take_buckets(tr_step_profile_t *profile, const tr_spans_t *spans,
                                         const tr_step_programs_t *programs);
/* Fills the ops from the spans of this rank; after the peaks are known. */
tr_status_t tr_step_profile_take_ops(tr_step_profile_t *profile, const tr_spans_t *spans,
                                     const tr_step_programs_t *programs);
/* forward, backward or update */
const char *tr_op_phase(const tr_op_t *op, const tr_step_programs_t *programs);

/* The time of a traced step, the mean of the ranks. */
double tr_step_profile_sec(const tr_step_profile_t *profile);
/* The time of a step that is launched as in training: where steps are captured, of one before the
 * trace. */
double tr_step_profile_launched_sec(const tr_step_profile_t *profile);
/* The share of that time in which the device of a rank computes, the mean of the ranks. */
double tr_step_profile_utilisation(const tr_step_profile_t *profile);
/* profile.json. New reference. NULL: not enough memory. */
json_t *tr_step_profile_json(const tr_step_profile_t *profile);
/* Logs the ten ops that take the most time, the utilisation and the advice. */
void tr_step_profile_log(const tr_step_profile_t *profile);

#endif
