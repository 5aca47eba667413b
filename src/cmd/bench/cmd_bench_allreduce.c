/* trainer bench allreduce [CONFIG.ini] [--max SIZE] [--pause MS] [--json FILE] [key=value ...]:
 * times the all-reduce with the engine that training uses. */
#include "bench.h"
#include "cmd/cmd.h"
#include "comm/probe.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "session/session.h"

#include <jansson.h>
#include <stdio.h>
#include <string.h>

enum { MOST_SIZES = 32 }; /* 4 bytes to 8 GiB by powers of two */

typedef struct {
    const char *path, *json;
    int64_t max_bytes;
    double pause_msec;
    int assignments;
    char **assignment;
} options_t;

typedef struct {
    int64_t bytes;
    tr_probe_times_t times;
} row_t;

typedef struct {
    tr_world_t *world;
    tr_device_t *device;
    tr_collectives_t *collectives;
    tr_probe_t *probe;
    row_t rows[MOST_SIZES];
    int row_count;
} bench_t;

static tr_status_t parse(int argc, char **argv, options_t *o) {
    int kept = 0;
    *o = (options_t){.max_bytes = 64 << 20, .assignment = argv};
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0 && has_value)
            o->json = argv[++i];
        else if (strcmp(argv[i], "--max") == 0 && has_value) {
            if (!tr_parse_bytes(argv[++i], &o->max_bytes) || o->max_bytes < 4 ||
                o->max_bytes > (int64_t)8 << 30)
                return TR_FAIL(TR_ERR_USAGE, "--max %s: expected a size from 4 to 8G", argv[i]);
        } else if (strcmp(argv[i], "--pause") == 0 && has_value) {
            if (!tr_parse_float(argv[++i], &o->pause_msec) || o->pause_msec < 0 ||
                o->pause_msec > 10000)
                return TR_FAIL(TR_ERR_USAGE, "--pause %s: expected milliseconds from 0 to 10000",
                               argv[i]);
        } else if (argv[i][0] == '-')
            return cmd_fail_option("bench allreduce", argv[i]);
        else if (!o->path && !strchr(argv[i], '='))
            o->path = argv[i];
        else
            argv[kept++] = argv[i];
    }
    o->assignments = kept;
    return TR_OK;
}

static tr_status_t measure(bench_t *b, const tr_config_t *config, const options_t *o) {
    tr_parallel_settings_t parallel;
    tr_config_read(config, &tr_parallel_config, &parallel);
    const tr_status_t opened =
        tr_open_device(config, 0, false, tr_world_info(b->world), &b->device);
    TR_TRY(tr_world_agree(b->world, opened));
    TR_TRY(tr_check_own_device(b->world, config, b->device));
    TR_TRY(tr_world_collectives(b->world, b->device, &parallel, &b->collectives));
    TR_TRY(tr_probe_open(b->world, b->device, b->collectives, o->max_bytes, o->pause_msec / 1e3,
                         &b->probe));
    for (int64_t bytes = 4; bytes <= o->max_bytes; bytes *= 2) {
        row_t *row = &b->rows[b->row_count++];
        row->bytes = bytes;
        TR_TRY(tr_probe_allreduce(b->probe, bytes, &row->times));
    }
    return TR_OK;
}

/* -- showing ----------------------------------------------------------------------------------- */

static double algorithm_gbs(const row_t *row) {
    return tr_probe_algorithm_bandwidth(row->bytes, row->times.median_sec) / 1e9;
}

static double bus_gbs(const row_t *row, int ranks) {
    return tr_probe_bus_bandwidth(row->bytes, row->times.median_sec, ranks) / 1e9;
}

static void print_rows(const bench_t *b) {
    const tr_world_info_t *info = tr_world_info(b->world);
    printf("all-reduce: %d ranks on %d node%s, engine %s, device %s, %s; all sums are right\n",
           info->size, info->nodes, info->nodes > 1 ? "s" : "", b->collectives->engine,
           b->device->ops->name, info->mpi_version);
    printf("%12s %6s %12s %12s %12s %12s\n", "bytes", "runs", "median us", "p90 us", "algbw GB/s",
           "busbw GB/s");
    for (int i = 0; i < b->row_count; i++) {
        const row_t *row = &b->rows[i];
        printf("%12lld %6lld %12.2f %12.2f %12.4f %12.4f\n", (long long)row->bytes,
               (long long)row->times.runs, row->times.median_sec * 1e6, row->times.p90_sec * 1e6,
               algorithm_gbs(row), bus_gbs(row, info->size));
    }
}

/* `trainer plan --network FILE` reads it: docs/slurm.md describes the keys. */
static tr_status_t write_json(const bench_t *b, const char *path) {
    const tr_world_info_t *info = tr_world_info(b->world);
    json_t *sizes = json_array();
    for (int i = 0; i < b->row_count; i++) {
        const row_t *row = &b->rows[i];
        json_array_append_new(
            sizes,
            json_pack("{s:I, s:f, s:f, s:f, s:f}", "bytes", (json_int_t)row->bytes, "median_us",
                      row->times.median_sec * 1e6, "p90_us", row->times.p90_sec * 1e6, "algbw_gbs",
                      algorithm_gbs(row), "busbw_gbs", bus_gbs(row, info->size)));
    }
    return cmd_json_write(json_pack("{s:s, s:i, s:i, s:s, s:o}", "kind", "allreduce", "ranks",
                                    info->size, "nodes", info->nodes, "engine",
                                    b->collectives->engine, "sizes", sizes),
                          path);
}

static tr_status_t bench(tr_world_t *world, const tr_config_t *config, const void *options) {
    const options_t *o = options;
    const tr_world_info_t *info = tr_world_info(world);
    bench_t b = {.world = world};
    if (info->size < 2)
        return TR_FAIL(TR_ERR_CONFIG,
                       "bench allreduce requires at least 2 ranks, found 1: start it with mpirun "
                       "-np 2 or with srun");
    tr_status_t status = measure(&b, config, o);
    if (status == TR_OK && info->rank == 0) {
        if (!cmd_json_is_stdout(o->json)) print_rows(&b);
        if (o->json) status = write_json(&b, o->json);
    }
    if (status != TR_OK) return status; /* other ranks may wait in a collective: main ends them */
    tr_probe_close(&b.probe);
    tr_world_collectives_close(world, &b.collectives);
    tr_device_close(&b.device);
    return TR_OK;
}

tr_status_t cmd_bench_allreduce(int argc, char **argv) {
    options_t o;
    TR_TRY(parse(argc, argv, &o));
    return bench_on_ranks(o.path, o.assignments, o.assignment, bench, &o);
}
