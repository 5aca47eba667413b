/* Composes the table of `trainer top`. */
#include "top.h"

#include "newest.h"
#include "run_state.h"
#include "base/clock.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The columns, the less important ones last. */
enum { NAME, STATE, STEP, LOSS, BEST, RATE, STALL, AGE, LEFT, USE, SLOW, JOB, COLUMNS };
static const char *const titles[COLUMNS] = {"run",        "state",     "step",      "loss",
                                            "best valid", "samples/s", "stall",     "last line",
                                            "time left",  "use",       "slow rank", "job"};
#define IS_LEFT(column) ((column) <= STATE || (column) >= SLOW)

enum { CELL = 64, NAME_MOST = 32 };
enum { LATE_SEC = 30, LATE_LINES = 20 }; /* a run is silent if no line has come for both */

typedef struct {
    char cell[COLUMNS][CELL];
    bool has_ended;
    double silent_sec;
} top_row_t;

static void top_number(char *cell, const char *format, double value) {
    if (isfinite(value))
        tr_snprintf(cell, CELL, format, value);
    else
        strcpy(cell, "-");
}

static void top_duration(char cell[CELL], double sec) {
    char text[32];
    tr_snprintf(cell, CELL, "%s", isfinite(sec) ? tr_format_duration(sec, text) : "-");
}

/* Control characters could move the cursor of a terminal. */
static void top_text(char cell[CELL], const char *text, int most) {
    size_t bytes = tr_utf8_bytes(text, CELL - 4);
    int columns = 0;
    for (size_t i = 0; i < bytes; i++) {
        const unsigned char c = (unsigned char)text[i];
        columns += (c & 0xC0) != 0x80;
        if (columns > most) {
            memcpy(cell + i, "..", 3);
            return;
        }
        cell[i] = (char)(c < ' ' || c == 127 ? '?' : c);
    }
    strcpy(cell + bytes, text[bytes] ? ".." : "");
}

static void top_fill(const tr_record_t *r, top_row_t *row) {
    const tr_newest_t n = tr_newest_of(r);
    const tr_run_state_t state = tr_run_state(r);
    const json_t *session = json_array_get(r->sessions, json_array_size(r->sessions) - 1);
    const char *job = json_string_value(json_object_get(json_object_get(session, "start"), "job"));
    char count[32];
    row->has_ended = state.kind != TR_RUN_RUNNING && state.kind != TR_RUN_UNKNOWN &&
                     state.kind != TR_RUN_PENDING;
    row->silent_sec = state.silent_sec;
    top_text(row->cell[NAME], r->name, NAME_MOST);
    top_text(row->cell[STATE], state.text, CELL);
    const double age_sec = tr_clock_unix_sec() - n.unix_sec;
    char duration[32];
    if (state.kind == TR_RUN_RUNNING && age_sec > fmax(LATE_SEC, LATE_LINES * n.line_sec))
        tr_snprintf(row->cell[STATE], CELL, "silent %s", tr_format_duration(age_sec, duration));
    else if (state.kind == TR_RUN_RUNNING && json_array_size(r->sessions) > 1)
        tr_snprintf(row->cell[STATE], CELL, "running, start %zu", json_array_size(r->sessions));
    if (n.step < 0)
        strcpy(row->cell[STEP], "-");
    else if (n.steps > 0)
        tr_snprintf(row->cell[STEP], CELL, "%lld/%lld", (long long)n.step, (long long)n.steps);
    else
        tr_snprintf(row->cell[STEP], CELL, "%lld", (long long)n.step);
    top_number(row->cell[LOSS], "%.4g", n.loss);
    top_number(row->cell[BEST], "%.4g", n.best_loss);
    tr_snprintf(row->cell[RATE], CELL, "%s",
                isfinite(n.samples_per_sec) ? tr_format_count(n.samples_per_sec, count) : "-");
    top_number(row->cell[STALL], "%.1f %%", 100 * n.data_stall);
    top_duration(row->cell[AGE], age_sec);
    top_duration(row->cell[LEFT], row->has_ended ? NAN : n.eta_sec);
    if (isfinite(n.gpu_util))
        top_number(row->cell[USE], "%.0f %% GPU", 100 * n.gpu_util);
    else
        top_number(row->cell[USE], "%.1f cores", n.cpu_util);
    if (n.slow_rank >= 0) {
        char text[CELL];
        tr_snprintf(text, sizeof text, "%.0f %%: %d on %s", 100 * n.slow_share, n.slow_rank,
                    n.slow_host ? n.slow_host : "?");
        top_text(row->cell[SLOW], text, NAME_MOST);
    } else {
        strcpy(row->cell[SLOW], "-");
    }
    top_text(row->cell[JOB], job ? job : "-", NAME_MOST);
}

static int top_compare(const void *a, const void *b) {
    const top_row_t *x = a, *y = b;
    if (x->has_ended != y->has_ended) return x->has_ended - y->has_ended;
    if (x->has_ended && x->silent_sec != y->silent_sec)
        return x->silent_sec > y->silent_sec || isnan(x->silent_sec) ? 1 : -1;
    return strcmp(x->cell[NAME], y->cell[NAME]);
}

static int top_width(const char *text) {
    int columns = 0;
    for (; *text; text++) columns += ((unsigned char)*text & 0xC0) != 0x80;
    return columns;
}

static void top_print_row(const char *(*cell)(const void *row, int column), const void *row,
                          const int *width, int count, tr_str_t *out) {
    for (int c = 0; c < count; c++) {
        const char *text = cell(row, c);
        const int blanks = width[c] - top_width(text);
        tr_str_printf(out, "%s%*s%s", c ? "  " : "", IS_LEFT(c) ? 0 : blanks, "", text);
        if (IS_LEFT(c) && c + 1 < count) tr_str_printf(out, "%*s", blanks, "");
    }
    tr_str_append(out, "\n");
}

static const char *cell_of_titles(const void *row, int column) {
    (void)row;
    return titles[column];
}

static const char *cell_of_row(const void *row, int column) {
    return ((const top_row_t *)row)->cell[column];
}

tr_status_t tr_top(const tr_runs_t *runs, int columns, int rows, tr_str_t *out) {
    const int total = (int)runs->records.count, shown = rows > 0 && rows < total ? rows : total;
    top_row_t *table = NULL;
    int width[COLUMNS], count = 0, used = 0;
    TR_TRY(tr_alloc((size_t)total * sizeof *table, "the table of runs", &table));
    for (int i = 0; i < total; i++) top_fill(&runs->records.data[i], &table[i]);
    qsort(table, (size_t)total, sizeof *table, top_compare);
    for (int c = 0; c < COLUMNS; c++) {
        width[c] = top_width(titles[c]);
        for (int i = 0; i < shown; i++) {
            const int needed = top_width(table[i].cell[c]);
            if (needed > width[c]) width[c] = needed;
        }
        used += width[c] + (c ? 2 : 0);
        if (columns > 0 && used > columns && c > 1) break;
        count++;
    }
    top_print_row(cell_of_titles, NULL, width, count, out);
    for (int i = 0; i < shown; i++) top_print_row(cell_of_row, &table[i], width, count, out);
    if (shown < total) tr_str_printf(out, "and %d more\n", total - shown);
    tr_free(&table);
    return out->status;
}
