/* The state of the training loop. Private to src/train: loop_setup.c and loop_origin.c create it,
 * loop.c runs the loop, loop_save.c saves checkpoints, nonfinite.c handles losses that are not
 * finite. */
#ifndef TR_TRAIN_LOOP_INT_H
#define TR_TRAIN_LOOP_INT_H

#include "interval.h"
#include "loop_state.h"
#include "metrics.h"
#include "monitor/server.h"
#include "profile/profiler.h"
#include "session/eval.h"
#include "session/replicas.h"
#include "session/settings.h"
#include "session/step.h"
#include "strip.h"
#include "trainer/train.h"
#include "weights/state.h"

/* What the run starts from: a checkpoint, or the weights of model.init. Rank 0, unless said. */
typedef struct {
    tr_checkpoint_t *checkpoint; /* NULL: a new run */
    bool is_own;                 /* the checkpoint is in this run folder */
    json_t *metrics;             /* state of the metrics in the checkpoint; NULL: unknown */
    tr_weights_t *init;          /* model.init, of a new run */
    tr_preprocess_t *init_preprocess;
    /* of the checkpoint, on all ranks; NULL, -1 and AUTO: unknown */
    tr_preprocess_t *preprocess;
    tr_sampler_t order;
    tr_precision_t precision;
} loop_origin_t;

/* How checkpoints are saved. Rank 0, except for the settings; where ranks share the optimizer's state,
 * every rank has a snapshot and a writer of its pieces. */
typedef struct {
    tr_checkpoint_settings_t settings;
    tr_interval_t every;
    bool is_due; /* after the step whose outcome is read between the halves of the next; one rank */
    int64_t
        asked_step; /* the last after which all ranks were asked for a checkpoint; several ranks */
    bool hurries; /* a checkpoint that CONT asked for is due or being written */
    tr_snapshot_t *snapshot;
    tr_checkpointer_t *checkpointer;
    /* the checkpoint whose snapshot is being taken; then passed to the writer */
    tr_checkpoint_content_t content;
    tr_checkpoint_sharing_t sharing; /* to which `content` points */
    bool has_content;
    char *state_text, *metadata; /* of the checkpoint being written */
    tr_checkpoint_texts_t files; /* of every checkpoint, for other programs */
    double best_wait_sec;        /* that training waited to save new bests */
    double slowest_write_sec;    /* of all checkpoints of this run */
} loop_saving_t;

/* One start of the program. */
typedef struct {
    int64_t number;     /* of this start of the run, from 1 */
    int64_t first_step; /* from 1 */
    double entered_sec; /* start of tr_train, since exec */
    double resume_sec;  /* initialisation, or reading and broadcasting a checkpoint */
    bool has_begun;     /* its first line is written */
    json_t *hosts;      /* unique host names */
} loop_start_t;

typedef struct {
    const tr_train_params_t *params;
    const tr_config_t *config;
    tr_world_t *world;
    const tr_world_info_t *info;
    tr_run_t *run;           /* rank 0 */
    tr_recorder_t *recorder; /* rank 0 */
    tr_board_t *board;       /* rank 0; what the recorder and the server show */
    tr_server_t *server;     /* rank 0; NULL: none */
    tr_telemetry_t *telemetry; /* NULL: none */
    tr_profiler_t *profiler;   /* NULL: none */
    char *run_dir;
    double until_sec; /* run.until, seconds since 1970; 0: none */

    tr_session_t *s;
    tr_collectives_t *collectives;
    tr_loader_t *loader;
    tr_train_step_t *train_step;
    tr_replicas_t *replicas; /* NULL: one rank, or never compared */
    tr_schedule_t *schedule;
    tr_metrics_t metrics;
    tr_strip_t *strip; /* rank 0; NULL: none */
    loop_origin_t origin;
    loop_saving_t saving;
    loop_start_t start;

    tr_loop_state_t state;
    tr_interval_t valid;
    int64_t compared_step; /* the last after which the replicas were compared; -1: none */
    bool stop;           /* some rank was asked to stop */
    bool is_save_asked;  /* rank 0 saves a checkpoint of this step; several ranks */
    bool is_between;     /* between the halves of a step */
    bool valid_diverged; /* the loss of the last validation is not finite */
    int64_t skipped;     /* updates skipped by on_nan = skip */
    int64_t skipped_in_row;
} loop_t;

static inline bool tr_loop_is_root(const loop_t *l) {
    return l->info->rank == 0;
}

/* loop.c */
/* Whether the step that was done last ends an epoch, or the run. */
bool tr_loop_ends_epoch(const loop_t *l);

/* loop_origin.c */
/* Opens, on rank 0, the run folder and what the run starts from; with parallel.zero, all ranks verify a
 * checkpoint. Collective. */
tr_status_t tr_loop_open_origin(loop_t *l);
/* Gives the run folder and the facts about the resumed checkpoint to every rank. Collective. */
tr_status_t tr_loop_share_origin(loop_t *l);
/* Every rank sets the file of the verdict in the run folder, because any of them may be lost; that of
 * an earlier start is removed. A run that is done stays so until it has begun again: its verdict is
 * kept by the call at the start, and goes by that with `is_begun`. run.verdict was set before.
 * Collective. */
tr_status_t tr_loop_open_verdict(loop_t *l, bool is_begun);
/* Starts the session, and loads its state from the origin or draws it. Collective. */
tr_status_t tr_loop_begin_state(loop_t *l);
void tr_loop_close_origin(loop_t *l);

/* loop_setup.c */
enum { TR_RESUME_HINT_BYTES = 4096 + 128 };
/* How to resume from this run's newest checkpoint, for messages. */
void tr_loop_resume_hint(const loop_t *l, char *text, size_t bytes);
/* Sets up everything for training from params, config, world and info, and logs it. Collective. */
tr_status_t tr_loop_set_up(loop_t *l);
void tr_loop_tear_down(loop_t *l);

/* nonfinite.c */
/* Checks the outcome of a step before it counts as done. If it is not finite: an error or a
 * warning, by train.on_nan. Collective. */
tr_status_t tr_loop_check_finite(loop_t *l, const tr_step_outcome_t *o);
/* At the end of training: warns if most updates were skipped. */
void tr_loop_warn_of_skipped(const loop_t *l);
/* After a validation: warns about the first loss that is not finite. */
void tr_loop_check_valid(loop_t *l, const tr_eval_outcome_t *valid);
/* At the end of training: TR_ERR_STOP if the loss of the last validation, or of the test (NULL:
 * there was none), is not finite. Collective. */
tr_status_t tr_loop_check_result(const loop_t *l, const tr_eval_outcome_t *test);

/* loop_test.c */
/* Whether the best checkpoint or the early stop is decided on the samples of the test. */
bool tr_loop_test_selects(const loop_t *l);
/* After the last checkpoint: tests the last step and then, if it is another one, the best
 * checkpoint, whose weights the graph then holds. A best checkpoint that cannot be read is a
 * warning. *out: the scores of the last step; stopped: a signal ended one of the tests.
 * Collective. */
tr_status_t tr_loop_test(loop_t *l, tr_eval_outcome_t *out);

/* loop_save.c. Except for tr_loop_compare and the last two, only rank 0 does anything; where ranks
 * share the optimizer's state, tr_loop_save and tr_loop_save_best are collective, and every rank
 * submits. */
/* Before a checkpoint and every parallel.check steps: compares the replicas of several ranks, once a
 * step. A difference ends the run (tr_replicas_compare). Collective. */
tr_status_t tr_loop_compare(loop_t *l);
/* Writes the state.json of the current step to saving.state_text. */
tr_status_t tr_loop_describe_state(loop_t *l);
/* When the writer is idle: takes note of how the last checkpoint ended, and warns of a failure. An
 * error where the run folder is gone. */
tr_status_t tr_loop_note_written(loop_t *l);
/* Sets the time to stop for run.until, with the margin that a checkpoint needs. */
void tr_loop_watch_time(const loop_t *l);
/* Passes a snapshot of the state to the writer, unless one of this step was saved. If the writer is
 * busy, a periodic save is done at the first step that finds it idle; `must` waits. */
tr_status_t tr_loop_save(loop_t *l, bool must);
/* Passes the checkpoint whose snapshot was started between the halves of a step to the writer. */
tr_status_t tr_loop_submit(loop_t *l);
/* Waits for a checkpoint that CONT asked for, because the process may be killed soon; between
 * steps. */
tr_status_t tr_loop_save_in_haste(loop_t *l);
/* Waits for the checkpoint being written, before an error ends the run. */
void tr_loop_finish_writing(loop_t *l);
/* Declares this step the best: links its checkpoint, which is saved if it was not. */
tr_status_t tr_loop_save_best(loop_t *l);
/* Saves the first checkpoint and waits for it. A failure does not end the run. Collective. */
tr_status_t tr_loop_save_first(loop_t *l);
/* Saves the last checkpoint and waits for it. A failure is returned on all ranks. Collective. */
tr_status_t tr_loop_save_last(loop_t *l);

#endif
