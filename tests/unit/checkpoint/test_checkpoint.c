/* Checkpoints: commit, verification, fall-back, retention; damage of every kind; writers killed at
 * any time; full disks. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../support/names.h"
#include "checkpoint/checkpoint_int.h"
#include "base/clock.h"

#define DIR_NAME "checkpoints"

static unsigned seed; /* printed where a random case fails */
static unsigned next_random(void) {
    seed = seed * 1664525u + 1013904223u;
    return seed >> 8;
}

/* -- a small model whose values tell its step -------------------------------------------------- */

typedef struct {
    float w[300], b[7];
    double m[300];
    unsigned char odd[3];
    char state[64];
    tr_named_tensor_t model[3], optimizer[1];
    tr_checkpoint_content_t content;
} sample_t;

static const tr_checkpoint_text_t texts[] = {{(char *)"config.json", (char *)"{\"n_layer\": 2}\n"}};

static const tr_checkpoint_content_t *make(sample_t *s, int64_t step) {
    for (int i = 0; i < 300; i++)
        s->w[i] = (float)(step * 1000 + i), s->m[i] = (double)step / (i + 1);
    for (int i = 0; i < 7; i++) s->b[i] = (float)-step;
    memset(s->odd, (int)step, sizeof s->odd);
    snprintf(s->state, sizeof s->state, "{\"step\": %lld}\n", (long long)step);
    s->model[0] = (tr_named_tensor_t){"conv1.weight", TR_F32, TR_SHAPE(3, 10, 10), s->w};
    s->model[1] = (tr_named_tensor_t){"odd one, %", TR_U8, TR_SHAPE(3), s->odd};
    s->model[2] = (tr_named_tensor_t){"conv1.bias", TR_F32, TR_SHAPE(7), s->b};
    s->optimizer[0] = (tr_named_tensor_t){"conv1.weight.m", TR_F64, TR_SHAPE(300), s->m};
    s->content = (tr_checkpoint_content_t){step, s->model, 3, s->optimizer, 1, s->state,
                                           NULL, texts,    1, NULL};
    return &s->content;
}

static void write_step(int64_t step) {
    sample_t s;
    OK(tr_checkpoint_write(DIR_NAME, make(&s, step), NULL));
}

static void check_tensor(const tr_safetensors_t *file, const char *name, const void *want,
                         size_t bytes) {
    char found[1 << 16];
    assert_true(bytes <= sizeof found);
    OK(tr_safetensors_read(tr_safetensors_find(file, name), 0, (int64_t)bytes, found));
    assert_memory_equal(found, want, bytes);
}

static void check_content(const tr_checkpoint_t *c, int64_t step) {
    sample_t want;
    make(&want, step);
    assert_int_equal(c->step, step);
    assert_string_equal(c->state_json, want.state);
    assert_int_equal(tr_safetensors_count(c->model), 3);
    check_tensor(c->model, "conv1.weight", want.w, sizeof want.w);
    check_tensor(c->model, "odd one, %", want.odd, sizeof want.odd);
    check_tensor(c->optimizer, "conv1.weight.m", want.m, sizeof want.m);
}

static bool exists(const char *name) {
    char path[4096];
    struct stat st;
    OK(tr_path_join(DIR_NAME, name, path));
    return lstat(path, &st) == 0;
}

static int count_entries(const char *prefix) {
    DIR *d = opendir(DIR_NAME);
    int n = 0;
    if (!d) return 0;
    for (struct dirent *e; (e = readdir(d));)
        if (strcmp(e->d_name, ".") && strcmp(e->d_name, "..") &&
            strncmp(e->d_name, prefix, strlen(prefix)) == 0)
            n++;
    closedir(d);
    return n;
}

static int fresh(void **state) {
    return tr_remove_tree(DIR_NAME) != TR_OK;
}

/* -- the ordinary ------------------------------------------------------------------------------ */

static void test_round_trip(void **state) {
    sample_t s;
    char *path = NULL;
    tr_checkpoint_t *c = NULL;
    OK(tr_checkpoint_write(DIR_NAME, make(&s, 1200), &path));
    assert_string_equal(path, DIR_NAME "/step-00001200");
    OK(tr_checkpoint_open(path, &c));
    check_content(c, 1200);
    tr_checkpoint_close(&c);
    assert_int_equal(count_entries("."), 0);
    tr_free(&path);
    s.content.optimizer_count = 0;
    s.content.state_json = NULL;
    s.content.step = 123456789; /* wider than eight digits */
    OK(tr_checkpoint_write(DIR_NAME, &s.content, NULL));
    OK(tr_checkpoint_open(DIR_NAME "/step-123456789/", &c));
    assert_null(c->optimizer);
    assert_string_equal(c->state_json, "{}");
    tr_checkpoint_close(&c);
}

static void test_same_step_again(void **state) {
    sample_t s;
    tr_checkpoint_t *c = NULL;
    write_step(5);
    make(&s, 7);
    s.content.step = 5;
    OK(tr_checkpoint_write(DIR_NAME, &s.content, NULL));
    OK(tr_checkpoint_open(DIR_NAME "/step-00000005", &c));
    assert_string_equal(c->state_json, "{\"step\": 7}\n");
    tr_checkpoint_close(&c);
    assert_int_equal(count_entries(""), 1);
}

static void test_none(void **state) {
    tr_checkpoint_t *c = (void *)1;
    OK(tr_checkpoint_open_newest(DIR_NAME, NULL, &c, NULL));
    assert_null(c);
    assert_int_equal(mkdir(DIR_NAME, 0700), 0);
    OK(tr_checkpoint_open_newest(DIR_NAME, NULL, &c, NULL));
    assert_null(c);
    OK(tr_checkpoint_retain(DIR_NAME, 1, NULL, 0));
    assert_int_equal(tr_checkpoint_open(DIR_NAME "/step-00000001", &c), TR_ERR_NOINPUT);
    /* a directory without MANIFEST */
    assert_int_equal(tr_checkpoint_open(DIR_NAME, &c), TR_ERR_NOINPUT);
}

static void cut(const char *path, int64_t bytes) {
    assert_int_equal(truncate(path, bytes), 0);
}

static void test_fall_back(void **state) {
    tr_checkpoint_t *c = NULL;
    tr_str_t skipped = {0};
    for (int step = 10; step <= 40; step += 10) write_step(step);
    cut(DIR_NAME "/step-00000040/model.safetensors", 100);
    assert_int_equal(unlink(DIR_NAME "/step-00000030/MANIFEST"), 0);
    OK(tr_checkpoint_open_newest(DIR_NAME, NULL, &c, &skipped));
    check_content(c, 20);
    tr_checkpoint_close(&c);
    const char *second = strchr(skipped.text, '\n');
    assert_true(names_in_line(skipped.text, "40 & model.safetensors & 100"));
    assert_true(second && names_in_line(second, "30 & MANIFEST") && !names_in_line(second, "40"));
    tr_str_free(&skipped);
    cut(DIR_NAME "/step-00000020/state.json", 0);
    cut(DIR_NAME "/step-00000010/MANIFEST", 0);
    assert_int_equal(tr_checkpoint_open_newest(DIR_NAME, NULL, &c, &skipped), TR_ERR_DATA);
    assert_null(c);
    assert_names(skipped.text, "10 & 20 & 30 & 40");
    assert_error_names("4");
    tr_str_free(&skipped);
}

static void test_renamed_and_mixed(void **state) {
    tr_checkpoint_t *c = NULL;
    write_step(1);
    write_step(2);
    assert_int_equal(rename(DIR_NAME "/step-00000002", DIR_NAME "/step-00000009"), 0);
    assert_int_equal(tr_checkpoint_open(DIR_NAME "/step-00000009", &c), TR_ERR_DATA);
    assert_int_equal(rename(DIR_NAME "/step-00000009", DIR_NAME "/keepsake"),
                     0); /* another name claims nothing */
    OK(tr_checkpoint_open(DIR_NAME "/keepsake", &c));
    check_content(c, 2);
    tr_checkpoint_close(&c);
    assert_int_equal(rename(DIR_NAME "/keepsake/optimizer.safetensors",
                            DIR_NAME "/step-00000001/optimizer.safetensors"),
                     0);
    assert_int_equal(tr_checkpoint_open(DIR_NAME "/step-00000001", &c), TR_ERR_DATA);
    assert_int_equal(tr_checkpoint_open(DIR_NAME "/keepsake", &c), TR_ERR_NOINPUT);
}

/* -- damage ------------------------------------------------------------------------------------ */

static void put_byte(const char *path, int64_t at, int value) {
    int fd = open(path, O_WRONLY);
    unsigned char byte = (unsigned char)value;
    assert_int_equal(pwrite(fd, &byte, 1, at), 1);
    close(fd);
}

static void must_refuse(const char *what, long long at, int value) {
    tr_checkpoint_t *c = NULL;
    tr_status_t status = tr_checkpoint_open(DIR_NAME "/step-00000003", &c);
    if (status != TR_ERR_DATA) fail_msg("%s, byte %lld, %d: status %d", what, at, value, status);
    assert_error_names("step-00000003");
}

static char *load(const char *path, int64_t *bytes) {
    char *text = NULL;
    OK(tr_read_text(path, 1 << 20, &text, bytes));
    return text;
}

static void flip_every_byte(const char *path, int64_t limit) {
    int64_t bytes = 0;
    char *text = load(path, &bytes);
    for (int64_t i = 0; i < bytes && i < limit; i++) {
        int value = (text[i] ^ (1 << next_random() % 8)) & 0xff;
        put_byte(path, i, value);
        must_refuse(path, i, value);
        put_byte(path, i, text[i]);
    }
    tr_free(&text);
}

static void test_every_byte_of_manifest_and_header(void **state) {
    tr_checkpoint_t *c = NULL;
    int64_t header = 0;
    write_step(3);
    int fd = open(DIR_NAME "/step-00000003/model.safetensors", O_RDONLY);
    assert_int_equal(pread(fd, &header, 8, 0), 8);
    close(fd);
    assert_in_range(header, 100, 1000);
    flip_every_byte(DIR_NAME "/step-00000003/MANIFEST", INT64_MAX);
    flip_every_byte(DIR_NAME "/step-00000003/state.json", INT64_MAX);
    flip_every_byte(DIR_NAME "/step-00000003/model.safetensors", 8 + header);
    int64_t bytes = 0;
    char *text = load(DIR_NAME "/step-00000003/model.safetensors", &bytes);
    assert_int_equal(text[8 + header - 1],
                     ' '); /* padding: other white space would mean the same to a JSON parser */
    put_byte(DIR_NAME "/step-00000003/model.safetensors", 8 + header - 1, '\t');
    must_refuse("padding", 8 + header - 1, '\t');
    put_byte(DIR_NAME "/step-00000003/model.safetensors", 8 + header - 1, ' ');
    tr_free(&text);
    OK(tr_checkpoint_open(DIR_NAME "/step-00000003", &c)); /* all was put back */
    tr_checkpoint_close(&c);
}

/* Of three parts of model.safetensors, the first has the first tensor, and the last the others. */
static void test_parts(void **state) {
    const char *path = DIR_NAME "/step-00000003/model.safetensors";
    static const struct {
        int64_t before_end;
        int part;
    } damages[] = {{7 * 4 + 3 + 300 * 4, 0}, {7 * 4 + 3 + 1, 0}, {7 * 4 + 3, 2}, {1, 2}};
    int64_t bytes = 0;
    write_step(3);
    char *text = load(path, &bytes);
    for (size_t i = 0; i < TR_COUNT(damages); i++) {
        const int64_t at = bytes - damages[i].before_end;
        put_byte(path, at, ~text[at] & 0xff);
        for (int part = 0; part <= 3; part++) {
            tr_checkpoint_t *c = NULL;
            assert_int_equal(tr_checkpoint_open_part(DIR_NAME "/step-00000003", part, 3, &c),
                             part == damages[i].part ? TR_ERR_DATA : TR_OK);
            tr_checkpoint_close(&c);
        }
        put_byte(path, at, text[at]);
    }
    tr_free(&text);
}

static void test_random_flips_and_cuts(void **state) {
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json",
                                        "MANIFEST"};
    write_step(3);
    for (int round = 0; round < 400; round++) {
        char path[256];
        int64_t bytes = 0;
        snprintf(path, sizeof path, DIR_NAME "/step-00000003/%s", names[round % 4]);
        char *text = load(path, &bytes);
        int64_t at = next_random() % (unsigned)bytes;
        if (round % 3 == 0)
            cut(path, at);
        else
            put_byte(path, at, (text[at] ^ (int)(1 + next_random() % 255)) & 0xff);
        must_refuse(path, at, round);
        int fd = open(path, O_WRONLY | O_TRUNC);
        assert_int_equal(write(fd, text, (size_t)bytes), bytes);
        close(fd);
        tr_free(&text);
    }
    int fd = open(DIR_NAME "/step-00000003/model.safetensors", O_WRONLY | O_APPEND);
    assert_int_equal(write(fd, "", 1), 1);
    close(fd);
    must_refuse("one byte more", 0, 0);
}

/* With a right checksum on its last line, so that the parser itself is what refuses. */
static tr_status_t parse_body(const char *body) {
    char text[1024];
    tr_manifest_t m = {0};
    unsigned long long checksum = tr_checksum_bytes(body, strlen(body));
    int length = snprintf(text, sizeof text, "%smanifest %016llx\n", body, checksum);
    tr_status_t status = tr_manifest_parse(text, (size_t)length, "MANIFEST", &m);
    tr_manifest_free(&m);
    return status;
}

#define TOP       "trainer-checkpoint 1\nstep 7\n"
#define FILE_LINE "file model.safetensors 12 0123456789abcdef\n"
#define TENSOR    TOP FILE_LINE "tensor 0123456789abcdef "

static void test_manifest_parser(void **state) {
    static const char *const good[] = {
        TOP,
        TOP FILE_LINE,
        TENSOR "f32 2x3 0 a%20b\n",
        TENSOR "bf16 scalar 9 \xc3\xbc\n" FILE_LINE,
    };
    static const char *const bad[] = {
        "",
        "trainer-checkpoint 2\nstep 7\n",
        "trainer-checkpoint 1\n",
        "trainer-checkpoint 1\nstep  7\n",
        "trainer-checkpoint 1\nstep -7\n",
        "trainer-checkpoint 1\nstep +7\n",
        "trainer-checkpoint 1\nstep 07\n",
        "trainer-checkpoint 1\nstep 7 \n",
        "trainer-checkpoint 1\nstep 99999999999999999999\n",
        "trainer-checkpoint 1\nstep 7",
        TOP "\n",
        TOP "files model.safetensors 12 0123456789abcdef\n",
        TOP "file ../model.safetensors 12 0123456789abcdef\n",
        TOP "file .hidden 12 0123456789abcdef\n",
        TOP "file  12 0123456789abcdef\n",
        TOP "file m 12 0123456789ABCDEF\n",
        TOP "file m 12 0123456789abcde\n",
        TOP "file m 12 0x23456789abcdef\n",
        TOP "file m -1 0123456789abcdef\n",
        TOP "file m 12 0123456789abcdef",
        TOP "tensor 0123456789abcdef f32 2x3 0 a\n",
        TENSOR "f33 2x3 0 a\n",
        TENSOR "f32 2x 0 a\n",
        TENSOR "f32 2xx3 0 a\n",
        TENSOR "f32 1x1x1x1x1x1x1 0 a\n",
        TENSOR "f32 9223372036854775807x2 0 a\n",
        TENSOR "f32 02x3 0 a\n",
        TENSOR "f32 2x3 0 \n",
        TENSOR "f32 2x3 0 a b\n",
        TENSOR "f32 2x3 0 a%\n",
        TENSOR "f32 2x3 0 a%0\n",
        TENSOR "f32 2x3 0 a%00\n",
        TENSOR "f32 2x3 0 a%61\n",
        TENSOR "f32 2x3 0 a%2F\n",
    };
    for (size_t i = 0; i < sizeof good / sizeof *good; i++)
        if (parse_body(good[i]) != TR_OK)
            fail_msg("refused: %s: %s", good[i], tr_error_last()->message);
    for (size_t i = 0; i < sizeof bad / sizeof *bad; i++)
        if (parse_body(bad[i]) != TR_ERR_DATA) fail_msg("accepted: %s", bad[i]);
}

/* -- retention, leftovers, links --------------------------------------------------------------- */

static void test_retention(void **state) {
    const char *keep[] = {"best", DIR_NAME "/step-00000002"};
    for (int step = 1; step <= 6; step++) write_step(step);
    OK(tr_checkpoint_link(DIR_NAME, "best", 1));
    OK(tr_checkpoint_link(DIR_NAME, "best", 3)); /* replaces */
    assert_int_equal(mkdir(DIR_NAME "/my-notes", 0700), 0);
    OK(tr_checkpoint_retain(DIR_NAME, 0, keep, 2));
    assert_int_equal(count_entries("step-"), 6);
    OK(tr_checkpoint_retain(DIR_NAME, 2, keep, 2));
    assert_int_equal(count_entries("step-"), 4);
    assert_true(exists("step-00000006") && exists("step-00000005") && exists("step-00000003") &&
                exists("step-00000002"));
    assert_true(exists("my-notes") && exists("best"));
    tr_checkpoint_t *c = NULL;
    OK(tr_checkpoint_open(DIR_NAME "/best", &c));
    check_content(c, 3);
    assert_non_null(strstr(c->path, "step-00000003"));
    tr_checkpoint_close(&c);
}

/* A run goes on from step 3: what was passed over is not taken for the newest again, nor keeps
 * retention from what will be written. */
static void test_set_aside(void **state) {
    for (int step = 1; step <= 5; step++) write_step(step);
    OK(tr_checkpoint_link(DIR_NAME, "best", 4));
    assert_int_equal(mkdir(DIR_NAME "/skipped-step-00000005", 0700), 0); /* another time */
    OK(tr_checkpoint_set_aside(DIR_NAME, 3));
    OK(tr_checkpoint_set_aside(DIR_NAME, 3));
    assert_int_equal(count_entries("step-"), 3);
    assert_true(exists("skipped-step-00000004/MANIFEST") &&
                exists("skipped-step-00000005/MANIFEST"));
    write_step(4);
    OK(tr_checkpoint_retain(DIR_NAME, 1, NULL, 0));
    assert_true(exists("step-00000004") && count_entries("step-") == 1 &&
                count_entries("skipped-") == 2);
    char best[64] = "";
    assert_true(readlink(DIR_NAME "/best", best, sizeof best - 1) > 0);
    assert_string_equal(best, "skipped-step-00000004"); /* not another of its step */
}

static pid_t dead_pid(void) {
    pid_t pid = fork();
    if (pid == 0) _exit(0);
    waitpid(pid, NULL, 0);
    return pid;
}

static void test_leftovers(void **state) {
    char dead[128], alive[128], own[128];
    write_step(1);
    snprintf(own, sizeof own, DIR_NAME "/.tmp-step-00000002-%d",
             getpid()); /* of one that had our number: in containers all have */
    assert_int_equal(mkdir(own, 0700), 0);
    snprintf(dead, sizeof dead, DIR_NAME "/.tmp-step-00000002-%d", dead_pid());
    snprintf(alive, sizeof alive, DIR_NAME "/.tmp-step-00000002-%d", getppid());
    assert_int_equal(mkdir(dead, 0700), 0);
    assert_int_equal(mkdir(alive, 0700), 0);
    strcat(dead, "/model.safetensors");
    close(open(dead, O_CREAT | O_WRONLY, 0600));
    assert_int_equal(symlink("/etc/passwd", DIR_NAME "/.del-odd"), 0);
    OK(tr_checkpoint_retain(DIR_NAME, 3, NULL, 0));
    assert_int_equal(count_entries(".tmp-"), 1);
    assert_int_equal(access(alive, F_OK), 0);
    OK(tr_checkpoint_clean(DIR_NAME, true));
    assert_int_equal(count_entries("."), 0);
    assert_int_equal(access("/etc/passwd", F_OK), 0);
    assert_true(exists("step-00000001"));
}

/* -- what can happen to a writer --------------------------------------------------------------- */

/* Says on `fd` when a checkpoint is committed. */
static void write_until_killed(int64_t step, int fd) {
    sample_t s;
    for (int64_t end = step + 1000; step < end; step++)
        for (int twice = 0; twice < 2; twice++) /* replacing is a commit too */
            if (tr_checkpoint_write(DIR_NAME, make(&s, step), NULL) ||
                tr_checkpoint_retain(DIR_NAME, 2, NULL, 0) || write(fd, "", 1) != 1)
                _exit(1);
    _exit(0);
}

/* Starts a writer at `step`, and kills it after up to four commits and a random part of another. */
static void kill_a_writer(int64_t step, unsigned part_usec) {
    int ends[2];
    char byte;
    assert_int_equal(pipe(ends), 0);
    pid_t pid = fork();
    if (pid == 0) write_until_killed(step, ends[1]);
    for (unsigned commits = next_random() % 5; commits > 0; commits--)
        assert_int_equal(read(ends[0], &byte, 1), 1);
    usleep(next_random() % part_usec);
    kill(pid, SIGKILL);
    waitpid(pid, NULL, 0);
    close(ends[0]);
    close(ends[1]);
}

static void test_kill_at_any_time(void **state) {
    tr_checkpoint_t *c = NULL;
    int64_t last = 1;
    unsigned start = seed;
    int round = 0, advanced = 0;
    double begin = tr_clock_sec();
    write_step(last);
    unsigned part_usec = (unsigned)((tr_clock_sec() - begin) * 1.5e6) + 1000;
    /* Fewer rounds on a slow disk, but as many as it takes to see both ends. */
    for (; round < 100 && (advanced == 0 || advanced == round || tr_clock_sec() - begin < 20);
         round++) {
        kill_a_writer(last, part_usec);
        tr_status_t status = tr_checkpoint_open_newest(DIR_NAME, NULL, &c, NULL);
        if (status != TR_OK || !c || c->step < last)
            fail_msg("seed %u, round %d: %s", start, round, tr_error_last()->message);
        check_content(c, c->step);
        advanced += c->step > last;
        last = c->step;
        tr_checkpoint_close(&c);
    }
    assert_true(advanced > 0 &&
                advanced < round); /* else the kills came too early or too late to mean anything */
    OK(tr_checkpoint_clean(DIR_NAME, false));
    assert_int_equal(count_entries("."), 0);
}

static void write_limited(rlim_t file_bytes) {
    sample_t s;
    struct rlimit limit = {file_bytes, file_bytes};
    signal(SIGXFSZ, SIG_IGN);
    setrlimit(RLIMIT_FSIZE, &limit);
    tr_status_t status = tr_checkpoint_write(DIR_NAME, make(&s, 2), NULL);
    const char *said = tr_error_last()->message;
    _exit(status == TR_ERR_IO && names_all(said, "2") ? 0 : 1);
}

static void test_writes_that_fail(void **state) {
    tr_checkpoint_t *c = NULL;
    write_step(1);
    for (rlim_t bytes = 0; bytes < 2400; bytes += 97) {
        int status = 0;
        pid_t pid = fork();
        if (pid == 0) write_limited(bytes);
        waitpid(pid, &status, 0);
        if (!WIFEXITED(status) || WEXITSTATUS(status))
            fail_msg("limit %lld: status %d", (long long)bytes, status);
        assert_int_equal(count_entries(""), 1); /* nothing committed, nothing left */
    }
    OK(tr_checkpoint_open_newest(DIR_NAME, NULL, &c, NULL));
    check_content(c, 1);
    tr_checkpoint_close(&c);
}

static void test_no_space(void **state) {
    sample_t s;
    make(&s, 4);
    s.model[0].shape =
        TR_SHAPE((int64_t)1 << 50); /* more than any disk: refused before its data are touched */
    assert_int_equal(tr_checkpoint_write(DIR_NAME, &s.content, NULL), TR_ERR_IO);
    assert_error_names(DIR_NAME);
    assert_int_equal(count_entries(""), 0);
}

static void test_places_that_cannot_be_written(void **state) {
    sample_t s;
    make(&s, 1);
    close(open(DIR_NAME, O_CREAT | O_WRONLY, 0600)); /* a file where the folder should be */
    assert_int_not_equal(tr_checkpoint_write(DIR_NAME, &s.content, NULL), TR_OK);
    assert_int_equal(unlink(DIR_NAME), 0);
    if (geteuid() == 0) return; /* root may write anywhere */
    assert_int_equal(mkdir(DIR_NAME, 0500), 0);
    assert_int_equal(tr_checkpoint_write(DIR_NAME, &s.content, NULL), TR_ERR_PERMISSION);
    chmod(DIR_NAME, 0700);
}

/* In memory where that is possible: what is tested is the order of what the kernel is told, and a
 * slow disk only costs time. */
static char place[] = "/dev/shm/trainer-test-XXXXXX";

static int setup(void **state) {
    if (!mkdtemp(place)) place[0] = '\0';
    return place[0] && chdir(place) != 0;
}

static int teardown(void **state) {
    tr_status_t removed = tr_remove_tree(DIR_NAME);
    if (place[0] && (chdir("/") != 0 || rmdir(place) != 0)) return 1;
    return removed != TR_OK || tr_mem_stats().live != 0;
}

#define TEST(f) cmocka_unit_test_setup(f, fresh)

int main(int argc, char **argv) {
    seed = argc > 1 ? (unsigned)strtoul(argv[1], NULL, 10) : (unsigned)getpid();
    const struct CMUnitTest tests[] = {
        TEST(test_round_trip),
        TEST(test_same_step_again),
        TEST(test_none),
        TEST(test_fall_back),
        TEST(test_renamed_and_mixed),
        TEST(test_every_byte_of_manifest_and_header),
        TEST(test_parts),
        TEST(test_random_flips_and_cuts),
        TEST(test_manifest_parser),
        TEST(test_retention),
        TEST(test_set_aside),
        TEST(test_leftovers),
        TEST(test_kill_at_any_time),
        TEST(test_writes_that_fail),
        TEST(test_no_space),
        TEST(test_places_that_cannot_be_written),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
