/*
 * The state of a training run: its steps, its validations, and the checkpoint being saved. Saving
 * is a small state machine with one transition table, in loop_state.c. There is no I/O here: loop.c
 * and loop_save.c act on the results. Not collective. Saving is done by rank 0 only; everything
 * else is the same on all ranks.
 */
#ifndef TR_TRAIN_LOOP_STATE_H
#define TR_TRAIN_LOOP_STATE_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    TR_SAVE_IDLE,    /* nothing is being written, nothing is pending */
    TR_SAVE_WRITING, /* the writer is working on a checkpoint or a link */
    TR_SAVE_PENDING, /* the writer is working, and another checkpoint is due */
    TR_SAVE_READY,   /* a checkpoint is due, and the writer is idle */
    TR_SAVE_STATES
} tr_save_state_t;

typedef enum {
    TR_SAVE_DUE,     /* the current step must be saved and has no checkpoint yet */
    TR_SAVE_LINK,    /* the writer was asked to link the best checkpoint */
    TR_SAVE_WRITTEN, /* the writer finished */
    TR_SAVE_FAILED,  /* the writer failed */
    TR_SAVE_EVENTS
} tr_save_event_t;

typedef enum {
    TR_SAVE_NOTHING, /* no action */
    TR_SAVE_TAKE,    /* take a snapshot of the current step and pass it to the writer */
    TR_SAVE_FORGET   /* the checkpoint of saved_step failed; warn */
} tr_save_action_t;

typedef struct {
    int64_t step; /* steps done */
    tr_save_state_t save;
    int64_t saved_step; /* of the newest checkpoint passed to the writer; -1: none */
    bool valid_pending; /* the validation after `step` is due and not done */
    /* of the best validation so far; INFINITY, NaN and -1 if there is none */
    double best_loss, best_score;            /* score: what best_by names, if not the loss */
    double best_accuracy, best_r2, best_iou; /* which the caller sets */
    int64_t best_step;
    int64_t stale; /* validations since the last better one; a tie that was broken is none */
    bool begins_anew; /* the next validation is on other samples than those before it */
} tr_loop_state_t;

/* No step, no checkpoint, no validation. */
tr_loop_state_t tr_loop_state_new(void);

/* Updates save and saved_step, and returns the action. DUE has no effect if the step is saved. */
tr_save_action_t tr_loop_state_save(tr_loop_state_t *state, tr_save_event_t event);
/* Whether a checkpoint is due that was not taken yet. */
bool tr_loop_state_save_pending(const tr_loop_state_t *state);
/* Whether the writer is working. */
bool tr_loop_state_is_writing(const tr_loop_state_t *state);

/* Call after each step. valid_due: a validation follows it. */
void tr_loop_state_step_done(tr_loop_state_t *state, bool valid_due);
/* Call after a validation. Returns whether it is the best so far: by score the first that is not
 * NaN, a larger one, or the same with a smaller loss; otherwise a smaller loss. */
bool tr_loop_state_validated(tr_loop_state_t *state, double loss, double score, bool by_score);

#endif
