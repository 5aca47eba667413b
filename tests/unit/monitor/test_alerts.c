/* Alerts: what rules are, and when they begin and end. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/comma_locale.h"
#include "../../support/ok.h"

#include "monitor/alerts.h"
#include "base/mem.h"

#include <stdio.h>
#include <string.h>

static char said[512];

static void say(void *self, const tr_alert_t *alert, const json_t *line) {
    const size_t used = strlen(said);
    (void)self, (void)line;
    snprintf(said + used, sizeof said - used, "%s%s %s %.3g;", used ? " " : "",
             alert->begins ? "+" : "-", alert->rule, alert->value);
}

static void say_words(void *self, const tr_alert_t *alert, const json_t *line) {
    (void)self, (void)line;
    strcat(said, alert->words);
}

/* One line each second from `second` on. */
static void feed(tr_alerts_t *a, int second, int count, double stall, double rate, double loss) {
    for (int i = 0; i < count; i++) {
        json_t *line = json_pack("{s:i, s:f, s:f, s:f, s:f}", "step", second + i, "unix_time",
                                 1000.0 + second + i, "data_stall", stall, "samples_per_sec", rate,
                                 "loss", loss);
        tr_alerts_take(a, line, say, NULL);
        json_decref(line);
    }
}

static void a_rule_holds_over_a_whole_window(void **state) {
    tr_alerts_t *a = NULL;
    const int64_t live = tr_mem_stats().live;
    (void)state;
    said[0] = '\0';
    OK(tr_alerts_create("stall > 5 %, throughput<80%,loss > 2x ,", 10, &a));
    feed(a, 0, 11, 0.01, 100, 1.0);
    assert_string_equal(said, "");
    feed(a, 11, 4, 0.5, 100, 1.0); /* part of a window: its mean is 0.2 */
    feed(a, 15, 6, 0.0, 100, 1.0);
    assert_string_equal(said, "+ stall > 5 % 0.2;");
    feed(a, 21, 20, 0.0, 70, 1.0);
    assert_string_equal(said, "+ stall > 5 % 0.2; - stall > 5 % 0; + throughput<80% 0.7;");
    said[0] = '\0';
    feed(a, 41, 10, 0.0, 100, 2.5);
    assert_string_equal(said, "- throughput<80% 1; + loss > 2x 2.5;");
    said[0] = '\0';
    feed(a, 51, 30, 0.0, 100, 2.5); /* it is said once */
    assert_string_equal(said, "");
    tr_alerts_destroy(&a);
    assert_int_equal(tr_mem_stats().live, live);
}

static void numbers_have_a_point_in_any_locale(void **state) {
    tr_alerts_t *a = NULL;
    (void)state;
    if (!set_comma_locale()) skip();
    said[0] = '\0';
    OK(tr_alerts_create("stall > 0.5 %", 12.5, &a));
    json_t *line = json_pack("{s:f, s:f}", "unix_time", 1000.0, "data_stall", 0.012);
    tr_alerts_take(a, line, say_words, NULL);
    json_object_set_new(line, "unix_time", json_real(1013));
    tr_alerts_take(a, line, say_words, NULL);
    json_decref(line);
    tr_alerts_destroy(&a);
    setlocale(LC_ALL, "C");
    assert_string_equal(said, "stall is 1.2 % (mean of 12.5 s)");
}

static void bad_rules_are_named(void **state) {
    static const char *const bad[] = {"stall", "stal > 5 %", "stall > five", "stall = 5", "stall > 5 y",
                                      "stall > 2x", "loss > 2xx", "loss > 2", "throughput < 1000",
                                      "stall > 5", "gpu_util < 50"};
    (void)state;
    for (size_t i = 0; i < TR_COUNT(bad); i++) {
        char rules[64];
        tr_alerts_t *a = NULL;
        snprintf(rules, sizeof rules, "loss > 2x, %s", bad[i]);
        assert_int_equal(tr_alerts_create(rules, 60, &a), TR_ERR_CONFIG);
        assert_non_null(strstr(tr_error_last()->message, "monitor.alert"));
        assert_non_null(strstr(tr_error_last()->message, bad[i]));
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {cmocka_unit_test(a_rule_holds_over_a_whole_window),
                                       cmocka_unit_test(numbers_have_a_point_in_any_locale),
                                       cmocka_unit_test(bad_rules_are_named)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
