/* Trained models in an embedding program: scores over a split, and predictions in host memory. */
#include "session/feed.h"
#include "trained.h"
#include "base/mem.h"
#include "trainer/infer.h"

#include <math.h>
#include <string.h>

tr_status_t tr_evaluate(const tr_config_t *config, tr_world_t *world, const char *weights,
                        tr_split_t split, tr_scores_t *out) {
    const tr_trained_params_t params = {
        .weights = weights, .purpose = TR_SESSION_EVALUATE, .split = split};
    tr_trained_t t = {.world = world, .config = config};
    tr_trained_scores_t scores = {0};
    tr_status_t status = tr_trained_open(&params, &t);
    if (status == TR_OK) status = tr_trained_evaluate(&t, split, &scores);
    if (status == TR_OK) {
        const tr_target_score_t none = {NAN, NAN, NAN, NAN, NAN},
                                target = scores.targets ? tr_target_mean(scores.targets) : none;
        *out = (tr_scores_t){.step = t.step,
                             .samples = scores.outcome.terms,
                             .loss = scores.outcome.loss,
                             .accuracy = scores.outcome.accuracy,
                             .topk = scores.outcome.topk,
                             .mse = target.mse,
                             .mae = target.mae,
                             .r2 = target.r2};
    }
    tr_trained_scores_free(&scores);
    tr_trained_close(&t);
    return status;
}

struct tr_predictor {
    tr_trained_t trained;
    tr_predictor_info_t info;
    bool is_classifier;
    tr_batch_t batch; /* in pinned host memory */
    float *output;    /* (batch, outputs) */
};

static tr_status_t predictor_allocate_batch(tr_predictor_t *p) {
    tr_device_t *device = p->trained.s->device;
    const size_t samples = (size_t)p->info.batch;
    void *weight = NULL, *sample_id = NULL;
    p->batch.field_count = p->info.field_count;
    for (int f = 0; f < p->info.field_count; f++) {
        const size_t bytes = samples * (size_t)p->info.field[f].sample_bytes;
        TR_TRY(device->ops->host_alloc(device, bytes, &p->batch.field[f]));
        memset(p->batch.field[f], 0, bytes);
    }
    TR_TRY(device->ops->host_alloc(device, samples * sizeof(int64_t), &sample_id));
    p->batch.sample_id = sample_id;
    TR_TRY(device->ops->host_alloc(device, samples * sizeof(float), &weight));
    p->batch.weight = weight;
    return tr_alloc(samples * (size_t)p->info.outputs * sizeof *p->output, "outputs", &p->output);
}

static tr_status_t predictor_prepare(tr_predictor_t *p) {
    const tr_session_t *s = p->trained.s;
    const tr_shape_t *shape = tr_shape_of(s->g, s->result.output);
    const tr_names_t *names = &s->preprocess->names[TR_NAMES_CLASSES];
    TR_TRY(tr_trained_is_classifier(&p->trained, &p->is_classifier));
    if (shape->ndim != 2)
        return TR_FAIL(TR_ERR_CONFIG,
                       "a predictor requires a model with one row of outputs per sample; "
                       "model.type = %s is not such a model",
                       s->model.type);
    p->info = (tr_predictor_info_t){.dtype = s->info.field[0].dtype,
                                    .shape = s->info.field[0].shape,
                                    .sample_bytes = s->info.field[0].sample_bytes,
                                    .field_count = s->info.field_count,
                                    .field = s->info.field,
                                    .classes = p->is_classifier ? shape->dim[1] : 0,
                                    .outputs = shape->dim[1],
                                    .batch = shape->dim[0],
                                    .step = p->trained.step,
                                    .weights = p->trained.weights_path};
    if (p->is_classifier && names->count == p->info.classes)
        p->info.class_names = (const char *const *)names->name;
    return predictor_allocate_batch(p);
}

tr_status_t tr_predictor_open(const tr_config_t *config, tr_world_t *world, const char *weights,
                              tr_predictor_t **out) {
    const tr_trained_params_t params = {
        .weights = weights, .purpose = TR_SESSION_PREDICT, .from_memory = true};
    tr_predictor_t *p = NULL;
    *out = NULL;
    TR_TRY(tr_alloc(sizeof *p, "predictor", &p));
    p->trained = (tr_trained_t){.world = world, .config = config};
    tr_status_t status = tr_trained_open(&params, &p->trained);
    if (status == TR_OK) status = tr_world_agree(world, predictor_prepare(p));
    if (status != TR_OK) {
        tr_predictor_close(&p);
        return status;
    }
    *out = p;
    return TR_OK;
}

void tr_predictor_close(tr_predictor_t **predictor) {
    tr_predictor_t *p = *predictor;
    if (!p) return;
    tr_device_t *device = p->trained.s ? p->trained.s->device : NULL;
    void *host[] = {p->batch.sample_id, p->batch.weight};
    for (size_t i = 0; device && i < TR_COUNT(host); i++)
        if (host[i]) device->ops->host_free(device, host[i]);
    for (int f = 0; f < p->batch.field_count; f++)
        if (p->batch.field[f]) device->ops->host_free(device, p->batch.field[f]);
    tr_free(&p->output);
    tr_trained_close(&p->trained);
    tr_free(predictor);
}

const tr_predictor_info_t *tr_predictor_info(const tr_predictor_t *predictor) {
    return &predictor->info;
}

const tr_device_t *tr_predictor_device(const tr_predictor_t *predictor) {
    return predictor->trained.s->device;
}

/* Computes the samples in the batch; those after `count` are padding. */
static tr_status_t predictor_run_batch(tr_predictor_t *p, int64_t count) {
    tr_session_t *s = p->trained.s;
    const tr_small_eval_t *small = s->small, *end = small + s->small_count;
    while (small < end && small->samples < count) small++;
    for (int64_t i = 0; i < p->info.batch; i++) {
        p->batch.sample_id[i] = i < count ? i : -1;
        p->batch.weight[i] = i < count;
    }
    TR_TRY(tr_feed_next(s->feed, 0, &p->batch, NULL));
    TR_TRY(tr_program_run(s->g, small < end ? small->program : s->eval, NULL));
    TR_TRY(tr_feed_used(s->feed));
    TR_TRY(tr_tensor_read(s->g, small < end ? small->output : s->result.output, p->output));
    tr_feed_copies_done(s->feed, 0);
    return TR_OK;
}

tr_status_t tr_predictor_run(tr_predictor_t *p, const void *x, int64_t count, float *out) {
    if (p->info.field_count == 1) return tr_predictor_run_fields(p, &x, count, out);
    return TR_FAIL(TR_ERR_CONFIG,
                   "tr_predictor_run: expected a model with one input, but this one has %d ('%s', "
                   "'%s' ...): use tr_predictor_run_fields",
                   p->info.field_count, p->info.field[0].name, p->info.field[1].name);
}

tr_status_t tr_predictor_run_fields(tr_predictor_t *p, const void *const *fields, int64_t count,
                                    float *out) {
    const int64_t width = p->info.outputs;
    for (int64_t first = 0; first < count; first += p->info.batch) {
        const int64_t n = count - first < p->info.batch ? count - first : p->info.batch;
        for (int f = 0; f < p->info.field_count; f++) {
            const int64_t bytes = p->info.field[f].sample_bytes;
            memcpy(p->batch.field[f], (const char *)fields[f] + first * bytes, (size_t)(n * bytes));
        }
        TR_TRY(predictor_run_batch(p, n));
        float *rows = out + first * width;
        memcpy(rows, p->output, (size_t)(n * width) * sizeof *rows);
        for (int64_t i = 0; i < n && p->is_classifier; i++)
            tr_class_probabilities(rows + i * width, width, rows + i * width);
    }
    return TR_OK;
}
