/* trainer info: describes this build and this machine. It does not initialise MPI, so that it works
 * where MPI does not. */
#include "cmd.h"
#include "base/cores.h"
#include "base/host.h"
#include "device/device.h"
#include "device/isa.h"
#include "machine.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* The value of `key` in /proc/cpuinfo; "" if there is none. */
static void info_read_line(const char *key, char *text, size_t bytes) {
    static char line[16384]; /* the flags of a processor have some thousand characters */
    *text = '\0';
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return;
    while (!*text && fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (!value || strncmp(line, key, strlen(key)) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(text, bytes, "%s", value + 1 + strspn(value + 1, " \t"));
    }
    fclose(file);
}

/* The instruction sets of the processor that matter for speed. */
static void info_read_isa(char *text, size_t bytes) {
    static const char *const wanted[] = {"avx2",        "fma",      "avx512f",  "avx512_vnni",
                                         "avx512_bf16", "amx_bf16", "amx_int8", "asimd",
                                         "sve",         "sve2",     "bf16"};
    static char flags[16384];
    size_t used = 0;
    info_read_line("flags", flags + 1, sizeof flags - 2);
    if (!flags[1]) info_read_line("Features", flags + 1, sizeof flags - 2);
    flags[0] = ' ';
    strcat(flags, " ");
    *text = '\0';
    for (size_t i = 0; i < TR_COUNT(wanted); i++) {
        char word[32];
        snprintf(word, sizeof word, " %s ", wanted[i]);
        if (strstr(flags, word) && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%s", used ? " " : "", wanted[i]);
    }
}

/* The set of instructions that the device cpu uses. */
static void info_print_set(void) {
    tr_isa_t own;
    if (tr_isa_find(&own) != TR_OK) return; /* the row of the device says why */
    printf("  %-9s %s of %s; kernels for", "set", tr_isa_name(own.set), tr_isa_name(own.processor));
    for (int i = 0; tr_isa_built(i); i++) printf("%s %s", i ? "," : "", tr_isa_built(i));
    printf("%s\n", own.is_limited ? "; limited by TRAINER_ISA" : "");
}

static void info_print_machine(void) {
    struct utsname os = {0};
    char model[256], isa[256], memory[64];
    uname(&os);
    tr_host_cpu_model("/proc/cpuinfo", model, sizeof model);
    info_read_isa(isa, sizeof isa);
    printf("\nmachine\n  %-9s %s, %s %s %s\n", "host", os.nodename, os.sysname, os.release,
           os.machine);
    printf("  %-9s %s\n  %-9s %s\n", "CPU", model, "ISA", *isa ? isa : "unknown");
    info_print_set();
    printf("  %-9s %s free\n", "memory",
           tr_format_bytes(tr_host_meminfo_bytes("MemAvailable"), memory));
}

static void info_print_row(void *self, const char *name, const char *value) {
    (void)self;
    printf("    %-13s %s\n", name, value);
}

static void info_print_devices(void) {
    size_t count;
    const tr_backend_t *const *all = tr_backend_list(&count);
    printf("\ndevices\n");
    for (size_t i = 0; i < count; i++) {
        const tr_backend_t *b = all[i];
        const bool reports = b->report && b->count; /* without opening a device */
        const char *reason = b->unavailable ? b->unavailable() : NULL;
        tr_device_t *device = NULL;
        char memory[32];
        int devices = 0;
        if (reason)
            printf("  %-9s not available: %s\n", b->name, reason);
        else if ((reports ? b->count(&devices) : tr_device_open(b->name, NULL, &device)) != TR_OK)
            printf("  %-9s fails: %s\n", b->name, tr_error_last()->message);
        else if (reports)
            printf("  %-9s %d device%s\n", b->name, devices, devices == 1 ? "" : "s");
        else
            printf("  %-9s %s, %s\n", b->name, device->description,
                   tr_format_bytes((double)device->memory_bytes, memory));
        if (reports && b->report(info_print_row, NULL) != TR_OK)
            tr_error_clear(); /* `reason` says it */
        tr_device_close(&device);
    }
}

/* The cores of this rank. */
static void info_print_binding(void) {
    const long long tasks = tr_launch_tasks();
    char cores[256];
    cpu_set_t set;
    CPU_ZERO(&set);
    (void)sched_getaffinity(0, sizeof set, &set);
    int count = tr_cores_format(&set, cores, sizeof cores),
        online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const char *threads = getenv("OMP_NUM_THREADS");
    if (tasks > 0)
        printf("  rank %d of %lld on %s: ", tr_launch_rank(), tasks, tr_host_name());
    else
        printf("  %-9s ", "cores");
    printf("%d of %d (%s)%s%s%s\n", count, online, cores, count < online ? ", bound" : "",
           threads ? ", OMP_NUM_THREADS=" : "", threads ? threads : "");
}

static tr_status_t info_run(void *options) {
    (void)options;
    /* From the launcher's environment: without a library call this works where MPI cannot start. */
    if (tr_launch_rank() == 0) {
        const char *job = getenv("SLURM_JOB_ID");
        printf("trainer %s\n  %-9s %s\n  %-9s %s\n", cmd_version, "compiler", cmd_build_cc, "flags",
               cmd_build_flags);
        printf("\nlibraries\n");
        for (size_t i = 0; cmd_library_name(i); i++) {
            char version[128];
            const char *path;
            cmd_library_version(i, version, &path);
            printf("  %-9s %-20s %s\n", cmd_library_name(i), version, path);
        }
        info_print_devices();
        info_print_machine();
        if (job) printf("  %-9s job %s\n", "Slurm", job);
    }
    info_print_binding();
    return TR_OK;
}

const cmd_command_t cmd_info = {
    .name = "info",
    .runs = CMD_ON_RANKS,
    .summary = "Shows this build, its libraries, the devices and the machine.",
    .help = "Under mpirun or srun, every rank prints the cores that it may run on.",
    .run = info_run,
};
