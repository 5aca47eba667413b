/* What eval and predict begin with: the world, a configuration, and a session without training that
 * holds the weights of a checkpoint. */
#ifndef CMD_TRAINED_H
#define CMD_TRAINED_H

#include "cmd.h"
#include "train/session.h"

typedef struct {
    const char *config, *weights; /* paths; config NULL: that of the run of the weights */
    int count;
    char **assignments;
    bool prediction;
    tr_split_t split;
    /* Not NULL: programs of a session without data, as in tr_session_params_t. */
    tr_status_t (*build)(tr_session_t *s, void *self);
    void *build_self;
} cmd_trained_params_t;

typedef struct {
    tr_world_t *world;
    const tr_world_info_t *info;
    tr_config_t *config;
    tr_session_t *s;
    char *weights_path;        /* the folder or file that was taken */
    char *state_json;          /* of its training, "" not known */
    tr_preprocess_t *kept;     /* what its training was told about the data; NULL not known */
    int64_t step;              /* -1: not known */
    tr_str_t model_difference; /* between the configuration's and the checkpoint's, a line each */
} cmd_trained_t;

/* Closes what is open with cmd_trained_close also when it fails. Collective. */
tr_status_t cmd_trained_open(const cmd_trained_params_t *params, cmd_trained_t *out);
/* `status` tells whether the ranks leave together: after an error the world stays open for main to
 * end all of them. Returns it. */
tr_status_t cmd_trained_close(cmd_trained_t *trained, tr_status_t status);

#endif
