#include "run/progress_int.h"
#include "trainer/log.h"

#include <fcntl.h>
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <cmocka.h>
#include "../../support/comma_locale.h"
#include "../../support/ok.h"

static const tr_progress_t middle = {.step = 1234,
                                     .steps = 2340,
                                     .epoch = 3,
                                     .epochs = 10,
                                     .epoch_fraction = 0.5,
                                     .loss = 0.12345,
                                     .accuracy = 0.9781,
                                     .lr = 3e-4,
                                     .samples_per_sec = 12345,
                                     .data_stall = 0.001,
                                     .comm_exposed = 0.032,
                                     .eta_sec = 3725,
                                     .phase = "train"};

static void test_all_fields_where_there_is_room(void **state) {
    char text[1024];
    tr_progress_format(&middle, 1000, false, text, sizeof text);
    assert_string_equal(
        text, "epoch  3/10  1234/2340  loss  0.1235  acc 97.81%  lr 3.0e-04  12345/s  data  "
              "0.1%  comm  3.2%  ETA 1:02:05");
    tr_progress_format(&middle, 1000, true, text, sizeof text);
    assert_non_null(strstr(text, "  ##############--------------  "));
}

static void test_points_in_any_locale(void **state) {
    char text[1024];
    if (!set_comma_locale()) skip();
    tr_progress_format(&middle, 1000, false, text, sizeof text);
    setlocale(LC_ALL, "C");
    assert_null(strchr(text, ','));
    assert_non_null(strstr(text, "loss  0.1235  acc 97.81%  lr 3.0e-04"));
}

/* The contract: at most `width` columns, at every width, and no part of a field. */
static void test_never_wider_than_asked(void **state) {
    char text[1024];
    for (int width = 0; width < 200; width++)
        for (int bar = 0; bar < 2; bar++) {
            tr_progress_format(&middle, width, bar, text, sizeof text);
            assert_true((int)strlen(text) <= width);
            if (width >= 12) assert_non_null(strstr(text, "loss  0.1235"));
            if (width >= 80) assert_non_null(strstr(text, "acc 97.81%"));
            if (width >= 80) assert_non_null(strstr(text, "ETA 1:02:05"));
            if (width >= 120) assert_non_null(strstr(text, "comm  3.2%"));
        }
}

static int columns(const char *text) {
    int n = 0;
    for (; *text; text++) {
        if (*text == '\x1b')
            text += strcspn(text, "mK");
        else
            n += ((unsigned char)*text & 0xc0) != 0x80;
    }
    return n;
}

static void test_colours_and_line_art_take_no_columns(void **state) {
    char plain[1024], fancy[1024];
    for (int width = 12; width < 160; width++) {
        tr_progress_compose(&middle, width, true,
                            (tr_progress_style_t){.color = true, .unicode = true}, fancy,
                            sizeof fancy);
        tr_progress_format(&middle, width, true, plain, sizeof plain);
        assert_int_equal(columns(fancy), strlen(plain));
    }
    assert_null(strchr(plain, '\x1b'));
}

/* What changes from step to step must not make the line jump. */
static void test_columns_stay_where_they_are(void **state) {
    char first[1024], later[1024];
    tr_progress_t s = middle;
    s.step = 1;
    s.epoch = 1;
    s.loss = 2.302585;
    s.accuracy = 0.0981;
    s.samples_per_sec = 87.5;
    s.eta_sec = 7;
    tr_progress_format(&s, 100, true, first, sizeof first);
    tr_progress_format(&middle, 100, true, later, sizeof later);
    assert_int_equal(strlen(first), strlen(later));
    assert_int_equal(strstr(first, "loss") - first, strstr(later, "loss") - later);
    assert_int_equal(strstr(first, "ETA") - first, strstr(later, "ETA") - later);
}

static void test_odd_values(void **state) {
    char text[1024];
    tr_progress_t s = {.step = 7,
                       .epoch = 1,
                       .loss = NAN,
                       .accuracy = NAN,
                       .samples_per_sec = INFINITY,
                       .data_stall = NAN,
                       .eta_sec = NAN,
                       .epoch_fraction = NAN,
                       .phase = "valid"};
    tr_progress_format(&s, 200, true, text, sizeof text);
    assert_string_equal(
        text, "valid 1  ----------------------------  7  loss     nan  lr 0.0e+00    0.0/s  "
              "data     -  comm  0.0%  ETA    -:--");
    s.loss = 1.5e-7;
    s.epoch_fraction = 7;
    s.steps = 14; /* no epochs: the bar is of the steps */
    s.eta_sec = 100000;
    s.samples_per_sec = 2.5e7;
    tr_progress_format(&s, 200, true, text, sizeof text);
    assert_string_equal(text,
                        "valid 1  ##############--------------   7/14  loss 1.5e-07  lr 0.0e+00    "
                        "25M/s  data     -  comm  0.0%  ETA   1d03h");
    tr_progress_format(&middle, 100, true, text, 8);
    assert_true(strlen(text) < 8);
}

static size_t read_pipe(int fd, char *text, size_t bytes) {
    ssize_t count = read(fd, text, bytes - 1);
    text[count > 0 ? count : 0] = '\0';
    return (size_t)(count > 0 ? count : 0);
}

static void test_plain_lines_where_there_is_no_terminal(void **state) {
    int ends[2];
    char text[4096];
    tr_progress_line_t *line = NULL;
    assert_int_equal(pipe(ends), 0);
    unsetenv("OMPI_COMM_WORLD_SIZE");
    setenv("TERM", "xterm", 1);
    OK(tr_progress_create(ends[1], &line));
    /* must write nothing: the pipe would block the read below if plain did not */
    tr_progress_draw(line, &middle);
    for (int i = 0; i < 3; i++)
        tr_progress_plain(line, &middle); /* one: the next is due in seconds */
    read_pipe(ends[0], text, sizeof text);
    assert_int_equal(strncmp(text, "epoch  3/10  1234/2340  loss", 28), 0);
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    assert_null(strchr(text, '\r'));
    tr_log_set_level(TR_LOG_WARN);
    tr_progress_plain(line, &middle);
    tr_log_set_level(TR_LOG_INFO);
    tr_progress_destroy(&line);
    assert_null(line);
    close(ends[1]);
    assert_int_equal(read_pipe(ends[0], text, sizeof text), 0);
    close(ends[0]);
}

static void test_the_log_file_gets_a_line_when_one_is_due(void **state) {
    char path[] = "progress-XXXXXX", text[4096];
    tr_progress_line_t *line = NULL;
    const int fd = mkstemp(path);
    assert_true(fd >= 0);
    OK(tr_log_add_file(path));
    OK(tr_progress_create(STDERR_FILENO, &line));
    tr_progress_log(line, &middle, 60);
    assert_int_equal(read_pipe(fd, text, sizeof text), 0);
    tr_progress_log(line, &middle, 0);
    tr_progress_log(line, &middle, 60);
    read_pipe(fd, text, sizeof text);
    assert_non_null(strstr(text, " info  epoch  3/10  1234/2340  loss"));
    assert_ptr_equal(strchr(text, '\n'), text + strlen(text) - 1);
    tr_progress_destroy(&line);
    tr_log_close_files();
    close(fd);
    unlink(path);
}

static void take_line(void *self, tr_log_level_t level, const char *line) {
    ++*(int *)self;
}

static void test_a_program_that_takes_the_lines_keeps_them(void **state) {
    int ends[2], lines = 0;
    char text[4096];
    tr_progress_line_t *line = NULL;
    assert_int_equal(pipe(ends), 0);
    tr_log_set_sink(take_line, &lines);
    OK(tr_progress_create(ends[1], &line));
    tr_progress_plain(line, &middle);
    tr_progress_destroy(&line);
    close(ends[1]);
    assert_int_equal(read_pipe(ends[0], text, sizeof text), 0);
    close(ends[0]);
    TR_WARN("behind the training");
    tr_log_set_sink(NULL, NULL);
    assert_int_equal(lines, 1);
}

/* A pseudo terminal: draws, a log line between, the end. */
static void test_log_lines_stand_above_the_bar(void **state) {
    char text[4096];
    int master = posix_openpt(O_RDWR | O_NOCTTY);
    if (master < 0 || grantpt(master) != 0 || unlockpt(master) != 0) skip();
    int terminal = open(ptsname(master), O_RDWR | O_NOCTTY);
    assert_true(terminal >= 0);
    struct winsize size = {.ws_col = 90, .ws_row = 24};
    ioctl(terminal, TIOCSWINSZ, &size);
    setenv("NO_COLOR", "1", 1);
    setenv("LC_ALL", "C", 1);
    tr_progress_line_t *line = NULL;
    OK(tr_progress_create(terminal, &line));
    tr_progress_plain(line, &middle); /* nothing: this is a terminal */
    tr_progress_draw(line, &middle);
    read_pipe(master, text, sizeof text);
    assert_int_equal(text[0], '\r');
    assert_non_null(strstr(text, "epoch  3/10"));
    assert_null(strchr(text, '\n'));
    assert_int_equal(columns(text) - 1, 89); /* -1: the carriage return; one column stays free */
    tr_progress_draw(line, &middle);         /* at once: not drawn again */
    TR_WARN("the disk is nearly full");
    read_pipe(master, text, sizeof text);
    static const char expected[] = "\r\x1b[Kwarning: the disk is nearly full\r\nepoch  3/10";
    assert_memory_equal(text, expected, sizeof expected - 1);
    tr_progress_destroy(&line);
    read_pipe(master, text, sizeof text);
    assert_string_equal(text, "\r\x1b[K");
    close(terminal);
    close(master);
}

static void test_dumb_terminals_get_plain_lines(void **state) {
    setenv("TERM", "dumb", 1);
    assert_int_equal(tr_terminal_open(STDOUT_FILENO), -1);
    unsetenv("TERM");
    assert_int_equal(tr_terminal_open(STDOUT_FILENO), -1);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_all_fields_where_there_is_room),
        cmocka_unit_test(test_points_in_any_locale),
        cmocka_unit_test(test_never_wider_than_asked),
        cmocka_unit_test(test_colours_and_line_art_take_no_columns),
        cmocka_unit_test(test_columns_stay_where_they_are),
        cmocka_unit_test(test_odd_values),
        cmocka_unit_test(test_the_log_file_gets_a_line_when_one_is_due),
        cmocka_unit_test(test_plain_lines_where_there_is_no_terminal),
        cmocka_unit_test(test_a_program_that_takes_the_lines_keeps_them),
        cmocka_unit_test(test_log_lines_stand_above_the_bar),
        cmocka_unit_test(test_dumb_terminals_get_plain_lines),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
