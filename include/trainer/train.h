/* Training, whole: what `trainer train` runs and an embedding program may call. */
#ifndef TRAINER_TRAIN_H
#define TRAINER_TRAIN_H

#include "trainer/comm.h"
#include "trainer/config.h"
#include "trainer/log.h"

/* Every key table of the program, for tr_config_create and tr_config_help; tables of models registered so far are in it. Owned by the library. */
tr_status_t tr_all_tables(const tr_config_table_t *const **out, size_t *out_count);

typedef struct {
    const char *config_path; /* names the run folder where neither run.dir nor run.name is set */
    const char *version;     /* of the program, for the record */
} tr_train_params_t;

/* Catches TERM, INT, HUP (unless it is ignored) and USR1 from now until the process ends. main() calls it first, so that a signal in the first
 * seconds is not lost: training stops after its first step. Without this call tr_train catches them while it runs. Not collective. */
void tr_train_catch_signals(void);

/*
 * Trains by `config` (checked; the same on all ranks) to the end, or to a signal: TERM, INT, HUP (unless it is ignored) and USR1 ask for a
 * checkpoint and TR_ERR_RETRY. Rank 0 keeps the run folder. Collective. An error on one rank returns there only: the caller ends the others (tr_world_abort).
 */
tr_status_t tr_train(const tr_config_t *config, tr_world_t *world, const tr_train_params_t *params);

#endif
