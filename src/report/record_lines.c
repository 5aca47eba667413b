/* Reads metrics.jsonl and sessions.jsonl, and derives the times of a step. */
#include "base/file.h"
#include "record_int.h"
#include "base/mem.h"
#include "base/str.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- reading ----------------------------------------------------------------------------------- */

/* A killed process may have left a partial line. */
static tr_status_t record_each_line(const char *dir, const char *name,
                                    bool (*take)(void *self, const char *text, size_t bytes),
                                    void *self) {
    char path[4096];
    TR_TRY(tr_path_join(dir, name, path));
    return tr_each_line(path, take, self);
}

/* Reads the lines of metrics. JSON is read only of lines that are kept: a long run has 100,000. */
typedef struct {
    tr_record_t *record;
    int64_t training, every,
        skip; /* lines of training: seen; one of `every` is kept, behind `skip` */
} metrics_reader_t;

static bool text_is_validation(const char *text) {
    return strstr(text, "\"valid_loss\"") != NULL;
}

static bool reader_count(void *self, const char *text, size_t bytes) {
    (void)bytes;
    ((metrics_reader_t *)self)->training += !text_is_validation(text);
    return true;
}

static bool reader_take(void *self, const char *text, size_t bytes) {
    metrics_reader_t *reader = self;
    const bool is_validation = text_is_validation(text);
    if (!is_validation) {
        const int64_t i = reader->training++;
        if (i < reader->skip || i % reader->every != 0) return true;
    }
    json_t *line = json_loadb(text, bytes, 0, NULL);
    if (json_is_object(line) && !json_object_get(line, "alert"))
        json_array_append(is_validation ? reader->record->validation : reader->record->training,
                          line);
    json_decref(line);
    return true;
}

static tr_status_t record_read_metrics(tr_record_t *r, tr_lines_t lines) {
    metrics_reader_t reader = {.record = r, .every = 1};
    if (lines != TR_LINES_ALL) {
        TR_TRY(record_each_line(r->path, "metrics.jsonl", reader_count, &reader));
        if (lines == TR_LINES_SPREAD) reader.every = 1 + reader.training / TR_SPREAD_LINES;
        if (lines == TR_LINES_NEWEST) reader.skip = reader.training - TR_NEWEST_LINES;
        reader.training = 0;
    }
    r->every = reader.every;
    return record_each_line(r->path, "metrics.jsonl", reader_take, &reader);
}

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

tr_status_t tr_record_read_lines(tr_record_t *r, tr_lines_t lines) {
    r->training = json_array();
    r->validation = json_array();
    r->sessions = json_array();
    TR_TRY(record_read_metrics(r, lines));
    return record_each_line(r->path, "sessions.jsonl", record_take_session, r);
}

double tr_record_first_step_sec(const tr_record_t *r, size_t i) {
    const json_t *end = json_object_get(json_array_get(r->sessions, i), "end");
    const double sec = tr_json_number(end, "first_step_sec");
    if (isfinite(sec)) return sec;
    return i + 1 == json_array_size(r->sessions) || i == 0
               ? tr_json_number(r->summary, "first_step_sec")
               : NAN;
}

/* -- times ------------------------------------------------------------------------------------- */

typedef struct {
    double steps, sec, samples, compute, comm, data, checkpoint;
    double window_sec;               /* since the last line with fractions of all ranks */
    double ranks_sec, over_ranks[6]; /* seconds of the windows that count */
    double *step_ms, *p95;
    size_t lines;
} sums_t;

static const char *const over_ranks[6] = {"compute_min",    "compute_max", "data_stall_min",
                                          "data_stall_max", "wait_min",    "wait_max"};

static double or_zero(double value) {
    return isfinite(value) ? value : 0;
}

static void sums_add_line(sums_t *s, const json_t *line, double steps, double batch) {
    const double rate = tr_json_number(line, "samples_per_sec"),
                 step_ms = tr_json_number(line, "step_ms");
    if (!(rate > 0) || !(steps > 0) || !(batch > 0)) return;
    const double sec = steps * batch / rate,
                 data = or_zero(tr_json_number(line, "data_stall")) * sec,
                 comm = or_zero(tr_json_number(line, "comm_exposed")) * sec,
                 checkpoint = or_zero(tr_json_number(line, "checkpoint")) * sec;
    s->steps += steps;
    s->sec += sec;
    s->samples += steps * batch;
    s->data += data;
    s->comm += comm;
    s->checkpoint += checkpoint;
    /* In the file, the fraction `compute` is the rest, including checkpoints. */
    s->compute += fmax(0, sec - data - comm - checkpoint);
    /* Older files have no medians; uses the mean of the line. */
    s->step_ms[s->lines] = step_ms > 0 ? step_ms : 1000 * sec / steps;
    s->p95[s->lines++] = tr_json_number(line, "step_ms_p95");
    s->window_sec += sec;
}

static int compare_doubles(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

double tr_median(double *values, size_t count) {
    size_t known = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i])) values[known++] = values[i];
    if (known == 0) return NAN;
    qsort(values, known, sizeof *values, compare_doubles);
    return known % 2 ? values[known / 2] : (values[known / 2 - 1] + values[known / 2]) / 2;
}

static int64_t line_session(const json_t *line) {
    return json_integer_value(json_object_get(line, "session"));
}

/* Whether line i is the first of its session and others of that session follow. */
static bool line_is_warm_up(const json_t *lines, size_t i) {
    const int64_t session = line_session(json_array_get(lines, i));
    const json_t *next = json_array_get(lines, i + 1);
    return (i == 0 || line_session(json_array_get(lines, i - 1)) != session) && next &&
           line_session(next) == session;
}

static bool line_has_shares(const json_t *lines, size_t i) {
    return isfinite(tr_json_number(json_array_get(lines, i), "wait_min"));
}

/* Whether the fractions of all ranks in line i are used. They cover the time since the last line
 * that has them, and rank 0 receives them with a delay, so that line must not be the warm-up. */
static bool line_has_window(const json_t *lines, size_t i) {
    const int64_t session = line_session(json_array_get(lines, i));
    size_t from = i;
    if (!line_has_shares(lines, i)) return false;
    while (from > 0 && line_session(json_array_get(lines, from - 1)) == session)
        if (line_has_shares(lines, --from)) break;
    return !line_is_warm_up(lines, from);
}

static void sums_add_lines(sums_t *s, const tr_record_t *r) {
    const size_t count = json_array_size(r->training);
    double last = 0;
    for (size_t i = 0; i < count; i++) {
        const json_t *line = json_array_get(r->training, i);
        const double step = tr_json_number(line, "step");
        if (!line_is_warm_up(r->training, i)) sums_add_line(s, line, step - last, (double)r->batch);
        if (line_has_window(r->training, i)) {
            s->ranks_sec += s->window_sec;
            for (int k = 0; k < 6; k++)
                s->over_ranks[k] += or_zero(tr_json_number(line, over_ranks[k])) * s->window_sec;
        }
        if (line_has_shares(r->training, i)) s->window_sec = 0;
        last = step;
    }
}

static void record_take_slowest(tr_record_t *r) {
    json_t *counts = json_object(), *line;
    size_t i;
    r->slowest = (tr_slowest_t){.rank = -1};
    json_array_foreach(r->training, i, line) {
        const json_t *rank = json_object_get(line, "slowest_rank");
        const char *host = json_string_value(json_object_get(line, "slowest_host"));
        char key[32];
        if (!json_is_integer(rank) || !line_has_window(r->training, i)) continue;
        tr_snprintf(key, sizeof key, "%d", (int)json_integer_value(rank));
        const int seen = 1 + (int)json_integer_value(json_object_get(counts, key));
        json_object_set_new(counts, key, json_integer(seen));
        r->slowest.of_lines++;
        if (seen <= r->slowest.lines) continue;
        r->slowest.lines = seen;
        r->slowest.rank = (int)json_integer_value(rank);
        tr_snprintf(r->slowest.host, sizeof r->slowest.host, "%s", host ? host : "");
    }
    json_decref(counts);
}

/* A folder without lines, for example of a replay, has the means in its summary. */
static void record_take_summary_times(tr_record_t *r) {
    const json_t *s = r->summary;
    tr_step_times_t *t = &r->times;
    const double rate = tr_json_number(s, "samples_per_sec"),
                 mean = rate > 0 && r->batch > 0 ? 1000 * (double)r->batch / rate : NAN,
                 step = tr_json_number(s, "step_ms");
    t->step = step > 0 ? step : mean;
    t->p95 = tr_json_number(s, "step_ms_p95");
    t->samples_per_sec = rate;
    t->comm_exposed = tr_json_number(s, "comm_exposed") * t->step;
    t->data_stall = tr_json_number(s, "data_stall") * t->step;
    t->checkpoint = or_zero(tr_json_number(s, "checkpoint")) * t->step;
    t->compute = t->step - t->comm_exposed - t->data_stall - t->checkpoint;
}

tr_status_t tr_record_take_times(tr_record_t *r) {
    const size_t bytes = (json_array_size(r->training) + 1) * sizeof(double);
    double ms[6];
    sums_t s = {0};
    tr_status_t status;
    TR_TRY_GOTO(tr_alloc(bytes, "step times", &s.step_ms), done);
    TR_TRY_GOTO(tr_alloc(bytes, "step times", &s.p95), done);
    sums_add_lines(&s, r);
    for (int i = 0; i < 6; i++)
        ms[i] = s.ranks_sec > 0 ? 1000 * s.over_ranks[i] / s.ranks_sec * (s.sec / s.steps) : NAN;
    r->spread = (tr_spread_t){.compute_min = ms[0],
                              .compute_max = ms[1],
                              .data_stall_min = ms[2],
                              .data_stall_max = ms[3],
                              .wait_min = ms[4],
                              .wait_max = ms[5]};
    if (s.lines > 0)
        r->times = (tr_step_times_t){.step = tr_median(s.step_ms, s.lines),
                                     .p95 = tr_median(s.p95, s.lines),
                                     .compute = 1000 * s.compute / s.steps,
                                     .comm_exposed = 1000 * s.comm / s.steps,
                                     .data_stall = 1000 * s.data / s.steps,
                                     .checkpoint = 1000 * s.checkpoint / s.steps,
                                     .samples_per_sec = s.samples / s.sec};
    else
        record_take_summary_times(r);
    record_take_slowest(r);
done:
    tr_free(&s.step_ms);
    tr_free(&s.p95);
    return status;
}
