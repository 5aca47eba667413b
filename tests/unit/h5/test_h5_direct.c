//TEST np=1
/* Reads past the page cache: what was announced comes as it stands in the file, once, whoever asks
 * and in whatever order. */
#include "../data/data_test.h"
#include "h5/h5.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../support/ok.h"

#define KIB   1024
#define MIB   (1024 * KIB)
#define BYTES (24 * MIB + 777)

static char path[512];
static unsigned char *content;
static int fd = -1; /* opened for such reads */

static int setup(void **state) {
    const char *place = getenv("TMPDIR");
    snprintf(path, sizeof path, "%s/trainer-test-XXXXXX", place ? place : "/tmp");
    int file = mkstemp(path);
    content = malloc(BYTES);
    uint32_t value = 1;
    for (size_t i = 0; i < BYTES; i++)
        content[i] = (unsigned char)((value = value * 1664525 + 1013904223) >> 24);
    if (write(file, content, BYTES) != BYTES || fsync(file)) return -1;
    close(file);
    fd = open(path, O_RDONLY | O_DIRECT);
    return 0;
}

static int teardown(void **state) {
    close(fd);
    free(content);
    return unlink(path);
}

static h5_direct_t *open_here(void) {
    h5_direct_t *d;
    if (fd < 0) skip(); /* the folder for temporary files has no such reads */
    OK(tr_h5_direct_open(&d));
    return d;
}

/* Reads the range in parts; returns how many bytes came before the first that did not. */
static size_t take(h5_direct_t *d, uint64_t offset, size_t bytes, size_t part) {
    unsigned char *room = malloc(part);
    size_t done = 0, got = 1;
    for (; done < bytes && got; done += got) {
        got = tr_h5_direct_read(d, fd, room, part < bytes - done ? part : bytes - done,
                                offset + done);
        assert_memory_equal(room, content + offset + done, got);
    }
    free(room);
    return done;
}

static void ranges_of_all_kinds(void **state) {
    static const struct {
        uint64_t offset;
        size_t bytes, part;
    } cases[] = {
        {0, 64 * KIB, 64 * KIB},
        {1, 64 * KIB, MIB},
        {4095, MIB, MIB},
        {4096, MIB, 1000},
        {12345, MIB + 1, 70000},
        {MIB - 1, 5 * MIB + 3, 5 * MIB + 3},
        {777, 3 * MIB, 4096},
        {BYTES - 70000, 70000, 1},
        {BYTES - 2 * MIB - 9, 2 * MIB + 9, 3 * MIB},
    };
    h5_direct_t *d = open_here();
    for (size_t i = 0; i < TR_COUNT(cases); i++) {
        assert_true(tr_h5_direct_expect(d, fd, cases[i].offset, cases[i].bytes));
        assert_int_equal(take(d, cases[i].offset, cases[i].bytes, cases[i].part), cases[i].bytes);
        assert_int_equal(take(d, cases[i].offset, 1, 1), 0); /* each byte once */
    }
    assert_int_equal(take(d, 0, 10, 10), 0); /* never announced */
    /* too little for a request of its own */
    assert_false(tr_h5_direct_expect(d, fd, 0, 64 * KIB - 1));
    tr_h5_direct_close(&d);
    assert_null(d);
}

/* Of another file, or beyond what was announced, nothing is handed out. */
static void only_what_was_announced(void **state) {
    char byte;
    h5_direct_t *d = open_here();
    assert_true(tr_h5_direct_expect(d, fd, MIB, 100 * KIB));
    assert_int_equal(tr_h5_direct_read(d, fd + 1, &byte, 1, MIB), 0);
    assert_int_equal(take(d, MIB - 1, 1, 1), 0);
    assert_int_equal(take(d, MIB + 100 * KIB, 1, 1), 0);
    assert_int_equal(take(d, MIB, 200 * KIB, 200 * KIB), 100 * KIB);
    tr_h5_direct_close(&d);
}

/* Ranges that nobody comes for hold the buffers only for a while. */
static void what_nobody_takes_is_given_up(void **state) {
    h5_direct_t *d = open_here();
    for (int i = 0; i < 23; i++) assert_true(tr_h5_direct_expect(d, fd, (uint64_t)i * MIB, MIB));
    size_t came = 0;
    for (int round = 0; round < 40; round++)
        for (int i = 12; i < 23; i++) {
            came = take(d, (uint64_t)i * MIB, MIB, MIB);
            assert_true(tr_h5_direct_expect(d, fd, (uint64_t)i * MIB, MIB));
        }
    assert_int_equal(came, MIB);
    for (int i = 0; i < 5000; i++)
        assert_true(tr_h5_direct_expect(d, fd, (uint64_t)(i % 300) * 64 * KIB, 64 * KIB));
    tr_h5_direct_close(&d); /* with most of them on their way */
}

/* A reader that is late finds what was fetched for it, though another that was announced later
 * could not wait for that. */
static void a_reader_that_is_late(void **state) {
    h5_direct_t *d = open_here();
    for (int i = 0; i < 23; i++) assert_true(tr_h5_direct_expect(d, fd, (uint64_t)i * MIB, MIB));
    for (int i = 12; i < 23; i++) assert_int_equal(take(d, (uint64_t)i * MIB, MIB, MIB), MIB);
    for (int i = 0; i < 12; i++) assert_int_equal(take(d, (uint64_t)i * MIB, MIB, MIB), MIB);
    tr_h5_direct_close(&d);
}

/* The rest of a range that is done with makes room, but not that of another. */
static void what_is_done_with_is_forgotten(void **state) {
    h5_direct_t *d = open_here();
    for (int i = 0; i < 2; i++) assert_true(tr_h5_direct_expect(d, fd, MIB, 3 * MIB));
    assert_true(tr_h5_direct_expect(d, fd, 8 * MIB, MIB));
    for (int i = 0; i < 3; i++) assert_int_equal(take(d, (uint64_t)(i + 1) * MIB, KIB, KIB), KIB);
    tr_h5_direct_forget(d, fd, MIB, 3 * MIB);
    assert_int_equal(take(d, MIB, 3 * MIB, MIB), 3 * MIB); /* the second time it was announced */
    assert_int_equal(take(d, MIB, KIB, KIB), 0);
    tr_h5_direct_forget(d, fd, 7 * MIB, 2 * MIB);
    assert_int_equal(take(d, 8 * MIB, MIB, MIB), MIB);
    tr_h5_direct_close(&d);
}

static void a_file_that_refuses(void **state) {
    char byte;
    h5_direct_t *d = open_here();
    int closed = dup(fd);
    close(closed);
    assert_true(tr_h5_direct_expect(d, closed, 0, MIB));
    assert_int_equal(tr_h5_direct_read(d, closed, &byte, 1, 0), 0);
    while (tr_h5_direct_expect(d, closed, 0, MIB)) usleep(1000);
    assert_false(tr_h5_direct_expect(d, fd, 0, MIB));
    tr_h5_direct_close(&d);
}

/* A range that ends behind the file is none. */
static void behind_the_end(void **state) {
    h5_direct_t *d = open_here();
    assert_true(tr_h5_direct_expect(d, fd, BYTES - 70000, 70001));
    assert_int_equal(take(d, BYTES - 70000, 70001, 70001), 0);
    tr_h5_direct_close(&d);
}

typedef struct {
    h5_direct_t *direct;
    int first, step;
    size_t came;
} reader_t;

static void *read_every(void *self) {
    reader_t *r = self;
    for (int i = r->first; i < 24 * 8; i += r->step)
        r->came += take(r->direct, (uint64_t)i * 128 * KIB + 5, 128 * KIB - 5, 50 * KIB);
    return NULL;
}

static void several_readers(void **state) {
    enum { READERS = 3 };
    pthread_t thread[READERS];
    reader_t reader[READERS] = {{0}};
    size_t came = 0;
    h5_direct_t *d = open_here();
    for (int i = 0; i < 24 * 8; i++)
        assert_true(tr_h5_direct_expect(d, fd, (uint64_t)i * 128 * KIB + 5, 128 * KIB - 5));
    for (int i = 0; i < READERS; i++) {
        reader[i] = (reader_t){d, i, READERS, 0};
        assert_int_equal(pthread_create(&thread[i], NULL, read_every, &reader[i]), 0);
    }
    for (int i = 0; i < READERS; i++) {
        pthread_join(thread[i], NULL);
        came += reader[i].came;
    }
    /* Those that came before their turn are read another way: many, where the threads of a busy
     * machine run one after the other. */
    assert_in_range(came, 24 * 128 * KIB, 24 * MIB);
    tr_h5_direct_close(&d);
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(ranges_of_all_kinds),
        cmocka_unit_test(only_what_was_announced),
        cmocka_unit_test(what_nobody_takes_is_given_up),
        cmocka_unit_test(a_reader_that_is_late),
        cmocka_unit_test(what_is_done_with_is_forgotten),
        cmocka_unit_test(a_file_that_refuses),
        cmocka_unit_test(behind_the_end),
        cmocka_unit_test(several_readers),
    };
    return cmocka_run_group_tests_name("h5_direct", tests, setup, teardown);
}
