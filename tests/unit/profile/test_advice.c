/* The advice of a profile: planted numbers, of which each has one cause. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/names.h"
#include "../../support/ok.h"

#include "profile/advice.h"

#include <math.h>
#include <string.h>

static tr_rank_profile_t ranks[4];
static tr_bucket_profile_t buckets[3];
static tr_op_profile_t ops[2];
static tr_step_profile_t p;

/* Four ranks of 10 ms steps, which compute all of the time at the peaks of their device. */
static int plain(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) {
        ranks[i] = (tr_rank_profile_t){
            .step_sec = 10e-3, .compute_sec = 9.9e-3, .read_sec = 9e-3, .read_bytes = 4096};
        memcpy(ranks[i].host, "node0", 6);
        ranks[i].host[4] = (char)('0' + i);
    }
    for (int i = 0; i < 3; i++)
        buckets[i] = (tr_bucket_profile_t){.layers = "fc1, fc2", .bytes = 1 << 20, .sec = 1e-3};
    ops[0] = (tr_op_profile_t){"matmul", "fc1", "forward", 1, 6e-3, 6e9, 1e6, 6e-3, false, 6e9};
    ops[1] = (tr_op_profile_t){"act", "relu", "forward", 1, 3.9e-3, 1e3, 3.9e7, 3.9e-3, true, 1e3};
    p = (tr_step_profile_t){.first = 1,
                            .last = 11,
                            .peak_flops = 1e12,
                            .peak_bytes = 1e10,
                            .untraced_sec = NAN,
                            .is_immediate = true,
                            .overlaps = true,
                            .workers = 1,
                            .prefetch = 4,
                            .micro_batch = 8,
                            .batch_size = 32};
    p.ranks.data = ranks, p.ranks.count = 4;
    p.buckets.data = buckets, p.buckets.count = 3;
    p.ops.data = ops, p.ops.count = 2;
    return 0;
}

static tr_advice_t advice[TR_ADVICE];

/* The first advice: its loss in ms, and what its text names. */
static void expect(tr_loss_t loss, double ms, int rank, const char *names) {
    assert_true(tr_advice_take(&p, advice) >= 1);
    assert_string_equal(tr_loss_name(advice[0].loss), tr_loss_name(loss));
    assert_true(fabs(1e3 * advice[0].sec - ms) < 1e-6);
    assert_int_equal(advice[0].rank, rank);
    assert_names(advice[0].text, names);
}

static void a_starved_loader(void **state) {
    (void)state;
    ranks[2].data_sec = 4e-3;
    for (int i = 0; i < 4; i++) ranks[i].compute_sec = 5e-3, ranks[i].wait_sec = i == 2 ? 0 : 4e-3;
    expect(TR_LOSS_INPUT, 4, 2, "2 & node2 & 40 % & data.workers & 1");
    ranks[2].read_sec = 1e-3; /* its thread sleeps: not more threads */
    expect(TR_LOSS_INPUT, 4, 2, "2 & node2 & data.prefetch & 4");
}

static void a_host_that_is_ahead_waits_without_a_loss(void **state) {
    (void)state;
    p.is_immediate = false;
    for (int i = 0; i < 4; i++) ranks[i].data_sec = 8e-3;
    double lost[TR_LOSSES];
    tr_advice_losses(&p, lost);
    assert_true(lost[TR_LOSS_INPUT] < 0.11e-3);
}

static void a_late_bucket(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++)
        ranks[i].compute_sec = 6e-3, ranks[i].wait_sec = 3.5e-3 + 0.1e-3 * i;
    buckets[1].exposed_sec = 3e-3;
    buckets[2].exposed_sec = 0.5e-3;
    expect(TR_LOSS_COMMUNICATION, 3.5, -1, "35 % & 1 & 1.0 MiB & fc1, fc2 & data.batch_size");
    assert_int_equal(advice[0].bucket, 1);
    p.overlaps = false;
    expect(TR_LOSS_COMMUNICATION, 3.5, -1, "parallel.overlap");
    p.overlaps = p.polls = true;
    expect(TR_LOSS_COMMUNICATION, 3.5, -1, "parallel.engine & threads");
    p.polls = false;
    buckets[2].exposed_sec = 4e-3;
    expect(TR_LOSS_COMMUNICATION, 3.5, -1, "parallel.bucket & 2");
}

static void a_slow_rank(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) ranks[i].compute_sec = 4e-3, ranks[i].wait_sec = 5.9e-3;
    ranks[3].compute_sec = 9.8e-3, ranks[3].wait_sec = 0.1e-3;
    expect(TR_LOSS_SLOW_RANK, 5.8, 3, "3 & node3 & 9.8 & 5.8");
    p.ranks.count = 1; /* no other rank waits */
    double lost[TR_LOSSES];
    tr_advice_losses(&p, lost);
    assert_true(lost[TR_LOSS_SLOW_RANK] == 0);
}

static void gaps_between_ops(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) ranks[i].compute_sec = 5e-3;
    expect(TR_LOSS_LAUNCH_GAPS, 5, -1, "50 % & data.batch_size");
    p.micro_batch = 4;
    expect(TR_LOSS_LAUNCH_GAPS, 5, -1, "data.micro_batch");
    p.is_immediate = false;
    expect(TR_LOSS_LAUNCH_GAPS, 5, -1, "capture");
    /* steps are captured, but not while they are traced: the time of a step is that before */
    p.is_captured = true;
    p.untraced_sec = 7e-3;
    expect(TR_LOSS_LAUNCH_GAPS, 2, -1, "data.micro_batch");
    assert_true(fabs(tr_step_profile_utilisation(&p) - 5.0 / 7) < 1e-9);
}

static void ops_that_are_bound_by_memory(void **state) {
    (void)state;
    expect(TR_LOSS_MEMORY_BOUND, 3.9 - 1e-6, -1, "act relu & 39 %");
    p.may_use_bf16 = true;
    expect(TR_LOSS_MEMORY_BOUND, 3.9 - 1e-6, -1, "precision");
}

static void ops_that_are_small(void **state) {
    (void)state;
    ops[0].floor_sec = 0.5e-3, ops[0].flops = ops[0].least_flops = 0.5e9;
    expect(TR_LOSS_SMALL_OPS, 5.5, -1, "matmul fc1 & 55 % & data.batch_size");
    p.peak_flops = p.peak_bytes = ops[0].floor_sec = ops[1].floor_sec = NAN; /* not measured */
    assert_int_equal(tr_advice_take(&p, advice), 0);
}

static void the_two_largest_in_their_order(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) ranks[i].compute_sec = 5e-3, ranks[i].wait_sec = 2e-3;
    ranks[1].compute_sec = 6.1e-3; /* 1.1 ms more; 1.9 ms of the others are gaps */
    assert_int_equal(tr_advice_take(&p, advice), 2);
    assert_int_equal(advice[0].loss, TR_LOSS_LAUNCH_GAPS);
    assert_int_equal(advice[1].loss, TR_LOSS_COMMUNICATION);
}

/* All else is late for this reason, and not named. */
static void cores_that_others_use(void **state) {
    (void)state;
    for (int i = 0; i < 4; i++) ranks[i].compute_sec = 5e-3, ranks[i].wait_sec = 4e-3;
    for (int i = 0; i < 4; i++) ranks[i].cores_used = 0.95, ranks[i].cores_waited = 0.05;
    ranks[1].cores_used = 0.4, ranks[1].cores_waited = 0.6;
    expect(TR_LOSS_CORES, 6, 1, "1 & node1 & 0.4 & 0.6 & 60 % & trainer doctor");
    assert_int_equal(tr_advice_take(&p, advice), 1);
    p.is_immediate = false; /* the threads do not compute */
    expect(TR_LOSS_COMMUNICATION, 4, -1, "data.batch_size");
    p.is_immediate = true;
    ranks[1].cores_waited = NAN; /* the kernel does not count */
    expect(TR_LOSS_COMMUNICATION, 4, -1, "data.batch_size");
}

#define PLANTED(test) cmocka_unit_test_setup(test, plain)

int main(void) {
    const struct CMUnitTest tests[] = {
        PLANTED(a_starved_loader),     PLANTED(a_host_that_is_ahead_waits_without_a_loss),
        PLANTED(a_late_bucket),        PLANTED(a_slow_rank),
        PLANTED(gaps_between_ops),     PLANTED(ops_that_are_bound_by_memory),
        PLANTED(ops_that_are_small),   PLANTED(the_two_largest_in_their_order),
        PLANTED(cores_that_others_use)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
