/* Element types and shapes. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>

#include "trainer/tensor_types.h"

#include <string.h>

static void types_have_sizes_and_names(void **state) {
    static const size_t bytes[TR_DTYPE_COUNT] = {4, 2, 2, 8, 1, 1, 2, 2, 4, 4, 8, 8};
    for (int i = 0; i < TR_DTYPE_COUNT; i++) {
        assert_int_equal(tr_dtype_bytes((tr_dtype_t)i), bytes[i]);
        assert_int_equal(tr_dtype_is_float((tr_dtype_t)i), i <= TR_F64);
        for (int j = 0; j < i; j++)
            assert_string_not_equal(tr_dtype_name((tr_dtype_t)i), tr_dtype_name((tr_dtype_t)j));
    }
    assert_string_equal(tr_dtype_name(TR_BF16), "bf16");
    assert_string_equal(tr_dtype_name(TR_DTYPE_COUNT), "?");
    assert_int_equal(tr_dtype_bytes(TR_DTYPE_COUNT), 0);
}

static void shapes(void **state) {
    char text[96];
    tr_shape_t images = TR_SHAPE(64, 28, 28, 1), scalar = {0}, vector = TR_SHAPE(64);
    assert_int_equal(tr_shape_elems(&images), 64 * 28 * 28);
    assert_int_equal(tr_shape_elems(&scalar), 1);
    assert_string_equal(tr_shape_format(&images, text), "(64, 28, 28, 1)");
    assert_string_equal(tr_shape_format(&scalar, text), "()");
    assert_true(tr_shape_equal(&images, &TR_SHAPE(64, 28, 28, 1)));
    assert_false(tr_shape_equal(&images, &TR_SHAPE(64, 28, 28)));
    assert_false(tr_shape_equal(&vector, &TR_SHAPE(65)));
    tr_shape_t longest = TR_SHAPE(INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX, INT64_MAX);
    assert_true(strlen(tr_shape_format(&longest, text)) < 96);
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(types_have_sizes_and_names),
                                       cmocka_unit_test(shapes)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
