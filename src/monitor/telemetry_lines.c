/* What the samples of all ranks add to metrics lines and to summary.json. */
#include "base/mem.h"
#include "base/str.h"
#include "base/json_text.h"
#include "telemetry_int.h"
#include <math.h>
#include <string.h>

static const struct {
    const char *key;
    bool is_bytes, least_is_worst;
} series[SERIES_COUNT] = {
    [SERIES_GPU_UTIL] = {"gpu_util", .least_is_worst = true},
    [SERIES_GPU_MEM] = {"gpu_mem_bytes", .is_bytes = true},
    [SERIES_GPU_TEMP] = {"gpu_temp"},
    [SERIES_GPU_POWER] = {"gpu_power_watts"},
    [SERIES_GPU_CLOCK] = {"gpu_sm_mhz", .least_is_worst = true},
    [SERIES_CPU] = {"cpu_util", .least_is_worst = true},
    [SERIES_CPU_WAIT] = {"cpu_wait"},
    [SERIES_RSS] = {"rss_bytes", .is_bytes = true},
};

static const totals_t *totals_of(const tr_rank_values_t *rank) {
    return (const totals_t *)(const void *)rank->value;
}

static void telemetry_put(json_t *line, int which, const char *suffix, double value) {
    char key[64];
    tr_snprintf(key, sizeof key, "%s%s", series[which].key, suffix);
    json_object_set_new(line, key,
                        series[which].is_bytes ? json_integer((json_int_t)value)
                                               : tr_json_measured(value));
}

static void put_series(const tr_telemetry_t *t, int which, int size, json_t *line) {
    double sum = 0, least = INFINITY, most = -INFINITY;
    char host_key[64];
    int count = 0, lowest = 0, highest = 0;
    for (int i = 0; i < size; i++) {
        const series_t *now = &totals_of(&t->now[i])->series[which],
                       *base = &totals_of(&t->base[i])->series[which];
        if (!(now->count > base->count)) continue;
        const double mean = (now->sum - base->sum) / (now->count - base->count);
        if (mean < least) lowest = i;
        if (mean > most) highest = i;
        least = fmin(least, mean);
        most = fmax(most, mean);
        sum += mean;
        count++;
    }
    if (count == 0) return;
    telemetry_put(line, which, "", sum / count);
    if (size == 1) return;
    const int worst = series[which].least_is_worst ? lowest : highest;
    telemetry_put(line, which, "_min", least);
    telemetry_put(line, which, "_max", most);
    tr_snprintf(host_key, sizeof host_key, "%s_host", series[which].key);
    json_object_set_new(line, host_key, json_string(t->now[worst].host));
}

/* base NULL: since the start. False: no GPU was sampled. */
static bool put_gpus(const tr_rank_values_t *now, const tr_rank_values_t *base, int size,
                     json_t *line) {
    static const totals_t none = {0};
    double shares = 0, ecc_errors = 0, nvlink_errors = 0, most = 0;
    int count = 0, worst = 0;
    for (int i = 0; i < size; i++) {
        const totals_t *n = totals_of(&now[i]), *b = base ? totals_of(&base[i]) : &none;
        ecc_errors += n->ecc_errors;
        nvlink_errors += n->nvlink_errors;
        if (!(n->gpu_samples > b->gpu_samples)) continue;
        const double share =
            (n->slowed_samples - b->slowed_samples) / (n->gpu_samples - b->gpu_samples);
        if (share > most) worst = i;
        most = fmax(most, share);
        shares += share;
        count++;
    }
    if (count == 0) return false;
    json_object_set_new(line, "gpu_throttled", tr_json_measured(shares / count));
    const unsigned slowed = most > 0 ? (unsigned)totals_of(&now[worst])->slowed : 0;
    if (slowed) {
        char reasons[64]; /* ", heat, power brake" */
        tr_snprintf(reasons, sizeof reasons, "%s%s%s", slowed & TR_GPU_HOT ? ", heat" : "",
                    slowed & TR_GPU_POWER_BRAKE ? ", power brake" : "",
                    slowed & TR_GPU_SLOWED ? ", hardware" : "");
        json_object_set_new(line, "gpu_throttle", json_string(reasons + 2));
        json_object_set_new(line, "gpu_throttled_host", json_string(now[worst].host));
    }
    json_object_set_new(line, "gpu_ecc_errors", json_real(ecc_errors));
    json_object_set_new(line, "gpu_nvlink_errors", json_real(nvlink_errors));
    if (!json_object_get(line, "gpu_util")) /* a partitioned GPU (MIG) does not tell it */
        json_object_set_new(line, "gpu_util", json_null());
    return true;
}

double tr_telemetry_joules(tr_telemetry_t *t) {
    if (!t) return NAN;
    const int size = tr_world_info(t->world)->size;
    double joules = t->earlier_joules;
    bool is_known = joules > 0;
    tr_watchdog_values(t->world, t->now);
    for (int i = 0; i < size; i++) {
        is_known |= totals_of(&t->now[i])->watched > 0;
        joules += totals_of(&t->now[i])->joules;
    }
    return is_known ? joules : NAN;
}

void tr_telemetry_set_joules(tr_telemetry_t *t, double of_earlier_sessions) {
    if (t && isfinite(of_earlier_sessions)) t->earlier_joules = of_earlier_sessions;
}

static void put_joules(tr_telemetry_t *t, json_t *line) {
    const double joules = tr_telemetry_joules(t);
    if (isfinite(joules)) json_object_set_new(line, "gpu_energy_joules", tr_json_measured(joules));
}

void tr_telemetry_line(tr_telemetry_t *t, json_t *line) {
    if (!t) return;
    const int size = tr_world_info(t->world)->size;
    tr_watchdog_values(t->world, t->now);
    for (int i = 0; i < SERIES_COUNT; i++) put_series(t, i, size, line);
    const bool has_gpus = put_gpus(t->now, t->base, size, line);
    memcpy(t->base, t->now, (size_t)size * sizeof *t->base);
    if (has_gpus) put_joules(t, line);
}

void tr_telemetry_summary(tr_telemetry_t *t, json_t *summary) {
    if (!t) return;
    const int size = tr_world_info(t->world)->size;
    put_joules(t, summary); /* also takes what ranks have sent */
    for (int k = 0; k < SERIES_COUNT; k++) {
        double sum = 0, most = -INFINITY;
        int count = 0;
        for (int i = 0; i < size; i++) {
            const series_t *s = &totals_of(&t->now[i])->series[k];
            if (!(s->count > 0)) continue;
            most = fmax(most, s->most);
            sum += s->sum / s->count;
            count++;
        }
        if (count == 0 || k == SERIES_GPU_CLOCK) continue;
        if (k == SERIES_GPU_UTIL || k == SERIES_CPU || k == SERIES_CPU_WAIT)
            telemetry_put(summary, k, "", sum / count);
        else
            telemetry_put(summary, k, "_max", most);
    }
    (void)put_gpus(t->now, NULL, size, summary);
}
