/* A checkpoint that several ranks write has the bytes of one that a single rank writes; a part that is missing, failed
 * or other than it was written leaves no checkpoint. Here the ranks write one after the other. */
#include <stdarg.h>
#include <stddef.h>
#include <setjmp.h>
#include <stdint.h>
#include <cmocka.h>
#include "../../support/ok.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "checkpoint/checkpoint_int.h"

#define DIR_NAME "checkpoints"
enum { RANKS = 4, WEIGHTS = 30, PIECES = 7 };

static float weights[WEIGHTS], moments[WEIGHTS];
static const tr_named_tensor_t whole_model[] = {{"w", TR_F32, TR_SHAPE(5, 4), weights},
                                                {"b", TR_F32, TR_SHAPE(10), weights + 20}},
                               whole_optimizer[] = {{"w.m", TR_F32, TR_SHAPE(30), moments}};
static const tr_named_tensor_t model[] = {{"w", TR_F32, TR_SHAPE(5, 4), NULL},
                                          {"b", TR_F32, TR_SHAPE(10), NULL}},
                               optimizer[] = {{"w.m", TR_F32, TR_SHAPE(30), NULL}};
/* Parts of unequal sizes; rank 3 has none. */
static const tr_checkpoint_piece_t all[PIECES] = {
    {0, TR_PIECE_MODEL, 0, 4, weights},           {2, TR_PIECE_MODEL, 4, 60, weights + 1},
    {1, TR_PIECE_MODEL, 64, 16, weights + 16},    {1, TR_PIECE_MODEL, 80, 40, weights + 20},
    {1, TR_PIECE_OPTIMIZER, 0, 8, moments},       {0, TR_PIECE_OPTIMIZER, 8, 12, moments + 2},
    {2, TR_PIECE_OPTIMIZER, 20, 100, moments + 5}};

static tr_checkpoint_part_t told[RANKS], parts[RANKS];
static int lost; /* a rank whose report never comes; 0: none */

static tr_status_t exchange(void *self, tr_checkpoint_part_t *all_parts) {
    const int rank = *(const int *)self;
    assert_ptr_equal(all_parts, parts); /* nothing is allocated that could be missing here */
    if (rank > 0) {
        told[rank] = parts[rank];
        return TR_OK;
    }
    memcpy(parts + 1, told + 1, (RANKS - 1) * sizeof *parts);
    return lost ? TR_FAIL(TR_ERR_RETRY, "rank %d ended before its work was done", lost) : TR_OK;
}

static tr_checkpoint_content_t content(tr_checkpoint_sharing_t *sharing) {
    return (tr_checkpoint_content_t){.step = 7,
                                     .model = sharing ? model : whole_model,
                                     .model_count = 2,
                                     .optimizer = sharing ? optimizer : whole_optimizer,
                                     .optimizer_count = 1,
                                     .state_json = "{}",
                                     .metadata = "{\"format\":\"pt\"}",
                                     .sharing = sharing};
}

/* All ranks write `pieces`. skips: a rank that does not come to it. */
static tr_status_t write_shared(const tr_checkpoint_piece_t *pieces, int skips) {
    static int number = 0;
    int rank = 0;
    tr_checkpoint_sharing_t sharing = {.ranks = RANKS,
                                       .pieces = pieces,
                                       .piece_count = PIECES,
                                       .parts = parts,
                                       .exchange = exchange,
                                       .self = &rank};
    tr_checkpoint_content_t c = content(&sharing);
    OK(tr_checkpoint_attempt(&c, ++number, &sharing.attempt));
    mkdir(DIR_NAME, 0777);
    memset(told, 0, sizeof told);
    for (rank = 1; rank < RANKS; rank++) {
        sharing.rank = rank;
        c.metadata = NULL; /* only rank 0 has it */
        if (rank != skips && tr_checkpoint_write_part(DIR_NAME, &c) != TR_OK)
            assert_int_equal(told[rank].status, tr_error_last()->code);
    }
    sharing.rank = rank = 0;
    c.metadata = "{\"format\":\"pt\"}";
    return tr_checkpoint_write(DIR_NAME, &c, NULL);
}

static int64_t read_file(const char *name, char *to, size_t room) {
    char path[4096];
    snprintf(path, sizeof path, DIR_NAME "/step-00000007/%s", name);
    const int fd = open(path, O_RDONLY);
    const ssize_t n = fd < 0 ? -1 : read(fd, to, room);
    if (fd >= 0) close(fd);
    return n;
}

/* Only `left` entries: no folder of an attempt stays. */
static void check_left(int left) {
    tr_entries_t entries;
    OK(tr_entries_read(DIR_NAME, &entries));
    assert_int_equal(entries.count, left);
    tr_entries_free(&entries);
}

static void test_bytes_of_one_rank(void **state) {
    static const char *const names[] = {"model.safetensors", "optimizer.safetensors", "state.json",
                                        "MANIFEST"};
    static char one[4][4096], shared[4][4096];
    int64_t length[4];
    tr_checkpoint_content_t c = content(NULL);
    OK(tr_checkpoint_write(DIR_NAME, &c, NULL));
    for (int i = 0; i < 4; i++) length[i] = read_file(names[i], one[i], sizeof *one);
    OK(tr_remove_tree(DIR_NAME));
    OK(write_shared(all, 0));
    for (int i = 0; i < 4; i++) {
        assert_true(length[i] > 0);
        assert_int_equal(read_file(names[i], shared[i], sizeof *shared), length[i]);
        assert_memory_equal(one[i], shared[i], length[i]);
    }
    check_left(1);
    /* again, of the same step */
    OK(write_shared(all, 0));
    check_left(1);
}

static void test_parts_that_are_missing(void **state) {
    OK(write_shared(all, 0));
    /* a rank writes elsewhere, as on a file system that is not shared: zeros are no tensor */
    assert_int_equal(write_shared(all, 2) == TR_OK, false);
    /* a piece that nobody writes, and one that two ranks write */
    tr_checkpoint_piece_t pieces[PIECES];
    memcpy(pieces, all, sizeof all);
    pieces[2].bytes = 12;
    assert_int_equal(write_shared(pieces, 0), TR_ERR_INTERNAL);
    memcpy(pieces, all, sizeof all);
    pieces[3].offset = 76, pieces[3].bytes = 44;
    assert_int_equal(write_shared(pieces, 0), TR_ERR_INTERNAL);
    lost = 3;
    assert_int_equal(write_shared(all, 0), TR_ERR_RETRY);
    lost = 0;
    tr_checkpoint_t *c = NULL;
    OK(tr_checkpoint_open(DIR_NAME "/step-00000007", &c));
    tr_checkpoint_close(&c);
    check_left(1);
}

/* What a rank has found when it wrote is not what is there. */
static tr_status_t exchange_changed(void *self, tr_checkpoint_part_t *all_parts) {
    const int rank = *(const int *)self;
    if (rank == 1) parts[1].checksum[TR_PIECE_OPTIMIZER] ^= 1;
    return exchange(self, all_parts);
}

static void test_other_bytes(void **state) {
    int rank = 1;
    tr_checkpoint_sharing_t sharing = {.ranks = RANKS,
                                       .pieces = all,
                                       .piece_count = PIECES,
                                       .parts = parts,
                                       .exchange = exchange_changed,
                                       .self = &rank};
    tr_checkpoint_content_t c = content(&sharing);
    OK(tr_checkpoint_attempt(&c, 100, &sharing.attempt));
    mkdir(DIR_NAME, 0777);
    for (; rank < RANKS; rank++) {
        sharing.rank = rank;
        OK(tr_checkpoint_write_part(DIR_NAME, &c));
    }
    sharing.rank = rank = 0;
    assert_int_equal(tr_checkpoint_write(DIR_NAME, &c, NULL), TR_ERR_IO);
    assert_non_null(strstr(tr_error_last()->message, "rank 1"));
    check_left(0);
}

/* What rank 0 may not commit, because its run folder has gone: the pieces of the others go, too. */
static void test_abandoned(void **state) {
    int rank = 1;
    tr_checkpoint_sharing_t sharing = {.ranks = RANKS,
                                       .pieces = all,
                                       .piece_count = PIECES,
                                       .parts = parts,
                                       .exchange = exchange,
                                       .self = &rank};
    tr_checkpoint_content_t c = content(&sharing);
    OK(tr_checkpoint_attempt(&c, 200, &sharing.attempt));
    mkdir(DIR_NAME, 0777);
    for (; rank < RANKS; rank++) {
        sharing.rank = rank;
        OK(tr_checkpoint_write_part(DIR_NAME, &c));
    }
    check_left(1);
    sharing.rank = rank = 0;
    TR_FAIL(TR_ERR_IO, "the run folder has gone");
    tr_checkpoint_abandon(DIR_NAME, &c);
    assert_string_equal(tr_error_last()->message, "the run folder has gone");
    check_left(0);
}

static int fresh(void **state) {
    for (int i = 0; i < WEIGHTS; i++) weights[i] = (float)i + 1, moments[i] = (float)-i - 1;
    return tr_remove_tree(DIR_NAME) != TR_OK;
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(test_bytes_of_one_rank, fresh),
        cmocka_unit_test_setup(test_parts_that_are_missing, fresh),
        cmocka_unit_test_setup(test_other_bytes, fresh),
        cmocka_unit_test_setup(test_abandoned, fresh),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
