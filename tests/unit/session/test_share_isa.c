/* The set of instructions that all ranks have. */
//TEST np=2
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "session/share_choices.h"

static tr_world_t *world;

/* The first of `ranks` is what rank 0 may use. */
static void assert_common(const tr_isa_t ranks[2], int set, int most) {
    int found, highest;
    OK(tr_common_isa(world, &ranks[tr_world_info(world)->rank], &found, &highest));
    assert_int_equal(found, set);
    assert_int_equal(highest, most);
}

static void the_lowest_set(void **state) {
    (void)state;
    assert_common((const tr_isa_t[]){{3, 2, false, 7}, {3, 1, true, 7}}, 1, 2);
    assert_common((const tr_isa_t[]){{0, 0, false, 1}, {4, 4, false, 7}}, 0, 4);
    assert_common((const tr_isa_t[]){{3, 3, true, 7}, {3, 3, true, 7}}, 3, 3);
}

static void no_limit_for_equal_processors(void **state) {
    (void)state;
    assert_common((const tr_isa_t[]){{3, 3, false, 7}, {3, 3, false, 7}}, -1, 3);
    /* oneDNN may know instructions that only one of them has */
    assert_common((const tr_isa_t[]){{3, 3, false, 7}, {3, 3, false, INT64_MAX}}, 3, 3);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_lowest_set),
        cmocka_unit_test(no_limit_for_equal_processors),
    };
    if (tr_world_open(NULL, &world) != TR_OK) return 1;
    const int failed = cmocka_run_group_tests(tests, NULL, NULL);
    tr_world_close(&world);
    return failed;
}
