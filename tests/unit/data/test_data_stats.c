//TEST np=1
/* What is said of values that 32-bit floats round away, which are looked at as they are stored. */
#include "data_test.h"
#include <hdf5.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include "../../support/ok.h"

enum { N = 40, C = 3, POINTS = 12 * 5, ELEMS = C * POINTS };
static char folder[512], path[1024];

static int setup(void **state) {
    if (!test_folder_make(folder)) return -1;
    snprintf(path, sizeof path, "%s/*.h5", folder);
    return 0;
}
static int teardown(void **state) {
    return rmdir(folder);
}

/* One file: x (N, C, 12, 5), in chunks that are decoded, and y (N, 2). */
static void put(const char *name, hid_t x_type, hid_t y_type, const double *x, const double *y) {
    const hsize_t x_dim[] = {N, C, 12, 5}, y_dim[] = {N, 2}, chunk[] = {7, C, 12, 5};
    char file_path[1024];
    snprintf(file_path, sizeof file_path, "%s/%s", folder, name);
    hid_t file = H5Fcreate(file_path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT),
          made = H5Pcreate(H5P_DATASET_CREATE),
          spaces[] = {H5Screate_simple(4, x_dim, NULL), H5Screate_simple(2, y_dim, NULL)};
    H5Pset_chunk(made, 4, chunk), H5Pset_deflate(made, 1);
    hid_t sets[] = {
        H5Dcreate2(file, "x", x_type, spaces[0], H5P_DEFAULT, made, H5P_DEFAULT),
        H5Dcreate2(file, "y", y_type, spaces[1], H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT)};
    assert_true(H5Dwrite(sets[0], H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, x) >= 0);
    assert_true(H5Dwrite(sets[1], H5T_NATIVE_DOUBLE, H5S_ALL, H5S_ALL, H5P_DEFAULT, y) >= 0);
    for (int i = 0; i < 2; i++) H5Dclose(sets[i]), H5Sclose(spaces[i]);
    H5Pclose(made), H5Fclose(file);
}

static void end(tr_dataset_t **set, const char *const *name, int files) {
    char file_path[1024];
    tr_dataset_close(set);
    for (int i = 0; i < files; i++) {
        snprintf(file_path, sizeof file_path, "%s/%s", folder, name[i]);
        assert_int_equal(unlink(file_path), 0);
    }
}

static double x[N * ELEMS], y[N * 2];
static void fill(void) {
    /* by channels */
    for (int i = 0; i < N * ELEMS; i++) x[i] = 1e8 * (i / POINTS % C) + 0.25 * (i % 1001);
    for (int i = 0; i < N * 2; i++) y[i] = i % 2 ? i : 2e8 + i / 2 % 8;
}

static tr_dataset_t *open_files(double valid_fraction, int64_t classes) {
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = NULL;
    settings.train = path, settings.layout = TR_LAYOUT_NCHW,
    settings.valid_fraction = valid_fraction;
    settings.classes = classes;
    OK(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set));
    return set;
}

/* Of two files, the second of which has other types; whole, and with a part of it kept for
 * validation. */
static void values_are_seen_before_they_are_rounded(void **state) {
    static const char *const names[] = {"a.h5", "b.h5"};
    static double exact[2 * N * ELEMS], targets[2 * N * 2];
    static float rounded[2 * N * ELEMS];
    fill();
    put(names[0], H5T_IEEE_F64BE, H5T_STD_I64LE, x, y),
        put(names[1], H5T_IEEE_F32LE, H5T_STD_I32LE, x, y);
    tr_dataset_t *set = open_files(0, 0), *part = open_files(0.25, 0);
    assert_true(set->info.samples == 2 * N && set->info.is_rounded[0] && set->info.is_rounded[1]);
    OK(set->ops->read_exact(set, 0, 0, 2 * N, exact));
    OK(set->ops->read_exact(set, 1, 0, 2 * N, targets));
    OK(set->ops->read(set, 0, 2 * N, (void *[]){rounded, NULL}));
    for (int i = 0; i < N * ELEMS; i++) {
        const double stored = x[i / ELEMS * ELEMS + i % C * POINTS + i % ELEMS / C];
        assert_true(exact[i] == stored && exact[N * ELEMS + i] == (double)(float)stored);
        assert_true(rounded[i] == (float)stored && rounded[N * ELEMS + i] == (float)stored);
    }
    for (int i = 0; i < N * 2; i++) assert_true(targets[i] == y[i] && targets[2 * N + i] == y[i]);

    const int64_t n = part->info.samples;
    assert_true(n > N && n < 2 * N && part->info.is_rounded[1]);
    double *some = malloc((size_t)(n * 2) * sizeof *some);
    float *usual = malloc((size_t)(n * 2) * sizeof *usual);
    OK(part->ops->read_exact(part, 1, 0, n, some));
    OK(part->ops->read(part, 0, n, (void *[]){NULL, usual}));
    for (int64_t i = 0; i < 2 * n; i++) assert_true((float)some[i] == usual[i]);
    free(some), free(usual);
    tr_dataset_close(&part);
    end(&set, names, 2);
}

static void columns_that_are_rounded_away_are_named(void **state) {
    static const char *const name[] = {"a.h5"};
    tr_stats_t stats[2] = {0};
    double sec = 0;
    char text[640];
    fill();
    put(name[0], H5T_IEEE_F64LE, H5T_IEEE_F64LE, x, y);
    tr_dataset_t *set = open_files(0, 0);
    /* four segments that are the whole */
    OK(tr_dataset_stats(set, 1, 4, 1000, 2, stats, &sec));
    assert_true(stats[0].count == N && stats[0].min == 2e8 && stats[0].max == 2e8 + 7 && sec > 0);
    assert_true(tr_is_rounded_away(stats, 2, true, text));
    assert_names(text, "0 & 200000000 & 200000007 & 32-bit & 7");
    assert_false(tr_is_rounded_away(stats + 1, 1, true, text));
    end(&set, name, 1);
}

/* Bits are lost by what becomes a float, not by what travels as it is; labels are none. */
static void which_types_are_rounded(void **state) {
    static const char *const name[] = {"a.h5"};
    const struct {
        hid_t type;
        bool x, y;
    } types[] = {{H5T_STD_U8LE, false, false},   {H5T_STD_I16LE, false, false},
                 {H5T_STD_I32LE, false, true},   {H5T_STD_U32LE, true, true},
                 {H5T_STD_I64LE, true, true},    {H5T_STD_U64LE, true, true},
                 {H5T_IEEE_F32LE, false, false}, {H5T_IEEE_F64LE, true, true}};
    for (int i = 0; i < N * ELEMS; i++) x[i] = i % 2;
    for (int i = 0; i < N * 2; i++) y[i] = i / 2 % 2 == i % 2; /* one-hot, too */
    for (size_t i = 0; i < TR_COUNT(types); i++) {
        put(name[0], types[i].type, types[i].type, x, y);
        tr_dataset_t *set = open_files(0, 0), *labels = open_files(0, -1);
        assert_int_equal(set->info.is_rounded[0], types[i].x);
        assert_int_equal(set->info.is_rounded[1], types[i].y);
        assert_true(labels->info.classes == 2 && !labels->info.is_rounded[1]);
        tr_dataset_close(&labels);
        end(&set, name, 1);
    }
}

static void numbers_beyond_f32_are_refused_all_the_same(void **state) {
    static const char *const name[] = {"a.h5"};
    tr_stats_t stats = {0};
    fill();
    x[5 * ELEMS] = 1e39;
    put(name[0], H5T_IEEE_F64LE, H5T_IEEE_F64LE, x, y);
    tr_dataset_t *set = open_files(0, 0);
    assert_int_equal(tr_dataset_stats(set, 0, 1, N, 1, &stats, NULL), TR_ERR_DATA);
    assert_non_null(strstr(tr_error_last()->message, "sample 5 "));
    end(&set, name, 1);
}

/* The checksum of contents: a bounded number of reads; unknown if a sample cannot be read. */
static void contents_have_a_checksum(void **state) {
    enum { MANY = 1 << 30, MOST = 32 };
    test_dataset_t few, same, more, many, damaged;
    test_dataset_make(&few, 1000, 3), test_dataset_make(&same, 1000, 3);
    test_dataset_make(&more, 1001, 3), test_dataset_make(&many, MANY, 3);
    test_dataset_make(&damaged, 1000, 3);
    damaged.bad = 567;
    const uint64_t sum = tr_dataset_checksum(&few.base, 1000);
    assert_true(sum != 0 && sum == tr_dataset_checksum(&same.base, 1000));
    assert_true(sum == tr_dataset_checksum(&more.base, 1000));
    assert_true(sum != tr_dataset_checksum(&more.base, 1001));
    assert_true(tr_dataset_checksum(&many.base, MANY) != 0 && many.reads > 0 && many.reads < MOST);
    assert_true(tr_dataset_checksum(&damaged.base, 1000) == 0 && tr_error_last()->code == TR_OK);
    same.base.info.field[1].kind = TR_FIELD_VALUES, same.base.info.field[1].dtype = TR_F32;
    assert_true(sum != tr_dataset_checksum(&same.base, 1000));
}

static void another_order_of_bytes_has_the_checksum(void **state) {
    static const char *const name[] = {"a.h5"};
    const hid_t types[] = {H5T_IEEE_F64LE, H5T_IEEE_F64BE};
    uint64_t sum[3];
    fill();
    for (int i = 0; i < 3; i++) {
        if (i == 2) x[ELEMS * N / 2] += 1;
        put(name[0], types[i % 2], types[i % 2], x, y);
        tr_dataset_t *set = open_files(0, 0);
        sum[i] = tr_dataset_checksum(set, set->info.samples);
        end(&set, name, 1);
    }
    assert_true(sum[0] == sum[1] && sum[0] != sum[2]);
}

/* Any data set has numbers to predict if data.classes = 0 says so: no warning doubts them. */
static void classes_0_means_numbers(void **state) {
    tr_data_settings_t settings = test_settings();
    settings.format = "synthetic";
    for (settings.classes = 0; settings.classes < 4; settings.classes += 3) {
        tr_dataset_t *set;
        OK(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set));
        assert_int_equal(set->info.is_regression, settings.classes == 0);
        tr_dataset_close(&set);
    }
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(contents_have_a_checksum),
        cmocka_unit_test(another_order_of_bytes_has_the_checksum),
        cmocka_unit_test(values_are_seen_before_they_are_rounded),
        cmocka_unit_test(columns_that_are_rounded_away_are_named),
        cmocka_unit_test(which_types_are_rounded),
        cmocka_unit_test(classes_0_means_numbers),
        cmocka_unit_test(numbers_beyond_f32_are_refused_all_the_same)};
    return cmocka_run_group_tests(tests, setup, teardown);
}
