/* Implementations found by name. */
#include "base/registry.h"
#include "../../support/names.h"

#include <stdio.h>
#include "../../support/ok.h"

#define expect_error(call, code, names)                                                            \
    do {                                                                                           \
        assert_int_equal((call), (code));                                                          \
        assert_error_names(names);                                                                 \
    } while (0)

typedef struct {
    const char *name;
    int value;
} thing_t;
static const thing_t one = {"one", 1}, two = {"two", 2}, nameless = {NULL, 0};

static void test_find_and_add(void **state) {
    tr_registry_t registry = {"thing", "thing.type", {&one}};
    assert_ptr_equal(tr_registry_find(&registry, "one"), &one);
    assert_null(tr_registry_find(&registry, "two"));
    OK(tr_registry_add(&registry, &two));
    assert_ptr_equal(tr_registry_find(&registry, "two"), &two);
    assert_ptr_equal(tr_registry_at(&registry, 1), &two);
    assert_null(tr_registry_at(&registry, 2));
    expect_error(tr_registry_add(&registry, &two), TR_ERR_CONFIG, "'two'");
    assert_int_equal(tr_registry_add(&registry, &nameless), TR_ERR_CONFIG);
    expect_error(tr_registry_fail_unknown(&registry, "tow"), TR_ERR_CONFIG, "'two'");
}

static void test_full(void **state) {
    tr_registry_t registry = {"thing", "thing.type", {NULL}};
    static thing_t things[TR_REGISTRY_MAX + 1];
    char names[TR_REGISTRY_MAX + 1][8];
    for (int i = 0; i <= TR_REGISTRY_MAX; i++) {
        snprintf(names[i], sizeof names[i], "t%d", i);
        things[i].name = names[i];
        assert_int_equal(tr_registry_add(&registry, &things[i]),
                         i < TR_REGISTRY_MAX ? TR_OK : TR_ERR_CONFIG);
    }
    assert_null(tr_registry_at(&registry, TR_REGISTRY_MAX));
    assert_ptr_equal(tr_registry_find(&registry, "t63"), &things[63]);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_find_and_add),
        cmocka_unit_test(test_full),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
