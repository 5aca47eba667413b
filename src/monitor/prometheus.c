/* Composes the text format of Prometheus. */
#include "prometheus.h"

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
        prometheus_take_number(line, tr_metric_list[i].key, &p->value[i]);
    prometheus_take_number(line, "step", &p->step);
    prometheus_take_number(line, "epoch", &p->epoch);
    prometheus_take_number(line, "unix_time", &p->unix_time);
}

void tr_prometheus_label(tr_str_t *out, const char *name, const char *value) {
    tr_str_printf(out, "%s=\"", name);
    for (; *value; value++) {
        if (*value == '\n')
            tr_str_append(out, "\\n");
        else
            tr_str_printf(out, *value == '"' || *value == '\\' ? "\\%c" : "%c", *value);
    }
    tr_str_append(out, "\"");
}

static void prometheus_metric(const tr_prometheus_t *p, tr_str_t *out, const char *name,
                              const char *type, const char *help, double value) {
    if (!isfinite(value)) return;
    tr_str_printf(out, "# HELP trainer_%s %s\n# TYPE trainer_%s %s\ntrainer_%s{", name, help, name,
                  type, name);
    tr_prometheus_label(out, "run", p->run);
    tr_prometheus_label(out, ",job", p->job);
    tr_prometheus_label(out, ",host", p->host);
    tr_str_printf(out, "} %.15g\n", value);
}

void tr_prometheus_compose(const tr_prometheus_t *p, tr_str_t *out) {
    prometheus_metric(p, out, "steps_total", "counter", "Steps done.", p->step);
    prometheus_metric(p, out, "steps_planned", "gauge", "Steps of the whole run.", p->steps);
    prometheus_metric(p, out, "epoch", "gauge", "Epochs done.", p->epoch);
    prometheus_metric(p, out, "last_step_timestamp_seconds", "gauge",
                      "Unix time of the last line of metrics.", p->unix_time);
    prometheus_metric(p, out, "metrics_lines_lost_total", "counter",
                      "Lines that could not be written.", (double)p->lines_lost);
    for (int i = 0; i < TR_METRIC_COUNT; i++)
        prometheus_metric(p, out, tr_metric_list[i].name, "gauge", tr_metric_list[i].help,
                          tr_metric_list[i].scale * p->value[i]);
}
