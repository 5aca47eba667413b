/*
 * Evaluation of trained models, and prediction with them, for embedding programs. The commands
 * `trainer eval` and `trainer predict` use these functions.
 */
#ifndef TRAINER_INFER_H
#define TRAINER_INFER_H

#include "trainer/comm.h"
#include "trainer/config.h"
#include "trainer/data.h"

#ifdef __cplusplus
extern "C" {
#endif

/*
 * `weights` is the path of a run folder or its checkpoints/ (the best checkpoint, else the newest
 * complete one), of a checkpoint folder (step-NNNNNNNN), or of a .safetensors file. `config` is the
 * configuration of the training run, checked and the same on all ranks: the one passed to tr_train,
 * or RUN/config.ini loaded with tr_config_load_file. Inputs and targets are normalised as in
 * training. TR_ERR_NOINPUT: no such checkpoint; TR_ERR_DATA: a damaged checkpoint; TR_ERR_CONFIG:
 * the weights do not fit the model. An error on one rank is returned on all ranks.
 */

/* Scores over a data set. A score that does not apply to the model is NAN. */
typedef struct {
    int64_t step;          /* of the checkpoint; -1: unknown */
    double samples;        /* with a label or target; language models: tokens */
    double loss;           /* mean of model.loss */
    double accuracy, topk; /* classes: fractions from 0 to 1; topk if model.topk > 1 */
    double mse, mae, r2;   /* regression: means over the targets, in units of the data */
} tr_scores_t;

/* Evaluates trained weights on data.train, data.valid or data.test. Collective. */
tr_status_t tr_evaluate(const tr_config_t *config, tr_world_t *world, const char *weights,
                        tr_split_t split, tr_scores_t *out);

/* A trained model that predicts samples in host memory. */
typedef struct tr_predictor tr_predictor_t;
typedef struct {
    /* [field_count] the inputs: the fields of the training data without y, in their order (name,
     * type, shape of a sample, bytes of a dense one). Of the predictor */
    const tr_field_t *field;
    int field_count;
    tr_dtype_t dtype;     /* of field[0]: that of the training data */
    tr_shape_t shape;     /* of one of its samples */
    int64_t sample_bytes; /* of one of its samples, dense */
    int64_t classes;      /* 0: regression */
    int64_t outputs;      /* values per sample: one per class, or one per target */
    /* samples computed at once, at most: data.micro_batch. On the CPU in fp32 fewer take less time */
    int64_t batch;
    int64_t step;         /* of the checkpoint; -1: unknown */
    const char *weights;  /* path of the opened checkpoint */
    /* [classes] as the training data had them; NULL: unknown. Of the predictor */
    const char *const *class_names;
} tr_predictor_info_t;

/*
 * Opens trained weights on every rank, without a data set. `config` and `world` are borrowed until
 * tr_predictor_close. TR_ERR_CONFIG also for a checkpoint that does not record the shape of its
 * inputs, and for a model without one row of outputs per sample (a language model). Collective.
 */
tr_status_t tr_predictor_open(const tr_config_t *config, tr_world_t *world, const char *weights,
                              tr_predictor_t **out);
void tr_predictor_close(tr_predictor_t **predictor);                           /* not collective */
const tr_predictor_info_t *tr_predictor_info(const tr_predictor_t *predictor); /* not collective */
/*
 * Predicts `count` >= 0 samples. x: (count, sample shape) of info.dtype, in units of the data.
 * out: (count, info.outputs), the probability of each class or the targets in units of the data.
 * The caller owns both. Not collective: ranks may predict different numbers of samples. One thread
 * at a time. TR_ERR_CONFIG: the model has several inputs.
 */
tr_status_t tr_predictor_run(tr_predictor_t *predictor, const void *x, int64_t count, float *out);
/* The same with fields[info.field_count], each (count, sample shape) of its type. */
tr_status_t tr_predictor_run_fields(tr_predictor_t *predictor, const void *const *fields,
                                    int64_t count, float *out);

#ifdef __cplusplus
}
#endif

#endif
