/* Reads metrics.jsonl and sessions.jsonl. */
#include "base/file.h"
#include "record_int.h"
#include "base/mem.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- reading ----------------------------------------------------------------------------------- */

/* What is kept of a validation in any case. */
static const tr_key_t validation_keys[] = {
    {"step", TR_VALUE_NUMBER},           {"valid_loss", TR_VALUE_NUMBER},
    {"valid_accuracy", TR_VALUE_NUMBER}, {"valid_r2", TR_VALUE_NUMBER},
    {"valid_iou", TR_VALUE_NUMBER},      {"valid_perplexity", TR_VALUE_NUMBER},
    {"begins_anew", TR_VALUE_FLAG},      {"best", TR_VALUE_FLAG},
};

void tr_ask(tr_asked_t *asked, const char *key) {
    for (size_t i = 0; i < TR_ASKED; i++) {
        if (asked->key[i] && strcmp(asked->key[i], key) != 0) continue;
        asked->key[i] = key;
        return;
    }
}

void tr_record_ask(tr_record_t *r, const tr_asked_t *asked) {
    tr_rows_ask(&r->training, "step", TR_VALUE_NUMBER);
    for (size_t i = 0; i < TR_ASKED && asked->key[i]; i++)
        tr_rows_ask(&r->training, asked->key[i], TR_VALUE_NUMBER);
    if (asked->by) tr_rows_ask(&r->training, asked->by, TR_VALUE_NUMBER);
    const size_t width = r->training.width;
    tr_digest_ask(&r->training);
    if (asked->lines == TR_LINES_ALL) r->training.width = width;
    for (size_t i = 0; i < TR_COUNT(validation_keys); i++)
        tr_rows_ask(&r->validation, validation_keys[i].name, validation_keys[i].kind);
    if (asked->by) tr_rows_ask(&r->validation, asked->by, TR_VALUE_NUMBER);
}

/* Sees the lines of training and the validations. */
typedef struct {
    tr_record_t *record;
    tr_lines_t lines;
    tr_digest_t digest;
    bool has_first[2];
    tr_str_t last[2]; /* of lines that are spread */
} seer_t;

static tr_status_t seer_take(void *self, tr_line_kind_t kind, const char *text, size_t bytes,
                             const double *row) {
    seer_t *s = self;
    const bool is_validation = kind == TR_LINE_VALIDATION;
    if (!s->has_first[is_validation]) {
        json_t *line = json_loadb(text, bytes, 0, NULL);
        json_object_update(s->record->first, line);
        json_decref(line);
        s->has_first[is_validation] = true;
    }
    if (s->lines == TR_LINES_SPREAD) {
        s->last[is_validation].length = 0;
        tr_str_append_bytes(&s->last[is_validation], text, bytes);
    }
    if (is_validation || s->lines != TR_LINES_ALL) return TR_OK;
    return tr_digest_add(&s->digest, &s->record->training, row);
}

static json_t *seer_last(seer_t *s, bool is_validation) {
    tr_str_t *last = &s->last[is_validation];
    json_t *line = last->text ? json_loadb(last->text, last->length, 0, NULL) : NULL;
    tr_str_free(last);
    return line;
}

tr_status_t tr_record_digest(tr_record_t *r) {
    tr_digest_t digest = {.batch = (double)r->batch};
    const tr_rows_t *rows = &r->training;
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < rows->count && status == TR_OK; i++)
        status = tr_digest_add(&digest, rows, rows->values + i * rows->width);
    if (status == TR_OK) status = tr_digest_finish(&digest, r);
    tr_digest_free(&digest);
    return status;
}

static tr_status_t record_read_metrics(tr_record_t *r, const tr_asked_t *asked) {
    seer_t seer = {.record = r, .lines = asked->lines, .digest.batch = (double)r->batch};
    const bool takes_all = asked->lines == TR_LINES_ALL;
    const tr_metrics_lines_t how = {.lines = asked->lines,
                                    .most = asked->lines == TR_LINES_NEWEST ? TR_NEWEST_LINES
                                                                            : TR_SPREAD_LINES,
                                    .see = seer_take,
                                    .self = &seer};
    char path[4096];
    r->first = json_object();
    tr_record_ask(r, asked);
    TR_TRY(tr_path_join(r->path, "metrics.jsonl", path));
    tr_status_t status = tr_metrics_lines_read(path, &how, &r->training, &r->validation);
    if (status == TR_OK && takes_all) status = tr_digest_finish(&seer.digest, r);
    if (status == TR_OK && !takes_all) status = tr_record_digest(r);
    r->last_line = seer_last(&seer, false);
    r->last_validation = seer_last(&seer, true);
    tr_digest_free(&seer.digest);
    return status;
}

/* A killed process may have left a partial line. */
static bool record_take_session(void *self, const char *text, size_t bytes) {
    tr_record_t *r = self;
    json_t *line = json_loadb(text, bytes, 0, NULL);
    const char *event = json_string_value(json_object_get(line, "event"));
    const size_t count = json_array_size(r->sessions);
    json_t *number = json_object_get(line, "session"), *last;
    if (!event || !json_is_integer(number)) {
        json_decref(line);
        return true;
    }
    last = json_array_get(r->sessions, count - 1);
    if (!json_equal(json_object_get(last, "session"), number)) {
        last = json_pack("{s:O, s:n, s:n}", "session", number, "start", "end");
        json_array_append_new(r->sessions, last);
    }
    if (strcmp(event, "start") == 0 || strcmp(event, "end") == 0)
        json_object_set(last, event, line);
    json_decref(line);
    return true;
}

tr_status_t tr_record_read_lines(tr_record_t *r, const tr_asked_t *asked) {
    char path[4096];
    TR_TRY(record_read_metrics(r, asked));
    r->sessions = json_array();
    TR_TRY(tr_path_join(r->path, "sessions.jsonl", path));
    return tr_each_line(path, record_take_session, r);
}

/* The mean over the lines of the last session; NaN: none has it. */
static double use_mean(const tr_rows_t *lines, const char *key) {
    const int column = tr_rows_column(lines, key), sessions = tr_rows_column(lines, "session");
    double sum = 0, count = 0;
    for (size_t i = lines->count; i-- > 0;) {
        if (tr_rows_at(lines, i, sessions) < tr_rows_at(lines, lines->count - 1, sessions)) break;
        const double value = tr_rows_at(lines, i, column);
        if (isfinite(value)) sum += value, count++;
    }
    return sum / count;
}

tr_use_t tr_record_use(const tr_record_t *r) {
    tr_use_t use = {.threads = tr_json_number(r->summary, "threads"),
                    .share = tr_json_number(r->summary, "cores"),
                    .used = use_mean(&r->training, "cpu_util"),
                    .waited = use_mean(&r->training, "cpu_wait")};
    if (isnan(use.used)) {
        use.used = tr_json_number(r->summary, "cpu_util");
        use.waited = tr_json_number(r->summary, "cpu_wait");
    }
    return use;
}

double tr_record_shared(const tr_record_t *r) {
    static const double notice = 0.1; /* less is waited for by chance */
    const char *device = json_string_value(json_object_get(r->summary, "device"));
    const tr_use_t use = tr_record_use(r);
    /* Threads that mostly sleep lose less than a thread that is always ready. */
    const double share = use.waited / fmax(1, use.used + use.waited);
    return share > notice && !(device && strcmp(device, "cuda") == 0) ? share : 0;
}

double tr_record_session_end(const tr_record_t *r, double session) {
    for (size_t i = 0; i < r->session_ends.count; i++)
        if (r->session_ends.data[i].session == session) return r->session_ends.data[i].unix_sec;
    return NAN;
}

double tr_record_first_step_sec(const tr_record_t *r, size_t i) {
    const json_t *end = json_object_get(json_array_get(r->sessions, i), "end");
    const double sec = tr_json_number(end, "first_step_sec");
    if (isfinite(sec)) return sec;
    return i + 1 == json_array_size(r->sessions) || i == 0
               ? tr_json_number(r->summary, "first_step_sec")
               : NAN;
}
