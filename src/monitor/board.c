/* What a run shows of itself while it trains. */
#include "board.h"

#include "base/file.h"
#include "base/host.h"
#include "base/mem.h"
#include "prometheus.h"
#include "report/record/newest.h"
#include "report/page/page.h"
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
    tr_record_t record;
    double newest[TR_ROW_KEYS]; /* line of training */
    bool has_newest;            /* and it is not in the record */
};

static const tr_asked_t *board_asked(tr_asked_t *asked) {
    *asked = (tr_asked_t){.lines = TR_LINES_SPREAD};
    tr_page_ask(asked);
    tr_newest_ask(asked);
    return asked;
}

tr_status_t tr_board_open(const char *dir, int64_t steps, bool keeps_curves, tr_board_t **out) {
    const char *job = getenv("SLURM_JOB_ID");
    tr_board_t *b = NULL;
    tr_asked_t asked;
    tr_status_t status;
    TR_TRY(tr_alloc(sizeof *b, "what the run shows", &b));
    pthread_mutex_init(&b->lock, NULL);
    b->keeps_curves = keeps_curves;
    snprintf(b->host, sizeof b->host, "%s", tr_host_name());
    TR_TRY_GOTO(tr_strdup(dir, &b->dir), failed);
    for (size_t n = strlen(b->dir); n > 1 && b->dir[n - 1] == '/';) b->dir[--n] = '\0';
    TR_TRY_GOTO(tr_strdup(job ? job : "", &b->job), failed);
    b->prometheus = tr_prometheus_new(tr_file_name(b->dir), b->job, b->host);
    b->prometheus.steps = (double)steps;
    b->record = (tr_record_t){.path = b->dir,
                              .steps = steps,
                              .verdict = "running",
                              .code = -1,
                              .slowest.rank = -1,
                              .config = json_object(),
                              .summary = json_object(),
                              .sessions = json_array()};
    tr_record_ask(&b->record, board_asked(&asked));
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
    tr_asked_t asked;
    if (!b->keeps_curves) return TR_OK;
    TR_TRY(tr_record_read(b->dir, board_asked(&asked), &earlier));
    pthread_mutex_lock(&b->lock);
    tr_record_t *r = &b->record, former = *r;
    r->name = earlier.name;
    r->config = earlier.config;
    r->training = earlier.training;
    r->validation = earlier.validation;
    r->sessions = earlier.sessions;
    while (tr_rows_thin(&r->validation, TR_SPREAD_LINES)) {
    }
    r->last_line = earlier.last_line;
    r->last_validation = earlier.last_validation;
    earlier.name = former.name;
    earlier.config = former.config;
    earlier.training = former.training;
    earlier.validation = former.validation;
    earlier.sessions = former.sessions;
    earlier.last_line = former.last_line;
    earlier.last_validation = former.last_validation;
    pthread_mutex_unlock(&b->lock);
    tr_record_free(&earlier);
    return TR_OK;
}

static tr_status_t board_add_row(tr_board_t *b, const json_t *line) {
    const bool is_validation = json_object_get(line, "valid_loss");
    tr_rows_t *rows = is_validation ? &b->record.validation : &b->record.training;
    json_t **last = is_validation ? &b->record.last_validation : &b->record.last_line;
    double row[TR_ROW_KEYS];
    json_decref(*last);
    *last = json_deep_copy(line);
    TR_TRY(tr_rows_take_json(rows, line, row));
    const bool is_kept = is_validation || tr_rows_wants(rows);
    if (is_kept) TR_TRY(tr_rows_push(rows, row));
    const bool is_gone = is_kept && tr_rows_thin(rows, TR_SPREAD_LINES);
    if (is_validation) return TR_OK;
    memcpy(b->newest, row, sizeof row);
    b->has_newest = !is_kept || is_gone;
    return TR_OK;
}

void tr_board_add(tr_board_t *b, const json_t *line, int64_t lost) {
    pthread_mutex_lock(&b->lock);
    tr_prometheus_take(&b->prometheus, line);
    b->prometheus.lines_lost = lost;
    if (b->keeps_curves) (void)board_add_row(b, line); /* without memory, the page lacks it */
    pthread_mutex_unlock(&b->lock);
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
    out->training = out->validation = (tr_rows_t){0};
    out->config = json_incref(b->record.config);
    out->summary = json_incref(b->record.summary);
    out->sessions = json_incref(b->record.sessions);
    out->last_line = json_incref(b->record.last_line);
    out->last_validation = json_incref(b->record.last_validation);
    status = tr_strdup(b->record.name, &out->name);
    if (status == TR_OK) status = tr_rows_copy(&b->record.training, &out->training);
    if (status == TR_OK) status = tr_rows_copy(&b->record.validation, &out->validation);
    if (status == TR_OK && b->has_newest) status = tr_rows_push(&out->training, b->newest);
    pthread_mutex_unlock(&b->lock);
    if (status == TR_OK) status = tr_strdup("", &out->reason);
    if (status == TR_OK) status = tr_record_digest(out);
    if (status != TR_OK) tr_record_free(out);
    return status;
}
