/*
 * A trained model: a session without training, with the weights of a checkpoint. Used by eval,
 * predict, tr_evaluate and tr_predictor_open.
 */
#ifndef TR_INFER_TRAINED_H
#define TR_INFER_TRAINED_H

#include "score.h"
#include "session/eval.h"
#include <jansson.h>

typedef struct {
    tr_world_t *world; /* world and config are borrowed */
    const tr_world_info_t *info;
    const tr_config_t *config;
    tr_session_t *s;
    char *weights_path;          /* the opened folder or file */
    json_t *state;               /* its state.json; NULL: unknown */
    tr_preprocess_t *preprocess; /* of the checkpoint; NULL: unknown */
    int64_t step;                /* -1: unknown */
    bool is_best, is_last;       /* the best checkpoint of its run, and the last */
    tr_str_t model_difference;   /* between configuration and checkpoint, one line per key */
} tr_trained_t;

typedef struct {
    const char *weights; /* path for tr_weights_open */
    bool last;           /* of a run folder, the newest checkpoint instead of the best */
    /* as in tr_session_params_t: EVALUATE, PREDICT or BUILD, and what belongs to them */
    tr_session_purpose_t purpose;
    tr_split_t split;
    bool or_valid;
    tr_status_t (*build)(tr_session_t *s, void *self);
    void *build_self;
    /* PREDICT: of samples in host memory: no data are opened */
    bool from_memory;
} tr_trained_params_t;

/*
 * Opens weights and session. The caller sets out->world and out->config, and calls tr_trained_close
 * also after an error. Collective.
 */
tr_status_t tr_trained_open(const tr_trained_params_t *params, tr_trained_t *out);
void tr_trained_close(tr_trained_t *trained);

/* The device of an open predictor (trainer/infer.h). Borrowed. */
struct tr_predictor;
const tr_device_t *tr_predictor_device(const struct tr_predictor *predictor);

/* Whether the model is a classifier. TR_ERR_CONFIG: the checkpoint does not record it. */
tr_status_t tr_trained_is_classifier(const tr_trained_t *trained, bool *out);

/* Whether the best checkpoint, or the end of the run by train.patience, was selected on samples of
 * `split`, by the data that the configuration names. Not collective. */
bool tr_trained_is_selected_on(const tr_trained_t *trained, tr_split_t split);

/* The scores of one pass over a split. Language models have neither classes nor targets. */
typedef struct {
    tr_eval_outcome_t outcome;
    tr_class_counts_t *classes;      /* of a classifier, of samples or of positions, else NULL */
    const tr_target_sums_t *targets; /* of a regression, else NULL; borrowed from the session */
} tr_trained_scores_t;
/* Collective. Free `out` with tr_trained_scores_free, also after an error. */
tr_status_t tr_trained_evaluate(tr_trained_t *trained, tr_split_t split, tr_trained_scores_t *out);
void tr_trained_scores_free(tr_trained_scores_t *scores);

#endif
