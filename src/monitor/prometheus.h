/* The metrics of a run in the text format of Prometheus, version 0.0.4. Not collective. */
#ifndef TR_MONITOR_PROMETHEUS_H
#define TR_MONITOR_PROMETHEUS_H

#include "metric.h"
#include "base/str.h"
#include <jansson.h>
#include <stdint.h>

/* The values of the newest lines. NaN: none yet. */
typedef struct {
    const char *run, *job, *host; /* labels; borrowed */
    double value[TR_METRIC_COUNT];
    double step, steps, epoch, unix_time;
    int64_t lines_lost;
} tr_prometheus_t;

tr_prometheus_t tr_prometheus_new(const char *run, const char *job, const char *host);
/* Takes what a line of metrics.jsonl has. */
void tr_prometheus_take(tr_prometheus_t *p, const json_t *line);
void tr_prometheus_compose(const tr_prometheus_t *p, tr_str_t *out);

#endif
