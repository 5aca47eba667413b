/* trainer bench step CONFIG.ini [--steps N] [--json FILE] [key=value ...]: times the training step
 * on data already in memory. */
#include "bench.h"
#include "cmd.h"
#include "trainer/stats.h"
#include "trainer/clock.h"
#include "trainer/log.h"
#include "trainer/mem.h"
#include "train/session.h"

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *path, *json;
    int64_t steps;
    int assignments;
    char **assignment;
} options_t;

typedef struct {
    tr_session_t *s;
    tr_loader_t *loader;
    tr_collectives_t *collectives;
    tr_train_step_t *train_step;
    double median_sec, best_sec, exposed, busy, peak_flops, peak_bytes;
    int64_t steps;
    double *compute_sec; /* [steps] step times less exposed communication, ascending */
    bench_op_t *op;      /* [ops of last] */
    double update_sec;
} bench_t;

static tr_status_t parse(int argc, char **argv, options_t *o) {
    int kept = 0;
    *o = (options_t){.steps = 50, .assignment = argv};
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
            o->json = argv[++i];
        else if (strcmp(argv[i], "--steps") == 0 && i + 1 < argc) {
            if (!tr_parse_int(argv[++i], &o->steps) || o->steps < 1)
                return TR_FAIL(TR_ERR_USAGE, "--steps %s: expected a positive integer", argv[i]);
        } else if (argv[i][0] == '-')
            return cmd_fail_option("bench step", argv[i]);
        else if (!o->path)
            o->path = argv[i];
        else
            argv[kept++] = argv[i];
    }
    o->assignments = kept;
    return o->path ? TR_OK : TR_FAIL(TR_ERR_USAGE, "bench step requires a configuration file");
}

/* -- measuring --------------------------------------------------------------------------------- */

static tr_status_t time_steps(bench_t *b, int64_t steps) {
    double *sec = NULL, exposed = 0, busy = 0, all = 0;
    tr_status_t status = TR_OK;
    const int64_t warm = steps < 5 ? steps : 5;
    b->steps = steps;
    TR_TRY(tr_alloc((size_t)steps * sizeof *b->compute_sec, "step times", &b->compute_sec));
    TR_TRY(tr_alloc((size_t)steps * sizeof *sec, "step times", &sec));
    for (int64_t i = -warm; i < steps; i++) {
        tr_step_outcome_t o;
        const double start = tr_clock_sec();
        TR_TRY_GOTO(tr_train_step_run(b->train_step, warm + i, b->s->optim.lr, false, &o), done);
        if (i < 0) continue;
        sec[i] = tr_clock_sec() - start;
        b->compute_sec[i] = sec[i] - o.exposed_sec;
        exposed += o.exposed_sec;
        busy += o.busy_sec;
        all += sec[i];
    }
    tr_sort(sec, steps);
    tr_sort(b->compute_sec, steps);
    b->best_sec = sec[0];
    b->median_sec = sec[steps / 2];
    b->exposed = exposed / all;
    b->busy = busy / all;
done:
    tr_free(&sec);
    return status;
}

static tr_status_t time_ops(bench_t *b, int64_t steps) {
    const int repeats = steps < 20 ? (int)steps : 20;
    bench_op_t *update = NULL;
    TR_TRY(bench_time_ops(b->s->g, b->s->last, repeats, &b->op));
    TR_TRY(bench_time_ops(b->s->g, b->s->update, repeats, &update));
    for (int i = 0; i < tr_program_op_count(b->s->g, b->s->update); i++)
        b->update_sec += update[i].best_sec;
    tr_free(&update);
    return TR_OK;
}

static tr_status_t measure(bench_t *b, const options_t *o) {
    const tr_device_ops_t *device = b->s->device->ops;
    if (device->measure_peak)
        TR_TRY(device->measure_peak(b->s->device, TR_F32, &b->peak_flops, &b->peak_bytes));
    TR_TRY(tr_session_loader(b->s, TR_SPLIT_TRAIN, false, 0, &b->loader));
    TR_TRY(tr_train_step_create(b->s, b->collectives, b->loader, &b->train_step));
    TR_TRY(tr_train_step_hold(b->train_step));
    TR_TRY(time_steps(b, o->steps));
    return time_ops(b, o->steps);
}

/* -- showing ----------------------------------------------------------------------------------- */

static double step_flops(const bench_t *b) {
    double flops = 0;
    for (int i = 0; i < tr_program_op_count(b->s->g, b->s->last); i++)
        flops += tr_op_flops(b->s->g, tr_program_op(b->s->g, b->s->last, i));
    return flops * (double)b->s->slots;
}

static void print_ops(const bench_t *b) {
    double sum = b->update_sec;
    const double slots = (double)b->s->slot_count;
    const int n = tr_program_op_count(b->s->g, b->s->last);
    for (int i = 0; i < n; i++) sum += b->op[i].best_sec * slots;
    printf("\n%9s %6s %10s %9s  %-18s %s\n", "ms/step", "%", "GFLOP/s", "GB/s", "op", "layer");
    for (int i = 0; i < n; i++) {
        const tr_op_t *op = tr_program_op(b->s->g, b->s->last, i);
        const double sec = b->op[i].best_sec;
        if (op->kind != TR_OP_KERNEL || sec <= 0) continue;
        printf("%9.3f %6.1f %10.1f %9.1f  %-18s %s\n", sec * slots * 1e3, 100 * sec * slots / sum,
               tr_op_flops(b->s->g, op) / sec / 1e9, tr_op_bytes(b->s->g, op) / sec / 1e9,
               op->row->name, op->label);
    }
    printf("%9.3f %6.1f %10s %9s  %s\n", b->update_sec * 1e3, 100 * b->update_sec / sum, "", "",
           "update");
    printf("%9.3f %6.1f\n", sum * 1e3, 100.0);
}

static void print_result(const bench_t *b) {
    const tr_session_t *s = b->s;
    const double batch = (double)s->order.batch_size, flops = step_flops(b),
                 all_ranks = b->peak_flops * s->params.size;
    printf("%s: %d rank%s x %d thread%s on %s\n", s->model.type, s->params.size,
           s->params.size > 1 ? "s" : "", s->device->threads, s->device->threads > 1 ? "s" : "",
           s->device->description);
    printf("step      median %.3f ms, best %.3f ms   batch %lld = %lld x %lld\n",
           b->median_sec * 1e3, b->best_sec * 1e3, (long long)s->order.batch_size,
           (long long)s->slots, (long long)s->order.micro_batch);
    printf("samples/s median %.1f, best %.1f\n", batch / b->median_sec, batch / b->best_sec);
    printf("rate      %.1f GFLOP/s", flops / b->median_sec / 1e9);
    if (all_ranks > 0)
        printf(" = %.1f %% of the measured peak of %.1f GFLOP/s",
               100 * flops / b->median_sec / all_ranks, all_ranks / 1e9);
    printf("\n");
    if (s->params.size > 1)
        printf("exposed   %.2f %% of the step is communication not overlapped with compute, of "
               "%.2f %% in total\n",
               100 * b->exposed, 100 * b->busy);
    print_ops(b);
}

static tr_status_t write_json(const bench_t *b, const char *path) {
    const tr_session_t *s = b->s;
    const double batch = (double)s->order.batch_size;
    json_t *o = json_pack(
        "{s:s, s:i, s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:f, s:s, s:s}", "kind",
        "profile", "ranks", s->params.size, "threads", s->device->threads, "batch_size",
        (json_int_t)s->order.batch_size, "micro_batch", (json_int_t)s->order.micro_batch,
        "step_sec_median", b->median_sec, "step_sec_best", b->best_sec, "samples_per_sec_median",
        batch / b->median_sec, "samples_per_sec_best", batch / b->best_sec, "gflops",
        step_flops(b) / b->median_sec / 1e9, "peak_gflops", b->peak_flops * s->params.size / 1e9,
        "comm_exposed", b->exposed, "comm_busy", b->busy, "update_sec", b->update_sec, "device",
        s->device->description, "version", cmd_version);
    json_object_set_new(o, "parameters", json_integer((json_int_t)s->parameters));
    TR_TRY(bench_add_timeline(o, s, b->op, b->compute_sec, b->steps));
    return cmd_json_write(o, path);
}

static tr_status_t bench(tr_world_t *world, const tr_config_t *config, const void *options) {
    const options_t *o = options;
    const tr_world_info_t *info = tr_world_info(world);
    const tr_session_params_t params = {.training = true,
                                        .buckets = true,
                                        .split = TR_SPLIT_TRAIN,
                                        .rank = info->rank,
                                        .size = info->size};
    bench_t b = {0};
    TR_TRY(tr_session_create(config, world, &params, &b.s));
    if (b.s->data.prefetch < b.s->slot_count + 1) b.s->data.prefetch = b.s->slot_count + 1;
    tr_status_t status = TR_OK;
    if (info->size > 1)
        status = tr_world_collectives(world, b.s->device, &b.s->parallel, &b.collectives);
    if (status == TR_OK) status = tr_session_start(b.s, b.collectives);
    if (status == TR_OK) status = measure(&b, o);
    if (status == TR_OK && info->rank == 0) {
        if (!cmd_json_is_stdout(o->json)) print_result(&b);
        if (o->json) status = write_json(&b, o->json);
    }
    /* its peers wait in a collective: only main can end them */
    if (status != TR_OK && info->size > 1) return status;
    tr_train_step_destroy(&b.train_step);
    tr_loader_destroy(&b.loader);
    tr_graph_drop_captures(b.s->g);
    if (b.collectives) tr_world_collectives_close(world, &b.collectives);
    tr_free(&b.op);
    tr_free(&b.compute_sec);
    tr_session_destroy(&b.s);
    return status;
}

static tr_status_t fail_target(const char *found) {
    static const char *const targets[] = {"step", "allreduce", "attention", "generate"};
    const char *nearest = tr_nearest(found, targets, TR_COUNT(targets));
    return TR_FAIL(
        TR_ERR_USAGE,
        "bench: unknown target '%s': expected step, allreduce, attention or generate%s%s%s. "
        "See trainer bench --help",
        found, nearest ? " (did you mean " : "", nearest ? nearest : "", nearest ? "?)" : "");
}

tr_status_t bench_on_ranks(const char *path, int count, char **assignments,
                           tr_status_t (*run)(tr_world_t *world, const tr_config_t *config,
                                              const void *options),
                           const void *options) {
    tr_world_t *world = NULL;
    tr_config_t *config = NULL;
    TR_TRY(cmd_world_open(&world));
    TR_TRY(cmd_config_load_all(world, path, count, assignments, &config));
    const tr_status_t status = run(world, config, options);
    tr_config_destroy(&config);
    if (status == TR_OK)
        cmd_world_close(&world); /* else main ends the other ranks, which may wait */
    return status;
}

tr_status_t cmd_bench(int argc, char **argv) {
    options_t o;
    if (argc > 1 && strcmp(argv[1], "allreduce") == 0)
        return cmd_bench_allreduce(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "attention") == 0)
        return cmd_bench_attention(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "generate") == 0) return cmd_bench_generate(argc - 1, argv + 1);
    if (argc < 2)
        return TR_FAIL(TR_ERR_USAGE,
                       "bench requires a target: step, allreduce, attention or generate. See "
                       "trainer bench --help");
    if (strcmp(argv[1], "step") != 0) return fail_target(argv[1]);
    TR_TRY(parse(argc, argv, &o));
    return bench_on_ranks(o.path, o.assignments, o.assignment, bench, &o);
}
