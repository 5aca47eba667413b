/*
 * Where a training run stands: its steps, its validations, and the checkpoint that is being saved.
 * Saving is a small state machine; its transitions are one table, in loop_state.c. No input or
 * output: loop.c and loop_save.c act on what the functions return. Not collective. Saving is of
 * rank 0 only; everything else is the same on all ranks.
 */
#ifndef TRAINER_LOOP_STATE_H
#define TRAINER_LOOP_STATE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    TR_SAVE_IDLE,    /* nothing is being written, nothing is pending */
    TR_SAVE_WRITING, /* the writer has a checkpoint or a link, and its outcome is not known */
    TR_SAVE_PENDING, /* likewise, and another checkpoint became due meanwhile */
    TR_SAVE_READY,   /* a checkpoint is pending, and the writer is idle */
    TR_SAVE_STATES
} tr_save_state_t;

typedef enum {
    TR_SAVE_DUE,     /* the current step is to be saved, and no checkpoint of it was taken */
    TR_SAVE_LINK,    /* the writer was asked to link the best checkpoint */
    TR_SAVE_WRITTEN, /* the writer finished */
    TR_SAVE_FAILED,  /* the writer failed */
    TR_SAVE_EVENTS
} tr_save_event_t;

typedef enum {
    TR_SAVE_NOTHING, /* no action */
    TR_SAVE_TAKE,    /* take a snapshot of the current step and hand it to the writer */
    TR_SAVE_FORGET   /* there is no checkpoint of saved_step; warn */
} tr_save_action_t;

typedef struct {
    int64_t step; /* steps done */
    tr_save_state_t save;
    int64_t saved_step; /* of the newest checkpoint given to the writer, -1: none */
    bool valid_pending; /* the validation of `step` is due and not done */
    /* of the best validation so far: INFINITY, NaN and -1 where there is none */
    double best_loss, best_accuracy;
    int64_t best_step;
    int64_t stale; /* validations since the best one */
} tr_loop_state_t;

/* No step, no checkpoint, no validation. */
tr_loop_state_t tr_loop_state_new(void);

/* Changes save and saved_step, and returns what to do. DUE of a step that is saved changes nothing.
 */
tr_save_action_t tr_loop_state_save(tr_loop_state_t *state, tr_save_event_t event);
/* A checkpoint is due that could not be taken so far. */
bool tr_loop_state_save_pending(const tr_loop_state_t *state);
/* The writer has a checkpoint or a link. */
bool tr_loop_state_is_writing(const tr_loop_state_t *state);

/* One more step is done; valid_due: a validation follows it. */
void tr_loop_state_step_done(tr_loop_state_t *state, bool valid_due);
/* The pending validation is done. Returns whether it is the best so far: by accuracy (the first one
 * that is a number, then a larger one), else by loss (a smaller one). */
bool tr_loop_state_validated(tr_loop_state_t *state, double loss, double accuracy,
                             bool by_accuracy);

#endif
