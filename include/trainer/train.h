/*
 * Training for embedding programs, as the command `trainer train` does it.
 */
#ifndef TRAINER_TRAIN_H
#define TRAINER_TRAIN_H

#include "trainer/comm.h"
#include "trainer/config.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
    const char *config_path; /* names the run folder if neither run.dir nor run.name is set */
    const char *version;     /* of the program, for the record */
} tr_train_params_t;

/*
 * Installs handlers for TERM, INT, HUP (unless it is ignored) and USR1 until the process ends.
 * main() calls it first, so that a signal during start-up is not lost: training then stops after
 * its first step. Without this call, tr_train handles these signals while it runs. Not collective.
 */
void tr_train_catch_signals(void);

/*
 * Trains with `config` (checked; the same on all ranks) to the end or until a signal: on TERM, INT,
 * HUP (unless it is ignored) and USR1 it saves a checkpoint and returns TR_ERR_RETRY. Rank 0 writes
 * the run folder. Collective. An error on one rank is returned on that rank only; the caller must
 * end the other ranks (tr_world_abort).
 */
tr_status_t tr_train(const tr_config_t *config, tr_world_t *world, const tr_train_params_t *params);

#ifdef __cplusplus
}
#endif

#endif
