/* Private to the training loop: its state; loop_setup.c makes it, loop_save.c saves, loop.c runs.
 */
#ifndef TRAINER_LOOP_INT_H
#define TRAINER_LOOP_INT_H

#include "interval.h"
#include "loop_state.h"
#include "report.h"
#include "state.h"
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
    tr_loop_state_t state;
    bool stop;       /* some rank was asked to stop */
    int64_t skipped; /* updates skipped by on_nan = skip */
    int64_t skipped_in_row;
    bool valid_diverged; /* the loss of the last validation is not finite */
    char *run_dir;
    /* What the model was told about its data: of the checkpoint that is resumed, and of model.init;
     * NULL none. */
    tr_preprocess_t *kept, *first;
    tr_sampler_t order; /* of the checkpoint that is resumed */
    /* rank 0 */
    tr_run_t *run;
    tr_checkpoint_t *resume;
    tr_weights_t *init; /* model.init, of a run that does not go on */
    bool own_resume;    /* of this run folder, not of a path */
    json_t *told;       /* by the report of the run to go on with; NULL: nothing is known */
    tr_checkpointer_t *checkpointer;
    tr_snapshot_t *snapshot;
    char *state_text, *metadata; /* of the checkpoint being written */
    tr_checkpoint_texts_t files; /* of every checkpoint, for other programs */
    /* the checkpoint whose snapshot is being taken during a step; the writer has it afterwards */
    tr_checkpoint_content_t content;
    bool has_content, is_between; /* is_between: the halves of a step */
    tr_checkpoint_settings_t save_settings;
    struct {
        int64_t session;    /* of the run, from 1 */
        int64_t first_step; /* that this session does, from 1 */
        double entered_sec; /* since exec, when tr_train began */
        double resume_sec;  /* initial values, or reading a checkpoint and sharing it */
        bool has_begun;
        json_t *hosts; /* without repetition */
    } history;
    double until_sec;         /* run.until, seconds since 1970; 0: none */
    double slowest_write_sec; /* of a checkpoint of this run */
} loop_t;

static inline bool tr_loop_is_root(const loop_t *l) {
    return l->info->rank == 0;
}

/* loop_setup.c */
enum { TR_WAY_ON_BYTES = 4096 + 128 };
/* What to do to go on from this run's newest checkpoint. */
void tr_loop_resume_hint(const loop_t *l, char *text, size_t bytes);
/* From params, config, world and info: everything that steps need, and the first lines of the log.
 * Collective. */
tr_status_t tr_loop_set_up(loop_t *l);
void tr_loop_tear_down(loop_t *l);

/* nonfinite.c */
/* After a step, before it counts as done. Not finite: an error that says what of, or a warning, by
 * train.on_nan. Collective. */
tr_status_t tr_loop_check_finite(loop_t *l, const tr_step_outcome_t *o);
/* At the end, where most updates were skipped. */
void tr_loop_warn_of_skipped(const loop_t *l);
/* After a validation: warns of the first loss that is not finite. */
void tr_loop_check_valid(loop_t *l, const tr_eval_outcome_t *valid);
/* At the end of training: TR_ERR_STOP if the loss of the last validation, or of the test (NULL:
 * there was none), is not finite. Collective. */
tr_status_t tr_loop_check_result(const loop_t *l, const tr_eval_outcome_t *test);

/* loop_save.c; rank 0 alone does something, but for the last. */
/* Writes down in state_text where the run stands. */
tr_status_t tr_loop_describe_state(loop_t *l);
/* Once the writer is idle: how the last checkpoint went. */
void tr_loop_note_failure(loop_t *l);
/* Tells the signals when to stop for run.until, by what is known of checkpoints. */
void tr_loop_watch_time(const loop_t *l);
/* Hands a snapshot of the state to the writer, unless it has one of this step. Where the writer is
 * still busy with an older one a periodic save comes at the first step that finds it idle; `must`
 * waits. */
tr_status_t tr_loop_save(loop_t *l, bool must);
/* Gives the writer the checkpoint whose snapshot was begun between the halves of a step. */
tr_status_t tr_loop_submit(loop_t *l);
/* Before an error ends the run: the checkpoint that is being written is not lost with it. */
void tr_loop_finish_writing(loop_t *l);
/* This step's checkpoint is the best: a link, where it is saved already. */
tr_status_t tr_loop_save_best(loop_t *l);
/* Saves, and waits until it is on the disk or has failed to be, which ends nothing yet. Collective.
 */
tr_status_t tr_loop_save_first(loop_t *l);
/* The last checkpoint is safe, or all ranks know why not. Collective. */
tr_status_t tr_loop_save_last(loop_t *l);

#endif
