//TEST np=1
/* Data sets of many files: which are open, and files that hold one sample each. */
#include "data_test.h"
#include "data/hdf5/hdf5_source.h"
#include "trainer/log.h"
#include "base/mem.h"
#include <dirent.h>
#include <hdf5.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>
#include "../../support/ok.h"

static char folder[512], pattern[1024];

static int setup(void **state) {
    if (!test_folder_make(folder)) return -1;
    snprintf(pattern, sizeof pattern, "%s/f*.h5", folder);
    return 0;
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

static hid_t create(int number) {
    char path[1024];
    snprintf(path, sizeof path, "%s/f%04d.h5", folder, number);
    return H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
}

/* chunk[0] 0: contiguous; ndim 0: a scalar */
static void put(hid_t file, const char *name, hid_t type, int ndim, const hsize_t *dim,
                const hsize_t *chunk, const void *data) {
    hid_t links = H5Pcreate(H5P_LINK_CREATE), made = H5Pcreate(H5P_DATASET_CREATE),
          space = ndim ? H5Screate_simple(ndim, dim, NULL) : H5Screate(H5S_SCALAR);
    H5Pset_create_intermediate_group(links, 1);
    if (chunk) H5Pset_chunk(made, ndim, chunk);
    if (chunk) H5Pset_deflate(made, 1);
    hid_t id = H5Dcreate2(file, name, type, space, links, made, H5P_DEFAULT);
    assert_true(id >= 0 && H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Dclose(id);
    H5Sclose(space);
    H5Pclose(made);
    H5Pclose(links);
}

static tr_dataset_t *open_files(tr_data_settings_t settings) {
    tr_dataset_t *set = NULL;
    settings.train = pattern;
    OK(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set));
    assert_non_null(set);
    return set;
}

static void check_refused(tr_data_settings_t settings, tr_status_t code, const char *names) {
    tr_dataset_t *set = NULL;
    settings.train = pattern;
    const tr_status_t status = tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set);
    assert_int_equal(status, code);
    assert_names(tr_error_last()->message, names);
    tr_error_clear();
}

/* -- many files -------------------------------------------------------------------------------- */

enum { FILES = 300, ROWS = 3, WIDTH = 5 };

static void put_rows(int number, int width, bool has_y) {
    const hsize_t x_dim[] = {ROWS, (hsize_t)width}, y_dim[] = {ROWS};
    uint8_t x[ROWS * 2 * WIDTH];
    int64_t y[ROWS];
    for (int i = 0; i < ROWS * width; i++) x[i] = (uint8_t)(number * 7 + i);
    for (int i = 0; i < ROWS; i++) y[i] = (number + i) % 4;
    hid_t file = create(number);
    put(file, "x", H5T_NATIVE_UINT8, 2, x_dim, NULL, x);
    if (has_y) put(file, "y", H5T_NATIVE_INT64, 1, y_dim, NULL, y);
    H5Fclose(file);
}

static int open_descriptors(void) {
    int count = 0;
    DIR *open = opendir("/proc/self/fd");
    while (readdir(open)) count++;
    closedir(open);
    return count;
}

/* Every sample, in an order that goes through all files again and again. */
static void check_rows(tr_dataset_t *set) {
    const int before = open_descriptors();
    assert_int_equal(set->info.samples, FILES * ROWS);
    for (int64_t i = 0; i < FILES * ROWS; i++) {
        const int64_t sample = i * 7 % (FILES * ROWS), number = sample / ROWS, row = sample % ROWS;
        uint8_t x[WIDTH];
        int32_t y;
        set->ops->expect(set, sample, 1);
        OK(set->ops->read(set, sample, 1, (void *[]){x, &y}));
        for (int k = 0; k < WIDTH; k++)
            assert_int_equal(x[k], (uint8_t)(number * 7 + row * WIDTH + k));
        assert_int_equal(y, (number + row) % 4);
    }
    assert_in_range(open_descriptors(), before, before + H5_OPEN_MOST);
}

static void files_are_opened_when_they_are_read(void **state) {
    const int before = open_descriptors();
    struct rlimit limit;
    for (int i = 0; i < FILES; i++) put_rows(i, WIDTH, true);
    tr_dataset_t *set = open_files(test_settings());
    assert_true(open_descriptors() <= before + H5_OPEN_MOST);
    check_rows(set);
    tr_dataset_close(&set);
    assert_int_equal(open_descriptors(), before);

    assert_int_equal(getrlimit(RLIMIT_NOFILE, &limit), 0);
    const struct rlimit few = {(rlim_t)before + 20, limit.rlim_max};
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    set = open_files(test_settings());
    check_rows(set);
    tr_dataset_close(&set);
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &limit), 0);
}

/* x and y of the two files have the same shapes, and their masks have not. */
static void masks_that_differ_are_named(void **state) {
    const hsize_t dim[] = {2, 4, 4, 1};
    const uint8_t values[32] = {0};
    tr_data_settings_t settings = test_settings();
    clear();
    settings.mask = "counted";
    for (int i = 0; i < 2; i++) {
        hid_t file = create(i);
        put(file, "x", H5T_NATIVE_UINT8, 4, dim, NULL, values);
        put(file, "y", H5T_NATIVE_UINT8, 3, dim, NULL, values);
        put(file, "counted", H5T_NATIVE_UINT8, 3, (hsize_t[]){2, (hsize_t)(4 - i), 4}, NULL,
            values);
        H5Fclose(file);
    }
    check_refused(settings, TR_ERR_DATA, "f0000.h5 & f0001.h5 & /counted & (4, 4) u8 & (3, 4) u8");
    clear();
}

/* A file that the library opens again must be the one of which the header was read. */
static void a_file_at_rest_that_was_changed_is_refused(void **state) {
    char name[1024];
    h5_file_t file;
    put_rows(0, WIDTH, true);
    snprintf(name, sizeof name, "%s/f0000.h5", folder);
    tr_h5_lock();
    OK(tr_h5_file_open("data.train", name, &file));
    tr_h5_file_rest(&file);
    OK(tr_h5_file_wake(&file));
    tr_h5_file_rest(&file);
    file.mtime_sec--;
    assert_int_equal(tr_h5_file_wake(&file), TR_ERR_DATA);
    assert_names(tr_error_last()->message, "f0000.h5");
    assert_true(file.id < 0);
    tr_error_clear();
    tr_h5_file_close(&file);
    tr_h5_unlock();
    clear();
}

static void a_file_that_does_not_fit_is_named(void **state) {
    char path[1024];
    put_rows(117, WIDTH + 1, true);
    check_refused(test_settings(), TR_ERR_DATA, "f0117.h5 & (5) & (6) & u8");
    put_rows(117, WIDTH, false);
    check_refused(test_settings(), TR_ERR_DATA, "f0117.h5 & y");
    hid_t file = create(117);
    put(file, "z", H5T_NATIVE_UINT8, 1, (hsize_t[]){1}, NULL, (uint8_t[]){1});
    H5Fclose(file);
    check_refused(test_settings(), TR_ERR_NOINPUT, "f0117.h5 & data.x & z (1)");
    put_rows(117, WIDTH, true);
    tr_dataset_t *set = open_files(test_settings());
    uint8_t x[WIDTH];
    int32_t y;
    snprintf(path, sizeof path, "%s/f0117.h5", folder);
    unlink(path); /* the labels have been read, in the order of the files, and it was closed */
    assert_int_equal(set->ops->read(set, 117 * ROWS, 1, (void *[]){x, &y}), TR_OK);
    tr_dataset_close(&set);
    put_rows(3, WIDTH, true);
    set = open_files(test_settings());
    clear();
    assert_int_equal(set->ops->read(set, 3 * ROWS, 1, (void *[]){x, &y}), TR_ERR_NOINPUT);
    assert_names(tr_error_last()->message, "f0003.h5");
    tr_error_clear();
    tr_dataset_close(&set);
}

/* -- one sample a file ------------------------------------------------------------------------- */

enum { SAMPLES = 12, D = 4, H = 5, W = 6, C = 2, VOLUME = D * H * W * C };

static float value_of(int number, int i) {
    return (float)(number * 1000 + i);
}

/* As CosmoFlow's files: the volume `full` and the vector `unitPar`. */
static void put_volume_as(int number, int depth, const hsize_t *chunk, const char *y_name) {
    const hsize_t dim[] = {(hsize_t)depth, H, W, C}, targets = 3;
    float x[2 * VOLUME], y[] = {(float)number, 0.5f, -1};
    for (int i = 0; i < 2 * VOLUME; i++) x[i] = value_of(number, i);
    hid_t file = create(number);
    put(file, "full", H5T_NATIVE_FLOAT, 4, dim, chunk, x);
    put(file, y_name, H5T_NATIVE_FLOAT, 1, &targets, NULL, y);
    H5Fclose(file);
}

static void put_volume(int number, int depth, const hsize_t *chunk) {
    put_volume_as(number, depth, chunk, "unitPar");
}

static void check_volumes(void) {
    tr_data_settings_t settings = test_settings();
    settings.sample = TR_SAMPLE_FILE;
    tr_dataset_t *set = open_files(settings);
    const tr_shape_t shape = TR_SHAPE(D, H, W, C), targets = TR_SHAPE(3);
    static float x[SAMPLES][VOLUME], y[SAMPLES][3];
    assert_int_equal(set->info.samples, SAMPLES);
    assert_int_equal(set->info.classes, 0);
    assert_true(tr_shape_equal(&set->info.field[0].shape, &shape));
    assert_true(tr_shape_equal(&set->info.field[1].shape, &targets));
    OK(set->ops->read(set, 0, SAMPLES, (void *[]){x, y}));
    for (int n = 0; n < SAMPLES; n++) {
        for (int i = 0; i < VOLUME; i++) assert_true(x[n][i] == value_of(n, i));
        assert_true(y[n][0] == (float)n && y[n][1] == 0.5f && y[n][2] == -1);
    }
    OK(set->ops->read(set, SAMPLES - 1, 1, (void *[]){x, y}));
    assert_true(x[0][VOLUME - 1] == value_of(SAMPLES - 1, VOLUME - 1));
    tr_dataset_close(&set);
}

static void a_file_is_a_sample(void **state) {
    static const hsize_t chunks[][4] = {{0}, {D, H, W, C}, {1, H, W, C}, {3, 2, 4, 1}};
    for (size_t i = 0; i < TR_COUNT(chunks); i++) {
        for (int n = 0; n < SAMPLES; n++) put_volume(n, D, i ? chunks[i] : NULL);
        check_volumes();
    }
    tr_data_settings_t settings = test_settings();
    check_refused(settings, TR_ERR_DATA, "full & 4 & unitPar & 3 & data.sample = file");
    settings.sample = TR_SAMPLE_FILE;
    put_volume(7, D + 1, NULL);
    check_refused(settings, TR_ERR_DATA, "f0007.h5 & full & (4, 5, 6, 2) f32 & (5, 5, 6, 2) f32");
    clear();
}

static void check_read_refused(tr_dataset_t *set, int number, tr_status_t code, const char *names) {
    static float x[VOLUME], y[3];
    assert_int_equal(set->ops->read(set, number, 1, (void *[]){x, y}), code);
    assert_names(tr_error_last()->message, names);
    tr_error_clear();
}

static void late_files_are_checked_when_they_are_read(void **state) {
    enum { LATE = H5_EARLY + 4 }; /* 260 */
    static const hsize_t chunk[] = {D, H, W, C}, dim[] = {D, H, W, C};
    static double wide[VOLUME];
    static float x[VOLUME], y[3];
    char path[1024];
    tr_data_settings_t settings = test_settings();
    settings.sample = TR_SAMPLE_FILE;
    for (int n = 0; n < LATE + 10; n++) put_volume(n, D, NULL);
    put_volume(LATE, D + 1, NULL);
    put_volume_as(LATE + 1, D, NULL, "other");
    put_volume(LATE + 2, D, chunk); /* the first ones need no memory for chunks */
    hid_t file = create(LATE + 3);
    put(file, "full", H5T_NATIVE_DOUBLE, 4, dim, NULL, wide);
    put(file, "unitPar", H5T_NATIVE_FLOAT, 1, (hsize_t[]){3}, NULL, y);
    H5Fclose(file);
    tr_dataset_t *set = open_files(settings);
    assert_int_equal(set->info.samples, LATE + 10);
    snprintf(path, sizeof path, "%s/f%04d.h5", folder, LATE + 4);
    unlink(path);
    set->ops->expect(set, H5_EARLY - 2, 16);
    check_read_refused(set, LATE, TR_ERR_DATA,
                       "f0000.h5 & f0260.h5 & full & (4, 5, 6, 2) f32 & (5, 5, 6, 2) f32");
    check_read_refused(set, LATE + 1, TR_ERR_DATA, "f0000.h5 & f0261.h5 & unitPar");
    check_read_refused(set, LATE + 3, TR_ERR_DATA,
                       "f0263.h5 & full & (4, 5, 6, 2) f32 & (4, 5, 6, 2) f64");
    check_read_refused(set, LATE + 4, TR_ERR_NOINPUT, "data.train & f0264.h5");
    for (int pass = 0; pass < 2; pass++)
        for (int n = 0; n < LATE + 10; n++) {
            if (n == LATE || n == LATE + 1 || n == LATE + 3 || n == LATE + 4) continue;
            OK(set->ops->read(set, n, 1, (void *[]){x, y}));
            assert_true(x[0] == value_of(n, 0) && x[VOLUME - 1] == value_of(n, VOLUME - 1));
            assert_true(y[0] == (float)n && y[2] == -1);
        }
    tr_dataset_close(&set);
    clear();
}

static void the_label_of_a_file_may_be_a_scalar(void **state) {
    static const hsize_t dim[] = {H, W};
    tr_data_settings_t settings = test_settings();
    settings.sample = TR_SAMPLE_FILE;
    for (int n = 0; n < SAMPLES; n++) {
        const int64_t label = n % 3;
        uint8_t x[H * W];
        memset(x, n, sizeof x);
        hid_t file = create(n);
        put(file, "image", H5T_NATIVE_UINT8, 2, dim, NULL, x);
        put(file, "label", H5T_NATIVE_INT64, 0, NULL, NULL, &label);
        H5Fclose(file);
    }
    tr_dataset_t *set = open_files(settings);
    const tr_shape_t shape = TR_SHAPE(H, W, 1);
    static uint8_t x[SAMPLES][H * W];
    int32_t y[SAMPLES];
    assert_int_equal(set->info.classes, 3);
    assert_true(tr_shape_equal(&set->info.field[0].shape, &shape));
    OK(set->ops->read(set, 0, SAMPLES, (void *[]){x, y}));
    for (int n = 0; n < SAMPLES; n++)
        assert_true(y[n] == n % 3 && x[n][0] == n && x[n][H * W - 1] == n);
    tr_dataset_close(&set);
    clear();
}

/* -- what looks like one sample a file --------------------------------------------------------- */

static int hints;

static void count_hints(void *self, tr_log_level_t level, const char *line) {
    hints += level == TR_LOG_WARN && strstr(line, "data.sample = file") && strstr(line, "12 files");
}

/* As DeepCAM's files: a picture of several channels, and a mask of its size. */
static void put_picture(int number, int height) {
    const hsize_t dim[] = {(hsize_t)height, W, C};
    float x[2 * H * W * C] = {0};
    uint8_t mask[2 * H * W] = {0};
    hid_t file = create(number);
    put(file, "climate/data", H5T_NATIVE_FLOAT, 3, dim, NULL, x);
    put(file, "climate/labels_0", H5T_NATIVE_UINT8, 2, dim, NULL, mask);
    H5Fclose(file);
}

static void open_and_count(tr_data_sample_t sample, int expected) {
    tr_data_settings_t settings = test_settings();
    settings.sample = sample;
    settings.classes = 0;
    hints = 0;
    tr_log_set_sink(count_hints, NULL);
    tr_dataset_t *set = open_files(settings);
    tr_log_set_sink(NULL, NULL);
    assert_int_equal(hints, expected);
    tr_dataset_close(&set);
}

static void pictures_with_masks_get_a_hint(void **state) {
    for (int n = 0; n < SAMPLES; n++) put_picture(n, H);
    open_and_count(TR_SAMPLE_ROW, 1);
    open_and_count(TR_SAMPLE_FILE, 0);
    put_picture(5, H + 1); /* samples, of which one file has more */
    open_and_count(TR_SAMPLE_ROW, 0);
    clear();
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(files_are_opened_when_they_are_read),
        cmocka_unit_test(a_file_that_does_not_fit_is_named),
        cmocka_unit_test(a_file_is_a_sample),
        cmocka_unit_test(late_files_are_checked_when_they_are_read),
        cmocka_unit_test(the_label_of_a_file_may_be_a_scalar),
        cmocka_unit_test(pictures_with_masks_get_a_hint),
        cmocka_unit_test(masks_that_differ_are_named),
        cmocka_unit_test(a_file_at_rest_that_was_changed_is_refused),
    };
    return cmocka_run_group_tests_name("files", tests, setup, teardown);
}
