/* Copies, sums, factors, conversions, the check for NaN. */
#include "cpu_kernel_test.h"

static const int64_t sizes[] = {1, 3, 17, 1000003};
enum { SIZES = sizeof sizes / sizeof *sizes };

static void test_copy(void **state) {
    for (int s = 0; s < SIZES; s++) {
        int64_t n = sizes[s];
        float *x = kt_normal(n, 1, 0, 1), *y = kt_zeros(n);
        RUN(COPY, NULL, VIEWS(F32(x, n)), VIEWS(F32(y, n)));
        assert_memory_equal(x, y, (size_t)n * sizeof *x);
        free(x);
        free(y);
    }
    uint8_t from[5] = {1, 2, 3, 4, 5}, to[5] = {0};
    tr_view_t in = {from, TR_U8, TR_SHAPE(5)}, out = {to, TR_U8, TR_SHAPE(1, 5)};
    RUN(COPY, NULL, VIEWS(in), VIEWS(out));
    assert_memory_equal(from, to, 5);
}

static void test_accumulate(void **state) {
    for (int s = 0; s < SIZES; s++) {
        int64_t n = sizes[s];
        float *x = kt_normal(n, 1, 0, 1), *y = kt_normal(n, 2, 0, 1);
        double *want = malloc((size_t)n * sizeof *want);
        for (int64_t i = 0; i < n; i++) want[i] = (float)(x[i] + y[i]);
        RUN(ACCUMULATE, NULL, VIEWS(F32(x, n)), VIEWS(F32(y, n)));
        kt_close(y, want, n, 0, 0, "accumulate");
        free(x);
        free(y);
        free(want);
    }
}

/* In place over neither (0), a (1) or b (2). */
static void check_add(int64_t n, tr_act_t act, int place) {
    float *a = kt_normal(n, 1, 0, 1), *b = kt_normal(n, 2, 0, 1), *y = kt_zeros(n);
    double *want = malloc((size_t)n * sizeof *want);
    tr_add_attr_t attr = {act};
    for (int64_t i = 0; i < n; i++) {
        float sum = a[i] + b[i];
        want[i] = act == TR_ACT_RELU && sum < 0 ? 0 : sum;
    }
    float *out = place == 0 ? y : place == 1 ? a : b;
    RUN(ADD, &attr, VIEWS(F32(a, n), F32(b, n)), VIEWS(F32(out, n)));
    kt_close(out, want, n, 0, 0, "add");
    free(a);
    free(b);
    free(y);
    free(want);
}

static void test_add(void **state) {
    for (int s = 0; s < SIZES; s++)
        for (int place = 0; place < 3; place++) {
            check_add(sizes[s], TR_ACT_NONE, place);
            check_add(sizes[s], TR_ACT_RELU, place);
        }
    float a[3] = {NAN, 1, -INFINITY}, b[3] = {1, INFINITY, 1}, y[3];
    tr_add_attr_t attr = {TR_ACT_RELU};
    RUN(ADD, &attr, VIEWS(F32(a, 3), F32(b, 3)), VIEWS(F32(y, 3)));
    assert_true(isnan(y[0]) && y[1] == INFINITY && y[2] == 0);
}

static void test_scale(void **state) {
    tr_scale_attr_t attr = {-0.3f};
    for (int s = 0; s < SIZES; s++) {
        int64_t n = sizes[s];
        float *x = kt_normal(n, 1, 0, 1);
        double *want = malloc((size_t)n * sizeof *want);
        for (int64_t i = 0; i < n; i++) want[i] = (float)(-0.3f * x[i]);
        RUN(SCALE, &attr, VIEWS(F32(x, n)), VIEWS(F32(x, n)));
        kt_close(x, want, n, 0, 0, "scale");
        free(x);
        free(want);
    }
}

static int32_t finite_flag(float *x, int64_t n, int32_t before) {
    RUN(CHECK_FINITE, NULL, VIEWS(F32(x, n)), VIEWS(I32(&before, 1)));
    return before;
}

static void test_check_finite(void **state) {
    static const float bad[] = {NAN, INFINITY, -INFINITY};
    for (int s = 0; s < SIZES; s++) {
        int64_t n = sizes[s];
        float *x = kt_normal(n, 1, 0, 1);
        x[0] = 3.4028235e38f;
        assert_int_equal(finite_flag(x, n, 0), 0);
        assert_int_equal(finite_flag(x, n, 1), 1);
        for (int i = 0; i < 3; i++) {
            x[n - 1] = bad[i];
            assert_int_equal(finite_flag(x, n, 0), 1);
            x[n - 1] = 1;
            x[n / 2] = bad[i];
            assert_int_equal(finite_flag(x, n, 0), 1);
            x[n / 2] = 1;
        }
        free(x);
    }
}

static uint64_t fingerprint(const float *x, int64_t n) {
    int64_t sum = 0;
    const tr_view_t bits = {(void *)x, TR_I32, TR_SHAPE(n)};
    RUN(FINGERPRINT, NULL, VIEWS(bits), VIEWS(I64(&sum, 1)));
    return (uint64_t)sum;
}

/* The first two numbers of SplitMix64 seeded with 0; any bit of any place; added to what is there. */
static void test_fingerprint(void **state) {
    const float zeros[2] = {0, 0};
    assert_true(fingerprint(zeros, 1) == 0xe220a8397b1dcdafu);
    assert_true(fingerprint(zeros, 2) == 0xe220a8397b1dcdafu + 0x6e789e6aa1b965f4u);
    for (int s = 0; s < SIZES; s++) {
        const int64_t n = sizes[s];
        float *x = kt_normal(n, 1, 0, 1);
        const uint64_t whole = fingerprint(x, n);
        int64_t twice = (int64_t)whole;
        const tr_view_t bits = {x, TR_I32, TR_SHAPE(n)};
        RUN(FINGERPRINT, NULL, VIEWS(bits), VIEWS(I64(&twice, 1)));
        assert_true((uint64_t)twice == 2 * whole);
        for (int bit = 0; bit < 32; bit++) {
            uint32_t *at = (uint32_t *)x + (n - 1) * (bit % 3) / 2;
            *at ^= 1u << bit;
            assert_true(fingerprint(x, n) != whole);
            *at ^= 1u << bit;
        }
        free(x);
    }
}

/* Converts `n` stored values and compares with what they mean. */
static void check_cast(tr_dtype_t dtype, const void *stored, const double *meant, int64_t n) {
    float *y = kt_zeros(n);
    tr_view_t x = {(void *)stored, dtype, TR_SHAPE(n, 1)};
    RUN(CAST_NORMALIZE, NULL, VIEWS(x, ABSENT, ABSENT), VIEWS(F32(y, n, 1)));
    kt_close(y, meant, n, 0, 0, tr_dtype_name(dtype));
    free(y);
}

static void test_cast_types(void **state) {
    check_cast(TR_F32, (float[]){1.5f, -2, NAN}, (double[]){1.5, -2, NAN}, 3);
    check_cast(TR_F64, (double[]){1.5, 0.1, -INFINITY}, (double[]){1.5, 0.1f, -INFINITY}, 3);
    check_cast(TR_U8, (uint8_t[]){0, 1, 255}, (double[]){0, 1, 255}, 3);
    check_cast(TR_I8, (int8_t[]){-128, 127}, (double[]){-128, 127}, 2);
    check_cast(TR_U16, (uint16_t[]){65535, 1}, (double[]){65535, 1}, 2);
    check_cast(TR_I16, (int16_t[]){-32768, 32767}, (double[]){-32768, 32767}, 2);
    check_cast(TR_U32, (uint32_t[]){4294967295u, 7}, (double[]){4294967296.0, 7}, 2);
    check_cast(TR_I32, (int32_t[]){-2147483647 - 1, 7}, (double[]){-2147483648.0, 7}, 2);
    check_cast(TR_U64, (uint64_t[]){UINT64_C(1) << 63, 7}, (double[]){0x1p63, 7}, 2);
    check_cast(TR_I64, (int64_t[]){-(INT64_C(1) << 40), -1}, (double[]){-0x1p40, -1}, 2);
    check_cast(TR_BF16, (uint16_t[]){0x3f80, 0xc040, 0x7f80}, (double[]){1, -3, INFINITY}, 3);
}

/* Every half-precision number, by the definition of the format. */
static void test_cast_half(void **state) {
    uint16_t *bits = malloc(65536 * sizeof *bits);
    double *want = malloc(65536 * sizeof *want);
    for (int i = 0; i < 65536; i++) {
        int exponent = i >> 10 & 31, mantissa = i & 1023;
        double v = exponent == 0    ? ldexp(mantissa, -24)
                   : exponent == 31 ? (mantissa ? NAN : INFINITY)
                                    : ldexp(1024 + mantissa, exponent - 25);
        bits[i] = (uint16_t)i;
        want[i] = i & 0x8000 ? -v : v;
    }
    check_cast(TR_F16, bits, want, 65536);
    free(bits);
    free(want);
}

/* Casts the `count` floats to `dtype`, many times over, and compares bits. */
static void check_narrow(tr_dtype_t dtype, const uint32_t *from, const uint16_t *want, int count) {
    enum { REPEAT = 5 };
    uint32_t *x = malloc((size_t)count * REPEAT * sizeof *x);
    uint16_t *y = malloc((size_t)count * REPEAT * sizeof *y);
    for (int i = 0; i < count * REPEAT; i++) x[i] = from[i % count];
    tr_view_t in = {x, TR_F32, TR_SHAPE(count * REPEAT)},
              out = {y, dtype, TR_SHAPE(count * REPEAT)};
    RUN(CAST_NORMALIZE, NULL, VIEWS(in, ABSENT, ABSENT), VIEWS(out));
    for (int i = 0; i < count * REPEAT; i++)
        if (y[i] != want[i % count])
            fail_msg("%08x becomes %s %04x, expected %04x", x[i], tr_dtype_name(dtype), y[i],
                     want[i % count]);
    free(x);
    free(y);
}

/* To bf16: the nearest, ties to even, past the largest to infinity; a NaN stays one whatever its
 * bits. */
static void test_cast_to_bf16(void **state) {
    static const uint32_t from[] = {0x3f800000, 0x3f808000, 0x3f818000, 0x3f808001, 0x3f807fff,
                                    0xbf818000, 0x7f7fffff, 0x7f800000, 0xff800000, 0x80000000,
                                    0x7f800001, 0xffffffff, 0x00008001};
    static const uint16_t want[] = {0x3f80, 0x3f80, 0x3f82, 0x3f81, 0x3f80, 0xbf82, 0x7f80,
                                    0x7f80, 0xff80, 0x8000, 0x7fc0, 0xffff, 0x0001};
    check_narrow(TR_BF16, from, want, sizeof want / sizeof *want);
}

/* Around every f16: itself, the tie with the next one, and its two neighbours among floats. */
static void test_cast_to_f16(void **state) {
    enum { FINITE = 0x7c00, EACH = 4 };
    static uint32_t from[FINITE * EACH];
    static uint16_t want[FINITE * EACH];
    static const uint32_t special[] = {0x7f800000, 0xff800000, 0x7f800001, 0xffffffff,
                                       0x80000000, 0x33000000, 0x33000001, 0xb3000001};
    static const uint16_t meant[] = {0x7c00, 0xfc00, 0x7e00, 0xfe00, 0x8000, 0, 1, 0x8001};
    for (int i = 0; i < FINITE; i++) {
        const double unit = i < 0x400 ? 0x1p-24 : ldexp(1, (i >> 10) - 25),
                     v = i < 0x400 ? i * unit : (1024 + (i & 1023)) * unit;
        const float tie = (float)(v + unit / 2),
                    at[EACH] = {(float)v, tie, nextafterf(tie, 0), nextafterf(tie, 1e9f)};
        const int means[EACH] = {i, i + (i & 1), i, i + 1};
        for (int k = 0; k < EACH; k++) {
            memcpy(&from[i * EACH + k], &at[k], sizeof at[k]);
            want[i * EACH + k] = (uint16_t)means[k];
        }
    }
    check_narrow(TR_F16, from, want, FINITE * EACH);
    check_narrow(TR_F16, special, meant, sizeof meant / sizeof *meant);
}

static void check_normalize(int64_t rows, int64_t channels, bool has_scale, bool has_shift) {
    int64_t n = rows * channels;
    uint8_t *x = malloc((size_t)n);
    float *scale = kt_normal(channels, 1, 1, 0.1), *shift = kt_normal(channels, 2, 0, 1),
          *y = kt_zeros(n);
    double *want = malloc((size_t)n * sizeof *want);
    for (int64_t i = 0; i < n; i++) {
        x[i] = (uint8_t)(i * 37 % 256);
        want[i] = x[i] * (has_scale ? (double)scale[i % channels] : 1) +
                  (has_shift ? (double)shift[i % channels] : 0);
    }
    tr_view_t in = {x, TR_U8, TR_SHAPE(rows, channels)};
    RUN(CAST_NORMALIZE, NULL,
        VIEWS(in, has_scale ? F32(scale, channels) : ABSENT,
              has_shift ? F32(shift, channels) : ABSENT),
        VIEWS(F32(y, rows, channels)));
    kt_close(y, want, n, 1e-6, 3e-5, "cast_normalize");
    free(x);
    free(scale);
    free(shift);
    free(y);
    free(want);
}

static void test_cast_normalize(void **state) {
    static const int64_t shapes[][2] = {{1, 1},   {3, 1},    {100003, 1}, {40001, 3},
                                        {17, 17}, {5, 1024}, {3, 1500}};
    for (size_t i = 0; i < sizeof shapes / sizeof *shapes; i++)
        for (int which = 0; which < 4; which++)
            check_normalize(shapes[i][0], shapes[i][1], which & 1, which & 2);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_copy),
        cmocka_unit_test(test_accumulate),
        cmocka_unit_test(test_add),
        cmocka_unit_test(test_scale),
        cmocka_unit_test(test_check_finite),
        cmocka_unit_test(test_cast_types),
        cmocka_unit_test(test_fingerprint),
        cmocka_unit_test(test_cast_half),
        cmocka_unit_test(test_cast_normalize),
        cmocka_unit_test(test_cast_to_bf16),
        cmocka_unit_test(test_cast_to_f16),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
