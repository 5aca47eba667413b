/* Conditions on the metrics of a run. */
#include "alerts.h"

#include "base/mem.h"
#include "base/stats.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* What a threshold is compared with. */
typedef enum {
    OF_VALUE,  /* the mean itself; a percentage is a hundredth */
    OF_TIME,   /* the same; a fraction of a time */
    OF_MEDIAN, /* the mean over the median of the windows before */
    OF_LOWEST  /* the mean over the lowest mean of a window so far */
} reference_t;

static const struct {
    const char *name, *key; /* in a rule, in a line of metrics.jsonl */
    reference_t of;
} known[] = {
    {"stall", "data_stall", OF_TIME},
    {"comm", "comm_exposed", OF_TIME},
    {"checkpoint", "checkpoint", OF_TIME},
    {"mfu", "mfu", OF_TIME},
    {"throughput", "samples_per_sec", OF_MEDIAN},
    {"loss", "loss", OF_LOWEST},
    {"grad_norm", "grad_norm", OF_VALUE},
    {"gpu_util", "gpu_util", OF_TIME},
    {"gpu_temp", "gpu_temp", OF_VALUE},
    {"gpu_mem", "gpu_mem_bytes", OF_VALUE},
    {"cpu_util", "cpu_util", OF_VALUE},
    {"cpu_wait", "cpu_wait", OF_VALUE},
};

static bool reference_is_measured(reference_t of) {
    return of == OF_MEDIAN || of == OF_LOWEST;
}

enum { MOST_RULES = 16, HISTORY = 256 };

typedef struct {
    char text[64]; /* as given */
    int metric;    /* index in known */
    bool is_above; /* > */
    double threshold;
    double sum, count;
    double lowest;         /* mean of a window */
    double means[HISTORY]; /* of the windows so far, for the median; a ring */
    int64_t windows;
    bool is_on;
} rule_t;

struct tr_alerts {
    rule_t rules[MOST_RULES];
    int count;
    double window_sec, since; /* since: Unix time of the window's begin; NaN: none */
};

/* -- rules ------------------------------------------------------------------------------------- */

static tr_status_t rule_fail(const char *text, const char *expected) {
    tr_str_t names = {0};
    for (size_t i = 0; i < TR_COUNT(known); i++)
        tr_str_printf(&names, "%s%s", i ? ", " : "", known[i].name);
    const tr_status_t status =
        TR_FAIL(TR_ERR_CONFIG, "monitor.alert: expected %s, found '%s'. The metrics are %s.",
                expected, text, names.text ? names.text : "");
    tr_str_free(&names);
    return status;
}

/* "stall > 5 %": NUMBER % is a hundredth, and NUMBERx is a multiple of the reference. */
static tr_status_t rule_parse(const char *text, rule_t *rule) {
    static const char form[] = "METRIC > NUMBER or METRIC < NUMBER, with %, x or nothing after the "
                               "number";
    char name[32], op, *end;
    int used = 0;
    *rule = (rule_t){.metric = -1, .lowest = INFINITY};
    if (sscanf(text, " %31[a-z_] %c %n", name, &op, &used) != 2 || (op != '<' && op != '>') ||
        strlen(text) >= sizeof rule->text)
        return rule_fail(text, form);
    const double number = tr_strtod(text + used, &end);
    if (end == text + used) return rule_fail(text, form);
    end += strspn(end, " ");
    const char unit = *end == '%' || *end == 'x' ? *end++ : '\0';
    if (end[strspn(end, " ")]) return rule_fail(text, form);
    for (size_t i = 0; i < TR_COUNT(known); i++)
        if (strcmp(name, known[i].name) == 0) rule->metric = (int)i;
    if (rule->metric < 0) return rule_fail(text, form);
    const reference_t of = known[rule->metric].of;
    if (unit == 'x' && !reference_is_measured(of))
        return rule_fail(text, "a value without x, which has no reference");
    if (!unit && reference_is_measured(of))
        return rule_fail(text, "% or x after the number: of the median throughput of this session, "
                               "or the lowest mean loss");
    strcpy(rule->text, text);
    rule->is_above = op == '>';
    rule->threshold = unit == '%' ? number / 100 : number;
    if (of == OF_TIME && rule->threshold > 1)
        return rule_fail(text, "a share of at most 1, which is 100 %");
    return TR_OK;
}

tr_status_t tr_alerts_create(const char *rules, double window_sec, tr_alerts_t **out) {
    tr_alerts_t *a = NULL;
    char *copy = NULL, *rest = NULL;
    tr_status_t status;
    TR_TRY(tr_alloc(sizeof *a, "alerts", &a));
    a->window_sec = window_sec;
    a->since = NAN;
    TR_TRY_GOTO(tr_strdup(rules, &copy), done);
    for (char *text = strtok_r(copy, ",", &rest); text; text = strtok_r(NULL, ",", &rest)) {
        text += strspn(text, " ");
        for (size_t n = strlen(text); n > 0 && text[n - 1] == ' ';) text[--n] = '\0';
        if (!*text) continue;
        if (a->count == MOST_RULES)
            TR_TRY_GOTO(
                TR_FAIL(TR_ERR_CONFIG, "monitor.alert: expected at most %d rules", MOST_RULES),
                done);
        TR_TRY_GOTO(rule_parse(text, &a->rules[a->count]), done);
        a->count++;
    }
    *out = a;
done:
    tr_free(&copy);
    if (status != TR_OK) tr_alerts_destroy(&a);
    return status;
}

void tr_alerts_destroy(tr_alerts_t **alerts) {
    tr_free(alerts);
}

/* -- lines ------------------------------------------------------------------------------------- */

/* Of the windows so far. */
static double rule_median(const rule_t *r) {
    double sorted[HISTORY];
    const size_t count = r->windows < HISTORY ? (size_t)r->windows : HISTORY;
    memcpy(sorted, r->means, count * sizeof *sorted);
    tr_sort(sorted, (int64_t)count);
    return count ? sorted[count / 2] : NAN;
}

/* At the end of a window. False: nothing changes. */
static bool rule_judge(rule_t *r, double window_sec, tr_alert_t *out) {
    const double mean = r->sum / r->count;
    const reference_t of = known[r->metric].of;
    const double reference = of == OF_MEDIAN   ? rule_median(r)
                             : of == OF_LOWEST ? r->lowest
                                               : 1,
                 value = mean / reference;
    const bool has_value = r->count > 0 && isfinite(value),
               is_on = has_value && (r->is_above ? value > r->threshold : value < r->threshold);
    if (r->count > 0) {
        r->lowest = fmin(r->lowest, mean);
        r->means[r->windows++ % HISTORY] = mean;
    }
    r->sum = r->count = 0;
    if (!has_value || is_on == r->is_on) return false;
    r->is_on = is_on;
    *out = (tr_alert_t){.rule = r->text, .begins = is_on, .value = value};
    if (strchr(r->text, '%'))
        tr_snprintf(out->words, sizeof out->words, "%s is %.3g %%", known[r->metric].name,
                    100 * value);
    else
        tr_snprintf(out->words, sizeof out->words, "%s is %.4g%s", known[r->metric].name, value,
                    strchr(r->text, 'x') && reference_is_measured(of) ? "x" : "");
    const size_t used = strlen(out->words);
    tr_snprintf(out->words + used, sizeof out->words - used, "%s (mean of %.3g s)",
                of == OF_MEDIAN   ? " of its median"
                : of == OF_LOWEST ? " of its lowest mean"
                                  : "",
                window_sec);
    return true;
}

void tr_alerts_take(tr_alerts_t *a, const json_t *line, tr_alert_fn say, void *self) {
    const double now = json_number_value(json_object_get(line, "unix_time"));
    if (now == 0) return; /* a validation */
    if (isnan(a->since)) a->since = now;
    for (int i = 0; i < a->count; i++) {
        rule_t *r = &a->rules[i];
        const json_t *value = json_object_get(line, known[r->metric].key);
        if (!json_is_number(value)) continue;
        r->sum += json_number_value(value);
        r->count++;
    }
    if (now - a->since < a->window_sec) return;
    a->since = now;
    for (int i = 0; i < a->count; i++) {
        tr_alert_t alert;
        if (rule_judge(&a->rules[i], a->window_sec, &alert)) say(self, &alert, line);
    }
}
