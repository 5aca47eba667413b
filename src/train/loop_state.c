/* The state of a run, and the transitions of saving. */
#include "loop_state.h"

#include <math.h>

typedef struct {
    tr_save_state_t next;
    tr_save_action_t action;
} transition_t;

/* An idle writer reports nothing, so these entries have no effect. */
static const transition_t transitions[TR_SAVE_STATES][TR_SAVE_EVENTS] = {
    [TR_SAVE_IDLE] = {[TR_SAVE_LINK] = {TR_SAVE_WRITING, TR_SAVE_NOTHING},
                      [TR_SAVE_DUE] = {TR_SAVE_WRITING, TR_SAVE_TAKE},
                      [TR_SAVE_WRITTEN] = {TR_SAVE_IDLE, TR_SAVE_NOTHING},
                      [TR_SAVE_FAILED] = {TR_SAVE_IDLE, TR_SAVE_NOTHING}},
    [TR_SAVE_WRITING] = {[TR_SAVE_LINK] = {TR_SAVE_WRITING, TR_SAVE_NOTHING},
                         [TR_SAVE_DUE] = {TR_SAVE_PENDING, TR_SAVE_NOTHING},
                         [TR_SAVE_WRITTEN] = {TR_SAVE_IDLE, TR_SAVE_NOTHING},
                         [TR_SAVE_FAILED] = {TR_SAVE_IDLE, TR_SAVE_FORGET}},
    [TR_SAVE_PENDING] = {[TR_SAVE_LINK] = {TR_SAVE_PENDING, TR_SAVE_NOTHING},
                         [TR_SAVE_DUE] = {TR_SAVE_PENDING, TR_SAVE_NOTHING},
                         [TR_SAVE_WRITTEN] = {TR_SAVE_READY, TR_SAVE_NOTHING},
                         [TR_SAVE_FAILED] = {TR_SAVE_READY, TR_SAVE_FORGET}},
    [TR_SAVE_READY] = {[TR_SAVE_LINK] = {TR_SAVE_PENDING, TR_SAVE_NOTHING},
                       [TR_SAVE_DUE] = {TR_SAVE_WRITING, TR_SAVE_TAKE},
                       [TR_SAVE_WRITTEN] = {TR_SAVE_READY, TR_SAVE_NOTHING},
                       [TR_SAVE_FAILED] = {TR_SAVE_READY, TR_SAVE_NOTHING}},
};

tr_loop_state_t tr_loop_state_new(void) {
    return (tr_loop_state_t){.saved_step = -1,
                             .best_loss = INFINITY,
                             .best_score = NAN,
                             .best_accuracy = NAN,
                             .best_r2 = NAN,
                             .best_iou = NAN,
                             .best_step = -1};
}

tr_save_action_t tr_loop_state_save(tr_loop_state_t *state, tr_save_event_t event) {
    if (event == TR_SAVE_DUE && state->saved_step == state->step) return TR_SAVE_NOTHING;
    const transition_t t = transitions[state->save][event];
    state->save = t.next;
    if (t.action == TR_SAVE_TAKE) state->saved_step = state->step;
    if (t.action == TR_SAVE_FORGET) state->saved_step = -1;
    return t.action;
}

bool tr_loop_state_save_pending(const tr_loop_state_t *state) {
    return state->save == TR_SAVE_PENDING || state->save == TR_SAVE_READY;
}

bool tr_loop_state_is_writing(const tr_loop_state_t *state) {
    return state->save == TR_SAVE_WRITING || state->save == TR_SAVE_PENDING;
}

void tr_loop_state_step_done(tr_loop_state_t *state, bool valid_due) {
    state->step++;
    state->valid_pending = valid_due;
}

bool tr_loop_state_validated(tr_loop_state_t *state, double loss, double score, bool by_score) {
    const bool is_better = by_score ? score > state->best_score ||
                                          (isnan(state->best_score) && !isnan(score))
                                    : loss < state->best_loss,
               breaks_tie = by_score && score == state->best_score && loss < state->best_loss;
    state->valid_pending = false;
    /* train.patience waits for a better score: a loss that still falls would never end the run. */
    state->stale = is_better ? 0 : state->stale + 1;
    if (!is_better && !breaks_tie) return false;
    state->best_loss = loss;
    state->best_score = score;
    state->best_step = state->step;
    return true;
}
