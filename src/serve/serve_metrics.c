/* Counts what the server does. */
#include "serve_metrics.h"

#include "base/exposition.h"
#include "base/mem.h"
#include <string.h>

/* Upper ends of the buckets in seconds, powers of two from 1 ms. */
#define BUCKET_SEC(i) (1e-3 * (double)(1 << (i)))

static const struct {
    const char *name, *help;
} times[TR_TIME_COUNT] = {
    {"request_queue_time_seconds", "Time from a request to its first slot."},
    {"time_to_first_token_seconds", "Time from a request to its first token."},
    {"time_per_output_token_seconds", "Time of a token after the first, mean of a text."},
    {"e2e_request_latency_seconds", "Time from a request to its end."},
};
static const char *const reasons[TR_ENDED_COUNT] = {"stop", "length", "abort", "error"};

void tr_serve_metrics_open(tr_serve_metrics_t *m, const char *model) {
    *m = (tr_serve_metrics_t){.model = model};
    pthread_mutex_init(&m->lock, NULL);
}

void tr_serve_metrics_close(tr_serve_metrics_t *m) {
    pthread_mutex_destroy(&m->lock);
}

void tr_serve_metrics_time(tr_serve_metrics_t *m, tr_time_t time, double sec) {
    tr_histogram_t *h = &m->time[time];
    pthread_mutex_lock(&m->lock);
    for (int i = 0; i < TR_TIME_BUCKETS; i++) h->below[i] += sec <= BUCKET_SEC(i);
    h->below[TR_TIME_BUCKETS]++;
    h->sum += sec;
    pthread_mutex_unlock(&m->lock);
}

static void metrics_add(tr_serve_metrics_t *m, uint64_t *counter, int64_t count) {
    pthread_mutex_lock(&m->lock);
    *counter += (uint64_t)count;
    pthread_mutex_unlock(&m->lock);
}

void tr_serve_metrics_tokens(tr_serve_metrics_t *m, int64_t prompt, int64_t generated) {
    metrics_add(m, &m->prompt_tokens, prompt);
    metrics_add(m, &m->generated_tokens, generated);
}

void tr_serve_metrics_samples(tr_serve_metrics_t *m, int64_t count) {
    metrics_add(m, &m->samples, count);
    metrics_add(m, &m->batches, 1);
}

void tr_serve_metrics_ended(tr_serve_metrics_t *m, tr_ended_t how) {
    metrics_add(m, &m->ended[how], 1);
}

void tr_serve_metrics_refused(tr_serve_metrics_t *m) {
    metrics_add(m, &m->refused, 1);
}

/* -- the text ---------------------------------------------------------------------------------- */

static void metrics_histogram(const tr_exposition_t *e, const char *name, const char *help,
                              const tr_histogram_t *h) {
    const double count = (double)h->below[TR_TIME_BUCKETS];
    char end[32];
    tr_exposition_family(e, name, "histogram", help);
    for (int i = 0; i < TR_TIME_BUCKETS; i++) {
        tr_snprintf(end, sizeof end, "%g", BUCKET_SEC(i));
        tr_exposition_sample(e, name, "_bucket", &(tr_label_t){"le", end}, (double)h->below[i]);
    }
    tr_exposition_sample(e, name, "_bucket", &(tr_label_t){"le", "+Inf"}, count);
    tr_exposition_sample(e, name, "_sum", NULL, h->sum);
    tr_exposition_sample(e, name, "_count", NULL, count);
}

void tr_serve_metrics_compose(tr_serve_metrics_t *m, const tr_serve_load_t *load, tr_str_t *out) {
    static const char ended[] = "request_success_total";
    const tr_label_t model = {"model_name", m->model};
    const tr_exposition_t e = {out, &model, 1};
    pthread_mutex_lock(&m->lock);
    const tr_exposed_t numbers[] = {
        {"num_requests_running", "gauge", "Requests that have a slot.", (double)load->running},
        {"num_requests_waiting", "gauge", "Requests that wait for a slot.", (double)load->waiting},
        {"kv_cache_usage_perc", "gauge", "Share of the caches that holds tokens, 0 to 1.",
         load->cache_share},
        {"prompt_tokens_total", "counter", "Tokens of prompts, counted for each of the n texts.",
         (double)m->prompt_tokens},
        {"generation_tokens_total", "counter", "Generated tokens.", (double)m->generated_tokens},
        {"predicted_samples_total", "counter", "Samples of /predict.", (double)m->samples},
        {"predicted_batches_total", "counter",
         "Times that samples of /predict were computed, those of several requests together.",
         (double)m->batches},
        {"requests_refused_total", "counter", "Requests that were refused with 429 or 503.",
         (double)m->refused},
    };
    tr_exposition_numbers(&e, numbers, TR_COUNT(numbers));
    tr_exposition_family(&e, ended, "counter",
                         "Requests that ended, by reason; predictions end with stop.");
    for (int i = 0; i < TR_ENDED_COUNT; i++)
        tr_exposition_sample(&e, ended, "", &(tr_label_t){"finished_reason", reasons[i]},
                             (double)m->ended[i]);
    for (int i = 0; i < TR_TIME_COUNT; i++)
        metrics_histogram(&e, times[i].name, times[i].help, &m->time[i]);
    pthread_mutex_unlock(&m->lock);
}
