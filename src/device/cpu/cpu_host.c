/* What the machine is: processor, instruction set, memory. */
#include "cpu_int.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void read_model(char *text, size_t text_bytes) {
    char line[512];
    snprintf(text, text_bytes, "CPU");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (!value || strncmp(line, "model name", 10) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(text, text_bytes, "%s", value + 1 + strspn(value + 1, " "));
        break;
    }
    fclose(file);
}

/* Of the code that was compiled, which is what runs; oneDNN chooses by the processor. */
static const char *compiled_isa(void) {
#if defined(__AVX512F__)
    return "AVX-512";
#elif defined(__AVX2__)
    return "AVX2";
#elif defined(__x86_64__)
    return "SSE2";
#elif defined(__aarch64__)
    return "NEON";
#else
    return "generic";
#endif
}

void tr_cpu_host_describe(int threads, char *text, size_t text_bytes) {
    char model[160];
    read_model(model, sizeof model);
    snprintf(text, text_bytes, "%s, %d thread%s, %s", model, threads, threads == 1 ? "" : "s",
             compiled_isa());
}

static size_t read_meminfo(void) {
    char line[256];
    size_t kib = 0;
    FILE *file = fopen("/proc/meminfo", "r");
    if (!file) return 0;
    while (fgets(line, sizeof line, file))
        if (sscanf(line, "MemTotal: %zu kB", &kib) == 1) break;
    fclose(file);
    return kib * 1024;
}

/* The number in the file, SIZE_MAX where there is none ("max") or no file. */
static size_t read_limit(const char *path) {
    unsigned long long value = 0;
    FILE *file = fopen(path, "r");
    if (!file) return SIZE_MAX;
    int count = fscanf(file, "%llu", &value);
    fclose(file);
    return count == 1 ? (size_t)value : SIZE_MAX;
}

/* The least limit of `group` and of the groups above it: each binds. */
static size_t least_limit(const char *root, char *group, const char *name) {
    char path[1024];
    size_t least = SIZE_MAX;
    for (size_t end = strlen(group) + 1; end > 0; end--) { /* the whole, then what is before each slash */
        if (group[end - 1] != '/' && group[end - 1]) continue;
        group[end - 1] = '\0';
        snprintf(path, sizeof path, "%s%s/%s", root, group, name);
        size_t limit = read_limit(path);
        if (limit < least) least = limit;
    }
    return least;
}

static size_t cgroup_memory_bytes(void) {
    char line[768];
    size_t least = SIZE_MAX;
    FILE *file = fopen("/proc/self/cgroup", "r");
    if (!file) return least;
    while (fgets(line, sizeof line, file)) { /* "0::/user.slice/job" or "5:memory:/slurm/job" */
        size_t limit = SIZE_MAX;
        char *group = strchr(line, '/');
        line[strcspn(line, "\n")] = '\0';
        if (group && strncmp(line, "0::", 3) == 0)
            limit = least_limit("/sys/fs/cgroup", group, "memory.max");
        else if (group && strstr(line, ":memory:"))
            limit = least_limit("/sys/fs/cgroup/memory", group, "memory.limit_in_bytes");
        if (limit < least) least = limit;
    }
    fclose(file);
    return least;
}

size_t tr_cpu_host_memory_bytes(void) {
    size_t total = read_meminfo(), limit = cgroup_memory_bytes();
    return limit < total ? limit : total;
}
