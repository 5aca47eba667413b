/* Files: reading of one that shrinks, new files in the place of links, and what is said of a disk
 * that is full in another way. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../../support/names.h"
#include "base/file.h"
#include "base/mem.h"

static void put(const char *path, const char *text) {
    const int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    assert_int_equal(write(fd, text, strlen(text)), strlen(text));
    close(fd);
}

static void a_read_beyond_the_end(void **state) {
    char out[16];
    put("short", "12345678");
    const int fd = open("short", O_RDONLY);
    OK(tr_read_at(fd, "short", 2, 6, out));
    assert_memory_equal(out, "345678", 6);
    assert_int_equal(tr_read_at(fd, "short", 2, 7, out), TR_ERR_DATA);
    assert_error_names("short & 8 & 1");
    close(fd);
    const int folder = open(".", O_RDONLY);
    assert_int_equal(tr_read_at(folder, "folder", 0, 1, out), TR_ERR_IO);
    close(folder);
}

typedef struct {
    char text[64];
    size_t longest, lines, most;
} lines_t;

static bool lines_take(void *self, const char *text, size_t bytes) {
    lines_t *lines = self;
    assert_int_equal(text[bytes], 0);
    if (bytes > lines->longest) lines->longest = bytes;
    if (strlen(lines->text) + bytes < sizeof lines->text) strcat(strcat(lines->text, text), "|");
    return ++lines->lines < lines->most;
}

static void each_line_of_a_file(void **state) {
    static char longest[1 << 20];
    lines_t lines = {.most = 100};
    OK(tr_each_line("absent", lines_take, &lines));
    put("lines", "");
    OK(tr_each_line("lines", lines_take, &lines));
    assert_int_equal(lines.lines, 0);
    put("lines", "one\n\nthree\nhalf");
    OK(tr_each_line("lines", lines_take, &lines));
    assert_string_equal(lines.text, "one\n|\n|three\n|half|");
    lines = (lines_t){.most = 2};
    OK(tr_each_line("lines", lines_take, &lines));
    assert_string_equal(lines.text, "one\n|\n|");
    /* the longest line, after one that moves it in the buffer, and one that is too long */
    memset(longest, 'x', sizeof longest - 1);
    for (int extra = 0; extra < 2; extra++) {
        FILE *file = fopen("lines", "w");
        fprintf(file, "first\n%.*s%s\nlast\n", (int)sizeof longest - 2, longest, extra ? "xx" : "");
        fclose(file);
        lines = (lines_t){.most = 100};
        assert_int_equal(tr_each_line("lines", lines_take, &lines), extra ? TR_ERR_DATA : TR_OK);
        assert_string_equal(lines.text, extra ? "first\n|" : "first\n|last\n|");
        if (extra) assert_error_names("lines & byte 6 & 1048576");
        if (!extra) assert_int_equal(lines.longest, (1 << 20) - 1);
    }
    assert_int_equal(tr_each_line(".", lines_take, &lines), TR_ERR_DATA);
}

static void each_line_from_the_last_to_the_first(void **state) {
    static char longest[1 << 20];
    lines_t lines = {.most = 100};
    OK(tr_each_line_back("absent", lines_take, &lines));
    put("lines", "");
    OK(tr_each_line_back("lines", lines_take, &lines));
    assert_int_equal(lines.lines, 0);
    put("lines", "one\n\nthree\nhalf");
    OK(tr_each_line_back("lines", lines_take, &lines));
    assert_string_equal(lines.text, "half|three\n|\n|one\n|");
    lines = (lines_t){.most = 2};
    OK(tr_each_line_back("lines", lines_take, &lines));
    assert_string_equal(lines.text, "half|three\n|");
    /* lines over several blocks, the longest, and one that is too long */
    memset(longest, 'x', sizeof longest - 1);
    for (int extra = 0; extra < 2; extra++) {
        FILE *file = fopen("lines", "w");
        fprintf(file, "first\n%.*s\n%.*s%s\nlast\n", 1 << 17, longest, (int)sizeof longest - 2,
                longest, extra ? "xx" : "");
        fclose(file);
        lines = (lines_t){.most = 100};
        assert_int_equal(tr_each_line_back("lines", lines_take, &lines),
                         extra ? TR_ERR_DATA : TR_OK);
        assert_string_equal(lines.text, extra ? "last\n|" : "last\n|first\n|");
        if (extra) assert_error_names("lines & 1048576");
        if (!extra) assert_int_equal(lines.longest, (1 << 20) - 1);
    }
    assert_int_equal(tr_each_line_back(".", lines_take, &lines), TR_ERR_DATA);
}

static void a_link_is_replaced_and_not_followed(void **state) {
    char *text = NULL;
    int64_t bytes = 0;
    put("victim", "kept");
    for (int i = 0; i < 2; i++) { /* a link to a file, then the file that took its place */
        if (i == 0) assert_int_equal(symlink("victim", "new"), 0);
        const int fd = tr_create_file("new");
        assert_true(fd >= 0);
        assert_int_equal(write(fd, "x", 1), 1);
        close(fd);
        OK(tr_read_text("new", 100, &text, &bytes));
        assert_string_equal(text, "x");
        tr_free(&text);
    }
    OK(tr_read_text("victim", 100, &text, &bytes));
    assert_string_equal(text, "kept");
    tr_free(&text);
    assert_int_equal(tr_create_file("absent/new"), -1);
    assert_int_equal(errno, ENOENT);
}

static void assert_content(const char *path, const char *text) {
    char *found = NULL;
    int64_t bytes = 0;
    OK(tr_read_text(path, 100, &found, &bytes));
    assert_string_equal(found, text);
    tr_free(&found);
}

static void a_file_is_replaced_whole(void **state) {
    static const unsigned ways[] = {0, TR_REPLACE_LINKED, TR_REPLACE_DURABLE,
                                    TR_REPLACE_DURABLE | TR_REPLACE_LINKED};
    struct stat found;
    tr_entries_t left = {0};
    for (size_t i = 0; i < sizeof ways / sizeof *ways; i++) {
        const bool is_followed = ways[i] & TR_REPLACE_LINKED;
        assert_int_equal(mkdir("in", 0777), 0);
        put("in/file", "old");
        assert_int_equal(symlink("file", "in/link"), 0);
        assert_int_equal(symlink("nowhere", "in/loose"), 0);
        OK(tr_replace_file("in/file", "new", 3, ways[i]));
        assert_content("in/file", "new");
        OK(tr_replace_file("in/link", "by link", 7, ways[i]));
        assert_content("in/link", "by link");
        assert_content("in/file", is_followed ? "by link" : "new");
        assert_int_equal(lstat("in/link", &found), 0);
        assert_int_equal(!!S_ISLNK(found.st_mode), is_followed);
        OK(tr_replace_file("in/loose", "", 0, ways[i]));
        assert_content("in/loose", "");
        /* what fails leaves the old one, and no other */
        assert_int_equal(tr_replace_file("in", "x", 1, ways[i]), TR_ERR_IO);
        assert_error_names("in");
        assert_int_equal(tr_replace_file("absent/file", "x", 1, ways[i]), TR_ERR_NOINPUT);
        assert_error_names("absent/file");
        OK(tr_entries_read("in", &left));
        assert_int_equal(left.count, 3);
        tr_entries_free(&left);
        OK(tr_remove_tree("in"));
        OK(tr_entries_read(".", &left));
        for (int k = 0; k < left.count; k++) assert_null(strstr(left.entry[k]->d_name, ".tmp-"));
        tr_entries_free(&left);
    }
}

static void what_killed_processes_left_is_removed(void **state) {
    static const char *const names[] = {"left/f.tmp-node-17", "left/f.tmp-node-18",
                                        "left/g.tmp-node-17", "left/f.tmp"};
    const time_t then = time(NULL) - 25 * 3600;
    const struct timespec old[2] = {{.tv_sec = then}, {.tv_sec = then}};
    assert_int_equal(mkdir("left", 0777), 0);
    for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
        put(names[i], "part");
        if (i != 1) assert_int_equal(utimensat(AT_FDCWD, names[i], old, 0), 0);
    }
    OK(tr_replace_file("left/f", "new", 3, 0));
    assert_int_equal(access(names[0], F_OK), -1);
    for (size_t i = 1; i < sizeof names / sizeof *names; i++)
        assert_int_equal(access(names[i], F_OK), 0); /* young, or of another file */
    OK(tr_remove_tree("left"));
}

static void a_limit_of_file_sizes_is_named(void **state) {
    const struct rlimit small = {4096, 4096};
    const pid_t child = fork();
    if (child == 0) {
        setrlimit(RLIMIT_FSIZE, &small);
        tr_io_fail("write", "big", EFBIG);
        _exit(names_all(tr_error_last()->message, "big & 4096 & ulimit -f") ? 0 : 1);
    }
    int status = -1;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    assert_int_equal(tr_io_fail("write", "big", ENOSPC), TR_ERR_IO);
    assert_false(names_all(tr_error_last()->message, "ulimit -f"));
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_read_beyond_the_end),
        cmocka_unit_test(each_line_of_a_file),
        cmocka_unit_test(each_line_from_the_last_to_the_first),
        cmocka_unit_test(a_link_is_replaced_and_not_followed),
        cmocka_unit_test(a_file_is_replaced_whole),
        cmocka_unit_test(what_killed_processes_left_is_removed),
        cmocka_unit_test(a_limit_of_file_sizes_is_named),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
