/*
 * Alerts: conditions on the means of a run's metrics, each over a whole window of time, such as
 * "stall > 5 %, throughput < 80 %, loss > 2x". Not collective; for one thread.
 */
#ifndef TR_MONITOR_ALERTS_H
#define TR_MONITOR_ALERTS_H

#include "base/str.h"
#include <jansson.h>
#include <stdbool.h>

typedef struct tr_alerts tr_alerts_t;

/* An alert that begins or ends. */
typedef struct {
    const char *rule; /* "stall > 5 %"; owned by the alerts */
    bool begins;
    double value;    /* the mean of the window, in the rule's unit */
    char words[128]; /* "stall is 12 % (mean of 60 s)" */
} tr_alert_t;
typedef void (*tr_alert_fn)(void *self, const tr_alert_t *alert, const json_t *line);

/* Parses the rules, separated by commas; "" gives none. TR_ERR_CONFIG names the rule, and what is
 * known. window_sec: of each mean. */
tr_status_t tr_alerts_create(const char *rules, double window_sec, tr_alerts_t **out);
void tr_alerts_destroy(tr_alerts_t **alerts);
/* Takes a line of metrics.jsonl. Calls `say` for each alert that begins or ends with it. */
void tr_alerts_take(tr_alerts_t *alerts, const json_t *line, tr_alert_fn say, void *self);

#endif
