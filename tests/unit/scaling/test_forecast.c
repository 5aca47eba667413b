/* Timelines, networks and predictions against numbers computed by hand. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "../../support/names.h"
#include "scaling/forecast.h"

#include <stdio.h>
#include <unistd.h>

#define NEAR 1e-9

static const char *write_file(const char *name, const char *text) {
    FILE *f = fopen(name, "w");
    assert_non_null(f);
    assert_true(fputs(text, f) >= 0);
    assert_int_equal(fclose(f), 0);
    return name;
}

static void expect_timeline(tr_timeline_t t, double compute, double end) {
    assert_float_equal(t.compute_sec, compute, NEAR);
    assert_float_equal(t.end_sec, end, NEAR);
    assert_float_equal(t.exposed_sec, end - compute, NEAR);
}

/* Ops of 1, 2, 3, 4 s: they end at 1, 3, 6, 10. */
static void test_timeline(void **state) {
    const double op[] = {1, 2, 3, 4};
    const tr_bucket_t buckets[] = {{1, 100}, {2, 100}, {3, 100}};
    /* ready at 3, 6, 10: 3-5, 6-8, 10-11 */
    expect_timeline(tr_timeline(op, 4, 1, buckets, (double[]){2, 2, 1}, 3, false), 10, 11);
    /* the second waits for the first: 3-9, 9-11, 11-12 */
    expect_timeline(tr_timeline(op, 4, 1, buckets, (double[]){6, 2, 1}, 3, false), 10, 12);
    /* hidden but for the last, which ends with the ops where it takes no time */
    expect_timeline(tr_timeline(op, 4, 1, buckets, (double[]){2, 2, 0}, 3, false), 10, 10);
    /* ops of half the time: ready at 1.5, 3, 5: 1.5-4.5, 4.5-5.5, 5.5-6 */
    expect_timeline(tr_timeline(op, 4, 0.5, buckets, (double[]){3, 1, 0.5}, 3, false), 5, 6);
    /* in the computing thread: all of it is exposed */
    expect_timeline(tr_timeline(op, 4, 1, buckets, (double[]){2, 2, 1}, 3, true), 10, 15);
    /* before the first op, and no buckets */
    expect_timeline(tr_timeline(op, 4, 1, (tr_bucket_t[]){{-1, 100}}, (double[]){12}, 1, false), 10,
                    12);
    expect_timeline(tr_timeline(op, 4, 1, NULL, NULL, 0, false), 10, 10);
}

static void test_link(void **state) {
    const tr_link_t link = {1, 0.01};
    /* two ranks: tree 1 + 100 x 0.01, ring 2 + 1 */
    assert_float_equal(tr_link_allreduce_sec(&link, 2, 100), 2, NEAR);
    /* eight ranks: ring 14 + 14/8 n 0.01, tree 3 + 3 n 0.01 */
    assert_float_equal(tr_link_allreduce_sec(&link, 8, 800), 27, NEAR);
    assert_float_equal(tr_link_allreduce_sec(&link, 8, 8000), 14 + 140, NEAR);
    assert_float_equal(tr_link_allreduce_sec(&link, 1, 1e9), 0, NEAR);
}

/* Tables of 2 and 4 ranks that a link of 10 us and 1 GB/s gives: the fit finds it again. */
static void test_fit(void **state) {
    const tr_link_t link = {10e-6, 1e-9};
    char text[2048];
    const char *names[] = {"net2.json", "net4.json"};
    tr_network_t n;
    for (int k = 0; k < 2; k++) {
        const int ranks = 2 << k;
        int used = snprintf(text, sizeof text,
                            "{\"ranks\": %d, \"nodes\": %d, \"engine\": \"thread\", \"sizes\": [",
                            ranks, ranks);
        for (double bytes = 1024; bytes <= 64 << 20; bytes *= 8) {
            const double us = tr_link_allreduce_sec(&link, ranks, bytes) * 1e6;
            used += snprintf(text + used, sizeof text - (size_t)used,
                             "%s{\"bytes\": %.0f, \"median_us\": %.6f, \"p90_us\": %.6f}",
                             bytes > 1024 ? "," : "", bytes, us, 2 * us);
        }
        snprintf(text + used, sizeof text - (size_t)used, "]}");
        write_file(names[k], text);
    }
    OK(tr_network_read("net2.json,net4.json", &n));
    assert_float_equal(n.link[TR_NETWORK_MEDIAN].latency_sec, 10e-6, 1e-9);
    assert_float_equal(n.link[TR_NETWORK_MEDIAN].sec_per_byte, 1e-9, 1e-13);
    assert_float_equal(n.link[TR_NETWORK_P90].latency_sec, 20e-6, 1e-9);
    assert_true(n.error < 1e-3);
    assert_false(n.is_polled);
    tr_network_free(&n);
    for (int k = 0; k < 2; k++) unlink(names[k]);
}

static void test_tables(void **state) {
    bool measured;
    tr_network_t n;
    double sec;
    write_file("net.json", "{\"ranks\": 2, \"nodes\": 1, \"engine\": \"poll\", \"sizes\": ["
                           "{\"bytes\": 1000, \"median_us\": 10, \"p90_us\": 20},"
                           "{\"bytes\": 3000, \"median_us\": 20, \"p90_us\": 60}]}");
    OK(tr_network_read("net.json", &n));
    assert_true(n.is_polled);
    assert_float_equal(tr_network_allreduce_sec(&n, 2, 10, TR_NETWORK_MEDIAN, &measured), 10e-6,
                       NEAR);
    assert_float_equal(tr_network_allreduce_sec(&n, 2, 2000, TR_NETWORK_MEDIAN, &measured), 15e-6,
                       NEAR);
    assert_float_equal(tr_network_allreduce_sec(&n, 2, 2000, TR_NETWORK_P90, &measured), 40e-6,
                       NEAR);
    assert_float_equal(tr_network_allreduce_sec(&n, 2, 6000, TR_NETWORK_MEDIAN, &measured), 40e-6,
                       NEAR);
    assert_true(measured);
    (void)tr_network_allreduce_sec(&n, 3, 2000, TR_NETWORK_MEDIAN, &measured);
    assert_false(measured);
    assert_true(tr_network_measured_sec(&n, 2, 1, 3000, TR_NETWORK_MEDIAN, &sec));
    assert_false(tr_network_measured_sec(&n, 2, 2, 3000, TR_NETWORK_MEDIAN, &sec));
    tr_network_free(&n);
    unlink("net.json");
}

static void test_bad_files(void **state) {
    tr_network_t n;
    tr_profile_t p;
    assert_int_equal(tr_network_read("absent.json", &n), TR_ERR_NOINPUT);
    assert_error_names("absent.json & trainer bench allreduce");
    write_file("bad.json", "{\"ranks\": 2");
    assert_int_equal(tr_profile_read("bad.json", &p), TR_ERR_DATA);
    assert_error_names("bad.json & trainer bench step");
    write_file("bad.json", "{\"ranks\": 2, \"nodes\": 1, \"sizes\": []}");
    assert_int_equal(tr_network_read("bad.json", &n), TR_ERR_DATA);
    assert_error_names("bad.json & sizes");
    write_file("bad.json", "{\"ranks\": 1, \"nodes\": 1, \"sizes\": [{\"bytes\": 8, \"median_us\": "
                           "1, \"p90_us\": 1}]}");
    assert_int_equal(tr_network_read("bad.json", &n), TR_ERR_DATA);
    unlink("bad.json");
}

/* A profile of two slots: steps of 10 +- 1 s, of which 2 s are the update, so that a micro-batch
 * takes 4 s: two ops, of which the second completes the only bucket. */
static const char profile_text[] =
    "{\"ranks\": 1, \"threads\": 1, \"batch_size\": 8, \"micro_batch\": 4, \"slots\": 2, "
    "\"update_sec\": 2, \"ops\": [{\"sec_median\": 1}, {\"sec_median\": 3}], "
    "\"compute_sec\": [9, 10, 11], \"buckets\": [{\"after_op\": 0, \"bytes\": 1000}, "
    "{\"after_op\": 1, \"bytes\": 2000}], \"config\": \"\"}";
/* 1000 bytes take 2 s, 2000 take 1 s. */
static const char network_text[] =
    "{\"ranks\": 2, \"nodes\": 2, \"engine\": \"thread\", \"sizes\": ["
    "{\"bytes\": 1000, \"median_us\": 2e6, \"p90_us\": 5e6}, "
    "{\"bytes\": 2000, \"median_us\": 1e6, \"p90_us\": 3e6}]}";

static void test_prediction(void **state) {
    tr_profile_t p;
    tr_network_t n;
    tr_forecast_t row;
    tr_str_t text = {0};
    OK(tr_profile_read(write_file("p.json", profile_text), &p));
    OK(tr_network_read(write_file("n.json", network_text), &n));
    tr_forecast_setup_t s = {.profile = &p, .between = &n, .ranks_per_node = 1, .batch_size = 8};
    OK(tr_forecast(&s, 1, &row));
    assert_float_equal(row.step_sec.expected, 10, NEAR);
    assert_float_equal(row.step_sec.high, 10.9, NEAR);
    assert_float_equal(row.exposed_sec.high, 0, NEAR);
    assert_float_equal(row.efficiency.low, 1, NEAR);
    OK(tr_forecast(&s, 2, &row));
    assert_int_equal(row.batch_size, 16);
    assert_int_equal(row.slots, 2);
    assert_int_equal(row.network, TR_ORIGIN_MEASURED);
    /* low: 4 + (the second bucket follows the last op) 4 + 1 + 2 */
    assert_float_equal(row.step_sec.low, 11, NEAR);
    assert_float_equal(row.exposed_sec.low, 1, NEAR);
    /* expected: the quantile 0.5^(1/2) of the steps is 10.414213562 */
    assert_float_equal(row.step_sec.expected, 11.414213562, 1e-8);
    assert_float_equal(row.efficiency.expected, 10 / 11.414213562, 1e-8);
    /* high: 10.949358868; the second bucket waits for the first: 0.25 of 4.379743547 + 5 + 3 */
    assert_float_equal(row.step_sec.high, 4.379743547 * 1.25 + 8 + 2.189871774, 1e-7);
    /* zero = 2: the first micro-batch takes 4.5: its buckets 1-2, 4-4.5 */
    s.shards_gradients = true;
    OK(tr_forecast(&s, 2, &row));
    assert_float_equal(row.step_sec.low, 11.5, NEAR);
    assert_float_equal(row.exposed_sec.low, 1.5, NEAR);
    s.shards_gradients = false;
    s.mode = TR_SCALING_STRONG;
    OK(tr_forecast(&s, 2, &row));
    assert_int_equal(row.slots, 1);
    assert_float_equal(row.step_sec.low, 7, NEAR);
    assert_float_equal(row.efficiency.high, 10. / 14, NEAR);
    OK(tr_forecast(&s, 4, &row)); /* one micro-batch of 2: 2 s, and buckets */
    assert_int_equal(row.micro_batch, 2);
    assert_int_equal(row.network, TR_ORIGIN_FITTED);
    assert_int_equal(tr_forecast(&s, 3, &row), TR_ERR_CONFIG);
    assert_error_names("data.batch_size & 8 & 3");
    tr_forecast_assumptions(&s, &text);
    assert_non_null(text.text);
    tr_str_free(&text);
    tr_profile_free(&p);
    tr_network_free(&n);
    unlink("p.json");
    unlink("n.json");
}

/* Two ranks in each of two nodes: inside 1 s, between 2 s or 1 s; measured as a whole, that counts. */
static void test_inside(void **state) {
    tr_profile_t p;
    tr_network_t between, inside;
    tr_forecast_t row;
    OK(tr_profile_read(write_file("p.json", profile_text), &p));
    write_file("n.json", network_text);
    write_file("w.json", "{\"ranks\": 4, \"nodes\": 2, \"sizes\": [{\"bytes\": 2000, "
                         "\"median_us\": 4e6, \"p90_us\": 4e6}]}");
    write_file("i.json", "{\"ranks\": 2, \"nodes\": 1, \"sizes\": [{\"bytes\": 2000, "
                         "\"median_us\": 1e6, \"p90_us\": 1e6}]}");
    OK(tr_network_read("n.json", &between));
    OK(tr_network_read("i.json", &inside));
    tr_forecast_setup_t s = {.profile = &p,
                             .between = &between,
                             .inside = &inside,
                             .ranks_per_node = 2,
                             .batch_size = 16};
    OK(tr_forecast(&s, 1, &row));
    assert_float_equal(row.step_sec.low, 10 + 1, NEAR);
    OK(tr_forecast(&s, 2, &row));
    assert_int_equal(row.ranks, 4);
    /* 1-4 (2 + 1), then 4-6 (1 + 1) */
    assert_float_equal(row.step_sec.low, 10 + 2, NEAR);
    tr_network_free(&between);
    OK(tr_network_read("n.json,w.json", &between));
    OK(tr_forecast(&s, 2, &row));
    assert_float_equal(row.step_sec.low, 10 + 5, NEAR); /* 1-5, 5-9 */
    tr_network_free(&between);
    tr_network_free(&inside);
    tr_profile_free(&p);
    for (const char *const *f = (const char *[]){"p.json", "n.json", "w.json", "i.json", NULL}; *f;
         f++)
        unlink(*f);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_timeline),  cmocka_unit_test(test_link),
        cmocka_unit_test(test_fit),       cmocka_unit_test(test_tables),
        cmocka_unit_test(test_bad_files), cmocka_unit_test(test_prediction),
        cmocka_unit_test(test_inside),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
