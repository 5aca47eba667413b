/* trainer bench allreduce [CONFIG.ini]: times a collective with the engine that training uses. */
#include "bench.h"
#include "comm/probe.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "session/open_device.h"

#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SIZES = 32 }; /* 4 bytes to 8 GiB by powers of two */

typedef struct {
    const char *path, *json;
    cmd_words_t settings;
    int64_t max_bytes;
    double pause_msec;
    int kind; /* tr_collective_kind_t */
} bench_allreduce_options_t;

typedef struct {
    int64_t bytes;
    tr_probe_times_t times;
    double algorithm, bus; /* bytes per second, as nccl-tests define them */
    double copy;           /* bytes per second: tr_probe_copy */
} allreduce_row_t;

/* `trainer plan --network FILE` reads them: docs/slurm.md describes the keys. */
static const tr_table_column_t columns[] = {
    TR_COLUMN(allreduce_row_t, "bytes", "bytes", INT64, bytes, .width = 12),
    TR_COLUMN(allreduce_row_t, NULL, "runs", INT64, times.runs, .width = 5),
    TR_COLUMN(allreduce_row_t, "median_us", "median us", REAL, times.median_sec, .format = "%.2f",
              .scale = 1e6, .key_scale = 1e6, .width = 11),
    TR_COLUMN(allreduce_row_t, "p90_us", "p90 us", REAL, times.p90_sec, .format = "%.2f",
              .scale = 1e6, .key_scale = 1e6, .width = 11),
    TR_COLUMN(allreduce_row_t, "algbw_gbs", "algbw GB/s", REAL, algorithm, .format = "%.4f",
              .scale = 1e-9, .key_scale = 1e-9, .width = 11),
    TR_COLUMN(allreduce_row_t, "busbw_gbs", "busbw GB/s", REAL, bus, .format = "%.4f",
              .scale = 1e-9, .key_scale = 1e-9, .width = 11),
    TR_COLUMN(allreduce_row_t, "copy_gbs", "copy GB/s", REAL, copy, .format = "%.4f", .scale = 1e-9,
              .key_scale = 1e-9, .width = 11),
};
static const tr_table_t table = TR_TABLE(columns, allreduce_row_t);

/* In the order of tr_collective_kind_t. */
#define KINDS "allreduce|reduce_scatter|allgather"
static const char *const kinds[] = {"allreduce", "reduce_scatter", "allgather"};

typedef struct {
    tr_collective_kind_t kind;
    tr_world_t *world;
    tr_device_t *device;
    tr_collectives_t *collectives;
    tr_probe_t *probe;
    allreduce_row_t rows[MOST_SIZES];
    size_t row_count;
} bench_allreduce_t;

static void bench_allreduce_print(const bench_allreduce_t *b) {
    const tr_world_info_t *info = tr_world_info(b->world);
    printf("%s: %d ranks on %d node%s, engine %s, device %s, %s; all results are right\n",
           kinds[b->kind], info->size, info->nodes, info->nodes > 1 ? "s" : "",
           b->collectives->engine, b->device->ops->name, info->mpi_version);
    cmd_table_print(&table, b->rows, b->row_count);
}

static tr_status_t bench_allreduce_write_json(const bench_allreduce_t *b, const char *path) {
    const tr_world_info_t *info = tr_world_info(b->world);
    return cmd_json_write(json_pack("{s:s, s:i, s:i, s:s, s:o}", "kind", kinds[b->kind], "ranks",
                                    info->size, "nodes", info->nodes, "engine",
                                    b->collectives->engine, "sizes",
                                    tr_table_json(&table, b->rows, b->row_count)),
                          path);
}

static tr_status_t bench_allreduce_measure(bench_allreduce_t *b, const tr_config_t *config,
                                           const bench_allreduce_options_t *o) {
    tr_parallel_settings_t parallel;
    tr_config_read(config, &tr_parallel_config, &parallel);
    const tr_status_t opened = tr_open_device(config, NULL, 0, false, b->world, &b->device);
    TR_TRY(tr_world_agree(b->world, opened));
    TR_TRY(tr_check_own_device(b->world, config, b->device));
    TR_TRY(tr_world_collectives(b->world, b->device, &parallel, &b->collectives));
    TR_TRY(tr_probe_open(b->world, b->device, b->collectives, o->max_bytes, o->pause_msec / 1e3,
                         &b->probe));
    const int size = tr_world_info(b->world)->size;
    int64_t bytes = b->kind == TR_ALLREDUCE ? 4 : 4 * size; /* equal parts */
    for (; bytes <= o->max_bytes; bytes *= 2) {
        allreduce_row_t *row = &b->rows[b->row_count++];
        tr_probe_times_t copy;
        row->bytes = bytes;
        TR_TRY(tr_probe_collective(b->probe, b->kind, bytes, &row->times));
        TR_TRY(tr_probe_copy(b->probe, bytes, &copy));
        const double sec = row->times.median_sec;
        row->algorithm = tr_probe_algorithm_bandwidth(bytes, sec);
        row->bus = tr_probe_bus_bandwidth(b->kind, bytes, sec, size);
        row->copy = isnan(copy.median_sec) ? NAN : (double)bytes / fmax(copy.median_sec, 1e-9);
    }
    return TR_OK;
}

static tr_status_t bench_allreduce_run(void *options) {
    const bench_allreduce_options_t *o = options;
    bench_allreduce_t b = {.kind = (tr_collective_kind_t)o->kind};
    tr_config_t *config = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(cmd_world_open(&b.world));
    const tr_world_info_t *info = tr_world_info(b.world);
    TR_TRY_GOTO(cmd_config_load_all(b.world, o->path, o->settings, &config), done);
    if (info->size < 2)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_CONFIG,
                            "bench allreduce requires at least 2 ranks, found 1: start it with "
                            "mpirun -np 2 or with srun"),
                    done);
    TR_TRY_GOTO(bench_allreduce_measure(&b, config, o), done);
    if (info->rank == 0) {
        if (!cmd_json_is_stdout(o->json)) bench_allreduce_print(&b);
        if (o->json) TR_TRY_GOTO(bench_allreduce_write_json(&b, o->json), done);
    }
    tr_world_collectives_close(b.world, &b.collectives);
    tr_probe_close(&b.probe);
    tr_device_close(&b.device);
    cmd_world_close(&b.world);
done: /* after an error, other ranks may wait in a collective: main ends them */
    tr_config_destroy(&config);
    return status;
}

static const cmd_argument_t arguments[] = {
    {"[CONFIG.ini]", offsetof(bench_allreduce_options_t, path), CMD_OPTIONAL, NULL},
    {"[key=value ...]", offsetof(bench_allreduce_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_ENUM(bench_allreduce_options_t, kind, "--kind", "allreduce", KINDS,
                    "The collective. Sizes are those of the whole range, of which each rank has an "
                    "equal part in reduce_scatter and allgather: they begin with 4 bytes a rank."),
    CMD_OPTION_BYTES(bench_allreduce_options_t, max_bytes, "--max", "SIZE", "64M", 4,
                     (int64_t)8 << 30, "The largest size."),
    CMD_OPTION_FLOAT(bench_allreduce_options_t, pause_msec, "--pause", "MS", "0", 0, 10000,
                     "Lets the ranks sleep before each timed collective, as they compute between "
                     "two of them in training."),
    CMD_OPTION_JSON(bench_allreduce_options_t, BENCH_JSON),
};

const cmd_command_t bench_allreduce = {
    .name = "bench allreduce",
    .summary =
        "Times the all-reduce of the ranks, or another collective.\n"
        "It runs on two or more ranks. It times all-reduces of 4 bytes to SIZE by powers of two, "
        "over the engine that training uses (parallel.engine), and checks the sums. It prints the "
        "median and the 90th percentile of the time, and the bandwidths as nccl-tests define them. "
        "Where the ranks of a node share memory, it also prints the rate at which a rank copies "
        "what another one has just written: the limit.",
    CMD_ARGUMENTS(bench_allreduce_options_t),
    CMD_OPTIONS,
    .run = bench_allreduce_run,
};
