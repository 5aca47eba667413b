/* Predicts the samples of requests. */
#include "predict.h"

#include "base/clock.h"
#include "base/mem.h"
#include "base/stats.h"
#include "infer/score.h"
#include "json_request.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

struct tr_prediction {
    tr_job_t job; /* first */
    tr_samples_t samples;
    float *output; /* (samples.count, outputs) */
};

tr_status_t tr_predict_open(tr_predict_t *p, int64_t waiting) {
    const tr_predictor_info_t *info = tr_predictor_info(p->predictor);
    const size_t batch = (size_t)info->batch, outputs = batch * (size_t)info->outputs;
    tr_queue_open(&p->queue, 1 + waiting);
    pthread_mutex_init(&p->parsing, NULL);
    TR_TRY(tr_alloc(batch * sizeof(tr_prediction_t *), "requests", &p->taken));
    TR_TRY(tr_alloc(batch * (size_t)info->sample_bytes, "samples", &p->x));
    return tr_alloc(outputs * sizeof *p->output, "predictions", &p->output);
}

void tr_predict_close(tr_predict_t *p) {
    tr_free(&p->taken);
    tr_free(&p->x);
    tr_free(&p->output);
    pthread_mutex_destroy(&p->parsing);
    tr_queue_close(&p->queue);
}

/* -- the serving thread ------------------------------------------------------------------------ */

/* Takes requests in order, as many as fit into a batch, or one that is larger. */
static void predict_take(tr_predict_t *p) {
    const int64_t batch = tr_predictor_info(p->predictor)->batch;
    int64_t samples = 0;
    for (tr_job_t *job = p->queue.first, *next; job; job = next) {
        tr_prediction_t *prediction = (tr_prediction_t *)job;
        next = job->next;
        if (tr_job_is_left(job)) {
            tr_serve_metrics_ended(p->metrics, TR_ENDED_ABORT);
            tr_queue_done(&p->queue, job, TR_CLIENT_LEFT, "the client has left");
            continue;
        }
        samples += prediction->samples.count;
        if (p->taken_count > 0 && samples > batch) return;
        tr_serve_metrics_time(p->metrics, TR_TIME_QUEUE, tr_clock_sec() - job->since_sec);
        p->taken[p->taken_count++] = prediction;
    }
}

static tr_status_t predict_compute(const tr_predict_t *p) {
    const tr_predictor_info_t *info = tr_predictor_info(p->predictor);
    const size_t sample_bytes = (size_t)info->sample_bytes,
                 output_bytes = (size_t)info->outputs * sizeof *p->output;
    size_t at = 0;
    if (p->taken_count == 1)
        return tr_predictor_run(p->predictor, p->taken[0]->samples.x, p->taken[0]->samples.count,
                                p->taken[0]->output);
    for (int64_t i = 0; i < p->taken_count; i++) {
        const tr_samples_t *samples = &p->taken[i]->samples;
        memcpy(p->x + at * sample_bytes, samples->x, (size_t)samples->count * sample_bytes);
        at += (size_t)samples->count;
    }
    TR_TRY(tr_predictor_run(p->predictor, p->x, (int64_t)at, p->output));
    at = 0;
    for (int64_t i = 0; i < p->taken_count; i++) {
        const size_t count = (size_t)p->taken[i]->samples.count;
        memcpy(p->taken[i]->output, p->output + at * (size_t)info->outputs, count * output_bytes);
        at += count;
    }
    return TR_OK;
}

static void predict_finish(tr_predict_t *p) {
    int64_t samples = 0;
    for (int64_t i = 0; i < p->taken_count; i++) {
        tr_job_t *job = &p->taken[i]->job;
        samples += p->taken[i]->samples.count;
        tr_serve_metrics_time(p->metrics, TR_TIME_REQUEST, tr_clock_sec() - job->since_sec);
        tr_serve_metrics_ended(p->metrics, TR_ENDED_STOP);
        tr_queue_done(&p->queue, job, 200, NULL);
    }
    tr_serve_metrics_samples(p->metrics, samples);
    p->taken_count = 0;
}

tr_status_t tr_predict_run(tr_predict_t *p) {
    tr_status_t status = TR_OK;
    pthread_mutex_lock(&p->queue.lock);
    while (tr_queue_wait(&p->queue)) {
        predict_take(p);
        if (p->taken_count == 0) continue;
        pthread_mutex_unlock(&p->queue.lock);
        status = predict_compute(p);
        pthread_mutex_lock(&p->queue.lock);
        if (status != TR_OK) break;
        predict_finish(p);
    }
    p->taken_count = 0; /* after an error they end as the others do */
    for (int64_t i = 0; i < p->queue.count; i++) tr_serve_metrics_ended(p->metrics, TR_ENDED_ABORT);
    tr_queue_end(&p->queue,
                 status == TR_OK ? "the server is shutting down" : tr_error_last()->message);
    pthread_mutex_unlock(&p->queue.lock);
    return status;
}

tr_serve_load_t tr_predict_load(tr_predict_t *p) {
    pthread_mutex_lock(&p->queue.lock);
    const tr_serve_load_t load = {.running = p->taken_count,
                                  .waiting = p->queue.count - p->taken_count};
    pthread_mutex_unlock(&p->queue.lock);
    return load;
}

/* -- the reply --------------------------------------------------------------------------------- */

/* 9 digits are enough for every float32. */
static void reply_row(const float *values, int64_t count, tr_str_t *out) {
    tr_str_append(out, "[");
    for (int64_t i = 0; i < count; i++) {
        tr_str_append(out, i ? ", " : "");
        if (isfinite(values[i]))
            tr_str_printf(out, "%.9g", (double)values[i]);
        else
            tr_str_append(out, "null");
    }
    tr_str_append(out, "]");
}

static void reply_text(const char *text, tr_str_t *out) {
    json_t *string = json_string(text);
    char *quoted = string ? json_dumps(string, JSON_ENCODE_ANY) : NULL;
    tr_str_append(out, quoted ? quoted : "null");
    free(quoted);
    json_decref(string);
}

/* Names and values as the file of `trainer predict` has them. */
static void prediction_compose(const tr_predict_t *p, const tr_prediction_t *prediction,
                               tr_str_t *out) {
    const tr_predictor_info_t *info = tr_predictor_info(p->predictor);
    const int64_t count = prediction->samples.count, width = info->outputs;
    tr_str_append(out, "{\"model\": ");
    reply_text(p->model, out);
    tr_str_append(out, ", \"prediction\": [");
    for (int64_t i = 0; i < count; i++) {
        const float *row = prediction->output + i * width;
        tr_str_append(out, i ? ", " : "");
        if (info->classes > 0)
            tr_str_printf(out, "%lld", (long long)tr_class_of(row, width));
        else
            reply_row(row, width, out);
    }
    tr_str_append(out, "]");
    if (info->classes > 0 && info->class_names) {
        tr_str_append(out, ", \"class\": [");
        for (int64_t i = 0; i < count; i++) {
            const int64_t best = tr_class_of(prediction->output + i * width, width);
            tr_str_append(out, i ? ", " : "");
            reply_text(best >= 0 ? info->class_names[best] : "", out);
        }
        tr_str_append(out, "]");
    }
    if (info->classes > 0) {
        tr_str_append(out, ", \"probability\": [");
        for (int64_t i = 0; i < count; i++) {
            tr_str_append(out, i ? ", " : "");
            reply_row(prediction->output + i * width, width, out);
        }
        tr_str_append(out, "]");
    }
    tr_str_append(out, "}\n");
}

static tr_status_t prediction_read(tr_predict_t *p, const tr_http_request_t *request,
                                   tr_prediction_t *prediction) {
    const tr_predictor_info_t *info = tr_predictor_info(p->predictor);
    tr_status_t status;
    if (tr_http_type_is(request, "application/json")) {
        pthread_mutex_lock(&p->parsing);
        status = tr_samples_of_json(info, request->body, request->body_bytes, &prediction->samples);
        pthread_mutex_unlock(&p->parsing);
    } else {
        status = tr_samples_of_npy(info, request->body, request->body_bytes, &prediction->samples);
    }
    TR_TRY(status);
    return tr_alloc((size_t)(prediction->samples.count * info->outputs) * sizeof(float),
                    "predictions", &prediction->output);
}

void tr_predict_answer(tr_predict_t *p, const tr_http_request_t *request, tr_http_reply_t *reply,
                       char why[512]) {
    tr_prediction_t prediction = {0};
    const tr_status_t status = prediction_read(p, request, &prediction);
    if (status == TR_OK) {
        reply->status = tr_queue_serve(&p->queue, &prediction.job, request->client, why);
    } else {
        reply->status = tr_json_status(status);
        tr_snprintf(why, 512, "%s", tr_error_last()->message);
    }
    reply->type = "application/json";
    if (reply->status == 200) prediction_compose(p, &prediction, &reply->body);
    tr_free(&prediction.samples.x);
    tr_free(&prediction.output);
}
