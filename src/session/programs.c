/* The programs of a run: preprocessing of the batch, the model, the sums after it; last, micro,
 * update and eval. */
#include "programs.h"
#include "base/mem.h"
#include "ema.h"
#include "reduce_tree.h"
#include "trainer/ops.h"

#include <stdio.h>
#include <string.h>

/* -- the batch on the device ------------------------------------------------------------------- */

static tr_shape_t batched(const tr_shape_t *sample, int64_t micro) {
    tr_shape_t shape = {.ndim = sample->ndim + 1, .dim = {micro}};
    for (int i = 0; i < sample->ndim; i++) shape.dim[i + 1] = sample->dim[i];
    return shape;
}

/* An image as the target, or the points in it, would have to be moved as the input is. */
static tr_status_t programs_check_targets(const tr_session_t *s) {
    const tr_data_settings_t *d = &s->data;
    const struct {
        const char *name;
        bool is_set;
    } keys[] = {{"data.rotate", d->rotate > 0}, {"data.translate", d->translate > 0},
                {"data.zoom", d->zoom > 0},     {"data.shear", d->shear > 0},
                {"data.flip", d->flip},         {"data.crop_pad", d->crop_pad > 0}};
    const int y = tr_field_find(&s->info, "y");
    char shape[96], set[96] = "";
    if (y < 0 || s->info.field[y].shape.ndim < 2) return TR_OK;
    for (size_t k = 0; k < TR_COUNT(keys); k++)
        if (keys[k].is_set)
            snprintf(set + strlen(set), sizeof set - strlen(set), "%s%s", set[0] ? ", " : "",
                     keys[k].name);
    return TR_FAIL(TR_ERR_CONFIG,
                   "augmentation (%s) moves the images of data.x, but not data.y, which has %s "
                   "values per sample: expected one label, or one row of targets. Remove these "
                   "keys, and augment inputs and targets together when the file is made",
                   set, tr_shape_format(&s->info.field[y].shape, shape));
}

/* Pixels from outside the image are black with one channel, otherwise the mean colour. */
static tr_status_t programs_augment(tr_session_t *s, tr_tensor_t *x) {
    const tr_data_settings_t *d = &s->data;
    tr_augment_attr_t attr;
    memset(&attr, 0, sizeof attr); /* its padding too: prepared kernels are found by its bytes */
    attr.rotate_deg = (float)d->rotate;
    attr.translate = (float)d->translate;
    attr.zoom = (float)d->zoom;
    attr.shear_deg = (float)d->shear;
    attr.crop_pad = (int)d->crop_pad;
    attr.flip = d->flip;
    attr.fill = tr_preprocess_fill(s->preprocess);
    const bool wanted = d->rotate > 0 || d->translate > 0 || d->zoom > 0 || d->shear > 0 ||
                        d->crop_pad > 0 || d->flip;
    if (!wanted || tr_graph_mode(s->g) != TR_TRAIN) return TR_OK;
    if (tr_shape_of(s->g, *x)->ndim != 4)
        return TR_FAIL(
            TR_ERR_CONFIG,
            "data.rotate, translate, zoom, shear, crop_pad and flip require images (H, W, C); "
            "data.x is not of images");
    TR_TRY(programs_check_targets(s));
    return tr_augment(s->g, *x, s->batch.sample_id, &attr, x);
}

/* Declares an input for a micro-batch. *out: its first `samples` samples. */
static tr_status_t batch_input(tr_session_t *s, const char *name, tr_dtype_t dtype,
                               const tr_shape_t *sample, int64_t samples, tr_tensor_t *out_input,
                               tr_tensor_t *out) {
    const tr_shape_t whole = batched(sample, s->order.micro_batch), part = batched(sample, samples);
    TR_TRY(tr_input(s->g, name, dtype, &whole, out_input));
    *out = *out_input;
    if (samples == s->order.micro_batch) return TR_OK;
    TR_TRY(tr_slice(s->g, *out, 0, tr_shape_elems(&part), out));
    return tr_reshape(s->g, *out, &part, out);
}

/* A program for fewer samples than a micro-batch reads the same inputs. */
static tr_status_t make_batch(tr_session_t *s, int64_t samples) {
    const tr_shape_t number = {0};
    tr_tensor_t input;
    tr_scope_push(s->g, "input");
    TR_TRY(batch_input(s, "sample_id", TR_I64, &number, samples, &input, &s->batch.sample_id));
    TR_TRY(batch_input(s, "weight", TR_F32, &number, samples, &input, &s->batch.weight));
    s->batch.count = 0;
    s->batch.classes = s->info.classes;
    s->batch.is_dense = s->info.is_dense;
    s->batch.dtype = tr_precision_dtype((tr_precision_t)s->main.precision);
    s->batch.loss_scale = s->loss_scale;
    s->batch.step_samples = s->order.batch_size;
    s->batch.label_note = s->info.label_note;
    s->batch.class_weights = s->preprocess->class_weights.data;
    for (int f = 0; f < s->info.field_count; f++) {
        const tr_field_t *field = &s->info.field[f];
        if (tr_session_predicts(s) && strcmp(field->name, "y") == 0) continue;
        tr_tensor_t *t = &s->batch.tensor[s->batch.count];
        s->batch.name[s->batch.count++] = field->name;
        TR_TRY(batch_input(s, field->name, field->dtype, &field->shape, samples, &s->field[f], t));
        if (strcmp(field->name, "y") == 0) TR_TRY(tr_preprocess_target(s->g, s->preprocess, t));
        if (strcmp(field->name, "x") != 0 || field->kind == TR_FIELD_TOKENS) continue;
        TR_TRY(tr_preprocess_input(s->g, s->preprocess, t));
        TR_TRY(programs_augment(s, t));
        TR_TRY(tr_cast(s->g, *t, s->batch.dtype, t));
    }
    tr_scope_pop(s->g);
    return TR_OK;
}

/* -- programs ---------------------------------------------------------------------------------- */

static tr_status_t sum_into(tr_session_t *s, tr_tensor_t x, int which) {
    tr_tensor_t place;
    if (tr_is_none(x)) return TR_OK;
    TR_TRY(tr_slice(s->g, s->sums, which, 1, &place));
    return tr_weighted_sum(s->g, x, TR_NONE, place);
}

static tr_status_t build_sums(tr_session_t *s, const tr_model_result_t *r) {
    tr_scope_push(s->g, "metrics");
    TR_TRY(tr_reduced(s->g, "sums", TR_SUM_COUNT, &s->sums));
    TR_TRY(sum_into(s, tr_is_none(r->terms) ? s->batch.weight : r->terms, TR_SUM_TERMS));
    TR_TRY(sum_into(s, r->loss, TR_SUM_LOSS));
    TR_TRY(sum_into(s, r->correct, TR_SUM_CORRECT));
    TR_TRY(sum_into(s, r->correct_topk, TR_SUM_TOPK));
    tr_scope_pop(s->g);
    return TR_OK;
}

/* Builds the model on a batch in the open program. */
static tr_status_t build_model(tr_session_t *s, int64_t samples, tr_model_result_t *out) {
    TR_TRY(make_batch(s, samples));
    TR_TRY(tr_model_build(s->g, s->config, &s->batch, out));
    if (!tr_is_none(out->loss))
        s->sample_terms = tr_shape_elems(tr_shape_of(s->g, out->loss)) / samples;
    s->has_accuracy = !tr_is_none(out->correct);
    if (!tr_is_none(out->loss) || tr_session_predicts(s)) return build_sums(s, out);
    return TR_FAIL(
        TR_ERR_DATA,
        "%s has inputs, but no labels or targets were found: set data.y (`trainer data FILE` shows "
        "the contents of a file), or put them into a file NAME_y.h5 beside NAME_x.h5",
        s->info.description);
}

/* Batch normalisation has one value per channel where a micro-batch has one sample. With
 * data.micro_batch = auto, no larger divisor of the batch leaves every rank a micro-batch. */
static tr_status_t programs_check_moments(const tr_session_t *s) {
    const tr_tensor_t mean = tr_lone_moments(s->g, s->last);
    const long long batch = s->order.batch_size, ranks = s->params.size;
    const bool is_resumed = s->params.order && s->params.order->micro_batch > 0;
    long long micro = 2;
    tr_str_t remedy = {0};
    if (tr_is_none(mean)) return TR_OK;
    while (micro < batch && batch % micro != 0) micro++;
    if (batch / micro >= ranks)
        tr_str_printf(&remedy, "data.micro_batch = %lld or more", micro);
    else
        tr_str_printf(&remedy, "data.batch_size = %lld and data.micro_batch = 2 for %lld rank%s",
                      2 * ranks, ranks, ranks > 1 ? "s" : "");
    if (batch / micro > 0 && batch / micro < ranks)
        tr_str_printf(&remedy, ", or data.micro_batch = %lld for %lld rank%s", micro, batch / micro,
                      batch / micro > 1 ? "s" : "");
    const char *name = tr_tensor_info(s->g, mean)->name;
    const tr_status_t status = TR_FAIL(
        TR_ERR_CONFIG,
        "%.*s: in training, batch normalisation expects more than one value per channel, but a "
        "micro-batch of one sample has one: %s %s",
        (int)(strlen(name) - strlen(".running_mean")), name,
        is_resumed ? "a resumed run keeps its micro-batches, so start a new run with" : "set",
        remedy.text ? remedy.text : "a larger data.micro_batch");
    tr_str_free(&remedy);
    return status;
}

/* Adds its gradients and sums to those of the programs before it, or replaces them. */
static tr_status_t build_training(tr_session_t *s, const char *name, bool adds, int *out) {
    tr_model_result_t r = {0};
    TR_TRY(tr_program_begin(s->g, name, TR_TRAIN, out));
    if (!adds) TR_TRY(tr_zero_extra_reductions(s->g));
    TR_TRY(build_model(s, s->order.micro_batch, &r));
    if (out == &s->last) TR_TRY(sum_into(s, s->asks, TR_SUM_ASKED));
    if (tr_is_none(r.seed))
        TR_TRY(tr_model_loss_seed(s->g, &s->batch, tr_shape_elems(tr_shape_of(s->g, r.loss)),
                                  &r.seed));
    TR_TRY(tr_backward(s->g, r.loss, r.seed, adds));
    return tr_program_end(s->g);
}

/* Where gradients are sharded, every micro-batch has its own reductions. */
static tr_status_t programs_add_reductions(tr_session_t *s, bool adds) {
    tr_reductions_t how = {.overlap = s->parallel.overlap, .adds = adds};
    TR_TRY(tr_program_add_reductions(s->g, s->last, &how));
    if (!tr_gradients_are_sharded(s->g)) return TR_OK;
    how.continues = true;
    if (s->micro >= 0) TR_TRY(tr_program_add_reductions(s->g, s->micro, &how));
    how.adds = false;
    return s->first >= 0 ? tr_program_add_reductions(s->g, s->first, &how) : TR_OK;
}

static tr_status_t programs_build_update(tr_session_t *s) {
    tr_tensor_t counts;
    TR_TRY(tr_program_begin(s->g, "update", TR_PLAIN, &s->update));
    TR_TRY(tr_slice(s->g, s->sums, TR_SUM_TERMS, 2, &counts));
    TR_TRY(tr_optimizer_build(s->g, &s->optim, counts,
                              (double)(s->order.batch_size * s->sample_terms)));
    TR_TRY(tr_update_moments(s->g, (int)s->slots));
    TR_TRY(tr_program_end(s->g));
    return tr_program_add_gathers(s->g, s->update, tr_graph_find(s->g, TR_OPTIM_SQUARES));
}

/* Values per sample of a regression, for its scores; 0: the model does something else. */
static int64_t programs_targets(const tr_session_t *s) {
    const int y = tr_field_find(&s->info, "y");
    if (tr_session_predicts(s) || y < 0 || s->info.classes > 0 || tr_is_none(s->result.output))
        return 0;
    const tr_shape_t *shape = tr_shape_of(s->g, s->result.output);
    if (s->info.is_dense) return shape->dim[shape->ndim - 1];
    const int64_t values = tr_shape_elems(&s->info.field[y].shape);
    const bool is_f32 =
        s->info.field[y].dtype == TR_F32 && tr_tensor_info(s->g, s->result.output)->dtype == TR_F32;
    return is_f32 && shape->ndim == 2 && shape->dim[1] == values ? values : 0;
}

static tr_status_t build_small_eval(tr_session_t *s, int64_t samples, tr_small_eval_t *out) {
    tr_model_result_t r = {0};
    char name[32];
    snprintf(name, sizeof name, "eval%lld", (long long)samples);
    out->samples = samples;
    TR_TRY(tr_program_begin(s->g, name, TR_EVAL, &out->program));
    TR_TRY(tr_zero_extra_reductions(s->g));
    TR_TRY(build_model(s, samples, &r));
    out->output = r.output;
    TR_TRY(tr_preprocess_restore(s->g, s->preprocess, &out->output));
    TR_TRY(tr_keep(s->g, out->output));
    return tr_program_end(s->g);
}

/* After the small ones: s->batch is then of whole inputs. */
static tr_status_t build_eval(tr_session_t *s) {
    TR_TRY(tr_program_begin(s->g, "eval", TR_EVAL, &s->eval));
    TR_TRY(tr_zero_extra_reductions(s->g));
    TR_TRY(build_model(s, s->order.micro_batch, &s->result));
    TR_TRY(tr_preprocess_restore(s->g, s->preprocess, &s->result.output));
    s->targets = programs_targets(s);
    const tr_tensor_t kept[] = {s->result.output, s->result.loss, s->result.correct,
                                s->result.scores};
    for (size_t i = 0; i < TR_COUNT(kept); i++)
        if (!tr_is_none(kept[i])) TR_TRY(tr_keep(s->g, kept[i]));
    return tr_program_end(s->g);
}

tr_status_t tr_programs_build(tr_session_t *s) {
    const bool tree = s->parallel.reproducible, adds = s->slot_count > 1 && !tree,
               measures = s->params.purpose == TR_SESSION_MEASURE;
    s->first = s->micro = s->last = s->update = s->eval = -1;
    s->loss_scale = TR_NONE;
    if (tr_session_trains(s) && s->main.precision == TR_PRECISION_FP16)
        TR_TRY(tr_loss_scale(s->g, &s->loss_scale));
    if (tr_session_trains(s)) {
        TR_TRY(tr_input(s->g, "asks", TR_F32, &TR_SHAPE(1), &s->asks));
        TR_TRY(build_training(s, "last", adds, &s->last));
        TR_TRY(programs_check_moments(s));
        if (adds) TR_TRY(build_training(s, "first", false, &s->first));
        if (adds && s->slot_count > 2) TR_TRY(build_training(s, "micro", true, &s->micro));
    }
    s->small_count = 0;
    const bool wants_small = tr_session_predicts(s) && s->params.inputs && s->device->alone;
    for (int64_t samples = 1; wants_small && samples < s->order.micro_batch; samples *= 2)
        if (s->small_count < TR_SMALL_EVALS)
            TR_TRY(build_small_eval(s, samples, &s->small[s->small_count++]));
    if (!measures) TR_TRY(build_eval(s));
    if (!tr_session_trains(s)) return TR_OK;
    if (!tree && (s->params.size > 1 || measures)) TR_TRY(programs_add_reductions(s, adds));
    TR_TRY(programs_build_update(s));
    TR_TRY(tr_ema_declare(s));
    if (tree)
        TR_TRY(tr_reduce_tree_create(s->g, s->slots, s->params.rank, s->params.size, &s->tree));
    return TR_OK;
}
