/* The processor; limits of the machine and of control groups. */
#include "base/host.h"
#include <dirent.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

const char *tr_host_name(void) {
    static _Thread_local char name[256];
    (void)gethostname(name, sizeof name - 1);
    return name;
}

/* Reads up to two numbers at the beginning of a file; returns how many there are. */
static int host_read_numbers(const char *folder, const char *name, double out[2]) {
    char path[1200];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "r");
    if (!file) return 0;
    int count = fscanf(file, "%lf %lf", &out[0], &out[1]); /* "max": no limit */
    fclose(file);
    return count;
}

static double host_memory_limit(const char *folder) {
    double bytes[2];
    bool given = host_read_numbers(folder, "memory.max", bytes) > 0 ||
                 host_read_numbers(folder, "memory.limit_in_bytes", bytes) > 0;
    return given ? bytes[0] : INFINITY;
}

static double host_cpu_limit(const char *folder) {
    double of[2], period[2];
    if (host_read_numbers(folder, "cpu.max", of) < 2) {
        if (host_read_numbers(folder, "cpu.cfs_quota_us", of) < 1 || of[0] <= 0 ||
            host_read_numbers(folder, "cpu.cfs_period_us", period) < 1)
            return INFINITY;
        of[1] = period[0];
    }
    return of[1] > 0 ? ceil(of[0] / of[1]) : INFINITY;
}

/* The path of the group in a line of /proc/self/cgroup, "0::/user.slice/job" or
 * "4:cpu,cpuacct:/slurm/job"; false: the line is not of this controller. */
static bool host_group_root(const char *line, const char *controller, char *root,
                            size_t root_bytes) {
    const char *list = strchr(line, ':'), *end = list ? strchr(++list, ':') : NULL;
    size_t length = strlen(controller);
    if (!end) return false;
    snprintf(root, root_bytes, "/sys/fs/cgroup");
    if (list == end) return strncmp(line, "0:", 2) == 0;
    snprintf(root, root_bytes, "/sys/fs/cgroup/%s", controller);
    for (; list < end; list += strcspn(list, ",:") + 1)
        if (strncmp(list, controller, length) == 0 && strcspn(list, ",:") == length) return true;
    return false;
}

/* The smallest limit of `group` and of the groups above it. */
static double host_least_above(const char *root, char *group, double (*limit)(const char *folder)) {
    char folder[1100];
    double least = INFINITY;
    /* the whole path, then each parent */
    for (size_t end = strlen(group) + 1; end > 0; end--) {
        if (group[end - 1] != '/' && group[end - 1]) continue;
        group[end - 1] = '\0';
        snprintf(folder, sizeof folder, "%s%s", root, group);
        least = fmin(least, limit(folder));
    }
    return least;
}

static double host_least_limit(const char *controller, double (*limit)(const char *folder)) {
    char line[768], root[64];
    double least = INFINITY;
    FILE *file = fopen("/proc/self/cgroup", "r");
    if (!file) return least;
    while (fgets(line, sizeof line, file)) {
        char *group = strchr(line, '/');
        line[strcspn(line, "\n")] = '\0';
        if (group && host_group_root(line, controller, root, sizeof root))
            least = fmin(least, host_least_above(root, group, limit));
    }
    fclose(file);
    return least;
}

double tr_host_meminfo_bytes(const char *name) {
    char line[256];
    double bytes = NAN;
    FILE *file = fopen("/proc/meminfo", "re");
    while (file && isnan(bytes) && fgets(line, sizeof line, file))
        if (strncmp(line, name, strlen(name)) == 0 && line[strlen(name)] == ':')
            bytes = 1024 * (double)atoll(line + strlen(name) + 1);
    if (file) fclose(file);
    return bytes;
}

size_t tr_host_memory_bytes(void) {
    struct rlimit space; /* ulimit -v */
    const bool is_limited = getrlimit(RLIMIT_AS, &space) == 0 && space.rlim_cur != RLIM_INFINITY;
    const double all = tr_host_meminfo_bytes("MemTotal");
    if (isnan(all)) return 0;
    return (size_t)fmin(fmin(all, host_least_limit("memory", host_memory_limit)),
                        is_limited ? (double)space.rlim_cur : INFINITY);
}

int tr_host_cpu_limit(void) {
    double limit = host_least_limit("cpu", host_cpu_limit);
    return limit < 1e6 ? (int)limit : 0;
}

size_t tr_host_resident_bytes(void) {
    double pages[2]; /* of the address space, and in memory */
    if (host_read_numbers("/proc/self", "statm", pages) < 2) return 0;
    return (size_t)pages[1] * (size_t)sysconf(_SC_PAGESIZE);
}

static double host_seconds(struct timeval t) {
    return (double)t.tv_sec + 1e-6 * (double)t.tv_usec;
}

double tr_host_cpu_sec(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return host_seconds(usage.ru_utime) + host_seconds(usage.ru_stime);
}

double tr_host_cores_wait_sec(void) {
    double nanosec[2], sum = NAN; /* on a core, and ready for one */
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *entry; threads && (entry = readdir(threads)) != NULL;) {
        char folder[300];
        snprintf(folder, sizeof folder, "/proc/self/task/%s", entry->d_name);
        if (entry->d_name[0] != '.' && host_read_numbers(folder, "schedstat", nanosec) == 2)
            sum = 1e-9 * nanosec[1] + (isnan(sum) ? 0 : sum);
    }
    if (threads) closedir(threads);
    return sum;
}

/* Linux tells Arm processors by the numbers of a register. */
static void host_name_arm(unsigned long implementer, unsigned long part, char *text,
                          size_t text_bytes) {
    const char *name = implementer != 0x41 ? NULL
                       : part == 0xd0c     ? "N1"
                       : part == 0xd40     ? "V1"
                       : part == 0xd49     ? "N2"
                       : part == 0xd4f     ? "V2"
                                           : NULL;
    if (name)
        snprintf(text, text_bytes, "Arm Neoverse-%s", name);
    else
        snprintf(text, text_bytes, "Arm CPU, implementer 0x%lx, part 0x%lx", implementer, part);
}

void tr_host_cpu_model(const char *cpuinfo, char *text, size_t text_bytes) {
    char line[512];
    unsigned long implementer = 0;
    snprintf(text, text_bytes, "CPU");
    FILE *file = fopen(cpuinfo, "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (!value) continue;
        line[strcspn(line, "\n")] = '\0';
        value += 1 + strspn(value + 1, " ");
        if (strncmp(line, "CPU implementer", 15) == 0) implementer = strtoul(value, NULL, 0);
        if (strncmp(line, "model name", 10) == 0)
            snprintf(text, text_bytes, "%s", value);
        else if (strncmp(line, "CPU part", 8) == 0)
            host_name_arm(implementer, strtoul(value, NULL, 0), text, text_bytes);
        else
            continue;
        break;
    }
    fclose(file);
}
