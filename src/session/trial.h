/*
 * A trial: steps of training that leave nothing behind, neither a run folder nor a checkpoint. The
 * targets step, batch, memory and precision of `trainer bench` and `trainer lr-find` are trials.
 *
 *   tr_trial_t trial = {0};
 *   status = tr_trial_open(config, world, &params, &trial);
 *   if (status == TR_OK) status = tr_trial_start(&trial);
 *   if (status == TR_OK) status = tr_trial_run(&trial, steps, lr, each, self);
 *   tr_trial_close(&trial, status);
 */
#ifndef TR_SESSION_TRIAL_H
#define TR_SESSION_TRIAL_H

#include "step.h"

typedef struct {
    bool evaluation; /* the session is one of TR_SESSION_TRAIN; else of TR_SESSION_MEASURE */
    bool scheduled;  /* learning rates follow schedule.* */
    bool held;       /* every step has the batches of the first: none waits for data */
} tr_trial_params_t;

typedef struct {
    tr_trial_params_t params;
    tr_config_t *config;
    tr_session_t *s;
    tr_collectives_t *collectives; /* NULL: one rank */
    tr_world_t *world;             /* borrowed; NULL: none */
    tr_schedule_t *schedule;       /* of the whole run, for a rate of 1; NULL: not scheduled */
    tr_loader_t *loader;
    tr_train_step_t *train_step;
    int64_t step; /* the next, from 0 */
} tr_trial_t;

/* Opens data, device and collectives, and plans. Takes `config` over, also after an error.
 * Collective if there is a world. */
tr_status_t tr_trial_open(tr_config_t *config, tr_world_t *world, const tr_trial_params_t *params,
                          tr_trial_t *out);
/* Allocates what a step needs, and gives the weights their first values. Collective. */
tr_status_t tr_trial_start(tr_trial_t *t);
/* The next tr_trial_run begins with the first weights and the first samples. Not collective. */
tr_status_t tr_trial_reset(tr_trial_t *t);

/* Called with every outcome, in order; sec: since the one before, or since tr_trial_run began.
 * Returns whether to go on, the same on all ranks. A step that has already begun is completed, and
 * its outcome passed. */
typedef bool (*tr_trial_step_fn)(void *self, const tr_step_outcome_t *outcome, double sec);
/* Runs `steps` more steps and waits for the last. As in training, the host does not wait for a step
 * before it enqueues the next. The learning rate is `lr`; of a scheduled trial times the factor that
 * the whole run has at the same part of its steps. each: may be NULL. Collective. */
tr_status_t tr_trial_run(tr_trial_t *t, int64_t steps, double lr, tr_trial_step_fn each,
                         void *self);
/* status: how the trial ended. After an error with several ranks, nothing is closed: others may wait
 * in a collective, and only main can end them. Collective. */
void tr_trial_close(tr_trial_t *t, tr_status_t status);

#endif
