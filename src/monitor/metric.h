/* The metrics of a run: fields of metrics.jsonl that Prometheus and TensorBoard show. */
#ifndef TR_MONITOR_METRIC_H
#define TR_MONITOR_METRIC_H

#include "base/record_fields.h"

typedef struct {
    tr_record_field_t field;
    const char *name; /* Prometheus: trainer_<name>, in base units */
    const char *tag;  /* TensorBoard */
} tr_metric_t;

enum {
#define METRIC(record, key, type, unit, when, name, tag, help) TR_METRIC_##key,
#include "base/record_fields.def"
    TR_METRIC_COUNT
};
extern const tr_metric_t tr_metric_list[TR_METRIC_COUNT];

#endif
