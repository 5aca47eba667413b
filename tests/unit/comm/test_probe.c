/* The probe of the network: times, wrong sums are found on every rank, a slow rank shows in its
 * links and in no other. */
//TEST np=2
//TEST np=3
//TEST np=4
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "comm/probe.h"
#include "base/mem.h"

#define SLOW_SEC 0.02

static tr_world_t *world;
static const tr_world_info_t *info;
static tr_device_t *device;
static tr_collectives_t *coll;
static const tr_collectives_ops_t *real;
static tr_collectives_ops_t fake;
static tr_probe_t *probe;

static tr_status_t spoil(tr_collectives_t *c, const tr_collective_t *what, tr_stream_t *stream,
                         tr_ticket_t *out) {
    if (c->rank == 1) ((float *)what->data)[what->count - 1] += 1;
    return real->start(c, what, stream, out);
}

static tr_status_t send_slowly(tr_collectives_t *c, const void *data, int64_t count,
                               tr_dtype_t dtype, int to, tr_stream_t *stream) {
    if (c->rank == 1) nanosleep(&(struct timespec){.tv_nsec = (long)(SLOW_SEC * 1e9)}, NULL);
    return real->send(c, data, count, dtype, to, stream);
}

static void use(tr_status_t (*start)(tr_collectives_t *, const tr_collective_t *, tr_stream_t *,
                                     tr_ticket_t *),
                tr_status_t (*send)(tr_collectives_t *, const void *, int64_t, tr_dtype_t, int,
                                    tr_stream_t *)) {
    fake = *real;
    if (start) fake.start = start;
    if (send) fake.send = send;
    coll->ops = &fake;
}

static void test_times(void **state) {
    for (int64_t bytes = 4; bytes <= 1 << 16; bytes *= 16) {
        tr_probe_times_t t;
        OK(tr_probe_collective(probe, TR_ALLREDUCE, bytes, &t));
        assert_true(t.median_sec > 0 && t.p90_sec >= t.median_sec && t.runs >= 5);
        double same[] = {t.median_sec, -t.median_sec};
        OK(tr_world_allreduce(world, same, 2, TR_REDUCE_MAX));
        assert_true(same[0] == -same[1]); /* the slowest rank's, on every rank */
    }
    assert_true(tr_probe_bus_bandwidth(TR_ALLREDUCE, 100, 2, 4) == 75);
    assert_true(tr_probe_bus_bandwidth(TR_ALLGATHER, 100, 2, 4) == 37.5);
    for (int kind = TR_REDUCE_SCATTER; kind <= TR_ALLGATHER; kind++) {
        tr_probe_times_t t;
        OK(tr_probe_collective(probe, (tr_collective_kind_t)kind, 4800, &t));
        assert_true(t.median_sec > 0 && t.runs >= 5);
    }
}

static void test_wrong_sum(void **state) {
    tr_probe_times_t t;
    use(spoil, NULL);
    assert_int_equal(tr_probe_collective(probe, TR_ALLREDUCE, 256, &t), TR_ERR_INTERNAL);
    assert_non_null(strstr(tr_error_last()->message, "element 63"));
    coll->ops = real;
    OK(tr_probe_collective(probe, TR_ALLREDUCE, 256, &t));
}

static void test_slow_rank(void **state) {
    tr_probe_link_t link[4];
    int ranks[4];
    for (int r = 0; r < info->size; r++) ranks[r] = r;
    use(NULL, send_slowly);
    OK(tr_probe_ring(probe, ranks, info->size, link));
    coll->ops = real;
    for (int i = 0; i < tr_probe_link_count(info->size); i++) {
        assert_int_equal(link[i].from, i);
        assert_int_equal(link[i].to, (i + 1) % info->size);
        if (i < 2) /* the links of rank 1 */
            assert_true(link[i].small_sec >= SLOW_SEC / 2 && link[i].large_sec >= SLOW_SEC / 2);
        assert_true(link[i].small_sec > 0 && link[i].large_sec > 0);
    }
    if (info->size < 3) return;
    const int some[] = {2, 0}; /* rank 1 is not in it */
    OK(tr_probe_ring(probe, some, 2, link));
    assert_int_equal(link[0].from, 2);
    assert_true(link[0].large_sec > 0);
}

static int run(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_times),
                                       cmocka_unit_test(test_wrong_sum),
                                       cmocka_unit_test(test_slow_rank)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}

int main(void) {
    const tr_parallel_settings_t settings = {.engine = TR_ENGINE_POLL, .timeout = 60};
    if (tr_world_open(NULL, &world) != TR_OK) return 1;
    info = tr_world_info(world);
    int failed = tr_device_open("cpu", &(tr_device_params_t){.threads = 1}, &device) != TR_OK ||
                 tr_world_collectives(world, device, &settings, &coll) != TR_OK;
    real = coll->ops;
    failed = failed ||
             tr_probe_open(world, device, coll, TR_PROBE_LARGE_BYTES, 0, &probe) != TR_OK || run();
    if (failed) {
        fprintf(stderr, "%s\n", tr_error_last()->message);
        tr_world_abort(world, 1);
    }
    tr_probe_close(&probe);
    tr_world_collectives_close(world, &coll);
    tr_device_close(&device);
    tr_world_close(&world);
    return failed || tr_mem_stats().live != 0;
}
