/* What the parts of `trainer plan` share. Private to src/cmd. */
#ifndef TRAINER_PLAN_H
#define TRAINER_PLAN_H

#include "train/session.h"

#define PLAN_MAX_COUNTS 32

typedef struct {
    int count, value[PLAN_MAX_COUNTS];
} plan_counts_t;

typedef struct {
    const char *path, *json;
    plan_counts_t ranks; /* --ranks */
    bool ops;
    /* --nodes */
    plan_counts_t nodes;
    int64_t ranks_per_node;
    const char *network, *network_inside, *profile, *mode;
    int assignments;
    char **assignment; /* borrowed from argv */
} plan_options_t;

/* The session that `plan` shows: as the last of `ranks` ranks, which has the most slots where they
 * do not divide. Not collective. */
tr_status_t plan_session(const tr_config_t *config, int ranks, tr_session_t **out);

/* plan --nodes: prints the predicted step times, or writes them to o->json. */
tr_status_t plan_nodes(const tr_config_t *config, const plan_options_t *o);

#endif
