/* The list of metrics. */
#include "metric.h"

const tr_metric_t tr_metric_list[TR_METRIC_COUNT] = {
#define METRIC(key, scale, name, tag, help) {#key, scale, name, tag, help},
#include "metrics.def"
#undef METRIC
};
