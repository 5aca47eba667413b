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

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(memory), cmocka_unit_test(processors)};
    return cmocka_run_group_tests_name("host", tests, NULL, NULL);
}
