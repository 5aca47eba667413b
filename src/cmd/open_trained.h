/* Opening the world, a configuration and a trained model for eval and predict. */
#ifndef TR_CMD_OPEN_TRAINED_H
#define TR_CMD_OPEN_TRAINED_H

#include "cmd.h"
#include "infer/trained.h"

/* The option --weights, and the name of its value: a tr_dtype_t of the weights. */
#define CMD_WEIGHT_TYPES "fp32|bf16|fp16"
static inline const char *cmd_weight_type(int type) {
    return type == TR_BF16 ? "bf16" : type == TR_F16 ? "fp16" : "fp32";
}

typedef struct {
    const char *config; /* its path; NULL: that of the weights' run */
    cmd_words_t settings;
    tr_trained_params_t model;
} cmd_trained_params_t;

typedef tr_trained_t cmd_trained_t; /* owns its world and its configuration */

/* The configuration alone, as cmd_trained_open loads it. Collective. */
tr_status_t cmd_trained_config(tr_world_t *world, const cmd_trained_params_t *params,
                               tr_config_t **out);
/* Call cmd_trained_close also after an error. Collective. */
tr_status_t cmd_trained_open(const cmd_trained_params_t *params, cmd_trained_t *out);
/* If `status` is an error, the world stays open, and main ends all ranks. Returns `status`. */
tr_status_t cmd_trained_close(cmd_trained_t *trained, tr_status_t status);

#endif
