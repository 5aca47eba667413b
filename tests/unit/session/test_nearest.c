/* Which device of its node a rank takes. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>

#include "session/open_device.h"

enum { NODE = 8, MOST = 16 };

/* The cores first..first+count-1. */
static cpu_set_t cores(size_t first, size_t count) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (size_t c = first; c < first + count; c++) CPU_SET(c, &set);
    return set;
}

static void assert_taken(const cpu_set_t *near, int count, const cpu_set_t *ranks, int rank_count,
                         const int *expected) {
    for (int r = 0; r < rank_count; r++)
        assert_int_equal(tr_nearest_device(near, count, ranks, r), expected[r]);
}

static void test_devices_in_reversed_order(void **state) {
    const cpu_set_t near[] = {cores(NODE, NODE), cores(NODE, NODE), cores(0, NODE), cores(0, NODE)};
    const cpu_set_t ranks[] = {cores(0, 4), cores(4, 4), cores(8, 4), cores(12, 4)};
    assert_taken(near, 4, ranks, 4, (const int[]){2, 3, 0, 1});
}

static void test_ranks_in_turns(void **state) {
    const cpu_set_t near[] = {cores(0, NODE), cores(0, NODE), cores(NODE, NODE), cores(NODE, NODE)};
    const cpu_set_t ranks[] = {cores(0, 4), cores(8, 4), cores(4, 4), cores(12, 4)};
    assert_taken(near, 4, ranks, 4, (const int[]){0, 2, 1, 3});
}

static void test_ranks_without_binding(void **state) {
    const cpu_set_t near[] = {cores(NODE, NODE), cores(0, NODE), cores(NODE, NODE)};
    const cpu_set_t unknown[3] = {0};
    const cpu_set_t all = cores(0, MOST), ranks[] = {all, all, all};
    assert_taken(near, 3, ranks, 3, (const int[]){0, 1, 2});
    assert_taken(unknown, 3, ranks, 3, (const int[]){0, 1, 2});
}

static void test_shared_devices(void **state) {
    const cpu_set_t near[] = {cores(NODE, NODE), cores(0, NODE)};
    const cpu_set_t ranks[] = {cores(0, 2), cores(2, 2), cores(4, 2), cores(10, 2), cores(8, 2)};
    /* The second rank finds its near device taken, and the devices are free again for the third. */
    assert_taken(near, 2, ranks, 5, (const int[]){1, 0, 1, 0, 0});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_devices_in_reversed_order),
        cmocka_unit_test(test_ranks_in_turns),
        cmocka_unit_test(test_ranks_without_binding),
        cmocka_unit_test(test_shared_devices),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
