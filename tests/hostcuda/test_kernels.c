/* Kernels compiled for the host: barriers, shuffles, shared memory, order; mistakes that must be
 * found. */
#include "hostcuda_test.h"

cudaError_t run_sum(float *y, const float *x, int rows, int n, int threads, bool barrier,
                    cudaStream_t stream);
cudaError_t run_sum_bf16(float *y, const void *x, int rows, int n, cudaStream_t stream);
uint16_t round_by_kernel(float x);
uint16_t round_by_cpu(float x);
cudaError_t run_count(unsigned *counter, unsigned *ballots, cudaStream_t stream);
cudaError_t run_divergent(float *y, cudaStream_t stream);
cudaError_t run_missing_lane(float *y, cudaStream_t stream);
cudaError_t run_shape(float *y, dim3 grid, dim3 block, size_t shared_bytes);

enum { ROWS = 7, N = 333 };

static int sums(int threads, bool barrier) {
    float host[ROWS * N], out[ROWS], *y = device_memory(sizeof out);
    for (int i = 0; i < ROWS * N; i++) host[i] = (float)(i % 17);
    const float *x = to_device(host, sizeof host);
    OK(run_sum(y, x, ROWS, N, threads, barrier, 0));
    to_host(out, y, sizeof out);
    for (int r = 0; r < ROWS; r++) {
        float sum = 0;
        for (int i = 0; i < N; i++) sum += host[r * N + i];
        if (out[r] != sum) return 1;
    }
    return 0;
}
static int right(void) {
    return sums(32, true) | sums(96, true) | sums(1024, true);
}
static int no_barrier(void) {
    return sums(128, false);
}

static int bf16_sum(void) {
    uint16_t host[64];
    float out[2], *y = device_memory(sizeof out);
    for (int i = 0; i < 64; i++) host[i] = 0x3f80; /* 1 */
    OK(run_sum_bf16(y, to_device(host, sizeof host), 2, 32, 0));
    to_host(out, y, sizeof out);
    return !(out[0] == 32 && out[1] == 32);
}
static int votes(void) {
    unsigned *counter = device_memory(4), *ballots = device_memory(12), out[4];
    OK(cudaMemset(counter, 0, 4));
    OK(run_count(counter, ballots, 0));
    to_host(out, counter, 4);
    to_host(out + 1, ballots, 12);
    assert_int_equal(out[0], 6 * 128);
    assert_int_equal(out[1], 0xaaaaaaaau);
    assert_int_equal(out[2], 128);
    assert_int_equal(out[3], 496);
    return 0;
}
static int diverges(void) {
    freopen("/dev/null", "w", stderr);
    OK(run_divergent(device_memory(128), 0));
    assert_int_equal(cudaDeviceSynchronize(), cudaErrorLaunchFailure);
    return cudaStreamQuery(0) != cudaErrorLaunchFailure; /* the error stays */
}
static int lane_missing(void) {
    freopen("/dev/null", "w", stderr);
    OK(run_missing_lane(to_device(&(float[32]){0}, 128), 0));
    return cudaDeviceSynchronize() != cudaErrorLaunchFailure;
}
static int shapes(void) {
    float *y = device_memory(128);
    assert_int_equal(run_shape(y, (dim3){0, 1, 1}, (dim3){32, 1, 1}, 0),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(run_shape(y, (dim3){1, 65536, 1}, (dim3){32, 1, 1}, 0),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(run_shape(y, (dim3){1, 1, 1}, (dim3){1025, 1, 1}, 0),
                     cudaErrorInvalidConfiguration);
    assert_int_equal(run_shape(y, (dim3){1, 1, 1}, (dim3){32, 1, 1}, 49153), cudaErrorInvalidValue);
    return 0;
}

static void test_right_kernels(void **state) {
    assert_int_equal(found_by_seeds(6, right), 0);
    OK(in_child("HOSTCUDA_SEED", "0", right));
    OK(in_child(NULL, NULL, bf16_sum));
    assert_int_equal(found_by_seeds(4, votes), 0);
}
static void test_missing_barrier_is_found(void **state) {
    assert_true(found_by_seeds(8, no_barrier) >= 6);
}
static void test_wrong_kernels_fail(void **state) {
    OK(in_child(NULL, NULL, diverges));
    OK(in_child(NULL, NULL, lane_missing));
    OK(in_child(NULL, NULL, shapes));
}

/* The nearest multiple of the unit of 8 significant bits, ties to even, in double. */
static uint32_t nearest_bf16(float x) {
    int exponent;
    (void)frexp(x, &exponent);
    const double unit = ldexp(1, exponent - 8 > -133 ? exponent - 8 : -133);
    const float y = (float)(nearbyint(x / unit) * unit);
    uint32_t bits;
    memcpy(&bits, &y, sizeof bits);
    assert_int_equal(bits & 0xffffu, 0);
    return bits >> 16;
}

static void check_bf16(uint32_t bits) {
    float x;
    memcpy(&x, &bits, sizeof x);
    const uint32_t y = round_by_kernel(x);
    assert_int_equal(y, round_by_cpu(x));
    if (isnan(x))
        assert_true((y & 0x7f80u) == 0x7f80u && (y & 0x7fu) != 0);
    else
        assert_int_equal(y, isinf(x) ? bits >> 16 : nearest_bf16(x));
}

static void test_rounding_to_bf16(void **state) {
    static const uint32_t special[] = {
        0,           0x80000000u, 1,           0x8000u,     0x8001u,     0x18000u,    0x7fffffu,
        0x800000u,   0x3f808000u, 0x3f818000u, 0x3f808001u, 0x3f7fffffu, 0x7f7f7fffu, 0x7f7f8000u,
        0x7f800000u, 0xff800000u, 0x7f800001u, 0xff800001u, 0x7fffffffu, 0xffffffffu};
    for (size_t i = 0; i < sizeof special / sizeof *special; i++) check_bf16(special[i]);
    for (uint64_t bits = 0; bits < 1ull << 32; bits += 4093) check_bf16((uint32_t)bits);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_right_kernels),
        cmocka_unit_test(test_missing_barrier_is_found),
        cmocka_unit_test(test_wrong_kernels_fail),
        cmocka_unit_test(test_rounding_to_bf16),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
