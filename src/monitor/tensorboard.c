/* Writes the lines of metrics.jsonl as curves of TensorBoard. */
#include "tensorboard.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/mem.h"
#include "base/str.h"
#include "events.h"
#include "metric.h"
#include "report/record/metrics_lines.h"
#include <dirent.h>
#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MOST_POINTS = 2000 /* of a curve, from earlier starts */, KEEP_EMPTY_SEC = 3600 };

struct tr_tensorboard {
    tr_events_t *events;
    double unix_sec; /* of the last line: validations have no time of their own */
    tr_rows_t keys;  /* asks for the metrics; without rows */
};

/* A row has the metrics in the order of their list, and then these. */
enum { ROW_STEP = TR_METRIC_COUNT, ROW_UNIX, ROW_KEYS };
_Static_assert((int)ROW_KEYS <= (int)TR_ROW_KEYS, "a row is too short for the metrics");

static tr_status_t tensorboard_add_row(tr_tensorboard_t *board, const double *row) {
    const int64_t step = isnan(row[ROW_STEP]) ? 0 : (int64_t)row[ROW_STEP];
    if (!isnan(row[ROW_UNIX])) board->unix_sec = row[ROW_UNIX];
    for (int i = 0; i < TR_METRIC_COUNT; i++)
        if (!isnan(row[i]))
            TR_TRY(tr_events_scalar(board->events, tr_metric_list[i].tag, step, board->unix_sec,
                                    row[i]));
    return TR_OK;
}

tr_status_t tr_tensorboard_add(tr_tensorboard_t *board, const json_t *line) {
    double row[TR_ROW_KEYS];
    TR_TRY(tr_rows_take_json(&board->keys, line, row));
    return tensorboard_add_row(board, row);
}

/* Adds the lines of earlier starts, validations behind the line of training of their step. */
static tr_status_t tensorboard_replay(tr_tensorboard_t *board, const char *metrics_path) {
    const tr_metrics_lines_t how = {.lines = TR_LINES_SPREAD, .most = MOST_POINTS / 2};
    tr_rows_t training = board->keys, validation = board->keys;
    tr_status_t status = tr_metrics_lines_read(metrics_path, &how, &training, &validation);
    for (size_t i = 0, v = 0; status == TR_OK && i + v < training.count + validation.count;) {
        const double step = tr_rows_number(&training, i, "step"),
                     validated = tr_rows_number(&validation, v, "step");
        const bool is_validation = i == training.count || validated < step;
        const tr_rows_t *rows = is_validation ? &validation : &training;
        size_t *next = is_validation ? &v : &i;
        status = tensorboard_add_row(board, rows->values + (*next)++ * rows->width);
    }
    tr_rows_free(&training);
    tr_rows_free(&validation);
    return status;
}

/* The names of the files that are there before the new one. */
typedef TR_VEC(char *) names_t;

static tr_status_t names_list(const char *folder, names_t *out) {
    DIR *dir = opendir(folder);
    tr_status_t status = TR_OK;
    for (struct dirent *entry; dir && status == TR_OK && (entry = readdir(dir));) {
        char path[4096], *own = NULL;
        const size_t length = strlen(entry->d_name), ending = sizeof TR_EVENTS_ENDING - 1;
        if (length < ending || strcmp(entry->d_name + length - ending, TR_EVENTS_ENDING) != 0)
            continue; /* of another program */
        status = tr_path_join(folder, entry->d_name, path);
        if (status == TR_OK) status = tr_strdup(path, &own);
        if (status == TR_OK) status = tr_vec_push(out, own);
        if (status != TR_OK) tr_free(&own);
    }
    if (dir) closedir(dir);
    return status;
}

/* A table of Markdown: the keys and values of an ini text. */
static void config_as_table(const char *text, tr_str_t *out) {
    char section[128] = "";
    tr_str_append(out, "| key | value |\n|---|---|\n");
    for (const char *line = text; *line; line += strcspn(line, "\n") + (strchr(line, '\n') != 0)) {
        const int length = (int)strcspn(line, "\n"), name = (int)strcspn(line, " =\n");
        const char *value = memchr(line, '=', (size_t)length);
        if (*line == '[') snprintf(section, sizeof section, "%.*s.", length - 2, line + 1);
        if (*line == '[' || !value || name == 0) continue;
        tr_str_printf(out, "| %s%.*s | %.*s |\n", section, name, line,
                      length - (int)(value + 1 - line), value + 1);
    }
}

/* Empties the files before this one, whose history the new one repeats. A TensorBoard that reads a
 * file goes on to the next one if it is empty, but not if it is gone: files go an hour later. */
static void names_retire(const names_t *earlier, double now_unix_sec) {
    for (size_t i = 0; i < earlier->count; i++) {
        struct stat at;
        if (stat(earlier->data[i], &at) != 0) continue;
        if (at.st_size > 0)
            (void)!truncate(earlier->data[i], 0);
        else if (now_unix_sec - (double)at.st_mtime > KEEP_EMPTY_SEC)
            unlink(earlier->data[i]);
    }
}

tr_status_t tr_tensorboard_open(const char *folder, const char *metrics_path,
                                const char *config_text, tr_tensorboard_t **out) {
    tr_tensorboard_t *board = NULL;
    names_t earlier = {0};
    tr_str_t table = {0};
    tr_status_t status;
    TR_TRY_GOTO(names_list(folder, &earlier), done);
    TR_TRY_GOTO(tr_alloc(sizeof *board, "TensorBoard's curves", &board), done);
    board->unix_sec = tr_clock_unix_sec();
    for (int i = 0; i < TR_METRIC_COUNT; i++)
        tr_rows_ask(&board->keys, tr_record_fields[tr_metric_list[i].field].key, TR_VALUE_NUMBER);
    tr_rows_ask(&board->keys, "step", TR_VALUE_NUMBER);
    tr_rows_ask(&board->keys, "unix_time", TR_VALUE_NUMBER);
    TR_TRY_GOTO(tr_events_create(folder, &board->events), done);
    TR_TRY_GOTO(tr_events_start(board->events, 0, board->unix_sec), done);
    TR_TRY_GOTO(tensorboard_replay(board, metrics_path), done);
    config_as_table(config_text, &table);
    TR_TRY_GOTO(table.status, done);
    TR_TRY_GOTO(tr_events_text(board->events, "config", 0, board->unix_sec, table.text), done);
    names_retire(&earlier, tr_clock_unix_sec());
    *out = board;
done:
    for (size_t i = 0; i < earlier.count; i++) tr_free(&earlier.data[i]);
    tr_vec_free(&earlier);
    tr_str_free(&table);
    if (status != TR_OK) tr_tensorboard_close(&board);
    return status;
}

void tr_tensorboard_close(tr_tensorboard_t **closing) {
    if (!*closing) return;
    tr_events_close(&(*closing)->events);
    tr_free(closing);
}
