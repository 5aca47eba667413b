/* The metrics of a run for Prometheus. */
#include "prometheus.h"

#include "base/exposition.h"
#include "base/mem.h"
#include <math.h>

tr_prometheus_t tr_prometheus_new(const char *run, const char *job, const char *host) {
    tr_prometheus_t p = {.run = run, .job = job, .host = host};
    for (int i = 0; i < TR_METRIC_COUNT; i++) p.value[i] = NAN;
    p.step = p.steps = p.epoch = p.unix_time = NAN;
    return p;
}

static void prometheus_take_number(const json_t *line, const char *key, double *out) {
    const json_t *value = json_object_get(line, key);
    if (json_is_number(value)) *out = json_number_value(value);
}

void tr_prometheus_take(tr_prometheus_t *p, const json_t *line) {
    for (int i = 0; i < TR_METRIC_COUNT; i++)
        prometheus_take_number(line, tr_record_fields[tr_metric_list[i].field].key, &p->value[i]);
    prometheus_take_number(line, "step", &p->step);
    prometheus_take_number(line, "epoch", &p->epoch);
    prometheus_take_number(line, "unix_time", &p->unix_time);
}

void tr_prometheus_compose(const tr_prometheus_t *p, tr_str_t *out) {
    const tr_label_t labels[] = {{"run", p->run}, {"job", p->job}, {"host", p->host}};
    const tr_exposition_t e = {out, labels, TR_COUNT(labels)};
    const tr_exposed_t progress[] = {
        {"steps_total", "counter", "Steps done.", p->step},
        {"steps_planned", "gauge", "Steps of the whole run.", p->steps},
        {"epoch", "gauge", "Epochs done.", p->epoch},
        {"last_step_timestamp_seconds", "gauge", "Unix time of the last line of metrics.",
         p->unix_time},
        {"metrics_lines_lost_total", "counter", "Lines that could not be written.",
         (double)p->lines_lost},
    };
    tr_exposition_numbers(&e, progress, TR_COUNT(progress));
    for (int i = 0; i < TR_METRIC_COUNT; i++) {
        const struct tr_record_field_info *field = &tr_record_fields[tr_metric_list[i].field];
        const tr_exposed_t metric = {tr_metric_list[i].name, "gauge", field->help,
                                     tr_units[field->unit].scale * p->value[i]};
        tr_exposition_numbers(&e, &metric, 1);
    }
}
