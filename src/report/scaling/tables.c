/* scaling.csv and summary.json. */
#include "losses.h"
#include "base/json_text.h"
#include "base/table.h"
#include "tables.h"

#include <math.h>
#include <stdlib.h>

/* What files say of a point. */
typedef struct {
    tr_point_t point;
    const char *kind, *mode;
    double comm; /* exposed communication, ms: measured, of a prediction predicted */
    int repeats;
} point_row_t;

static point_row_t point_row(const tr_sweep_t *sweep, const tr_point_t *p) {
    return (point_row_t){.point = *p,
                         .kind = tr_kind_name(p->kind),
                         .mode = tr_mode_name(sweep->mode),
                         .comm = p->kind == TR_KIND_PREDICTED ? p->predicted_comm
                                                              : p->times.comm_exposed,
                         .repeats = (int)p->runs.count};
}

#define POINT(key, type, member, ...) TR_COLUMN(point_row_t, key, NULL, type, member, __VA_ARGS__)

/* -- scaling.csv ------------------------------------------------------------------------------- */

static const tr_table_column_t csv_columns[] = {
    POINT("kind", STRING, kind),
    POINT("mode", STRING, mode),
    POINT("nodes", INT64, point.nodes, .zero_is_missing = true),
    POINT("ranks", INT64, point.ranks, .zero_is_missing = true),
    POINT("batch_global", INT64, point.batch, .zero_is_missing = true),
    POINT("step_ms_median", REAL, point.times.step),
    POINT("step_ms_p95", REAL, point.times.p95),
    POINT("compute_ms", REAL, point.times.compute),
    POINT("comm_exposed_ms", REAL, comm),
    POINT("data_stall_ms", REAL, point.times.data_stall),
    POINT("checkpoint_ms", REAL, point.times.checkpoint),
    POINT("samples_per_sec", REAL, point.times.samples_per_sec),
    POINT("efficiency", REAL, point.efficiency),
    POINT("speedup", REAL, point.speedup),
    POINT("predicted_step_ms", REAL, point.predicted_step.expected),
    POINT("predicted_efficiency", REAL, point.predicted_efficiency.expected),
};
static const tr_table_t csv_table = TR_TABLE(csv_columns, point_row_t);

tr_status_t tr_tables_csv(const tr_study_t *study, tr_str_t *out) {
    tr_table_csv(&csv_table, NULL, 0, true, out);
    for (size_t i = 0; i < study->sweeps->count; i++) {
        const tr_sweep_t *sweep = &study->sweeps->data[i];
        for (size_t p = 0; p < sweep->points.count; p++) {
            const point_row_t row = point_row(sweep, &sweep->points.data[p]);
            tr_table_csv(&csv_table, &row, 1, false, out);
        }
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

#define PREDICTED(key, member) POINT(key, REAL, point.member, .is_optional = true)
static const tr_table_column_t point_columns[] = {
    POINT("kind", STRING, kind),
    POINT("nodes", INT64, point.nodes, .zero_is_missing = true),
    POINT("ranks", INT64, point.ranks, .zero_is_missing = true),
    POINT("batch_global", INT64, point.batch, .zero_is_missing = true),
    POINT("micro_batch", INT64, point.micro_batch, .zero_is_missing = true),
    POINT("repeats", INT, repeats),
    POINT("step_ms_min", REAL, point.step_min),
    POINT("step_ms_max", REAL, point.step_max),
    POINT("efficiency", REAL, point.efficiency),
    POINT("speedup", REAL, point.speedup),
    PREDICTED("predicted_step_ms.low", predicted_step.low),
    PREDICTED("predicted_step_ms.expected", predicted_step.expected),
    PREDICTED("predicted_step_ms.high", predicted_step.high),
    PREDICTED("predicted_efficiency.low", predicted_efficiency.low),
    PREDICTED("predicted_efficiency.expected", predicted_efficiency.expected),
    PREDICTED("predicted_efficiency.high", predicted_efficiency.high),
    PREDICTED("predicted_comm_exposed_ms", predicted_comm),
};
static const tr_table_t point_table = TR_TABLE(point_columns, point_row_t);

static json_t *point_json(const tr_sweep_t *sweep, const tr_point_t *p) {
    const point_row_t row = point_row(sweep, p);
    tr_losses_t losses;
    json_t *out = tr_table_object(&point_table, &row);
    json_object_update_new(out, times_json(&p->times));
    json_object_update_new(out, spread_json(&p->spread));
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
