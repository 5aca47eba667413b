/* Writes what a run records, on a thread of its own. */
#include "recorder.h"

#include "alert_command.h"
#include "base/file.h"
#include "base/log_queue.h"
#include "base/mem.h"
#include "base/record_fields.h"
#include "run/while_running.h"
#include "tensorboard.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { MOST_JOBS = 4096, STOP_SEC = 10, COMMANDS_SEC = 5 };

static const tr_config_field_t record_fields[] = {
    TR_FIELD_BOOL(tr_record_settings_t, tensorboard, "no",
                  "Write the curves of the run for TensorBoard, in tensorboard/ of the run folder.",
                  TR_RESUME_FREE),
};
const tr_config_table_t tr_record_config =
    TR_CONFIG_TABLE("log", record_fields, tr_record_settings_t);

static const tr_config_field_t monitor_fields[] = {
    TR_FIELD_STRING(
        tr_monitor_settings_t, file, "",
        "File that always has the newest metrics in the text format of Prometheus, for "
        "the textfile collector of node_exporter. auto: metrics.prom in the run folder. "
        "Empty: none. It is removed at the end.",
        TR_RESUME_FREE),
    TR_FIELD_INT(tr_monitor_settings_t, port, "-1", -1, 65535,
                 "Port of rank 0 that serves the run over HTTP: a live page at /, /metrics for "
                 "Prometheus, /status.json, /healthz. 0: any free port; its address is in the file "
                 "monitor of the run folder. -1: none.",
                 TR_RESUME_FREE),
    TR_FIELD_STRING(tr_monitor_settings_t, bind, "127.0.0.1",
                    "Address at which monitor.port listens. 127.0.0.1: programs on the same node "
                    "only. 0.0.0.0: all addresses of the node.",
                    TR_RESUME_FREE),
    TR_FIELD_STRING(tr_monitor_settings_t, token_file, "auto",
                    "File with the token that requests to monitor.port must have. Only its owner "
                    "may read it. auto: the file token in the run folder, which is made with a "
                    "random token if it is missing.",
                    TR_RESUME_FREE),
    TR_FIELD_STRING(tr_monitor_settings_t, alert, "",
                    "Conditions that are said when they begin and end, such as 'stall > 5 %, "
                    "throughput < 80 %, loss > 2x': of the mean over monitor.window. throughput is "
                    "compared with its median in this session, loss with its lowest mean.",
                    TR_RESUME_FREE),
    TR_FIELD_DURATION(tr_monitor_settings_t, window, "1min", 0, 1e6,
                      "The time over which monitor.alert takes means.", TR_RESUME_FREE),
    TR_FIELD_STRING(tr_monitor_settings_t, alert_command, "",
                    "A shell command that runs when an alert begins or ends. Its environment has "
                    "TRAINER_ALERT, _STATE, _TEXT, _VALUE, _STEP and _RUN.",
                    TR_RESUME_FREE),
    TR_FIELD_DURATION(tr_monitor_settings_t, interval, "1s", 0, 3600,
                      "Time between two samples that each rank takes of its GPU, by NVML, and of "
                      "its memory and CPU time. 0: none. Less than 10 ms counts as 10 ms.",
                      TR_RESUME_FREE),
};
const tr_config_table_t tr_monitor_config =
    TR_CONFIG_TABLE("monitor", monitor_fields, tr_monitor_settings_t);

struct tr_recorder {
    tr_background_t *background;
    tr_run_t *run;
    _Atomic int64_t lost;
    /* of the thread */
    char *tensorboard_dir, *metrics_path, *config_text, *prometheus_path;
    tr_tensorboard_t *tensorboard; /* NULL: none, or it failed */
    tr_board_t *board;             /* borrowed */
    tr_alerts_t *alerts;
    tr_alert_command_t command;
    char *command_text;
    bool prometheus_has_failed, file_has_failed;
};

/* -- on the thread ----------------------------------------------------------------------------- */

static void recorder_open_tensorboard(void *self, void *item) {
    tr_recorder_t *r = self;
    (void)item;
    if (tr_tensorboard_open(r->tensorboard_dir, r->metrics_path, r->config_text, &r->tensorboard) !=
        TR_OK)
        TR_WARN("there will be no curves for TensorBoard, training continues: %s",
                tr_error_last()->message);
}

static void recorder_read_board(void *self, void *item) {
    const tr_recorder_t *r = self;
    (void)item;
    if (tr_board_read(r->board) != TR_OK)
        TR_WARN("the live page lacks what was before this start: %s", tr_error_last()->message);
}

static void recorder_write_prometheus(tr_recorder_t *r) {
    tr_str_t text = {0};
    tr_board_metrics(r->board, &text);
    if (text.status != TR_OK || tr_replace_file(r->prometheus_path, text.text, text.length,
                                                TR_REPLACE_LINKED | TR_REPLACE_OFTEN) != TR_OK) {
        if (!r->prometheus_has_failed)
            TR_WARN("monitor.file is not written, training continues: %s",
                    tr_error_last()->message);
        r->prometheus_has_failed = true; /* it is tried again with the next line */
    }
    tr_str_free(&text);
}

static void recorder_write_metrics(tr_recorder_t *r, json_t *line) {
    /* A full disk loses lines but does not end the run. */
    if (tr_run_metrics(r->run, line) == TR_OK || atomic_fetch_add(&r->lost, 1) > 0) return;
    TR_WARN("metrics.jsonl will lack lines, training continues: %s", tr_error_last()->message);
}

static void recorder_say_alert(void *self, const tr_alert_t *alert, const json_t *line) {
    tr_recorder_t *r = self;
    const json_int_t step = json_integer_value(json_object_get(line, "step"));
    TR_WARN("alert %s at step %lld: %s: %s", alert->begins ? "begins" : "ends", (long long)step,
            alert->rule, alert->words);
    json_t *said = json_object();
    tr_record_number(said, TR_ALERT_step, (double)step);
    tr_record_text(said, TR_ALERT_alert, alert->rule);
    tr_record_number(said, TR_ALERT_begins, alert->begins);
    tr_record_number(said, TR_ALERT_value, alert->value);
    recorder_write_metrics(r, said);
    if (r->command.command[0]) tr_alert_command_run(&r->command, alert, step);
}

static void recorder_write_line(void *self, void *item) {
    tr_recorder_t *r = self;
    json_t *line = item;
    if (r->tensorboard && tr_tensorboard_add(r->tensorboard, line) != TR_OK) {
        TR_WARN("TensorBoard's curves end here, training continues: %s", tr_error_last()->message);
        tr_tensorboard_close(&r->tensorboard);
    }
    tr_board_add(r->board, line, tr_recorder_lost(r));
    if (r->prometheus_path) recorder_write_prometheus(r);
    tr_alert_command_tend(&r->command);
    json_incref(line);
    recorder_write_metrics(r, line);
    tr_alerts_take(r->alerts, line, recorder_say_alert, r);
    json_decref(line);
}

static void recorder_finish_commands(void *self, void *item) {
    tr_recorder_t *r = self;
    (void)item;
    tr_alert_command_finish(&r->command, COMMANDS_SEC);
}

typedef struct {
    const char *name; /* a constant */
    char *text;
} recorded_file_t;

static void recorder_free_file(recorded_file_t *file) {
    tr_free(&file->text);
    tr_free(&file);
}

static void recorder_write_file(void *self, void *item) {
    tr_recorder_t *r = self;
    recorded_file_t *file = item;
    char path[4096];
    tr_status_t status = tr_path_join(tr_run_dir(r->run), file->name, path);
    if (status == TR_OK)
        status = tr_replace_file(path, file->text, strlen(file->text), TR_REPLACE_OFTEN);
    if (status != TR_OK && !r->file_has_failed)
        TR_WARN("%s is not written, training continues: %s", file->name, tr_error_last()->message);
    r->file_has_failed = status != TR_OK;
    recorder_free_file(file);
}

/* -- for the run ------------------------------------------------------------------------------- */

static void recorder_free(tr_recorder_t **freeing) {
    tr_recorder_t *r = *freeing;
    tr_tensorboard_close(&r->tensorboard);
    tr_free(&r->tensorboard_dir);
    tr_free(&r->metrics_path);
    tr_free(&r->config_text);
    tr_free(&r->prometheus_path);
    tr_free(&r->command_text);
    tr_alerts_destroy(&r->alerts);
    tr_free(freeing);
}

static tr_status_t recorder_path(const tr_run_t *run, const char *name, char **out) {
    char path[4096];
    TR_TRY(tr_path_join(tr_run_dir(run), name, path));
    return tr_strdup(path, out);
}

static tr_status_t recorder_configure(tr_recorder_t *r, const tr_config_t *config) {
    tr_record_settings_t record;
    tr_monitor_settings_t monitor;
    tr_str_t text = {0};
    tr_config_read(config, &tr_record_config, &record);
    tr_config_read(config, &tr_monitor_config, &monitor);
    TR_TRY(tr_alerts_create(monitor.alert, monitor.window, &r->alerts));
    TR_TRY(tr_strdup(monitor.alert_command, &r->command_text));
    r->command = (tr_alert_command_t){.command = r->command_text, .run_dir = tr_run_dir(r->run)};
    TR_TRY(recorder_path(r->run, "metrics.jsonl", &r->metrics_path));
    if (record.tensorboard) {
        TR_TRY(recorder_path(r->run, "tensorboard", &r->tensorboard_dir));
        TR_TRY(tr_config_serialize(config, &text));
        TR_TRY(tr_str_take(&text, &r->config_text));
    }
    if (strcmp(monitor.file, "auto") == 0)
        TR_TRY(recorder_path(r->run, "metrics.prom", &r->prometheus_path));
    else if (monitor.file[0])
        TR_TRY(tr_strdup(monitor.file, &r->prometheus_path));
    if (r->prometheus_path) tr_while_running_add(r->prometheus_path);
    return TR_OK;
}

tr_status_t tr_recorder_start(tr_run_t *run, const tr_config_t *config, tr_board_t *board,
                              tr_recorder_t **out) {
    tr_recorder_t *r = NULL;
    tr_status_t status;
    TR_TRY(tr_alloc(sizeof *r, "recorder", &r));
    r->run = run;
    r->board = board;
    TR_TRY_GOTO(recorder_configure(r, config), failed);
    TR_TRY_GOTO(tr_background_start("recorder", MOST_JOBS, &r->background), failed);
    tr_log_set_queue(r->background);
    (void)tr_background_post(r->background, recorder_read_board, r, NULL);
    if (r->tensorboard_dir)
        (void)tr_background_post(r->background, recorder_open_tensorboard, r, NULL);
    *out = r;
    return TR_OK;
failed:
    recorder_free(&r);
    return status;
}

void tr_recorder_line(tr_recorder_t *r, json_t *line) {
    if (tr_background_post(r->background, recorder_write_line, r, line)) return;
    json_decref(line);
    if (atomic_fetch_add(&r->lost, 1) == 0)
        TR_WARN("metrics.jsonl will lack lines, training continues: the disk does not answer");
}

void tr_recorder_file(tr_recorder_t *r, const char *name, char *text) {
    recorded_file_t *file = NULL;
    if (tr_alloc(sizeof *file, "a file of the run", &file) != TR_OK) {
        tr_free(&text);
        return;
    }
    *file = (recorded_file_t){name, text};
    if (!tr_background_post(r->background, recorder_write_file, r, file)) recorder_free_file(file);
}

bool tr_recorder_wait(tr_recorder_t *r, double sec) {
    return tr_background_wait(r->background, sec);
}

int64_t tr_recorder_lost(const tr_recorder_t *r) {
    return atomic_load(&r->lost);
}

bool tr_recorder_stop(tr_recorder_t **stopping, bool in_haste) {
    tr_recorder_t *r = *stopping;
    if (!r) return true;
    *stopping = NULL;
    if (!in_haste) (void)tr_background_post(r->background, recorder_finish_commands, r, NULL);
    (void)tr_background_wait(r->background, in_haste ? 1 : STOP_SEC);
    tr_log_set_queue(NULL);
    if (!tr_background_stop(&r->background, 0.1)) {
        TR_WARN("a write has not returned: the last lines of %s may be missing",
                tr_run_dir(r->run));
        return false;
    }
    if (r->prometheus_path) tr_while_running_remove(r->prometheus_path);
    recorder_free(&r);
    return true;
}
