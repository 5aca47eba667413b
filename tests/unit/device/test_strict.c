/* The strict device finds what it promises to find. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "../../support/names.h"
#include "device/device.h"
#include "base/mem.h"
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { N = 32, BYTES = N * sizeof(float) };

typedef struct {
    tr_device_t *device;
    tr_stream_t *a, *b;
    tr_event_t *event;
    float *memory; /* on the device */
} bench_t;

static bench_t open_bench(uint64_t seed) {
    bench_t t = {0};
    tr_device_params_t params = {.threads = 1, .seed = seed};
    OK(tr_device_open("strict", &params, &t.device));
    assert_int_equal(t.device->ops->stream_create(t.device, "a", TR_PRIORITY_NORMAL, &t.a), TR_OK);
    assert_int_equal(t.device->ops->stream_create(t.device, "b", TR_PRIORITY_NORMAL, &t.b), TR_OK);
    assert_int_equal(t.device->ops->event_create(t.device, 0, &t.event), TR_OK);
    assert_int_equal(t.device->ops->alloc(t.device, BYTES, 0, (void **)&t.memory), TR_OK);
    return t;
}

static void close_bench(bench_t *t) {
    t->device->ops->free(t->device, t->memory);
    t->device->ops->event_destroy(t->device, t->event);
    t->device->ops->stream_destroy(t->device, t->a);
    t->device->ops->stream_destroy(t->device, t->b);
    tr_device_close(&t->device);
}

static tr_status_t copy(bench_t *t, tr_stream_t *stream, void *dst, const void *src,
                        tr_copy_kind_t kind) {
    return t->device->ops->copy(t->device, stream, dst, src, BYTES, kind);
}

static void assert_error(tr_status_t status, const char *names) {
    assert_int_equal(status, TR_ERR_INTERNAL);
    assert_error_names(names);
}

static void says_what_it_is(void **state) {
    bench_t t = open_bench(0);
    assert_false(t.device->host_visible);
    assert_false(t.device->immediate);
    assert_string_equal(t.device->ops->name, "strict");
    assert_true(strlen(t.device->description) > 0);
    close_bench(&t);
}

static void a_touch_by_the_host_faults(void **state) {
    bench_t t = open_bench(0);
    pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_CORE, &(struct rlimit){0});
        signal(SIGSEGV, SIG_DFL);
        if (!freopen("/dev/null", "w", stderr)) _exit(0);
        (void)*(volatile float *)t.memory;
        _exit(0);
    }
    int status = 0;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_false(WIFEXITED(status) && WEXITSTATUS(status) == 0);
    close_bench(&t);
}

static void fresh_and_poisoned_memory_is_nan(void **state) {
    bench_t t = open_bench(0);
    float host[N] = {0};
    assert_int_equal(copy(&t, t.a, host, t.memory, TR_COPY_TO_HOST), TR_OK);
    assert_int_equal(t.device->ops->stream_sync(t.device, t.a), TR_OK);
    for (int i = 0; i < N; i++) assert_true(isnan(host[i]));
    assert_int_equal(t.device->ops->zero(t.device, t.a, t.memory, BYTES), TR_OK);
    assert_int_equal(t.device->ops->poison(t.device, t.a, t.memory, sizeof(float)), TR_OK);
    assert_int_equal(copy(&t, t.a, host, t.memory, TR_COPY_TO_HOST), TR_OK);
    assert_int_equal(t.device->ops->stream_sync(t.device, t.a), TR_OK);
    assert_true(isnan(host[0]));
    assert_true(host[1] == 0);
    close_bench(&t);
}

static tr_status_t order(bench_t *t, tr_stream_t *first, tr_stream_t *second) {
    assert_int_equal(t->device->ops->event_record(t->device, t->event, first), TR_OK);
    return t->device->ops->event_wait(t->device, t->event, second);
}

/* Whatever order the seed gives: b reads what a writes, a writes over what b reads, in part, too.
 */
static void a_missing_event_is_found_in_every_order(void **state) {
    for (uint64_t seed = 0; seed < 8; seed++) {
        bench_t t = open_bench(seed);
        const tr_device_ops_t *ops = t.device->ops;
        float ones[N] = {1}, seen[N];
        assert_int_equal(copy(&t, t.a, t.memory, ones, TR_COPY_TO_DEVICE), TR_OK);
        assert_error(copy(&t, t.b, seen, t.memory, TR_COPY_TO_HOST),
                     "a copy writes in stream 'a': no event orders stream 'b'");
        assert_int_equal(order(&t, t.a, t.b), TR_OK);
        assert_int_equal(copy(&t, t.b, seen, t.memory, TR_COPY_TO_HOST), TR_OK);
        assert_error(ops->zero(t.device, t.a, t.memory + N - 1, sizeof(float)),
                     "a copy reads in stream 'b': no event orders stream 'a'");
        assert_int_equal(order(&t, t.b, t.a), TR_OK);
        assert_int_equal(ops->zero(t.device, t.a, t.memory + N - 1, sizeof(float)), TR_OK);
        assert_int_equal(ops->stream_sync(t.device, t.b), TR_OK);
        assert_true(seen[0] == 1);
        close_bench(&t);
    }
}

/* a before c by way of b; by a wait of the host; and two readers need no order. */
static void order_is_kept_on_any_way(void **state) {
    bench_t t = open_bench(0);
    const tr_device_ops_t *ops = t.device->ops;
    tr_stream_t *c = NULL;
    float first[N], second[N];
    assert_int_equal(ops->stream_create(t.device, "c", TR_PRIORITY_NORMAL, &c), TR_OK);
    assert_int_equal(ops->zero(t.device, t.a, t.memory, BYTES), TR_OK);
    assert_int_equal(order(&t, t.a, t.b), TR_OK);
    assert_int_equal(order(&t, t.b, c), TR_OK);
    assert_int_equal(copy(&t, t.b, first, t.memory, TR_COPY_TO_HOST), TR_OK);
    assert_int_equal(copy(&t, c, second, t.memory, TR_COPY_TO_HOST), TR_OK);
    assert_int_equal(ops->stream_sync(t.device, t.b), TR_OK);
    assert_error(ops->zero(t.device, t.a, t.memory, BYTES), "in stream 'c'");
    assert_int_equal(ops->stream_sync(t.device, c), TR_OK);
    assert_int_equal(ops->zero(t.device, t.a, t.memory, BYTES), TR_OK);
    ops->stream_destroy(t.device, c);
    close_bench(&t);
}

static void an_event_counts_its_records(void **state) {
    bench_t t = open_bench(3);
    float values[2][N] = {{1}, {2}}, seen[N];
    assert_int_equal(t.device->ops->event_sync(t.device, t.event),
                     TR_OK); /* never recorded: nothing to wait for */
    for (int i = 0; i < 2; i++) {
        assert_int_equal(copy(&t, t.a, t.memory, values[i], TR_COPY_TO_DEVICE), TR_OK);
        assert_int_equal(t.device->ops->event_record(t.device, t.event, t.a), TR_OK);
    }
    assert_int_equal(t.device->ops->event_wait(t.device, t.event, t.b), TR_OK);
    assert_int_equal(copy(&t, t.b, seen, t.memory, TR_COPY_TO_HOST), TR_OK);
    assert_int_equal(t.device->ops->stream_sync(t.device, t.b), TR_OK);
    assert_true(seen[0] == 2);
    close_bench(&t);
}

static void a_source_overwritten_too_early_shows(void **state) {
    bench_t t = open_bench(1);
    float host[N] = {5}, seen[N];
    assert_int_equal(copy(&t, t.a, t.memory, host, TR_COPY_TO_DEVICE), TR_OK);
    host[0] = 6;
    assert_int_equal(copy(&t, t.a, seen, t.memory, TR_COPY_TO_HOST), TR_OK);
    assert_int_equal(t.device->ops->stream_sync(t.device, t.a), TR_OK);
    assert_true(seen[0] == 6);
    close_bench(&t);
}

/* The error names the place, too. */
static void assert_error_at(tr_status_t status, const char *names, const void *address) {
    char all[128];
    snprintf(all, sizeof all, "%s & %p", names, address);
    assert_error(status, all);
}

static void copies_stay_inside_live_memory(void **state) {
    bench_t t = open_bench(0);
    float host[N + 1] = {0};
    void *gone = NULL;
    tr_device_t *d = t.device;
    assert_error(d->ops->copy(d, t.a, t.memory, host, BYTES + 4, TR_COPY_TO_DEVICE), "4");
    assert_error(d->ops->copy(d, t.a, t.memory + 1, host, BYTES, TR_COPY_TO_DEVICE), "4");
    assert_error_at(copy(&t, t.a, host, host, TR_COPY_TO_DEVICE), "destination", host);
    assert_error(copy(&t, t.a, t.memory, t.memory, TR_COPY_TO_DEVICE), "source");
    assert_error(copy(&t, t.a, t.memory, t.memory, TR_COPY_TO_HOST), "destination");
    assert_int_equal(d->ops->alloc(d, BYTES, 0, &gone), TR_OK);
    d->ops->free(d, gone);
    assert_error_at(copy(&t, t.a, gone, host, TR_COPY_TO_DEVICE), "destination", gone);
    close_bench(&t);
}

static tr_view_t view(float *data, int64_t count) {
    return (tr_view_t){data, TR_F32, TR_SHAPE(count)};
}

static void kernels_stay_inside_live_memory(void **state) {
    bench_t t = open_bench(0);
    const tr_kernel_t *scale = &t.device->ops->kernels[TR_K_SCALE];
    if (!scale->run) skip();
    tr_scale_attr_t attr = {2};
    float host[N];
    tr_kernel_call_t call = {.n_in = 1, .n_out = 1, .attr = &attr};
    call.in[0] = call.out[0] = view(t.memory, N + 1);
    assert_error(scale->run(t.device, t.a, &call), "SCALE & input 0");
    call.in[0] = view(host, N);
    assert_error_at(scale->run(t.device, t.a, &call), "SCALE & input 0", host);
    call.in[0] = view(t.memory, N / 2);
    call.out[0] = view(t.memory + 1, N / 2);
    assert_error(scale->run(t.device, t.a, &call), "SCALE & output 0 & input 0");
    const tr_kernel_t *copy_kernel = &t.device->ops->kernels[TR_K_COPY];
    call.out[0] = call.in[0];
    assert_error(copy_kernel->run(t.device, t.a, &call), "COPY & output 0 & input 0");
    close_bench(&t);
}

static void kernels_compute_in_their_turn(void **state) {
    bench_t t = open_bench(0);
    const tr_kernel_t *scale = &t.device->ops->kernels[TR_K_SCALE];
    if (!scale->run) skip();
    tr_scale_attr_t attr = {2};
    float host[N], seen[N];
    for (int i = 0; i < N; i++) host[i] = (float)i;
    tr_kernel_call_t call = {.n_in = 1,
                             .n_out = 1,
                             .attr = &attr,
                             .in[0] = view(t.memory, N),
                             .out[0] = view(t.memory, N)};
    assert_int_equal(copy(&t, t.a, t.memory, host, TR_COPY_TO_DEVICE), TR_OK);
    assert_int_equal(scale->run(t.device, t.a, &call), TR_OK);
    memset(&call, 0, sizeof call); /* the record is the device's own */
    assert_int_equal(copy(&t, t.a, seen, t.memory, TR_COPY_TO_HOST), TR_OK);
    assert_int_equal(t.device->ops->stream_sync(t.device, t.a), TR_OK);
    for (int i = 0; i < N; i++) assert_true(seen[i] == 2 * (float)i);
    close_bench(&t);
}

static void everything_is_given_back(void **state) {
    int64_t before = tr_mem_stats().live;
    bench_t t = open_bench(0);
    void *host = NULL;
    assert_int_equal(t.device->ops->host_alloc(t.device, BYTES, &host), TR_OK);
    assert_int_equal(copy(&t, t.a, t.memory, host, TR_COPY_TO_DEVICE), TR_OK);
    t.device->ops->host_free(t.device, host); /* waits for the copy, as a GPU's does */
    close_bench(&t);
    assert_int_equal(tr_mem_stats().live, before);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(says_what_it_is),
        cmocka_unit_test(a_touch_by_the_host_faults),
        cmocka_unit_test(fresh_and_poisoned_memory_is_nan),
        cmocka_unit_test(a_missing_event_is_found_in_every_order),
        cmocka_unit_test(order_is_kept_on_any_way),
        cmocka_unit_test(an_event_counts_its_records),
        cmocka_unit_test(a_source_overwritten_too_early_shows),
        cmocka_unit_test(copies_stay_inside_live_memory),
        cmocka_unit_test(kernels_stay_inside_live_memory),
        cmocka_unit_test(kernels_compute_in_their_turn),
        cmocka_unit_test(everything_is_given_back),
    };
    return cmocka_run_group_tests_name("strict", tests, NULL, NULL);
}
