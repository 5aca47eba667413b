/* The list of metrics. */
#include "metric.h"

const tr_metric_t tr_metric_list[TR_METRIC_COUNT] = {
#define METRIC(record, key, type, unit, when, name, tag, help) {TR_##record##_##key, name, tag},
#include "base/record_fields.def"
};
