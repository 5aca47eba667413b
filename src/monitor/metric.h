/* The metrics of a run, listed once for all writers. */
#ifndef TR_MONITOR_METRIC_H
#define TR_MONITOR_METRIC_H

typedef struct {
    const char *key;  /* in metrics.jsonl */
    double scale;     /* to base units */
    const char *name; /* Prometheus: trainer_<name> */
    const char *tag;  /* TensorBoard */
    const char *help;
} tr_metric_t;

enum {
#define METRIC(key, scale, name, tag, help) TR_METRIC_##key,
#include "metrics.def"
#undef METRIC
    TR_METRIC_COUNT
};
extern const tr_metric_t tr_metric_list[TR_METRIC_COUNT];

#endif
