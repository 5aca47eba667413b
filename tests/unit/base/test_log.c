/* Log lines: level, audience, prefixes, sinks, files; one write per line. */
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include "../../support/ok.h"

#include "trainer/log.h"
#include "base/mem.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char last_line[16384];
static int line_count;

static void keep_line(void *self, tr_log_level_t level, const char *line) {
    snprintf(last_line, sizeof last_line, "%d %s", (int)level, line);
    ++*(int *)self;
}

static int set_up(void **state) {
    line_count = 0;
    last_line[0] = '\0';
    tr_log_set_rank(0, 1, "host");
    tr_log_set_level(TR_LOG_INFO);
    tr_log_set_sink(keep_line, &line_count);
    return 0;
}

static int tear_down(void **state) {
    tr_log_set_sink(NULL, NULL);
    tr_log_close_files();
    return 0;
}

static void levels_filter(void **state) {
    TR_DEBUG("not yet");
    assert_int_equal(line_count, 0);
    TR_INFO("plain %d", 1);
    assert_string_equal(last_line, "2 plain 1");
    TR_WARN("careful");
    assert_string_equal(last_line, "1 warning: careful");
    tr_log_write(TR_LOG_ERROR, false, "broken");
    assert_string_equal(last_line, "0 error: broken");
    tr_log_set_level(TR_LOG_DEBUG);
    TR_DEBUG("now");
    assert_string_equal(last_line, "3 debug: now");
    tr_log_set_level(TR_LOG_ERROR);
    TR_WARN("hidden");
    assert_int_equal(line_count, 4);
}

static void audience_follows_rank(void **state) {
    tr_log_set_rank(2, 4, "node7");
    TR_INFO("rank 0 only");
    assert_int_equal(line_count, 0);
    TR_WARN_ALL("disk is slow");
    assert_string_equal(last_line, "1 [rank 2 node7] warning: disk is slow");
    tr_log_set_rank(0, 1, "node7");
    TR_INFO_ALL("alone");
    assert_string_equal(last_line, "2 alone");
}

static void long_lines_are_cut(void **state) {
    static char text[20000];
    memset(text, 'y', sizeof text - 1);
    TR_INFO("%s", text);
    assert_true(strlen(last_line) < 8300);
    assert_string_equal(last_line + strlen(last_line) - 3, "...");
    TR_INFO("next");
    assert_string_equal(last_line, "2 next");
}

static char *read_back(const char *path, char *text, size_t bytes) {
    FILE *file = fopen(path, "r");
    assert_non_null(file);
    text[fread(text, 1, bytes - 1, file)] = '\0';
    fclose(file);
    return text;
}

static void files_get_date_and_level(void **state) {
    char path[] = "/tmp/trainer-log-XXXXXX", text[4096];
    close(mkstemp(path));
    OK(tr_log_add_file(path));
    int64_t calls = tr_mem_stats().calls;
    TR_INFO("first");
    TR_WARN("second");
    assert_int_equal(tr_mem_stats().calls, calls);
    assert_int_equal(line_count, 2);
    tr_log_close_files();
    TR_INFO("after closing");
    int year = 0, used = 0;
    read_back(path, text, sizeof text);
    assert_int_equal(sscanf(text, "%d-%*d-%*dT%*d:%*d:%*dZ info  first\n%n", &year, &used), 1);
    assert_true(year >= 2024 && used > 0);
    assert_non_null(strstr(text + used, "Z warn  warning: second\n"));
    assert_null(strstr(text, "after"));
    OK(tr_log_add_file(path));
    TR_INFO("third");
    assert_non_null(strstr(read_back(path, text, sizeof text), "first"));
    assert_non_null(strstr(text, "third"));
    unlink(path);
}

static void bad_files_are_named(void **state) {
    assert_int_equal(tr_log_add_file("/nonexistent/folder/log.txt"), TR_ERR_NOINPUT);
    assert_non_null(strstr(tr_error_last()->message, "/nonexistent/folder/log.txt"));
    for (int i = 0; i < 4; i++) OK(tr_log_add_file("/dev/null"));
    assert_int_equal(tr_log_add_file("/dev/null"), TR_ERR_INTERNAL);
}

enum { THREADS = 4, LINES = 500 };

static void *write_lines(void *self) {
    for (int i = 0; i < LINES; i++) TR_INFO("thread %d line %d |", *(int *)self, i);
    return NULL;
}

/* With no sink, lines go to stderr: each whole, from any number of threads. */
static void threads_do_not_mix(void **state) {
    char path[] = "/tmp/trainer-log-XXXXXX", line[256];
    int fd = mkstemp(path), saved = dup(STDERR_FILENO);
    tr_log_set_sink(NULL, NULL);
    dup2(fd, STDERR_FILENO);
    pthread_t threads[THREADS];
    int ids[THREADS];
    for (int i = 0; i < THREADS; i++) {
        ids[i] = i;
        pthread_create(&threads[i], NULL, write_lines, &ids[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    dup2(saved, STDERR_FILENO);
    close(saved);
    close(fd);
    FILE *file = fopen(path, "r");
    unlink(path);
    int next[THREADS] = {0}, lines = 0, id, number;
    for (; fgets(line, sizeof line, file); lines++) {
        assert_int_equal(sscanf(line, "thread %d line %d |\n", &id, &number), 2);
        assert_int_equal(number, next[id]++);
    }
    fclose(file);
    assert_int_equal(lines, THREADS * LINES);
}

#define LOG_TEST(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)

int main(void) {
    const struct CMUnitTest tests[] = {
        LOG_TEST(levels_filter),       LOG_TEST(audience_follows_rank),
        LOG_TEST(long_lines_are_cut),  LOG_TEST(files_get_date_and_level),
        LOG_TEST(bad_files_are_named), LOG_TEST(threads_do_not_mix),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
