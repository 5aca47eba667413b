/*
 * Shows a run that trains over HTTP: a live page, /metrics, /status.json and /healthz, each but the
 * last with a token. Nothing here makes a step wait. On rank 0. Not collective.
 */
#ifndef TR_MONITOR_SERVER_H
#define TR_MONITOR_SERVER_H

#include "board.h"
#include "comm/comm.h"
#include "recorder.h"

typedef struct tr_server tr_server_t;

typedef struct {
    const char *dir;   /* run folder: gets the files monitor, monitor.json and token; copied */
    bool is_resumed;   /* errors are warnings; a port that is taken is replaced by another one */
    tr_board_t *board; /* with curves; borrowed, as the world */
    tr_world_t *world;
    const char *version; /* of this program; static */
} tr_server_params_t;

/* *out is NULL without a port. TR_ERR_CONFIG, TR_ERR_PERMISSION, TR_ERR_NOINPUT, TR_ERR_IO name the
 * key that is wrong. */
tr_status_t tr_server_start(const tr_monitor_settings_t *settings, const tr_server_params_t *params,
                            tr_server_t **out);
/* Waits for requests that are answered, and removes the files, except for the token. */
void tr_server_stop(tr_server_t **server);

#endif
