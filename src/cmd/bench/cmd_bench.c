/* trainer bench step CONFIG.ini [--steps N] [--devices D,D] [--json FILE] [key=value ...]: times
 * the training step on data already in memory. */
#include "bench.h"
#include "cmd/cmd.h"
#include "base/stats.h"
#include "base/clock.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "device/device.h"
#include "run/run.h"
#include "session/session.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 4 };

typedef struct {
    const char *path, *json;
    int64_t steps;
    int assignments;
    char **assignment;
    char device[MOST_DEVICES][32]; /* of --devices */
    int devices;                   /* 0: the one of the configuration */
} options_t;

typedef struct {
    tr_session_t *s;
    tr_loader_t *loader;
    tr_collectives_t *collectives;
    tr_train_step_t *train_step;
    double median_sec, best_sec, exposed, busy, peak_flops, peak_bytes;
    int64_t steps, warm;
    double ended_sec;    /* when the outcome of the last step was known */
    double *step_sec;    /* [steps] */
    double *compute_sec; /* [steps] step times less exposed communication, ascending */
    bench_op_t *op;      /* [ops of last] */
    double update_sec;
    double programs_sec; /* of one step; NAN on an immediate device */
    size_t memory_free;  /* of the device, before memory was allocated; 0: not known */
    size_t planned_bytes, taken_bytes; /* of the device; taken_bytes 0: not known */
} bench_t;

static tr_status_t parse_devices(const char *list, options_t *o) {
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        const tr_backend_t *backend = NULL;
        if (o->devices == MOST_DEVICES)
            return TR_FAIL(TR_ERR_USAGE, "--devices %s: expected at most %d names", list,
                           MOST_DEVICES);
        snprintf(o->device[o->devices], sizeof o->device[0], "%.*s", (int)strcspn(p, ","), p);
        TR_TRY(tr_backend_find(o->device[o->devices++], &backend));
    }
    return TR_OK;
}

static tr_status_t parse(int argc, char **argv, options_t *o) {
    int kept = 0;
    *o = (options_t){.steps = 50, .assignment = argv};
    for (int i = 2; i < argc; i++) {
        if (strcmp(argv[i], "--json") == 0 && i + 1 < argc)
            o->json = argv[++i];
        else if (strcmp(argv[i], "--devices") == 0 && i + 1 < argc)
            TR_TRY(parse_devices(argv[++i], o));
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

/* A step ends when its outcome is known: on an asynchronous device after the first micro-batch of
 * the next step is enqueued, as in training. Nothing waits for the device in between. */
static void note(bench_t *b, const tr_step_outcome_t *o) {
    const double now = tr_clock_sec();
    const int64_t i = o->step - b->warm;
    if (o->step < 0) return;
    if (i >= 0) {
        b->step_sec[i] = now - b->ended_sec;
        b->compute_sec[i] = b->step_sec[i] - (isfinite(o->exposed_sec) ? o->exposed_sec : 0);
        b->exposed += o->exposed_sec;
        b->busy += o->busy_sec;
    }
    b->ended_sec = now;
}

static tr_status_t run_steps(bench_t *b) {
    tr_step_outcome_t o;
    const double lr = b->s->optim.lr;
    for (int64_t i = 0; i < b->warm + b->steps; i++) {
        TR_TRY(tr_train_step_begin(b->train_step, i, lr, false, false, &o));
        note(b, &o);
        TR_TRY(tr_train_step_end(b->train_step, &o));
        note(b, &o);
    }
    TR_TRY(tr_train_step_drain(b->train_step, &o));
    note(b, &o);
    return TR_OK;
}

/* Without a wait, both sets of inputs are used three times before: the third use captures. */
static tr_status_t time_steps(bench_t *b, int64_t steps) {
    const int64_t most = b->s->device->immediate ? 5 : 8;
    double all = 0;
    b->steps = steps;
    b->warm = steps < most ? steps : most;
    TR_TRY(tr_alloc((size_t)steps * sizeof *b->compute_sec, "step times", &b->compute_sec));
    TR_TRY(tr_alloc((size_t)steps * sizeof *b->step_sec, "step times", &b->step_sec));
    TR_TRY(run_steps(b));
    for (int64_t i = 0; i < steps; i++) all += b->step_sec[i];
    tr_sort(b->step_sec, steps);
    tr_sort(b->compute_sec, steps);
    b->best_sec = b->step_sec[0];
    b->median_sec = b->step_sec[steps / 2];
    b->exposed /= all;
    b->busy /= all;
    return TR_OK;
}

/* The programs of a step, back to back: what remains of a step time is time in which the device
 * waits for inputs or for the host. Asynchronous devices only. */
static tr_status_t time_programs(bench_t *b, int64_t steps) {
    const tr_session_t *s = b->s;
    const int64_t warm = 3, repeats = steps < 20 ? steps : 20;
    double began = 0;
    b->programs_sec = NAN;
    if (s->device->immediate || s->tree) return TR_OK;
    for (int64_t i = -warm; i < repeats; i++) {
        if (i == 0) TR_TRY(tr_graph_sync(s->g));
        if (i == 0) began = tr_clock_sec();
        for (int64_t slot = 1; slot < s->slot_count; slot++)
            TR_TRY(tr_program_run(s->g, slot == 1 ? s->first : s->micro, b->collectives));
        TR_TRY(tr_program_run(s->g, s->last, b->collectives));
        TR_TRY(tr_program_run(s->g, s->update, NULL));
    }
    TR_TRY(tr_graph_sync(s->g));
    b->programs_sec = (tr_clock_sec() - began) / (double)repeats;
    return TR_OK;
}

static void note_memory(bench_t *b) {
    const tr_device_t *device = b->s->device;
    size_t left = 0, total = 0;
    b->planned_bytes = tr_graph_memory(b->s->g).total;
    if (!b->memory_free || device->ops->memory_info(b->s->device, &left, &total) != TR_OK) return;
    if (left < b->memory_free) b->taken_bytes = b->memory_free - left;
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
    note_memory(b);
    TR_TRY(time_programs(b, o->steps));
    return time_ops(b, o->steps);
}

/* -- showing ----------------------------------------------------------------------------------- */

static double step_flops(const bench_t *b) {
    double flops = 0;
    for (int i = 0; i < tr_program_op_count(b->s->g, b->s->last); i++)
        flops += tr_op_flops(b->s->g, tr_program_op(b->s->g, b->s->last, i));
    return flops * (double)b->s->slots;
}

static double idle_share(const bench_t *b) {
    return fmax(0, 1 - b->programs_sec / b->median_sec);
}

static void print_memory(const bench_t *b) {
    char planned[32], taken[32];
    printf("memory    %s planned", tr_format_bytes((double)b->planned_bytes, planned));
    if (b->taken_bytes > 0)
        printf(", %s taken from the device, %+.1f %%",
               tr_format_bytes((double)b->taken_bytes, taken),
               100 * ((double)b->taken_bytes / (double)b->planned_bytes - 1));
    printf("\n");
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
    printf("%s: %d rank%s", s->model.type, s->params.size, s->params.size > 1 ? "s" : "");
    if (s->device->threads > 0)
        printf(" x %d thread%s", s->device->threads, s->device->threads > 1 ? "s" : "");
    printf(" on %s\n", s->device->description);
    printf("step      median %.3f ms, best %.3f ms   batch %lld = %lld x %lld\n",
           b->median_sec * 1e3, b->best_sec * 1e3, (long long)s->order.batch_size,
           (long long)s->slots, (long long)s->order.micro_batch);
    printf("samples/s median %.1f, best %.1f\n", batch / b->median_sec, batch / b->best_sec);
    printf("rate      %.1f GFLOP/s", flops / b->median_sec / 1e9);
    if (all_ranks > 0) printf("; multiply-adds alone reach %.1f GFLOP/s", all_ranks / 1e9);
    printf("\n");
    if (isfinite(b->programs_sec))
        printf("programs  %.3f ms, back to back: the device is idle for %.2f %% of the step\n",
               b->programs_sec * 1e3, 100 * idle_share(b));
    print_memory(b);
    if (s->params.size > 1 && !isfinite(b->exposed))
        printf("exposed   not measured\n");
    else if (s->params.size > 1)
        printf("exposed   %.2f %% of the step is communication not overlapped with compute, of "
               "%.2f %% in total\n",
               100 * b->exposed, 100 * b->busy);
    print_ops(b);
}

static tr_status_t profile_json(const bench_t *b, json_t **out) {
    const tr_session_t *s = b->s;
    const double batch = (double)s->order.batch_size;
    json_t *o = *out = json_pack(
        "{s:s, s:i, s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:s, s:s, s:s}",
        "kind", "profile", "ranks", s->params.size, "threads", s->device->threads, "batch_size",
        (json_int_t)s->order.batch_size, "micro_batch", (json_int_t)s->order.micro_batch,
        "step_sec_median", b->median_sec, "step_sec_best", b->best_sec, "samples_per_sec_median",
        batch / b->median_sec, "samples_per_sec_best", batch / b->best_sec, "gflops",
        step_flops(b) / b->median_sec / 1e9, "peak_gflops", b->peak_flops * s->params.size / 1e9,
        "comm_exposed", tr_json_measured(b->exposed), "comm_busy", tr_json_measured(b->busy),
        "update_sec", b->update_sec, "device", s->device->description, "device_name",
        s->device->ops->name, "version", cmd_version);
    json_object_set_new(o, "parameters", json_integer((json_int_t)s->parameters));
    json_object_set_new(o, "programs_sec", tr_json_measured(b->programs_sec));
    json_object_set_new(o, "idle_share", tr_json_measured(idle_share(b)));
    json_object_set_new(o, "memory_planned_bytes", json_integer((json_int_t)b->planned_bytes));
    json_object_set_new(o, "memory_taken_bytes",
                        b->taken_bytes ? json_integer((json_int_t)b->taken_bytes) : json_null());
    return bench_add_timeline(o, s, b->op, b->compute_sec, b->steps);
}

static tr_status_t start(bench_t *b, tr_world_t *world) {
    const tr_device_ops_t *ops = b->s->device->ops;
    size_t total = 0;
    if (tr_world_info(world)->size > 1)
        TR_TRY(tr_world_collectives(world, b->s->device, &b->s->parallel, &b->collectives));
    if (ops->memory_info && !b->s->device->immediate)
        TR_TRY(ops->memory_info(b->s->device, &b->memory_free, &total));
    return tr_session_start(b->s, b->collectives);
}

/* Measures and prints; *out_profile is JSON (rank 0), *out_sec the median step. */
static tr_status_t bench(tr_world_t *world, const tr_config_t *config, const options_t *o,
                         json_t **out_profile, double *out_sec) {
    const tr_world_info_t *info = tr_world_info(world);
    const tr_session_params_t params = {.training = true,
                                        .buckets = true,
                                        .split = TR_SPLIT_TRAIN,
                                        .rank = info->rank,
                                        .size = info->size};
    bench_t b = {0};
    TR_TRY(tr_session_create(config, world, &params, &b.s));
    if (b.s->data.prefetch < b.s->slot_count + 1) b.s->data.prefetch = b.s->slot_count + 1;
    tr_status_t status = start(&b, world);
    if (status == TR_OK) status = measure(&b, o);
    if (status == TR_OK && info->rank == 0) {
        if (!cmd_json_is_stdout(o->json)) print_result(&b);
        status = profile_json(&b, out_profile);
    }
    *out_sec = b.median_sec;
    /* its peers wait in a collective: only main can end them */
    if (status != TR_OK && info->size > 1) return status;
    tr_train_step_destroy(&b.train_step);
    tr_loader_destroy(&b.loader);
    tr_graph_drop_captures(b.s->g);
    if (b.collectives) tr_world_collectives_close(world, &b.collectives);
    tr_free(&b.op);
    tr_free(&b.compute_sec);
    tr_free(&b.step_sec);
    tr_session_destroy(&b.s);
    return status;
}

static tr_status_t bench_one(tr_world_t *world, const tr_config_t *config, const void *options) {
    const options_t *o = options;
    json_t *profile = NULL;
    double sec;
    TR_TRY(bench(world, config, o, &profile, &sec));
    if (!profile || !o->json) return json_decref(profile), TR_OK;
    return cmd_json_write(profile, o->json);
}

static tr_status_t bench_device(const options_t *o, tr_world_t *world, const char *name,
                                json_t **out_profile, double *out_sec) {
    char assignment[64], **all = NULL;
    tr_config_t *config = NULL;
    const size_t count = (size_t)o->assignments;
    snprintf(assignment, sizeof assignment, "device=%s", name);
    TR_TRY(tr_alloc((count + 1) * sizeof *all, "the settings", &all));
    memcpy(all, o->assignment, count * sizeof *all);
    all[count] = assignment;
    tr_status_t status = cmd_config_load_all(world, o->path, o->assignments + 1, all, &config);
    if (status == TR_OK) status = bench(world, config, o, out_profile, out_sec);
    tr_config_destroy(&config);
    tr_free(&all);
    return status;
}

/* Each device in turn; the last line compares every device with the first. */
static tr_status_t bench_devices(const options_t *o, tr_world_t *world) {
    const bool is_root = tr_world_info(world)->rank == 0;
    const bool prints = is_root && !cmd_json_is_stdout(o->json);
    json_t *profiles = json_array(), *speedups = json_array();
    double sec[MOST_DEVICES];
    for (int i = 0; i < o->devices; i++) {
        json_t *profile = NULL;
        if (prints && i > 0) printf("\n");
        TR_TRY(bench_device(o, world, o->device[i], &profile, &sec[i]));
        if (profile) json_array_append_new(profiles, profile);
        json_array_append_new(speedups, json_real(sec[0] / sec[i]));
    }
    for (int i = 1; i < o->devices && prints; i++)
        printf("\nspeedup   %s %.2f x %s (median step %.3f ms and %.3f ms)\n", o->device[i],
               sec[0] / sec[i], o->device[0], sec[i] * 1e3, sec[0] * 1e3);
    json_t *all =
        json_pack("{s:s, s:o, s:o}", "kind", "devices", "profiles", profiles, "speedups", speedups);
    if (is_root && o->json) return cmd_json_write(all, o->json);
    json_decref(all);
    return TR_OK;
}

static tr_status_t fail_target(const char *found) {
    static const char *const targets[] = {"step",   "allreduce", "attention",
                                          "matmul", "precision", "generate"};
    const char *nearest = tr_nearest(found, targets, TR_COUNT(targets));
    return TR_FAIL(TR_ERR_USAGE,
                   "bench: unknown target '%s': expected step, allreduce, attention, matmul, "
                   "precision or generate%s%s%s. "
                   "See trainer bench --help",
                   found, nearest ? " (did you mean " : "", nearest ? nearest : "",
                   nearest ? "?)" : "");
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
    if (argc > 1 && strcmp(argv[1], "matmul") == 0) return cmd_bench_matmul(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "precision") == 0)
        return cmd_bench_precision(argc - 1, argv + 1);
    if (argc > 1 && strcmp(argv[1], "generate") == 0) return cmd_bench_generate(argc - 1, argv + 1);
    if (argc < 2)
        return TR_FAIL(TR_ERR_USAGE, "bench requires a target: step, allreduce, attention, matmul, "
                                     "precision or generate. See "
                                     "trainer bench --help");
    if (strcmp(argv[1], "step") != 0) return fail_target(argv[1]);
    TR_TRY(parse(argc, argv, &o));
    if (o.devices == 0) return bench_on_ranks(o.path, o.assignments, o.assignment, bench_one, &o);
    tr_world_t *world = NULL;
    TR_TRY(cmd_world_open(&world));
    const tr_status_t status = bench_devices(&o, world);
    if (status == TR_OK) cmd_world_close(&world);
    return status;
}
