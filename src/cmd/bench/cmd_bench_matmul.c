/* trainer bench matmul: times matrix products on the CPU and the GPU, with their transfers. */
#include "bench.h"
#include "bench_matmul.h"
#include "base/mem.h"
#include "base/json_text.h"
#include "session/settings.h"

#include <errno.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

static const char *const device_names[BENCH_MATMUL_DEVICES] = {"cpu", "cuda"};
enum { FP32, TF32, BF16, FP16, TYPES };
static const char *const type_names[TYPES] = {
    [FP32] = "fp32", [TF32] = "tf32", [BF16] = "bf16", [FP16] = "fp16"};
static const struct {
    tr_dtype_t dtype;
    bool tf32; /* of GPUs alone */
} types[TYPES] = {[FP32] = {TR_F32, false},
                  [TF32] = {TR_F32, true},
                  [BF16] = {TR_BF16, false},
                  [FP16] = {TR_F16, false}};

/* What the GPU is compared by. */
enum { ALONE, PINNED, PAGEABLE, WAYS };
static const char *const way_keys[WAYS] = {"alone", "pinned", "pageable"};
static const char *const way_names[WAYS] = {"product alone", "with pinned transfers",
                                            "with pageable transfers"};

typedef struct {
    const char *json, *svg;
    cmd_words_t settings;
    cmd_list_t sizes, types, devices; /* sizes ascending; the others indexes of the names */
} bench_matmul_options_t;

typedef struct {
    double flops, bytes;
    bool is_measured; /* by the device; else the best rate of the table */
} matmul_peak_t;

typedef struct {
    const char *type, *device;
    int n;
    double rate, share, speedup; /* FLOPs per second; of the peak; over the CPU */
    bench_product_t took;
} matmul_row_t;

#define MATMUL_MS(key, heading, member, ...)                                                       \
    TR_COLUMN(matmul_row_t, key, heading, REAL, took.member, .format = "%.3f", .scale = 1e3,       \
              .width = 10, __VA_ARGS__)
static const tr_table_column_t columns[] = {
    TR_COLUMN(matmul_row_t, "type", "type", STRING, type, .is_left = true, .width = 5),
    TR_COLUMN(matmul_row_t, "n", "n", INT, n, .width = 5),
    TR_COLUMN(matmul_row_t, "device", "", STRING, device, .is_left = true, .width = 4),
    MATMUL_MS("sec", "ms", product_sec),
    TR_COLUMN(matmul_row_t, "gflops", "GFLOP/s", REAL, rate, .format = "%.1f", .scale = 1e-9,
              .key_scale = 1e-9, .width = 9),
    TR_COLUMN(matmul_row_t, "share_of_peak", "% peak", REAL, share, .format = "%.1f", .scale = 100),
    TR_COLUMN(matmul_row_t, "speedup", "speedup", REAL, speedup, .format = "%.2f"),
    TR_COLUMN(matmul_row_t, "memory_bytes", "memory", SIZE, took.bytes, .people = tr_format_bytes,
              .width = 9),
    MATMUL_MS("pinned_to_sec", "to", pinned.to_sec, .above = "pinned transfer, ms"),
    MATMUL_MS("pinned_from_sec", "from", pinned.from_sec, .above = "pinned transfer, ms"),
    MATMUL_MS("pageable_to_sec", "to", pageable.to_sec, .above = "pageable transfer, ms"),
    MATMUL_MS("pageable_from_sec", "from", pageable.from_sec, .above = "pageable transfer, ms"),
};
static const tr_table_t table = TR_TABLE(columns, matmul_row_t);

typedef struct {
    const bench_matmul_options_t *o;
    bool wants_type[TYPES];
    tr_device_t *device[BENCH_MATMUL_DEVICES]; /* NULL: not here */
    tr_device_t *tf32_device;                  /* the GPU, with products in TF32 */
    bench_product_t cell[BENCH_MATMUL_DEVICES][TYPES][CMD_LIST_MAX];
    matmul_peak_t peak[BENCH_MATMUL_DEVICES][TYPES];
    matmul_row_t rows[TYPES * CMD_LIST_MAX * BENCH_MATMUL_DEVICES]; /* by type, size, device */
    size_t count;
} bench_matmul_t;

/* The device that measures a cell; NULL: the cell is left out. */
static tr_device_t *bench_matmul_device(const bench_matmul_t *b, int d, int t) {
    if (!b->wants_type[t]) return NULL;
    if (!types[t].tf32) return b->device[d];
    return d == 1 ? b->tf32_device : NULL;
}

static double bench_matmul_rate(const bench_matmul_t *b, int d, int t, int i) {
    const double n = (double)b->o->sizes.value[i];
    return 2 * n * n * n / b->cell[d][t][i].product_sec;
}

/* How many times as fast the GPU is as the CPU; NAN: one of them is not measured. TF32 has no CPU
 * product of its own and is compared with fp32. */
static double bench_matmul_speedup(const bench_matmul_t *b, int t, int i) {
    const int on_cpu = types[t].tf32 ? FP32 : t;
    return bench_matmul_device(b, 0, on_cpu) && bench_matmul_device(b, 1, t)
               ? b->cell[0][on_cpu][i].product_sec / b->cell[1][t][i].product_sec
               : NAN;
}

/* The size from which on the GPU is faster in every size of the table; 0: in none; -1: not both
 * devices are measured. */
static int bench_matmul_wins_from(const bench_matmul_t *b, int t, int way) {
    int i = b->o->sizes.count;
    if (!bench_matmul_device(b, 0, t) || !bench_matmul_device(b, 1, t)) return -1;
    for (; i > 0; i--) {
        const bench_product_t *gpu = &b->cell[1][t][i - 1];
        const bench_copies_t *c = way == PINNED ? &gpu->pinned : &gpu->pageable;
        const double sec = gpu->product_sec + (way == ALONE ? 0 : c->to_sec + c->from_sec);
        if (!(sec < b->cell[0][t][i - 1].product_sec)) break;
    }
    return i < b->o->sizes.count ? b->o->sizes.value[i] : 0;
}

/* -- measuring --------------------------------------------------------------------------------- */

static tr_status_t bench_matmul_open_devices(bench_matmul_t *b, const tr_config_t *config) {
    tr_main_settings_t settings;
    tr_config_read(config, &tr_main_config, &settings);
    const tr_device_params_t params = {.threads = settings.threads < 0 ? 0 : (int)settings.threads};
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++) {
        const tr_backend_t *backend = NULL;
        bool is_wanted = false;
        for (int i = 0; i < b->o->devices.count; i++) is_wanted |= b->o->devices.value[i] == d;
        if (!is_wanted) continue;
        if (tr_backend_find(device_names[d], &backend) != TR_OK) {
            tr_error_clear();
            continue;
        }
        TR_TRY(tr_device_open(device_names[d], &params, &b->device[d]));
    }
    if (!b->device[1]) return TR_OK;
    return tr_device_open(device_names[1], &(tr_device_params_t){.tf32 = true}, &b->tf32_device);
}

static tr_status_t bench_matmul_measure(bench_matmul_t *b) {
    const int largest = b->o->sizes.value[b->o->sizes.count - 1];
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++) /* before anything is allocated */
        for (int t = 0; t < TYPES; t++)
            if (bench_matmul_device(b, d, t))
                TR_TRY(bench_product_check(bench_matmul_device(b, d, t), types[t].dtype, largest));
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++)
        for (int t = 0; t < TYPES; t++) {
            tr_device_t *device = bench_matmul_device(b, d, t);
            matmul_peak_t *peak = &b->peak[d][t];
            double best = 0;
            if (!device) continue;
            for (int i = 0; i < b->o->sizes.count; i++) {
                TR_TRY(bench_time_product(device, types[t].dtype, b->o->sizes.value[i],
                                          &b->cell[d][t][i]));
                best = fmax(best, bench_matmul_rate(b, d, t, i));
            }
            /* What the device measures for the type, or the best rate where that is more. */
            if (!device->ops->measure_peak ||
                device->ops->measure_peak(device, types[t].dtype, &peak->flops, &peak->bytes) !=
                    TR_OK)
                tr_error_clear();
            peak->is_measured = peak->flops > best;
            peak->flops = fmax(peak->flops, best);
        }
    return TR_OK;
}

static void bench_matmul_fill_rows(bench_matmul_t *b) {
    for (int t = 0; t < TYPES; t++)
        for (int i = 0; i < b->o->sizes.count; i++)
            for (int d = 0; d < BENCH_MATMUL_DEVICES; d++) {
                const double rate = bench_matmul_rate(b, d, t, i);
                if (!bench_matmul_device(b, d, t)) continue;
                b->rows[b->count++] =
                    (matmul_row_t){.type = type_names[t],
                                   .device = device_names[d],
                                   .n = b->o->sizes.value[i],
                                   .rate = rate,
                                   .share = rate / b->peak[d][t].flops,
                                   .speedup = d == 1 ? bench_matmul_speedup(b, t, i) : NAN,
                                   .took = b->cell[d][t][i]};
            }
}

/* -- text -------------------------------------------------------------------------------------- */

static void bench_matmul_print(const bench_matmul_t *b) {
    bool first = true;
    printf("C = A B with n x n matrices. Speedup: of the product alone, over the CPU. Transfers: A "
           "and B to the GPU, C from the GPU.\n");
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++) {
        if (!b->device[d]) continue;
        printf("%-5s %s", device_names[d], b->device[d]->description);
        for (int t = 0; t < TYPES; t++)
            if (bench_matmul_device(b, d, t))
                printf("; %s peak %.1f GFLOP/s (%s)", type_names[t], b->peak[d][t].flops / 1e9,
                       b->peak[d][t].is_measured ? "measured" : "the best of this table");
        printf("\n");
    }
    printf("\n");
    cmd_table_print(&table, b->rows, b->count);
    for (int t = 0; t < TYPES; t++)
        for (int way = 0; way < WAYS; way++) {
            const int n = bench_matmul_wins_from(b, t, way);
            if (n < 0) continue;
            printf("%s%-5s %-24s ", first ? "\n" : "", type_names[t], way_names[way]);
            printf(n > 0 ? "the GPU is faster from n = %d\n" : "the CPU is faster at every size\n",
                   n);
            first = false;
        }
}

/* -- JSON -------------------------------------------------------------------------------------- */

static tr_status_t bench_matmul_write_json(const bench_matmul_t *b) {
    json_t *devices = json_array(), *gains = json_array();
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++) {
        double bytes_per_sec = NAN;
        json_t *peaks = json_object();
        for (int t = 0; t < TYPES; t++)
            if (bench_matmul_device(b, d, t))
                json_object_set_new(peaks, type_names[t],
                                    tr_json_measured(b->peak[d][t].flops / 1e9));
        if (b->device[d] && bench_copy_rate(b->device[d], &bytes_per_sec) != TR_OK)
            tr_error_clear();
        if (b->device[d])
            json_array_append_new(devices,
                                  json_pack("{s:s, s:s, s:i, s:O, s:o}", "name", device_names[d],
                                            "description", b->device[d]->description, "threads",
                                            b->device[d]->threads, "peak_gflops", peaks, "copy_gbs",
                                            tr_json_measured(bytes_per_sec / 1e9)));
        json_decref(peaks);
    }
    for (int t = 0; t < TYPES; t++) {
        if (bench_matmul_wins_from(b, t, ALONE) < 0) continue;
        json_t *gain = json_pack("{s:s}", "type", type_names[t]);
        for (int way = 0; way < WAYS; way++) {
            const int n = bench_matmul_wins_from(b, t, way);
            json_object_set_new(gain, way_keys[way], n ? json_integer(n) : json_null());
        }
        json_array_append_new(gains, gain);
    }
    return cmd_json_write(json_pack("{s:s, s:s, s:o, s:o, s:o}", "kind", "matmul", "version",
                                    cmd_version, "devices", devices, "rows",
                                    tr_table_json(&table, b->rows, b->count), "gpu_faster_from",
                                    gains),
                          b->o->json);
}

/* -- the plot ---------------------------------------------------------------------------------- */

static const tr_plot_t plots[] = {{.chart = {.title = "Rate of a product",
                                             .x_label = "n",
                                             .y_label = "GFLOP/s",
                                             .x_scale = TR_SVG_SIZES,
                                             .y_scale = TR_SVG_LOG},
                                   .x = "n",
                                   .curves = {{"gflops"}}},
                                  {.chart = {.title = "Speedup over the CPU",
                                             .x_label = "n",
                                             .y_label = "speedup over the CPU",
                                             .x_scale = TR_SVG_SIZES,
                                             .y_scale = TR_SVG_LOG},
                                   .x = "n",
                                   .curves = {{"speedup"}}}};

/* The types have the colours; the devices have dashes and markers of their own. */
static tr_status_t bench_matmul_write_svg(const bench_matmul_t *b) {
    static const tr_svg_role_t roles[TYPES] = {TR_SHOWS_FP32, TR_SHOWS_TF32, TR_SHOWS_BF16,
                                               TR_SHOWS_FP16};
    enum { MOST = TYPES * BENCH_MATMUL_DEVICES };
    tr_plot_rows_t rows[MOST];
    char titles[MOST][32];
    size_t count = 0, first = 0;
    for (int t = 0; t < TYPES; t++) {
        size_t devices = 0;
        for (int d = 0; d < BENCH_MATMUL_DEVICES; d++) {
            if (!bench_matmul_device(b, d, t)) continue;
            tr_snprintf(titles[count], sizeof titles[count], "%s %s", device_names[d],
                        type_names[t]);
            rows[count] = (tr_plot_rows_t){.title = titles[count],
                                           .role = roles[t],
                                           .variant = d,
                                           .data = &b->rows[first + devices++],
                                           .count = (size_t)b->o->sizes.count};
            count++;
        }
        for (size_t i = count - devices; i < count; i++) rows[i].stride = devices;
        first += devices * (size_t)b->o->sizes.count;
    }
    return cmd_plots_write(b->o->svg, plots, TR_COUNT(plots), &table, rows, count);
}

static tr_status_t bench_matmul_run(void *options) {
    const bench_matmul_options_t *o = options;
    bench_matmul_t *b = NULL;
    tr_world_t *world = NULL;
    tr_config_t *config = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *b, "bench matmul", &b));
    b->o = o;
    for (int i = 0; i < o->types.count; i++) b->wants_type[o->types.value[i]] = true;
    for (int i = 1; i < o->sizes.count; i++)
        if (o->sizes.value[i] <= o->sizes.value[i - 1])
            TR_TRY_GOTO(TR_FAIL(TR_ERR_USAGE,
                                "--sizes: expected ascending numbers, found %d after %d",
                                o->sizes.value[i], o->sizes.value[i - 1]),
                        done);
    TR_TRY_GOTO(cmd_world_open(&world), done);
    TR_TRY_GOTO(cmd_config_load_all(world, NULL, o->settings, &config), done);
    if (tr_world_info(world)->size > 1)
        TR_TRY_GOTO(TR_FAIL(TR_ERR_CONFIG,
                            "bench matmul runs alone, found %d ranks: start it without "
                            "mpirun or with one rank",
                            tr_world_info(world)->size),
                    done);
    TR_TRY_GOTO(bench_matmul_open_devices(b, config), done);
    TR_TRY_GOTO(bench_matmul_measure(b), done);
    bench_matmul_fill_rows(b);
    if (!cmd_json_is_stdout(o->json)) bench_matmul_print(b);
    if (o->json) TR_TRY_GOTO(bench_matmul_write_json(b), done);
    if (o->svg) TR_TRY_GOTO(bench_matmul_write_svg(b), done);
done:
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++) tr_device_close(&b->device[d]);
    tr_device_close(&b->tf32_device);
    tr_config_destroy(&config);
    tr_free(&b);
    if (status == TR_OK) cmd_world_close(&world); /* else main ends the other ranks */
    return status;
}

static const cmd_argument_t arguments[] = {
    {"[key=value ...]", offsetof(bench_matmul_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_NUMBERS(bench_matmul_options_t, sizes, "--sizes", "N,N,...",
                       "100,128,200,256,400,500,512,800,1000,1024,1600,2000,2048,3200,4096", 1,
                       65536, "The sizes of the matrices, ascending."),
    CMD_OPTION_CHOICES(bench_matmul_options_t, types, "--types", "T,T", "fp32,tf32,bf16,fp16",
                       "fp32|tf32|bf16|fp16", "The types of the matrices."),
    CMD_OPTION_CHOICES(bench_matmul_options_t, devices, "--devices", "D,D", "cpu,cuda", "cpu|cuda",
                       "The devices; those that are not here are left out."),
    CMD_OPTION_JSON(bench_matmul_options_t, BENCH_JSON),
    BENCH_SVG(bench_matmul_options_t, "the rates, and below them the speedup, over the size"),
};

const cmd_command_t bench_matmul = {
    .name = "bench matmul",
    .summary =
        "Times matrix products.\n"
        "It runs alone. It times products of square matrices on the CPU and, where there is one, "
        "on the GPU, by type and size, and the transfers of the operands and of the product, from "
        "pinned and from pageable memory. It prints GFLOP/s, the share of the peak, the speedup of "
        "the GPU over the CPU, the memory taken from the device, and the size from which the GPU "
        "is faster, transfers counted. Matrices that do not fit in the memory are refused before "
        "anything is allocated.",
    CMD_ARGUMENTS(bench_matmul_options_t),
    CMD_OPTIONS,
    .run = bench_matmul_run,
};
