/* trainer monitor: prints the GPUs of this node, or without one its cores and memory, again and
 * again. It opens no GPU, and asks the driver by NVML. */
#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"
#include "cmd.h"
#include "device/device.h"

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

enum { MOST_ROWS = 32, NO_GPU = -1 };

typedef struct {
    double interval;
    int64_t count;
    bool csv;
} monitor_options_t;

/* -- a machine without a GPU ------------------------------------------------------------------- */

/* Since the start of the machine, in ticks. */
typedef struct {
    double busy, all;
} cpu_ticks_t;

static cpu_ticks_t read_cpu_ticks(void) {
    double t[8] = {0};
    cpu_ticks_t ticks = {0};
    FILE *file = fopen("/proc/stat", "re");
    if (!file) return ticks;
    /* user, nice, system, idle, waiting for a disk, interrupts (2), taken by a hypervisor */
    if (fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &t[0], &t[1], &t[2], &t[3], &t[4],
               &t[5], &t[6], &t[7]) >= 4)
        for (int i = 0; i < 8; i++) {
            ticks.all += t[i];
            ticks.busy += i == 3 || i == 4 ? 0 : t[i];
        }
    fclose(file);
    return ticks;
}

/* A row for the machine: its cores and its memory. */
static tr_gpu_sample_t monitor_sample_machine(cpu_ticks_t *before) {
    tr_gpu_sample_t row = {.index = NO_GPU,
                           .celsius = NAN,
                           .watts = NAN,
                           .used_bytes = NAN,
                           .total_bytes = NAN,
                           .util = NAN};
    const cpu_ticks_t now = read_cpu_ticks();
    const long cores = sysconf(_SC_NPROCESSORS_ONLN);
    tr_snprintf(row.name, sizeof row.name, "%ld core%s", cores, cores == 1 ? "" : "s");
    row.total_bytes = tr_host_meminfo_bytes("MemTotal");
    row.used_bytes = row.total_bytes - tr_host_meminfo_bytes("MemAvailable");
    if (now.all > before->all) row.util = (now.busy - before->busy) / (now.all - before->all);
    *before = now;
    return row;
}

/* -- output ------------------------------------------------------------------------------------ */

typedef struct {
    tr_gpu_sample_t sample;
    char place[32], index[16]; /* "gpu 0", "0" */
    double free_bytes;
    char time[32];
} monitor_row_t;

#define MONITOR_BYTES(key, heading, member)                                                        \
    TR_COLUMN(monitor_row_t, key, heading, REAL, member, .people = tr_format_bytes, .width = 10)
static const tr_table_column_t columns[] = {
    TR_COLUMN(monitor_row_t, "time", NULL, CHARS, time),
    TR_COLUMN(monitor_row_t, "index", NULL, CHARS, index),
    TR_COLUMN(monitor_row_t, NULL, "", CHARS, place, .is_left = true, .width = 5),
    TR_COLUMN(monitor_row_t, "name", "name", CHARS, sample.name, .is_left = true),
    MONITOR_BYTES("total_bytes", "total", sample.total_bytes),
    MONITOR_BYTES("used_bytes", "used", sample.used_bytes),
    MONITOR_BYTES("free_bytes", "free", free_bytes),
    TR_COLUMN(monitor_row_t, "utilization_ratio", "util", REAL, sample.util, .format = "%.0f %%",
              .scale = 100, .width = 5),
    TR_COLUMN(monitor_row_t, "temperature_celsius", "temp", REAL, sample.celsius,
              .format = "%.0f C", .width = 6),
    TR_COLUMN(monitor_row_t, "power_watts", "power", REAL, sample.watts, .format = "%.0f W",
              .width = 6),
};
static const tr_table_t table = TR_TABLE(columns, monitor_row_t);

/* A row for each GPU; without one, a row for the machine. */
static int monitor_take(monitor_row_t rows[MOST_ROWS], cpu_ticks_t *before) {
    tr_gpu_sample_t samples[MOST_ROWS];
    size_t backends;
    const tr_backend_t *const *list = tr_backend_list(&backends);
    int count = 0;
    char now[32];
    for (size_t i = 0; i < backends; i++)
        if (list[i]->sample) count += list[i]->sample(NULL, samples + count, MOST_ROWS - count);
    if (count == 0) samples[count++] = monitor_sample_machine(before);
    tr_clock_iso8601(now);
    for (int i = 0; i < count; i++) {
        monitor_row_t *row = &rows[i];
        const bool is_gpu = samples[i].index != NO_GPU;
        *row = (monitor_row_t){.sample = samples[i],
                               .free_bytes = samples[i].total_bytes - samples[i].used_bytes};
        strcpy(row->time, now);
        tr_snprintf(row->index, sizeof row->index, is_gpu ? "%d" : "cpu", samples[i].index);
        tr_snprintf(row->place, sizeof row->place, is_gpu ? "gpu %d" : "cpu", samples[i].index);
    }
    return count;
}

/* -- the command ------------------------------------------------------------------------------- */

/* Ctrl-C, as a signal that is waited for: it cannot come between a check and the wait. */
static bool monitor_waits(double sec) {
    const struct timespec time = {.tv_sec = (time_t)sec, .tv_nsec = (long)(1e9 * fmod(sec, 1))};
    sigset_t interrupt;
    sigemptyset(&interrupt);
    sigaddset(&interrupt, SIGINT);
    sigprocmask(SIG_BLOCK, &interrupt, NULL);
    return sigtimedwait(&interrupt, NULL, &time) != SIGINT;
}

static tr_status_t monitor_run(void *given) {
    const double first_sec = 0.2; /* for the first use of the cores */
    const monitor_options_t *options = given;
    const bool redraws = !options->csv && isatty(STDOUT_FILENO);
    monitor_row_t *rows = NULL;
    cpu_ticks_t before = read_cpu_ticks();
    TR_TRY(tr_alloc(MOST_ROWS * sizeof *rows, "table of GPUs", &rows));
    bool goes_on = monitor_waits(fmin(first_sec, options->interval));
    for (int64_t i = 0; goes_on; i++) {
        const int count = monitor_take(rows, &before);
        if (options->csv)
            cmd_table_print_csv(&table, rows, (size_t)count, i == 0);
        else
            cmd_table_print(&table, rows, (size_t)count);
        /* main reports what could not be written */
        if (fflush(stdout) != 0 || (options->count > 0 && i + 1 == options->count)) break;
        goes_on = monitor_waits(options->interval);
        if (goes_on && redraws) printf("\x1b[%dA\x1b[J", count + 1);
    }
    tr_free(&rows);
    return TR_OK;
}

static const cmd_option_t options[] = {
    CMD_OPTION_DURATION(monitor_options_t, interval, "--interval", "SEC", "1s", 0.1, 86400,
                        "Time between two tables."),
    CMD_OPTION_INT(monitor_options_t, count, "--count", "N", "0", 0, CMD_NO_LIMIT,
                   "Number of tables; 0: until Ctrl-C."),
    CMD_OPTION_FLAG(monitor_options_t, csv, "--csv",
                    "Prints a line for each GPU and time, with bytes, a ratio from 0 to 1, degrees "
                    "Celsius and watts; a field is empty where the driver does not tell it."),
};

const cmd_command_t cmd_monitor = {
    .name = "monitor",
    .runs = CMD_ON_FIRST,
    .summary = "Prints the use of the GPUs of this node: memory, utilisation, temperature, power.",
    .help = "The GPUs are all of the node's, also those that this process may not use. A node "
            "without one has a row for its cores and its memory. A terminal shows one table, which "
            "is redrawn.",
    .options_bytes = sizeof(monitor_options_t),
    CMD_OPTIONS,
    .run = monitor_run,
};
