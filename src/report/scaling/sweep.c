/* Groups runs to sweeps: by mode and kind, with the medians and efficiency of each number of ranks. */
#include "sweep.h"
#include "base/str.h"
#include "trainer/log.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *tr_mode_name(tr_scaling_mode_t mode) {
    static const char *const names[] = {"", "weak", "strong"};
    return names[mode];
}

/* -- which runs belong together ---------------------------------------------------------------- */

static bool is_equal(const json_t *a, const json_t *b) {
    return !a || !b || json_equal(a, b);
}

static void sweep_append_json(const json_t *value, tr_str_t *out) {
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    tr_str_append(out, text ? text : "?");
    free(text);
}

/* All complete runs of a kind must be alike, even of different sweeps on one page. */
static tr_status_t sweep_check_alike(const tr_record_t *records, size_t count) {
    static const char *const keys[] = {"threads", "precision", "device", "commit", "parameters"};
    for (size_t i = 0; i < count; i++) {
        const tr_record_t *a = records, *b = &records[i];
        if (!b->is_complete) continue;
        while (!a->is_complete || a->kind != b->kind) a++;
        for (size_t k = 0; k < TR_COUNT(keys); k++) {
            const json_t *of_a = json_object_get(a->summary, keys[k]),
                         *of_b = json_object_get(b->summary, keys[k]);
            tr_str_t one = {0}, other = {0};
            if (is_equal(of_a, of_b)) continue;
            sweep_append_json(of_a, &one);
            sweep_append_json(of_b, &other);
            TR_FAIL(TR_ERR_DATA,
                    "The runs of a sweep must have the same %s: %s has %s, %s has %s. Leave out "
                    "the runs that differ, or report each alone.",
                    keys[k], a->path, one.text, b->path, other.text);
            tr_str_free(&one);
            tr_str_free(&other);
            return TR_ERR_DATA;
        }
    }
    return TR_OK;
}

static bool is_weak(const tr_record_t *a, const tr_record_t *b) {
    return a->batch * b->ranks == b->batch * a->ranks && a->micro_batch == b->micro_batch;
}

static bool is_strong(const tr_record_t *a, const tr_record_t *b) {
    return a->batch == b->batch && b->micro_batch * b->ranks == b->batch &&
           a->micro_batch * a->ranks == a->batch;
}

static tr_status_t sweep_fail_batch(const tr_record_t *a, const tr_record_t *b,
                                    tr_scaling_mode_t mode) {
    static const char *const rules[] = {
        "Weak scaling keeps batch and micro-batch per rank, strong scaling keeps the global batch "
        "with micro_batch = batch / ranks",
        "Weak scaling keeps batch and micro-batch per rank",
        "Strong scaling keeps the global batch, with micro_batch = batch / ranks"};
    if (a == b)
        return TR_FAIL(TR_ERR_DATA, "%s: %s: micro_batch is %lld, expected %lld. Leave it out.",
                       rules[mode], a->path, (long long)a->micro_batch,
                       (long long)(a->batch / a->ranks));
    return TR_FAIL(
        TR_ERR_DATA,
        "%s: %s has %lld rank%s, batch_size %lld, micro_batch %lld; %s has %lld rank%s, "
        "batch_size %lld, micro_batch %lld. Leave out the runs that differ, or report each alone.",
        rules[mode], a->path, (long long)a->ranks, a->ranks == 1 ? "" : "s", (long long)a->batch,
        (long long)a->micro_batch, b->path, (long long)b->ranks, b->ranks == 1 ? "" : "s",
        (long long)b->batch, (long long)b->micro_batch);
}

typedef TR_VEC(const tr_record_t *) group_t;

/* -- points ------------------------------------------------------------------------------------ */

/* The median over the repeats of the double at `offset` of a record. */
static double point_median(const tr_point_t *p, size_t offset) {
    double values[64];
    size_t count = 0;
    for (size_t i = 0; i < p->runs.count && count < TR_COUNT(values); i++)
        memcpy(&values[count++], (const char *)p->runs.data[i] + offset, sizeof(double));
    return tr_median(values, count);
}

static tr_point_t point_new(tr_kind_t kind, int64_t nodes, int64_t ranks) {
    const tr_predicted_t none = {NAN, NAN, NAN};
    return (tr_point_t){.kind = kind,
                        .nodes = nodes,
                        .ranks = ranks,
                        .times = {NAN, NAN, NAN, NAN, NAN, NAN, NAN},
                        .spread = {NAN, NAN, NAN, NAN, NAN, NAN},
                        .step_min = NAN,
                        .step_max = NAN,
                        .efficiency = NAN,
                        .speedup = NAN,
                        .predicted_step = none,
                        .predicted_efficiency = none,
                        .predicted_comm = NAN};
}

static tr_status_t sweep_add_run(tr_sweep_t *sweep, const tr_record_t *r) {
    size_t i = 0;
    while (i < sweep->points.count &&
           (sweep->mode == TR_MODE_NONE || sweep->points.data[i].ranks != r->ranks ||
            sweep->points.data[i].nodes != r->nodes))
        i++;
    if (i == sweep->points.count) {
        tr_point_t point = point_new(r->kind, r->nodes, r->ranks);
        point.batch = r->batch;
        point.micro_batch = r->micro_batch;
        TR_TRY(tr_vec_push(&sweep->points, point));
    }
    return tr_vec_push(&sweep->points.data[i].runs, r);
}

static int point_by_ranks(const void *a, const void *b) {
    const tr_point_t *x = a, *y = b;
    if (x->ranks != y->ranks) return x->ranks < y->ranks ? -1 : 1;
    return (x->nodes > y->nodes) - (x->nodes < y->nodes);
}

const tr_point_t *tr_sweep_reference(const tr_sweep_t *sweep) {
    for (size_t i = 0; i < sweep->points.count; i++)
        if (sweep->points.data[i].runs.count > 0) return &sweep->points.data[i];
    return NULL;
}

/* Sorts the points, and takes the medians of their runs and the efficiency. */
static void sweep_finish(tr_sweep_t *sweep) {
    if (sweep->mode != TR_MODE_NONE)
        qsort(sweep->points.data, sweep->points.count, sizeof *sweep->points.data, point_by_ranks);
    const tr_point_t *ref = tr_sweep_reference(sweep); /* the first */
    for (size_t i = 0; i < sweep->points.count; i++) {
        tr_point_t *p = &sweep->points.data[i];
        double *times = (double *)&p->times, *spread = (double *)&p->spread;
        for (size_t k = 0; k < sizeof p->times / sizeof(double); k++)
            times[k] = point_median(p, offsetof(tr_record_t, times) + k * sizeof(double));
        for (size_t k = 0; k < sizeof p->spread / sizeof(double); k++)
            spread[k] = point_median(p, offsetof(tr_record_t, spread) + k * sizeof(double));
        p->step_min = INFINITY;
        p->step_max = 0;
        for (size_t k = 0; k < p->runs.count; k++) {
            p->step_min = fmin(p->step_min, p->runs.data[k]->times.step);
            p->step_max = fmax(p->step_max, p->runs.data[k]->times.step);
        }
        if (sweep->mode == TR_MODE_NONE) continue;
        p->efficiency = ref->times.step / p->times.step;
        if (sweep->mode == TR_MODE_STRONG) p->efficiency *= (double)ref->ranks / (double)p->ranks;
        p->speedup = p->efficiency * (double)p->ranks / (double)ref->ranks;
    }
}

/* Adds the sweep of the runs of a kind whose names, as weak-n2, are of the mode. The mode of those
 * with other names is guessed. */
static tr_status_t sweeps_add_group(const tr_record_t *records, size_t count,
                                    tr_scaling_mode_t named, tr_kind_t kind, tr_sweeps_t *out) {
    group_t g = {0};
    tr_scaling_mode_t mode = named;
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < count; i++) {
        const tr_record_t *r = &records[i];
        const tr_scaling_mode_t mode_of_run = count == 1                           ? TR_MODE_NONE
                                              : strncmp(r->name, "weak-n", 6) == 0 ? TR_MODE_WEAK
                                              : strncmp(r->name, "strong-n", 8) == 0
                                                  ? TR_MODE_STRONG
                                                  : TR_MODE_NONE;
        if ((r->is_complete || count == 1) && r->kind == kind && mode_of_run == named)
            TR_TRY_GOTO(tr_vec_push(&g, r), done);
    }
    if (g.count == 0) goto done;
    const tr_record_t *first = g.data[0], *other = NULL; /* other: the first of other ranks */
    for (size_t i = 1; i < g.count && !other; i++)
        if (g.data[i]->ranks != first->ranks) other = g.data[i];
    if (mode == TR_MODE_NONE && other)
        mode = is_weak(first, other)     ? TR_MODE_WEAK
               : is_strong(first, other) ? TR_MODE_STRONG
                                         : TR_MODE_NONE;
    if (mode == TR_MODE_NONE && other) TR_TRY_GOTO(sweep_fail_batch(first, other, mode), done);
    for (size_t i = 0; i < g.count && mode != TR_MODE_NONE; i++)
        if (mode == TR_MODE_WEAK ? !is_weak(first, g.data[i]) : !is_strong(first, g.data[i]))
            TR_TRY_GOTO(sweep_fail_batch(first, g.data[i], mode), done);

    const tr_sweep_t empty = {.mode = mode, .kind = kind};
    TR_TRY_GOTO(tr_vec_push(out, empty), done);
    tr_sweep_t *sweep = &out->data[out->count - 1];
    for (size_t i = 0; i < g.count; i++) TR_TRY_GOTO(sweep_add_run(sweep, g.data[i]), done);
    sweep_finish(sweep);
done:
    tr_vec_free(&g);
    return status;
}

tr_status_t tr_sweeps_make(const tr_record_t *records, size_t count, tr_sweeps_t *out) {
    static const tr_scaling_mode_t modes[] = {TR_MODE_WEAK, TR_MODE_STRONG, TR_MODE_NONE};
    tr_status_t status = TR_OK;
    *out = (tr_sweeps_t){0};
    for (size_t i = 0; i < TR_COUNT(modes) && status == TR_OK; i++)
        for (int kind = TR_KIND_MEASURED; kind <= TR_KIND_REPLAY && status == TR_OK; kind++)
            status = sweeps_add_group(records, count, modes[i], (tr_kind_t)kind, out);
    bool any = false;
    for (size_t i = 0; i < out->count; i++) any |= out->data[i].mode != TR_MODE_NONE;
    if (status == TR_OK && any) status = sweep_check_alike(records, count);
    if (status != TR_OK) tr_sweeps_free(out);
    return status;
}

void tr_sweeps_free(tr_sweeps_t *sweeps) {
    for (size_t i = 0; i < sweeps->count; i++) {
        tr_sweep_t *sweep = &sweeps->data[i];
        for (size_t p = 0; p < sweep->points.count; p++) tr_vec_free(&sweep->points.data[p].runs);
        tr_vec_free(&sweep->points);
    }
    tr_vec_free(sweeps);
}

/* -- predictions ------------------------------------------------------------------------------- */

static tr_predicted_t json_band(const json_t *row, const char *key) {
    const json_t *value = json_object_get(row, key);
    if (json_is_number(value)) {
        const double number = json_number_value(value);
        return (tr_predicted_t){number, number, number};
    }
    return (tr_predicted_t){tr_json_number(value, "low"), tr_json_number(value, "expected"),
                            tr_json_number(value, "high")};
}

static tr_status_t prediction_check(const json_t *file, const char *path,
                                    tr_scaling_mode_t *out_mode) {
    const char *kind = json_string_value(json_object_get(file, "kind")),
               *mode = json_string_value(json_object_get(file, "mode"));
    const json_t *rows = json_object_get(file, "rows"), *row;
    size_t i;
    *out_mode = mode && strcmp(mode, "weak") == 0     ? TR_MODE_WEAK
                : mode && strcmp(mode, "strong") == 0 ? TR_MODE_STRONG
                                                      : TR_MODE_NONE;
    if (!kind || strcmp(kind, "prediction") != 0 || *out_mode == TR_MODE_NONE ||
        !json_is_array(rows))
        return TR_FAIL(TR_ERR_DATA,
                       "%s: expected \"kind\": \"prediction\", \"mode\": \"weak\" or \"strong\", "
                       "and \"rows\", as trainer plan --json writes them",
                       path);
    json_array_foreach(rows, i, row) {
        if (json_integer_value(json_object_get(row, "ranks")) > 0 &&
            json_band(row, "step_ms").expected > 0)
            continue;
        return TR_FAIL(TR_ERR_DATA, "%s: rows[%zu]: expected \"ranks\" and \"step_ms\" above 0",
                       path, i);
    }
    return TR_OK;
}

/* For each run of the sweep that records them. */
static tr_status_t prediction_check_runs(const tr_sweep_t *sweep, const json_t *file,
                                         const char *path) {
    static const char *const keys[] = {"parameters", "precision", "threads"};
    for (size_t p = 0; p < sweep->points.count; p++)
        for (size_t i = 0; i < sweep->points.data[p].runs.count; i++)
            for (size_t k = 0; k < TR_COUNT(keys); k++) {
                const tr_record_t *r = sweep->points.data[p].runs.data[i];
                const json_t *run = json_object_get(r->summary, keys[k]),
                             *predicted = json_object_get(file, keys[k]);
                tr_str_t one = {0}, other = {0};
                if (is_equal(run, predicted)) continue;
                sweep_append_json(predicted, &one);
                sweep_append_json(run, &other);
                const tr_status_t status =
                    TR_FAIL(TR_ERR_DATA,
                            "--predicted %s is of another model or setup: it has %s %s, %s has %s. "
                            "Predict with a profile of the same configuration.",
                            path, keys[k], one.text, r->path, other.text);
                tr_str_free(&one);
                tr_str_free(&other);
                return status;
            }
    return TR_OK;
}

/* One rank has no network: a difference there is of the profile alone, as of another machine, and
 * scales all predictions. */
static void prediction_check_one_rank(const tr_point_t *p, const char *path) {
    static const double most = 1.5;
    const double measured = p->times.step, predicted = p->predicted_step.expected;
    if (p->ranks != 1 || !(fmax(measured / predicted, predicted / measured) >= most)) return;
    TR_WARN("--predicted %s: its profile has a step of %.4g ms on one rank, the run has %.4g ms: a "
            "difference by a factor of %.3g. Expected less than %.1f: measure the profile again on "
            "the machine of the runs, while nothing else runs",
            path, predicted, measured, fmax(measured / predicted, predicted / measured), most);
}

/* Adds the rows of a prediction to the sweep of its mode. */
static tr_status_t sweeps_add_prediction(tr_sweeps_t *sweeps, const json_t *file,
                                         const char *path) {
    tr_scaling_mode_t mode;
    tr_sweep_t *sweep = NULL;
    const json_t *row;
    size_t i;
    TR_TRY(prediction_check(file, path, &mode));
    for (i = 0; i < sweeps->count && !sweep; i++)
        if (sweeps->data[i].mode == mode) sweep = &sweeps->data[i];
    if (!sweep) {
        const tr_sweep_t empty = {.mode = mode, .kind = TR_KIND_PREDICTED};
        TR_TRY(tr_vec_push(sweeps, empty));
        sweep = &sweeps->data[sweeps->count - 1];
    }
    TR_TRY(prediction_check_runs(sweep, file, path));
    json_array_foreach(json_object_get(file, "rows"), i, row) {
        const int64_t ranks = json_integer_value(json_object_get(row, "ranks")),
                      nodes = json_integer_value(json_object_get(row, "nodes"));
        /* The point with these ranks, preferably with the same number of nodes: in a local sweep,
         * the ranks of one machine represent nodes. */
        tr_point_t *p = NULL;
        for (size_t k = 0; k < sweep->points.count; k++) {
            tr_point_t *point = &sweep->points.data[k];
            if (point->ranks == ranks && (!p || point->nodes == nodes)) p = point;
        }
        if (!p) {
            TR_TRY(tr_vec_push(&sweep->points, point_new(TR_KIND_PREDICTED, nodes, ranks)));
            p = &sweep->points.data[sweep->points.count - 1];
            p->batch = json_integer_value(json_object_get(row, "batch_global"));
            p->micro_batch = json_integer_value(json_object_get(row, "micro_batch"));
        }
        p->predicted_step = json_band(row, "step_ms");
        p->predicted_efficiency = json_band(row, "efficiency");
        prediction_check_one_rank(p, path);
        p->predicted_comm = tr_json_number(row, "comm_exposed_ms");
    }
    qsort(sweep->points.data, sweep->points.count, sizeof *sweep->points.data, point_by_ranks);
    return TR_OK;
}

tr_status_t tr_sweeps_predict(tr_sweeps_t *sweeps, const char *path) {
    json_error_t error;
    json_t *file = json_load_file(path, 0, &error);
    if (!file && error.line < 0)
        return TR_FAIL(TR_ERR_NOINPUT, "--predicted: cannot read %s: %s", path, error.text);
    if (!file)
        return TR_FAIL(TR_ERR_DATA, "--predicted: %s, line %d: %s", path, error.line, error.text);
    const tr_status_t status = sweeps_add_prediction(sweeps, file, path);
    json_decref(file);
    return status;
}
