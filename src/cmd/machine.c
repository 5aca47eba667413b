/* Facts about the machine: libraries that are loaded, cores and NUMA nodes. */
#include "machine.h"
#include "base/mem.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* -- libraries --------------------------------------------------------------------------------- */

static void machine_mpi_version(void *function, char *text, size_t bytes) {
    char full[8192] = ""; /* at least MPI_MAX_LIBRARY_VERSION_STRING */
    int length = 0;
    ((int (*)(char *, int *))function)(full, &length);
    snprintf(text, bytes, "%.*s", (int)strcspn(full, ",\n"), full);
}
static void machine_hdf5_version(void *function, char *text, size_t bytes) {
    unsigned v[3] = {0};
    ((int (*)(unsigned *, unsigned *, unsigned *))function)(&v[0], &v[1], &v[2]);
    snprintf(text, bytes, "%u.%u.%u", v[0], v[1], v[2]);
}
static void machine_dnnl_version(void *function, char *text, size_t bytes) {
    /* dnnl_version_t begins with major, minor, patch */
    const int *v = ((const int *(*)(void))function)();
    snprintf(text, bytes, "%d.%d.%d", v[0], v[1], v[2]);
}
static void machine_text_version(void *function, char *text, size_t bytes) {
    snprintf(text, bytes, "%s", ((const char *(*)(void))function)());
}
static void machine_xxhash_version(void *function, char *text, size_t bytes) {
    unsigned v = ((unsigned (*)(void))function)();
    snprintf(text, bytes, "%u.%u.%u", v / 10000, v / 100 % 100, v % 100);
}

static const struct {
    const char *name, *symbol;
    void (*version)(void *function, char *text, size_t bytes);
} libraries[] = {
    /* may be called before MPI_Init (MPI 3.1, 8.1.1) */
    {"MPI", "MPI_Get_library_version", machine_mpi_version},
    {"HDF5", "H5get_libversion", machine_hdf5_version},
    {"oneDNN", "dnnl_version", machine_dnnl_version},
    {"jansson", "jansson_version_str", machine_text_version},
    {"xxHash", "XXH_versionNumber", machine_xxhash_version},
    {"zlib", "zlibVersion", machine_text_version},
};

const char *cmd_library_name(size_t index) {
    return index < TR_COUNT(libraries) ? libraries[index].name : NULL;
}

const char *cmd_library_version(size_t index, char version[128], const char **out_path) {
    Dl_info place = {0};
    void *function = dlsym(RTLD_DEFAULT, libraries[index].symbol);
    snprintf(version, 128, "not loaded");
    if (function) libraries[index].version(function, version, 128);
    *out_path = function && dladdr(function, &place) ? place.dli_fname : "";
    return version;
}

/* -- cores ------------------------------------------------------------------------------------- */

/* Parses a list in the kernel's format: "0-3,8". */
static bool machine_has_core_of(const char *list, const cpu_set_t *set) {
    for (char *end; *list >= '0' && *list <= '9'; list = *end == ',' ? end + 1 : end) {
        const long first = strtol(list, &end, 10),
                   last = *end == '-' ? strtol(end + 1, &end, 10) : first;
        for (long core = first; core <= last && core < CPU_SETSIZE; core++)
            if (CPU_ISSET((int)core, set)) return true;
    }
    return false;
}

void cmd_format_numa(const cpu_set_t *set, char *text, size_t bytes) {
    enum { MOST_NODES = 1024 };
    size_t used = 0;
    *text = '\0';
    for (int node = 0, missing = 0; node < MOST_NODES && missing < 64; node++) {
        char path[96], list[1024] = "";
        snprintf(path, sizeof path, "/sys/devices/system/node/node%d/cpulist", node);
        FILE *file = fopen(path, "r");
        missing = file ? 0 : missing + 1; /* numbers may have gaps */
        if (!file) continue;
        if (fgets(list, sizeof list, file) && machine_has_core_of(list, set) && used < bytes)
            used += (size_t)snprintf(text + used, bytes - used, "%s%d", used ? "," : "", node);
        fclose(file);
    }
}
