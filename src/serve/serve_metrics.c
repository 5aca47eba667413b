/* Counts what the server does. */
#include "serve_metrics.h"

#include "monitor/prometheus.h"
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

typedef struct {
    tr_str_t *out;
    const char *model, *name;
} family_t;

static family_t family_begin(tr_str_t *out, const char *model, const char *name, const char *type,
                             const char *help) {
    tr_str_printf(out, "# HELP trainer_%s %s\n# TYPE trainer_%s %s\n", name, help, name, type);
    return (family_t){out, model, name};
}

/* suffix "_bucket"; label ",le=\"1\"". */
static void family_sample(const family_t *f, const char *suffix, const char *label, double value) {
    tr_str_printf(f->out, "trainer_%s%s{", f->name, suffix);
    tr_prometheus_label(f->out, "model_name", f->model);
    tr_str_printf(f->out, "%s} %.15g\n", label, value);
}

static void metrics_number(const tr_serve_metrics_t *m, tr_str_t *out, const char *name,
                           const char *type, const char *help, double value) {
    const family_t f = family_begin(out, m->model, name, type, help);
    family_sample(&f, "", "", value);
}

static void metrics_histogram(const tr_serve_metrics_t *m, tr_str_t *out, int time) {
    const tr_histogram_t *h = &m->time[time];
    const family_t f = family_begin(out, m->model, times[time].name, "histogram", times[time].help);
    char label[32];
    for (int i = 0; i < TR_TIME_BUCKETS; i++) {
        tr_snprintf(label, sizeof label, ",le=\"%g\"", BUCKET_SEC(i));
        family_sample(&f, "_bucket", label, (double)h->below[i]);
    }
    family_sample(&f, "_bucket", ",le=\"+Inf\"", (double)h->below[TR_TIME_BUCKETS]);
    family_sample(&f, "_sum", "", h->sum);
    family_sample(&f, "_count", "", (double)h->below[TR_TIME_BUCKETS]);
}

void tr_serve_metrics_compose(tr_serve_metrics_t *m, const tr_serve_load_t *load, tr_str_t *out) {
    char label[64];
    pthread_mutex_lock(&m->lock);
    metrics_number(m, out, "num_requests_running", "gauge", "Requests that have a slot.",
                   (double)load->running);
    metrics_number(m, out, "num_requests_waiting", "gauge", "Requests that wait for a slot.",
                   (double)load->waiting);
    metrics_number(m, out, "kv_cache_usage_perc", "gauge",
                   "Share of the caches that holds tokens, 0 to 1.", load->cache_share);
    metrics_number(m, out, "prompt_tokens_total", "counter",
                   "Tokens of prompts, counted for each of the n texts.", (double)m->prompt_tokens);
    metrics_number(m, out, "generation_tokens_total", "counter", "Generated tokens.",
                   (double)m->generated_tokens);
    metrics_number(m, out, "predicted_samples_total", "counter", "Samples of /predict.",
                   (double)m->samples);
    metrics_number(
        m, out, "predicted_batches_total", "counter",
        "Times that samples of /predict were computed, those of several requests together.",
        (double)m->batches);
    metrics_number(m, out, "requests_refused_total", "counter",
                   "Requests that were refused with 429 or 503.", (double)m->refused);
    const family_t f = family_begin(out, m->model, "request_success_total", "counter",
                                    "Requests that ended, by reason; predictions end with stop.");
    for (int i = 0; i < TR_ENDED_COUNT; i++) {
        tr_snprintf(label, sizeof label, ",finished_reason=\"%s\"", reasons[i]);
        family_sample(&f, "", label, (double)m->ended[i]);
    }
    for (int i = 0; i < TR_TIME_COUNT; i++) metrics_histogram(m, out, i);
    pthread_mutex_unlock(&m->lock);
}
