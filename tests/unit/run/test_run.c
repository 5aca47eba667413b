#include "../../support/names.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "run/run.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmocka.h>
#include "../../support/ok.h"

static char base[512];

static const char *in_base(const char *name) {
    static char path[2][1024];
    static int turn;
    turn = !turn;
    snprintf(path[turn], sizeof path[turn], "%s/%s", base, name);
    return path[turn];
}

static const char *content(const char *path) {
    static char text[65536];
    FILE *file = fopen(path, "r");
    if (!file) return "(no file)";
    text[fread(text, 1, sizeof text - 1, file)] = '\0';
    fclose(file);
    return text;
}

static int make_base(void **state) {
    const char *tmp = getenv("TMPDIR");
    snprintf(base, sizeof base, "%s/run.XXXXXX", tmp ? tmp : "/tmp");
    return mkdtemp(base) ? 0 : -1;
}
static int remove_base(void **state) {
    char command[600];
    snprintf(command, sizeof command, "rm -rf '%s'", base);
    return system(command);
}

static tr_status_t open_at(const char *dir, tr_run_t **out) {
    return tr_run_open(&(tr_run_settings_t){.dir = dir, .name = ""}, "", NULL, out);
}

static tr_run_t *open_run(const char *name) {
    tr_run_t *run = NULL;
    assert_int_equal(open_at(in_base(name), &run), TR_OK);
    OK(tr_run_begin(run, "[data]\nx = 1\n"));
    return run;
}

static void put(tr_run_t *run, int step, const char *key, double value) {
    OK(tr_run_metrics(run, json_pack("{s:i, s:f}", "step", step, key, value)));
}

static void test_files_of_a_run(void **state) {
    tr_run_t *run = open_run("a/b//c/");
    assert_string_equal(content(in_base("a/b/c/config.ini")), "[data]\nx = 1\n");
    struct stat info;
    assert_int_equal(stat(tr_run_checkpoint_dir(run), &info), 0);
    assert_true(S_ISDIR(info.st_mode));
    tr_log_set_level(TR_LOG_INFO);
    TR_INFO("hello");
    put(run, 1, "loss", 0.1);
    assert_int_equal(tr_run_summary(run, json_pack("{s:s, s:i}", "status", "running", "steps", 1)),
                     TR_OK);
    assert_int_equal(tr_run_summary(run, json_pack("{s:s, s:i}", "status", "done", "steps", 2)),
                     TR_OK);
    tr_run_close(&run);
    assert_null(run);
    assert_non_null(strstr(content(in_base("a/b/c/log.txt")), "hello"));
    assert_string_equal(content(in_base("a/b/c/metrics.jsonl")), "{\"step\":1,\"loss\":0.1}\n");
    assert_string_equal(content(in_base("a/b/c/summary.json")),
                        "{\n  \"status\": \"done\",\n  \"steps\": 2\n}\n");
}

static void test_metrics_refuse_what_is_no_object(void **state) {
    tr_run_t *run = open_run("odd");
    assert_int_equal(tr_run_metrics(run, json_integer(3)), TR_ERR_INTERNAL);
    assert_int_equal(tr_run_metrics(run, NULL), TR_ERR_INTERNAL);
    tr_run_close(&run);
    assert_string_equal(content(in_base("odd/metrics.jsonl")), "");
}

static void test_rewind_drops_later_steps(void **state) {
    tr_run_t *run = open_run("rewind");
    put(run, 10, "loss", 3);
    put(run, 20, "loss", 2);
    put(run, 20, "valid_loss", 2.5);
    put(run, 30, "loss", 1);
    OK(tr_run_metrics_rewind(run, 30, true));
    OK(tr_run_metrics_rewind(run, 20, true));
    put(run, 30, "loss", 0.5);
    tr_run_close(&run);
    assert_string_equal(
        content(in_base("rewind/metrics.jsonl")),
        "{\"step\":10,\"loss\":3.0}\n{\"step\":20,\"loss\":2.0}\n{\"step\":20,\"valid_loss\":"
        "2.5}\n{\"step\":30,\"loss\":0.5}\n");
    run = open_run("rewind");
    OK(tr_run_metrics_rewind(run, 20, false));
    assert_string_equal(content(in_base("rewind/metrics.jsonl")),
                        "{\"step\":10,\"loss\":3.0}\n{\"step\":20,\"loss\":2.0}\n");
    OK(tr_run_metrics_rewind(run, 0, true));
    tr_run_close(&run);
    assert_string_equal(content(in_base("rewind/metrics.jsonl")), "");
}

/* Behind the validation of a step there may be an alert of that step; lines that cannot be read do
 * not end the search. */
static void test_rewind_looks_behind_odd_lines(void **state) {
    (void)state;
    tr_run_t *run = open_run("odd-tail");
    tr_run_close(&run);
    FILE *file = fopen(in_base("odd-tail/metrics.jsonl"), "a");
    assert_non_null(file);
    fputs("{\"step\":1}\nnot json\n{\"step\":2}\n{\"step\":2,\"valid_loss\":1.0}\nnot json\n"
          "{\"no step\":9}\n{\"step\":2,\"alert\":\"loss\"}\n{\"step\":3}\nnot json\n{\"st",
          file);
    fclose(file);
    run = open_run("odd-tail");
    OK(tr_run_metrics_rewind(run, 2, true));
    assert_non_null(strstr(content(in_base("odd-tail/metrics.jsonl")), "\"alert\":\"loss\"}\n"));
    assert_null(strstr(content(in_base("odd-tail/metrics.jsonl")), "{\"step\":3}"));
    OK(tr_run_metrics_rewind(run, 2, false));
    assert_string_equal(content(in_base("odd-tail/metrics.jsonl")),
                        "{\"step\":1}\nnot json\n{\"step\":2}\n");
    OK(tr_run_metrics_rewind(run, 1, false));
    assert_string_equal(content(in_base("odd-tail/metrics.jsonl")), "{\"step\":1}\nnot json\n");
    tr_run_close(&run);
}

/* What stands before the lines of the step is not read: the first line here is longer than any that a
 * reader takes. */
static void test_rewind_reads_the_end_only(void **state) {
    static char longest[1 << 21];
    struct stat info;
    (void)state;
    tr_run_t *run = open_run("long");
    tr_run_close(&run);
    FILE *file = fopen(in_base("long/metrics.jsonl"), "a");
    assert_non_null(file);
    memset(longest, 'x', sizeof longest - 1);
    fprintf(file, "%s\n{\"step\":1}\n{\"step\":2}\n{\"step\":3}\n", longest);
    fclose(file);
    run = open_run("long");
    OK(tr_run_metrics_rewind(run, 2, true));
    tr_run_close(&run);
    assert_int_equal(stat(in_base("long/metrics.jsonl"), &info), 0);
    assert_int_equal(info.st_size, sizeof longest + 2 * strlen("{\"step\":1}\n"));
}

/* A process that was killed leaves half a line; a line in the middle that cannot be read costs only
 * itself. */
static void test_a_torn_line_is_cut_at_open(void **state) {
    tr_run_t *run = open_run("torn");
    put(run, 1, "loss", 3);
    tr_run_close(&run);
    FILE *file = fopen(in_base("torn/metrics.jsonl"), "a");
    assert_non_null(file);
    fputs("not json\n{\"step\":2,\"lo", file);
    fclose(file);
    run = open_run("torn");
    put(run, 2, "loss", 2);
    OK(tr_run_metrics_rewind(run, 2, true));
    tr_run_close(&run);
    assert_string_equal(content(in_base("torn/metrics.jsonl")),
                        "{\"step\":1,\"loss\":3.0}\nnot json\n{\"step\":2,\"loss\":2.0}\n");
}

/* Another process, not another descriptor: that is how two jobs meet. The status of its
 * tr_run_open, and its message. */
static int open_in_child(const char *name, char *message, size_t bytes) {
    int ends[2], status = 0;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        tr_run_t *run = NULL;
        int code = open_at(in_base(name), &run);
        const char *text = tr_error_last()->message;
        if (write(ends[1], text, strlen(text) + 1) < 0) code = 111;
        _exit(code);
    }
    assert_true(child > 0);
    close(ends[1]);
    ssize_t count = read(ends[0], message, bytes - 1);
    message[count > 0 ? count : 0] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

static void test_one_run_at_a_time(void **state) {
    char message[1024], pid[32];
    tr_run_t *run = open_run("locked");
    assert_int_equal(open_in_child("locked", message, sizeof message), TR_ERR_CONFIG);
    snprintf(pid, sizeof pid, "%ld & run.dir", (long)getpid());
    assert_names(message, pid);
    /* the loser touched nothing */
    assert_string_equal(content(in_base("locked/config.ini")), "[data]\nx = 1\n");
    tr_run_close(&run);
    assert_int_equal(open_in_child("locked", message, sizeof message), TR_OK);
    run = open_run("locked"); /* the child ended without closing: its lock went with it */
    tr_run_close(&run);
}

static int stop_after_three(void) {
    static int asked;
    return ++asked > 3;
}

/* Waits for the lock: until the other run ends, until the time is over, or until it is asked to
 * stop. */
static void test_waits_for_the_lock(void **state) {
    tr_run_settings_t settings = {.dir = in_base("waited"), .name = "", .lock_wait = "1min"};
    tr_run_t *run = NULL, *other = NULL;
    char byte;
    int ends[2];
    assert_int_equal(pipe(ends), 0);
    if (fork() == 0) { /* the lock of a process goes with it */
        open_run("waited");
        if (write(ends[1], "", 1) == 1) usleep(300 * 1000);
        _exit(0);
    }
    assert_int_equal(read(ends[0], &byte, 1), 1);
    OK(tr_run_open(&settings, "", NULL, &run));
    tr_run_close(&run);
    assert_true(wait(NULL) > 0);

    run = open_run("waited");
    settings.lock_wait = "0.3s";
    assert_int_equal(tr_run_open(&settings, "", NULL, &other), TR_ERR_RETRY);
    assert_non_null(strstr(tr_error_last()->message, "run.lock_wait"));
    settings.lock_wait = "1h";
    assert_int_equal(tr_run_open(&settings, "", stop_after_three, &other), TR_ERR_RETRY);
    settings.lock_wait = "soon";
    assert_int_equal(tr_run_open(&settings, "", NULL, &other), TR_ERR_CONFIG);
    assert_null(other);
    tr_run_close(&run);
}

static void test_folders_that_cannot_be(void **state) {
    tr_run_t *run = NULL;
    FILE *file = fopen(in_base("file"), "w");
    assert_non_null(file);
    fclose(file);
    assert_int_equal(open_at(in_base("file"), &run), TR_ERR_CONFIG);
    assert_int_not_equal(open_at(in_base("file/below"), &run), TR_OK);
    assert_non_null(strstr(tr_error_last()->message, "file"));
    if (geteuid() != 0) {
        assert_int_equal(mkdir(in_base("closed"), 0555), 0);
        assert_int_equal(open_at(in_base("closed/run"), &run), TR_ERR_PERMISSION);
    }
    assert_null(run);
}

static void test_a_run_that_never_began(void **state) {
    tr_run_t *run = NULL;
    assert_int_equal(open_at(in_base("never/run"), &run), TR_OK);
    assert_int_equal(access(in_base("never/run/log.txt"), F_OK), 0);
    tr_run_close(&run);
    assert_int_not_equal(access(in_base("never/run"), F_OK), 0);
    /* what was there before stays */
    assert_int_equal(mkdir(in_base("never/own"), 0777), 0);
    assert_int_equal(open_at(in_base("never/own"), &run), TR_OK);
    tr_log_write_files(TR_LOG_ERROR, "why it %s", "failed");
    tr_run_close(&run);
    tr_log_write_files(TR_LOG_ERROR, "and what is said behind it");
    assert_non_null(strstr(content(in_base("never/own/log.txt")), "Z error why it failed\n"));
    assert_non_null(strstr(content(in_base("never/own/log.txt")), "said behind it\n"));
}

/* Without run.dir each run gets a folder of its own, those of the same second, too. */
static void test_own_folder(void **state) {
    tr_run_t *run[3];
    char there[4096];
    assert_non_null(getcwd(there, sizeof there));
    assert_int_equal(chdir(in_base("")), 0);
    for (int i = 0; i < 3; i++)
        assert_int_equal(tr_run_open(&(tr_run_settings_t){.dir = "", .name = i < 2 ? "" : "trial"},
                                     "configs/mnist_cnn.ini", NULL, &run[i]),
                         TR_OK);
    assert_int_equal(strncmp(tr_run_dir(run[0]), "runs/mnist_cnn-20", 17), 0);
    assert_int_equal(strlen(tr_run_dir(run[0])), strlen("runs/mnist_cnn-20260131-120000"));
    assert_string_not_equal(tr_run_dir(run[0]), tr_run_dir(run[1]));
    assert_int_equal(strncmp(tr_run_dir(run[2]), "runs/trial-20", 13), 0);
    for (int i = 0; i < 3; i++) tr_run_close(&run[i]);
    assert_int_equal(chdir(there), 0);
}

/* Runs that start in the same second, where there are no runs yet: each gets a folder of its own. */
static void test_own_folders_at_once(void **state) {
    enum { ROUNDS = 10, RUNS = 6 };
    char there[4096];
    assert_non_null(getcwd(there, sizeof there));
    for (int round = 0; round < ROUNDS; round++) {
        char name[32];
        int go[2], failed = 0, status;
        snprintf(name, sizeof name, "at_once%d", round);
        assert_int_equal(mkdir(in_base(name), 0777), 0);
        assert_int_equal(chdir(in_base(name)), 0);
        assert_int_equal(pipe(go), 0);
        for (int i = 0; i < RUNS; i++) {
            if (fork() > 0) continue;
            tr_run_t *run = NULL;
            char byte;
            close(go[1]);
            (void)!read(go[0], &byte, 1); /* until all are there */
            status =
                tr_run_open(&(tr_run_settings_t){.dir = "", .name = ""}, "net.ini", NULL, &run);
            _exit(status);
        }
        close(go[0]);
        close(go[1]);
        for (int i = 0; i < RUNS; i++) failed += wait(&status) < 0 || status != 0;
        assert_int_equal(failed, 0);
    }
    assert_int_equal(chdir(there), 0);
}

static void test_nothing_is_left_allocated(void **state) {
    assert_int_equal(tr_mem_stats().live, 0);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_files_of_a_run),
        cmocka_unit_test(test_metrics_refuse_what_is_no_object),
        cmocka_unit_test(test_rewind_drops_later_steps),
        cmocka_unit_test(test_rewind_looks_behind_odd_lines),
        cmocka_unit_test(test_rewind_reads_the_end_only),
        cmocka_unit_test(test_a_torn_line_is_cut_at_open),
        cmocka_unit_test(test_one_run_at_a_time),
        cmocka_unit_test(test_waits_for_the_lock),
        cmocka_unit_test(test_folders_that_cannot_be),
        cmocka_unit_test(test_a_run_that_never_began),
        cmocka_unit_test(test_own_folder),
        cmocka_unit_test(test_own_folders_at_once),
        cmocka_unit_test(test_nothing_is_left_allocated),
    };
    return cmocka_run_group_tests(tests, make_base, remove_base);
}
