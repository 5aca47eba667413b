/*
 * The profiler of a run: traces some of its steps on all ranks, and writes what it found to
 * profile/ in the run folder: trace-rNNNN.json of each rank, and profile.json of rank 0, which also
 * logs it. Files are written by a thread. What cannot be written is a warning, and the run goes on.
 */
#ifndef TR_PROFILE_PROFILER_H
#define TR_PROFILE_PROFILER_H

#include "comm/comm.h"
#include "config/config.h"
#include "step_profile.h"

typedef struct {
    const char *steps; /* "FIRST:LAST"; "": none */
} tr_profiler_settings_t;
extern const tr_config_table_t tr_profiler_config; /* profile.* */

/* All borrowed until the end of the profiler. */
typedef struct {
    const tr_config_t *config;
    const char *run_dir;
    tr_world_t *world;
    tr_device_t *device;
    tr_graph_t *g;
    tr_collectives_t *collectives; /* NULL: one rank */
    int last, update;              /* programs */
    int64_t slot_count;            /* micro-batches of this rank per step */
    int64_t steps_done, total_steps;
    tr_dtype_t dtype;   /* of the products */
    bool measures_peak; /* of the device, which takes about 0.1 s */
    int workers;        /* of the loader */
    int64_t prefetch, micro_batch, batch_size;
} tr_profiler_params_t;

typedef struct tr_profiler tr_profiler_t;

/* *out is NULL if no step is left to profile: none is asked for, or the run has resumed behind
 * them, which is logged. TR_ERR_CONFIG: profile.steps is no range, or a new run has no such steps;
 * device strict has no clock. Not collective. */
tr_status_t tr_profiler_create(const tr_profiler_params_t *params, tr_profiler_t **out);
/* In all below, profiler may be NULL: they do nothing. Steps are counted from 1. */

/* Whether the outcome of this step has to be known before the next one begins. Not collective. */
bool tr_profiler_drains(const tr_profiler_t *profiler, int64_t step);
/* Before a step begins: starts the trace before the first. Collective. */
tr_status_t tr_profiler_before(tr_profiler_t *profiler, int64_t step);
/* When the outcome of a step is known: ends the trace after the last. Collective. */
tr_status_t tr_profiler_after(tr_profiler_t *profiler, int64_t step);
/* When the run ends: ends the trace after the steps so far. Collective. */
tr_status_t tr_profiler_finish(tr_profiler_t *profiler);
/* Waits for the files; in_haste: leaves them incomplete. Not collective. */
void tr_profiler_destroy(tr_profiler_t **profiler, bool in_haste);

#endif
