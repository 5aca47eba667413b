//TEST np=1
/* What the process may use: limits of its control group and of the groups above bind. Without the
 * right to make groups, only the rest. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "base/host.h"
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static int put(const char *folder, const char *name, const char *text) {
    char path[512];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = fopen(path, "w");
    if (!file) return -1;
    int bad = fputs(text, file) < 0;
    return fclose(file) || bad ? -1 : 0;
}

/* A group of `root` with the limit in its `file`, a group in that one, and this process there. */
typedef struct {
    const char *root, *file, *limit;
    char outer[300], inner[320];
} group_t;

static int enter(group_t *g) {
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    snprintf(g->outer, sizeof g->outer, "%s/trainer-test-%s", g->root, pid);
    snprintf(g->inner, sizeof g->inner, "%s/inner", g->outer);
    if (mkdir(g->outer, 0755)) return -1;
    if (mkdir(g->inner, 0755) || put(g->outer, g->file, g->limit) ||
        put(g->inner, "cgroup.procs", pid)) {
        rmdir(g->inner);
        rmdir(g->outer);
        return -1;
    }
    return 0;
}

static void leave(group_t *g) {
    char pid[32];
    snprintf(pid, sizeof pid, "%d", (int)getpid());
    put(g->root, "cgroup.procs", pid);
    rmdir(g->inner);
    rmdir(g->outer);
}

static void memory(void **state) {
    const size_t limit = (size_t)512 << 20, before = tr_host_memory_bytes();
    group_t groups[] = {
        {.root = "/sys/fs/cgroup/memory", .file = "memory.limit_in_bytes", .limit = "536870912"},
        {.root = "/sys/fs/cgroup", .file = "memory.max", .limit = "536870912"}};
    assert_in_range(before, (size_t)1 << 26, (size_t)1 << 50);
    for (int i = 0; i < 2; i++) {
        if (enter(&groups[i])) continue;
        size_t found = tr_host_memory_bytes();
        leave(&groups[i]);
        assert_int_equal(found, before < limit ? before : limit);
        assert_int_equal(tr_host_memory_bytes(), before);
        return;
    }
    skip();
}

static void processors(void **state) {
    const int before = tr_host_cpu_limit();
    group_t groups[] = {
        {.root = "/sys/fs/cgroup/cpu", .file = "cpu.cfs_quota_us", .limit = "130000"},
        {.root = "/sys/fs/cgroup", .file = "cpu.max", .limit = "130000 100000"}};
    assert_in_range(before, 0, 1 << 20);
    for (int i = 0; i < 2; i++) {
        if (enter(&groups[i])) continue;
        int found = tr_host_cpu_limit();
        leave(&groups[i]);
        assert_int_equal(found, before && before < 2 ? before : 2);
        assert_int_equal(tr_host_cpu_limit(), before);
        return;
    }
    skip();
}

static void check_model(const char *cpuinfo, const char *expected) {
    char text[64];
    assert_int_equal(put(".", "cpuinfo", cpuinfo), 0);
    tr_host_cpu_model("cpuinfo", text, sizeof text);
    assert_string_equal(text, expected);
}

static void model(void **state) {
    char text[64];
    check_model("processor\t: 0\nmodel name\t: AMD EPYC 9B14\nprocessor\t: 1\nmodel name\t: 2nd\n",
                "AMD EPYC 9B14");
    check_model(
        "BogoMIPS\t: 2000.00\nCPU implementer\t: 0x41\nCPU variant\t: 0x0\nCPU part\t: 0xd4f\n",
        "Arm Neoverse-V2");
    check_model("CPU implementer\t: 0xc0\nCPU part\t: 0xac3\n",
                "Arm CPU, implementer 0xc0, part 0xac3");
    check_model("hart\t: 0\n", "CPU");
    tr_host_cpu_model("none", text, sizeof text);
    assert_string_equal(text, "CPU");
}

/* ulimit -v */
static void address_space(void **state) {
    struct rlimit own, less;
    const size_t before = tr_host_memory_bytes();
    assert_int_equal(getrlimit(RLIMIT_AS, &own), 0);
    less = (struct rlimit){(rlim_t)1 << 30, own.rlim_max};
    if (before <= less.rlim_cur) skip();
    assert_int_equal(setrlimit(RLIMIT_AS, &less), 0);
    const size_t limited = tr_host_memory_bytes();
    assert_int_equal(setrlimit(RLIMIT_AS, &own), 0);
    assert_int_equal(limited, (size_t)1 << 30);
    assert_int_equal(tr_host_memory_bytes(), before);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory), cmocka_unit_test(processors),
                                       cmocka_unit_test(model), cmocka_unit_test(address_space)};
    return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
