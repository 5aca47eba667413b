/* Counted memory: zeroed, aligned, counted exactly, and failing with a message. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "base/mem.h"

#include <string.h>

static int is_zero(const unsigned char *bytes, size_t count) {
    for (size_t i = 0; i < count; i++)
        if (bytes[i]) return 0;
    return 1;
}

static void counters_balance(void **state) {
    tr_mem_stats_t before = tr_mem_stats();
    char *a = NULL, *b = NULL, *none = NULL;
    OK(tr_alloc(100, "a", &a));
    OK(tr_alloc_aligned(1000, 4096, "b", &b));
    tr_mem_stats_t during = tr_mem_stats();
    assert_int_equal(during.calls, before.calls + 2);
    assert_int_equal(during.live, before.live + 2);
    assert_int_equal(during.live_bytes, before.live_bytes + 1100);
    assert_true(during.peak_bytes >= during.live_bytes);
    tr_free(&a);
    tr_free(&b);
    tr_free(&none);
    assert_null(a);
    assert_null(b);
    assert_int_equal(tr_mem_stats().live, before.live);
    assert_int_equal(tr_mem_stats().live_bytes, before.live_bytes);
    assert_int_equal(tr_mem_stats().peak_bytes, during.peak_bytes);
}

static void blocks_are_zeroed_and_aligned(void **state) {
    for (size_t align = 1; align <= 1 << 21; align *= 2) {
        unsigned char *p = NULL;
        OK(tr_alloc_aligned(33, align, "p", &p));
        assert_int_equal((uintptr_t)p % align, 0);
        assert_true(is_zero(p, 33));
        memset(p, 0xAB, 33);
        tr_free(&p);
    }
    unsigned char *p = NULL;
    OK(tr_alloc(5000, "p", &p));
    assert_int_equal((uintptr_t)p % 16, 0);
    assert_true(is_zero(p, 5000));
    tr_free(&p);
    OK(tr_alloc(0, "nothing", &p));
    assert_non_null(p);
    tr_free(&p);
}

static void realloc_keeps_and_zeroes(void **state) {
    tr_mem_stats_t before = tr_mem_stats();
    unsigned char *p = NULL;
    OK(tr_realloc(&p, 10, "p"));
    for (size_t bytes = 10; bytes < 100000; bytes = bytes * 2 + 1) {
        memset(p, 0xCD, bytes);
        OK(tr_realloc(&p, bytes * 2 + 1, "p"));
        assert_int_equal(p[0], 0xCD);
        assert_int_equal(p[bytes - 1], 0xCD);
        assert_true(is_zero(p + bytes, bytes + 1));
    }
    OK(tr_realloc(&p, 3, "p"));
    assert_int_equal(tr_mem_stats().live_bytes, before.live_bytes + 3);
    tr_free(&p);
    assert_int_equal(tr_mem_stats().live, before.live);
}

static void failure_names_what(void **state) {
    char *p = (char *)1;
    assert_int_equal(tr_alloc(SIZE_MAX, "the whole universe", &p), TR_ERR_MEMORY);
    assert_non_null(strstr(tr_error_last()->message, "the whole universe"));
    assert_ptr_equal(p, (char *)1);
    assert_int_equal(tr_alloc_aligned(64, 48, "odd", &p), TR_ERR_INTERNAL);
    p = NULL;
    OK(tr_alloc(8, "p", &p));
    char *kept = p;
    assert_int_equal(tr_realloc(&p, SIZE_MAX - 8, "p"), TR_ERR_MEMORY);
    assert_ptr_equal(p, kept);
    tr_free(&p);
}

static void chosen_allocation_fails(void **state) {
    char *a = NULL, *b = NULL;
    tr_mem_fail_at(2);
    OK(tr_alloc(8, "a", &a));
    assert_int_equal(tr_strdup("b", &b), TR_ERR_MEMORY);
    OK(tr_strdup("b", &b));
    assert_string_equal(b, "b");
    tr_free(&a);
    tr_free(&b);
}

static void vectors_grow(void **state) {
    tr_mem_stats_t before = tr_mem_stats();
    TR_VEC(int64_t) v = {0};
    for (int64_t i = 0; i < 10000; i++) OK(tr_vec_push(&v, i * i));
    assert_int_equal(v.count, 10000);
    for (int64_t i = 0; i < 10000; i++) assert_int_equal(v.data[i], i * i);
    assert_true(tr_mem_stats().calls - before.calls < 30);
    while (v.count < v.capacity) OK(tr_vec_push(&v, 0));
    size_t count = v.count;
    tr_mem_fail_at(1);
    assert_int_equal(tr_vec_push(&v, 1), TR_ERR_MEMORY);
    assert_int_equal(v.count, count);
    tr_vec_free(&v);
    assert_null(v.data);
    assert_int_equal(tr_mem_stats().live, before.live);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(counters_balance),         cmocka_unit_test(blocks_are_zeroed_and_aligned),
        cmocka_unit_test(realloc_keeps_and_zeroes), cmocka_unit_test(failure_names_what),
        cmocka_unit_test(chosen_allocation_fails),  cmocka_unit_test(vectors_grow),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
