/* What a run shows of itself while it trains. */
#include "board.h"

#include "base/file.h"
#include "base/mem.h"
#include "prometheus.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tr_board {
    char *dir, *job;
    char host[64];
    bool keeps_curves;
    pthread_mutex_t lock; /* guards what follows */
    tr_prometheus_t prometheus;
    tr_record_t record; /* lines in it are never changed: views share them */
    json_t *newest;     /* line of training; NULL: none */
    int64_t seen;       /* lines of training in this start */
};

tr_status_t tr_board_open(const char *dir, int64_t steps, bool keeps_curves, tr_board_t **out) {
    const char *job = getenv("SLURM_JOB_ID");
    tr_board_t *b = NULL;
    tr_status_t status;
    TR_TRY(tr_alloc(sizeof *b, "what the run shows", &b));
    pthread_mutex_init(&b->lock, NULL);
    b->keeps_curves = keeps_curves;
    gethostname(b->host, sizeof b->host - 1);
    TR_TRY_GOTO(tr_strdup(dir, &b->dir), failed);
    for (size_t n = strlen(b->dir); n > 1 && b->dir[n - 1] == '/';) b->dir[--n] = '\0';
    TR_TRY_GOTO(tr_strdup(job ? job : "", &b->job), failed);
    b->prometheus = tr_prometheus_new(tr_file_name(b->dir), b->job, b->host);
    b->prometheus.steps = (double)steps;
    b->record = (tr_record_t){.path = b->dir,
                              .every = 1,
                              .steps = steps,
                              .verdict = "running",
                              .code = -1,
                              .slowest.rank = -1,
                              .config = json_object(),
                              .summary = json_object(),
                              .training = json_array(),
                              .validation = json_array(),
                              .sessions = json_array()};
    TR_TRY_GOTO(tr_strdup(tr_file_name(b->dir), &b->record.name), failed);
    *out = b;
    return TR_OK;
failed:
    tr_board_close(&b);
    return status;
}

void tr_board_close(tr_board_t **closing) {
    tr_board_t *b = *closing;
    if (!b) return;
    tr_record_free(&b->record);
    json_decref(b->newest);
    pthread_mutex_destroy(&b->lock);
    tr_free(&b->dir);
    tr_free(&b->job);
    tr_free(closing);
}

void tr_board_describe(tr_board_t *b, json_t *facts) {
    pthread_mutex_lock(&b->lock);
    json_decref(b->record.summary);
    b->record.summary = facts;
    b->record.ranks = json_integer_value(json_object_get(facts, "ranks"));
    b->record.nodes = json_integer_value(json_object_get(facts, "hosts"));
    b->record.batch = json_integer_value(json_object_get(facts, "batch_size"));
    b->record.micro_batch = json_integer_value(json_object_get(facts, "micro_batch"));
    pthread_mutex_unlock(&b->lock);
}

/* What an earlier start left, except for its outcome. */
tr_status_t tr_board_read(tr_board_t *b) {
    tr_record_t earlier;
    if (!b->keeps_curves) return TR_OK;
    TR_TRY(tr_record_read(b->dir, TR_LINES_SPREAD, &earlier));
    pthread_mutex_lock(&b->lock);
    tr_record_t *r = &b->record, former = *r;
    r->name = earlier.name;
    r->config = earlier.config;
    r->training = earlier.training;
    r->validation = earlier.validation;
    r->sessions = earlier.sessions;
    r->every = earlier.every;
    earlier.name = former.name;
    earlier.config = former.config;
    earlier.training = former.training;
    earlier.validation = former.validation;
    earlier.sessions = former.sessions;
    pthread_mutex_unlock(&b->lock);
    tr_record_free(&earlier);
    return TR_OK;
}

/* Halves an array that is full. The best validation stays. */
static bool lines_thin(json_t **lines) {
    const size_t count = json_array_size(*lines);
    size_t best = count;
    json_t *half;
    if (count < 2 * TR_SPREAD_LINES || !(half = json_array())) return false;
    while (best-- > 0 && !json_is_true(json_object_get(json_array_get(*lines, best), "best"))) {
    }
    for (size_t i = 0; i < count; i++)
        if (i % 2 == 0 || i == best) json_array_append(half, json_array_get(*lines, i));
    json_decref(*lines);
    *lines = half;
    return true;
}

void tr_board_add(tr_board_t *b, const json_t *line, int64_t lost) {
    json_t *copy = b->keeps_curves ? json_deep_copy(line) : NULL;
    tr_record_t *r = &b->record;
    pthread_mutex_lock(&b->lock);
    tr_prometheus_take(&b->prometheus, line);
    b->prometheus.lines_lost = lost;
    if (copy && json_object_get(line, "valid_loss")) {
        json_array_append(r->validation, copy);
        (void)lines_thin(&r->validation);
    } else if (copy) {
        json_decref(b->newest);
        b->newest = json_incref(copy);
        if (b->seen++ % r->every == 0) json_array_append(r->training, copy);
        if (lines_thin(&r->training)) r->every *= 2;
    }
    pthread_mutex_unlock(&b->lock);
    json_decref(copy);
}

void tr_board_metrics(tr_board_t *b, tr_str_t *out) {
    pthread_mutex_lock(&b->lock);
    const tr_prometheus_t values = b->prometheus;
    pthread_mutex_unlock(&b->lock);
    tr_prometheus_compose(&values, out);
}

const char *tr_board_run(const tr_board_t *b) {
    return b->prometheus.run;
}

const char *tr_board_job(const tr_board_t *b) {
    return b->job;
}

int64_t tr_board_lost(tr_board_t *b) {
    pthread_mutex_lock(&b->lock);
    const int64_t lost = b->prometheus.lines_lost;
    pthread_mutex_unlock(&b->lock);
    return lost;
}

tr_status_t tr_board_view(tr_board_t *b, tr_record_t *out) {
    tr_status_t status;
    pthread_mutex_lock(&b->lock);
    *out = b->record;
    out->name = NULL;
    out->config = json_incref(b->record.config);
    out->summary = json_incref(b->record.summary);
    out->training = json_copy(b->record.training);
    out->validation = json_copy(b->record.validation);
    out->sessions = json_incref(b->record.sessions);
    const size_t count = json_array_size(out->training);
    if (b->newest && json_array_get(out->training, count - 1) != b->newest)
        json_array_append(out->training, b->newest);
    status = tr_strdup(b->record.name, &out->name);
    pthread_mutex_unlock(&b->lock);
    if (status == TR_OK) status = tr_strdup("", &out->reason);
    if (status == TR_OK) status = tr_record_take_times(out);
    if (status != TR_OK) tr_record_free(out);
    return status;
}
