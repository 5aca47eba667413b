/* The part of `bench step --json` that describes the timeline of a step. */
#include "bench.h"
#include "base/stats.h"
#include "base/mem.h"

#include <jansson.h>
#include <stdlib.h>
#include <string.h>

tr_status_t bench_time_ops(tr_graph_t *g, int program, int repeats, bench_op_t **out) {
    const int n = tr_program_op_count(g, program);
    double *sec = NULL, *of_op = NULL; /* [repeats][n]; [repeats] */
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc((size_t)n * sizeof **out, "op times", out));
    TR_TRY_GOTO(tr_alloc((size_t)n * (size_t)repeats * sizeof *sec, "op times", &sec), done);
    TR_TRY_GOTO(tr_alloc((size_t)repeats * sizeof *of_op, "op times", &of_op), done);
    for (int k = 0; k < repeats; k++)
        TR_TRY_GOTO(tr_program_profile(g, program, sec + (size_t)k * (size_t)n), done);
    for (int i = 0; i < n; i++) {
        for (int k = 0; k < repeats; k++) of_op[k] = sec[(size_t)k * (size_t)n + (size_t)i];
        tr_sort(of_op, repeats);
        (*out)[i] = (bench_op_t){of_op[0], of_op[repeats / 2], of_op[(repeats - 1) * 95 / 100], 0};
    }
done:
    tr_free(&sec);
    tr_free(&of_op);
    if (status != TR_OK) tr_free(out);
    return status;
}

static void bench_add_ops(json_t *to, const tr_session_t *s, const bench_op_t *times) {
    json_t *ops = json_array(), *buckets = json_array();
    for (int i = 0; i < tr_program_op_count(s->g, s->last); i++) {
        const tr_op_t *op = tr_program_op(s->g, s->last, i);
        if (op->kind == TR_OP_COLLECTIVE)
            json_array_append_new(
                buckets, json_pack("{s:i, s:I}", "after_op", (int)json_array_size(ops) - 1, "bytes",
                                   (json_int_t)(op->collective.count *
                                                (int64_t)tr_dtype_bytes(op->collective.type))));
        if (op->kind != TR_OP_KERNEL) continue;
        json_array_append_new(
            ops, json_pack("{s:s, s:s, s:f, s:f, s:f, s:f, s:f, s:f}", "op", op->row->name, "layer",
                           op->label, "sec", times[i].best_sec, "sec_median", times[i].median_sec,
                           "sec_p95", times[i].p95_sec, "flops", tr_op_flops(s->g, op), "bytes",
                           tr_op_bytes(s->g, op), "floor_sec", times[i].floor_sec));
    }
    json_object_set_new(to, "ops", ops);
    json_object_set_new(to, "buckets", buckets);
}

tr_status_t bench_add_timeline(json_t *to, const tr_session_t *s, const bench_op_t *op,
                               const double *compute_sec, int64_t steps) {
    tr_str_t config = {0};
    json_t *compute = json_array();
    TR_TRY(tr_config_serialize(s->config, &config));
    for (int64_t i = 0; i < steps; i++) json_array_append_new(compute, json_real(compute_sec[i]));
    json_object_set_new(to, "config", json_string(config.text));
    json_object_set_new(to, "slots", json_integer(s->slot_count));
    json_object_set_new(to, "compute_sec", compute);
    bench_add_ops(to, s, op);
    tr_str_free(&config);
    return TR_OK;
}
