/* trainer bench TARGET, and its first target, bench step CONFIG.ini: times the training step on data
 * already in memory. */
#include "bench.h"
#include "cmd/cmd.h"
#include "base/stats.h"
#include "base/clock.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "device/device.h"
#include "run/run.h"
#include "session/feed.h"
#include "session/session.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 4, MOST_REPEATS = 20 };

typedef struct {
    const char *path, *json, *devices; /* devices NULL: the one of the configuration */
    cmd_words_t settings;
    int64_t steps;
} bench_step_options_t;

/* The measurement of one device. */
typedef struct {
    tr_config_t *config;
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
    double flops;                      /* of one step on all ranks */
    double programs_sec;               /* of one step; NAN on an immediate device */
    double idle;                       /* share of a step; NAN likewise */
    size_t planned_bytes, taken_bytes; /* of the device; taken_bytes 0: not known */
} bench_step_t;

/* -- measuring --------------------------------------------------------------------------------- */

/* A step ends when its outcome is known: on an asynchronous device after the first micro-batch of
 * the next step is enqueued, as in training. Nothing waits for the device in between. */
static void bench_step_note(bench_step_t *b, const tr_step_outcome_t *o) {
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

static tr_status_t bench_step_time_steps(bench_step_t *b) {
    /* Without a wait, each set of inputs is used three times before: the third use captures. */
    const int64_t most = b->s->device->immediate ? 5 : 3 * tr_feed_sets(b->s) + 2, steps = b->steps;
    const double lr = b->s->optim.lr;
    tr_step_outcome_t o;
    double all = 0;
    b->warm = steps < most ? steps : most;
    TR_TRY(tr_alloc((size_t)steps * sizeof *b->compute_sec, "step times", &b->compute_sec));
    TR_TRY(tr_alloc((size_t)steps * sizeof *b->step_sec, "step times", &b->step_sec));
    for (int64_t i = 0; i < b->warm + steps; i++) {
        TR_TRY(tr_train_step_begin(b->train_step, i, lr, false, false, &o));
        bench_step_note(b, &o);
        TR_TRY(tr_train_step_end(b->train_step, &o));
        bench_step_note(b, &o);
    }
    TR_TRY(tr_train_step_drain(b->train_step, &o));
    bench_step_note(b, &o);
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
static tr_status_t bench_step_time_programs(bench_step_t *b) {
    const tr_session_t *s = b->s;
    const int64_t warm = 3, repeats = b->steps < MOST_REPEATS ? b->steps : MOST_REPEATS;
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

static tr_status_t bench_step_measure(bench_step_t *b, tr_world_t *world, const char *path,
                                      cmd_words_t settings) {
    const tr_world_info_t *info = tr_world_info(world);
    const tr_session_params_t params = {.training = true,
                                        .buckets = true,
                                        .split = TR_SPLIT_TRAIN,
                                        .rank = info->rank,
                                        .size = info->size};
    const int repeats = b->steps < MOST_REPEATS ? (int)b->steps : MOST_REPEATS;
    bench_op_t *update = NULL;
    size_t free_before = 0, free_after = 0, total = 0; /* bytes of the device; 0: not known */
    TR_TRY(cmd_config_load_all(world, path, settings, &b->config));
    TR_TRY(tr_session_create(b->config, world, &params, &b->s));
    tr_session_t *s = b->s;
    const tr_device_ops_t *device = s->device->ops;
    if (s->data.prefetch < s->slot_count + 1) s->data.prefetch = s->slot_count + 1;
    if (info->size > 1)
        TR_TRY(tr_world_collectives(world, s->device, &s->parallel, &b->collectives));
    if (device->memory_info && !s->device->immediate)
        TR_TRY(device->memory_info(s->device, &free_before, &total));
    TR_TRY(tr_session_start(s, b->collectives));
    if (device->measure_peak)
        TR_TRY(device->measure_peak(s->device, TR_F32, &b->peak_flops, &b->peak_bytes));
    TR_TRY(tr_session_loader(s, TR_SPLIT_TRAIN, false, 0, &b->loader));
    TR_TRY(tr_train_step_create(s, b->collectives, b->loader, &b->train_step));
    TR_TRY(tr_train_step_hold(b->train_step));
    TR_TRY(bench_step_time_steps(b));
    b->planned_bytes = tr_graph_memory(s->g).total;
    if (free_before && device->memory_info(s->device, &free_after, &total) == TR_OK &&
        free_after < free_before)
        b->taken_bytes = free_before - free_after;
    TR_TRY(bench_step_time_programs(b));
    b->idle = fmax(0, 1 - b->programs_sec / b->median_sec);
    TR_TRY(bench_time_ops(s->g, s->last, repeats, &b->op));
    TR_TRY(bench_time_ops(s->g, s->update, repeats, &update));
    for (int i = 0; i < tr_program_op_count(s->g, s->update); i++)
        b->update_sec += update[i].best_sec;
    for (int i = 0; i < tr_program_op_count(s->g, s->last); i++)
        b->flops += tr_op_flops(s->g, tr_program_op(s->g, s->last, i)) * (double)s->slots;
    tr_free(&update);
    return TR_OK;
}

/* -- results ----------------------------------------------------------------------------------- */

static void bench_step_print_ops(const bench_step_t *b) {
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

static void bench_step_print(const bench_step_t *b) {
    const tr_session_t *s = b->s;
    const double batch = (double)s->order.batch_size, peak = b->peak_flops * s->params.size;
    char text[32];
    printf("%s: %d rank%s", s->model.type, s->params.size, s->params.size > 1 ? "s" : "");
    if (s->device->threads > 0)
        printf(" x %d thread%s", s->device->threads, s->device->threads > 1 ? "s" : "");
    printf(" on %s\n", s->device->description);
    printf("step      median %.3f ms, best %.3f ms   batch %lld = %lld x %lld\n",
           b->median_sec * 1e3, b->best_sec * 1e3, (long long)s->order.batch_size,
           (long long)s->slots, (long long)s->order.micro_batch);
    printf("samples/s median %.1f, best %.1f\n", batch / b->median_sec, batch / b->best_sec);
    printf("rate      %.1f GFLOP/s", b->flops / b->median_sec / 1e9);
    if (peak > 0) printf("; multiply-adds alone reach %.1f GFLOP/s", peak / 1e9);
    printf("\n");
    if (isfinite(b->programs_sec))
        printf("programs  %.3f ms, back to back: the device is idle for %.2f %% of the step\n",
               b->programs_sec * 1e3, 100 * b->idle);
    printf("memory    %s planned", tr_format_bytes((double)b->planned_bytes, text));
    if (b->taken_bytes > 0)
        printf(", %s taken from the device, %+.1f %%",
               tr_format_bytes((double)b->taken_bytes, text),
               100 * ((double)b->taken_bytes / (double)b->planned_bytes - 1));
    printf("\n");
    if (s->params.size > 1 && !isfinite(b->exposed))
        printf("exposed   not measured\n");
    else if (s->params.size > 1)
        printf("exposed   %.2f %% of the step is communication not overlapped with compute, of "
               "%.2f %% in total\n",
               100 * b->exposed, 100 * b->busy);
    bench_step_print_ops(b);
}

static tr_status_t bench_step_json(const bench_step_t *b, json_t **out) {
    const tr_session_t *s = b->s;
    const double batch = (double)s->order.batch_size;
    json_t *o = *out = json_pack(
        "{s:s, s:i, s:i, s:I, s:I, s:f, s:f, s:f, s:f, s:f, s:f, s:o, s:o, s:f, s:s, s:s, s:s}",
        "kind", "profile", "ranks", s->params.size, "threads", s->device->threads, "batch_size",
        (json_int_t)s->order.batch_size, "micro_batch", (json_int_t)s->order.micro_batch,
        "step_sec_median", b->median_sec, "step_sec_best", b->best_sec, "samples_per_sec_median",
        batch / b->median_sec, "samples_per_sec_best", batch / b->best_sec, "gflops",
        b->flops / b->median_sec / 1e9, "peak_gflops", b->peak_flops * s->params.size / 1e9,
        "comm_exposed", tr_json_measured(b->exposed), "comm_busy", tr_json_measured(b->busy),
        "update_sec", b->update_sec, "device", s->device->description, "device_name",
        s->device->ops->name, "version", cmd_version);
    json_object_set_new(o, "parameters", json_integer((json_int_t)s->parameters));
    json_object_set_new(o, "programs_sec", tr_json_measured(b->programs_sec));
    json_object_set_new(o, "idle_share", tr_json_measured(b->idle));
    json_object_set_new(o, "memory_planned_bytes", json_integer((json_int_t)b->planned_bytes));
    json_object_set_new(o, "memory_taken_bytes",
                        b->taken_bytes ? json_integer((json_int_t)b->taken_bytes) : json_null());
    return bench_add_timeline(o, s, b->op, b->compute_sec, b->steps);
}

static void bench_step_close(bench_step_t *b, tr_world_t *world) {
    tr_train_step_destroy(&b->train_step);
    tr_loader_destroy(&b->loader);
    if (b->s) tr_graph_drop_captures(b->s->g);
    if (b->collectives) tr_world_collectives_close(world, &b->collectives);
    tr_free(&b->op);
    tr_free(&b->compute_sec);
    tr_free(&b->step_sec);
    tr_session_destroy(&b->s);
    tr_config_destroy(&b->config);
}

static tr_status_t bench_step_run(void *options) {
    const bench_step_options_t *o = options;
    char assignment[MOST_DEVICES][48]; /* device=NAME */
    const char *const prefix = "device=";
    int devices = 0;
    double sec[MOST_DEVICES];
    json_t *profiles = json_array(), *speedups = json_array();
    tr_world_t *world = NULL;
    tr_status_t status = TR_OK;
    for (const char *at = o->devices; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        const tr_backend_t *backend = NULL;
        if (devices == MOST_DEVICES)
            TR_TRY_GOTO(TR_FAIL(TR_ERR_USAGE, "--devices %s: expected at most %d names", o->devices,
                                MOST_DEVICES),
                        done);
        snprintf(assignment[devices], sizeof assignment[0], "%s%.*s", prefix, (int)strcspn(at, ","),
                 at);
        TR_TRY_GOTO(tr_backend_find(assignment[devices++] + strlen(prefix), &backend), done);
    }
    TR_TRY_GOTO(cmd_world_open(&world), done);
    const bool is_root = tr_world_info(world)->rank == 0,
               prints = is_root && !cmd_json_is_stdout(o->json);
    for (int i = 0; i < (devices > 0 ? devices : 1); i++) {
        bench_step_t b = {.steps = o->steps};
        cmd_words_t device = {devices > 0 ? 1 : 0, (char *[]){assignment[i]}}, settings;
        json_t *profile = NULL;
        TR_TRY_GOTO(cmd_words_join(o->settings, device, &settings), done);
        if (prints && i > 0) printf("\n");
        status = bench_step_measure(&b, world, o->path, settings);
        if (status == TR_OK && prints) bench_step_print(&b);
        if (status == TR_OK && is_root) status = bench_step_json(&b, &profile);
        sec[i] = b.median_sec;
        if (profile) json_array_append_new(profiles, profile);
        /* After an error, its peers wait in a collective: only main can end them. */
        if (status == TR_OK || tr_world_info(world)->size == 1) bench_step_close(&b, world);
        tr_free(&settings.word);
        TR_TRY_GOTO(status, done);
        json_array_append_new(speedups, json_real(sec[0] / sec[i]));
    }
    for (int i = 1; i < devices && prints; i++)
        printf("\nspeedup   %s %.2f x %s (median step %.3f ms and %.3f ms)\n",
               assignment[i] + strlen(prefix), sec[0] / sec[i], assignment[0] + strlen(prefix),
               sec[i] * 1e3, sec[0] * 1e3);
    if (is_root && o->json)
        status = cmd_json_write(devices > 0 ? json_pack("{s:s, s:O, s:O}", "kind", "devices",
                                                        "profiles", profiles, "speedups", speedups)
                                            : json_incref(json_array_get(profiles, 0)),
                                o->json);
    if (status == TR_OK) cmd_world_close(&world); /* else main ends the other ranks */
done:
    json_decref(profiles);
    json_decref(speedups);
    return status;
}

static const cmd_argument_t arguments[] = {
    {"CONFIG.ini", offsetof(bench_step_options_t, path), CMD_REQUIRED, NULL},
    {"[key=value ...]", offsetof(bench_step_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_INT(bench_step_options_t, steps, "--steps", "N", "50", 1, CMD_NO_LIMIT,
                   "The steps that are timed."),
    CMD_OPTION_TEXT(bench_step_options_t, devices, "--devices", "D,D", NULL,
                    "Times each of these devices, such as cpu,cuda, and prints the speedup over "
                    "the first one."),
    CMD_OPTION_JSON(bench_step_options_t, BENCH_JSON),
};

const cmd_command_t bench_step = {
    .name = "bench step",
    .summary =
        "Times the training step and each of its ops.\n"
        "It runs alone or under mpirun, on data that is already in memory. It prints the median "
        "and the best step time, samples/s, GFLOP/s, and the GFLOP/s of multiply-adds alone, "
        "measured in the same run. Convolutions count as direct sums: with Winograd's algorithm, "
        "their rate may be higher. Steps follow each other as in training: nothing waits between "
        "them. On a GPU it also prints how long the device is idle in a step, and the memory that "
        "was taken beside the memory that was planned.",
    CMD_ARGUMENTS(bench_step_options_t),
    CMD_OPTIONS,
    .run = bench_step_run,
};

static const cmd_command_t *const targets[] = {
    &bench_step,   &bench_allreduce, &bench_attention,
    &bench_matmul, &bench_precision, &bench_generate,
    NULL,
};

const cmd_command_t cmd_bench = {
    .name = "bench",
    .runs = CMD_ON_RANKS,
    .summary =
        "Times the training step and each of its ops, the all-reduce of the ranks, attention, "
        "matrix products, training in each precision, or the generation of texts.",
    .targets = targets,
};
