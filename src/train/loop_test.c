/* The test at the end of training: of the last step and of the best checkpoint. */
#include "base/clock.h"
#include "comm/watchdog.h"
#include "loop_int.h"
#include "signals.h"
#include "trainer/log.h"

#include <stdio.h>
#include <sys/stat.h>

bool tr_loop_test_selects(const loop_t *l) {
    const tr_session_t *s = l->s;
    return l->valid.steps > 0 && (l->saving.settings.best || s->train.patience > 0) &&
           tr_dataset_shares(s->dataset[TR_SPLIT_VALID], s->dataset[TR_SPLIT_TEST]);
}

/* Rank 0. Opens the checkpoint that the link `best` names. *out_step: its step, or that of the last
 * step, whose weights the graph has; -1: there is none. */
static tr_status_t loop_open_best(loop_t *l, tr_weights_t **out, int64_t *out_step) {
    char path[4096];
    struct stat info;
    *out_step = -1;
    if (!l->saving.settings.best ||
        snprintf(path, sizeof path, "%s/best", tr_run_checkpoint_dir(l->run)) >= (int)sizeof path ||
        (l->state.best_step < 0 && lstat(path, &info) != 0))
        return TR_OK;
    if (l->state.best_step == l->state.step) {
        *out_step = l->state.step;
        return TR_OK;
    }
    TR_TRY(tr_weights_open(path, out));
    if ((*out)->step != l->state.step && !tr_graph_is_sharded(l->s->g))
        TR_TRY(tr_snapshot_load(l->saving.snapshot, *out));
    *out_step = (*out)->step;
    return TR_OK;
}

/* Where ranks share: each loads what it has of the weights that rank 0 has opened. Collective. */
static tr_status_t loop_load_parts(loop_t *l, tr_weights_t **weights) {
    char *path = NULL;
    tr_status_t status = *weights ? tr_strdup((*weights)->path, &path) : TR_OK;
    TR_TRY(tr_world_agree(l->world, status));
    TR_TRY(tr_world_broadcast_text(l->world, &path, 0));
    if (!*weights) status = tr_weights_open_checked(path, weights);
    tr_free(&path);
    if (status == TR_OK) status = tr_snapshot_load(l->saving.snapshot, *weights);
    return tr_world_agree(l->world, status);
}

/* Loads the best checkpoint as `trainer eval` does, with optimizer.ema into the averages. Collective. */
static tr_status_t loop_load_best(loop_t *l, int64_t *out_step) {
    const bool is_averaged = !tr_is_none(tr_graph_find(l->s->g, TR_EMA_STATE));
    tr_weights_t *weights = NULL;
    tr_watchdog_phase(l->world, TR_PHASE_CHECKPOINT, l->state.step);
    tr_status_t status = tr_world_agree(
        l->world, tr_loop_is_root(l) ? loop_open_best(l, &weights, out_step) : TR_OK);
    if (status == TR_OK) status = tr_world_broadcast(l->world, out_step, sizeof *out_step, 0);
    const bool is_other = status == TR_OK && *out_step >= 0 && *out_step != l->state.step;
    if (is_other && tr_graph_is_sharded(l->s->g)) status = loop_load_parts(l, &weights);
    tr_weights_close(&weights);
    if (status == TR_ERR_NOINPUT || status == TR_ERR_DATA ||
        status == TR_ERR_IO) { /* on all ranks */
        if (tr_loop_is_root(l))
            TR_WARN("the best checkpoint cannot be read, only the last step was tested: %s",
                    tr_error_last()->message);
        tr_error_clear();
        *out_step = -1;
        return TR_OK;
    }
    return is_other && status == TR_OK ? tr_state_broadcast(l->s, l->collectives, is_averaged)
                                       : status;
}

static tr_status_t loop_evaluate_test(loop_t *l, tr_test_t *out) {
    const double start = tr_clock_sec();
    tr_watchdog_phase(l->world, TR_PHASE_EVALUATION, l->state.step);
    TR_TRY(tr_session_evaluate(l->s, TR_SPLIT_TEST, NULL, tr_signals_pending, &out->scores));
    out->seconds = tr_clock_sec() - start;
    return TR_OK;
}

/* The last step comes first, because loading the best checkpoint replaces its weights. */
tr_status_t tr_loop_test(loop_t *l, tr_eval_outcome_t *out) {
    tr_test_t last = {.step = l->state.step}, best = {.step = -1};
    TR_TRY(loop_evaluate_test(l, &last));
    *out = last.scores;
    if (out->stopped) return TR_OK;
    TR_TRY(loop_load_best(l, &best.step));
    const bool is_other = best.step >= 0 && best.step != last.step;
    if (is_other) TR_TRY(loop_evaluate_test(l, &best));
    out->stopped = is_other && best.scores.stopped;
    if (out->stopped) return TR_OK;
    best.is_selected = tr_loop_test_selects(l);
    last.is_selected = best.is_selected && (l->s->train.patience > 0 || best.step == last.step);
    tr_metrics_test(&l->metrics, &last, is_other ? &best : best.step >= 0 ? &last : NULL);
    return TR_OK;
}
