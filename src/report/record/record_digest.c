/* What the lines of training say together. */
#include "record_int.h"
#include "base/stats.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { STEP, EPOCH, SESSION, UNIX, RATE, STEP_MS, P95, DATA, COMM, CHECKPOINT, SLOWEST, HOST };
static const char *const digest_keys[TR_DIGEST_KEYS] = {
    [STEP] = "step",
    [EPOCH] = "epoch",
    [SESSION] = "session",
    [UNIX] = "unix_time",
    [RATE] = "samples_per_sec",
    [STEP_MS] = "step_ms",
    [P95] = "step_ms_p95",
    [DATA] = "data_stall",
    [COMM] = "comm_exposed",
    [CHECKPOINT] = "checkpoint",
    [SLOWEST] = "slowest_rank",
    [HOST] = "slowest_host",
    /* fractions of all ranks */
    [TR_DIGEST_RANKS] = "compute_min",
    "compute_max",
    "data_stall_min",
    "data_stall_max",
    "wait_min",
    "wait_max",
};
enum { WAIT_MIN = TR_DIGEST_RANKS + 4 };

void tr_digest_ask(tr_rows_t *rows) {
    for (int i = 0; i < TR_DIGEST_KEYS; i++)
        tr_rows_ask(rows, digest_keys[i], i == HOST ? TR_VALUE_TEXT : TR_VALUE_NUMBER);
}

static double or_zero(double value) {
    return isfinite(value) ? value : 0;
}

/* -- lines -------------------------------------------------------------------------------------- */

/* Adds the line that waits, which covers `steps` steps. */
static tr_status_t digest_add_steps(tr_digest_t *t, double steps) {
    const double rate = t->line[RATE], step_ms = t->line[STEP_MS];
    if (!(rate > 0) || !(steps > 0) || !(t->batch > 0)) return TR_OK;
    const double sec = steps * t->batch / rate, data = or_zero(t->line[DATA]) * sec,
                 comm = or_zero(t->line[COMM]) * sec,
                 checkpoint = or_zero(t->line[CHECKPOINT]) * sec;
    t->steps += steps;
    t->sec += sec;
    t->samples += steps * t->batch;
    t->data += data;
    t->comm += comm;
    t->checkpoint += checkpoint;
    /* In the file, the fraction `compute` is the rest, including checkpoints. */
    t->compute += fmax(0, sec - data - comm - checkpoint);
    t->window_sec += sec;
    /* Older files have no medians; uses the mean of the line. */
    TR_TRY(tr_vec_push(&t->step_ms, step_ms > 0 ? step_ms : 1000 * sec / steps));
    return tr_vec_push(&t->p95, t->line[P95]);
}

/* Adds the fractions of all ranks, and counts for the rank that is the slowest. */
static void digest_add_ranks(tr_digest_t *t) {
    char key[32];
    t->ranks_sec += t->window_sec;
    for (int k = 0; k < 6; k++)
        t->over_ranks[k] += or_zero(t->line[TR_DIGEST_RANKS + k]) * t->window_sec;
    if (isnan(t->line[SLOWEST])) return;
    const int rank = (int)t->line[SLOWEST];
    if (!t->named) t->named = json_object();
    tr_snprintf(key, sizeof key, "%d", rank);
    const int seen = 1 + (int)json_integer_value(json_object_get(t->named, key));
    json_object_set_new(t->named, key, json_integer(seen));
    t->named_lines++;
    if (seen <= t->named_most) return;
    t->named_most = seen;
    t->slowest = rank;
    t->host = t->line[HOST];
}

/* Adds the line that waits. The first line of a session is its warm-up if others follow. The
 * fractions of all ranks cover the time since the last line that has them, and rank 0 receives them
 * with a delay, so that line must not be the warm-up. */
static tr_status_t digest_close_line(tr_digest_t *t, const double *next) {
    if (!t->has_line) return TR_OK;
    const bool is_warm_up =
        t->begins_session && next && or_zero(next[SESSION]) == or_zero(t->line[SESSION]);
    if (!is_warm_up) TR_TRY(digest_add_steps(t, t->line[STEP] - t->last_step));
    if (t->begins_session) t->follows_warm_up = is_warm_up;
    if (isfinite(t->line[WAIT_MIN])) {
        if (!t->follows_warm_up) digest_add_ranks(t);
        t->follows_warm_up = is_warm_up;
        t->window_sec = 0;
    }
    t->last_step = t->line[STEP];
    return TR_OK;
}

/* The newest line of a session ends it. Sessions follow each other. */
static tr_status_t digest_note_session(tr_digest_t *t, double session, double unix_sec) {
    const tr_session_end_t end = {session, unix_sec};
    if (isnan(session)) return TR_OK;
    for (size_t i = t->ends.count; i-- > 0;)
        if (t->ends.data[i].session == session) {
            t->ends.data[i] = end;
            return TR_OK;
        }
    return tr_vec_push(&t->ends, end);
}

tr_status_t tr_digest_add(tr_digest_t *t, const tr_rows_t *rows, const double *row) {
    double line[TR_DIGEST_KEYS];
    for (int i = 0; i < TR_DIGEST_KEYS; i++) {
        if (!t->has_line) t->column[i] = tr_rows_key(rows, digest_keys[i]);
        line[i] = row[t->column[i]];
    }
    TR_TRY(digest_close_line(t, line));
    t->begins_session = !t->has_line || or_zero(line[SESSION]) != or_zero(t->line[SESSION]);
    t->has_line = true;
    memcpy(t->line, line, sizeof line);
    return digest_note_session(t, line[SESSION], line[UNIX]);
}

/* -- what the record says ----------------------------------------------------------------------- */

double tr_median(double *values, size_t count) {
    size_t known = 0;
    for (size_t i = 0; i < count; i++)
        if (isfinite(values[i])) values[known++] = values[i];
    if (known == 0) return NAN;
    tr_sort(values, (int64_t)known);
    return known % 2 ? values[known / 2] : (values[known / 2 - 1] + values[known / 2]) / 2;
}

/* A folder without lines, for example of a replay, has the means in its summary. */
static tr_step_times_t times_of_summary(const json_t *s, int64_t batch) {
    const double rate = tr_json_number(s, "samples_per_sec"),
                 step_ms = tr_json_number(s, "step_ms"),
                 mean = rate > 0 && batch > 0 ? 1000 * (double)batch / rate : NAN,
                 step = step_ms > 0 ? step_ms : mean;
    tr_step_times_t t = {.step = step,
                         .p95 = tr_json_number(s, "step_ms_p95"),
                         .samples_per_sec = rate,
                         .comm_exposed = tr_json_number(s, "comm_exposed") * step,
                         .data_stall = tr_json_number(s, "data_stall") * step,
                         .checkpoint = or_zero(tr_json_number(s, "checkpoint")) * step};
    t.compute = t.step - t.comm_exposed - t.data_stall - t.checkpoint;
    return t;
}

tr_status_t tr_digest_finish(tr_digest_t *t, tr_record_t *r) {
    double ms[6];
    TR_TRY(digest_close_line(t, NULL));
    r->last_step = t->has_line ? t->line[STEP] : NAN;
    r->last_epoch = t->has_line ? t->line[EPOCH] : NAN;
    r->session_ends.data = t->ends.data; /* moved */
    r->session_ends.count = t->ends.count;
    t->ends.data = NULL;
    for (int i = 0; i < 6; i++)
        ms[i] =
            t->ranks_sec > 0 ? 1000 * t->over_ranks[i] / t->ranks_sec * (t->sec / t->steps) : NAN;
    r->spread = (tr_spread_t){.compute_min = ms[0],
                              .compute_max = ms[1],
                              .data_stall_min = ms[2],
                              .data_stall_max = ms[3],
                              .wait_min = ms[4],
                              .wait_max = ms[5]};
    if (t->step_ms.count > 0)
        r->times = (tr_step_times_t){.step = tr_median(t->step_ms.data, t->step_ms.count),
                                     .p95 = tr_median(t->p95.data, t->p95.count),
                                     .compute = 1000 * t->compute / t->steps,
                                     .comm_exposed = 1000 * t->comm / t->steps,
                                     .data_stall = 1000 * t->data / t->steps,
                                     .checkpoint = 1000 * t->checkpoint / t->steps,
                                     .samples_per_sec = t->samples / t->sec};
    else
        r->times = times_of_summary(r->summary, r->batch);
    r->slowest = (tr_slowest_t){.rank = -1};
    if (t->named_lines == 0) return TR_OK;
    const char *host = tr_rows_text(&r->training, t->host);
    r->slowest =
        (tr_slowest_t){.rank = t->slowest, .lines = t->named_most, .of_lines = t->named_lines};
    tr_snprintf(r->slowest.host, sizeof r->slowest.host, "%s", host ? host : "");
    return TR_OK;
}

void tr_digest_free(tr_digest_t *t) {
    tr_vec_free(&t->ends);
    tr_vec_free(&t->step_ms);
    tr_vec_free(&t->p95);
    json_decref(t->named);
    *t = (tr_digest_t){0};
}
