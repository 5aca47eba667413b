#include "sweep.h"
#include "base/str.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

const char *tr_mode_name(tr_mode_t mode) {
    static const char *const names[] = {"", "weak", "strong"};
    return names[mode];
}

/* -- which runs belong together ---------------------------------------------------------------- */

static tr_mode_t mode_of_name(const tr_record_t *r) {
    return strncmp(r->name, "weak-n", 6) == 0     ? TR_MODE_WEAK
           : strncmp(r->name, "strong-n", 8) == 0 ? TR_MODE_STRONG
                                                  : TR_MODE_NONE;
}

static bool is_equal(const json_t *a, const json_t *b) {
    return !a || !b || json_equal(a, b);
}

static tr_status_t text_of(const json_t *value, tr_str_t *out) {
    char *text = json_dumps(value, JSON_ENCODE_ANY);
    tr_str_append(out, text ? text : "?");
    free(text);
    return out->status;
}

static tr_status_t fail_mixed(const tr_record_t *a, const tr_record_t *b, const char *key) {
    tr_str_t one = {0}, other = {0};
    text_of(json_object_get(a->summary, key), &one);
    text_of(json_object_get(b->summary, key), &other);
    const tr_status_t status =
        TR_FAIL(TR_ERR_DATA,
                "The runs of a sweep must have the same %s: %s has %s, %s has %s. Leave out the "
                "runs that differ, or report each alone.",
                key, a->path, one.text, b->path, other.text);
    tr_str_free(&one);
    tr_str_free(&other);
    return status;
}

static tr_status_t check_pair(const tr_record_t *a, const tr_record_t *b) {
    static const char *const keys[] = {"threads", "precision", "device", "commit", "parameters"};
    for (size_t i = 0; i < TR_COUNT(keys); i++)
        if (!is_equal(json_object_get(a->summary, keys[i]), json_object_get(b->summary, keys[i])))
            return fail_mixed(a, b, keys[i]);
    return TR_OK;
}

/* All complete runs of a kind, even of different sweeps on one page. */
static tr_status_t check_same(const tr_record_t *records, size_t count) {
    for (size_t i = 0; i < count; i++) {
        size_t first = 0;
        if (!records[i].is_complete) continue;
        while (!records[first].is_complete || records[first].kind != records[i].kind) first++;
        TR_TRY(check_pair(&records[first], &records[i]));
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

static tr_status_t fail_batch(const tr_record_t *a, const tr_record_t *b, tr_mode_t mode) {
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

/* The first run whose number of ranks differs from that of the first run; NULL if there is none. */
static const tr_record_t *other_ranks(const group_t *g) {
    for (size_t i = 1; i < g->count; i++)
        if (g->data[i]->ranks != g->data[0]->ranks) return g->data[i];
    return NULL;
}

static tr_mode_t guess_mode(const group_t *g) {
    const tr_record_t *other = other_ranks(g);
    return !other                         ? TR_MODE_NONE
           : is_weak(g->data[0], other)   ? TR_MODE_WEAK
           : is_strong(g->data[0], other) ? TR_MODE_STRONG
                                          : TR_MODE_NONE;
}

static tr_status_t check_group(const group_t *g, tr_mode_t mode) {
    for (size_t i = 0; i < g->count; i++) {
        const tr_record_t *a = g->data[0], *b = g->data[i];
        if (mode == TR_MODE_WEAK ? !is_weak(a, b) : !is_strong(a, b)) return fail_batch(a, b, mode);
    }
    return TR_OK;
}

/* -- points ------------------------------------------------------------------------------------ */

/* The median over the repeats of the double at `offset` of a record. */
static double median_at(const tr_point_t *p, size_t offset) {
    double values[64];
    size_t count = 0;
    for (size_t i = 0; i < p->runs.count && count < TR_COUNT(values); i++)
        memcpy(&values[count++], (const char *)p->runs.data[i] + offset, sizeof(double));
    return tr_median(values, count);
}

static void take_medians(tr_point_t *p) {
    double *times = (double *)&p->times, *spread = (double *)&p->spread;
    for (size_t i = 0; i < sizeof p->times / sizeof(double); i++)
        times[i] = median_at(p, offsetof(tr_record_t, times) + i * sizeof(double));
    for (size_t i = 0; i < sizeof p->spread / sizeof(double); i++)
        spread[i] = median_at(p, offsetof(tr_record_t, spread) + i * sizeof(double));
    p->step_min = INFINITY;
    p->step_max = 0;
    for (size_t i = 0; i < p->runs.count; i++) {
        p->step_min = fmin(p->step_min, p->runs.data[i]->times.step);
        p->step_max = fmax(p->step_max, p->runs.data[i]->times.step);
    }
}

static tr_point_t new_point(tr_kind_t kind, int64_t nodes, int64_t ranks) {
    const tr_predicted_t none = {NAN, NAN, NAN};
    return (tr_point_t){.kind = kind,
                        .nodes = nodes,
                        .ranks = ranks,
                        .times = {NAN, NAN, NAN, NAN, NAN, NAN, NAN},
                        .spread = {NAN, NAN, NAN, NAN, NAN, NAN},
                        .step_min = NAN,
                        .step_max = NAN,
                        .efficiency = NAN,
                        .predicted_step = none,
                        .predicted_efficiency = none,
                        .predicted_comm = NAN};
}

static tr_status_t add_run(tr_sweep_t *sweep, const tr_record_t *r) {
    size_t i = 0;
    while (i < sweep->points.count &&
           (sweep->mode == TR_MODE_NONE || sweep->points.data[i].ranks != r->ranks ||
            sweep->points.data[i].nodes != r->nodes))
        i++;
    if (i == sweep->points.count) {
        tr_point_t point = new_point(r->kind, r->nodes, r->ranks);
        point.batch = r->batch;
        point.micro_batch = r->micro_batch;
        TR_TRY(tr_vec_push(&sweep->points, point));
    }
    return tr_vec_push(&sweep->points.data[i].runs, r);
}

static int by_ranks(const void *a, const void *b) {
    const tr_point_t *x = a, *y = b;
    if (x->ranks != y->ranks) return x->ranks < y->ranks ? -1 : 1;
    return (x->nodes > y->nodes) - (x->nodes < y->nodes);
}

const tr_point_t *tr_sweep_reference(const tr_sweep_t *sweep) {
    for (size_t i = 0; i < sweep->points.count; i++)
        if (sweep->points.data[i].runs.count > 0) return &sweep->points.data[i];
    return NULL;
}

static void finish(tr_sweep_t *sweep) {
    if (sweep->mode != TR_MODE_NONE)
        qsort(sweep->points.data, sweep->points.count, sizeof *sweep->points.data, by_ranks);
    const tr_point_t *ref = tr_sweep_reference(sweep);
    for (size_t i = 0; i < sweep->points.count; i++) {
        tr_point_t *p = &sweep->points.data[i];
        take_medians(p); /* the reference is the first */
        if (sweep->mode == TR_MODE_NONE) continue;
        p->efficiency = ref->times.step / p->times.step;
        if (sweep->mode == TR_MODE_STRONG) p->efficiency *= (double)ref->ranks / (double)p->ranks;
    }
}

static tr_status_t add_sweep(const group_t *g, tr_mode_t mode, tr_kind_t kind, tr_sweeps_t *out) {
    const tr_sweep_t empty = {.mode = mode, .kind = kind};
    if (mode != TR_MODE_NONE) TR_TRY(check_group(g, mode));
    TR_TRY(tr_vec_push(out, empty));
    tr_sweep_t *sweep = &out->data[out->count - 1];
    for (size_t i = 0; i < g->count; i++) TR_TRY(add_run(sweep, g->data[i]));
    finish(sweep);
    return TR_OK;
}

static tr_status_t add_group(const tr_record_t *records, size_t count, tr_mode_t named,
                             tr_kind_t kind, tr_sweeps_t *out) {
    group_t g = {0};
    tr_mode_t mode = named;
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < count && status == TR_OK; i++) {
        const tr_record_t *r = &records[i];
        const tr_mode_t mode_of_run = count == 1 ? TR_MODE_NONE : mode_of_name(r);
        if ((r->is_complete || count == 1) && r->kind == kind && mode_of_run == named)
            status = tr_vec_push(&g, r);
    }
    if (mode == TR_MODE_NONE) mode = guess_mode(&g);
    const tr_record_t *other = mode == TR_MODE_NONE ? other_ranks(&g) : NULL;
    if (status == TR_OK && other) status = fail_batch(g.data[0], other, mode);
    if (status == TR_OK && g.count > 0) status = add_sweep(&g, mode, kind, out);
    tr_vec_free(&g);
    return status;
}

tr_status_t tr_sweeps_make(const tr_record_t *records, size_t count, tr_sweeps_t *out) {
    static const tr_mode_t modes[] = {TR_MODE_WEAK, TR_MODE_STRONG, TR_MODE_NONE};
    tr_status_t status = TR_OK;
    *out = (tr_sweeps_t){0};
    for (size_t i = 0; i < TR_COUNT(modes) && status == TR_OK; i++)
        for (int kind = TR_KIND_MEASURED; kind <= TR_KIND_REPLAY && status == TR_OK; kind++)
            status = add_group(records, count, modes[i], (tr_kind_t)kind, out);
    bool any = false;
    for (size_t i = 0; i < out->count; i++) any |= out->data[i].mode != TR_MODE_NONE;
    if (status == TR_OK && any) status = check_same(records, count);
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

static tr_predicted_t band_of(const json_t *row, const char *key) {
    const json_t *value = json_object_get(row, key);
    if (json_is_number(value)) {
        const double number = json_number_value(value);
        return (tr_predicted_t){number, number, number};
    }
    return (tr_predicted_t){tr_json_number(value, "low"), tr_json_number(value, "expected"),
                            tr_json_number(value, "high")};
}

/* The point with these ranks, preferably with the same number of nodes: in a local sweep, the ranks
 * of one machine represent nodes. */
static tr_point_t *find_point(tr_sweep_t *sweep, int64_t nodes, int64_t ranks) {
    tr_point_t *found = NULL;
    for (size_t i = 0; i < sweep->points.count; i++) {
        tr_point_t *p = &sweep->points.data[i];
        if (p->ranks == ranks && (!found || p->nodes == nodes)) found = p;
    }
    return found;
}

static tr_status_t add_row(tr_sweep_t *sweep, const json_t *row) {
    const int64_t ranks = json_integer_value(json_object_get(row, "ranks")),
                  nodes = json_integer_value(json_object_get(row, "nodes"));
    tr_point_t *p = find_point(sweep, nodes, ranks);
    if (!p) {
        TR_TRY(tr_vec_push(&sweep->points, new_point(TR_KIND_PREDICTED, nodes, ranks)));
        p = &sweep->points.data[sweep->points.count - 1];
        p->batch = json_integer_value(json_object_get(row, "batch_global"));
        p->micro_batch = json_integer_value(json_object_get(row, "micro_batch"));
    }
    p->predicted_step = band_of(row, "step_ms");
    p->predicted_efficiency = band_of(row, "efficiency");
    p->predicted_comm = tr_json_number(row, "comm_exposed_ms");
    return TR_OK;
}

static tr_status_t check_prediction(const json_t *file, const char *path, tr_mode_t *out_mode) {
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
            band_of(row, "step_ms").expected > 0)
            continue;
        return TR_FAIL(TR_ERR_DATA, "%s: rows[%zu]: expected \"ranks\" and \"step_ms\" above 0",
                       path, i);
    }
    return TR_OK;
}

static tr_status_t sweep_of_mode(tr_sweeps_t *sweeps, tr_mode_t mode, tr_sweep_t **out) {
    const tr_sweep_t empty = {.mode = mode, .kind = TR_KIND_PREDICTED};
    for (size_t i = 0; i < sweeps->count; i++)
        if (sweeps->data[i].mode == mode) return *out = &sweeps->data[i], TR_OK;
    TR_TRY(tr_vec_push(sweeps, empty));
    *out = &sweeps->data[sweeps->count - 1];
    return TR_OK;
}

/* For each run of the sweep that records them. */
static tr_status_t check_predicted_runs(const tr_sweep_t *sweep, const json_t *file,
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
                text_of(predicted, &one);
                text_of(run, &other);
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

static tr_status_t predict(tr_sweeps_t *sweeps, const json_t *file, const char *path) {
    tr_mode_t mode;
    tr_sweep_t *sweep = NULL;
    const json_t *row;
    size_t i;
    TR_TRY(check_prediction(file, path, &mode));
    TR_TRY(sweep_of_mode(sweeps, mode, &sweep));
    TR_TRY(check_predicted_runs(sweep, file, path));
    json_array_foreach(json_object_get(file, "rows"), i, row) TR_TRY(add_row(sweep, row));
    qsort(sweep->points.data, sweep->points.count, sizeof *sweep->points.data, by_ranks);
    return TR_OK;
}

tr_status_t tr_sweeps_predict(tr_sweeps_t *sweeps, const char *path) {
    json_error_t error;
    json_t *file = json_load_file(path, 0, &error);
    if (!file && error.line < 0)
        return TR_FAIL(TR_ERR_NOINPUT, "--predicted: cannot read %s: %s", path, error.text);
    if (!file)
        return TR_FAIL(TR_ERR_DATA, "--predicted: %s, line %d: %s", path, error.line, error.text);
    const tr_status_t status = predict(sweeps, file, path);
    json_decref(file);
    return status;
}
