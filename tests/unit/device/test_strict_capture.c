/* Capture on the strict device keeps the rules of CUDA graphs, and refuses what breaks them. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "../../support/names.h"
#include "trainer/attributes.h"
#include "device/device.h"
#include "base/mem.h"
#include <string.h>

enum { N = 32, BYTES = N * sizeof(float) };

static tr_device_t *device;
static const tr_device_ops_t *ops;
static tr_stream_t *a, *b;
static tr_event_t *event;
static float *x, *y; /* on the device */

static int set_up(void **state) {
    OK(tr_device_open("strict", &(tr_device_params_t){.threads = 1, .seed = 1}, &device));
    ops = device->ops;
    OK(ops->stream_create(device, "a", TR_PRIORITY_NORMAL, &a));
    OK(ops->stream_create(device, "b", TR_PRIORITY_NORMAL, &b));
    OK(ops->event_create(device, 0, &event));
    OK(ops->alloc(device, BYTES, 0, (void **)&x));
    OK(ops->alloc(device, BYTES, 0, (void **)&y));
    return 0;
}

static int tear_down(void **state) {
    ops->free(device, x);
    ops->free(device, y);
    ops->event_destroy(device, event);
    ops->stream_destroy(device, a);
    ops->stream_destroy(device, b);
    tr_device_close(&device);
    return tr_mem_stats().live == 0 ? 0 : -1;
}

static void expect(const float *memory, float value) {
    float host[N];
    OK(ops->copy(device, a, host, memory, BYTES, TR_COPY_TO_HOST));
    OK(ops->stream_sync(device, a));
    for (int i = 0; i < N; i++) assert_true(host[i] == value);
}

static void fill(float *memory, float value) {
    float host[N];
    for (int i = 0; i < N; i++) host[i] = value;
    OK(ops->copy(device, a, memory, host, BYTES, TR_COPY_TO_DEVICE));
    OK(ops->stream_sync(device, a));
}

/* y = factor * x */
static tr_status_t scale(tr_scale_attr_t *attr) {
    const tr_view_t from = {x, TR_F32, TR_SHAPE(N)}, to = {y, TR_F32, TR_SHAPE(N)};
    tr_kernel_call_t call = {.n_in = 1, .n_out = 1, .attr = attr, .attr_bytes = sizeof *attr};
    call.in[0] = from;
    call.out[0] = to;
    return ops->kernels[TR_K_SCALE].run(device, a, &call);
}

/* Work is done by a launch only, on what memory holds then, with the scalar of the capture. */
static void a_launch_keeps_the_scalars_of_the_capture(void **state) {
    tr_executable_t *executable = NULL;
    tr_scale_attr_t attr = {.factor = 2};
    fill(x, 1);
    fill(y, 0);
    OK(ops->capture_begin(device, a));
    OK(scale(&attr));
    OK(ops->capture_end(device, a, &executable));
    expect(y, 0);
    attr.factor = 100; /* a host scalar baked into the capture stays what it was */
    fill(x, 3);
    OK(ops->executable_launch(device, executable, a));
    expect(y, 6);
    fill(x, 4);
    OK(ops->executable_launch(device, executable, a));
    expect(y, 8);
    ops->executable_destroy(device, executable);
}

static void forks_are_joined(void **state) {
    tr_executable_t *executable = NULL;
    for (int joins = 0; joins < 2; joins++) {
        fill(x, 5);
        OK(ops->capture_begin(device, a));
        OK(ops->event_record(device, event, a));
        OK(ops->event_wait(device, event, b));
        OK(ops->zero(device, b, x, BYTES));
        OK(ops->event_record(device, event, b));
        if (joins) OK(ops->event_wait(device, event, a));
        const tr_status_t status = ops->capture_end(device, a, &executable);
        if (joins) {
            OK(status);
            expect(x, 5);
            OK(ops->executable_launch(device, executable, a));
            expect(x, 0);
            ops->executable_destroy(device, executable);
        } else {
            assert_int_equal(status, TR_ERR_INTERNAL);
            assert_null(executable);
            assert_error_names("'a' & 'b' & capture");
        }
        /* the event of a capture never happens outside of it */
        assert_int_equal(ops->event_wait(device, event, a), TR_ERR_INTERNAL);
        assert_int_equal(ops->event_sync(device, event), TR_ERR_INTERNAL);
        OK(ops->event_record(device, event, a));
        OK(ops->event_sync(device, event));
    }
}

static void what_a_capture_refuses(void **state) {
    void *memory = NULL;
    OK(ops->event_record(device, event, b));
    OK(ops->capture_begin(device, a));
    assert_int_equal(ops->stream_sync(device, a), TR_ERR_INTERNAL);
    assert_error_names("wait & capture");
    assert_int_equal(ops->event_sync(device, event), TR_ERR_INTERNAL);
    assert_int_equal(ops->alloc(device, BYTES, 0, &memory), TR_ERR_INTERNAL);
    assert_error_names("allocation & capture");
    assert_int_equal(ops->capture_begin(device, b), TR_ERR_INTERNAL);
    assert_int_equal(ops->event_wait(device, event, a), TR_ERR_INTERNAL);
    assert_error_names("'a' & outside");
    OK(ops->zero(device, a, x, BYTES));
    OK(ops->capture_end(device, a, NULL)); /* discarded */
    fill(x, 1);
    expect(x, 1);
}

/* A launch is checked against other streams as if its work had been given. */
static void a_launch_needs_order(void **state) {
    tr_executable_t *executable = NULL;
    float host[N] = {0};
    OK(ops->capture_begin(device, a));
    OK(ops->zero(device, a, x, BYTES));
    OK(ops->capture_end(device, a, &executable));
    OK(ops->copy(device, b, x, host, BYTES, TR_COPY_TO_DEVICE));
    assert_int_equal(ops->executable_launch(device, executable, a), TR_ERR_INTERNAL);
    assert_error_names("'b' & event & 'a'");
    OK(ops->event_record(device, event, b));
    OK(ops->event_wait(device, event, a));
    OK(ops->executable_launch(device, executable, a));
    OK(ops->stream_sync(device, a));
    ops->executable_destroy(device, executable);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_launch_keeps_the_scalars_of_the_capture, set_up,
                                        tear_down),
        cmocka_unit_test_setup_teardown(forks_are_joined, set_up, tear_down),
        cmocka_unit_test_setup_teardown(what_a_capture_refuses, set_up, tear_down),
        cmocka_unit_test_setup_teardown(a_launch_needs_order, set_up, tear_down),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
