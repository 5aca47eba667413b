/*
 * The thread that writes what a run records: log.txt and the terminal, metrics.jsonl, TensorBoard's
 * curves, and the metrics for Prometheus. Nothing here makes a step wait. A writer that fails says
 * so once, and the run goes on. On the rank that records. Not collective.
 */
#ifndef TR_MONITOR_RECORDER_H
#define TR_MONITOR_RECORDER_H

#include "board.h"
#include "config/config.h"
#include "run/run.h"

typedef struct {
    bool tensorboard;
} tr_record_settings_t;
extern const tr_config_table_t tr_record_config; /* log.tensorboard */
typedef struct {
    const char *file; /* "": none; auto: metrics.prom in the run folder */
    const char *alert, *alert_command;
    double window; /* seconds */
    int64_t port;  /* -1: none; 0: any */
    const char *bind, *token_file;
    double interval; /* of the telemetry, in seconds; 0: none */
} tr_monitor_settings_t;
extern const tr_config_table_t tr_monitor_config; /* monitor.* */

typedef struct tr_recorder tr_recorder_t;

/* `run` and `board`, which gets each line, are borrowed until the end of the recorder. Lines of the
 * log go through the recorder from now on. */
tr_status_t tr_recorder_start(tr_run_t *run, const tr_config_t *config, tr_board_t *board,
                              tr_recorder_t **out);
/* Hands over a line of metrics.jsonl. Steals `line`. */
void tr_recorder_line(tr_recorder_t *recorder, json_t *line);
/* Hands over the text of the file `name` in the run folder, which is replaced. Owns `text` from now on
 * (tr_free). Drops it where the disk does not answer. */
void tr_recorder_file(tr_recorder_t *recorder, const char *name, char *text);
/* Waits at most `sec` seconds until what was recorded so far is written. */
bool tr_recorder_wait(tr_recorder_t *recorder, double sec);
/* Lines that metrics.jsonl lacks, because the disk was full or did not answer. */
int64_t tr_recorder_lost(const tr_recorder_t *recorder);
/* Waits, ends the thread, and removes the file for Prometheus. in_haste: after an error, waits for
 * neither commands nor a slow disk. False: a write hangs; the thread is left alone, with what it
 * uses and with the run. */
bool tr_recorder_stop(tr_recorder_t **recorder, bool in_haste);

#endif
