/* Matrix products of the kinds that have a kernel of their own with AVX2, against double precision. With
 * that kernel, the results are the same bits on one, two and seven threads. */
#include "cpu_kernel_test.h"
#include "device/cpu/cpu_onednn.h"
#include "trainer/attributes.h"

typedef struct {
    int64_t rows, columns, inner;
    bool trans_a, trans_b, has_bias;
    float beta;
} case_t;

static void check(const case_t *c) {
    const tr_matmul_attr_t attr = {
        .trans_a = c->trans_a, .trans_b = c->trans_b, .alpha = 1, .beta = c->beta};
    const int64_t M = c->rows, N = c->columns, K = c->inner;
    float *a = kt_normal(M * K, 1, 0, 1), *b = kt_normal(K * N, 2, 0, 1),
          *bias = kt_normal(N, 3, 0, 1), *before = kt_normal(M * N, 4, 0, 1),
          *out = kt_zeros(M * N), *first = kt_zeros(M * N);
    double *want = calloc((size_t)(M * N), sizeof *want);
    for (int64_t i = 0; i < M * N; i++)
        want[i] = c->beta * before[i] + (c->has_bias ? bias[i % N] : 0);
    for (int64_t i = 0; i < M; i++)
        for (int64_t k = 0; k < K; k++) {
            const double left = a[c->trans_a ? k * M + i : i * K + k];
            for (int64_t j = 0; j < N; j++)
                want[i * N + j] += left * b[c->trans_b ? j * K + k : k * N + j];
        }
    for (int d = 0; d < KT_DEVICES; d++) {
        memcpy(out, before, (size_t)(M * N) * sizeof *out);
        kt_run_on(kt_devices[d], TR_K_MATMUL, &attr, 3,
                  VIEWS(F32(a, c->trans_a ? K : M, c->trans_a ? M : K),
                        F32(b, c->trans_b ? N : K, c->trans_b ? K : N),
                        c->has_bias ? F32(bias, N) : ABSENT),
                  1, VIEWS(F32(out, M, N)));
        kt_close(out, want, M * N, 1e-5, 2e-6 * sqrt((double)K) + 1e-6, "product");
        if (d == 0) memcpy(first, out, (size_t)(M * N) * sizeof *out);
        if (tr_cpu_dnn_is_avx2()) assert_memory_equal(out, first, (size_t)(M * N) * sizeof *out);
    }
    free(a), free(b), free(bias), free(before), free(out), free(first), free(want);
}

static void gradients_of_weights(void **state) {
    check(&(case_t){.rows = 128, .columns = 128, .inner = 300, .trans_a = true});
    check(&(case_t){.rows = 97, .columns = 256, .inner = 261, .trans_a = true, .beta = 1});
    check(&(case_t){.rows = 512, .columns = 512, .inner = 17, .trans_a = true});
}

static void columns_far_apart(void **state) {
    check(&(case_t){.rows = 49, .columns = 512, .inner = 700, .has_bias = true});
    check(&(case_t){.rows = 265, .columns = 1024, .inner = 33, .has_bias = true});
    check(&(case_t){.rows = 512, .columns = 512, .inner = 5, .beta = 1});
}

static void large_and_transposed(void **state) {
    check(&(case_t){.rows = 50, .columns = 1030, .inner = 1021, .trans_b = true});
    check(&(case_t){.rows = 55, .columns = 2051, .inner = 515, .trans_b = true, .has_bias = true});
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gradients_of_weights),
        cmocka_unit_test(columns_far_apart),
        cmocka_unit_test(large_and_transposed),
    };
    return cmocka_run_group_tests(tests, kt_setup, kt_teardown);
}
