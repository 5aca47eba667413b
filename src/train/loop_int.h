/* The state of the training loop. Private to src/train: loop_setup.c creates it, loop.c runs the
 * loop, loop_save.c saves checkpoints. */
#ifndef TR_TRAIN_LOOP_INT_H
#define TR_TRAIN_LOOP_INT_H

#include "interval.h"
#include "loop_state.h"
#include "metrics.h"
#include "weights/state.h"
#include "trainer/train.h"

typedef struct {
    const tr_train_params_t *params;
    const tr_config_t *config;
    tr_world_t *world;
    const tr_world_info_t *info;
    tr_session_t *s;
    tr_collectives_t *collectives;
    tr_loader_t *loader;
    tr_train_step_t *train_step;
    tr_schedule_t *schedule;
    tr_report_t report;
    tr_interval_t save, valid;
    bool save_due; /* after the step whose outcome is read between the halves of the next */
    tr_loop_state_t state;
    bool stop;       /* some rank was asked to stop */
    int64_t skipped; /* updates skipped by on_nan = skip */
    int64_t skipped_in_row;
    bool valid_diverged; /* the loss of the last validation is not finite */
    char *run_dir;
    /* preprocessing of the resumed checkpoint, and of model.init; NULL: none */
    tr_preprocess_t *kept, *first;
    tr_sampler_t order;       /* of the resumed checkpoint */
    tr_precision_t precision; /* of the resumed checkpoint; AUTO: unknown */
    /* rank 0 */
    tr_run_t *run;
    tr_checkpoint_t *resume;
    tr_weights_t *init; /* model.init, of a new run */
    bool own_resume;    /* the resumed checkpoint is in this run folder */
    json_t *told;       /* state of the report in the resumed checkpoint; NULL: unknown */
    tr_checkpointer_t *checkpointer;
    tr_snapshot_t *snapshot;
    char *state_text, *metadata; /* of the checkpoint being written */
    tr_checkpoint_texts_t files; /* of every checkpoint, for other programs */
    /* the checkpoint whose snapshot is being taken; then passed to the writer */
    tr_checkpoint_content_t content;
    bool has_content, is_between; /* is_between: the halves of a step */
    tr_checkpoint_settings_t save_settings;
    struct {
        int64_t session;    /* number of this session, from 1 */
        int64_t first_step; /* first step of this session, from 1 */
        double entered_sec; /* start of tr_train, since exec */
        double resume_sec;  /* initialisation, or reading and broadcasting a checkpoint */
        bool has_begun;
        json_t *hosts; /* unique host names */
    } history;
    double until_sec;         /* run.until, seconds since 1970; 0: none */
    double slowest_write_sec; /* of all checkpoints of this run */
} loop_t;

static inline bool tr_loop_is_root(const loop_t *l) {
    return l->info->rank == 0;
}

/* loop_setup.c */
enum { TR_WAY_ON_BYTES = 4096 + 128 };
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

/* loop_save.c. Except for the last two, only rank 0 does anything. */
/* Writes the state.json of the current step to state_text. */
tr_status_t tr_loop_describe_state(loop_t *l);
/* When the writer is idle: reports the outcome of the last checkpoint. */
void tr_loop_note_failure(loop_t *l);
/* Sets the time to stop for run.until, with the margin that a checkpoint needs. */
void tr_loop_watch_time(const loop_t *l);
/* Passes a snapshot of the state to the writer, unless one of this step was saved. If the writer is
 * busy, a periodic save is done at the first step that finds it idle; `must` waits. */
tr_status_t tr_loop_save(loop_t *l, bool must);
/* Passes the checkpoint whose snapshot was started between the halves of a step to the writer. */
tr_status_t tr_loop_submit(loop_t *l);
/* Waits for the checkpoint being written, before an error ends the run. */
void tr_loop_finish_writing(loop_t *l);
/* Declares this step the best: links its checkpoint, which is saved if it was not. */
tr_status_t tr_loop_save_best(loop_t *l);
/* Saves the first checkpoint and waits for it. A failure does not end the run. Collective. */
tr_status_t tr_loop_save_first(loop_t *l);
/* Saves the last checkpoint and waits for it. A failure is returned on all ranks. Collective. */
tr_status_t tr_loop_save_last(loop_t *l);

#endif
