/*
 * The progress line: fields in a fixed order. The least important are dropped until the rest fits.
 */
#include "progress_int.h"
#include "base/clock.h"
#include "base/log_queue.h"
#include "base/mem.h"

#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define REDRAW_SEC  0.1
#define PLAIN_SEC   5 /* between lines without a terminal */
#define FLUSH_SEC   2 /* at the end, for a terminal that is not read */
#define BAR_MAX     28
#define BAR_MIN     10
#define LINE_BYTES  1024
#define FIELD_BYTES 40

/* -- formatting -------------------------------------------------------------------------------- */

typedef struct {
    const char *label; /* dim text, if the terminal has colours; "": none */
    char value[FIELD_BYTES];
    int rank; /* fields of higher rank are dropped first if the line is too long; -1: absent */
} field_t;

enum {
    EPOCH,
    BAR,
    STEP,
    LOSS,
    ACCURACY,
    LR,
    RATE,
    TFLOPS,
    MFU,
    STALL,
    COMM,
    MEM,
    ETA,
    FIELD_COUNT
};

/* Fixed memory: a line is drawn at every step, and steps allocate nothing. */
typedef struct {
    char *text;
    size_t bytes, used;
} out_t;

static void progress_put(out_t *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void progress_put(out_t *out, const char *format, ...) {
    va_list args;
    va_start(args, format);
    int wanted = tr_vsnprintf(out->text + out->used, out->bytes - out->used, format, args);
    va_end(args);
    if (wanted > 0) out->used += (size_t)wanted;
    if (out->used >= out->bytes) out->used = out->bytes - 1;
}

static int progress_digits(int64_t value) {
    int n = 1;
    for (; value >= 10; value /= 10) n++;
    return n;
}

static void progress_format_rate(double rate, char *text) {
    if (!isfinite(rate) || rate < 0) rate = 0;
    if (rate < 1000)
        tr_snprintf(text, FIELD_BYTES, "%5.1f/s", rate);
    else if (rate < 1e5)
        tr_snprintf(text, FIELD_BYTES, "%5.0f/s", rate);
    else if (rate < 1e7)
        tr_snprintf(text, FIELD_BYTES, "%4.0fk/s", rate / 1e3);
    else
        tr_snprintf(text, FIELD_BYTES, "%4.0fM/s", rate / 1e6);
}

static void progress_format_percent(double fraction, char *text) {
    if (isfinite(fraction))
        tr_snprintf(text, FIELD_BYTES, "%4.1f%%", 100 * fraction);
    else
        tr_snprintf(text, FIELD_BYTES, "%5s", "-"); /* not measured */
}

static void progress_format_eta(double sec, char *text) {
    if (!isfinite(sec) || sec < 0 || sec > 1e9) {
        tr_snprintf(text, FIELD_BYTES, "%7s", "-:--");
        return;
    }
    long s = (long)(sec + 0.5);
    char clock[FIELD_BYTES];
    if (s >= 86400)
        tr_snprintf(clock, sizeof clock, "%ldd%02ldh", s / 86400, s / 3600 % 24);
    else if (s >= 3600)
        tr_snprintf(clock, sizeof clock, "%ld:%02ld:%02ld", s / 3600, s / 60 % 60, s % 60);
    else
        tr_snprintf(clock, sizeof clock, "%ld:%02ld", s / 60, s % 60);
    tr_snprintf(text, FIELD_BYTES, "%7s", clock);
}

static void progress_fill_fields(const tr_progress_t *s, bool bar, field_t *f) {
    static const char *const labels[FIELD_COUNT] = {"epoch ", "",     "",        "loss ", "acc ",
                                                    "lr ",    "",     "tflops ", "mfu ",  "data ",
                                                    "comm ",  "mem ", "ETA "};
    static const int ranks[FIELD_COUNT] = {1, 3, 5, 0, 2, 10, 6, 11, 9, 7, 8, 12, 4};
    char memory[32];
    for (int i = 0; i < FIELD_COUNT; i++) f[i] = (field_t){.label = labels[i], .rank = ranks[i]};
    if (s->phase && strcmp(s->phase, "valid") == 0) f[EPOCH].label = "valid ";
    if (s->phase && strcmp(s->phase, "test") == 0) f[EPOCH].label = "test  ";
    if (s->epochs > 0)
        tr_snprintf(f[EPOCH].value, FIELD_BYTES, "%*lld/%lld", progress_digits(s->epochs),
                    (long long)s->epoch, (long long)s->epochs);
    else
        tr_snprintf(f[EPOCH].value, FIELD_BYTES, "%lld", (long long)s->epoch);
    if (s->steps > 0)
        tr_snprintf(f[STEP].value, FIELD_BYTES, "%*lld/%lld", progress_digits(s->steps),
                    (long long)s->step, (long long)s->steps);
    else
        tr_snprintf(f[STEP].value, FIELD_BYTES, "%lld", (long long)s->step);
    const double size = fabs(s->loss);
    const bool is_odd = isfinite(size) && size != 0 && (size < 1e-3 || size >= 1e4);
    tr_snprintf(f[LOSS].value, FIELD_BYTES, is_odd ? "%7.1e" : "%7.4f", s->loss);
    tr_snprintf(f[ACCURACY].value, FIELD_BYTES, s->accuracy < 0.99995 ? "%5.2f%%" : "%5.1f%%",
                100 * s->accuracy);
    tr_snprintf(f[LR].value, FIELD_BYTES, "%.1e", s->lr);
    if (s->tokens_per_sec > 0) {
        f[ACCURACY].label = "ppl ";
        tr_snprintf(f[ACCURACY].value, FIELD_BYTES, "%7.4g", exp(s->loss));
        f[RATE].label = "tok ";
    }
    progress_format_rate(s->tokens_per_sec > 0 ? s->tokens_per_sec : s->samples_per_sec,
                         f[RATE].value);
    tr_snprintf(f[TFLOPS].value, FIELD_BYTES, s->tflops < 10 ? "%5.3f" : "%5.1f", s->tflops);
    if (!(s->tflops >= 1e-3)) f[TFLOPS].rank = -1;
    progress_format_percent(s->mfu, f[MFU].value);
    if (!(s->mfu > 0)) f[MFU].rank = -1;
    progress_format_percent(s->data_stall, f[STALL].value);
    progress_format_percent(s->comm_exposed, f[COMM].value);
    tr_snprintf(f[MEM].value, FIELD_BYTES, "%9s", tr_format_bytes(s->memory_bytes, memory));
    if (!(s->memory_bytes > 0)) f[MEM].rank = -1;
    progress_format_eta(s->eta_sec, f[ETA].value);
    if (!bar) f[BAR].rank = -1;
    if (isnan(s->accuracy) && s->tokens_per_sec == 0) f[ACCURACY].rank = -1;
}

/* Columns of all present fields, two between them; the bar counts with `bar_cells`. */
static int progress_columns_of(const field_t *f, int bar_cells) {
    int columns = 0;
    for (int i = 0; i < FIELD_COUNT; i++) {
        if (f[i].rank < 0) continue;
        int own = i == BAR ? bar_cells : (int)(strlen(f[i].label) + strlen(f[i].value));
        columns += own + (columns > 0 ? 2 : 0);
    }
    return columns;
}

/* Drops fields that do not fit; returns the cells for the bar. */
static int progress_fit(field_t *f, int width) {
    while (progress_columns_of(f, BAR_MIN) > width) {
        int least = -1;
        for (int i = 0; i < FIELD_COUNT; i++)
            if (f[i].rank > 0 && (least < 0 || f[i].rank > f[least].rank)) least = i;
        if (least < 0) break;
        f[least].rank = -1;
    }
    int cells = BAR_MIN + width - progress_columns_of(f, BAR_MIN);
    return cells > BAR_MAX ? BAR_MAX : cells;
}

static void progress_put_bar(out_t *out, double fraction, int cells, tr_progress_style_t style) {
    if (!(fraction > 0)) fraction = 0;
    if (fraction > 1) fraction = 1;
    int halves = (int)(fraction * 2 * cells), full = halves / 2;
    const char *cell = style.unicode ? "━" : "#",
               *rest = style.unicode ? (style.color ? "━" : "─") : "-";
    if (style.color) progress_put(out, "\x1b[32m");
    for (int i = 0; i < full; i++) progress_put(out, "%s", cell);
    bool half = style.unicode && halves % 2;
    if (half) progress_put(out, "╸");
    if (style.color) progress_put(out, "\x1b[0;90m");
    for (int i = full + half; i < cells; i++) progress_put(out, "%s", rest);
    if (style.color) progress_put(out, "\x1b[0m");
}

void tr_progress_compose(const tr_progress_t *state, int width, bool bar, tr_progress_style_t style,
                         char *text, size_t bytes) {
    field_t fields[FIELD_COUNT];
    out_t out = {text, bytes, 0};
    text[0] = '\0';
    progress_fill_fields(state, bar, fields);
    int cells = progress_fit(fields, width);
    double fraction = state->epochs > 0 || state->steps <= 0
                          ? state->epoch_fraction
                          : (double)state->step / (double)state->steps;
    for (int i = 0; i < FIELD_COUNT; i++) {
        const field_t *field = &fields[i];
        if (field->rank < 0) continue;
        if (out.used) progress_put(&out, "  ");
        if (i == BAR)
            progress_put_bar(&out, fraction, cells, style);
        else if (style.color && *field->label)
            progress_put(&out, "\x1b[2m%s\x1b[22m%s", field->label, field->value);
        else
            progress_put(&out, "%s%s", field->label, field->value);
    }
    /* Narrower than the last field: part of a number would mislead. */
    if (progress_columns_of(fields, cells) > width) text[0] = '\0';
}

void tr_progress_format(const tr_progress_t *state, int width, bool bar, char *text, size_t bytes) {
    tr_progress_compose(state, width, bar, (tr_progress_style_t){0}, text, bytes);
}

/* -- drawing ----------------------------------------------------------------------------------- */

struct tr_progress_line {
    int fd, terminal; /* -1: no terminal */
    bool taken;       /* the embedding program has its own sink */
    tr_progress_style_t style;
    pthread_mutex_t lock;  /* log lines come from any thread */
    double drawn_sec;      /* when the line was drawn last; 0: never */
    double logged_sec;     /* when the last line went to the log files; at first: the start */
    const char *phase;     /* of the line drawn last */
    char line[LINE_BYTES]; /* the text on the terminal; "" none */
};

/* The log's sink on a terminal: the log line replaces the bar, and the bar is drawn below it, in
 * one write. */
static void progress_write_above(void *self, tr_log_level_t level, const char *text) {
    static const char *const colors[] = {"\x1b[31m", "\x1b[33m", "", "\x1b[2m"};
    tr_progress_line_t *line = self;
    char bytes[12288];
    out_t out = {bytes, sizeof bytes, 0};
    const char *color = line->style.color ? colors[level] : "";
    pthread_mutex_lock(&line->lock);
    progress_put(&out, "\r\x1b[K%s%s%s\n%s", color, text, *color ? "\x1b[0m" : "", line->line);
    pthread_mutex_unlock(&line->lock);
    tr_log_write_bytes(line->fd, bytes, out.used);
}

tr_status_t tr_progress_create(int fd, tr_progress_line_t **out) {
    tr_progress_line_t *line = NULL;
    TR_TRY(tr_alloc(sizeof *line, "progress line", &line));
    pthread_mutex_init(&line->lock, NULL);
    line->fd = fd;
    line->taken = tr_log_has_sink();
    line->terminal = line->taken ? -1 : tr_terminal_open(fd);
    line->style = tr_terminal_style();
    line->logged_sec = tr_clock_sec();
    if (line->terminal >= 0) tr_log_set_sink(progress_write_above, line);
    *out = line;
    return TR_OK;
}

void tr_progress_draw(tr_progress_line_t *line, const tr_progress_t *state) {
    if (line->terminal < 0 || !tr_log_shows(TR_LOG_INFO)) return;
    double now = tr_clock_sec();
    bool last = state->steps > 0 && state->step >= state->steps;
    if (now - line->drawn_sec < REDRAW_SEC && state->phase == line->phase && !last) return;
    char bytes[LINE_BYTES + 16];
    out_t out = {bytes, sizeof bytes, 0};
    pthread_mutex_lock(&line->lock);
    /* One column stays free: some terminals wrap as soon as the last one is filled. */
    tr_progress_compose(state, tr_terminal_width(line->terminal) - 1, true, line->style, line->line,
                        sizeof line->line);
    progress_put(&out, "\r%s\x1b[K", line->line);
    line->drawn_sec = now;
    line->phase = state->phase;
    pthread_mutex_unlock(&line->lock);
    tr_log_put(line->fd, bytes, out.used);
}

void tr_progress_plain(tr_progress_line_t *line, const tr_progress_t *state) {
    if (line->terminal >= 0 || line->taken || !tr_log_shows(TR_LOG_INFO)) return;
    const double now = tr_clock_sec();
    const bool last = state->steps > 0 && state->step >= state->steps;
    if (line->drawn_sec > 0 && now - line->drawn_sec < PLAIN_SEC && !last) return;
    line->drawn_sec = now;
    char text[LINE_BYTES];
    out_t out = {text, sizeof text, 0};
    tr_progress_format(state, LINE_BYTES - 2, false, text, sizeof text - 1);
    out.used = strlen(text);
    progress_put(&out, "\n");
    tr_log_put(line->fd, text, out.used);
}

void tr_progress_log(tr_progress_line_t *line, const tr_progress_t *state, double every_sec) {
    const double now = tr_clock_sec();
    char text[LINE_BYTES];
    if (now - line->logged_sec < every_sec || !tr_log_shows(TR_LOG_INFO)) return;
    line->logged_sec = now;
    tr_progress_format(state, LINE_BYTES - 1, false, text, sizeof text);
    tr_log_put_files("%s", text);
}

void tr_progress_destroy(tr_progress_line_t **destroying) {
    tr_progress_line_t *line = *destroying;
    if (!line) return;
    if (!tr_log_flush(FLUSH_SEC)) return; /* a thread that hangs still uses it */
    if (line->terminal >= 0) {
        tr_log_set_sink(NULL, NULL);
        if (line->line[0]) tr_log_write_bytes(line->fd, "\r\x1b[K", 4);
        close(line->terminal);
    }
    pthread_mutex_destroy(&line->lock);
    tr_free(destroying);
}
