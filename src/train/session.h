/*
 * A session: what a config becomes on one rank - data sets, device, and the graph with its programs
 * - before any step is run. train, eval, predict, plan and bench all begin with one.
 */
#ifndef TRAINER_SESSION_H
#define TRAINER_SESSION_H

#include "data/preprocess.h"
#include "trainer/comm.h"
#include "trainer/config.h"
#include "trainer/data.h"
#include "graph/program.h"
#include "trainer/model.h"
#include "trainer/optim.h"

typedef struct {
    int64_t epochs, steps; /* steps > 0 rules; else epochs */
    int64_t seed;
    int on_nan;              /* tr_on_nan_t */
    const char *valid_every; /* "1epoch", steps, "10%" of the run */
    int64_t valid_samples;   /* of a validation; 0: all */
    /* validations in a row without a new best that end the run; 0: none do */
    int64_t patience;
} tr_train_settings_t;
typedef enum { TR_ON_NAN_STOP, TR_ON_NAN_SKIP } tr_on_nan_t;
extern const tr_config_table_t tr_train_config;

typedef struct {
    const char *device; /* auto, cpu, strict, cuda */
    int precision;      /* tr_precision_t */
    const char *resume; /* auto, no, PATH */
    int64_t threads;    /* -1 auto */
    bool winograd;      /* convolutions may be computed by Winograd's algorithm */
    bool capture;       /* programs are captured where the device can */
} tr_main_settings_t;

typedef enum { TR_CUDA_DEBUG_NO, TR_CUDA_DEBUG_SYNC } tr_cuda_debug_t;
typedef struct {
    double memory_limit; /* of what is free once the context is open */
    int debug;           /* tr_cuda_debug_t */
    bool share;          /* ranks of a node may have the same GPU */
} tr_cuda_settings_t;
extern const tr_config_table_t tr_cuda_config; /* cuda.* */
typedef enum { TR_PRECISION_FP32, TR_PRECISION_BF16 } tr_precision_t;
extern const tr_config_table_t tr_main_config;

typedef struct {
    int64_t every;
} tr_log_settings_t;
extern const tr_config_table_t tr_log_config;

typedef struct {
    const char *every; /* steps, "1epoch", "10min"; "0" never but at the end */
    int64_t keep;
    bool best;
    int best_by;     /* tr_best_by_t */
    double patience; /* seconds */
} tr_checkpoint_settings_t;
typedef enum { TR_BEST_BY_LOSS, TR_BEST_BY_ACCURACY } tr_best_by_t;
extern const tr_config_table_t tr_checkpoint_config;

/* The extra reductions behind the gradients: sums over a step, or over an evaluation pass. Terms of
 * the loss are samples, or tokens of a language model. */
enum { TR_SUM_TERMS, TR_SUM_LOSS, TR_SUM_CORRECT, TR_SUM_TOPK, TR_SUM_STOP, TR_SUM_COUNT };

typedef struct tr_reduce_tree tr_reduce_tree_t; /* src/train/reduce_tree.h */
typedef struct tr_feed tr_feed_t;               /* src/train/feed.h */
typedef struct tr_evaluation tr_evaluation_t;   /* eval.c */

typedef struct tr_session tr_session_t;

typedef struct {
    bool training;   /* build micro, last and update; else only eval */
    bool evaluation; /* build eval */
    /* without training: eval gives outputs only; the data need no y, and a y is not read */
    bool prediction;
    /* training on one rank: the all-reduces are among the ops, where they do nothing */
    bool buckets;
    /* planned only: also if this device has too little memory */
    bool any_size;
    tr_split_t split; /* without training: the one split whose data are opened */
    /* prediction of samples that are no data set: their fields, and no data are opened. Borrowed
     * while the session is created; NULL: of the split */
    const tr_dataset_info_t *inputs;
    /* Not NULL: the session has no data, and this builds its programs instead of those above. */
    tr_status_t (*build)(tr_session_t *s, void *self);
    void *build_self;
    int rank, size;      /* of the world that is planned for; the world's own where there is one */
    int64_t micro_batch; /* > 0: instead of data.micro_batch */
    /* The order of the run that is resumed: what data.micro_batch, block and shuffle are where they
     * are auto, -1 each where it is not known; NULL: a new run. Borrowed while the session is
     * created. */
    const tr_sampler_t *order;
    /* What the model was told about its data: of the weights that are resumed or evaluated, which
     * binds, and of those that training begins with (model.init), which helps out. NULL: none, or
     * not known. Borrowed for the life of the session. */
    const tr_preprocess_t *kept, *init;
} tr_session_params_t;

struct tr_session {
    const tr_config_t *config;
    tr_session_params_t params;
    tr_world_t *world; /* NULL: planned without one */

    tr_main_settings_t main;
    tr_train_settings_t train;
    tr_data_settings_t data;
    tr_model_settings_t model;
    tr_optim_settings_t optim;
    tr_schedule_settings_t schedule;
    tr_parallel_settings_t parallel;

    tr_dataset_t *dataset[3];    /* by tr_split_t; NULL where absent */
    tr_dataset_info_t info;      /* of the data set that gives shapes */
    tr_preprocess_t *preprocess; /* what the model is told about them; NULL without data */
    tr_sampler_t order;          /* training order, resolved */
    int64_t slots, first_slot, slot_count;
    double data_sec, plan_sec; /* that opening the data and the device took, and planning */
    int64_t total_steps;
    double steps_per_epoch;
    int64_t sample_terms; /* terms of the loss that a sample has; 1 but for tokens */
    bool has_accuracy;    /* the model tells which samples are right */

    int cores; /* this rank's share of its node's cores */
    tr_device_t *device;
    tr_graph_t *g;
    /* programs, -1 where absent. micro only where slot_count > 1 and not reproducible */
    int micro, last, update, eval;
    tr_model_batch_t batch;
    tr_tensor_t field[TR_DATASET_MAX_FIELDS]; /* inputs, as info.field has them; none: not read */
    tr_feed_t *feed;                          /* after tr_session_start */
    tr_evaluation_t *validation;              /* kept from one to the next; NULL: none yet */
    tr_reduce_tree_t *tree;                   /* parallel.reproducible; else NULL */
    tr_tensor_t sums;                         /* reduced (TR_SUM_COUNT) */
    tr_tensor_t stop;                         /* input (1): 1 where this rank was asked to stop */
    /* of the eval program; output, loss, correct are kept */
    tr_model_result_t result;
    /* gradients are added up over slots, and zeroed first */
    bool accumulate;
    int64_t parameters; /* elements, without padding, frozen ones included */
};

/* Cores of this rank alone: its part, where ranks share them. place NULL: 1. Not collective. */
int tr_cores_of_rank(const tr_world_info_t *place);
/* Opens the device of this rank: of several devices on its node the one of its local rank. `seed`
 * is for the device strict. place NULL: without a world. Not collective. */
tr_status_t tr_open_device(const tr_config_t *config, uint64_t seed, const tr_world_info_t *place,
                           tr_device_t **out);
/* TR_ERR_CONFIG: two ranks of a node have the same GPU, and cuda.share is not set. Collective. */
tr_status_t tr_check_own_device(tr_world_t *world, const tr_config_t *config,
                                const tr_device_t *device);

/* Opens the data, resolves sizes, builds and plans the graph; allocates nothing on the device.
 * config and world are borrowed. Collective where there is a world (agreement on errors). */
tr_status_t tr_session_create(const tr_config_t *config, tr_world_t *world,
                              const tr_session_params_t *params, tr_session_t **out);
/* Allocates and initialises. collectives: they may need to know the block that is reduced; NULL:
 * one rank. Collective where there are collectives. */
tr_status_t tr_session_start(tr_session_t *s, tr_collectives_t *collectives);
void tr_session_destroy(tr_session_t **s);

/* Loader of the split for this rank: training from step `first_step`, or an evaluation pass. */
tr_status_t tr_session_loader(tr_session_t *s, tr_split_t split, bool evaluation,
                              int64_t first_step, tr_loader_t **out);

/* -- one training step (step.c) ---------------------------------------------------------------- */

typedef struct tr_train_step tr_train_step_t;
typedef struct {
    int64_t step; /* that this is of, counted from 0; -1: no outcome is known */
    double terms; /* of the loss: samples or tokens that have a label */
    /* means over them, NaN where there is none; accuracy and topk of classes only */
    double loss, accuracy, topk;
    double grad_norm;
    bool finite;        /* false: nothing was updated */
    bool stop;          /* some rank was asked to stop */
    double stall_sec;   /* waiting for data */
    /* waiting for communication, and communication, hidden or not; NaN where it is not measured,
     * because it runs inside captured programs */
    double exposed_sec, busy_sec;
} tr_step_outcome_t;

tr_status_t tr_train_step_create(tr_session_t *s, tr_collectives_t *collectives,
                                 tr_loader_t *loader, tr_train_step_t **out);
void tr_train_step_destroy(tr_train_step_t **train_step);
/* Keeps the batches of the first step and trains on them in every step: for benchmarks without a
 * loader. data.prefetch must be at least slot_count. */
tr_status_t tr_train_step_hold(tr_train_step_t *train_step);
/*
 * One optimizer step in two halves: every slot of this rank, the reduction, the update. Nobody
 * waits for a step that was just enqueued. On an immediate device _end gives its outcome; on others
 * _begin of the next step does, after the first micro-batch of that step is enqueued and before
 * its second overwrites the inputs of the last one, or _drain. So every rank knows the outcome of a
 * step at the same place. Between the halves the parameters are those after the step before.
 * Collective.
 */
tr_status_t tr_train_step_begin(tr_train_step_t *train_step, int64_t step, double lr,
                                bool stop_wanted, tr_step_outcome_t *out);
tr_status_t tr_train_step_end(tr_train_step_t *train_step, tr_step_outcome_t *out);
/* Waits for the last step; out->step is -1 where its outcome was given. Not collective. */
tr_status_t tr_train_step_drain(tr_train_step_t *train_step, tr_step_outcome_t *out);
/* Between the halves: the update of this step waits for `event`. */
void tr_train_step_update_after(tr_train_step_t *train_step, tr_event_t *event);
/* All three: a step that is waited for. Collective. */
tr_status_t tr_train_step_run(tr_train_step_t *train_step, int64_t step, double lr,
                              bool stop_wanted, tr_step_outcome_t *out);
/* Where a step was begun: completes its all-reduces with the inputs that it has, so that no rank
 * waits in them; the parameters stay. For a run that ends with the outcome of the step before.
 * Collective. */
tr_status_t tr_train_step_abandon(tr_train_step_t *train_step);
/* Makes the last micro-batch of the step whose outcome was given last the input of programs again.
 */
void tr_train_step_show(tr_train_step_t *train_step);

/* -- evaluation (eval.c) ----------------------------------------------------------------------- */

typedef struct {
    bool stopped;                /* given up: the rest is of no pass over all data */
    double terms;                /* as in tr_step_outcome_t */
    double loss, accuracy, topk; /* as in tr_step_outcome_t */
} tr_eval_outcome_t;
/* Called after every micro-batch; may be NULL. */
typedef tr_status_t (*tr_eval_batch_fn)(void *self, tr_session_t *s, const tr_batch_t *batch);
/* Whether this rank is asked to stop: not 0. */
typedef int (*tr_asked_fn)(void);
/* Collective. One pass over the split's data. With `asked` (may be NULL) all ranks give it up
 * together, about a tenth of a second or a batch after one of them is asked to stop; out->stopped
 * then. */
void tr_evaluation_destroy(tr_evaluation_t **evaluation);
tr_status_t tr_session_evaluate(tr_session_t *s, tr_split_t split, tr_eval_batch_fn each,
                                void *self, tr_asked_fn asked, tr_eval_outcome_t *out);

#endif
