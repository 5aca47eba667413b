/*
 * What /metrics shows, in the text format of Prometheus, version 0.0.4. Names after "trainer_" are
 * vLLM's after "vllm:". Any thread may call these functions. Not collective.
 */
#ifndef TR_SERVE_SERVE_METRICS_H
#define TR_SERVE_SERVE_METRICS_H

#include "base/str.h"
#include <pthread.h>

/* How a request ended. */
typedef enum {
    TR_ENDED_STOP,
    TR_ENDED_LENGTH,
    TR_ENDED_ABORT, /* the client left, or the server ended */
    TR_ENDED_ERROR,
    TR_ENDED_COUNT
} tr_ended_t;

typedef enum {
    TR_TIME_QUEUE,       /* from the request to its first slot */
    TR_TIME_FIRST_TOKEN, /* from the request to its first token */
    TR_TIME_TOKEN,       /* of a later token, the mean of a text */
    TR_TIME_REQUEST,
    TR_TIME_COUNT
} tr_time_t;

enum { TR_TIME_BUCKETS = 20 }; /* up to 524 s */
typedef struct {
    uint64_t below[TR_TIME_BUCKETS + 1]; /* the last: of all */
    double sum;
} tr_histogram_t;

typedef struct {
    pthread_mutex_t lock;
    const char *model; /* the label model_name; borrowed */
    uint64_t prompt_tokens, generated_tokens, samples, batches, ended[TR_ENDED_COUNT], refused;
    tr_histogram_t time[TR_TIME_COUNT];
} tr_serve_metrics_t;

/* What the server does now. */
typedef struct {
    int64_t running, waiting; /* requests */
    double cache_share;       /* of the caches of all slots, 0 to 1 */
} tr_serve_load_t;

void tr_serve_metrics_open(tr_serve_metrics_t *m, const char *model);
void tr_serve_metrics_close(tr_serve_metrics_t *m);
void tr_serve_metrics_time(tr_serve_metrics_t *m, tr_time_t time, double sec);
void tr_serve_metrics_tokens(tr_serve_metrics_t *m, int64_t prompt, int64_t generated);
/* Samples that were computed together. */
void tr_serve_metrics_samples(tr_serve_metrics_t *m, int64_t count);
void tr_serve_metrics_ended(tr_serve_metrics_t *m, tr_ended_t how);
void tr_serve_metrics_refused(tr_serve_metrics_t *m); /* with 429 or 503 */
void tr_serve_metrics_compose(tr_serve_metrics_t *m, const tr_serve_load_t *load, tr_str_t *out);

#endif
