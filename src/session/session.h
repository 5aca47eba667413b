/*
 * A session: the data sets, the device and the graph with its programs that one rank creates from a
 * configuration. train, eval, predict, plan and bench all start with one.
 */
#ifndef TR_SESSION_SESSION_H
#define TR_SESSION_SESSION_H

#include "data/preprocess/preprocess.h"
#include "comm/comm.h"
#include "config/config.h"
#include "data/loader.h"
#include "graph/program.h"
#include "model/model.h"
#include "optim/optim.h"
#include "precision.h"
#include "settings.h"
#include "target_score.h"

/* Sums in the reduced block after the gradients: over a step, or over an evaluation pass. Terms of
 * the loss are samples, or tokens of a language model. */
enum { TR_SUM_TERMS, TR_SUM_LOSS, TR_SUM_CORRECT, TR_SUM_TOPK, TR_SUM_ASKED, TR_SUM_COUNT };

typedef struct tr_reduce_tree tr_reduce_tree_t; /* src/session/reduce_tree.h */
typedef struct tr_feed tr_feed_t;               /* src/session/feed.h */
typedef struct tr_evaluation tr_evaluation_t;   /* eval.c */

typedef struct tr_session tr_session_t;

/* An eval program that computes the first `samples` samples of the inputs alone. */
typedef struct {
    int program;
    int64_t samples;
    tr_tensor_t output; /* kept */
} tr_small_eval_t;
enum { TR_SMALL_EVALS = 12 }; /* of 1, 2, 4, ... samples */

/* What a session is for determines its data and its programs. */
typedef enum {
    TR_SESSION_TRAIN,   /* all splits; first, micro, last, update and eval */
    TR_SESSION_MEASURE, /* as TRAIN, without eval; all-reduces are among the ops of one rank, too */
    TR_SESSION_PLAN,    /* as TRAIN, but nothing will run: a GPU is taken without its self-test */
    TR_SESSION_EVALUATE, /* one split; eval */
    TR_SESSION_PREDICT,  /* one split, or none; eval computes outputs alone, and y is not read */
    TR_SESSION_BUILD     /* no data; the programs that params.build appends */
} tr_session_purpose_t;

typedef struct {
    tr_session_purpose_t purpose;
    int rank, size;      /* of the planned world, if there is no world */
    tr_device_t *device; /* open, and borrowed; NULL: the session opens its own */
    int64_t micro_batch; /* > 0: overrides data.micro_batch */
    /* the parameters are loaded, or received from rank 0, after the start: not drawn */
    bool loaded;

    /* PLAN: allow more memory than this device has */
    bool any_size;
    /* PLAN: for a GPU that need not be in this machine (tr_device_params_t.model); NULL: for the
     * configured device */
    const char *gpu;

    /* EVALUATE, PREDICT: the split to open; or_valid: where there is no TR_SPLIT_TEST, it becomes
     * TR_SPLIT_VALID */
    tr_split_t split;
    bool or_valid;
    /* PREDICT, samples without a data set: describes their fields; no data are opened, and there
     * are programs for few samples (tr_session.small). NULL: the fields of the split. Borrowed
     * during tr_session_create. */
    const tr_dataset_info_t *inputs;

    /* BUILD: builds the programs of the session. */
    tr_status_t (*build)(tr_session_t *s, void *self);
    void *build_self;

    /* The order of the resumed run, for data.micro_batch, block and shuffle if they are auto; -1:
     * unknown. NULL: a new run. Borrowed during tr_session_create. */
    const tr_sampler_t *order;
    /* Of the resumed or evaluated run, for precision = auto; AUTO: unknown */
    tr_precision_t precision;
    /* Preprocessing of the resumed or evaluated weights, which is used for keys with auto or
     * compute, and of the initial weights (model.init), a fallback for auto. NULL: none or unknown.
     * Borrowed until tr_session_destroy. */
    const tr_preprocess_t *trained_preprocess, *init_preprocess;
} tr_session_params_t;

struct tr_session {
    const tr_config_t *config;
    tr_session_params_t params;
    tr_world_t *world; /* NULL: plan only */

    tr_main_settings_t main;
    tr_train_settings_t train;
    tr_data_settings_t data;
    tr_model_settings_t model;
    tr_optim_settings_t optim;
    tr_schedule_settings_t schedule;
    tr_parallel_settings_t parallel;

    tr_dataset_t *dataset[3];    /* by tr_split_t; NULL if absent */
    tr_dataset_info_t info;      /* of the data set that determines the shapes */
    tr_preprocess_t *preprocess; /* NULL without data */
    uint64_t checksum[3];        /* tr_session_checksum; 0: unknown */
    tr_sampler_t order;          /* training order, resolved */
    int64_t slots, first_slot, slot_count;
    double data_sec, plan_sec; /* time to open the data and the device, and to plan */
    int64_t total_steps;
    double steps_per_epoch;
    int64_t sample_terms; /* loss terms per sample: 1, or the tokens of a sample */
    bool has_accuracy;    /* the model has the output `correct` */
    /* values that a regression predicts per sample, or per position; 0: no regression */
    int64_t targets;

    int cores; /* this rank's share of its node's cores */
    tr_device_t *device;
    tr_graph_t *g;
    /* Programs, -1 if absent. The slots of a step run first, micro, ..., micro, last; one slot, and
     * every slot if parallel.reproducible, runs last alone. */
    int first, micro, last, update, eval;
    tr_model_batch_t batch;
    tr_tensor_t field[TR_DATASET_MAX_FIELDS]; /* inputs, by index in info.field; none: not read */
    tr_collectives_t *collectives;            /* borrowed, after tr_session_start; NULL: one rank */
    tr_feed_t *feed;                          /* after tr_session_start */
    tr_evaluation_t *validation;              /* reused by validations; NULL before the first */
    tr_target_sums_t *target_sums; /* of the last evaluation of a regression; else NULL */
    int64_t *confusion; /* of the last evaluation of labels of positions, tr_confusion; else NULL */
    tr_reduce_tree_t *tree;        /* parallel.reproducible; else NULL */
    tr_tensor_t sums;              /* reduced (TR_SUM_COUNT) */
    tr_tensor_t loss_scale;        /* precision = fp16; otherwise none */
    tr_tensor_t asks;              /* input (1): TR_ASK_STOP, TR_ASK_SAVE, or their sum */
    /* of the eval program; output, loss, correct are kept */
    tr_model_result_t result;
    tr_small_eval_t small[TR_SMALL_EVALS]; /* those with fewer samples than the micro-batch */
    int small_count;
    int64_t parameters; /* elements, without padding, frozen ones included */
};

/* Whether the session has the programs and the data of a training. */
static inline bool tr_session_trains(const tr_session_t *s) {
    return s->params.purpose <= TR_SESSION_PLAN;
}
static inline bool tr_session_predicts(const tr_session_t *s) {
    return s->params.purpose == TR_SESSION_PREDICT;
}
static inline bool tr_session_builds(const tr_session_t *s) {
    return s->params.purpose == TR_SESSION_BUILD;
}
/* Whether y has probabilities of each position, which are scored as classes, at the threshold 1/2. */
static inline bool tr_session_has_masks(const tr_session_t *s) {
    return s->info.is_dense && s->info.classes == 0 &&
           s->model.loss == TR_LOSS_BINARY_CROSS_ENTROPY;
}
/* Whether evaluations give an IoU. */
static inline bool tr_session_has_iou(const tr_session_t *s) {
    return (s->info.is_dense && s->info.classes > 0) || tr_session_has_masks(s);
}

/* As tr_world_agree, or `status` where there is no world. Collective. */
tr_status_t tr_session_agree(const tr_session_t *s, tr_status_t status);
/* The length of a run. */
int64_t tr_session_steps(const tr_train_settings_t *train, double steps_per_epoch);
/* Opens the data, resolves sizes, builds and plans the graph. Allocates nothing on the device.
 * config and world are borrowed. Collective if there is a world. */
tr_status_t tr_session_create(const tr_config_t *config, tr_world_t *world,
                              const tr_session_params_t *params, tr_session_t **out);
/* Before the start, when all that takes memory of the device is open: measures what is left. If the
 * plan does not fit on some rank, plans again with a smaller micro-batch where data.micro_batch =
 * auto; else TR_ERR_MEMORY. Collective if there is a world. */
tr_status_t tr_session_fit(tr_session_t *s);
/* Allocates and initialises the graph. collectives: informed of the reduced block; NULL: one rank.
 * Collective if there are collectives. */
tr_status_t tr_session_start(tr_session_t *s, tr_collectives_t *collectives);
/* Gives parameters, statistics and the state of the optimizer their first values again. Between
 * steps, after tr_session_start; not of TR_SESSION_BUILD. Collective where ranks share the
 * optimizer's state. */
tr_status_t tr_session_reset(tr_session_t *s);
/* With parallel.zero, after each rank has written its parts of the parameters with `status`, on
 * which they agree: gives all of them to every rank (tr_graph_gather). Else returns `status`.
 * Collective. */
tr_status_t tr_session_gather(tr_session_t *s, tr_status_t status);
void tr_session_destroy(tr_session_t **s);

/* Sets s->checksum of the data sets up to the split `last`, in less than 50 ms for usual files. Not
 * collective: rank 0 calls it. */
tr_status_t tr_session_checksum(tr_session_t *s, tr_split_t last);
/* One checksum of all data that a training with `config` opens; 0: unknown. Not collective. */
uint64_t tr_config_data_checksum(const tr_config_t *config);

/* Creates the loader of this rank for a split: training from `first_step`, or an evaluation pass.
 * */
tr_status_t tr_session_loader(tr_session_t *s, tr_split_t split, bool evaluation,
                              int64_t first_step, tr_loader_t **out);

#endif
