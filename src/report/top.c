/* Composes the table of `trainer top`. */
#include "top.h"

#include "report/record/newest.h"
#include "report/record/run_state.h"
#include "base/clock.h"
#include "base/table.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { CELL = 64, NAME_MOST = 32 };
enum { LATE_SEC = 30, LATE_LINES = 20 }; /* a run is silent if no line has come for both */

typedef struct {
    char name[CELL], state[CELL], step[CELL], use[CELL], waits[CELL], job[CELL];
    double loss, best_loss, rate, stall, age_sec, left_sec;
    bool has_ended;
    double silent_sec;
} top_row_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(top_row_t, NULL, "run", CHARS, name, .is_left = true),
    TR_COLUMN(top_row_t, NULL, "state", CHARS, state, .is_left = true),
    TR_COLUMN(top_row_t, NULL, "step", CHARS, step, .drop = 1),
    TR_COLUMN(top_row_t, NULL, "loss", REAL, loss, .format = "%.4g", .drop = 2),
    TR_COLUMN(top_row_t, NULL, "best valid", REAL, best_loss, .format = "%.4g", .drop = 3),
    TR_COLUMN(top_row_t, NULL, "samples/s", REAL, rate, .people = tr_format_count, .drop = 4),
    TR_COLUMN(top_row_t, NULL, "stall", REAL, stall, .format = "%.1f %%", .scale = 100, .drop = 5),
    TR_COLUMN(top_row_t, NULL, "last line", REAL, age_sec, .people = tr_format_duration, .drop = 6),
    TR_COLUMN(top_row_t, NULL, "time left", REAL, left_sec, .people = tr_format_duration,
              .drop = 7),
    TR_COLUMN(top_row_t, NULL, "use", CHARS, use, .drop = 8),
    TR_COLUMN(top_row_t, NULL, "waits for", CHARS, waits, .is_left = true, .drop = 9),
    TR_COLUMN(top_row_t, NULL, "job", CHARS, job, .is_left = true, .drop = 10),
};
static const tr_table_t table = TR_TABLE(columns, top_row_t);

/* At most NAME_MOST columns. */
static void top_text(char cell[CELL], const char *text) {
    size_t bytes = tr_utf8_bytes(text, CELL - 4);
    for (size_t i = 0, count = 0; i < bytes; i++) {
        count += ((unsigned char)text[i] & 0xC0) != 0x80;
        if (count > NAME_MOST) bytes = i;
    }
    tr_snprintf(cell, CELL, "%.*s%s", (int)bytes, text, text[bytes] ? ".." : "");
}

static void top_fill(const tr_record_t *r, top_row_t *row) {
    const tr_newest_t n = tr_newest_of(r);
    const tr_use_t use = tr_record_use(r);
    const double shared = tr_record_shared(r);
    const tr_run_state_t state = tr_run_state(r);
    const json_t *session = json_array_get(r->sessions, json_array_size(r->sessions) - 1);
    const char *job = json_string_value(json_object_get(json_object_get(session, "start"), "job"));
    char duration[32];
    *row = (top_row_t){.loss = n.loss,
                       .best_loss = n.best_loss,
                       .rate = n.samples_per_sec,
                       .stall = n.data_stall,
                       .age_sec = tr_clock_unix_sec() - n.unix_sec,
                       .left_sec = n.eta_sec,
                       .has_ended = state.kind != TR_RUN_RUNNING && state.kind != TR_RUN_UNKNOWN &&
                                    state.kind != TR_RUN_PENDING,
                       .silent_sec = state.silent_sec};
    if (row->has_ended) row->left_sec = NAN;
    top_text(row->name, r->name);
    if (state.kind == TR_RUN_RUNNING && row->age_sec > fmax(LATE_SEC, LATE_LINES * n.line_sec))
        tr_snprintf(row->state, CELL, "silent %s", tr_format_duration(row->age_sec, duration));
    else if (state.kind == TR_RUN_RUNNING && json_array_size(r->sessions) > 1)
        tr_snprintf(row->state, CELL, "running, start %zu", json_array_size(r->sessions));
    else
        tr_snprintf(row->state, CELL, "%s", state.text);
    if (n.step >= 0 && n.steps > 0)
        tr_snprintf(row->step, CELL, "%lld/%lld", (long long)n.step, (long long)n.steps);
    else if (n.step >= 0)
        tr_snprintf(row->step, CELL, "%lld", (long long)n.step);
    if (isfinite(n.gpu_util))
        tr_snprintf(row->use, CELL, "%.0f %% GPU", 100 * n.gpu_util);
    else if (isfinite(use.used))
        tr_snprintf(row->use, CELL, "%.1f of %.1f cores", use.used,
                    use.used + (isfinite(use.waited) ? use.waited : 0));
    /* A rank that lacks cores is slow by chance. */
    if (shared > 0) {
        tr_snprintf(row->waits, CELL, "%.0f %%: cores", 100 * shared);
    } else if (n.slow_rank >= 0) {
        char text[CELL];
        tr_snprintf(text, sizeof text, "%.0f %%: rank %d on %s", 100 * n.slow_share, n.slow_rank,
                    n.slow_host ? n.slow_host : "?");
        top_text(row->waits, text);
    }
    top_text(row->job, job ? job : "");
}

static int top_compare(const void *a, const void *b) {
    const top_row_t *x = a, *y = b;
    if (x->has_ended != y->has_ended) return x->has_ended - y->has_ended;
    if (x->has_ended && x->silent_sec != y->silent_sec)
        return x->silent_sec > y->silent_sec || isnan(x->silent_sec) ? 1 : -1;
    return strcmp(x->name, y->name);
}

tr_status_t tr_top(const tr_runs_t *runs, int terminal_columns, int rows, tr_str_t *out) {
    const int total = (int)runs->records.count, shown = rows > 0 && rows < total ? rows : total;
    top_row_t *all = NULL;
    TR_TRY(tr_alloc((size_t)total * sizeof *all, "the table of runs", &all));
    for (int i = 0; i < total; i++) top_fill(&runs->records.data[i], &all[i]);
    qsort(all, (size_t)total, sizeof *all, top_compare);
    tr_table_text(&table, all, (size_t)shown, terminal_columns, out);
    if (shown < total) tr_str_printf(out, "and %d more\n", total - shown);
    tr_free(&all);
    return out->status;
}
