/*
 * A trained model: a session without training that holds the weights of a checkpoint. eval and
 * predict begin with one, and so do tr_evaluate and tr_predictor_open.
 */
#ifndef TRAINER_TRAINED_H
#define TRAINER_TRAINED_H

#include "score.h"
#include "session.h"

typedef struct {
    tr_world_t *world; /* world and config are borrowed */
    const tr_world_info_t *info;
    const tr_config_t *config;
    tr_session_t *s;
    char *weights_path;        /* the folder or file that was opened */
    char *state_json;          /* of its training; "": not known */
    tr_preprocess_t *kept;     /* what its training was told about the data; NULL: not known */
    int64_t step;              /* -1: not known */
    tr_str_t model_difference; /* between the configuration's and the checkpoint's, a line each */
} tr_trained_t;

typedef struct {
    const char *weights; /* path: tr_weights_open */
    tr_split_t split;    /* the data that are opened */
    bool prediction;     /* outputs only: the data need no labels */
    bool from_memory;    /* prediction of samples in host memory: no data are opened */
    /* Not NULL: programs of a session without data, as in tr_session_params_t. */
    tr_status_t (*build)(tr_session_t *s, void *self);
    void *build_self;
} tr_trained_params_t;

/*
 * Opens weights and session. out->world and out->config are set by the caller. After a failure, too,
 * tr_trained_close frees what is open. Collective.
 */
tr_status_t tr_trained_open(const tr_trained_params_t *params, tr_trained_t *out);
void tr_trained_close(tr_trained_t *trained);

/* Whether the outputs are scores of classes. TR_ERR_CONFIG: the checkpoint does not record it. */
tr_status_t tr_trained_is_classifier(const tr_trained_t *trained, bool *out);

/* The scores of one pass over a split. Language models have neither classes nor targets. */
typedef struct {
    tr_eval_outcome_t outcome;
    tr_class_counts_t *classes; /* of a classifier, else NULL */
    tr_target_sums_t *targets;  /* of a regression, else NULL */
} tr_trained_scores_t;
/* Collective. `out` is freed with tr_trained_scores_free, after a failure, too. */
tr_status_t tr_trained_evaluate(tr_trained_t *trained, tr_split_t split, tr_trained_scores_t *out);
void tr_trained_scores_free(tr_trained_scores_t *scores);

#endif
