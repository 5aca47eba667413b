/*
 * The curves of a run for TensorBoard, in RUN/tensorboard. Each start of the run begins a new file
 * with the history of metrics.jsonl, so that steps that are repeated after a resume appear once:
 * TensorBoard's default reader drops what it has of a curve from the first step of a new file on.
 * Not collective.
 */
#ifndef TR_MONITOR_TENSORBOARD_H
#define TR_MONITOR_TENSORBOARD_H

#include "trainer/status.h"
#include <jansson.h>

typedef struct tr_tensorboard tr_tensorboard_t;

/* Begins a file in `folder` with the lines of `metrics_path` (a missing file has none), of training
 * at most some thousand, and with the configuration as text. Then empties the files of earlier
 * starts. */
tr_status_t tr_tensorboard_open(const char *folder, const char *metrics_path,
                                const char *config_text, tr_tensorboard_t **out);
/* Adds the numbers of a line of metrics.jsonl. */
tr_status_t tr_tensorboard_add(tr_tensorboard_t *board, const json_t *line);
void tr_tensorboard_close(tr_tensorboard_t **board);

#endif
