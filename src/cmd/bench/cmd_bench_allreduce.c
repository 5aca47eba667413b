/* trainer bench allreduce [CONFIG.ini]: times the all-reduce with the engine that training uses. */
#include "bench.h"
#include "comm/probe.h"
#include "trainer/log.h"
#include "base/mem.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SIZES = 32 }; /* 4 bytes to 8 GiB by powers of two */

typedef struct {
    const char *path, *json;
    cmd_words_t settings;
    int64_t max_bytes;
    double pause_msec;
} bench_allreduce_options_t;

typedef struct {
    int64_t bytes;
    tr_probe_times_t times;
} allreduce_row_t;

typedef struct {
    tr_world_t *world;
    tr_device_t *device;
    tr_collectives_t *collectives;
    tr_probe_t *probe;
    allreduce_row_t rows[MOST_SIZES];
    int row_count;
} bench_allreduce_t;

static double bench_allreduce_algorithm_gbs(const allreduce_row_t *row) {
    return tr_probe_algorithm_bandwidth(row->bytes, row->times.median_sec) / 1e9;
}

static double bench_allreduce_bus_gbs(const allreduce_row_t *row, int ranks) {
    return tr_probe_bus_bandwidth(row->bytes, row->times.median_sec, ranks) / 1e9;
}

static void bench_allreduce_print(const bench_allreduce_t *b) {
    const tr_world_info_t *info = tr_world_info(b->world);
    printf("all-reduce: %d ranks on %d node%s, engine %s, device %s, %s; all sums are right\n",
           info->size, info->nodes, info->nodes > 1 ? "s" : "", b->collectives->engine,
           b->device->ops->name, info->mpi_version);
    printf("%12s %6s %12s %12s %12s %12s\n", "bytes", "runs", "median us", "p90 us", "algbw GB/s",
           "busbw GB/s");
    for (int i = 0; i < b->row_count; i++) {
        const allreduce_row_t *row = &b->rows[i];
        printf("%12lld %6lld %12.2f %12.2f %12.4f %12.4f\n", (long long)row->bytes,
               (long long)row->times.runs, row->times.median_sec * 1e6, row->times.p90_sec * 1e6,
               bench_allreduce_algorithm_gbs(row), bench_allreduce_bus_gbs(row, info->size));
    }
}

/* `trainer plan --network FILE` reads it: docs/slurm.md describes the keys. */
static tr_status_t bench_allreduce_write_json(const bench_allreduce_t *b, const char *path) {
    const tr_world_info_t *info = tr_world_info(b->world);
    json_t *sizes = json_array();
    for (int i = 0; i < b->row_count; i++) {
        const allreduce_row_t *row = &b->rows[i];
        json_array_append_new(sizes, json_pack("{s:I, s:f, s:f, s:f, s:f}", "bytes",
                                               (json_int_t)row->bytes, "median_us",
                                               row->times.median_sec * 1e6, "p90_us",
                                               row->times.p90_sec * 1e6, "algbw_gbs",
                                               bench_allreduce_algorithm_gbs(row), "busbw_gbs",
                                               bench_allreduce_bus_gbs(row, info->size)));
    }
    return cmd_json_write(json_pack("{s:s, s:i, s:i, s:s, s:o}", "kind", "allreduce", "ranks",
                                    info->size, "nodes", info->nodes, "engine",
                                    b->collectives->engine, "sizes", sizes),
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
    for (int64_t bytes = 4; bytes <= o->max_bytes; bytes *= 2) {
        allreduce_row_t *row = &b->rows[b->row_count++];
        row->bytes = bytes;
        TR_TRY(tr_probe_allreduce(b->probe, bytes, &row->times));
    }
    return TR_OK;
}

static tr_status_t bench_allreduce_run(void *options) {
    const bench_allreduce_options_t *o = options;
    bench_allreduce_t b = {0};
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
    CMD_OPTION_BYTES(bench_allreduce_options_t, max_bytes, "--max", "SIZE", "64M", 4,
                     (int64_t)8 << 30, "The largest size."),
    CMD_OPTION_FLOAT(bench_allreduce_options_t, pause_msec, "--pause", "MS", "0", 0, 10000,
                     "Lets the ranks sleep before each timed all-reduce, as they compute between "
                     "two of them in training."),
    CMD_OPTION_JSON(bench_allreduce_options_t, BENCH_JSON),
};

const cmd_command_t bench_allreduce = {
    .name = "bench allreduce",
    .summary =
        "Times the all-reduce of the ranks.\n"
        "It runs on two or more ranks. It times all-reduces of 4 bytes to SIZE by powers of two, "
        "over the engine that training uses (parallel.engine), and checks the sums. It prints the "
        "median and the 90th percentile of the time, and the bandwidths as nccl-tests define them.",
    CMD_ARGUMENTS(bench_allreduce_options_t),
    CMD_OPTIONS,
    .run = bench_allreduce_run,
};
