/* trainer bench memory CONFIG.ini: the memory of the device at each stage of a run; with --demo, the
 * messages of a run that is too large. */
#include "bench.h"
#include "base/host.h"
#include "base/mem.h"
#include "device/device.h"
#include "session/trial.h"

#include <jansson.h>
#include <stdio.h>

typedef enum { CONTEXT, WEIGHTS, FIRST_STEP, STEADY, RELEASED, STAGES } memory_stage_t;
static const char *const stage_names[] = {"context", "weights", "first step", "steady",
                                          "after release"};
static const char *const stage_keys[] = {"context", "weights", "first_step", "steady", "released"};

typedef struct {
    const char *path, *json;
    cmd_words_t settings;
    int64_t steps;
    bool demo;
} bench_memory_options_t;

typedef struct {
    const char *stage;
    size_t allocated; /* by the program, as planned */
    size_t taken;     /* from the device since the context was opened */
    size_t free;
} memory_row_t;

static const tr_table_column_t columns[] = {
    TR_COLUMN(memory_row_t, NULL, "stage", STRING, stage, .is_left = true, .width = 13),
    TR_COLUMN(memory_row_t, "allocated_bytes", "allocated", SIZE, allocated,
              .people = tr_format_bytes, .width = 12),
    TR_COLUMN(memory_row_t, "reserved_bytes", "reserved", SIZE, taken, .people = tr_format_bytes,
              .width = 12),
    TR_COLUMN(memory_row_t, "free_bytes", "free", SIZE, free, .people = tr_format_bytes,
              .width = 12),
};
static const tr_table_t table = TR_TABLE(columns, memory_row_t);

typedef struct {
    tr_trial_t trial;
    tr_device_t *device; /* outlives the session */
    size_t base;         /* free on a device, or resident on the host, at the context */
    memory_row_t rows[STAGES];
    char too_large[TR_ERROR_MESSAGE_BYTES], no_memory[TR_ERROR_MESSAGE_BYTES]; /* of --demo */
} bench_memory_t;

/* -- measuring --------------------------------------------------------------------------------- */

/* Of the GPU, or of this process and its host. */
static tr_status_t bench_memory_note(bench_memory_t *b, memory_stage_t stage, size_t allocated) {
    memory_row_t *row = &b->rows[stage];
    size_t total = 0, now;
    row->stage = stage_names[stage];
    row->allocated = allocated;
    if (b->device->ops->memory_info) {
        TR_TRY(b->device->ops->memory_info(b->device, &row->free, &total));
        if (stage == CONTEXT) b->base = row->free;
        row->taken = b->base > row->free ? b->base - row->free : 0;
        return TR_OK;
    }
    now = tr_host_resident_bytes();
    if (stage == CONTEXT) b->base = now;
    row->taken = now > b->base ? now - b->base : 0;
    row->free = b->device->memory_bytes > now ? b->device->memory_bytes - now : 0;
    return TR_OK;
}

static tr_status_t bench_memory_measure(bench_memory_t *b, const bench_memory_options_t *o) {
    tr_config_t *config = NULL;
    char path[4096];
    cmd_config_path(o->path, path);
    TR_TRY(cmd_config_load(path, o->settings, &config));
    TR_TRY(tr_trial_open(config, NULL, &(tr_trial_params_t){0}, &b->trial));
    tr_session_t *s = b->trial.s;
    b->device = s->params.device = s->device; /* the session does not close it */
    TR_TRY(bench_memory_note(b, CONTEXT, 0));
    TR_TRY(tr_trial_start(&b->trial));
    const size_t planned = tr_graph_memory(s->g).total;
    TR_TRY(bench_memory_note(b, WEIGHTS, planned));
    TR_TRY(tr_trial_run(&b->trial, 1, s->optim.lr, NULL, NULL));
    TR_TRY(bench_memory_note(b, FIRST_STEP, planned));
    TR_TRY(tr_trial_run(&b->trial, o->steps - 1, s->optim.lr, NULL, NULL));
    return bench_memory_note(b, STEADY, planned);
}

/* -- running out ------------------------------------------------------------------------------- */

static tr_status_t bench_memory_take_error(tr_status_t status, char message[]) {
    if (status != TR_ERR_MEMORY)
        return status != TR_OK ? status
                               : TR_FAIL(TR_ERR_INTERNAL, "--demo: the memory was not refused");
    tr_snprintf(message, TR_ERROR_MESSAGE_BYTES, "%s", tr_error_last()->message);
    tr_error_clear();
    return TR_OK;
}

/* The same run on a device with three quarters of the memory that it needs, and an allocation that no device
 * has. */
static tr_status_t bench_memory_run_out(bench_memory_t *b) {
    const size_t impossible = (size_t)1 << 50, memory = b->device->memory_bytes;
    const tr_session_params_t params = {.purpose = TR_SESSION_PLAN,
                                        .device = b->device,
                                        .size = 1,
                                        .micro_batch = b->trial.s->order.micro_batch};
    tr_session_t *s = NULL;
    void *block = NULL;
    b->device->memory_bytes = tr_graph_memory(b->trial.s->g).total / 4 * 3;
    tr_status_t status = tr_session_create(b->trial.config, NULL, &params, &s);
    b->device->memory_bytes = memory;
    tr_session_destroy(&s);
    TR_TRY(bench_memory_take_error(status, b->too_large));
    status = b->device->ops->alloc(b->device, impossible, 0, &block);
    if (status == TR_OK) b->device->ops->free(b->device, block);
    return bench_memory_take_error(status, b->no_memory);
}

/* -- results ----------------------------------------------------------------------------------- */

static void bench_memory_print(const bench_memory_t *b, const bench_memory_options_t *o) {
    printf("%s on %s\n", o->path, b->device->description);
    cmd_table_print(&table, b->rows, STAGES);
    printf("allocated: by the program, as planned; reserved: %s since the context was opened\n",
           b->device->ops->memory_info ? "taken from the device" : "resident in this process");
    if (o->demo)
        printf("\nthe same run on a device with three quarters of this memory is "
               "refused:\n%s\n\nan allocation that "
               "fails:\n%s\n",
               b->too_large, b->no_memory);
}

static tr_status_t bench_memory_json(const bench_memory_t *b, const bench_memory_options_t *o) {
    json_t *stages = json_object(),
           *all = json_pack("{s:s, s:s, s:s, s:s, s:o}", "kind", "memory", "config", o->path,
                            "device", b->device->description, "device_name", b->device->ops->name,
                            "stages", stages);
    for (int i = 0; i < STAGES; i++)
        json_object_set_new(stages, stage_keys[i], tr_table_object(&table, &b->rows[i]));
    if (o->demo) json_object_set_new(all, "too_large", json_string(b->too_large));
    if (o->demo) json_object_set_new(all, "no_memory", json_string(b->no_memory));
    return cmd_json_write(all, o->json);
}

static tr_status_t bench_memory_run(void *options) {
    const bench_memory_options_t *o = options;
    bench_memory_t *b = NULL;
    TR_TRY(tr_alloc(sizeof *b, "bench memory", &b));
    tr_status_t status = bench_memory_measure(b, o);
    if (status == TR_OK && o->demo) status = bench_memory_run_out(b);
    tr_trial_close(&b->trial, status);
    if (status == TR_OK) status = bench_memory_note(b, RELEASED, 0);
    if (status == TR_OK && !cmd_json_is_stdout(o->json)) bench_memory_print(b, o);
    if (status == TR_OK && o->json) status = bench_memory_json(b, o);
    if (b->device) tr_device_close(&b->device);
    tr_free(&b);
    return status;
}

static const cmd_argument_t arguments[] = {
    {"CONFIG.ini", offsetof(bench_memory_options_t, path), CMD_REQUIRED, NULL},
    {"[key=value ...]", offsetof(bench_memory_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_INT(bench_memory_options_t, steps, "--steps", "N", "8", 1, CMD_NO_LIMIT,
                   "The steps before the steady stage."),
    CMD_OPTION_FLAG(
        bench_memory_options_t, demo, "--demo",
        "Also runs out of memory, and prints the messages: of the same run on a device "
        "with three quarters of the memory that it needs, and of an allocation that fails."),
    CMD_OPTION_JSON(bench_memory_options_t, BENCH_JSON),
};

const cmd_command_t bench_memory = {
    .name = "bench memory",
    .summary =
        "Prints the memory of the device at each stage of a run.\n"
        "The stages are: the device is open; the weights and all that a step needs are allocated; "
        "after the first step; after N steps; after all was released. Allocated is what the "
        "program has planned and allocated, reserved what it has taken from the device since it "
        "was opened, with what libraries take. On the CPU reserved is the resident memory of the "
        "process; pages that no step has touched are not part of it.",
    CMD_ARGUMENTS(bench_memory_options_t),
    CMD_OPTIONS,
    .run = bench_memory_run,
};
