/*
 * A session: the data sets, the device and the graph with its programs that one rank creates from a
 * configuration. train, eval, predict, plan and bench all start with one.
 */
#ifndef TR_SESSION_SESSION_H
#define TR_SESSION_SESSION_H

#include "data/preprocess.h"
#include "comm/comm.h"
#include "config/config.h"
#include "data/loader.h"
#include "graph/program.h"
#include "model/model.h"
#include "optim/optim.h"
#include "precision.h"
#include "target_score.h"
#include <limits.h>

typedef struct {
    int64_t epochs, steps; /* steps > 0 takes precedence over epochs */
    int64_t seed;
    int on_nan;              /* tr_on_nan_t */
    const char *valid_every; /* "1epoch", steps, "10%" of the run */
    int64_t valid_samples;   /* per validation; 0: all */
    /* stop after so many validations without a new best; 0: never */
    int64_t patience;
} tr_train_settings_t;
typedef enum { TR_ON_NAN_STOP, TR_ON_NAN_SKIP } tr_on_nan_t;
extern const tr_config_table_t tr_train_config;

typedef struct {
    const char *device; /* auto, cpu, strict, cuda */
    int precision;      /* tr_precision_t; never AUTO once the session is created */
    const char *resume; /* auto, no, PATH */
    int64_t threads;    /* -1 auto */
    bool winograd;      /* convolutions may use Winograd's algorithm */
    bool capture;       /* capture programs if the device supports it */
    bool fuse;          /* merge groups of operations if the device has kernels for them */
} tr_main_settings_t;

typedef enum { TR_CUDA_DEBUG_NO, TR_CUDA_DEBUG_SYNC, TR_CUDA_DEBUG_NVTX } tr_cuda_debug_t;
typedef struct {
    double memory_limit;    /* fraction of the memory that is free after the context is created */
    int debug;              /* tr_cuda_debug_t */
    bool share;             /* ranks of a node may share a GPU */
    bool tune;              /* algorithms are chosen by time */
    const char *plan_cache; /* auto, none, FOLDER */
    bool measure_peak;
    bool conv_stats; /* convolutions give the sums of batch normalisation */
} tr_cuda_settings_t;
extern const tr_config_table_t tr_cuda_config; /* cuda.* */
extern const tr_config_table_t tr_main_config;

typedef struct {
    int64_t every;
} tr_log_settings_t;
extern const tr_config_table_t tr_log_config;

typedef struct {
    const char *every; /* steps, "1epoch", "10min"; "0": only at the end */
    int64_t keep;
    bool best;
    int best_by;     /* tr_best_by_t */
    double patience; /* seconds */
} tr_checkpoint_settings_t;
typedef enum { TR_BEST_BY_LOSS, TR_BEST_BY_ACCURACY } tr_best_by_t;
extern const tr_config_table_t tr_checkpoint_config;

/* Sums in the reduced block after the gradients: over a step, or over an evaluation pass. Terms of
 * the loss are samples, or tokens of a language model. */
enum { TR_SUM_TERMS, TR_SUM_LOSS, TR_SUM_CORRECT, TR_SUM_TOPK, TR_SUM_STOP, TR_SUM_COUNT };

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

typedef struct {
    bool training;   /* build micro, last and update; otherwise only eval */
    bool evaluation; /* build eval */
    /* the parameters are loaded, or received from rank 0, after the start: not drawn */
    bool loaded;
    /* without training: eval computes only outputs; y is not required and not read */
    bool prediction;
    /* with `prediction`: smaller programs beside eval, for few samples (tr_session.small), where
     * the device computes a sample the same way among any number of others */
    bool small;
    /* training on one rank: include the all-reduces among the ops, where they do nothing */
    bool buckets;
    /* nothing will run: device = auto takes a GPU without its self-test */
    bool plans_only;
    /* plan only: allow more memory than this device has */
    bool any_size;
    /* planned only: for a GPU that need not be in this machine (tr_device_params_t.model); NULL:
     * for the configured device */
    const char *gpu;
    tr_device_t *device; /* open, and borrowed; NULL: the session opens its own */
    tr_split_t split;    /* without training: the split to open */
    bool or_valid; /* where there is no TR_SPLIT_TEST: TR_SPLIT_VALID, and split is set to it */
    /* prediction of samples without a data set: describes their fields; no data are opened. NULL:
     * the fields of the split. Borrowed during tr_session_create. */
    const tr_dataset_info_t *inputs;
    /* If not NULL, the session has no data, and this function builds its programs. */
    tr_status_t (*build)(tr_session_t *s, void *self);
    void *build_self;
    int rank, size;      /* of the planned world, if there is no world */
    int64_t micro_batch; /* > 0: overrides data.micro_batch */
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
    int64_t targets;      /* values that a regression predicts per sample; 0: no regression */

    int cores; /* this rank's share of its node's cores */
    tr_device_t *device;
    tr_graph_t *g;
    /* Programs, -1 if absent. The slots of a step run first, micro, ..., micro, last; one slot, and
     * every slot if parallel.reproducible, runs last alone. */
    int first, micro, last, update, eval;
    tr_model_batch_t batch;
    tr_tensor_t field[TR_DATASET_MAX_FIELDS]; /* inputs, by index in info.field; none: not read */
    tr_feed_t *feed;                          /* after tr_session_start */
    tr_evaluation_t *validation;              /* reused by validations; NULL before the first */
    tr_target_sums_t *target_sums; /* of the last evaluation of a regression; else NULL */
    tr_reduce_tree_t *tree;        /* parallel.reproducible; else NULL */
    tr_tensor_t sums;              /* reduced (TR_SUM_COUNT) */
    tr_tensor_t loss_scale;        /* precision = fp16; otherwise none */
    tr_tensor_t stop;              /* input (1): 1 if this rank was asked to stop */
    /* of the eval program; output, loss, correct are kept */
    tr_model_result_t result;
    tr_small_eval_t small[TR_SMALL_EVALS]; /* those with fewer samples than the micro-batch */
    int small_count;
    int64_t parameters; /* elements, without padding, frozen ones included */
};

/* Cores of this rank; its share if ranks share cores. place NULL: 1. Not collective. */
int tr_cores_of_rank(const tr_world_info_t *place);
/* Writes the folder of cuda.plan_cache; "": none. */
void tr_plan_folder(const tr_config_t *config, char folder[PATH_MAX]);
enum { TR_NODE_DEVICES = 64 }; /* that the ranks of a node choose from */
/* The device of local rank `rank`: in order of local ranks, each takes the free one with the most
 * cores of its own nearby, of several the first. Where all are taken, all are free again. near:
 * [count] cores near each device; ranks: the cores of each rank. Not collective. */
int tr_nearest_device(const cpu_set_t *near, int count, const cpu_set_t *ranks, int rank);
/* Opens the device `name` of this rank, NULL: that of the configuration; of several devices on the
 * node, the one of tr_nearest_device. `seed` is for the device `strict`; tf32 is used by devices
 * that have it. world: NULL for none. Not collective. */
tr_status_t tr_open_device(const tr_config_t *config, const char *name, uint64_t seed, bool tf32,
                           const tr_world_t *world, tr_device_t **out);
/* The device that plans for the GPU `model` and runs nothing. Not collective. */
tr_status_t tr_open_gpu_model(const tr_config_t *config, const char *model, bool tf32,
                              tr_device_t **out);
/* Gives the choices of rank 0's device (choices_get) to the devices of the other ranks. Collective.
 */
tr_status_t tr_share_choices(tr_world_t *world, tr_device_t *device);
/* Whether the devices of all ranks made the same choices, and `planned` is true on all. Collective.
 */
tr_status_t tr_choices_are_alike(tr_world_t *world, tr_device_t *device, bool planned,
                                 bool *out_alike);
/* TR_ERR_CONFIG: two ranks of a node have the same GPU, and cuda.share is off. Collective. */
tr_status_t tr_check_own_device(tr_world_t *world, const tr_config_t *config,
                                const tr_device_t *device);

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
 * steps, after tr_session_start; not with params.build. Not collective. */
tr_status_t tr_session_reset(tr_session_t *s);
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

/* -- one training step (step.c) ---------------------------------------------------------------- */

typedef struct tr_train_step tr_train_step_t;
typedef struct {
    int64_t step; /* counted from 0; -1: no outcome is known */
    double terms; /* of the loss: labelled samples or tokens */
    /* means over the terms, NaN if there are none; accuracy and topk: classes only */
    double loss, accuracy, topk;
    double grad_norm;
    bool finite;       /* false: nothing was updated */
    bool overflowed;   /* not finite, and the loss scale was above the lowest and is halved */
    double loss_scale; /* of the next step; 0: no loss scaling */
    int64_t overflows; /* steps of the run that overflowed */
    bool stop;         /* some rank was asked to stop */
    double stall_sec;  /* waiting for data */
    /* waiting for communication, and all communication; NaN if not measured */
    double exposed_sec, busy_sec;
} tr_step_outcome_t;

tr_status_t tr_train_step_create(tr_session_t *s, tr_collectives_t *collectives,
                                 tr_loader_t *loader, tr_train_step_t **out);
void tr_train_step_destroy(tr_train_step_t **train_step);
/* Reuses the batches of the first step in every step, for benchmarks without data loading.
 * data.prefetch must be at least slot_count. */
tr_status_t tr_train_step_hold(tr_train_step_t *train_step);
/*
 * One optimizer step (every slot of this rank, the reduction, the update) in two halves. The host
 * does not wait for the step it has just enqueued. On an immediate device, _end returns the
 * outcome. On other devices, _begin of the next step returns it, after the first micro-batch of
 * that step is enqueued and before the second overwrites the inputs, or _drain returns it. Every
 * rank therefore learns the outcome of a step at the same place.
 *
 * may_save: between the halves, the parameters are those of the previous step. Several ranks need
 * not agree on it. Without it, _begin may enqueue the whole step, which is one launch where there is
 * one rank with one slot. If the previous step
 * is not finite and train.on_nan is `stop`, this one changes nothing. Collective.
 */
tr_status_t tr_train_step_begin(tr_train_step_t *train_step, int64_t step, double lr,
                                bool stop_wanted, bool may_save, tr_step_outcome_t *out);
tr_status_t tr_train_step_end(tr_train_step_t *train_step, tr_step_outcome_t *out);
/* Waits for the last step. out->step is -1 if its outcome was already returned. Not collective. */
tr_status_t tr_train_step_drain(tr_train_step_t *train_step, tr_step_outcome_t *out);
/* Between the halves of a step begun with may_save: makes its update wait for `event`. */
void tr_train_step_update_after(tr_train_step_t *train_step, tr_event_t *event);
/* _begin, _end and _drain. Collective. */
tr_status_t tr_train_step_run(tr_train_step_t *train_step, int64_t step, double lr,
                              bool stop_wanted, tr_step_outcome_t *out);
/* Abandons a step that was begun: completes its all-reduces, so that no rank waits in them, without
 * the update. For a run that ends with the outcome of the previous step. Collective. */
tr_status_t tr_train_step_abandon(tr_train_step_t *train_step);
/* After a step that was not finite, abandoned: runs its micro-batches on this rank again, read
 * anew, op by op. *out_op: the first op of the program `last` with an output that is not finite;
 * -1: there is none. Not collective. */
tr_status_t tr_train_step_find_nonfinite(tr_train_step_t *train_step, int64_t step, int *out_op);

/* -- evaluation (eval.c) ----------------------------------------------------------------------- */

typedef struct {
    bool stopped;                /* aborted: the scores are invalid */
    double terms;                /* as in tr_step_outcome_t */
    double loss, accuracy, topk; /* as in tr_step_outcome_t */
    /* Of a regression, else NaN: means over the targets, in units of the data even if the loss is
     * of normalised ones. r2 is NaN too for the probabilities of a binary cross-entropy. */
    double r2;
    /* What a model that ignores its inputs would score on these samples; NaN: unknown, and in
     * validations of a training run. */
    double baseline_accuracy, baseline_loss;
} tr_eval_outcome_t;
/* Called after every micro-batch; may be NULL. */
typedef tr_status_t (*tr_eval_batch_fn)(void *self, tr_session_t *s, const tr_batch_t *batch);
/* Nonzero if this rank is asked to stop. */
typedef int (*tr_asked_fn)(void);
void tr_evaluation_destroy(tr_evaluation_t **evaluation);
/* One pass over the data of the split. With `asked` (may be NULL), all ranks abort the pass
 * together within about 0.1 s or one batch after one of them is asked to stop, and set
 * out->stopped. Collective. */
tr_status_t tr_session_evaluate(tr_session_t *s, tr_split_t split, tr_eval_batch_fn each,
                                void *self, tr_asked_fn asked, tr_eval_outcome_t *out);

#endif
