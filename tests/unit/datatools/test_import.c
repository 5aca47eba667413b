//TEST np=1
/* Importing, repacking, and what is left behind when that fails. */
#include "../data/data_test.h"
#include "datatools/datatools.h"
#include "base/mem.h"
#include <dirent.h>
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <string.h>
#include <unistd.h>
#include <zlib.h>
#include "../../support/ok.h"

static char folder[512];
static char out[1024];

static int setup(void **state) {
    if (!test_folder_make(folder)) return -1;
    snprintf(out, sizeof out, "%s/out.h5", folder);
    return 0;
}

static int remaining(void) {
    int count = -2; /* . and .. */
    DIR *open = opendir(folder);
    while (readdir(open)) count++;
    closedir(open);
    return count;
}

static void clear(void) {
    char path[1024];
    DIR *open = opendir(folder);
    for (struct dirent *entry; (entry = readdir(open));) {
        snprintf(path, sizeof path, "%s/%s", folder, entry->d_name);
        if (entry->d_name[0] != '.') unlink(path);
    }
    closedir(open);
}

static int teardown(void **state) {
    clear();
    return rmdir(folder);
}

static void put(const char *name, const void *data, size_t bytes, bool gzip) {
    char path[1024];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    gzFile file = gzopen(path, gzip ? "wb" : "wbT");
    assert_int_equal(gzwrite(file, data, (unsigned)bytes), (int)bytes);
    gzclose(file);
}

static tr_status_t import(const char *kind, const char *in, const tr_import_params_t *params) {
    size_t count;
    const tr_importer_t *const *list = tr_importer_list(&count);
    for (size_t i = 0; i < count; i++)
        if (!strcmp(list[i]->name, kind)) return list[i]->run(in, out, params);
    fail_msg("no importer %s", kind);
    return TR_ERR_INTERNAL;
}

static tr_dataset_t *open_split(tr_split_t split) {
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = NULL;
    settings.train = out;
    OK(tr_dataset_open(&settings, split, &set));
    assert_non_null(set);
    return set;
}

/* -- MNIST ------------------------------------------------------------------------------------- */

#define TRAIN 1500
#define TEST  7
static uint8_t images[16 + TRAIN * 12], labels[8 + TRAIN];

static size_t make_idx(int64_t count) {
    const uint8_t head[16] = {0, 0, 8, 3, 0, 0, (uint8_t)(count >> 8), (uint8_t)count, 0, 0,
                              0, 4, 0, 0, 0, 3};
    memcpy(images, head, 16);
    memcpy(labels, head, 8);
    labels[3] = 1;
    for (int64_t i = 0; i < count * 12; i++) images[16 + i] = (uint8_t)(i * 37 + i / 255);
    for (int64_t i = 0; i < count; i++) labels[8 + i] = (uint8_t)(i % 10);
    return (size_t)(16 + count * 12);
}

static void put_mnist(void) {
    size_t bytes = make_idx(TRAIN);
    put("train-images-idx3-ubyte.gz", images, bytes, true);
    put("train-labels.idx1-ubyte", labels, 8 + TRAIN, false);
    bytes = make_idx(TEST);
    put("t10k-images-idx3-ubyte", images, bytes, false);
    put("t10k-labels-idx1-ubyte.gz", labels, 8 + TEST, true);
}

static void test_mnist(void **state) {
    tr_import_params_t params = {.writer.chunk_bytes = 5000};
    int64_t live = tr_mem_stats().live;
    put_mnist();
    OK(import("mnist", folder, &params));
    assert_int_equal(import("mnist", folder, &params), TR_ERR_CONFIG); /* it is there */
    params.writer.force = true;
    OK(import("mnist", folder, &params));
    tr_dataset_t *train = open_split(TR_SPLIT_TRAIN), *test = open_split(TR_SPLIT_TEST);
    assert_int_equal(train->info.samples, TRAIN);
    assert_int_equal(train->info.classes, 10);
    assert_int_equal(test->info.samples, TEST);
    assert_names(train->info.description, "(416, 4, 3, 1) & checksum");
    uint8_t *x = malloc(TRAIN * 12);
    int32_t y[TRAIN];
    void *dst[] = {x, y};
    make_idx(TRAIN);
    OK(train->ops->read(train, 0, TRAIN, dst));
    assert_memory_equal(x, images + 16, TRAIN * 12);
    double sum = 0, squares = 0;
    for (int i = 0; i < TRAIN * 12; i++) sum += x[i], squares += (double)x[i] * x[i];
    double mean = sum / (TRAIN * 12);
    assert_true(fabs(train->info.mean.data[0] - mean) < 1e-4);
    assert_true(fabs(train->info.std.data[0] - sqrt(squares / (TRAIN * 12) - mean * mean)) < 1e-4);
    for (int i = 0; i < TRAIN; i++) assert_int_equal(y[i], i % 10);
    OK(test->ops->read(test, 0, TEST, dst));
    assert_memory_equal(x, images + 16, TEST * 12);
    free(x);
    tr_dataset_close(&train);
    tr_dataset_close(&test);
    assert_int_equal(tr_mem_stats().live, live);
    clear();
}

static void check_failure(const char *kind, const char *in, const tr_import_params_t *params,
                          tr_status_t code, const char *names) {
    int before = remaining();
    int64_t live = tr_mem_stats().live;
    assert_int_equal(import(kind, in, params), code);
    assert_error_names(names);
    assert_int_equal(remaining(), before); /* no half file, under no name */
    assert_int_equal(tr_mem_stats().live, live);
}

static void test_mnist_damaged(void **state) {
    tr_import_params_t params = {.samples = -1};
    check_failure("mnist", folder, &params, TR_ERR_NOINPUT, "train-images-idx3-ubyte");
    put_mnist();
    put("t10k-labels-idx1-ubyte.gz", labels, 8 + TEST - 1, true);
    check_failure("mnist", folder, &params, TR_ERR_DATA, "t10k-labels-idx1-ubyte.gz");
    put("t10k-labels-idx1-ubyte.gz", labels, 8 + TEST + 1, true);
    check_failure("mnist", folder, &params, TR_ERR_DATA, "t10k-labels-idx1-ubyte.gz");
    make_idx(TEST - 1);
    put("t10k-labels-idx1-ubyte.gz", labels, 8 + TEST - 1, true);
    check_failure("mnist", folder, &params, TR_ERR_DATA, "test & 7 & 6");
    put("t10k-labels-idx1-ubyte.gz", "not an IDX file", 15, false);
    check_failure("mnist", folder, &params, TR_ERR_DATA, "t10k-labels-idx1-ubyte.gz");
    clear();
}

/* -- CIFAR-10 ---------------------------------------------------------------------------------- */

static void test_cifar10(void **state) {
    static uint8_t records[6][2][3073];
    static const char *const names[] = {"data_batch_1.bin", "data_batch_2.bin", "data_batch_3.bin",
                                        "data_batch_4.bin", "data_batch_5.bin", "test_batch.bin"};
    tr_str_t said = {0};
    tr_import_params_t params = {.writer.force = true, .y = &said};
    for (int f = 0; f < 6; f++) {
        for (int i = 0; i < 2 * 3073; i++)
            records[f][i / 3073][i % 3073] =
                (uint8_t)(i % 3073 ? i * 5 + f : (f * 2 + i / 3073) % 10);
        put(names[f], records[f], sizeof records[f], false);
    }
    OK(import("cifar10", folder, &params));
    assert_names(said.text, "10 & airplane");
    tr_str_free(&said);
    params.y = NULL;
    tr_dataset_t *train = open_split(TR_SPLIT_TRAIN), *test = open_split(TR_SPLIT_TEST);
    assert_int_equal(train->info.samples, 10);
    assert_int_equal(test->info.samples, 2);
    assert_int_equal(train->info.mean.count, 3);
    assert_string_equal(tr_class_names(&train->info)[9], "truck");
    uint8_t x[3072];
    int32_t y[1];
    void *dst[] = {x, y};
    OK(train->ops->read(train, 7, 1, dst));
    assert_int_equal(y[0], 7);
    for (int p = 0; p < 1024; p++)
        for (int c = 0; c < 3; c++) assert_int_equal(x[3 * p + c], records[3][1][1 + 1024 * c + p]);
    tr_dataset_close(&train);
    tr_dataset_close(&test);
    records[5][1][0] = 10;
    put(names[5], records[5], sizeof records[5], false);
    check_failure("cifar10", folder, &params, TR_ERR_DATA, "test_batch.bin & 1 & 10");
    put(names[5], records[5], sizeof records[5] - 1, false);
    check_failure("cifar10", folder, &params, TR_ERR_DATA, "test_batch.bin & 3073");
    clear();
}

/* -- CSV --------------------------------------------------------------------------------------- */

static char in[1024];

static void put_csv(const char *text) {
    snprintf(in, sizeof in, "%s/in.csv", folder);
    put("in.csv", text, strlen(text), false);
}

static void check_out(int64_t classes, int64_t rows, const float *x, const float *y) {
    tr_dataset_t *set = open_split(TR_SPLIT_TRAIN);
    assert_int_equal(set->info.samples, rows);
    assert_int_equal(set->info.classes, classes);
    int64_t columns = set->info.field[0].sample_bytes / 4;
    float xs[64];
    int32_t ys[64];
    void *dst[] = {xs, ys};
    OK(set->ops->read(set, 0, rows, dst));
    assert_memory_equal(xs, x, (size_t)(rows * columns) * 4);
    for (int64_t i = 0; i < rows; i++)
        assert_true((classes ? (float)ys[i] : ((float *)ys)[i]) == y[i]);
    tr_dataset_close(&set);
}

static void check_csv(const char *text, const char *label, int64_t classes, int64_t rows,
                      const float *x, const float *y) {
    tr_import_params_t params = {.writer.force = true, .label = label};
    put_csv(text);
    OK(import("csv", in, &params));
    check_out(classes, rows, x, y);
}

static void test_csv(void **state) {
    const float x[] = {1, 2.5f, -3e-2f, 4, 5, 6}, y[] = {0, 2, 1}, numbers[] = {0, -2, 1.5f};
    check_csv("a,b,label\n1,2.5,0\n-3e-2,4,2\n5,6,1\n", NULL, 3, 3, x, y);
    check_csv("1,2.5,0\r\n-3e-2,4,2\r\n\r\n5,6,1", NULL, 3, 3, x, y);
    check_csv("\"a\",\"what, \"\"is\"\"\nthis\", b\n1,0 , 2.5\n \"-3e-2\" ,2,4\n5,1,6\n",
              "what, \"is\"\nthis", 3, 3, x, y);
    check_csv("kind,a,b\nant,1,2.5\ncow,-3e-2,4\nbee,5,6\n", "kind", 3, 3, x, y);
    check_csv("class,a,b\nant,1,2.5\ncow,-3e-2,4\nbee,5,6\n", NULL, 3, 3, x, y);
    check_csv("0,1,2.5\n-2,-3e-2,4\n1.5,5,6\n", "1", 0, 3, x, numbers);
    check_csv("1,2.5,0\n-3e-2,4,-2\n5,6,1.5\n", "-1", 0, 3, x, numbers);
    check_csv("2020_01,2020_02,2020_03\n1,2.5,1_0\n-3e-2,4,2_1\n5,6,1_5\n", NULL, 3, 3, x, y);
    check_csv("1,2.5,0\r\n-3e-2,4,-2\r\n5,6,1.5\r", NULL, 0, 3, x, numbers);
    check_csv("a,b,label\r1,2.5,0\r\r\n-3e-2,4,2\r5,6,1", NULL, 3, 3, x, y); /* Mac OS 9 */
    check_csv("a,\"b\rc\",label\r1,2.5,0\r-3e-2,4,2\r5,6,1", NULL, 3, 3, x, y);
    clear();
}

/* Names that are numbers, and first rows that are data. */
static void test_csv_header(void **state) {
    const float x[] = {1, 2.5f, -3e-2f, 4, 5, 6}, y[] = {0, 2, 1}, numbers[] = {0, -2, 1.5f};
    const float two[] = {0, 1, 1}, all[] = {7, 8, 1, 2.5f, -3e-2f, 4, 5, 6}, four[] = {3, 0, 2, 1};
    tr_import_params_t params = {.writer.force = true, .header = TR_HEADER_YES};
    check_csv("0,1,price\n1,2.5,0\n-3e-2,4,-2\n5,6,1.5\n", NULL, 0, 3, x, numbers);
    check_csv("2019,2020,kind\n1,2.5,ant\n-3e-2,4,bee\n5,6,bee\n", NULL, 2, 3, x, two);
    check_csv("label,0,1\nant,1,2.5\ncow,-3e-2,4\nbee,5,6\n", NULL, 3, 3, x, y);
    check_csv("0,kind,1\n1,ant,2.5\n-3e-2,cow,4\n5,bee,6\n", "kind", 3, 3, x, y);
    check_csv("0,kind,1\n1,0,2.5\n-3e-2,2,4\n5,1,6\n", "2", 3, 3, x, y);
    check_csv("7,8,dog\n1,2.5,ant\n-3e-2,4,cow\n5,6,bee\n", NULL, 4, 4, all, four);
    put_csv("7,8,9\n1,2.5,0\n-3e-2,4,2\n5,6,1\n");
    OK(import("csv", in, &params));
    check_out(3, 3, x, y);
    params.header = TR_HEADER_NO;
    put_csv("7,8,price\n1,2.5,0\n-3e-2,4,2\n5,6,1\n");
    check_failure("csv", in, &params, TR_ERR_DATA, "in.csv & 1 & 3 & 'price' & --header");
    params.header = TR_HEADER_AUTO;
    put_csv("p,x\ne,y\np,x\n");
    params.label = "1";
    check_failure("csv", in, &params, TR_ERR_DATA, "in.csv & line 3 & 'p' & --header");
    params.header = TR_HEADER_NO;
    OK(import("csv", in, &params));
    check_out(2, 3, (float[]){1, 0, 0, 1, 1, 0}, (float[]){1, 0, 1});
    clear();
}

/* Columns that only number the rows, or have nothing, are left out. */
static void test_csv_index(void **state) {
    const float x[] = {1, 2.5f, -3e-2f, 4, 5, 6}, y[] = {0, 2, 1};
    const float equal[] = {1, 2.5f, 1, 4, 2, 6};
    check_csv(",a,b,label\n0,1,2.5,0\n1,-3e-2,4,2\n2,5,6,1\n", NULL, 3, 3, x, y);
    check_csv("Unnamed: 0,a,b,label\n7,1,2.5,0\n3,-3e-2,4,2\n9,5,6,1\n", NULL, 3, 3, x, y);
    check_csv("a,index,b,label\n1,7,2.5,0\n-3e-2,8,4,2\n5,9,6,1\n", NULL, 3, 3, x, y);
    check_csv("a,b,kind,,\n1,2.5,0,,\n-3e-2,4,2,,\n5,6,1,,\n", "kind", 3, 3, x, y);
    check_csv("a,b,kind,\n1,2.5,0,\n-3e-2,4,2,\n5,6,1,\n", NULL, 3, 3, x, y);
    /* none of them: equal numbers, fractions, and another name */
    check_csv(",b,label\n1,2.5,0\n1,4,2\n2,6,1\n", NULL, 3, 3, equal, y);
    check_csv(",b,label\n1,2.5,0\n-3e-2,4,2\n5,6,1\n", NULL, 3, 3, x, y);
    check_csv("i,b,label\n1,2.5,0\n2,4,2\n3,6,1\n", NULL, 3, 3, (float[]){1, 2.5f, 2, 4, 3, 6}, y);
    clear();
}

/* Few whole numbers below 0 and above are classes. */
static void test_csv_signed(void **state) {
    const float x[] = {1, 2.5f, -3e-2f, 4, 5, 6};
    tr_str_t said = {0};
    tr_import_params_t params = {.writer.force = true, .y = &said};
    put_csv("a,b,c\n1,2.5,-1\n-3e-2,4,1\n5,6,+1.0\n");
    OK(import("csv", in, &params));
    assert_names(said.text, "2 & (-1, 1) & --regression");
    check_out(2, 3, x, (float[]){0, 1, 1});
    tr_str_free(&said);
    params.regression = true;
    OK(import("csv", in, &params));
    check_out(0, 3, x, (float[]){-1, 1, 1});
    tr_str_free(&said);
    clear();
}

/* Words for a missing value are neither classes nor categories. */
static void test_csv_missing(void **state) {
    static const char *const word[] = {"",    "NA",   "N/A", "n/a",  "#N/A", "<NA>",
                                       "nan", "NaN",  "NaT", "NULL", "null", "\\N",
                                       "?",   "-NaN", "#NA", "-nan", "Null", "1.#QNAN"};
    const float x[] = {1, 0, 2, 0, 0, 4, 0, 1, 6}, y[] = {0, 2, 1};
    tr_import_params_t params = {.writer.force = true};
    for (size_t i = 0; i < TR_COUNT(word); i++) {
        char text[128];
        snprintf(text, sizeof text, "c,b,kind\nu,2,ant\nu,4,%s\nv,6,bee\nv,6,%s\n", word[i],
                 word[i]);
        put_csv(text);
        check_failure("csv", in, &params, TR_ERR_DATA, "in.csv & 3 ('kind') & 2 & 4 & line 3, 5");
        snprintf(text, sizeof text, "c,b,kind\nu,2,ant\n%s,4,cow\nv,6,bee\n", word[i]);
        put_csv(text);
        check_failure("csv", in, &params, TR_ERR_DATA, "in.csv & 1 ('c') & 1 & 3 & line 3");
        params.missing = TR_MISSING_ZERO;
        OK(import("csv", in, &params));
        check_out(3, 3, x, y);
        params.missing = TR_MISSING_REFUSED;
    }
    check_csv("c,b,kind\n1,2,none\n0,4,none\n0,6,-\n", NULL, 2, 3, (float[]){1, 2, 0, 4, 0, 6},
              (float[]){1, 1, 0}); /* these may be meant */
    put_csv("a,b,up,down\n1,2,3,NaT\n1,2,-,4\n");
    params.target = "up,down";
    check_failure("csv", in, &params, TR_ERR_DATA,
                  "3 ('up') & 1 & 2 & line 3 & 4 ('down') & line 2");
    clear();
}

static void test_csv_delimited(void **state) {
    const float x[] = {1, 2.5f, -3e-2f, 4, 5, 6}, y[] = {0, 2, 1};
    tr_str_t said = {0};
    tr_import_params_t params = {
        .writer.force = true, .delimiter = ';', .decimal = ',', .y = &said};
    put_csv("\"a; b\";c,d;label\n1; 2,5 ;bee\n-3e-2;4,0;\"cow; or ox\"\n5;6;\"bull\"\n");
    OK(import("csv", in, &params));
    assert_names(said.text, "3 & (bee, bull, cow; or ox)");
    check_out(3, 3, x, y);
    tr_str_free(&said);
    params.decimal = '.';
    params.delimiter = '\t';
    put_csv("1\t2.5 \t 0\n -3e-2\t4\t2\n5\t\"6\"\t1\n");
    OK(import("csv", in, &params));
    assert_names(said.text, "3 & 0 & 2");
    check_out(3, 3, x, y);
    tr_str_free(&said);
    clear();
}

/* Reads a split: its labels are counted in `counts`, its rows marked in `seen`. */
static void count_split(tr_split_t split, int64_t counts[4], bool seen[400]) {
    tr_dataset_t *set = open_split(split);
    const int64_t samples = set->info.samples;
    float x[400];
    int32_t y[400];
    OK(set->ops->read(set, 0, samples, (void *[]){x, y}));
    for (int64_t i = 0; i < samples; i++) {
        assert_false(seen[(int)x[i]]);
        seen[(int)x[i]] = true;
        assert_int_equal(y[i], (int)x[i] % 10 < 6 ? 0 : (int)x[i] % 10 < 9 ? 1 : 2);
        counts[y[i]]++;
    }
    tr_dataset_close(&set);
}

/* Six, three and one tenth of the rows are of the three classes; so they are in each group. */
static void test_csv_split(void **state) {
    tr_import_params_t params = {
        .writer.force = true, .test_fraction = 0.25, .valid_fraction = 0.1};
    static const int64_t wanted[3][3] = {{156, 78, 26}, {24, 12, 4}, {60, 30, 10}};
    tr_str_t text = {0};
    bool first[400] = {false};
    for (int i = 0; i < 400; i++)
        tr_str_printf(&text, "%d,%s\n", i, i % 10 < 6 ? "ant" : i % 10 < 9 ? "bee" : "cow");
    put_csv(text.text);
    tr_str_free(&text);
    for (int seed = 0; seed < 3; seed++) {
        bool seen[400] = {false}, tested[400] = {false};
        int moved = 0;
        params.seed = (uint64_t)seed / 2; /* 0, 0, 1 */
        OK(import("csv", in, &params));
        for (int s = TR_SPLIT_TRAIN; s <= TR_SPLIT_TEST; s++) {
            int64_t counts[4] = {0};
            count_split((tr_split_t)s, counts, s == TR_SPLIT_TEST ? tested : seen);
            for (int c = 0; c < 3; c++) assert_int_equal(counts[c], wanted[s][c]);
        }
        for (int i = 0; i < 400; i++) {
            assert_true(seen[i] != tested[i]);
            moved += seed > 0 && tested[i] != first[i];
            if (seed == 0) first[i] = tested[i];
        }
        assert_true(seed == 2 ? moved > 50 : moved == 0);
    }
    clear();
}

/* A class of one row is trained. valid_fraction is for tables that are divided. */
static void test_csv_split_of_few(void **state) {
    tr_import_params_t params = {
        .writer.force = true, .test_fraction = 0.5, .valid_fraction = 0.25};
    put_csv("0,a\n1,a\n2,a\n3,a\n4,a\n5,a\n6,a\n9,c\n");
    OK(import("csv", in, &params));
    tr_dataset_t *train = open_split(TR_SPLIT_TRAIN);
    float x[8] = {0};
    bool has_9 = false;
    OK(train->ops->read(train, 0, train->info.samples, (void *[]){x, NULL}));
    for (int64_t i = 0; i < train->info.samples; i++) has_9 |= x[i] == 9;
    assert_true(has_9 && train->info.samples < 5);
    tr_dataset_close(&train);
    params.test_fraction = 0;
    OK(import("csv", in, &params));
    train = open_split(TR_SPLIT_TRAIN);
    assert_int_equal(train->info.samples, 8);
    tr_dataset_close(&train);
    params.is_valid_given = true;
    OK(import("csv", in, &params));
    train = open_split(TR_SPLIT_TRAIN);
    assert_int_equal(train->info.samples, 6);
    tr_dataset_close(&train);
    params.valid_fraction = 0.05;
    check_failure("csv", in, &params, TR_ERR_CONFIG, "--valid-fraction & 0.05 & 8 & valid");
    clear();
}

/* Each of many texts is one class, in alphabetical order, wherever its rows are. */
static void test_csv_many_classes(void **state) {
    enum {
        CLASSES = 4000,
        ROWS = 3 * CLASSES,
        STEP = 7919 /* prime: rows have the classes in no order */
    };
    tr_import_params_t params = {.writer.force = true};
    tr_str_t text = {0};
    int32_t *y = NULL;
    for (int i = 0; i < ROWS; i++) tr_str_printf(&text, "%d,c%04d\n", i, i * STEP % CLASSES);
    put_csv(text.text);
    tr_str_free(&text);
    OK(import("csv", in, &params));
    tr_dataset_t *set = open_split(TR_SPLIT_TRAIN);
    assert_int_equal(set->info.classes, CLASSES);
    OK(tr_alloc(ROWS * sizeof *y, "labels", &y));
    OK(set->ops->read(set, 0, ROWS, (void *[]){NULL, y}));
    for (int i = 0; i < ROWS; i++) assert_int_equal(y[i], i * STEP % CLASSES);
    tr_free(&y);
    tr_dataset_close(&set);
    clear();
}

static void test_csv_damaged(void **state) {
    tr_import_params_t params = {.writer.force = true};
    const struct {
        const char *text, *names;
    } bad[] = {
        {"", "in.csv"},
        {"a,b\n", "in.csv"},
        {"1\n2\n", "in.csv"},
        {"a,b\n1,2\n3\n", "in.csv & 3 & 1 & 2"},
        {"a,b\n1,2\n\n,4\n", "in.csv & 4 & 1"},
        {"a,b\nnan,2\n", "in.csv & 2 & 1 & 'a' & --drop"},
        {"a,b\n1e300,2\n", "in.csv & 2 & 1 & '1e300'"},
        {"a,b\n1,1e300\n2,1.5\n", "in.csv & 2 & '1e300'"},
        {"a,b\n1,1e400\n2,1.5\n3,2.5\n", "in.csv & 2 & '1e400'"},
        {"a;b\n1;2\n", "in.csv & --delimiter"},
        {"a,b,a\n1,2,3\n", "in.csv & 1 & 3 & 'a'"},
        {"a,b\n1,2,\n", "in.csv & 2 & 3 & 2 & sed 's/,$//'"},
        {"a,b\nr1,1,2\n", "in.csv & 2 & 3 & 2 & sed '1s/^/row,/'"},
        {"a,b\n1,2\na,b\n", "in.csv & 3 & 1 ('a') & 'a'"},
        {"\n\r\n", "in.csv"},
        {"sep=;\na;b\n1;2\n", "in.csv & 1 & tail -n +2 & --delimiter ';'"},
        {"\xFD"
         "7zXZ",
         "in.csv & xz -dk"},
        {"\x28\xB5\x2F\xFD", "in.csv & zstd -d"},
        {"BZh91AY&SY", "in.csv & bunzip2"},
        {"PK\3\4", "in.csv & unzip"},
        {"PAR1", "in.csv & Parquet & pandas"},
        {"\xFF\xFE"
         "a",
         "in.csv & UTF-16 & iconv"},
        {"<!DOCTYPE html>", "in.csv"},
        {"a,b,c,y\n1,u,2024-01-31,1\n2,3,2024-02-01,2\nw,v,2024-02-01,3\n",
         "line 4 & 1 ('a') & 2 & 'w' & line 2 & 2 ('b') & 'u' & 3 ('c') & '2024-01-31' & awk & $3 "
         "& "
         "\"year,month,day\" & in.csv"},
        {"a,c\n1,31.12.2024\n2,1.2.2025\n", "line 2 & 2 & '31.12.2024' & --label"},
        {"a,c,y\n1,2024-01-31T12:00:00Z,1\n", "2 ('c') & year,month,day & awk"},
        {"a,c,y\n1,12/31/24 5:30 PM,1\n", "2 ('c') & month,day,year & awk"},
        {"a,c,y\n1,12:30:15,1\n", "2 ('c') & hour,minute,second & awk"},
        {"a,b\n1,\n", "in.csv & 2"},
        {"a,b\n1,\"2\n", "in.csv & 2"},
    };
    for (size_t i = 0; i < TR_COUNT(bad); i++) {
        put_csv(bad[i].text);
        check_failure("csv", in, &params, TR_ERR_DATA, bad[i].names);
    }
    put_csv("a,b\n1,2\n");
    params.label = "c";
    check_failure("csv", in, &params, TR_ERR_CONFIG, "'c' & a, b");
    clear();
    check_failure("csv", in, &params, TR_ERR_NOINPUT, "in.csv");
}

/* Wherever gzip data are cut off, the rows before are not taken for all. */
static void test_csv_cut_off(void **state) {
    tr_import_params_t params = {.writer.force = true};
    struct stat whole;
    put_csv("");
    put("in.csv", "a,b\n1,10\n2,21\n3,32\n", 19, true);
    OK(import("csv", in, &params));
    assert_return_code(stat(in, &whole), 0);
    for (off_t bytes = whole.st_size - 1; bytes > 20; bytes--) {
        assert_return_code(truncate(in, bytes), 0);
        check_failure("csv", in, &params, TR_ERR_DATA, "in.csv");
    }
    clear();
}

static void test_csv_split_leaves_rows_to_train(void **state) {
    tr_import_params_t params = {.writer.force = true, .test_fraction = 0.95};
    put_csv("a,b\n1,0\n");
    check_failure("csv", in, &params, TR_ERR_CONFIG, "--test-fraction & 0.95 & 1");
    clear();
}

/* -- synthetic --------------------------------------------------------------------------------- */

static void test_synthetic(void **state) {
    tr_import_params_t params = {
        .writer.force = true, .what = "digits", .samples = 60, .classes = -1, .seed = 1};
    uint8_t first[60 * 784], again[60 * 784];
    void *dst[] = {first, NULL};
    for (int round = 0; round < 2; round++) {
        OK(import("synthetic", "digits", &params));
        tr_dataset_t *set = open_split(TR_SPLIT_TRAIN);
        assert_int_equal(set->info.samples, 60);
        assert_int_equal(set->info.classes, 10);
        OK(set->ops->read(set, 0, 60, dst));
        tr_dataset_close(&set);
        dst[0] = again;
    }
    assert_memory_equal(first, again, sizeof first);
    for (int i = 0; i < 60; i++) {
        int ink = 0;
        for (int p = 0; p < 784; p++) ink += first[i * 784 + p] > 100;
        assert_in_range(ink, 20, 300);
    }
    params.seed = 2;
    OK(import("synthetic", "digits", &params));
    tr_dataset_t *set = open_split(TR_SPLIT_TEST);
    assert_int_equal(set->info.samples, 10);
    tr_dataset_close(&set);
    params.what = "volumes";
    params.shape = "4x5x6x2";
    params.classes = 0;
    OK(import("synthetic", "volumes", &params));
    set = open_split(TR_SPLIT_TRAIN);
    tr_shape_t shape = TR_SHAPE(4, 5, 6, 2), targets = TR_SHAPE(4);
    assert_true(tr_shape_equal(&set->info.field[0].shape, &shape) &&
                tr_shape_equal(&set->info.field[1].shape, &targets));
    tr_dataset_close(&set);
    params.what = "digit";
    check_failure("synthetic", "digit", &params, TR_ERR_USAGE, "'digit'");
    clear();
}

/* A mask marks what stands out from the ground, by at least 50; the noise is at most 24. */
static void test_synthetic_shapes(void **state) {
    enum { SAMPLES = 30, PIXELS = 40 * 48, KINDS = 3 };
    static uint8_t x[SAMPLES][PIXELS][3], again[SAMPLES][PIXELS][3];
    static uint8_t mask[SAMPLES][PIXELS];
    tr_import_params_t params = {.writer.force = true,
                                 .what = "shapes",
                                 .samples = SAMPLES,
                                 .classes = -1,
                                 .seed = 3,
                                 .shape = "40x48x3"};
    for (int round = 0; round < 2; round++) {
        OK(import("synthetic", "shapes", &params));
        const hid_t file = H5Fopen(out, H5F_ACC_RDONLY, H5P_DEFAULT),
                    inputs = H5Dopen2(file, "train/x", H5P_DEFAULT),
                    masks = H5Dopen2(file, "train/y", H5P_DEFAULT);
        assert_in_range(H5Dget_storage_size(masks), sizeof mask, sizeof mask + 4); /* checksum */
        H5Dread(inputs, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, round ? again : x);
        H5Dread(masks, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, mask);
        H5Dclose(inputs);
        H5Dclose(masks);
        H5Fclose(file);
    }
    assert_memory_equal(x, again, sizeof x);
    int of_class[1 + KINDS] = {0};
    for (int i = 0; i < SAMPLES; i++)
        for (int c = 0; c < 3; c++) {
            int highest = 0, lowest = 255; /* of the ground, and of the shapes */
            for (int p = 0; p < PIXELS; p++) {
                const int class = (int)mask[i][p];
                assert_in_range(class, 0, KINDS);
                if (class == 0 && x[i][p][c] > highest) highest = x[i][p][c];
                if (class > 0 && x[i][p][c] < lowest) lowest = x[i][p][c];
                of_class[class]++;
            }
            assert_true(highest <= lowest + 1);
        }
    for (int class = 0; class <= KINDS; class ++)
        assert_true(of_class[class] > SAMPLES * PIXELS * 3 / 50);
    params.shape = "12x4x3";
    check_failure("synthetic", "shapes", &params, TR_ERR_USAGE, "--shape & 12, 4, 3");
    params.shape = "12x8x9";
    params.classes = 4;
    check_failure("synthetic", "shapes", &params, TR_ERR_USAGE, "--classes & 3 & 4");
    clear();
}

/* -- repacking --------------------------------------------------------------------------------- */

static hid_t put_dataset(hid_t file, const char *name, int ndim, const hsize_t *dim,
                         const hsize_t *chunk, hid_t type, hid_t memory, const void *data) {
    hid_t links = H5Pcreate(H5P_LINK_CREATE), made = H5Pcreate(H5P_DATASET_CREATE),
          space = H5Screate_simple(ndim, dim, NULL);
    H5Pset_create_intermediate_group(links, 1);
    if (chunk) H5Pset_chunk(made, ndim, chunk);
    if (chunk) H5Pset_deflate(made, 4);
    hid_t id = H5Dcreate2(file, name, type, space, links, made, H5P_DEFAULT);
    assert_true(H5Dwrite(id, memory, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Sclose(space);
    H5Pclose(made);
    H5Pclose(links);
    return id;
}

static void put_text_attribute(hid_t object, const char *name, const char *text) {
    hid_t type = H5Tcopy(H5T_C_S1), space = H5Screate(H5S_SCALAR);
    H5Tset_size(type, H5T_VARIABLE);
    hid_t id = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    H5Awrite(id, type, &text);
    H5Aclose(id);
    H5Sclose(space);
    H5Tclose(type);
}

static void check_text_attribute(hid_t file, const char *object, const char *name,
                                 const char *text) {
    char *found = NULL;
    hid_t id = H5Aopen_by_name(file, object, name, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(id >= 0);
    hid_t type = H5Aget_type(id);
    H5Aread(id, type, &found);
    assert_string_equal(found, text);
    H5free_memory(found);
    H5Tclose(type);
    H5Aclose(id);
}

static void test_repack(void **state) {
    char source[1024];
    double wave[50 * 7];
    int16_t planes[20 * 3 * 4 * 5], back[20 * 3 * 4 * 5];
    int64_t y[50];
    tr_import_params_t params = {.writer.chunk_bytes = 1000};
    snprintf(source, sizeof source, "%s/in.h5", folder);
    for (int i = 0; i < 350; i++) wave[i] = sin(i);
    for (int i = 0; i < 1200; i++) planes[i] = (int16_t)(i * 31);
    for (int i = 0; i < 50; i++) y[i] = i % 3;
    hid_t file = H5Fcreate(source, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    hid_t x = put_dataset(file, "data/train/x", 2, (hsize_t[]){50, 7}, (hsize_t[]){13, 3},
                          H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, wave);
    put_text_attribute(x, "units", "metres");
    H5Dclose(x);
    H5Dclose(put_dataset(file, "data/train/y", 1, (hsize_t[]){50}, NULL, H5T_STD_I64LE,
                         H5T_NATIVE_INT64, y));
    H5Dclose(put_dataset(file, "planes", 4, (hsize_t[]){20, 3, 4, 5}, NULL, H5T_STD_I16BE,
                         H5T_NATIVE_INT16, planes));
    hid_t fixed = H5Tcopy(H5T_C_S1);
    H5Tset_size(fixed, 4);
    H5Dclose(put_dataset(file, "names", 1, (hsize_t[]){2}, NULL, fixed, fixed, "one\0two"));
    H5Tclose(fixed);
    hid_t group = H5Gopen2(file, "data", H5P_DEFAULT);
    put_text_attribute(group, "from", "here");
    put_text_attribute(file, "title", "all of it");
    H5Gclose(group);
    H5Fclose(file);
    int64_t live = tr_mem_stats().live;
    OK(tr_repack(source, out, &params));
    assert_int_equal(tr_mem_stats().live, live);
    assert_int_equal(tr_repack(source, out, &params), TR_ERR_CONFIG);

    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set;
    char text[1100];
    snprintf(text, sizeof text, "%s:data/train", out);
    settings.train = text;
    OK(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set));
    assert_int_equal(set->info.classes, 3);
    assert_names(set->info.description, "f64 (7) & (17, 7) & checksum");
    float xs[350];
    void *dst[] = {xs, NULL};
    OK(set->ops->read(set, 0, 50, dst));
    for (int i = 0; i < 350; i++) assert_true(xs[i] == (float)wave[i]);
    tr_dataset_close(&set);

    file = H5Fopen(out, H5F_ACC_RDONLY, H5P_DEFAULT);
    hid_t id = H5Dopen2(file, "planes", H5P_DEFAULT);
    H5Dread(id, H5T_NATIVE_INT16, H5S_ALL, H5S_ALL, H5P_DEFAULT,
            back); /* the library agrees with our checksums */
    assert_memory_equal(back, planes, sizeof planes);
    H5Dclose(id);
    char names[8] = "";
    id = H5Dopen2(file, "names", H5P_DEFAULT);
    hid_t type = H5Dget_type(id);
    H5Dread(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, names);
    assert_memory_equal(names, "one\0two", 8);
    H5Tclose(type);
    H5Dclose(id);
    check_text_attribute(file, "data/train/x", "units", "metres");
    check_text_attribute(file, "data", "from", "here");
    check_text_attribute(file, "/", "title", "all of it");
    H5Fclose(file);
    clear();
    params.writer.force = true;
    assert_int_equal(tr_repack(source, out, &params), TR_ERR_NOINPUT);
    assert_int_equal(remaining(), 0);
}

/* Inputs of 5 rows, with labels beside them, in the file itself, or both. */
static void make_pair(const char *x_path, const char *y_path, bool own) {
    const float x[10] = {0};
    const int32_t y[5] = {0, 1, 0, 1, 1};
    hid_t file = H5Fcreate(x_path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Dclose(
        put_dataset(file, "x", 2, (hsize_t[]){5, 2}, NULL, H5T_NATIVE_FLOAT, H5T_NATIVE_FLOAT, x));
    if (own)
        H5Dclose(
            put_dataset(file, "y", 1, (hsize_t[]){5}, NULL, H5T_NATIVE_INT, H5T_NATIVE_INT, y));
    H5Fclose(file);
    file = H5Fcreate(y_path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Dclose(put_dataset(file, "y", 1, (hsize_t[]){5}, NULL, H5T_NATIVE_INT, H5T_NATIVE_INT, y));
    H5Fclose(file);
}

/* Lets the first file through, and stops behind the rows of the second. */
static tr_status_t stop_second(void *self, int64_t done, int64_t total) {
    int *files = self;
    if (done == total) ++*files;
    return *files == 2 ? TR_FAIL(TR_ERR_RETRY, "stop") : TR_OK;
}

static void test_repack_pair(void **state) {
    char x[1024], y[1024], new_x[1024], new_y[1024];
    int files = 0;
    tr_import_params_t params = {.progress = stop_second, .self = &files};
    snprintf(x, sizeof x, "%s/a_x.h5", folder), snprintf(y, sizeof y, "%s/a_y.h5", folder);
    snprintf(new_x, sizeof new_x, "%s/b_x.h5", folder),
        snprintf(new_y, sizeof new_y, "%s/b_y.h5", folder);
    make_pair(x, y, false);
    const int before = remaining();
    assert_int_equal(tr_repack(x, out, &params), TR_ERR_USAGE);
    assert_int_equal(tr_repack(x, new_x, &params), TR_ERR_RETRY);
    assert_int_equal(files, 2);
    assert_int_equal(remaining(), before); /* the labels, too, are gone */
    params.progress = NULL;
    OK(tr_repack(x, new_x, &params));
    assert_true(access(new_x, F_OK) == 0 && access(new_y, F_OK) == 0);
    unlink(new_x), unlink(new_y);
    make_pair(x, y, true);
    OK(tr_repack(x, out, &params));
    assert_int_equal(remaining(), before + 1);
    clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_mnist),
        cmocka_unit_test(test_mnist_damaged),
        cmocka_unit_test(test_cifar10),
        cmocka_unit_test(test_csv),
        cmocka_unit_test(test_csv_header),
        cmocka_unit_test(test_csv_index),
        cmocka_unit_test(test_csv_signed),
        cmocka_unit_test(test_csv_missing),
        cmocka_unit_test(test_csv_split),
        cmocka_unit_test(test_csv_split_of_few),
        cmocka_unit_test(test_csv_delimited),
        cmocka_unit_test(test_csv_damaged),
        cmocka_unit_test(test_csv_cut_off),
        cmocka_unit_test(test_csv_split_leaves_rows_to_train),
        cmocka_unit_test(test_csv_many_classes),
        cmocka_unit_test(test_synthetic),
        cmocka_unit_test(test_synthetic_shapes),
        cmocka_unit_test(test_repack),
        cmocka_unit_test(test_repack_pair),
    };
    return cmocka_run_group_tests_name("import", tests, setup, teardown);
}
