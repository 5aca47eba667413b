/*
 * POST /predict: predictions of a model with one row of outputs per sample. One thread, that of
 * tr_predict_run, owns the predictor. Requests that wait together are computed together. Not
 * collective.
 */
#ifndef TR_SERVE_PREDICT_H
#define TR_SERVE_PREDICT_H

#include "http/http.h"
#include "queue.h"
#include "serve_metrics.h"
#include "trainer/infer.h"
#include <jansson.h>

typedef struct tr_prediction tr_prediction_t; /* a request */

typedef struct {
    tr_queue_t queue;
    tr_predictor_t *predictor; /* borrowed */
    const char *model;         /* its name; borrowed */
    tr_serve_metrics_t *metrics;
    pthread_mutex_t parsing; /* JSON takes much more memory than its numbers: one at a time */
    /* [batch of the predictor] the requests that are computed, and their samples and outputs */
    tr_prediction_t **taken;
    int64_t taken_count; /* guarded by the lock of the queue */
    char *x;
    float *output;
} tr_predict_t;

/* The caller sets predictor, model and metrics. TR_ERR_MEMORY; call tr_predict_close also then. */
tr_status_t tr_predict_open(tr_predict_t *p, int64_t waiting);
void tr_predict_close(tr_predict_t *p);
/* Serves until the queue ends. An error is one of the device. */
tr_status_t tr_predict_run(tr_predict_t *p);
tr_serve_load_t tr_predict_load(tr_predict_t *p);

/*
 * Answers a request: {"inputs": one sample, or a list of samples}, as nested arrays of the shape of
 * a sample, or a .npy file. Sets reply->status and its body; a status other than 200: `why` is set
 * instead of the body.
 */
void tr_predict_answer(tr_predict_t *p, const tr_http_request_t *request, tr_http_reply_t *reply,
                       char why[512]);

/* Samples as numbers in host memory. */
typedef struct {
    int64_t count;
    void *x; /* (count, sample shape) of the predictor's type; tr_free */
} tr_samples_t;
/* Reads samples for a predictor. TR_ERR_DATA: a shape, a type or a number does not fit. */
tr_status_t tr_samples_of_json(const tr_predictor_info_t *info, const char *body, size_t bytes,
                               tr_samples_t *out);
/* NumPy's format, version 1 to 3: little-endian numbers in C order. */
tr_status_t tr_samples_of_npy(const tr_predictor_info_t *info, const char *body, size_t bytes,
                              tr_samples_t *out);

#endif
