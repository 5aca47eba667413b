/* Predicts the samples of requests. */
#include "predict.h"

#include "base/clock.h"
#include "base/mem.h"
#include "infer/score.h"
#include "json_request.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    tr_job_t job; /* first */
    tr_samples_t samples;
    float *output; /* (samples.count, outputs) */
} prediction_t;

void tr_predict_open(tr_predict_t *p, int64_t waiting) {
    tr_queue_open(&p->queue, 1 + waiting);
    pthread_mutex_init(&p->parsing, NULL);
}

void tr_predict_close(tr_predict_t *p) {
    pthread_mutex_destroy(&p->parsing);
    tr_queue_close(&p->queue);
}

tr_status_t tr_predict_run(tr_predict_t *p) {
    tr_status_t status = TR_OK;
    pthread_mutex_lock(&p->queue.lock);
    while (tr_queue_wait(&p->queue)) {
        prediction_t *prediction = (prediction_t *)p->queue.first;
        tr_job_t *job = &prediction->job;
        if (tr_job_is_left(job)) {
            tr_serve_metrics_ended(p->metrics, TR_ENDED_ABORT);
            tr_queue_done(&p->queue, job, TR_CLIENT_LEFT, "the client has left");
            continue;
        }
        tr_serve_metrics_time(p->metrics, TR_TIME_QUEUE, tr_clock_sec() - job->since_sec);
        pthread_mutex_unlock(&p->queue.lock);
        status = tr_predictor_run(p->predictor, prediction->samples.x, prediction->samples.count,
                                  prediction->output);
        tr_serve_metrics_samples(p->metrics, prediction->samples.count);
        tr_serve_metrics_time(p->metrics, TR_TIME_REQUEST, tr_clock_sec() - job->since_sec);
        pthread_mutex_lock(&p->queue.lock);
        if (status != TR_OK) break;
        tr_serve_metrics_ended(p->metrics, TR_ENDED_STOP);
        tr_queue_done(&p->queue, job, 200, NULL);
    }
    for (int64_t i = 0; i < p->queue.count; i++) tr_serve_metrics_ended(p->metrics, TR_ENDED_ABORT);
    tr_queue_end(&p->queue,
                 status == TR_OK ? "the server is shutting down" : tr_error_last()->message);
    pthread_mutex_unlock(&p->queue.lock);
    return status;
}

tr_serve_load_t tr_predict_load(tr_predict_t *p) {
    pthread_mutex_lock(&p->queue.lock);
    const int64_t count = p->queue.count;
    pthread_mutex_unlock(&p->queue.lock);
    return (tr_serve_load_t){.running = count > 0, .waiting = count > 0 ? count - 1 : 0};
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
static void prediction_compose(const tr_predict_t *p, const prediction_t *prediction,
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
                                   prediction_t *prediction) {
    const tr_predictor_info_t *info = tr_predictor_info(p->predictor);
    tr_status_t status;
    if (strncmp(request->type, "application/json", 16) == 0) {
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
    prediction_t prediction = {0};
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
