/*
 * The ways that `tune` chooses among by time: each of them, whatever the clock says, against the first.
 * Prints how each computes. Needs a GPU, or tests/hostcuda/run; without them it skips.
 */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "base/half.h"
#include "cuda_test.h"

static tr_device_t *device;
static tr_stream_t *stream;
static char chosen_key[1024];
static bool with_nan; /* in0 begins with NaN */

static tr_status_t note_key(void *what, const char *key, const void *value, size_t bytes) {
    (void)value, (void)bytes;
    if (strstr(key, what)) snprintf(chosen_key, sizeof chosen_key, "%s", key);
    return TR_OK;
}

static void fill(tr_view_t *view, uint32_t seed) {
    void *host = random_values(view, seed);
    if (with_nan && seed == 1) memset(host, 0xff, tr_dtype_bytes(view->dtype));
    must(device->ops->alloc(device, view_bytes(view), 0, &view->data));
    must(device->ops->copy(device, stream, view->data, host, view_bytes(view), TR_COPY_TO_DEVICE));
    must(device->ops->stream_sync(device, stream));
    free(host);
}

/* The outputs as floats, one after the other. `way` < 0: the device chooses, under the key with `what`. */
static float *compute(tr_kernel_id_t id, const tr_kernel_call_t *given, const char *what, int way,
                      int64_t *out_count) {
    const tr_kernel_t *kernel = &device->ops->kernels[id];
    tr_kernel_call_t call = *given;
    char text[128], number[16];
    size_t scratch = 0;
    int64_t n = 0;
    snprintf(number, sizeof number, "%d", way);
    if (way >= 0) must(device->ops->choices_set(device, chosen_key, number, strlen(number) + 1));
    must(kernel->prepare(device, &call, &call.state, &scratch));
    must(device->ops->choices_get(device, note_key, (void *)what));
    kernel->describe(call.state, text, sizeof text);
    if (way >= 0) print_message("%s way %d: %s\n", what, way, text);
    must(device->ops->alloc(device, scratch + 1, 0, &call.scratch));
    for (int i = 0; i < call.n_out; i++) {
        must(device->ops->alloc(device, view_bytes(&call.out[i]), 0, &call.out[i].data));
        n += tr_shape_elems(&call.out[i].shape);
    }
    must(kernel->run(device, stream, &call));
    float *all = malloc((size_t)n * sizeof *all), *at = all;
    for (int i = 0; i < call.n_out; i++) {
        const tr_view_t *view = &call.out[i];
        uint16_t *host = malloc(view_bytes(view));
        must(
            device->ops->copy(device, stream, host, view->data, view_bytes(view), TR_COPY_TO_HOST));
        must(device->ops->stream_sync(device, stream));
        for (int64_t k = 0; k < tr_shape_elems(&view->shape); k++)
            *at++ = view->dtype == TR_F32    ? ((float *)host)[k]
                    : view->dtype == TR_BF16 ? tr_float_of_bf16(host[k])
                                             : tr_float_of_f16(host[k]);
        free(host);
        device->ops->free(device, view->data);
    }
    device->ops->free(device, call.scratch);
    kernel->release(device, call.state);
    *out_count = n;
    return all;
}

/* tolerance: of the largest value. */
static void compare_ways(tr_kernel_id_t id, tr_kernel_call_t *call, const char *what, int ways,
                         double tolerance) {
    int64_t n = 0;
    float largest = 0;
    for (int i = call->n_in; i < TR_KERNEL_MAX_IN; i++) call->in[i].shape.ndim = -1;
    for (int i = call->n_out; i < TR_KERNEL_MAX_OUT; i++) call->out[i].shape.ndim = -1;
    for (int i = 0; i < call->n_in; i++)
        if (call->in[i].shape.ndim >= 0) fill(&call->in[i], (uint32_t)i + 1);
    *chosen_key = '\0';
    free(compute(id, call, what, -1, &n));
    assert_true(*chosen_key != '\0'); /* a way was chosen, and kept */
    float *first = compute(id, call, what, 0, &n);
    for (int64_t i = 0; i < n; i++) largest = fmaxf(largest, fabsf(first[i]));
    assert_true(largest > 0);
    for (int way = 1; way < ways; way++) {
        float *other = compute(id, call, what, way, &n);
        for (int64_t i = 0; i < n; i++)
            if (isnan(first[i]) != isnan(other[i]) ||
                fabsf(first[i] - other[i]) > tolerance * largest)
                fail_msg("%s: element %lld: %.9g, by way %d %.9g", what, (long long)i, first[i],
                         way, other[i]);
        free(other);
    }
    free(first);
    for (int i = 0; i < call->n_in; i++) device->ops->free(device, call->in[i].data);
}

static tr_view_t view(tr_dtype_t dtype, tr_shape_t shape) {
    return (tr_view_t){.dtype = dtype, .shape = shape};
}

/* The first way rounds the product before the activation or its gradient; the second does not. NaN must
 * stay in both. */
static void gelu_of_a_product(void **state) {
    const tr_dtype_t types[] = {TR_BF16, TR_F16, TR_BF16};
    char what[96];
    for (int t = 0; t < 3; t++) {
        with_nan = t == 2;
        const tr_matmul_attr_t attr = {.trans_b = true, .alpha = 1, .act = TR_ACT_GELU_TANH},
                               turned = {.alpha = 1, .act = TR_ACT_GELU_TANH};
        const tr_view_t x = view(types[t], TR_SHAPE(40, 24)), w = view(types[t], TR_SHAPE(64, 24)),
                        bias = view(TR_F32, TR_SHAPE(64)), y = view(types[t], TR_SHAPE(40, 64)),
                        absent = {.shape.ndim = -1};
        for (int has_bias = 0; has_bias < 2; has_bias++) {
            tr_kernel_call_t forward = {.attr = &attr,
                                        .n_in = 4,
                                        .n_out = 2,
                                        .in = {x, w, has_bias ? bias : absent, absent},
                                        .out = {y, y}};
            snprintf(what, sizeof what, "gelu of a product, %s nt 40 x 64 x 24%s,",
                     tr_dtype_name(types[t]), has_bias ? " bias" : "");
            compare_ways(TR_K_MATMUL_ACT_FWD, &forward, what, 2, 0x1p-7);
        }
        tr_kernel_call_t backward = {.attr = &turned,
                                     .n_in = 5,
                                     .n_out = 1,
                                     .in = {x, view(types[t], TR_SHAPE(24, 64)), absent, absent, y},
                                     .out = {y}};
        snprintf(what, sizeof what, "gelu gradient of a product, %s nn 40 x 64 x 24,",
                 tr_dtype_name(types[t]));
        compare_ways(TR_K_MATMUL_ACT_BWD, &backward, what, 2, 0x1p-7);
    }
    with_nan = false;
}

static int open_device(void **state) {
    const tr_device_params_t params = {.tune = true};
    if (tr_device_open("cuda", &params, &device) != TR_OK) return -1;
    return device->ops->stream_create(device, "test", TR_PRIORITY_NORMAL, &stream) != TR_OK;
}

static int close_device(void **state) {
    device->ops->stream_destroy(device, stream);
    tr_device_close(&device);
    return 0;
}

int main(void) {
    const tr_backend_t *backend = NULL;
    if (tr_backend_find("cuda", &backend) != TR_OK) {
        print_message("skipped: %s\n", tr_error_last()->message);
        return 0;
    }
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gelu_of_a_product),
    };
    return cmocka_run_group_tests(tests, open_device, close_device);
}
