/* trainer bench matmul [--sizes N,N,...] [--types T,T] [--devices D,D] [--json FILE] [--svg FILE]
 * [key=value ...]: times matrix products on the CPU and the GPU, with their transfers. */
#include "bench.h"
#include "bench_matmul.h"
#include "cmd/cmd.h"
#include "report/plot.h"
#include "run/run.h"
#include "trainer/log.h"

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
} types[TYPES] = {
    [FP32] = {TR_F32}, [TF32] = {TR_F32, true}, [BF16] = {TR_BF16}, [FP16] = {TR_F16}};
enum { MOST_SIZES = 32 };

typedef struct {
    const char *json, *svg;
    int64_t size[MOST_SIZES]; /* ascending */
    int sizes;
    bool type[TYPES], device[BENCH_MATMUL_DEVICES]; /* those that are measured */
    int assignments;
    char **assignment;
} options_t;

typedef struct {
    double flops, bytes;
    bool is_measured; /* by the device; else the best rate of the table */
} peak_t;

typedef struct {
    const options_t *o;
    tr_device_t *device[BENCH_MATMUL_DEVICES]; /* NULL: not here */
    tr_device_t *tf32_device;                  /* the GPU, with products in TF32 */
    bench_matmul_t cell[BENCH_MATMUL_DEVICES][TYPES][MOST_SIZES];
    peak_t peak[BENCH_MATMUL_DEVICES][TYPES];
} bench_t;

/* -- options ----------------------------------------------------------------------------------- */

static tr_status_t parse_sizes(const char *list, options_t *o) {
    o->sizes = 0;
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        char text[32];
        int64_t n = 0;
        snprintf(text, sizeof text, "%.*s", (int)strcspn(p, ","), p);
        if (!tr_parse_int(text, &n) || n < 1 || n > 32768 || o->sizes == MOST_SIZES ||
            (o->sizes > 0 && n <= o->size[o->sizes - 1]))
            return TR_FAIL(TR_ERR_USAGE,
                           "--sizes %s: expected at most %d ascending numbers from 1 to 32768",
                           list, MOST_SIZES);
        o->size[o->sizes++] = n;
    }
    return TR_OK;
}

/* Sets chosen[i] for each names[i] in `list`, separated by commas. False: another name is in it. */
static bool parse_names(const char *list, const char *const *names, int count, bool *chosen) {
    memset(chosen, 0, (size_t)count * sizeof *chosen);
    for (const char *p = list; p; p = strchr(p, ',') ? strchr(p, ',') + 1 : NULL) {
        const size_t bytes = strcspn(p, ",");
        int i = 0;
        while (i < count && (strlen(names[i]) != bytes || strncmp(names[i], p, bytes))) i++;
        if (i == count) return false;
        chosen[i] = true;
    }
    return true;
}

static tr_status_t parse(int argc, char **argv, options_t *o) {
    int kept = 0;
    *o = (options_t){.assignment = argv};
    for (int t = 0; t < TYPES; t++) o->type[t] = true;
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++) o->device[d] = true;
    TR_TRY(parse_sizes("100,128,200,256,400,512,800,1024,1600,2048,3200,4096", o));
    for (int i = 1; i < argc; i++) {
        const bool has_value = i + 1 < argc;
        if (strcmp(argv[i], "--json") == 0 && has_value)
            o->json = argv[++i];
        else if (strcmp(argv[i], "--svg") == 0 && has_value)
            o->svg = argv[++i];
        else if (strcmp(argv[i], "--sizes") == 0 && has_value)
            TR_TRY(parse_sizes(argv[++i], o));
        else if (strcmp(argv[i], "--types") == 0 && has_value) {
            if (!parse_names(argv[++i], type_names, TYPES, o->type))
                return TR_FAIL(TR_ERR_USAGE, "--types %s: expected fp32, tf32, bf16 or fp16",
                               argv[i]);
        } else if (strcmp(argv[i], "--devices") == 0 && has_value) {
            if (!parse_names(argv[++i], device_names, BENCH_MATMUL_DEVICES, o->device))
                return TR_FAIL(TR_ERR_USAGE, "--devices %s: expected devices from cpu and cuda",
                               argv[i]);
        } else if (strchr(argv[i], '=') && argv[i][0] != '-')
            argv[kept++] = argv[i];
        else
            return cmd_fail_option("bench matmul", argv[i]);
    }
    o->assignments = kept;
    return TR_OK;
}

/* -- measuring --------------------------------------------------------------------------------- */

/* The device that measures a cell; NULL: the cell is left out. */
static tr_device_t *device_of(const bench_t *b, int d, int t) {
    if (!b->o->type[t]) return NULL;
    if (!types[t].tf32) return b->device[d];
    return d == 1 ? b->tf32_device : NULL;
}

static double rate(const bench_t *b, int d, int t, int i) {
    const double n = (double)b->o->size[i];
    return 2 * n * n * n / b->cell[d][t][i].product_sec;
}

/* What the device measures for the type, or the best rate of the table where that is more. */
static void find_peak(bench_t *b, int d, int t) {
    peak_t *peak = &b->peak[d][t];
    tr_device_t *device = device_of(b, d, t);
    double best = 0;
    for (int i = 0; i < b->o->sizes; i++) best = fmax(best, rate(b, d, t, i));
    if (!device->ops->measure_peak ||
        device->ops->measure_peak(device, types[t].dtype, &peak->flops, &peak->bytes) != TR_OK)
        tr_error_clear();
    peak->is_measured = peak->flops > best;
    peak->flops = fmax(peak->flops, best);
}

static tr_status_t measure(bench_t *b) {
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++)
        for (int t = 0; t < TYPES; t++) {
            tr_device_t *device = device_of(b, d, t);
            if (!device) continue;
            for (int i = 0; i < b->o->sizes; i++)
                TR_TRY(bench_matmul(device, types[t].dtype, b->o->size[i], &b->cell[d][t][i]));
            find_peak(b, d, t);
        }
    return TR_OK;
}

static tr_status_t open_devices(bench_t *b, const tr_config_t *config) {
    tr_main_settings_t settings;
    tr_config_read(config, &tr_main_config, &settings);
    const tr_device_params_t params = {.threads = settings.threads < 0 ? 0 : (int)settings.threads};
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++) {
        const tr_backend_t *backend = NULL;
        if (!b->o->device[d]) continue;
        if (tr_backend_find(device_names[d], &backend) != TR_OK) {
            tr_error_clear();
            continue;
        }
        TR_TRY(tr_device_open(device_names[d], &params, &b->device[d]));
    }
    if (!b->device[1]) return TR_OK;
    return tr_device_open(device_names[1], &(tr_device_params_t){.tf32 = true}, &b->tf32_device);
}

/* -- the speedup of the GPU -------------------------------------------------------------------- */

enum { ALONE, PINNED, PAGEABLE, WAYS };
static const char *const way_names[WAYS] = {"product alone", "with pinned transfers",
                                            "with pageable transfers"};

static double seconds(const bench_matmul_t *m, int way) {
    if (way == ALONE) return m->product_sec;
    const bench_matmul_copies_t *c = way == PINNED ? &m->pinned : &m->pageable;
    return c->to_sec + m->product_sec + c->from_sec;
}

/* The size from which on the GPU is faster in every size of the table; 0: in none. */
static int64_t wins_from(const bench_t *b, int t, int way) {
    int i = b->o->sizes;
    while (i > 0 && seconds(&b->cell[1][t][i - 1], way) < b->cell[0][t][i - 1].product_sec) i--;
    return i < b->o->sizes ? b->o->size[i] : 0;
}

static bool has_both(const bench_t *b, int t) {
    return device_of(b, 0, t) && device_of(b, 1, t);
}

/* -- showing ----------------------------------------------------------------------------------- */

static void print_ms(double sec) {
    if (isfinite(sec))
        printf(" %10.3f", sec * 1e3);
    else
        printf(" %10s", "-");
}

static void print_row(const bench_t *b, int t, int i, int d) {
    const bench_matmul_t *m = &b->cell[d][t][i];
    printf("%-5s %6lld  %-5s", type_names[t], (long long)b->o->size[i], device_names[d]);
    print_ms(m->product_sec);
    printf(" %10.1f %7.1f", rate(b, d, t, i) / 1e9, 100 * rate(b, d, t, i) / b->peak[d][t].flops);
    print_ms(m->pinned.to_sec);
    print_ms(m->pinned.from_sec);
    print_ms(m->pageable.to_sec);
    print_ms(m->pageable.from_sec);
    printf("\n");
}

static void print_peaks(const bench_t *b) {
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++) {
        if (!b->device[d]) continue;
        printf("%-5s %s", device_names[d], b->device[d]->description);
        for (int t = 0; t < TYPES; t++)
            if (device_of(b, d, t))
                printf("; %s peak %.1f GFLOP/s (%s)", type_names[t], b->peak[d][t].flops / 1e9,
                       b->peak[d][t].is_measured ? "measured" : "the best of this table");
        printf("\n");
    }
}

static void print_gains(const bench_t *b) {
    bool first = true;
    for (int t = 0; t < TYPES; t++)
        for (int way = 0; way < WAYS && has_both(b, t); way++, first = false) {
            const int64_t n = wins_from(b, t, way);
            printf("%s%-5s %-24s ", first ? "\n" : "", type_names[t], way_names[way]);
            printf(n > 0 ? "the GPU is faster from n = %lld\n"
                         : "the CPU is faster at every size\n",
                   (long long)n);
        }
}

static void print_result(const bench_t *b) {
    printf("C = A B with n x n matrices. Transfers: A and B to the GPU, C from the GPU.\n");
    print_peaks(b);
    printf("\n%-5s %6s  %-5s %10s %10s %7s %21s %21s\n", "", "", "", "", "", "",
           "pinned transfer, ms", "pageable transfer, ms");
    printf("%-5s %6s  %-5s %10s %10s %7s %10s %10s %10s %10s\n", "type", "n", "", "ms", "GFLOP/s",
           "% peak", "to", "from", "to", "from");
    for (int t = 0; t < TYPES; t++)
        for (int i = 0; i < b->o->sizes; i++)
            for (int d = 0; d < BENCH_MATMUL_DEVICES; d++)
                if (device_of(b, d, t)) print_row(b, t, i, d);
    print_gains(b);
}

static json_t *row_json(const bench_t *b, int t, int i, int d) {
    const bench_matmul_t *m = &b->cell[d][t][i];
    return json_pack(
        "{s:s, s:I, s:s, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "type", type_names[t], "n",
        (json_int_t)b->o->size[i], "device", device_names[d], "sec",
        tr_json_measured(m->product_sec), "gflops", tr_json_measured(rate(b, d, t, i) / 1e9),
        "share_of_peak", tr_json_measured(rate(b, d, t, i) / b->peak[d][t].flops), "pinned_to_sec",
        tr_json_measured(m->pinned.to_sec), "pinned_from_sec", tr_json_measured(m->pinned.from_sec),
        "pageable_to_sec", tr_json_measured(m->pageable.to_sec), "pageable_from_sec",
        tr_json_measured(m->pageable.from_sec));
}

static json_t *device_json(const bench_t *b, int d) {
    double bytes_per_sec = NAN;
    json_t *peaks = json_object();
    for (int t = 0; t < TYPES; t++)
        if (device_of(b, d, t))
            json_object_set_new(peaks, type_names[t], tr_json_measured(b->peak[d][t].flops / 1e9));
    if (bench_copy_rate(b->device[d], &bytes_per_sec) != TR_OK) tr_error_clear();
    return json_pack("{s:s, s:s, s:i, s:o, s:o}", "name", device_names[d], "description",
                     b->device[d]->description, "threads", b->device[d]->threads, "peak_gflops",
                     peaks, "copy_gbs", tr_json_measured(bytes_per_sec / 1e9));
}

static tr_status_t write_json(const bench_t *b) {
    static const char *const keys[WAYS] = {"alone", "pinned", "pageable"};
    json_t *rows = json_array(), *devices = json_array(), *gains = json_array();
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++)
        if (b->device[d]) json_array_append_new(devices, device_json(b, d));
    for (int t = 0; t < TYPES; t++) {
        for (int i = 0; i < b->o->sizes; i++)
            for (int d = 0; d < BENCH_MATMUL_DEVICES; d++)
                if (device_of(b, d, t)) json_array_append_new(rows, row_json(b, t, i, d));
        if (!has_both(b, t)) continue;
        json_t *gain = json_pack("{s:s}", "type", type_names[t]);
        for (int way = 0; way < WAYS; way++) {
            const int64_t n = wins_from(b, t, way);
            json_object_set_new(gain, keys[way], n ? json_integer((json_int_t)n) : json_null());
        }
        json_array_append_new(gains, gain);
    }
    return cmd_json_write(json_pack("{s:s, s:s, s:o, s:o, s:o}", "kind", "matmul", "version",
                                    cmd_version, "devices", devices, "rows", rows,
                                    "gpu_faster_from", gains),
                          b->o->json);
}

/* -- the plot ---------------------------------------------------------------------------------- */

static void append_script(const bench_t *b, tr_str_t *s) {
    tr_str_append(s, "set logscale xy\nset xlabel 'n'\nset ylabel 'GFLOP/s'\n");
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++)
        for (int t = 0; t < TYPES; t++) {
            if (!device_of(b, d, t)) continue;
            tr_str_printf(s, "$%s_%s << EOD\n", device_names[d], type_names[t]);
            for (int i = 0; i < b->o->sizes; i++)
                tr_str_printf(s, "%lld %.6g\n", (long long)b->o->size[i], rate(b, d, t, i) / 1e9);
            tr_str_append(s, "EOD\n");
        }
    const char *between = "plot ";
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++)
        for (int t = 0; t < TYPES; t++) {
            if (!device_of(b, d, t)) continue;
            tr_str_printf(s, "%s$%s_%s with linespoints pt 7 ps 0.4 lw 2 title '%s %s'", between,
                          device_names[d], type_names[t], device_names[d], type_names[t]);
            between = ", ";
        }
    tr_str_append(s, "\n");
}

static tr_status_t write_svg(const bench_t *b) {
    const char *path = b->o->svg;
    tr_plotter_t plotter = {0};
    tr_str_t script = {0}, svg = {0};
    append_script(b, &script);
    tr_plot_draw(&plotter, script.text, &svg);
    tr_str_free(&script);
    if (plotter.is_off) {
        TR_WARN("--svg %s: %s", path, plotter.why);
        return TR_OK;
    }
    const tr_status_t status =
        svg.text ? cmd_text_write("--svg", path, svg.text)
                 : TR_FAIL(TR_ERR_INTERNAL, "--svg %s: gnuplot drew nothing", path);
    tr_str_free(&svg);
    return status;
}

static tr_status_t bench(tr_world_t *world, const tr_config_t *config, const void *options) {
    const options_t *o = options;
    bench_t b = {.o = o};
    if (tr_world_info(world)->size > 1)
        return TR_FAIL(TR_ERR_CONFIG,
                       "bench matmul runs alone, found %d ranks: start it without "
                       "mpirun or with one rank",
                       tr_world_info(world)->size);
    tr_status_t status = open_devices(&b, config);
    if (status == TR_OK) status = measure(&b);
    if (status == TR_OK && !cmd_json_is_stdout(o->json)) print_result(&b);
    if (status == TR_OK && o->json) status = write_json(&b);
    if (status == TR_OK && o->svg) status = write_svg(&b);
    for (int d = 0; d < BENCH_MATMUL_DEVICES; d++) tr_device_close(&b.device[d]);
    tr_device_close(&b.tf32_device);
    return status;
}

tr_status_t cmd_bench_matmul(int argc, char **argv) {
    options_t o;
    TR_TRY(parse(argc, argv, &o));
    return bench_on_ranks(NULL, o.assignments, o.assignment, bench, &o);
}
