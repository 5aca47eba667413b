/*
 * CONV_STATS_FWD and BATCHNORM_SUMS_TRAIN of device cuda against CONV_FWD, BATCHNORM_TRAIN and
 * BATCHNORM_ADD_TRAIN of cpu, with engines of cuDNN that give the sums and without. Needs a GPU, or
 * tests/hostcuda/run; without them it skips.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_test.h"

static float value(tr_dtype_t dtype, const void *data, int64_t i) {
    uint32_t bits;
    float x;
    if (dtype == TR_F32) return ((const float *)data)[i];
    const uint16_t h = ((const uint16_t *)data)[i];
    if (dtype == TR_F16)
        return (h >> 15 ? -1.0f : 1.0f) *
               (h >> 10 & 31 ? ldexpf((float)(1024 + (h & 1023)), (h >> 10 & 31) - 25)
                             : ldexpf((float)(h & 1023), -24));
    bits = (uint32_t)h << 16;
    return memcpy(&x, &bits, sizeof x), x;
}

/* Runs the kernel on a device: `in` and `out` are host memory; outputs begin as zeros. */
static void run(int d, tr_kernel_id_t id, const tr_kernel_call_t *given, void *const *in,
                void **out) {
    tr_device_t *device = devices[d];
    const tr_kernel_t *kernel = &device->ops->kernels[id];
    tr_kernel_call_t call = *given;
    size_t scratch = 0;
    for (int i = call.n_in; i < TR_KERNEL_MAX_IN; i++) call.in[i].shape.ndim = -1;
    for (int i = call.n_out; i < TR_KERNEL_MAX_OUT; i++) call.out[i].shape.ndim = -1;
    if (kernel->prepare) must(kernel->prepare(device, &call, &call.state, &scratch));
    if (scratch) must(device->ops->alloc(device, scratch, 0, &call.scratch));
    for (int i = 0; i < call.n_in; i++) {
        const size_t bytes = view_bytes(&call.in[i]);
        if (!bytes) continue;
        must(device->ops->alloc(device, bytes, 0, &call.in[i].data));
        must(device->ops->copy(device, streams[d], call.in[i].data, in[i], bytes,
                               TR_COPY_TO_DEVICE));
    }
    for (int i = 0; i < call.n_out; i++) {
        must(device->ops->alloc(device, view_bytes(&call.out[i]), 0, &call.out[i].data));
        must(device->ops->zero(device, streams[d], call.out[i].data, view_bytes(&call.out[i])));
    }
    must(kernel->run(device, streams[d], &call));
    for (int i = 0; i < call.n_out; i++) {
        out[i] = malloc(view_bytes(&call.out[i]));
        must(device->ops->copy(device, streams[d], out[i], call.out[i].data,
                               view_bytes(&call.out[i]), TR_COPY_TO_HOST));
        must(device->ops->stream_sync(device, streams[d]));
        device->ops->free(device, call.out[i].data);
    }
    for (int i = 0; i < call.n_in; i++) device->ops->free(device, call.in[i].data);
    if (scratch) device->ops->free(device, call.scratch);
    if (call.state && kernel->release) kernel->release(device, call.state);
}

static void near(const char *what, const tr_view_t *view, const void *a, const void *b,
                 double tolerance) {
    double largest = 1e-3;
    const int64_t n = tr_shape_elems(&view->shape);
    for (int64_t i = 0; i < n; i++) {
        const double size = fabsf(value(view->dtype, a, i));
        if (size > largest) largest = size;
    }
    for (int64_t i = 0; i < n; i++) {
        const double x = value(view->dtype, a, i), y = value(view->dtype, b, i);
        if (!(fabs(x - y) <= tolerance * largest))
            fail_msg("%s, %s: element %lld: cpu %.9g, cuda %.9g", what, tr_dtype_name(view->dtype),
                     (long long)i, x, y);
    }
}

static void check_sums(const tr_view_t *y, const void *values, const float *sums) {
    const int64_t channels = y->shape.dim[y->shape.ndim - 1], n = tr_shape_elems(&y->shape);
    for (int64_t c = 0; c < channels; c++) {
        double sum = 0, squares = 0;
        for (int64_t i = c; i < n; i += channels) {
            const double v = value(y->dtype, values, i);
            sum += v, squares += v * v;
        }
        /* those of cuDNN may be of values before they are rounded */
        const double slack = y->dtype == TR_F32 ? 1e-5 : 1e-2;
        if (fabs(sum - sums[c]) > slack * sqrt(squares * (double)n / (double)channels) ||
            fabs(squares - sums[channels + c]) > slack * squares)
            fail_msg("channel %lld: sums %.9g and %.9g, found %.9g and %.9g", (long long)c, sum,
                     squares, (double)sums[c], (double)sums[channels + c]);
    }
}

/* The normalisation of y on both devices, with an addend or without. */
static void check_norm(const tr_view_t *y, void *values, void *sums, bool adds) {
    const int64_t channels = y->shape.dim[y->shape.ndim - 1];
    const tr_norm_attr_t attr = {1e-5f, TR_ACT_RELU};
    const tr_view_t vector = {.dtype = TR_F32, .shape = TR_SHAPE(channels)},
                    two = {.dtype = TR_F32, .shape = TR_SHAPE(2, channels)};
    void *gamma = random_values(&vector, 5), *beta = random_values(&vector, 6),
         *a = random_values(y, 7), *expected[4], *found[4];
    tr_kernel_call_t call = {.attr = &attr,
                             .n_in = adds ? 4 : 3,
                             .n_out = 4,
                             .in = {*y, vector, vector, *y},
                             .out = {*y, vector, vector, two}};
    run(CPU, adds ? TR_K_BATCHNORM_ADD_TRAIN : TR_K_BATCHNORM_TRAIN, &call,
        (void *[]){values, gamma, beta, a}, expected);
    call.n_in = adds ? 5 : 4;
    call.in[3] = two, call.in[4] = *y;
    run(CUDA, TR_K_BATCHNORM_SUMS_TRAIN, &call, (void *[]){values, gamma, beta, sums, a}, found);
    static const char *const what[] = {"y", "mean", "rstd", "moments"};
    for (int i = 0; i < 4; i++) {
        near(what[i], &call.out[i], expected[i], found[i], y->dtype == TR_F32 ? 1e-4 : 2e-2);
        free(expected[i]), free(found[i]);
    }
    free(gamma), free(beta), free(a);
}

static void check(tr_dtype_t type, int64_t channels, int64_t outputs, int stride) {
    const tr_conv_attr_t attr = {.spatial = 2,
                                 .kernel = {3, 3},
                                 .stride = {stride, stride},
                                 .pad_lo = {1, 1},
                                 .pad_hi = {1, 1},
                                 .dilation = {1, 1},
                                 .groups = 1};
    const int64_t out = (9 + 2 - 3) / stride + 1;
    const tr_view_t x = {.dtype = type, .shape = TR_SHAPE(3, 9, 9, channels)},
                    w = {.dtype = type, .shape = TR_SHAPE(outputs, 3, 3, channels)},
                    y = {.dtype = type, .shape = TR_SHAPE(3, out, out, outputs)},
                    none = {.shape = {.ndim = -1}},
                    sums = {.dtype = TR_F32, .shape = TR_SHAPE(2, outputs)};
    const tr_kernel_call_t call = {
        .attr = &attr, .n_in = 3, .n_out = 1, .in = {x, w, none}, .out = {y}};
    tr_kernel_call_t with_sums = call;
    void *in[3] = {random_values(&x, 1), random_values(&w, 2), NULL}, *expected[1], *found[2];
    with_sums.n_out = 2, with_sums.out[1] = sums;
    run(CPU, TR_K_CONV_FWD, &call, in, expected);
    run(CUDA, TR_K_CONV_STATS_FWD, &with_sums, in, found);
    near("conv", &y, expected[0], found[0], type == TR_F32 ? 1e-5 : 1e-2);
    check_sums(&y, found[0], found[1]);
    check_norm(&y, found[0], found[1], false);
    check_norm(&y, found[0], found[1], true);
    free(in[0]), free(in[1]), free(expected[0]), free(found[0]), free(found[1]);
}

static void test_all(void **state) {
    const tr_dtype_t types[] = {TR_F32, TR_BF16, TR_F16};
    for (int t = 0; t < 3; t++) {
        check(types[t], 8, 16, 1);
        check(types[t], 16, 8, 2);
        check(types[t], 3, 16, 1); /* a stem */
        check(types[t], 8, 6, 1);  /* the squares are not aligned: a pass adds them up */
    }
}

int main(void) {
    const tr_backend_t *backend = NULL;
    if (tr_backend_find("cuda", &backend) != TR_OK) {
        print_message("skipped: %s\n", tr_error_last()->message);
        return 0;
    }
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_all)};
    return cmocka_run_group_tests(tests, cuda_test_open, cuda_test_close);
}
