/* What this build is and what it finds here. Nothing of it needs MPI to be up: it has to work where
 * MPI does not. */
#include "cmd.h"
#include "device/device.h"

#include <dlfcn.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/utsname.h>
#include <unistd.h>

/* -- libraries: asked as they are loaded, which on a cluster need not be what was built with --- */

static void mpi_version(void *function, char *text, size_t bytes) {
    char full[8192] = ""; /* at least MPI_MAX_LIBRARY_VERSION_STRING */
    int length = 0;
    ((int (*)(char *, int *))function)(full, &length);
    snprintf(text, bytes, "%.*s", (int)strcspn(full, ",\n"), full);
}
static void hdf5_version(void *function, char *text, size_t bytes) {
    unsigned v[3] = {0};
    ((int (*)(unsigned *, unsigned *, unsigned *))function)(&v[0], &v[1], &v[2]);
    snprintf(text, bytes, "%u.%u.%u", v[0], v[1], v[2]);
}
static void dnnl_version(void *function, char *text, size_t bytes) {
    /* dnnl_version_t begins with major, minor, patch */
    const int *v = ((const int *(*)(void))function)();
    snprintf(text, bytes, "%d.%d.%d", v[0], v[1], v[2]);
}
static void text_version(void *function, char *text, size_t bytes) {
    snprintf(text, bytes, "%s", ((const char *(*)(void))function)());
}
static void xxhash_version(void *function, char *text, size_t bytes) {
    unsigned v = ((unsigned (*)(void))function)();
    snprintf(text, bytes, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
}

static const struct {
    const char *name, *symbol;
    void (*version)(void *function, char *text, size_t bytes);
} libraries[] = {
    /* may be called before MPI_Init (MPI 3.1, 8.1.1) */
    {"MPI", "MPI_Get_library_version", mpi_version},
    {"HDF5", "H5get_libversion", hdf5_version},
    {"oneDNN", "dnnl_version", dnnl_version},
    {"jansson", "jansson_version_str", text_version},
    {"xxHash", "XXH_versionNumber", xxhash_version},
    {"zlib", "zlibVersion", text_version},
};

static void print_libraries(void) {
    printf("\nlibraries\n");
    for (size_t i = 0; i < TR_COUNT(libraries); i++) {
        char text[128] = "not loaded";
        Dl_info place = {0};
        void *function = dlsym(RTLD_DEFAULT, libraries[i].symbol);
        if (function) libraries[i].version(function, text, sizeof text);
        if (!function || !dladdr(function, &place)) place.dli_fname = "";
        printf("  %-9s %-20s %s\n", libraries[i].name, text, place.dli_fname);
    }
}

/* -- devices ----------------------------------------------------------------------------------- */

static void print_devices(void) {
    size_t count;
    const tr_backend_t *const *all = tr_backend_list(&count);
    printf("\ndevices\n");
    for (size_t i = 0; i < count; i++) {
        const char *reason = all[i]->unavailable ? all[i]->unavailable() : NULL;
        tr_device_t *device = NULL;
        char memory[32];
        if (reason)
            printf("  %-9s not available: %s\n", all[i]->name, reason);
        else if (tr_device_open(all[i]->name, NULL, &device) != TR_OK)
            printf("  %-9s fails: %s\n", all[i]->name, tr_error_last()->message);
        else
            printf("  %-9s %s, %s\n", all[i]->name, device->description,
                   tr_format_bytes((double)device->memory_bytes, memory));
        tr_device_close(&device);
    }
}

/* -- machine ----------------------------------------------------------------------------------- */

/* The rest of the line that begins with `key` in a file of "key : value" lines; "" where there is
 * none. */
static void read_line(const char *path, const char *key, char *text, size_t bytes) {
    static char line[16384]; /* the flags of a processor are some thousand characters */
    *text = '\0';
    FILE *file = fopen(path, "r");
    if (!file) return;
    while (!*text && fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (!value || strncmp(line, key, strlen(key)) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(text, bytes, "%s", value + 1 + strspn(value + 1, " \t"));
    }
    fclose(file);
}

/* Those instruction sets that decide over speed here, of what the processor says it has. */
static void read_isa(char *text, size_t bytes) {
    static const char *const wanted[] = {"avx2",        "fma",      "avx512f",  "avx512_vnni",
                                         "avx512_bf16", "amx_bf16", "amx_int8", "asimd",
                                         "sve",         "bf16"};
    static char flags[16384];
    size_t used = 0;
    read_line("/proc/cpuinfo", "flags", flags + 1, sizeof flags - 2);
    if (!flags[1]) read_line("/proc/cpuinfo", "Features", flags + 1, sizeof flags - 2);
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

/* "0-3,8": the cores that this process may run on. Returns how many. */
static int read_cores(char *text, size_t bytes) {
    cpu_set_t set;
    size_t used = 0;
    *text = '\0';
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 0;
    for (int first = 0, last; first < CPU_SETSIZE; first = last + 1) {
        last = first;
        if (!CPU_ISSET(first, &set)) continue;
        while (last + 1 < CPU_SETSIZE && CPU_ISSET(last + 1, &set)) last++;
        if (used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, first == last ? "%s%d" : "%s%d-%d",
                                     used ? "," : "", first, last);
    }
    return CPU_COUNT(&set);
}

static void print_machine(void) {
    struct utsname os = {0};
    char model[256], isa[256], memory[64];
    uname(&os);
    read_line("/proc/cpuinfo", "model name", model, sizeof model);
    read_isa(isa, sizeof isa);
    read_line("/proc/meminfo", "MemAvailable", memory, sizeof memory);
    printf("\nmachine\n  %-9s %s, %s %s %s\n", "host", os.nodename, os.sysname, os.release,
           os.machine);
    printf("  %-9s %s\n  %-9s %s\n", "CPU", *model ? model : "unknown", "ISA",
           *isa ? isa : "unknown");
    printf("  %-9s %s free\n", "memory", tr_format_bytes(1024.0 * strtod(memory, NULL), memory));
}

/* -- launch ------------------------------------------------------------------------------------ */

static void print_binding(void) {
    const long long tasks = tr_launch_tasks();
    char cores[256], host[64] = "";
    int count = read_cores(cores, sizeof cores), online = (int)sysconf(_SC_NPROCESSORS_ONLN);
    const char *threads = getenv("OMP_NUM_THREADS");
    gethostname(host, sizeof host - 1);
    if (tasks > 0)
        printf("  rank %d of %lld on %s: ", tr_launch_rank(), tasks, host);
    else
        printf("  %-9s ", "cores");
    printf("%d of %d (%s)%s%s%s\n", count, online, cores, count < online ? ", bound" : "",
           threads ? ", OMP_NUM_THREADS=" : "", threads ? threads : "");
}

tr_status_t cmd_info(int argc, char **argv) {
    if (argc > 1)
        return TR_FAIL(TR_ERR_USAGE, "trainer info takes no arguments, found '%s'", argv[1]);
    /* From the launcher's environment: without a library call this works where MPI cannot start. */
    if (tr_launch_rank() == 0) {
        const char *job = getenv("SLURM_JOB_ID");
        printf("trainer %s\n  %-9s %s\n  %-9s %s\n", cmd_version, "compiler", cmd_build_cc, "flags",
               cmd_build_flags);
        print_libraries();
        print_devices();
        print_machine();
        if (job) printf("  %-9s job %s\n", "Slurm", job);
    }
    print_binding();
    return TR_OK;
}
