/*
 * Handles a loss or gradient that is not finite: finds the cause, and decides whether to continue.
 */
#include "loop_int.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "comm/watchdog.h"

#include <math.h>
#include <stdio.h>

enum { SKIPPED_MAX = 100 /* updates in a row */, HEAD_BYTES = 256 };

static const char *number_text(double value, char text[32]) {
    tr_snprintf(text, 32, isnan(value) ? "NaN" : isinf(value) ? "infinite" : "%g", value);
    return text;
}

static bool loop_stops_on_nan(const loop_t *l) {
    return l->s->train.on_nan == TR_ON_NAN_STOP;
}

static void loop_nonfinite_text(const loop_t *l, const tr_step_outcome_t *o,
                                char head[HEAD_BYTES]) {
    const long long step = l->state.step + 1;
    char loss[32], norm[32];
    int n = snprintf(head, HEAD_BYTES,
                     "step %lld: the loss or gradient is not finite (loss %s, gradient norm %s)",
                     step, number_text(o->loss, loss), number_text(o->grad_norm, norm));
    if (!loop_stops_on_nan(l))
        snprintf(head + n, (size_t)(HEAD_BYTES - n),
                 "; with it, %d updates in a row have been skipped since step %lld (train.on_nan = "
                 "skip)",
                 SKIPPED_MAX, step - SKIPPED_MAX + 1);
}

/* -- in the data ------------------------------------------------------------------------------- */

typedef struct {
    const tr_field_t *field; /* NULL: none */
    int64_t sample;
    float value;
} bad_input_t;

/* Reads field `f` of some samples, and looks for the first value that is not finite. */
static tr_status_t input_search(tr_dataset_t *dataset, int f, const int64_t *ids, int64_t count,
                                bad_input_t *out) {
    const tr_field_t *field = &dataset->info.field[f];
    const int64_t elems = tr_shape_elems(&field->shape);
    void *raw = NULL, *dst[TR_DATASET_MAX_FIELDS] = {0};
    float *value = NULL;
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(tr_alloc((size_t)field->sample_bytes, "a sample", &raw), done);
    TR_TRY_GOTO(tr_alloc((size_t)elems * sizeof *value, "a sample", &value), done);
    dst[f] = raw;
    for (int64_t k = 0; k < count && !out->field; k++) {
        TR_TRY_GOTO(dataset->ops->read(dataset, ids[k], 1, dst), done);
        tr_convert(field->dtype, raw, elems, TR_F32, value);
        for (int64_t i = 0; i < elems && !out->field; i++)
            if (!isfinite(value[i])) *out = (bad_input_t){field, ids[k], value[i]};
    }
done:
    tr_free(&raw);
    tr_free(&value);
    return status;
}

/* Reads the samples of the step again, because most micro-batches have been released. */
static tr_status_t loop_fail_of_input(const loop_t *l, const char *head) {
    const tr_session_t *s = l->s;
    tr_dataset_t *dataset = s->dataset[TR_SPLIT_TRAIN];
    const int64_t micro = s->order.micro_batch, end = s->first_slot + s->slot_count;
    bad_input_t found = {0};
    int64_t *ids = NULL;
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(tr_alloc((size_t)micro * sizeof *ids, "samples of a micro-batch", &ids), done);
    for (int64_t slot = s->first_slot; slot < end && !found.field; slot++) {
        TR_TRY_GOTO(tr_sampler_samples(&s->order, slot, l->state.step * micro, micro, ids), done);
        for (int f = 0; f < dataset->info.field_count && !found.field; f++) {
            const tr_dtype_t dtype = dataset->info.field[f].dtype;
            if (dtype == TR_F32 || dtype == TR_F16 || dtype == TR_F64)
                TR_TRY_GOTO(input_search(dataset, f, ids, micro, &found), done);
        }
        tr_watchdog_mark(l->world);
    }
done:
    tr_free(&ids);
    if (status != TR_OK) tr_error_clear(); /* the loss itself is examined */
    if (!found.field) return TR_OK;
    return TR_FAIL(
        loop_stops_on_nan(l) ? TR_ERR_DATA : TR_ERR_STOP,
        "%s: field '%s' of sample %lld of the training data (%s) holds %s. No update was made. "
        "Correct the data%s",
        head, found.field->name, (long long)found.sample,
        l->s->dataset[TR_SPLIT_TRAIN]->info.description,
        isnan(found.value) ? "NaN" : "an infinite value",
        loop_stops_on_nan(l) ? ", or set train.on_nan = skip" : "");
}

/* -- in the network ---------------------------------------------------------------------------- */

static tr_status_t loop_fail_of_op(const loop_t *l, const char *head, const char *remedy) {
    const tr_session_t *s = l->s;
    int op = -1;
    if (tr_train_step_find_nonfinite(l->train_step, l->state.step, &op) != TR_OK) {
        tr_error_clear(); /* the search needs memory, threads and the data once more */
        return TR_FAIL(TR_ERR_STOP, "%s. %s", head, remedy);
    }
    if (op < 0) return TR_OK;
    const tr_op_t *found = tr_program_op(s->g, s->last, op);
    return TR_FAIL(TR_ERR_STOP,
                   "%s; the first output that is not finite comes from op '%s' in %s "
                   "(%s). %s",
                   head, found->row->name, found->label[0] ? found->label : "the model",
                   found->backward ? "backward" : "forward", remedy);
}

/* Every rank checks its samples, then the ops of its micro-batches. The lowest rank that finds a cause
 * reports it. */
static tr_status_t loop_fail_nonfinite(loop_t *l, const tr_step_outcome_t *o) {
    const char *remedy =
        loop_stops_on_nan(l)
            ? "No update was made. Reduce optimizer.lr, set optimizer.clip_norm, check the "
              "data, or set train.on_nan = skip"
            : "No update was made. Reduce optimizer.lr, set optimizer.clip_norm, or check "
              "the data";
    char head[HEAD_BYTES];
    TR_TRY(tr_train_step_abandon(l->train_step));
    tr_loop_finish_writing(l); /* the rank that reports ends all ranks */
    loop_nonfinite_text(l, o, head);
    TR_TRY(tr_world_agree(l->world, loop_fail_of_input(l, head)));
    TR_TRY(tr_world_agree(l->world, loop_fail_of_op(l, head, remedy)));
    return tr_world_agree(
        l->world,
        TR_FAIL(TR_ERR_STOP,
                "%s, although every output of an op is: the sum over all micro-batches is too "
                "large. %s",
                head, remedy));
}

/* -- going on ---------------------------------------------------------------------------------- */

tr_status_t tr_loop_check_finite(loop_t *l, const tr_step_outcome_t *o) {
    char loss[32], norm[32];
    l->skipped_in_row = o->finite || o->overflowed ? 0 : l->skipped_in_row + 1;
    if (o->finite) return TR_OK;
    if (o->overflowed) {
        TR_INFO("step %lld: the gradient overflowed in fp16: update skipped (%lld so far), loss "
                "scale %.0f",
                (long long)l->state.step + 1, (long long)o->overflows, o->loss_scale);
        return TR_OK;
    }
    if (loop_stops_on_nan(l)) return loop_fail_nonfinite(l, o);
    l->skipped++;
    TR_WARN("step %lld: loss %s, gradient norm %s: update skipped (%lld so far)",
            (long long)l->state.step + 1, number_text(o->loss, loss),
            number_text(o->grad_norm, norm), (long long)l->skipped);
    return l->skipped_in_row < SKIPPED_MAX ? TR_OK : loop_fail_nonfinite(l, o);
}

void tr_loop_warn_of_skipped(const loop_t *l) {
    if (2 * l->skipped <= l->state.step) return;
    TR_WARN("%lld of %lld updates were skipped, because the loss or gradient was not finite: the "
            "result is hardly trained. Reduce optimizer.lr, set optimizer.clip_norm, or check the "
            "data",
            (long long)l->skipped, (long long)l->state.step);
}

/* -- scores ------------------------------------------------------------------------------------ */

static bool eval_has_diverged(const tr_eval_outcome_t *o) {
    return o->terms > 0 && !isfinite(o->loss);
}

void tr_loop_check_valid(loop_t *l, const tr_eval_outcome_t *valid) {
    const bool was = l->valid_diverged;
    l->valid_diverged = eval_has_diverged(valid);
    if (l->valid_diverged && !was)
        TR_WARN("the validation loss after step %lld is not finite: the model has diverged. Reduce "
                "optimizer.lr, set optimizer.clip_norm, or check the data",
                (long long)l->state.step);
}

tr_status_t tr_loop_check_result(const loop_t *l, const tr_eval_outcome_t *test) {
    const bool is_bad_test = test && eval_has_diverged(test);
    if (!is_bad_test && !l->valid_diverged) return TR_OK;
    return tr_world_agree(
        l->world,
        TR_FAIL(TR_ERR_STOP,
                "training ended after step %lld, but the %s loss is not finite: the model "
                "has diverged. Reduce optimizer.lr, set optimizer.clip_norm, or check "
                "the data",
                (long long)l->state.step, is_bad_test ? "test" : "validation"));
}
