/* Dropout: the mask's bits, its statistics, and that forward and backward agree. */
#include "cpu_kernel_test.h"

static void drop(const float *x, float *y, int64_t samples, int64_t width, const int64_t *ids,
                 float p, uint32_t stream, int64_t step_number) {
    tr_step_t step = {.seed = 99, .step = step_number};
    tr_dropout_attr_t attr = {p, stream};
    RUN(DROPOUT, &attr, VIEWS(F32(x, samples, width), I64(ids, samples), BYTES(&step)),
        VIEWS(F32(y, samples, width)));
}

static float *ones(int64_t n) {
    return kt_normal(n, 0, 1, 0);
}

/* The contract of kernels.h, an element at a time. */
static void test_bits(void **state) {
    static const int64_t widths[] = {1, 3, 17, 255, 257, 4096, 10003};
    int64_t ids[3] = {5, INT64_C(1) << 40, 7};
    for (size_t w = 0; w < sizeof widths / sizeof *widths; w++) {
        int64_t width = widths[w];
        float p = 0.3f, factor = (float)(1 / (1 - (double)p)), *x = kt_normal(3 * width, 1, 0, 1),
              *y = kt_zeros(3 * width);
        drop(x, y, 3, width, ids, p, 4, 123456);
        for (int64_t i = 0; i < 3 * width; i++) {
            int64_t sample = i / width, e = i % width;
            tr_rng_block_t block = tr_rng_philox(99, TR_RNG_DROPOUT, 4, (uint64_t)ids[sample],
                                                 UINT64_C(123456) << 32 | (uint64_t)(e / 4));
            bool kept = block.v[e % 4] >= floor((double)p * 4294967296.0);
            assert_true(y[i] == (kept ? x[i] * factor : 0));
        }
        free(x);
        free(y);
    }
}

static void test_statistics(void **state) {
    enum { N = 1000003 };
    static const float rates[] = {0.1f, 0.5f, 0.9f};
    int64_t id = 3;
    float *x = ones(N), *y = kt_zeros(N);
    for (int r = 0; r < 3; r++) {
        double p = rates[r], kept = 0, pairs = 0, sigma = sqrt(p * (1 - p) / N);
        drop(x, y, 1, N, &id, rates[r], 1, 0);
        for (int i = 0; i < N; i++) kept += y[i] != 0;
        for (int i = 0; i + 1 < N; i++) pairs += y[i] != 0 && y[i + 1] != 0;
        assert_true(fabs(kept / N - (1 - p)) < 5 * sigma);
        assert_true(fabs(pairs / (N - 1) - (1 - p) * (1 - p)) < 10 * sigma);
    }
    free(x);
    free(y);
}

/* Share of elements in which two masks differ. */
static double difference(const float *a, const float *b, int64_t n) {
    double count = 0;
    for (int64_t i = 0; i < n; i++) count += (a[i] != 0) != (b[i] != 0);
    return count / (double)n;
}

static void test_mask_follows_its_key(void **state) {
    enum { W = 5000 };
    int64_t ids[2] = {11, 12}, swapped[2] = {12, 11};
    float *x = ones(2 * W), *y = kt_zeros(2 * W), *z = kt_zeros(2 * W),
          *dy = kt_normal(2 * W, 1, 5, 1);
    drop(x, y, 2, W, ids, 0.5f, 1, 9);
    drop(dy, dy, 2, W, ids, 0.5f, 1, 9); /* the gradient, in place */
    assert_true(difference(y, dy, 2 * W) == 0);
    assert_true(fabs(difference(y, y + W, W) - 0.5) < 0.05);
    drop(x, z, 2, W, swapped, 0.5f, 1, 9); /* by sample, not by place */
    assert_memory_equal(y, z + W, W * sizeof *y);
    assert_memory_equal(y + W, z, W * sizeof *y);
    drop(x, z, 2, W, ids, 0.5f, 2, 9); /* another layer, another step */
    assert_true(fabs(difference(y, z, 2 * W) - 0.5) < 0.05);
    drop(x, z, 2, W, ids, 0.5f, 1, 10);
    assert_true(fabs(difference(y, z, 2 * W) - 0.5) < 0.05);
    free(x);
    free(y);
    free(z);
    free(dy);
}

static void test_ends(void **state) {
    int64_t id = 1;
    float x[5] = {1, -2, NAN, INFINITY, 5}, y[5];
    drop(x, y, 1, 5, &id, 0, 1, 0);
    assert_memory_equal(x, y, sizeof x);
    drop(x, y, 1, 5, &id, 1, 1, 0);
    for (int i = 0; i < 5; i++) assert_true(y[i] == 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_bits),
        cmocka_unit_test(test_statistics),
        cmocka_unit_test(test_mask_follows_its_key),
        cmocka_unit_test(test_ends),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
