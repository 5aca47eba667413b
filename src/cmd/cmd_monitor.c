/* trainer monitor: prints the GPUs of this node, or without one its cores and memory, again and
 * again. It opens no GPU, and asks the driver by NVML. */
#include "base/clock.h"
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
    char line[256];
    double total = NAN, available = NAN;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && fgets(line, sizeof line, file)) {
        (void)sscanf(line, "MemTotal: %lf", &total);
        (void)sscanf(line, "MemAvailable: %lf", &available);
    }
    if (file) fclose(file);
    tr_snprintf(row.name, sizeof row.name, "%ld core%s", cores, cores == 1 ? "" : "s");
    row.total_bytes = 1024 * total;
    row.used_bytes = 1024 * (total - available);
    if (now.all > before->all) row.util = (now.busy - before->busy) / (now.all - before->all);
    *before = now;
    return row;
}

static int monitor_sample(tr_gpu_sample_t rows[MOST_ROWS], cpu_ticks_t *before) {
    size_t backends;
    const tr_backend_t *const *list = tr_backend_list(&backends);
    int count = 0;
    for (size_t i = 0; i < backends; i++)
        if (list[i]->sample) count += list[i]->sample(NULL, rows + count, MOST_ROWS - count);
    if (count > 0) return count;
    rows[0] = monitor_sample_machine(before);
    return 1;
}

/* -- output ------------------------------------------------------------------------------------ */

static const char *format_known(double value, double scale, const char *unit, char text[32]) {
    if (!isfinite(value)) return "-";
    tr_snprintf(text, 32, "%.0f %s", scale * value, unit);
    return text;
}

static void monitor_print_table(const tr_gpu_sample_t *rows, int count) {
    int width = 4;
    for (int i = 0; i < count; i++)
        if ((int)strlen(rows[i].name) > width) width = (int)strlen(rows[i].name);
    printf("%-5s  %-*s  %10s  %10s  %10s  %5s  %6s  %6s\n", "", width, "name", "total", "used",
           "free", "util", "temp", "power");
    for (int i = 0; i < count; i++) {
        const tr_gpu_sample_t *r = &rows[i];
        const double bytes[3] = {r->total_bytes, r->used_bytes, r->total_bytes - r->used_bytes};
        char index[32] = "cpu", memory[3][32], util[32], temperature[32], power[32];
        if (r->index != NO_GPU) tr_snprintf(index, sizeof index, "gpu %d", r->index);
        for (int k = 0; k < 3; k++)
            if (isfinite(bytes[k]))
                (void)tr_format_bytes(bytes[k], memory[k]);
            else
                tr_snprintf(memory[k], sizeof memory[k], "-");
        printf("%-5s  %-*s  %10s  %10s  %10s  %5s  %6s  %6s\n", index, width, r->name, memory[0],
               memory[1], memory[2], format_known(r->util, 100, "%", util),
               format_known(r->celsius, 1, "C", temperature),
               format_known(r->watts, 1, "W", power));
    }
}

/* Unknown: an empty field. */
static void monitor_print_csv(const tr_gpu_sample_t *rows, int count) {
    char now[32];
    tr_clock_iso8601(now);
    for (int i = 0; i < count; i++) {
        const tr_gpu_sample_t *r = &rows[i];
        const double values[] = {r->total_bytes, r->used_bytes, r->total_bytes - r->used_bytes,
                                 r->util,        r->celsius,    r->watts};
        printf("%s,", now);
        if (r->index == NO_GPU)
            printf("cpu,%s", r->name);
        else
            printf("%d,%s", r->index, r->name);
        for (size_t k = 0; k < TR_COUNT(values); k++)
            if (isfinite(values[k]))
                printf(k < 3 ? ",%.0f" : ",%.4g", values[k]);
            else
                putchar(',');
        putchar('\n');
    }
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
    tr_gpu_sample_t rows[MOST_ROWS];
    cpu_ticks_t before = read_cpu_ticks();
    if (options->csv)
        printf("time,index,name,total_bytes,used_bytes,free_bytes,utilization_ratio,"
               "temperature_celsius,power_watts\n");
    bool goes_on = monitor_waits(fmin(first_sec, options->interval));
    for (int64_t i = 0; goes_on; i++) {
        const int count = monitor_sample(rows, &before);
        if (options->csv)
            monitor_print_csv(rows, count);
        else
            monitor_print_table(rows, count);
        /* main reports what could not be written */
        if (fflush(stdout) != 0 || (options->count > 0 && i + 1 == options->count)) break;
        goes_on = monitor_waits(options->interval);
        if (goes_on && redraws) printf("\x1b[%dA\x1b[J", count + 1);
    }
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
