/* trainer bench TARGET, and its first target, bench step CONFIG.ini: times the training step on data
 * already in memory. */
#include "bench.h"
#include "bench_step.h"
#include "cmd/cmd.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "device/device.h"
#include "base/json_text.h"
#include "session/session.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_DEVICES = 4 };

typedef struct {
    const char *path, *json, *devices; /* devices NULL: the one of the configuration */
    cmd_words_t settings;
    int64_t steps;
} bench_step_options_t;

/* -- results ----------------------------------------------------------------------------------- */

typedef struct {
    double sec, share, flops_rate, bytes_rate; /* of a step; of all ops; per second */
    double floor_sec, of_floor;                /* of a step */
    const char *op, *layer;
} step_op_row_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(step_op_row_t, NULL, "ms/step", REAL, sec, .format = "%.3f", .scale = 1e3,
              .width = 9),
    TR_COLUMN(step_op_row_t, NULL, "%", REAL, share, .format = "%.1f", .scale = 100, .width = 5),
    TR_COLUMN(step_op_row_t, NULL, "GFLOP/s", REAL, flops_rate, .format = "%.1f", .scale = 1e-9,
              .missing = "", .width = 9),
    TR_COLUMN(step_op_row_t, NULL, "GB/s", REAL, bytes_rate, .format = "%.1f", .scale = 1e-9,
              .missing = "", .width = 8),
    TR_COLUMN(step_op_row_t, NULL, "floor ms", REAL, floor_sec, .format = "%.3f", .scale = 1e3,
              .zero_is_missing = true, .missing = "", .width = 9),
    TR_COLUMN(step_op_row_t, NULL, "of floor", REAL, of_floor, .format = "%.2f x", .missing = ""),
    TR_COLUMN(step_op_row_t, NULL, "op", STRING, op, .is_left = true, .missing = "", .width = 18),
    TR_COLUMN(step_op_row_t, NULL, "layer", STRING, layer, .is_left = true, .missing = ""),
};
static const tr_table_t table = TR_TABLE(columns, step_op_row_t);

static tr_status_t bench_step_print_ops(const bench_step_t *b) {
    TR_VEC(step_op_row_t) rows = {0};
    step_op_row_t sum = {.sec = b->update_sec,
                         .floor_sec = b->update_floor_sec,
                         .flops_rate = NAN,
                         .bytes_rate = NAN},
                  update = sum;
    const tr_session_t *s = b->trial.s;
    const double slots = (double)s->slot_count;
    tr_status_t status = TR_OK;
    update.op = "update";
    for (int i = 0; i < tr_program_op_count(s->g, s->last); i++) {
        const tr_op_t *op = tr_program_op(s->g, s->last, i);
        const double sec = b->op[i].best_sec;
        sum.sec += sec * slots;
        sum.floor_sec += b->op[i].floor_sec * slots;
        if (op->kind != TR_OP_KERNEL || sec <= 0) continue;
        const step_op_row_t row = {.sec = sec * slots,
                                   .flops_rate = tr_op_flops(s->g, op) / sec,
                                   .bytes_rate = tr_op_bytes(s->g, op) / sec,
                                   .floor_sec = b->op[i].floor_sec * slots,
                                   .op = op->row->name,
                                   .layer = op->label};
        TR_TRY_GOTO(tr_vec_push(&rows, row), done);
    }
    TR_TRY_GOTO(tr_vec_push(&rows, update), done);
    TR_TRY_GOTO(tr_vec_push(&rows, sum), done);
    for (size_t i = 0; i < rows.count; i++) {
        rows.data[i].share = rows.data[i].sec / sum.sec;
        rows.data[i].of_floor =
            rows.data[i].floor_sec > 0 ? rows.data[i].sec / rows.data[i].floor_sec : NAN;
    }
    if (b->product_flops > 0)
        printf(
            "floor     %.3f ms: of each op the larger of its FLOPs at %.1f GFLOP/s and its bytes "
            "at %.1f GB/s, the rates of a large product and of a large copy on each rank\n",
            sum.floor_sec * 1e3, b->product_flops / 1e9, b->copy_bytes / 1e9);
    printf("\n");
    cmd_table_print(&table, rows.data, rows.count);
done:
    tr_vec_free(&rows);
    return status;
}

static tr_status_t bench_step_print(const bench_step_t *b) {
    const tr_session_t *s = b->trial.s;
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
    return bench_step_print_ops(b);
}

static tr_status_t bench_step_json(const bench_step_t *b, json_t **out) {
    const tr_session_t *s = b->trial.s;
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
    json_object_set_new(o, "product_gflops", json_real(b->product_flops / 1e9));
    json_object_set_new(o, "copy_gbs", json_real(b->copy_bytes / 1e9));
    json_object_set_new(o, "update_floor_sec", json_real(b->update_floor_sec));
    json_object_set_new(o, "parameters", json_integer((json_int_t)s->parameters));
    json_object_set_new(o, "programs_sec", tr_json_measured(b->programs_sec));
    json_object_set_new(o, "idle_share", tr_json_measured(b->idle));
    json_object_set_new(o, "memory_planned_bytes", json_integer((json_int_t)b->planned_bytes));
    json_object_set_new(o, "memory_taken_bytes",
                        b->taken_bytes ? json_integer((json_int_t)b->taken_bytes) : json_null());
    return bench_add_timeline(o, s, b->op, b->compute_sec, b->steps);
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
        if (status == TR_OK) status = bench_step_time_parts(&b);
        if (status == TR_OK && prints) status = bench_step_print(&b);
        if (status == TR_OK && is_root) status = bench_step_json(&b, &profile);
        sec[i] = b.median_sec;
        if (profile) json_array_append_new(profiles, profile);
        bench_step_close(&b, status);
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
        "measured in the same run. The floor of an op is the time of its FLOPs at the measured "
        "rate of a large product, or of its bytes at that of a large copy, whichever is longer. A "
        "convolution counts with the multiplications of Winograd's algorithm where the device may "
        "use it, without its transforms. Ops whose data is in a cache may be faster. Steps follow "
        "each other as in training: nothing waits between them. On a GPU it also prints how long "
        "the device is idle in a step, and the memory that was taken beside the memory that was "
        "planned.",
    CMD_ARGUMENTS(bench_step_options_t),
    CMD_OPTIONS,
    .run = bench_step_run,
};

static const cmd_command_t *const targets[] = {
    &bench_step,      &bench_batch,  &bench_allreduce,
    &bench_attention, &bench_matmul, &bench_precision,
    &bench_generate,  &bench_memory, NULL,
};

const cmd_command_t cmd_bench = {
    .name = "bench",
    .runs = CMD_ON_RANKS,
    .summary =
        "Times the training step and each of its ops, the step by the batch size, the all-reduce "
        "of the ranks, attention, matrix products, training in each precision, or the generation "
        "of texts. Prints the memory of the device at each stage of a run.",
    .targets = targets,
};
