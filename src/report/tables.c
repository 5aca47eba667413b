/* scaling.csv and summary.json. */
#include "losses.h"
#include "base/json_text.h"
#include "tables.h"

#include <math.h>
#include <stdlib.h>

/* -- scaling.csv ------------------------------------------------------------------------------- */

static const char columns[] =
    "kind,mode,nodes,ranks,batch_global,step_ms_median,step_ms_p95,compute_ms,comm_exposed_ms,"
    "data_stall_ms,checkpoint_ms,samples_per_sec,efficiency,speedup,predicted_step_ms,"
    "predicted_efficiency\n";

static void csv_append_count(tr_str_t *out, int64_t value) {
    if (value)
        tr_str_printf(out, ",%lld", (long long)value);
    else
        tr_str_append(out, ",");
}

static void csv_append_row(const tr_sweep_t *sweep, const tr_point_t *p, tr_str_t *out) {
    const tr_step_times_t *t = &p->times;
    const double comm = p->kind == TR_KIND_PREDICTED ? p->predicted_comm : t->comm_exposed;
    const double numbers[] = {t->step,
                              t->p95,
                              t->compute,
                              comm,
                              t->data_stall,
                              t->checkpoint,
                              t->samples_per_sec,
                              p->efficiency,
                              p->speedup,
                              p->predicted_step.expected,
                              p->predicted_efficiency.expected};
    tr_str_printf(out, "%s,%s", tr_kind_name(p->kind), tr_mode_name(sweep->mode));
    csv_append_count(out, p->nodes);
    csv_append_count(out, p->ranks);
    csv_append_count(out, p->batch);
    for (size_t i = 0; i < TR_COUNT(numbers); i++)
        tr_str_printf(out, isfinite(numbers[i]) ? ",%.6g" : ",", numbers[i]);
    tr_str_append(out, "\n");
}

tr_status_t tr_tables_csv(const tr_study_t *study, tr_str_t *out) {
    tr_str_append(out, columns);
    for (size_t i = 0; i < study->sweeps->count; i++) {
        const tr_sweep_t *sweep = &study->sweeps->data[i];
        for (size_t p = 0; p < sweep->points.count; p++)
            csv_append_row(sweep, &sweep->points.data[p], out);
    }
    return out->status;
}

/* -- summary.json ------------------------------------------------------------------------------ */

static json_t *json_count_or_null(int64_t value) {
    return value ? json_integer(value) : json_null();
}

static json_t *times_json(const tr_step_times_t *t) {
    return json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "step_ms_median",
                     tr_json_finite(t->step), "step_ms_p95", tr_json_finite(t->p95), "compute_ms",
                     tr_json_finite(t->compute), "comm_exposed_ms", tr_json_finite(t->comm_exposed),
                     "data_stall_ms", tr_json_finite(t->data_stall), "checkpoint_ms",
                     tr_json_finite(t->checkpoint), "samples_per_sec",
                     tr_json_finite(t->samples_per_sec));
}

static json_t *spread_json(const tr_spread_t *s) {
    return json_pack(
        "{s:o, s:o, s:o, s:o, s:o, s:o}", "compute_min_ms", tr_json_finite(s->compute_min),
        "compute_max_ms", tr_json_finite(s->compute_max), "data_stall_min_ms",
        tr_json_finite(s->data_stall_min), "data_stall_max_ms", tr_json_finite(s->data_stall_max),
        "wait_min_ms", tr_json_finite(s->wait_min), "wait_max_ms", tr_json_finite(s->wait_max));
}

static json_t *run_json(const tr_record_t *r) {
    json_t *out = json_pack(
        "{s:s, s:s, s:b, s:s, s:o, s:s, s:o, s:o, s:o, s:o, s:i}", "name", r->name, "kind",
        tr_kind_name(r->kind), "complete", r->is_complete, "verdict", r->verdict, "code",
        r->code >= 0 ? json_integer(r->code) : json_null(), "reason", r->reason, "nodes",
        json_count_or_null(r->nodes), "ranks", json_count_or_null(r->ranks), "batch_global",
        json_count_or_null(r->batch), "micro_batch", json_count_or_null(r->micro_batch), "sessions",
        (int)json_array_size(r->sessions));
    json_object_update_new(out, times_json(&r->times));
    json_object_update_new(out, spread_json(&r->spread));
    json_object_set_new(out, "slowest_rank",
                        r->slowest.rank >= 0 ? json_integer(r->slowest.rank) : json_null());
    if (r->slowest.rank >= 0)
        json_object_set_new(out, "slowest_host", json_string(r->slowest.host));
    return out;
}

static json_t *band_json(const tr_predicted_t *b) {
    return json_pack("{s:o, s:o, s:o}", "low", tr_json_finite(b->low), "expected",
                     tr_json_finite(b->expected), "high", tr_json_finite(b->high));
}

static json_t *point_json(const tr_sweep_t *sweep, const tr_point_t *p) {
    tr_losses_t losses;
    json_t *out = json_pack(
        "{s:s, s:o, s:o, s:o, s:o, s:i, s:o, s:o, s:o, s:o}", "kind", tr_kind_name(p->kind),
        "nodes", json_count_or_null(p->nodes), "ranks", json_count_or_null(p->ranks),
        "batch_global", json_count_or_null(p->batch), "micro_batch",
        json_count_or_null(p->micro_batch), "repeats", (int)p->runs.count, "step_ms_min",
        tr_json_finite(p->step_min), "step_ms_max", tr_json_finite(p->step_max), "efficiency",
        tr_json_finite(p->efficiency), "speedup", tr_json_finite(p->speedup));
    json_object_update_new(out, times_json(&p->times));
    json_object_update_new(out, spread_json(&p->spread));
    if (isfinite(p->predicted_step.expected)) {
        json_object_set_new(out, "predicted_step_ms", band_json(&p->predicted_step));
        json_object_set_new(out, "predicted_efficiency", band_json(&p->predicted_efficiency));
        json_object_set_new(out, "predicted_comm_exposed_ms", tr_json_finite(p->predicted_comm));
    }
    if (!tr_losses_of(sweep, p, &losses)) return out;
    json_t *by_cause = json_object();
    for (int c = 0; c < TR_CAUSES; c++)
        json_object_set_new(by_cause, tr_cause_name((tr_cause_t)c),
                            tr_json_finite(losses.cause[c]));
    json_object_set_new(out, "lost_ms", tr_json_finite(losses.whole));
    json_object_set_new(out, "lost_ms_by_cause", by_cause);
    return out;
}

static json_t *sweep_json(const tr_sweep_t *sweep) {
    json_t *points = json_array();
    tr_str_t words = {0};
    const tr_point_t *ref = tr_sweep_reference(sweep);
    for (size_t i = 0; i < sweep->points.count; i++)
        json_array_append_new(points, point_json(sweep, &sweep->points.data[i]));
    if (sweep->mode != TR_MODE_NONE) tr_losses_explain(sweep, &words);
    json_t *out = json_pack("{s:s, s:s, s:o, s:s, s:o}", "mode", tr_mode_name(sweep->mode), "kind",
                            tr_kind_name(sweep->kind), "reference_ranks",
                            ref && sweep->mode ? json_count_or_null(ref->ranks) : json_null(),
                            "explanation", words.text ? words.text : "", "points", points);
    tr_str_free(&words);
    return out;
}

tr_status_t tr_tables_json(const tr_study_t *study, tr_str_t *out) {
    json_t *runs = json_array(), *sweeps = json_array();
    for (size_t i = 0; i < study->count; i++)
        json_array_append_new(runs, run_json(&study->records[i]));
    for (size_t i = 0; i < study->sweeps->count; i++)
        json_array_append_new(sweeps, sweep_json(&study->sweeps->data[i]));
    json_t *all =
        json_pack("{s:s, s:o, s:o}", "commit", study->version, "runs", runs, "sweeps", sweeps);
    char *text = json_dumps(all, JSON_INDENT(1) | JSON_REAL_PRECISION(6));
    if (text) tr_str_printf(out, "%s\n", text);
    const bool is_whole = text != NULL;
    free(text);
    json_decref(all);
    return is_whole ? out->status
                    : TR_FAIL(TR_ERR_MEMORY, "summary.json: not enough memory for its text");
}
