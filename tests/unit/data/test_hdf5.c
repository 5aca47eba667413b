//TEST np=1
/* HDF5 files as people have them, written here with the library and read back bit for bit. */
#include "data_test.h"
#include "data/preprocess/preprocess.h"
#include "data/hdf5/hdf5_source.h"
#include "datatools/datatools.h"
#include "trainer/log.h"
#include "base/mem.h"
#include "base/rng.h"
#include <hdf5.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include "../../support/ok.h"

static char folder[512];
static char path[1024];

static int setup(void **state) {
    if (!test_folder_make(folder)) return -1;
    snprintf(path, sizeof path, "%s/a.h5", folder);
    H5Eset_auto2(H5E_DEFAULT, NULL, NULL);
    return 0;
}
static int teardown(void **state) {
    return rmdir(folder);
}

/* -- writing ----------------------------------------------------------------------------------- */

static hid_t create(hsize_t user_block, bool latest) {
    hid_t made = H5Pcreate(H5P_FILE_CREATE), access = H5Pcreate(H5P_FILE_ACCESS);
    if (user_block) H5Pset_userblock(made, user_block);
    if (latest) H5Pset_libver_bounds(access, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, made, access);
    H5Pclose(made);
    H5Pclose(access);
    assert_true(file >= 0);
    return file;
}

typedef struct {
    hsize_t chunk[6]; /* chunk[0] 0: contiguous */
    int gzip;         /* level + 1 */
    bool shuffle, checksum, compact, growing;
    bool plain_edges; /* chunks that are not full have no filters */
} storage_t;
static const storage_t contiguous;

/* data NULL: allocated, not written. */
static void put(hid_t file, const char *name, int ndim, const hsize_t *dim, hid_t file_type,
                hid_t memory_type, const void *data, storage_t how) {
    hid_t links = H5Pcreate(H5P_LINK_CREATE), made = H5Pcreate(H5P_DATASET_CREATE);
    hsize_t most[6];
    for (int d = 0; d < ndim; d++) most[d] = d || !how.growing ? dim[d] : H5S_UNLIMITED;
    hid_t space = H5Screate_simple(ndim, dim, most);
    H5Pset_create_intermediate_group(links, 1);
    if (how.compact) H5Pset_layout(made, H5D_COMPACT);
    if (how.chunk[0]) H5Pset_chunk(made, ndim, how.chunk);
    if (how.shuffle) H5Pset_shuffle(made);
    if (how.gzip) H5Pset_deflate(made, (unsigned)how.gzip - 1);
    if (how.checksum) H5Pset_fletcher32(made);
    if (how.plain_edges) H5Pset_chunk_opts(made, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
    if (!data) H5Pset_alloc_time(made, H5D_ALLOC_TIME_EARLY);
    hid_t id = H5Dcreate2(file, name, file_type, space, links, made, H5P_DEFAULT);
    assert_true(id >= 0);
    if (data) assert_true(H5Dwrite(id, memory_type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) >= 0);
    H5Dclose(id);
    H5Sclose(space);
    H5Pclose(links);
    H5Pclose(made);
}

static void put_attribute(hid_t object, const char *name, hid_t type, hsize_t count,
                          const void *data) {
    hid_t space = count ? H5Screate_simple(1, &count, NULL) : H5Screate(H5S_SCALAR);
    hid_t attribute = H5Acreate2(object, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, type, data) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
}

/* -- reading ----------------------------------------------------------------------------------- */

static tr_dataset_t *open_with(tr_data_settings_t settings, tr_split_t split) {
    tr_dataset_t *dataset = NULL;
    if (!*settings.train && !*settings.test) settings.train = path;
    OK(tr_dataset_open(&settings, split, &dataset));
    return dataset;
}

static tr_dataset_t *open_plain(void) {
    return open_with(test_settings(), TR_SPLIT_TRAIN);
}

/* All samples in reads of `step`, from the end on, must equal `x` and `y` (NULL: not compared). */
static void check_reads(tr_dataset_t *dataset, int64_t step, const void *x, const void *y) {
    int64_t n = dataset->info.samples;
    size_t xb = (size_t)dataset->info.field[0].sample_bytes,
           yb = (size_t)dataset->info.field[1].sample_bytes;
    char *xs = malloc((size_t)step * xb), *ys = malloc((size_t)step * (yb ? yb : 1));
    for (int64_t first = (n - 1) / step * step; first >= 0; first -= step) {
        int64_t count = step < n - first ? step : n - first;
        void *dst[] = {xs, y ? ys : NULL};
        OK(dataset->ops->read(dataset, first, count, dst));
        assert_memory_equal(xs, (const char *)x + (size_t)first * xb, (size_t)count * xb);
        if (y) assert_memory_equal(ys, (const char *)y + (size_t)first * yb, (size_t)count * yb);
    }
    free(xs);
    free(ys);
}

static void check_all(tr_dataset_t *dataset, const void *x, const void *y) {
    static const int64_t steps[] = {1, 3, 7, 1000};
    for (size_t i = 0; i < TR_COUNT(steps); i++) check_reads(dataset, steps[i], x, y);
    tr_dataset_close(&dataset);
    assert_int_equal(unlink(path), 0);
}

#define N 23
enum { H = 5, W = 6, C = 3, IMAGE = H * W * C };
static uint8_t images[N * IMAGE];
static int32_t labels[N];
static const hsize_t image_dims[] = {N, H, W, C}, label_dims[] = {N};

static void make_images(void) {
    for (int i = 0; i < N * IMAGE; i++) images[i] = (uint8_t)(i * 7 + i / 11);
    for (int i = 0; i < N; i++) labels[i] = i * i % 10;
}

static void test_storage(void **state) {
    static const storage_t how[] = {
        {.gzip = 0},
        {.compact = true},
        {.chunk = {4, H, W, C}},
        {.chunk = {1, H, W, C}},
        {.chunk = {100, H, W, C}, .growing = true},
        {.chunk = {4, 2, 4, 1}},
        {.chunk = {5, 1, 6, 2}, .growing = true},
        {.chunk = {4, H, W, C}, .gzip = 2},
        {.chunk = {4, 2, 4, 2}, .gzip = 7, .shuffle = true},
        {.chunk = {3, H, W, C}, .checksum = true},
        {.chunk = {3, 2, W, C}, .checksum = true},
        {.chunk = {6, H, W, C}, .gzip = 5, .shuffle = true, .checksum = true, .growing = true},
        {.chunk = {4, 2, 4, 2}, .gzip = 3, .plain_edges = true},
        {.chunk = {6, H, W, C}, .checksum = true, .growing = true, .plain_edges = true},
    };
    static const hsize_t user_blocks[] = {0, 512, 4096};
    make_images();
    for (size_t u = 0; u < TR_COUNT(user_blocks); u++)
        for (int latest = 0; latest < 2; latest++)
            for (size_t i = 0; i < TR_COUNT(how); i++) {
                hid_t file = create(user_blocks[u], latest);
                put(file, "images", 4, image_dims, H5T_STD_U8LE, H5T_NATIVE_UINT8, images, how[i]);
                put(file, "labels", 1, label_dims, H5T_STD_I64BE, H5T_NATIVE_INT32, labels,
                    contiguous);
                H5Fclose(file);
                tr_dataset_t *set = open_plain();
                assert_int_equal(set->info.samples, N);
                assert_int_equal(set->info.classes, 10);
                assert_int_equal(set->info.field[0].dtype, TR_U8);
                if (!how[i].compact && !how[i].plain_edges)
                    assert_names(set->info.description, "pread");
                check_all(set, images, labels);
            }
}

/* Each numeric type, in both byte orders, contiguous and chunked; the wide ones travel as f32. */
static void test_types(void **state) {
    const struct {
        hid_t le, be, memory;
        tr_dtype_t travels;
    } types[] = {
        {H5T_STD_I8LE, H5T_STD_I8BE, H5T_NATIVE_INT8, TR_I8},
        {H5T_STD_U16LE, H5T_STD_U16BE, H5T_NATIVE_UINT16, TR_U16},
        {H5T_STD_I16LE, H5T_STD_I16BE, H5T_NATIVE_INT16, TR_I16},
        {H5T_STD_I32LE, H5T_STD_I32BE, H5T_NATIVE_INT32, TR_I32},
        {H5T_STD_U32LE, H5T_STD_U32BE, H5T_NATIVE_UINT32, TR_F32},
        {H5T_STD_I64LE, H5T_STD_I64BE, H5T_NATIVE_INT64, TR_F32},
        {H5T_STD_U64LE, H5T_STD_U64BE, H5T_NATIVE_UINT64, TR_F32},
        {H5T_IEEE_F32LE, H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, TR_F32},
        {H5T_IEEE_F64LE, H5T_IEEE_F64BE, H5T_NATIVE_DOUBLE, TR_F32},
    };
    const storage_t how[] = {{.gzip = 0},
                             {.chunk = {4, 3}, .gzip = 4, .shuffle = true},
                             {.chunk = {4, 3}, .shuffle = true, .plain_edges = true}};
    double values[N * 7];
    float floats[N * 7];
    hsize_t dims[] = {N, 7};
    for (int i = 0; i < N * 7; i++) values[i] = i % 100;
    for (int i = 0; i < N * 7; i++) floats[i] = (float)values[i];
    for (size_t t = 0; t < TR_COUNT(types); t++)
        for (int big = 0; big < 2; big++)
            for (size_t h = 0; h < TR_COUNT(how); h++) {
                hid_t file = create(0, false);
                put(file, "x", 2, dims, big ? types[t].be : types[t].le, H5T_NATIVE_DOUBLE, values,
                    how[h]);
                H5Fclose(file);
                tr_dataset_t *set = open_plain();
                assert_int_equal(set->info.field_count, 1);
                assert_int_equal(set->info.field[0].dtype, types[t].travels);
                double native[N * 7]; /* the values as the library makes them */
                memcpy(native, values, sizeof native);
                H5Tconvert(H5T_NATIVE_DOUBLE, types[t].memory, N * 7, native, NULL, H5P_DEFAULT);
                check_all(set, types[t].travels == TR_F32 ? (void *)floats : native, NULL);
            }
}

/* For H5Tclose. */
static hid_t half_type(bool big) {
    hid_t half = H5Tcopy(big ? H5T_IEEE_F32BE : H5T_IEEE_F32LE);
    H5Tset_fields(half, 15, 10, 5, 0, 10);
    H5Tset_size(half, 2);
    H5Tset_ebias(half, 15);
    return half;
}

static void half_floats(void **state) {
    static const uint16_t halves[] = {0x0000, 0x8000, 0x3c00, 0xc000,
                                      0x7bff, 0x0001, 0x03ff, 0x3555};
    hsize_t dims[] = {8, 1};
    for (int i = 0; i < 4; i++) {
        const bool big = i % 2, compact = i / 2; /* compact: read by the library */
        hid_t half = half_type(big), file = create(0, false);
        uint16_t stored[8];
        for (int j = 0; j < 8; j++) stored[j] = big ? __builtin_bswap16(halves[j]) : halves[j];
        put(file, "x", 2, dims, half, half, stored, (storage_t){.compact = compact});
        H5Fclose(file);
        H5Tclose(half);
        tr_dataset_t *set = open_plain();
        assert_int_equal(set->info.field[0].dtype, TR_F16);
        check_all(set, halves, NULL);
    }
}

/* Else a chunk is decoded anew for each sample. */
static void the_library_keeps_chunks(void **state) {
    const hsize_t dims[] = {4, 1 << 20}, chunk[] = {4, 1 << 20};
    h5_file_t opened;
    h5_array_t array;
    size_t bytes;
    hid_t file = create(0, false), made = H5Pcreate(H5P_DATASET_CREATE),
          space = H5Screate_simple(2, dims, NULL);
    H5Pset_chunk(made, 2, chunk), H5Pset_nbit(made);
    H5Dclose(H5Dcreate2(file, "x", H5T_STD_U8LE, space, H5P_DEFAULT, made, H5P_DEFAULT));
    H5Pclose(made), H5Sclose(space), H5Fclose(file);
    OK(tr_h5_file_open("test", path, &opened));
    OK(tr_h5_array_open(&opened, "x", &array));
    hid_t access = H5Dget_access_plist(array.id);
    H5Pget_chunk_cache(access, NULL, &bytes, NULL);
    assert_true(bytes >= 4 << 20);
    H5Pclose(access);
    tr_h5_array_close(&array);
    tr_h5_file_close(&opened);
    unlink(path);
}

/* Channels first in the file, last in memory; for u8, big-endian i16 and f64. */
static void test_channels_first(void **state) {
    const hid_t types[] = {H5T_STD_U8LE, H5T_STD_I16BE, H5T_IEEE_F64LE};
    const tr_dtype_t travels[] = {TR_U8, TR_I16, TR_F32};
    hsize_t dims[] = {N, 3, 10, 12};
    uint8_t first[N * 360], last[N * 360];
    int16_t last16[N * 360];
    float last32[N * 360];
    for (int i = 0; i < N * 360; i++) first[i] = (uint8_t)(i * 13 + i / 7);
    for (int n = 0; n < N; n++)
        for (int c = 0; c < 3; c++)
            for (int p = 0; p < 120; p++) last[n * 360 + p * 3 + c] = first[n * 360 + c * 120 + p];
    for (int i = 0; i < N * 360; i++) last16[i] = last[i], last32[i] = last[i];
    const void *expected[] = {last, last16, last32};
    for (int t = 0; t < 3; t++)
        for (int chunked = 0; chunked < 2; chunked++) {
            hid_t file = create(0, false);
            put(file, "data", 4, dims, types[t], H5T_NATIVE_UINT8, first,
                chunked ? (storage_t){.chunk = {5, 1, 10, 12}, .gzip = 2} : contiguous);
            H5Fclose(file);
            tr_dataset_t *set = open_plain();
            tr_shape_t shape = TR_SHAPE(10, 12, 3);
            assert_int_equal(set->info.field[0].dtype, travels[t]);
            assert_true(tr_shape_equal(&set->info.field[0].shape, &shape));
            check_all(set, expected[t], NULL);
        }
}

static void check_shape(int ndim, const hsize_t *dims, int layout, tr_shape_t expected) {
    tr_data_settings_t settings = test_settings();
    hid_t file = create(0, false);
    put(file, "x", ndim, dims, H5T_STD_U8LE, H5T_NATIVE_UINT8, NULL, contiguous);
    H5Fclose(file);
    settings.layout = layout;
    tr_dataset_t *set = open_with(settings, TR_SPLIT_TRAIN);
    char a[96], b[96];
    assert_string_equal(tr_shape_format(&set->info.field[0].shape, a),
                        tr_shape_format(&expected, b));
    /* never written: all zero */
    void *x = malloc((size_t)set->info.field[0].sample_bytes), *dst[] = {x};
    memset(x, 1, (size_t)set->info.field[0].sample_bytes);
    OK(set->ops->read(set, 1, 1, dst));
    for (int64_t i = 0; i < set->info.field[0].sample_bytes; i++)
        assert_int_equal(((char *)x)[i], 0);
    free(x);
    tr_dataset_close(&set);
    unlink(path);
}

static void test_shapes(void **state) {
    check_shape(1, (hsize_t[]){9}, TR_LAYOUT_AUTO, TR_SHAPE(1));
    check_shape(2, (hsize_t[]){9, 13}, TR_LAYOUT_AUTO, TR_SHAPE(13));
    check_shape(3, (hsize_t[]){9, 28, 28}, TR_LAYOUT_AUTO, TR_SHAPE(28, 28, 1));
    check_shape(3, (hsize_t[]){9, 2, 28}, TR_LAYOUT_NCHW, TR_SHAPE(28, 2));
    check_shape(3, (hsize_t[]){9, 28, 2}, TR_LAYOUT_NHWC, TR_SHAPE(28, 2));
    check_shape(4, (hsize_t[]){9, 32, 32, 3}, TR_LAYOUT_AUTO, TR_SHAPE(32, 32, 3));
    check_shape(4, (hsize_t[]){9, 3, 32, 32}, TR_LAYOUT_AUTO, TR_SHAPE(32, 32, 3));
    check_shape(4, (hsize_t[]){9, 1, 28, 28}, TR_LAYOUT_AUTO, TR_SHAPE(28, 28, 1));
    check_shape(4, (hsize_t[]){9, 28, 28, 1}, TR_LAYOUT_AUTO, TR_SHAPE(28, 28, 1));
    check_shape(4, (hsize_t[]){2, 20, 90, 180}, TR_LAYOUT_AUTO, TR_SHAPE(90, 180, 20));
    check_shape(4, (hsize_t[]){2, 90, 180, 20}, TR_LAYOUT_AUTO, TR_SHAPE(90, 180, 20));
    check_shape(4, (hsize_t[]){2, 24, 24, 24}, TR_LAYOUT_AUTO, TR_SHAPE(24, 24, 24, 1));
    check_shape(4, (hsize_t[]){2, 8, 8, 16}, TR_LAYOUT_AUTO, TR_SHAPE(8, 8, 16));
    check_shape(4, (hsize_t[]){2, 8, 9, 10}, TR_LAYOUT_NHW, TR_SHAPE(8, 9, 10, 1));
    check_shape(5, (hsize_t[]){2, 16, 16, 16, 4}, TR_LAYOUT_AUTO, TR_SHAPE(16, 16, 16, 4));
    check_shape(5, (hsize_t[]){2, 4, 16, 16, 16}, TR_LAYOUT_AUTO, TR_SHAPE(16, 16, 16, 4));
}

static void put_x(hid_t file, const char *name, hsize_t rows) {
    put(file, name, 2, (hsize_t[]){rows, 2}, H5T_STD_U8LE, H5T_NATIVE_UINT8, NULL, contiguous);
}

static void test_labels(void **state) {
    float one_hot[N * 4] = {0}, numbers[N * 4], whole[N];
    int8_t flags[N];
    for (int i = 0; i < N; i++)
        one_hot[i * 4 + i % 4] = 1, labels[i] = i % 4, whole[i] = (float)(i % 4), flags[i] = i % 2;
    for (int i = 0; i < N * 4; i++) numbers[i] = (float)i / 3;
    /* one-hot */
    hid_t file = create(0, false);
    put_x(file, "x", N);
    put(file, "y", 2, (hsize_t[]){N, 4}, H5T_IEEE_F64BE, H5T_NATIVE_FLOAT, one_hot,
        (storage_t){.chunk = {5, 4}, .gzip = 1});
    H5Fclose(file);
    tr_dataset_t *set = open_plain();
    assert_int_equal(set->info.classes, 4);
    uint8_t zeros[2 * N] = {0};
    check_all(set, zeros, labels);
    /* (N, 1) floats with whole values */
    file = create(0, false);
    put_x(file, "x", N);
    put(file, "targets", 2, (hsize_t[]){N, 1}, H5T_IEEE_F32BE, H5T_NATIVE_FLOAT, whole, contiguous);
    H5Fclose(file);
    set = open_plain();
    assert_int_equal(set->info.classes, 4);
    check_reads(set, 5, zeros, labels);
    tr_dataset_close(&set);
    tr_data_settings_t settings = test_settings();
    settings.classes = 0; /* the same as numbers to predict */
    set = open_with(settings, TR_SPLIT_TRAIN);
    assert_int_equal(set->info.classes, 0);
    assert_int_equal(set->info.field[1].dtype, TR_F32);
    check_reads(set, 5, zeros, whole);
    tr_dataset_close(&set);
    settings.classes = 3; /* out of range */
    settings.train = path;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_DATA);
    assert_error_names("/targets & 3");
    unlink(path);
    /* regression with several values */
    file = create(0, false);
    put_x(file, "x", N);
    put(file, "y", 2, (hsize_t[]){N, 4}, H5T_IEEE_F64LE, H5T_NATIVE_FLOAT, numbers, contiguous);
    H5Fclose(file);
    set = open_plain();
    assert_int_equal(set->info.classes, 0);
    assert_int_equal(set->info.field[1].shape.dim[0], 4);
    check_all(set, zeros, numbers);
    /* values that stand for classes, and such that look like it */
    const float value[] = {-1, 255, 7, 2};
    for (int i = 0; i < N; i++) whole[i] = value[labels[i]];
    file = create(0, false);
    put_x(file, "x", N);
    put(file, "y", 1, label_dims, H5T_STD_I16LE, H5T_NATIVE_FLOAT, whole, contiguous);
    H5Fclose(file);
    settings = test_settings();
    settings.label_values = "-1,255,7,2";
    set = open_with(settings, TR_SPLIT_TRAIN);
    assert_int_equal(set->info.classes, 4);
    assert_names(set->info.label_shares, "1 (255): 26.1 %");
    check_reads(set, 5, zeros, labels);
    tr_dataset_close(&set);
    settings.label_values = "-1,255,7";
    settings.train = path;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_DATA);
    assert_error_names("/y & 3 & 2 & data.label_values");
    settings.label_values = " -1, 255,7 ,2";
    settings.classes = 3;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_CONFIG);
    assert_error_names("data.label_values & data.classes & 3");
    unlink(path);
    for (int i = 0; i < N; i++) whole[i] = i % 2 ? 255 : 0;
    file = create(0, false);
    put_x(file, "x", N);
    put(file, "y", 1, label_dims, H5T_STD_U8LE, H5T_NATIVE_FLOAT, whole, contiguous);
    H5Fclose(file);
    set = open_plain();
    assert_int_equal(set->info.classes, 256);
    assert_names(set->info.label_doubt, "/y & 0,255 & 256 & data.label_values = 0,255");
    tr_dataset_close(&set);
    unlink(path);
    /* class numbers, as which 32-bit floats would take two of these for one */
    const int32_t large[] = {16777216, 16777217, 16777218, 2147483647};
    int32_t stored[N];
    for (int i = 0; i < N; i++) stored[i] = large[labels[i]];
    file = create(0, false);
    put_x(file, "x", N);
    put(file, "y", 1, label_dims, H5T_STD_I32LE, H5T_NATIVE_INT32, stored, contiguous);
    H5Fclose(file);
    settings = test_settings();
    settings.label_values = "16777216,16777217,16777218,2147483647";
    set = open_with(settings, TR_SPLIT_TRAIN);
    assert_int_equal(set->info.names[TR_NAMES_CLASSES].count, 4);
    assert_string_equal(set->info.names[TR_NAMES_CLASSES].name[1], "16777217");
    check_all(set, zeros, labels);
    /* h5py's booleans */
    hid_t boolean = H5Tenum_create(H5T_STD_I8LE);
    H5Tenum_insert(boolean, "FALSE", (int8_t[]){0});
    H5Tenum_insert(boolean, "TRUE", (int8_t[]){1});
    file = create(0, false);
    put_x(file, "x", N);
    put(file, "y", 1, label_dims, boolean, boolean, flags, contiguous);
    H5Fclose(file);
    H5Tclose(boolean);
    set = open_plain();
    assert_int_equal(set->info.classes, 2);
    for (int i = 0; i < N; i++) labels[i] = flags[i];
    check_all(set, zeros, labels);
}

/* A file of x (ndim, dims) and y: opened with the settings, its y must have this kind, shape and
 * values; NULL: any. */
static void check_dense(int ndim, const hsize_t *x, int y_ndim, const hsize_t *y, hid_t y_type,
                        const void *values, tr_data_settings_t settings, int64_t classes,
                        tr_shape_t shape, const void *expected) {
    hid_t file = create(0, false);
    put(file, "x", ndim, x, H5T_STD_U8LE, H5T_NATIVE_UINT8, NULL, contiguous);
    put(file, "y", y_ndim, y, y_type, y_type, values, contiguous);
    H5Fclose(file);
    tr_dataset_t *set = open_with(settings, TR_SPLIT_TRAIN);
    char a[96], b[96];
    assert_int_equal(set->info.classes, classes);
    assert_int_equal(set->info.field[1].kind, classes > 0 ? TR_FIELD_LABELS : TR_FIELD_VALUES);
    assert_string_equal(tr_shape_format(&set->info.field[1].shape, a), tr_shape_format(&shape, b));
    if (expected) {
        const size_t bytes = (size_t)set->info.field[1].sample_bytes;
        char *found = malloc(bytes);
        for (int64_t i = set->info.samples; i-- > 0;) {
            OK(set->ops->read(set, i, 1, (void *[]){NULL, found}));
            assert_memory_equal(found, (const char *)expected + (size_t)i * bytes, bytes);
        }
        free(found);
    }
    tr_dataset_close(&set);
    unlink(path);
}

/* A few masks for validation or test may lack classes; those for training may not. */
static void few_labels_of_positions(void **state) {
    const hsize_t pictures[] = {1, 2, 4, 1}, masks[] = {1, 2, 4};
    const int32_t grey[] = {0, 15, 0, 15, 15, 0, 0, 0}, one[] = {5, 5, 5, 5, 5, 5, 5, 5};
    tr_data_settings_t settings = test_settings();
    settings.layout = TR_LAYOUT_NHWC;
    for (int only = 0; only < 2; only++) {
        tr_dataset_t *set;
        hid_t file = create(0, false);
        put(file, "x", 4, pictures, H5T_STD_U8LE, H5T_NATIVE_UINT8, NULL, contiguous);
        put(file, "y", 3, masks, H5T_NATIVE_INT32, H5T_NATIVE_INT32, only ? one : grey, contiguous);
        H5Fclose(file);
        settings.train = settings.valid = path;
        assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_CONFIG);
        assert_error_names(only ? "/y & 6 classes & data.classes = 6"
                                : "/y & 0,15 & data.label_values = 0,15 & data.classes = 16");
        if (only) assert_null(strstr(tr_error_last()->message, "data.label_values"));
        OK(tr_dataset_open(&settings, TR_SPLIT_VALID, &set));
        assert_int_equal(set->info.classes, only ? 6 : 16);
        assert_int_equal(set->info.label_count[0], only ? 0 : 5);
        assert_int_equal(set->info.label_count[only ? 5 : 15], only ? 8 : 3);
        tr_dataset_close(&set);
    }
    settings.label_values = "0,15";
    settings.ignore_label = "15";
    tr_dataset_t *set;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_CONFIG);
    assert_error_names("data.ignore_label = 15 & data.label_values");
    unlink(path);
}

/* Opens masks (2, 32, 32, channels) of this type for training: status and error, or the doubt. */
static tr_status_t open_masks(hid_t type, int channels, const float *values, tr_str_t *doubt) {
    const hsize_t x[] = {2, 32, 32, 1}, y[] = {2, 32, 32, (hsize_t)channels};
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set;
    hid_t file = create(0, false);
    put(file, "x", 4, x, H5T_STD_U8LE, H5T_NATIVE_UINT8, NULL, contiguous);
    put(file, "y", 4, y, type, H5T_NATIVE_FLOAT, values, contiguous);
    H5Fclose(file);
    settings.train = path;
    tr_status_t status = tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set);
    if (status == TR_OK) {
        OK(tr_targets_doubt(set, doubt));
        tr_dataset_close(&set);
    }
    unlink(path);
    return status;
}

/* What looks like a mask, and is not one of class numbers. */
static void masks_that_are_doubtful(void **state) {
    static float black[2 * 32 * 32], lossy[2 * 32 * 32], many[2 * 32 * 32], hot[3 * 2 * 32 * 32];
    for (int i = 0; i < 2 * 32 * 32; i++) {
        const int k = i % 40;
        black[i] = i % 32 > 20 ? 255 : 0;
        lossy[i] = k < 12 ? (black[i] > 0 ? 255.0F - (float)k : (float)k) : black[i];
        many[i] = (float)(i % 20 * 13);
        hot[3 * i + i % 3] = 255;
    }
    tr_str_t doubt = {0};
    OK(open_masks(H5T_IEEE_F32LE, 1, black, &doubt));
    assert_names(doubt.text,
                 "0,255 & data.label_values = 0,255 & binary_cross_entropy & data.classes = 0");
    tr_str_free(&doubt);
    for (int i = 0; i < 2 * 32 * 32; i++) black[i] /= 255;
    OK(open_masks(H5T_IEEE_F64LE, 1, black, &doubt));
    assert_names(doubt.text, "0,1 & data.classes = 2 & binary_cross_entropy & data.classes = 0");
    tr_str_free(&doubt);
    OK(open_masks(H5T_STD_U8LE, 3, hot, &doubt));
    assert_names(doubt.text, "0,255 & data.label_values = 0,255 & binary_cross_entropy");
    tr_str_free(&doubt);
    black[7] = 0.5F;
    OK(open_masks(H5T_IEEE_F32LE, 1, black, &doubt));
    assert_null(doubt.text);
    OK(open_masks(H5T_IEEE_F32LE, 1, lossy, &doubt));
    assert_names(doubt.text, "JPEG & data.label_values = 0,255 & data.classes = 0");
    tr_str_free(&doubt);
    assert_int_equal(open_masks(H5T_STD_U8LE, 1, lossy, &doubt), TR_ERR_CONFIG);
    assert_error_names("/y & JPEG & data.label_values = 0,255 & data.classes = 256");
    for (int i = 0; i < 2 * 32 * 32; i++) /* probabilities of three classes */
        for (int c = 0; c < 3; c++) hot[3 * i + c] = i % 3 == c ? 0.8F : 0.1F;
    OK(open_masks(H5T_IEEE_F32LE, 3, hot, &doubt));
    assert_names(doubt.text, "3 & mse & cross_entropy & binary_cross_entropy & data.classes = 0");
    tr_str_free(&doubt);
    hot[70] += 0.1F;
    OK(open_masks(H5T_IEEE_F32LE, 3, hot, &doubt));
    assert_null(doubt.text);
    assert_int_equal(open_masks(H5T_STD_U8LE, 1, many, &doubt), TR_ERR_CONFIG);
    assert_error_names("20 & 0,13,26,39,52,65,78,91 & data.label_values & 19 & data.classes = 248");
    assert_null(strstr(tr_error_last()->message, "104"));
}

static void labels_of_positions(void **state) {
    const hsize_t pictures[] = {3, 2, 4, 3}, first[] = {3, 3, 2, 4}, masks[] = {3, 2, 4},
                  volumes[] = {2, 3, 2, 2, 1}, cubes[] = {2, 3, 2, 2}, series[] = {4, 6, 2},
                  steps[] = {4, 6};
    const tr_data_settings_t plain = test_settings();
    tr_data_settings_t last = plain, settings;
    int32_t label[24], ignored[24];
    int16_t stored[24];
    uint8_t hot[72] = {0}, hot_first[72] = {0};
    last.layout = TR_LAYOUT_NHWC;
    for (int i = 0; i < 24; i++) {
        label[i] = i * 7 % 3;
        stored[i] = (int16_t)(i % 5 ? label[i] : -1);
        ignored[i] = i % 5 ? label[i] : -1;
        hot[3 * i + label[i]] = 1;
        hot_first[i / 8 * 24 + label[i] * 8 + i % 8] = 1;
    }
    check_dense(4, pictures, 3, masks, H5T_NATIVE_INT32, label, last, 3, TR_SHAPE(2, 4), label);
    check_dense(4, pictures, 4, (hsize_t[]){3, 2, 4, 1}, H5T_NATIVE_INT32, label, last, 3,
                TR_SHAPE(2, 4), label);
    check_dense(4, pictures, 4, pictures, H5T_NATIVE_UINT8, hot, last, 3, TR_SHAPE(2, 4), label);
    settings = plain;
    settings.layout = TR_LAYOUT_NCHW;
    check_dense(4, first, 4, first, H5T_NATIVE_UINT8, hot_first, settings, 3, TR_SHAPE(2, 4),
                label);
    check_dense(5, volumes, 4, cubes, H5T_NATIVE_INT32, label, last, 3, TR_SHAPE(3, 2, 2), label);
    settings = last;
    settings.ignore_label = "-1";
    check_dense(4, pictures, 3, masks, H5T_NATIVE_INT16, stored, settings, 3, TR_SHAPE(2, 4),
                ignored);
    settings = last;
    settings.classes = 7;
    check_dense(4, pictures, 3, masks, H5T_NATIVE_INT32, label, settings, 7, TR_SHAPE(2, 4), label);
    /* Values that stand for classes; as numbers, they are the numbers of these. */
    int32_t grey[24];
    float numbers[24];
    for (int i = 0; i < 24; i++) {
        grey[i] = (int[]){9, 0, 255}[label[i]];
        ignored[i] = label[i] - (label[i] == 2 ? 3 : 0);
        numbers[i] = label[i] == 2 ? NAN : (float)label[i];
    }
    settings = last;
    settings.label_values = "9,0,255";
    check_dense(4, pictures, 3, masks, H5T_NATIVE_INT32, grey, settings, 3, TR_SHAPE(2, 4), label);
    settings.label_values = "9,0";
    settings.ignore_label = "255";
    check_dense(4, pictures, 3, masks, H5T_NATIVE_INT32, grey, settings, 2, TR_SHAPE(2, 4),
                ignored);
    settings.classes = 0;
    check_dense(4, pictures, 3, masks, H5T_NATIVE_INT32, grey, settings, 0, TR_SHAPE(2, 4, 1),
                numbers);
    for (int i = 0; i < 24; i++) {
        grey[i] = (1 << 24) + label[i];
        numbers[i] = (float)label[i];
    }
    settings = last;
    settings.label_values = "16777216,16777217,16777218";
    check_dense(4, pictures, 3, masks, H5T_NATIVE_INT32, grey, settings, 3, TR_SHAPE(2, 4), label);
    settings.classes = 0;
    check_dense(4, pictures, 3, masks, H5T_NATIVE_INT32, grey, settings, 0, TR_SHAPE(2, 4, 1),
                numbers);
    /* Two dimensions may also be numbers of a sample: then data.targets decides. */
    check_dense(3, series, 2, steps, H5T_NATIVE_INT32, label, last, 0, TR_SHAPE(6), NULL);
    settings = last;
    settings.targets = TR_TARGETS_POSITION;
    check_dense(3, series, 2, steps, H5T_NATIVE_INT32, label, settings, 3, TR_SHAPE(6), label);
    /* What says otherwise, or has another size, is numbers. */
    settings = last;
    settings.classes = 0;
    check_dense(4, pictures, 3, masks, H5T_NATIVE_INT32, label, settings, 0, TR_SHAPE(2, 4, 1),
                NULL);
    settings = last;
    settings.targets = TR_TARGETS_SAMPLE;
    check_dense(4, pictures, 3, masks, H5T_NATIVE_INT32, label, settings, 0, TR_SHAPE(2, 4), NULL);
    check_dense(4, pictures, 3, (hsize_t[]){3, 4, 2}, H5T_NATIVE_INT32, label, last, 0,
                TR_SHAPE(4, 2), NULL);
    hot[5] = 2;
    check_dense(4, pictures, 4, pictures, H5T_NATIVE_UINT8, hot, last, 0, TR_SHAPE(2, 4, 3), NULL);
}

/* Inputs of two bytes beside labels of positions: only y has NaN for what is missing. */
static void statistics_beside_labels_of_positions(void **state) {
    static const uint16_t halves[] = {0x3c00, 0x4000, 0x4200, 0x4400,
                                      0x3c00, 0x4000, 0x4200, 0x4400}; /* 1, 2, 3, 4 */
    const hsize_t pictures[] = {2, 2, 2, 1}, masks[] = {2, 2, 2};
    const int32_t label[8] = {0, 1, 0, 1, 1, 0, 1, 0};
    hid_t file = create(0, false), half = half_type(false);
    put(file, "x", 4, pictures, half, half, halves, contiguous);
    put(file, "y", 3, masks, H5T_NATIVE_INT32, H5T_NATIVE_INT32, label, contiguous);
    H5Tclose(half), H5Fclose(file);
    tr_dataset_t *set = open_plain();
    tr_sample_stats_t stats = {0};
    assert_true(set->info.is_dense && set->info.field[0].dtype == TR_F16);
    OK(tr_dataset_sample(set, 0, 1 << 20, 4, INFINITY, &stats));
    assert_int_equal(stats.missing, 0);
    assert_int_equal(stats.of[0].count, 8);
    assert_true(stats.of[0].mean == 2.5 && stats.of[0].min == 1 && stats.of[0].max == 4);
    tr_free(&stats.of);
    tr_dataset_close(&set);
    unlink(path);
}

static void targets_of_positions(void **state) {
    const hsize_t pictures[] = {3, 4, 2, 1}, last[] = {3, 4, 2, 2}, first[] = {3, 2, 4, 2};
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = NULL;
    float values[48], moved[48];
    for (int i = 0; i < 48; i++) values[i] = i % 7 ? (float)i / 3 : NAN;
    for (int i = 0; i < 48; i++) moved[i / 16 * 16 + i % 2 * 8 + i % 16 / 2] = values[i];
    settings.layout = TR_LAYOUT_NHWC;
    check_dense(4, pictures, 4, last, H5T_NATIVE_FLOAT, values, settings, 0, TR_SHAPE(4, 2, 2),
                values);
    check_dense(4, pictures, 4, first, H5T_NATIVE_FLOAT, moved, settings, 0, TR_SHAPE(4, 2, 2),
                values);
    check_dense(4, pictures, 3, (hsize_t[]){3, 4, 2}, H5T_NATIVE_FLOAT, values, settings, 0,
                TR_SHAPE(4, 2, 1), values);
    hid_t file = create(0, false);
    put(file, "x", 4, pictures, H5T_STD_U8LE, H5T_NATIVE_UINT8, NULL, contiguous);
    values[21] = INFINITY;
    put(file, "y", 4, last, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, values, contiguous);
    H5Fclose(file);
    set = open_with(settings, TR_SPLIT_TRAIN);
    assert_int_equal(set->ops->read(set, 0, 3, (void *[]){NULL, moved}), TR_ERR_DATA);
    assert_error_names("/y & 1 & element 5");
    tr_dataset_close(&set);
    /* A mask hides both values of position 10, and of no other one. */
    int16_t mask[24];
    for (int i = 0; i < 24; i++) mask[i] = i == 10 ? 0 : 256;
    settings.mask = "counted";
    file = create(0, false);
    put(file, "x", 4, pictures, H5T_STD_U8LE, H5T_NATIVE_UINT8, NULL, contiguous);
    put(file, "y", 4, last, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, values, contiguous);
    put(file, "counted", 3, (hsize_t[]){3, 4, 2}, H5T_STD_I16LE, H5T_NATIVE_INT16, mask,
        contiguous);
    H5Fclose(file);
    set = open_with(settings, TR_SPLIT_TRAIN);
    OK(set->ops->read(set, 0, 3, (void *[]){NULL, moved}));
    for (int i = 0; i < 48; i++)
        assert_true(i / 2 == 10 || isnan(values[i]) ? isnan(moved[i]) : moved[i] == values[i]);
    tr_dataset_close(&set);
    unlink(path);
}

/* Names, groups and splits: FILE, FILE:GROUP, groups of one file, splits in names, several files.
 */
static void check_split(const char *train, const char *valid, tr_split_t split, int64_t samples) {
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = NULL;
    char a[1100], b[1100];
    snprintf(a, sizeof a, "%s%s", *train == ':' ? path : "", train);
    snprintf(b, sizeof b, "%s%s", *valid == ':' ? path : "", valid);
    settings.train = *train ? a : path;
    settings.valid = b;
    OK(tr_dataset_open(&settings, split, &set));
    assert_int_equal(set ? set->info.samples : 0, samples);
    tr_dataset_close(&set);
}

/* Links to data sets of the file are names like others; what is in another file is not read as if
 * it were here. */
static void links(void **state) {
    char other[1100];
    snprintf(other, sizeof other, "%s/other.h5", folder);
    hid_t file = create(0, false);
    put_x(file, "deep/a", 9);
    H5Lcreate_soft("/deep/a", file, "x", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/nowhere", file, "images", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/", file, "deep/loop", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    tr_dataset_t *set = open_plain();
    assert_int_equal(set->info.samples, 9);
    assert_names(set->info.description, "/x");
    tr_dataset_close(&set);
    assert_int_equal(rename(path, other), 0);
    file = create(0, false);
    put_x(file, "b", 4);
    H5Lcreate_external(other, "/deep/a", file, "x", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_external(other, "/deep", file, "away", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/away/a", file, "images", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    tr_data_settings_t settings = test_settings();
    settings.train = path;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_DATA);
    assert_error_names("images & x");
    assert_error_names(other);
    unlink(other);
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_DATA);
    assert_error_names(other);
    unlink(path);
}

static tr_str_t said;
static void keep_said(void *self, tr_log_level_t level, const char *text) {
    tr_str_append(&said, text);
}

/* `path` to a copy, which is opened and has no name any more; what was said is in `said`. */
static hid_t repacked(void) {
    char copy[1100];
    snprintf(copy, sizeof copy, "%s/copy.h5", folder);
    tr_log_set_sink(keep_said, NULL);
    OK(tr_repack(path, copy, &(tr_import_params_t){0}));
    tr_log_set_sink(NULL, NULL);
    hid_t file = H5Fopen(copy, H5F_ACC_RDONLY, H5P_DEFAULT);
    assert_true(file >= 0);
    unlink(copy), unlink(path);
    return file;
}

static void assert_same_object(hid_t file, const char *a, const char *b) {
    H5G_stat_t at_a, at_b;
    assert_return_code(H5Gget_objinfo(file, a, 1, &at_a), 0);
    assert_return_code(H5Gget_objinfo(file, b, 1, &at_b), 0);
    assert_memory_equal(at_a.objno, at_b.objno, sizeof at_a.objno);
}

/* `rows` of them have a checksum in chunks; 0: as it was. */
static void check_dataset(hid_t file, const char *name, const hsize_t dims[2], int rows,
                          const uint8_t *values) {
    uint8_t found[9 * 2];
    hsize_t at[2];
    hid_t id = H5Dopen2(file, name, H5P_DEFAULT), made = H5Dget_create_plist(id),
          space = H5Dget_space(id);
    H5Sget_simple_extent_dims(space, at, NULL);
    assert_memory_equal(at, dims, sizeof at);
    assert_int_equal(H5Pget_nfilters(made), rows > 0);
    assert_return_code(H5Dread(id, H5T_NATIVE_UINT8, H5S_ALL, H5S_ALL, H5P_DEFAULT, found), 0);
    if (rows) assert_memory_equal(found, values, (size_t)rows * 2);
    H5Sclose(space), H5Pclose(made), H5Dclose(id);
}

static void repack_keeps_groups_links_and_types(void **state) {
    static const char name[] =
        "a group with a long name, of which there are many, each within the one before";
    static const uint8_t values[9 * 2] = {1, 2, 3};
    const hsize_t dims[] = {9, 2}, nothing[] = {5, 0};
    const int32_t seven = 7;
    char link[8] = "", deep[12 * sizeof name + 2] = "";
    hid_t file = create(0, false),
          group = H5Gcreate2(file, "empty", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    put_attribute(group, "seven", H5T_NATIVE_INT32, 0, &seven);
    H5Gclose(group);
    put(file, "g/x", 2, dims, H5T_STD_U8LE, H5T_NATIVE_UINT8, values, contiguous);
    hid_t x = H5Dopen2(file, "g/x", H5P_DEFAULT);
    put_attribute(x, "_FillValue", H5T_NATIVE_INT32, 1, &seven);
    H5Dclose(x);
    H5Lcreate_hard(file, "g/x", file, "a", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(file, "/", file, "g/up", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_hard(file, "g", file, "h", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/g", file, "soft", H5P_DEFAULT, H5P_DEFAULT);
    H5Lcreate_soft("/none", file, "nowhere", H5P_DEFAULT, H5P_DEFAULT);
    hid_t type = H5Tcopy(H5T_STD_I16BE);
    H5Tcommit2(file, "type", type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    H5Tclose(type);
    put(file, "no values", 2, nothing, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, NULL, contiguous);
    for (int i = 0; i < 12; i++) strcat(strcat(deep, name), i < 11 ? "/" : "");
    put(file, deep, 2, dims, H5T_STD_U8LE, H5T_NATIVE_UINT8, values, contiguous);
    H5Fclose(file);
    file = repacked();
    assert_null(said.text);
    assert_true(H5Aexists_by_name(file, "empty", "seven", H5P_DEFAULT) > 0);
    assert_true(H5Aexists_by_name(file, "g/x", "_FillValue", H5P_DEFAULT) > 0);
    assert_same_object(file, "a", "g/x");
    assert_same_object(file, "/", "g/up");
    assert_same_object(file, "g", "h");
    assert_return_code(H5Lget_val(file, "soft", link, sizeof link, H5P_DEFAULT), 0);
    assert_string_equal(link, "/g");
    assert_return_code(H5Lget_val(file, "nowhere", link, sizeof link, H5P_DEFAULT), 0);
    assert_string_equal(link, "/none");
    type = H5Topen2(file, "type", H5P_DEFAULT);
    assert_true(H5Tequal(type, H5T_STD_I16BE) > 0);
    H5Tclose(type);
    check_dataset(file, "no values", nothing, 0, NULL);
    check_dataset(file, "g/x", dims, 9, values);
    check_dataset(file, deep, dims, 9, values);
    H5Fclose(file);
}

static void repack_leaves_out_references_and_external_links(void **state) {
    hobj_ref_t object;
    hid_t file = create(0, false);
    put_x(file, "g/x", 9);
    assert_return_code(H5Rcreate(&object, file, "g", H5R_OBJECT, -1), 0);
    hid_t x = H5Dopen2(file, "g/x", H5P_DEFAULT), list = H5Tvlen_create(H5T_STD_REF_OBJ);
    put_attribute(x, "list", list, 1, (hvl_t[]){{1, &object}});
    put_attribute(x, "seven", H5T_NATIVE_INT32, 0, &(int32_t){7});
    H5Dclose(x), H5Tclose(list);
    put(file, "references", 1, (hsize_t[]){1}, H5T_STD_REF_OBJ, H5T_STD_REF_OBJ, &object,
        contiguous);
    H5Lcreate_external("other.h5", "/a", file, "there", H5P_DEFAULT, H5P_DEFAULT);
    H5Fclose(file);
    file = repacked();
    assert_names(said.text, "2 & 1");
    tr_str_free(&said);
    assert_true(H5Aexists_by_name(file, "g/x", "seven", H5P_DEFAULT) > 0);
    assert_int_equal(H5Aexists_by_name(file, "g/x", "list", H5P_DEFAULT), 0);
    assert_int_equal(H5Lexists(file, "there", H5P_DEFAULT), 0);
    assert_int_equal(H5Lexists(file, "references", H5P_DEFAULT), 0);
    H5Fclose(file);
}

/* Overwrites the signature `mark` where it stands last. */
static void damage_last(const char *mark) {
    static char bytes[1 << 16];
    char *last = NULL;
    int fd = open(path, O_RDWR);
    ssize_t count = read(fd, bytes, sizeof bytes);
    for (char *at = bytes; at + 4 <= bytes + count; at++)
        if (memcmp(at, mark, 4) == 0) last = at;
    assert_non_null(last);
    assert_int_equal(pwrite(fd, "\x7f\x7f\x7f\x7f", 4, last - bytes), 4);
    close(fd);
}

static void damaged_groups_are_told(void **state) {
    static const char *const marks[] = {"TREE", "HEAP", "SNOD"};
    char copy[1100];
    snprintf(copy, sizeof copy, "%s/copy.h5", folder);
    for (size_t i = 0; i < TR_COUNT(marks); i++) {
        hid_t file = create(0, false);
        put_x(file, "x", 9);
        put_x(file, "extra/w", 9);
        put_x(file, "extra/z", 9);
        H5Fclose(file);
        damage_last(marks[i]);
        h5_file_t opened;
        h5_list_t list;
        OK(tr_h5_file_open("test", path, &opened));
        OK(tr_h5_list(&opened, &list));
        assert_int_equal(list.count, 2);
        assert_names(list.data[0].text, "extra");
        tr_h5_list_free(&list);
        tr_h5_file_close(&opened);
        assert_int_equal(tr_repack(path, copy, &(tr_import_params_t){0}), TR_ERR_DATA);
        assert_error_names("/extra & signature");
        assert_int_equal(access(copy, F_OK), -1);
        unlink(path);
    }
}

static void names_that_cannot_be_read(void **state) {
    const char *names[] = {"cat", "dog"};
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = NULL;
    char bytes[8192];
    hid_t file = create(0, false), text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    put_x(file, "x", 4);
    put_attribute(file, "feature_names", text, 2, names);
    H5Tclose(text), H5Fclose(file);
    int fd = open(path, O_RDWR);
    const ssize_t count = read(fd, bytes, sizeof bytes);
    const char *heap = memmem(bytes, (size_t)count, "GCOL", 4);
    assert_non_null(heap);
    assert_int_equal(pwrite(fd, "no heap", 7, heap - bytes), 7);
    close(fd);
    settings.train = path;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_DATA);
    assert_error_names(path);
    unlink(path);
}

/* As Fortran writes them. */
static void names_padded_with_blanks(void **state) {
    hid_t file = create(0, false), text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, 4), H5Tset_strpad(text, H5T_STR_SPACEPAD);
    put_x(file, "x", 4);
    put_attribute(file, "feature_names", text, 2, "cat a b ");
    H5Tclose(text), H5Fclose(file);
    tr_dataset_t *set = open_plain();
    assert_string_equal(set->info.names[TR_NAMES_INPUTS].name[0], "cat");
    assert_string_equal(set->info.names[TR_NAMES_INPUTS].name[1], "a b");
    tr_dataset_close(&set);
    unlink(path);
}

static void one_hot_beyond_the_classes(void **state) {
    const uint8_t y[] = {1, 0, 0, 0, 1, 0, 0, 0, 1};
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = NULL;
    hid_t file = create(0, false);
    put_x(file, "x", 3);
    put(file, "y", 2, (hsize_t[]){3, 3}, H5T_STD_U8LE, H5T_NATIVE_UINT8, y, contiguous);
    H5Fclose(file);
    settings.train = path;
    settings.classes = 2;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_DATA);
    assert_error_names("2 & 3");
    unlink(path);
}

/* The first of joined files may be shorter than a block. */
static void the_cost_of_more_rows_than_there_are(void **state) {
    h5_file_t opened;
    h5_array_t array;
    hid_t file = create(0, false);
    make_images();
    put(file, "x", 4, image_dims, H5T_STD_U8LE, H5T_NATIVE_UINT8, images,
        (storage_t){.chunk = {2, H, W, C}, .gzip = 2});
    H5Fclose(file);
    OK(tr_h5_file_open("test", path, &opened));
    OK(tr_h5_array_open(&opened, "x", &array));
    assert_int_equal(tr_h5_cost(&array, 1000).reads, (N + 1) / 2);
    tr_h5_array_close(&array);
    tr_h5_file_close(&opened);
    unlink(path);
}

/* Opening `path` for training fails with a message that names these. */
static void refuse_x(const char *names) {
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set;
    settings.train = path;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_DATA);
    assert_error_names(names);
    unlink(path);
}

static void virtual_data_sets_are_refused(void **state) {
    const hsize_t dim[] = {4, 2};
    hid_t file = create(0, false), made = H5Pcreate(H5P_DATASET_CREATE),
          space = H5Screate_simple(2, dim, NULL);
    H5Pset_virtual(made, space, "part.h5", "/a", space);
    H5Dclose(H5Dcreate2(file, "x", H5T_STD_U8LE, space, H5P_DEFAULT, made, H5P_DEFAULT));
    H5Pclose(made), H5Sclose(space), H5Fclose(file);
    refuse_x("/x & h5repack & data.train=part-*.h5");
}

static void odd_types_are_refused(void **state) {
    const hid_t odd[] = {H5Tcopy(H5T_STD_I32LE), H5Tcopy(H5T_NATIVE_LDOUBLE),
                         H5Tcopy(H5T_STD_B8LE)};
    const hsize_t dims[] = {9, 2};
    H5Tset_precision(odd[0], 24);
    H5Tset_size(odd[0], 3);
    for (size_t t = 0; t < TR_COUNT(odd); t++) {
        hid_t file = create(0, false), space = H5Screate_simple(2, dims, NULL);
        H5Dclose(H5Dcreate2(file, "x", odd[t], space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
        H5Sclose(space), H5Fclose(file), H5Tclose(odd[t]);
        refuse_x("/x & astype");
    }
}

/* What the library cannot open, such as what a newer one wrote, is named with that, and not left
 * out of a copy. */
static void unreadable(void **state) {
    char copy[1100];
    H5G_stat_t at;
    hid_t file = create(0, false);
    put_x(file, "a", 9);
    put_x(file, "x", 9);
    assert_return_code(H5Gget_objinfo(file, "x", 0, &at), 0);
    H5Fclose(file);
    int fd = open(path, O_RDWR);
    assert_int_equal(pwrite(fd, "\x7f\x7f\x7f\x7f\x7f\x7f\x7f\x7f", 8, (off_t)at.objno[0]), 8);
    close(fd);
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set;
    settings.train = path;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_DATA);
    assert_error_names("x & HDF5");
    snprintf(copy, sizeof copy, "%s/copy.h5", folder);
    assert_int_equal(tr_repack(path, copy, &(tr_import_params_t){0}), TR_ERR_DATA);
    assert_error_names("/x");
    assert_int_equal(access(copy, F_OK), -1);
    unlink(path);
}

static void test_names(void **state) {
    hid_t file = create(0, false);
    put_x(file, "train/images", 5);
    put_x(file, "val/images", 6);
    put_x(file, "test/images", 7);
    put_x(file, "other/deep/X", 8);
    H5Fclose(file);
    check_split("", "", TR_SPLIT_TRAIN, 5);
    check_split("", "", TR_SPLIT_VALID, 6);
    check_split("", "", TR_SPLIT_TEST, 7);
    check_split(":other/deep", "", TR_SPLIT_TRAIN, 8);
    check_split(":/other/deep/", "", TR_SPLIT_VALID, 0);
    check_split("", ":test", TR_SPLIT_VALID, 7);
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set;
    char text[1100];
    snprintf(text, sizeof text, "%s:nothing", path);
    settings.train = text;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_NOINPUT);
    assert_error_names("val/images (6, 2) u8");
    file = create(0, false);
    put_x(file, "X_train", 5);
    put_x(file, "test_set_x", 7);
    H5Fclose(file);
    check_split("", "", TR_SPLIT_TRAIN, 5);
    check_split("", "", TR_SPLIT_VALID, 7);
    check_split("", "", TR_SPLIT_TEST, 7);
    file = create(0, false);
    put_x(file, "images", 5);
    put_x(file, "features", 5);
    put_x(file, "my/own", 9);
    put_x(file, "my/labels", 9);
    H5Fclose(file);
    settings.train = path;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_CONFIG);
    assert_error_names("data.x");
    settings.x = "features";
    OK(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set));
    tr_dataset_close(&set);
    settings.x = "/my/own";
    OK(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set));
    assert_int_equal(set->info.samples, 9);
    assert_int_equal(set->info.field_count, 2); /* the labels beside it */
    tr_dataset_close(&set);
    settings.x = "mine";
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_NOINPUT);
    settings.x = "features";
    settings.y = "my/own";
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_DATA);
    assert_error_names("5 & 9");
    unlink(path);
}

/* Labels in a file of their own, of the shape (N, 1, 1, 1). */
static void test_y_file(void **state) {
    char saved[1024];
    strcpy(saved, path);
    int64_t live = tr_mem_stats().live;
    snprintf(path, sizeof path, "%s/set_y.h5", folder);
    for (int i = 0; i < N; i++) labels[i] = i % 5;
    hid_t file = create(0, false);
    put(file, "y", 4, (hsize_t[]){N, 1, 1, 1}, H5T_STD_U8LE, H5T_NATIVE_INT32, labels, contiguous);
    put_attribute(file, "mean", H5T_NATIVE_FLOAT, 0, &(float){2}); /* of the labels */
    H5Fclose(file);
    snprintf(path, sizeof path, "%s/set_x.h5", folder);
    make_images();
    for (int i = 0; i < N; i++) labels[i] = i % 5;
    file = create(0, false);
    put(file, "x", 4, image_dims, H5T_STD_U8LE, H5T_NATIVE_UINT8, images, contiguous);
    H5Fclose(file);
    tr_data_settings_t settings = test_settings();
    settings.y = "y"; /* named or not, it is found */
    tr_dataset_t *set = open_with(settings, TR_SPLIT_TRAIN);
    assert_int_equal(set->info.classes, 5);
    assert_int_equal(set->info.mean.count + set->info.std.count, 0);
    tr_dataset_close(&set);
    settings.y = "set_y.h5";
    settings.train = path;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_NOINPUT);
    assert_error_names("NAME_y.h5");
    set = open_plain();
    assert_int_equal(set->info.classes, 5);
    check_all(set, images, labels);
    path[strlen(path) - 4] = 'y';
    assert_int_equal(unlink(path), 0);
    assert_int_equal(tr_mem_stats().live, live);
    strcpy(path, saved);
}

static void labels_are_in_a_file_called_like_the_inputs(void **state) {
    char labels_path[4096];
    assert_true(tr_h5_labels_path("a_x.d/b_x.hdf5", labels_path));
    assert_string_equal(labels_path, "a_x.d/b_y.hdf5");
    assert_false(tr_h5_labels_path("a_x.d/b", labels_path));
    assert_false(tr_h5_labels_path("ax.h5", labels_path));
}

static void test_several_files(void **state) {
    char first[1024], pattern[1024], saved[1024];
    uint8_t all[3 * 4 * 2];
    strcpy(saved, path);
    for (int f = 0; f < 3; f++) {
        uint8_t part[8];
        for (int i = 0; i < 8; i++) part[i] = all[f * 8 + i] = (uint8_t)(f * 50 + i);
        snprintf(path, sizeof path, "%s/part-%d.h5", folder, f);
        hid_t file = create(0, f == 1);
        put(file, "x", 2, (hsize_t[]){4, 2}, H5T_STD_U8LE, H5T_NATIVE_UINT8, part,
            f == 2 ? (storage_t){.chunk = {3, 1}} : contiguous);
        H5Fclose(file);
    }
    snprintf(pattern, sizeof pattern, "%s/part-*.h5", folder);
    tr_data_settings_t settings = test_settings();
    settings.train = pattern;
    settings.limit = 11;
    tr_dataset_t *set = open_with(settings, TR_SPLIT_TRAIN);
    assert_int_equal(set->info.samples, 11);
    check_reads(set, 5, all, NULL);
    tr_dataset_close(&set);
    settings.train = "/tmp/no-such-*.h5";
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_NOINPUT);
    for (int f = 0; f < 3; f++) {
        snprintf(first, sizeof first, "%s/part-%d.h5", folder, f);
        unlink(first);
    }
    strcpy(path, saved);
}

/* What travels as f32 may be stored in several types; each file's rows are converted or not. */
static void files_of_several_types_are_joined(void **state) {
    const hid_t types[] = {H5T_IEEE_F64LE, H5T_IEEE_F32LE, H5T_STD_I64LE};
    char pattern[1024], saved[1024];
    float all[3 * 8];
    strcpy(saved, path);
    for (int f = 0; f < 3; f++) {
        for (int i = 0; i < 8; i++) all[f * 8 + i] = (float)(f * 50 + i);
        snprintf(path, sizeof path, "%s/part-%d.h5", folder, f);
        hid_t file = create(0, false);
        put(file, "x", 2, (hsize_t[]){4, 2}, types[f], H5T_NATIVE_FLOAT, all + f * 8, contiguous);
        H5Fclose(file);
    }
    snprintf(pattern, sizeof pattern, "%s/part-*.h5", folder);
    tr_data_settings_t settings = test_settings();
    settings.train = pattern;
    tr_dataset_t *set = open_with(settings, TR_SPLIT_TRAIN);
    for (int64_t step = 1; step <= 12; step++) check_reads(set, step, all, NULL);
    tr_dataset_close(&set);
    for (int f = 0; f < 3; f++) {
        snprintf(path, sizeof path, "%s/part-%d.h5", folder, f);
        unlink(path);
    }
    strcpy(path, saved);
}

static void check_bad(tr_status_t code, const char *names) {
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = NULL;
    int64_t live = tr_mem_stats().live;
    settings.train = path;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), code);
    assert_error_names(names);
    assert_null(set);
    assert_int_equal(tr_mem_stats().live, live);
}

static void test_bad_files(void **state) {
    unlink(path);
    check_bad(TR_ERR_NOINPUT, path);
    FILE *plain = fopen(path, "w");
    fclose(plain);
    check_bad(TR_ERR_DATA, path);
    plain = fopen(path, "w");
    fprintf(plain, "not what you think, and long enough to be looked at");
    fclose(plain);
    check_bad(TR_ERR_DATA, "HDF5 & trainer import");
    hid_t file = create(0, false);
    make_images();
    put(file, "x", 4, image_dims, H5T_STD_U8LE, H5T_NATIVE_UINT8, images, contiguous);
    H5Fclose(file);
    assert_int_equal(truncate(path, 3000), 0);
    check_bad(TR_ERR_DATA, "3000");
    file = create(0, false);
    hid_t made = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(1, label_dims, NULL);
    H5Pset_external(made, "/etc/passwd", 0, N);
    H5Dclose(H5Dcreate2(file, "x", H5T_STD_U8LE, space, H5P_DEFAULT, made, H5P_DEFAULT));
    H5Sclose(space);
    H5Pclose(made);
    H5Fclose(file);
    check_bad(TR_ERR_DATA, "/x");
    file = create(0, false);
    hid_t text = H5Tcopy(H5T_C_S1);
    put(file, "x", 1, label_dims, text, text, NULL, contiguous);
    H5Tclose(text);
    H5Fclose(file);
    check_bad(TR_ERR_DATA, "/x");
    unlink(path);
    char saved[1024];
    strcpy(saved, path);
    strcpy(path, folder);
    check_bad(TR_ERR_NOINPUT, path);
    strcpy(path, saved);
}

static void test_not_finite(void **state) {
    float x[N * 3];
    for (int i = 0; i < N * 3; i++) x[i] = (float)i;
    x[11 * 3 + 1] = NAN;
    hid_t file = create(0, false);
    put(file, "x", 2, (hsize_t[]){N, 3}, H5T_IEEE_F64LE, H5T_NATIVE_FLOAT, x, contiguous);
    H5Fclose(file);
    tr_dataset_t *set = open_plain();
    float out[N * 3];
    void *dst[] = {out};
    OK(set->ops->read(set, 0, 11, dst));
    assert_int_equal(set->ops->read(set, 2, 15, dst), TR_ERR_DATA);
    assert_error_names("/x & 11 & 1");
    tr_dataset_close(&set);
    unlink(path);
}

/* A byte of a stored chunk is changed: the checksum finds it. */
static void test_damage(void **state) {
    for (int gzip = 0; gzip < 2; gzip++) {
        make_images();
        hid_t file = create(0, true);
        put(file, "x", 4, image_dims, H5T_STD_U8LE, H5T_NATIVE_UINT8, images,
            (storage_t){.chunk = {6, H, W, C}, .checksum = true, .gzip = gzip});
        H5Fclose(file);
        FILE *raw = fopen(path, "r+b");
        char bytes[20000];
        size_t size = fread(bytes, 1, sizeof bytes, raw), at = 0;
        while (memcmp(bytes + at, images + 7 * IMAGE, 30)) at++;
        assert_true(at < size);
        fseek(raw, (long)at + 3, SEEK_SET);
        fputc(bytes[at + 3] ^ 1, raw);
        fclose(raw);
        tr_dataset_t *set = open_plain();
        uint8_t out[6 * IMAGE];
        void *dst[] = {out};
        OK(set->ops->read(set, 0, 6, dst));
        assert_int_equal(set->ops->read(set, 8, 1, dst), TR_ERR_DATA);
        assert_error_names("/x & 1 & 6");
        tr_dataset_close(&set);
        unlink(path);
    }
}

/* Our checksum is the library's: for odd and even sizes, and where sums are 0 or 65535. */
static void test_checksum(void **state) {
    static const hsize_t sizes[] = {1, 2, 3, 127, 128, 129, 255, 4097, 300001};
    uint8_t *x = malloc(300001);
    for (size_t s = 0; s < TR_COUNT(sizes); s++)
        for (int kind = 0; kind < 3; kind++) {
            hsize_t dim[] = {1, sizes[s]};
            for (hsize_t i = 0; i < sizes[s]; i++)
                x[i] = kind == 0 ? 0 : kind == 1 ? 255 : (uint8_t)(i * i / 3);
            hid_t file = create(0, true);
            put(file, "x", 2, dim, H5T_STD_U8LE, H5T_NATIVE_UINT8, x,
                (storage_t){.chunk = {1, sizes[s]}, .checksum = true});
            H5Fclose(file);
            check_all(open_plain(), x, NULL);
        }
    free(x);
}

/* Training would end at its first step, with a word on the learning rate. */
static void check_refused_attribute(const char *name, double value, const char *names) {
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = NULL;
    hid_t file = create(0, false);
    put(file, "x", 4, image_dims, H5T_STD_U8LE, H5T_NATIVE_UINT8, images, contiguous);
    put_attribute(file, name, H5T_NATIVE_DOUBLE, 0, &value);
    H5Fclose(file);
    settings.train = path;
    OK(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set));
    tr_preprocess_t *told = NULL;
    tr_preprocess_sources_t sources = {.settings = &settings, .info = &set->info, .train = set};
    assert_int_equal(tr_preprocess_resolve(&sources, &told), TR_ERR_DATA);
    assert_error_names(names);
    if (strcmp(name, "mean") == 0) /* a key takes its place */
        settings.mean = "0";
    else
        settings.std = "1";
    OK(tr_preprocess_resolve(&sources, &told));
    tr_preprocess_destroy(&told);
    tr_dataset_close(&set);
    unlink(path);
}

static void test_attributes_that_are_no_numbers(void **state) {
    check_refused_attribute("mean", NAN, "'mean' & nan & 0");
    check_refused_attribute("mean", 1e39, "'mean' & inf & 0");
    check_refused_attribute("std", INFINITY, "'std' & inf & 0");
    check_refused_attribute("std", 1e-40, "'std' & 0");
    check_refused_attribute("std", 0, "'std' & 0");
}

static void test_attributes(void **state) {
    float mean[] = {1, 2, 3}, std = 4;
    const char *names[] = {"cat", "dog", "a third"};
    for (int i = 0; i < N; i++) labels[i] = i % 3;
    hid_t file = create(0, false), text = H5Tcopy(H5T_C_S1);
    H5Tset_size(text, H5T_VARIABLE);
    put(file, "train/x", 4, image_dims, H5T_STD_U8LE, H5T_NATIVE_UINT8, images, contiguous);
    put(file, "train/y", 1, label_dims, H5T_STD_U8LE, H5T_NATIVE_INT32, labels, contiguous);
    hid_t group = H5Gopen2(file, "train", H5P_DEFAULT);
    put_attribute(group, "mean", H5T_NATIVE_FLOAT, 3, mean);
    put_attribute(file, "std", H5T_NATIVE_FLOAT, 0, &std);
    put_attribute(file, "class_names", text, 3, names);
    H5Gclose(group);
    H5Tclose(text);
    H5Fclose(file);
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = open_with(settings, TR_SPLIT_TRAIN);
    assert_int_equal(set->info.mean.count, 3);
    assert_int_equal(set->info.std.count, 1);
    for (int c = 0; c < 3; c++) assert_true(set->info.mean.data[c] == mean[c]);
    assert_true(set->info.std.data[0] == 4);
    for (int c = 0; c < 3; c++) assert_string_equal(tr_class_names(&set->info)[c], names[c]);
    tr_dataset_close(&set);
    unlink(path);
}

/* h5py's LZF: a chunk packed by hand, with plain bytes, a short and a long repetition; then chunks
 * that are cut off or point before the start. */
static void test_lzf(void **state) {
    static const uint8_t packed[] = {
        4, 10,   11, 12, 13, 14, 0x20,
        4, 0xe0, 5,  2,  0,  99}; /* 5 plain, 3 from 5 back, 14 from 3 back, 1 plain */
    static const uint8_t plain[23] = {10, 11, 12, 13, 14, 10, 11, 12, 10, 11, 12, 10,
                                      11, 12, 10, 11, 12, 10, 11, 12, 10, 11, 99};
    for (int damage = 0; damage < 4; damage++) {
        uint8_t stored[sizeof packed];
        hsize_t offset[] = {0, 0}, dim[] = {1, 23};
        memcpy(stored, packed, sizeof packed);
        if (damage == 1) stored[0] = 30;
        if (damage == 2) stored[6] = 0x21;
        if (damage == 3) stored[8] = 200;
        hid_t file = create(0, false), made = H5Pcreate(H5P_DATASET_CREATE),
              space = H5Screate_simple(2, dim, NULL);
        H5Pset_chunk(made, 2, dim);
        assert_true(H5Pset_filter(made, 32000, H5Z_FLAG_OPTIONAL, 0, NULL) >= 0);
        hid_t id = H5Dcreate2(file, "x", H5T_STD_U8LE, space, H5P_DEFAULT, made, H5P_DEFAULT);
        assert_true(H5Dwrite_chunk(id, H5P_DEFAULT, 0, offset, sizeof stored, stored) >= 0);
        H5Dclose(id);
        H5Sclose(space);
        H5Pclose(made);
        H5Fclose(file);
        tr_dataset_t *set = open_plain();
        uint8_t out[23];
        void *dst[] = {out};
        assert_int_equal(set->ops->read(set, 0, 1, dst), damage ? TR_ERR_DATA : TR_OK);
        if (!damage) assert_memory_equal(out, plain, 23);
        tr_dataset_close(&set);
        unlink(path);
    }
}

/* Refused with `refused`, and a line of `trainer data` has `listed`; repack stores what HDF5 reads
 * there: *text is what it warns of. */
static void check_holes(const char *refused, const char *listed, tr_str_t *text) {
    char copy[1100];
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = NULL;
    settings.train = path;
    snprintf(copy, sizeof copy, "%s/copy.h5", folder);
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_DATA);
    assert_error_names(refused);
    assert_int_equal(tr_data_report(&settings, 1 << 20, text), TR_ERR_DATA);
    assert_true(names_in_line(text->text, listed));
    tr_str_free(text);
    tr_log_set_sink(keep_said, NULL);
    OK(tr_repack(path, copy, &(tr_import_params_t){0}));
    tr_log_set_sink(NULL, NULL);
    *text = said;
    said = (tr_str_t){0};
    assert_int_equal(rename(copy, path), 0);
}

/* Rows [16, 24) of 40 are written. */
static void put_holes(hid_t file, bool gzip, const int16_t *rows) {
    const hsize_t dim[] = {40, 6}, chunk[] = {8, 4}, start[] = {16, 0}, size[] = {8, 6};
    const int16_t fill = -7;
    hid_t made = H5Pcreate(H5P_DATASET_CREATE), space = H5Screate_simple(2, dim, NULL);
    H5Pset_chunk(made, 2, chunk);
    if (gzip) H5Pset_deflate(made, 5);
    H5Pset_fill_value(made, H5T_NATIVE_INT16, &fill);
    hid_t id = H5Dcreate2(file, "x", H5T_STD_I16BE, space, H5P_DEFAULT, made, H5P_DEFAULT),
          memory = H5Screate_simple(2, size, NULL);
    H5Sselect_hyperslab(space, H5S_SELECT_SET, start, NULL, size, NULL);
    assert_true(H5Dwrite(id, H5T_NATIVE_INT16, memory, space, H5P_DEFAULT, rows) >= 0);
    H5Dclose(id), H5Sclose(memory), H5Sclose(space), H5Pclose(made);
}

static void samples_that_were_never_written(void **state) {
    for (int gzip = 0; gzip < 2; gzip++) {
        int16_t some[48], all[240];
        tr_str_t text = {0};
        for (int i = 0; i < 240; i++) all[i] = -7;
        for (int i = 0; i < 48; i++) some[i] = all[96 + i] = (int16_t)i;
        hid_t file = create(0, gzip);
        put_holes(file, gzip, some);
        H5Fclose(file);
        check_holes("/x & 32 & 40 & 0", "x & 32 & 40", &text);
        assert_names(text.text, "/x & 32 & 40 & -7");
        tr_str_free(&text);
        check_all(open_plain(), all, NULL);
    }
}

/* No chunk of y is there, or nothing of a contiguous one; chunks that reach beyond the end are no
 * matter. */
static void labels_that_were_never_written(void **state) {
    const hsize_t dim[] = {N}, most[] = {H5S_UNLIMITED}, chunk[] = {16};
    static const int32_t zeros[N];
    make_images();
    for (int chunked = 0; chunked < 2; chunked++) {
        tr_str_t text = {0};
        hid_t file = create(0, false), made = H5Pcreate(H5P_DATASET_CREATE),
              space = H5Screate_simple(1, dim, most);
        if (chunked) H5Pset_chunk(made, 1, chunk);
        put(file, "x", 4, image_dims, H5T_STD_U8LE, H5T_NATIVE_UINT8, images,
            (storage_t){.chunk = {16, H, W, C}});
        if (!chunked) H5Sset_extent_simple(space, 1, dim, dim);
        H5Dclose(H5Dcreate2(file, "y", H5T_STD_I32LE, space, H5P_DEFAULT, made, H5P_DEFAULT));
        H5Pclose(made), H5Sclose(space), H5Fclose(file);
        check_holes("/y & 23 & 0", "y (23) i32", &text);
        assert_names(text.text, "/y & 23 & 0");
        tr_str_free(&text);
        check_all(open_plain(), images, zeros);
    }
}

/* Partial chunks without filters are read by the library. */
static void chunks_without_a_table_are_looked_for(void **state) {
    const hsize_t dim[] = {40, 1}, most[] = {H5S_UNLIMITED, 1}, chunk[] = {8, 1}, less[] = {17, 1};
    const float values[17] = {1, 2, 3};
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = NULL;
    hid_t file = create(0, false), made = H5Pcreate(H5P_DATASET_CREATE),
          space = H5Screate_simple(2, less, most);
    H5Pset_chunk(made, 2, chunk), H5Pset_chunk_opts(made, H5D_CHUNK_DONT_FILTER_PARTIAL_CHUNKS);
    hid_t id = H5Dcreate2(file, "x", H5T_IEEE_F32LE, space, H5P_DEFAULT, made, H5P_DEFAULT);
    assert_true(H5Dwrite(id, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) >= 0);
    assert_true(H5Dset_extent(id, dim) >= 0);
    H5Dclose(id), H5Pclose(made), H5Sclose(space), H5Fclose(file);
    settings.train = path;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_DATA);
    assert_error_names("16 & 40 & 24");
    unlink(path);
}

static void fill_values_of_half_floats(void **state) {
    const hsize_t dim[] = {N}, chunk[] = {4};
    const uint16_t one = 0x3c00;
    uint16_t ones[N];
    tr_str_t text = {0};
    for (int i = 0; i < N; i++) ones[i] = one;
    hid_t file = create(0, false), half = half_type(false), made = H5Pcreate(H5P_DATASET_CREATE),
          space = H5Screate_simple(1, dim, NULL);
    H5Pset_chunk(made, 1, chunk), H5Pset_fill_value(made, half, &one);
    H5Dclose(H5Dcreate2(file, "x", half, space, H5P_DEFAULT, made, H5P_DEFAULT));
    H5Tclose(half), H5Pclose(made), H5Sclose(space), H5Fclose(file);
    check_holes("/x & 23", "x (23)", &text);
    assert_names(text.text, "/x & 23 & 1");
    tr_str_free(&text);
    check_all(open_plain(), ones, NULL);
}

/* Where there is no fill value HDF5 leaves what it was given as it is: repack stores zeros, not
 * rows that it read before. */
static void repack_without_a_fill_value_stores_zeros(void **state) {
    enum { HALF = (4 << 20) / 4 };
    const hsize_t dim[] = {2 * HALF}, chunk[] = {HALF}, none[] = {0};
    int32_t *half = malloc(HALF * sizeof *half), last = -1;
    tr_str_t text = {0};
    for (int i = 0; i < HALF; i++) half[i] = 1;
    hid_t file = create(0, false), made = H5Pcreate(H5P_DATASET_CREATE),
          all = H5Screate_simple(1, dim, NULL), rows = H5Screate_simple(1, chunk, NULL);
    H5Pset_chunk(made, 1, chunk), H5Pset_nbit(made),
        H5Pset_fill_value(made, H5T_NATIVE_INT32, NULL);
    hid_t id = H5Dcreate2(file, "x", H5T_STD_I32LE, all, H5P_DEFAULT, made, H5P_DEFAULT);
    H5Sselect_hyperslab(all, H5S_SELECT_SET, none, NULL, chunk, NULL);
    assert_true(H5Dwrite(id, H5T_NATIVE_INT32, rows, all, H5P_DEFAULT, half) >= 0);
    H5Dclose(id), H5Sclose(rows), H5Sclose(all), H5Pclose(made), H5Fclose(file);
    free(half);
    check_holes("1048576 & 2097152", "x & 1048576 & 2097152", &text);
    tr_str_free(&text);
    tr_dataset_t *set = open_plain();
    OK(set->ops->read(set, 2 * HALF - 1, 1, (void *[]){&last, NULL}));
    assert_int_equal(last, 0);
    tr_dataset_close(&set);
    unlink(path);
}

static void report_of_labels(const uint8_t *y, hsize_t count, bool sorted) {
    tr_data_settings_t settings = test_settings();
    tr_str_t text = {0};
    hid_t file = create(0, false);
    put_x(file, "x", count);
    put(file, "y", 1, &count, H5T_STD_U8LE, H5T_NATIVE_UINT8, y, contiguous);
    H5Fclose(file);
    settings.train = path;
    OK(tr_data_report(&settings, 1 << 20, &text));
    assert_int_equal(names_all(text.text, "data.block"), sorted);
    tr_str_free(&text);
    unlink(path);
}

/* However rare a class is: in random order neighbours are alike then, too. */
static void sorted_labels_get_a_warning(void **state) {
    enum { SAMPLES = 20000 };
    static const int per_thousand[] = {500, 100, 50, 20, 10, 3};
    static uint8_t random[SAMPLES], sorted[SAMPLES];
    for (size_t p = 0; p < TR_COUNT(per_thousand); p++) {
        int ones = 0;
        for (int i = 0; i < SAMPLES; i++) {
            tr_rng_block_t drawn = tr_rng_philox(1, TR_RNG_SYNTHETIC, p, (uint64_t)i, 0);
            random[i] = tr_rng_to_float(drawn.v[0]) * 1000 < (float)per_thousand[p];
            ones += random[i];
        }
        for (int i = 0; i < SAMPLES; i++) sorted[i] = i >= SAMPLES - ones;
        report_of_labels(random, SAMPLES, false);
        report_of_labels(sorted, SAMPLES, true);
    }
}

static void all_splits_are_normalised_as_the_training_data(void **state) {
    const hsize_t dim[] = {2, 2};
    const float x[] = {1, 2, 3, 4};
    char train[1100], valid[1100];
    tr_data_settings_t settings = test_settings();
    snprintf(train, sizeof train, "%s/train.h5", folder),
        snprintf(valid, sizeof valid, "%s/valid.h5", folder);
    for (int i = 0; i < 2; i++) {
        hid_t file = create(0, false);
        put(file, "x", 2, dim, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, x, contiguous);
        put_attribute(file, "mean", H5T_NATIVE_FLOAT, 0, &(float){i ? 5 : 3});
        H5Fclose(file);
        assert_int_equal(rename(path, i ? valid : train), 0);
    }
    settings.train = train, settings.valid = valid;
    for (int given = 0; given < 2; given++) {
        tr_str_t text = {0};
        settings.mean = given ? "3" : "auto";
        OK(tr_data_report(&settings, 1 << 20, &text));
        const char *of_valid = strstr(text.text, "\nvalid: ");
        char own[1200];
        snprintf(own, sizeof own, "mean & std & %s", valid);
        assert_non_null(of_valid);
        assert_true(names_in_line(text.text, "mean 3 & std 1") &&
                    names_in_line(of_valid, "mean 3 & std 1"));
        assert_int_equal(names_in_line(of_valid, own), !given); /* that its own are not used */
        tr_str_free(&text);
    }
    unlink(train), unlink(valid);
}

static void numbers_too_large_for_f32(void **state) {
    const hsize_t dim[] = {2, 2};
    const double x[] = {1, 2, 1e300, 4};
    float out[4];
    void *dst[] = {out, NULL};
    hid_t file = create(0, false);
    put(file, "x", 2, dim, H5T_IEEE_F64LE, H5T_NATIVE_DOUBLE, x, contiguous);
    H5Fclose(file);
    tr_dataset_t *set = open_plain();
    assert_int_equal(set->ops->read(set, 0, 2, dst), TR_ERR_DATA);
    assert_error_names("/x & 1 & NaN & 32-bit");
    tr_dataset_close(&set);
    unlink(path);
}

/* Through the loader, by several threads, from a file that has to be decoded: each sample where the
 * order wants it, and nothing allocated. */
static void test_through_loader(void **state) {
    enum { SAMPLES = 500 };
    uint16_t x[SAMPLES * 4];
    int32_t y[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) y[i] = i;
    for (int i = 0; i < SAMPLES * 4; i++) x[i] = (uint16_t)i;
    hid_t file = create(0, false);
    put(file, "x", 2, (hsize_t[]){SAMPLES, 4}, H5T_STD_U16BE, H5T_NATIVE_UINT16, x,
        (storage_t){.chunk = {30, 2}, .gzip = 3, .shuffle = true});
    put(file, "y", 1, (hsize_t[]){SAMPLES}, H5T_STD_I32LE, H5T_NATIVE_INT32, y, contiguous);
    H5Fclose(file);
    tr_data_settings_t settings = test_settings();
    tr_loader_t *loader;
    tr_loader_params_t p = {.slot_count = 4, .workers = 3, .prefetch = 2};
    settings.shuffle = 60;
    tr_dataset_t *set = open_with(settings, TR_SPLIT_TRAIN);
    assert_int_equal(set->info.read_unit, 30);
    OK(tr_sampler_init(&settings, &set->info, 9, 64, 16, &p.order));
    assert_int_equal(p.order.block, 30);
    OK(tr_loader_create(set, &test_device, &p, &loader));
    int64_t calls = tr_mem_stats().calls;
    for (int i = 0; i < 200; i++) {
        tr_batch_t *batch;
        OK(tr_loader_next(loader, &batch));
        for (int s = 0; s < 16; s++) {
            assert_int_equal(((int32_t *)batch->field[1])[s], batch->sample_id[s]);
            assert_memory_equal((uint16_t *)batch->field[0] + 4 * s, x + 4 * batch->sample_id[s],
                                8);
        }
        OK(tr_loader_release(loader, batch));
    }
    assert_int_equal(tr_mem_stats().calls, calls);
    tr_loader_destroy(&loader);
    tr_dataset_close(&set);
    unlink(path);
}

static int64_t cached_kib(void) {
    static unsigned char there[1 << 14];
    struct stat status;
    int fd = open(path, O_RDONLY), count = 0;
    fstat(fd, &status);
    size_t bytes = (size_t)status.st_size, page = (size_t)sysconf(_SC_PAGESIZE),
           pages = (bytes + page - 1) / page;
    void *map = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert_true(map != MAP_FAILED && pages <= sizeof there && !mincore(map, bytes, there));
    for (size_t i = 0; i < pages; i++) count += there[i] & 1;
    munmap(map, bytes);
    close(fd);
    return count * (int64_t)(page >> 10);
}

static bool drop_from_cache(void) {
    int fd = open(path, O_RDONLY);
    fsync(fd);
    posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED);
    close(fd);
    return cached_kib() == 0;
}

static void check_epochs(tr_dataset_t *set, const char *x) {
    tr_loader_t *loader;
    tr_loader_params_t p = {.slot_count = 1, .workers = 2, .prefetch = 4};
    tr_data_settings_t settings = test_settings();
    OK(tr_sampler_init(&settings, &set->info, 9, 32, 32, &p.order));
    OK(tr_loader_create(set, &test_device, &p, &loader));
    for (int64_t i = 0; i < 2 * set->info.samples / 32; i++) {
        tr_batch_t *batch;
        OK(tr_loader_next(loader, &batch));
        for (int s = 0; s < 32; s++)
            assert_memory_equal((char *)batch->field[0] + 20000 * s,
                                x + 20000 * batch->sample_id[s], 20000);
        OK(tr_loader_release(loader, batch));
    }
    tr_loader_destroy(&loader);
}

/* data.direct_io: the same bytes whatever the storage, and the page cache stays as it was. */
static void past_the_page_cache(void **state) {
    enum { SAMPLES = 700, WIDTH = 20000 };
    static const storage_t how[] = {{.gzip = 0},
                                    {.chunk = {50, WIDTH}},
                                    {.chunk = {13, WIDTH}},
                                    {.chunk = {10, 7000}},
                                    {.chunk = {20, WIDTH}, .gzip = 2},
                                    {.chunk = {10, WIDTH}, .checksum = true}};
    char *x = malloc(SAMPLES * WIDTH);
    for (int i = 0; i < SAMPLES * WIDTH; i++) x[i] = (char)((unsigned)i * 2654435761u >> 23);
    for (size_t i = 0; i < TR_COUNT(how); i++) {
        hid_t file = create(512, false);
        put(file, "x", 2, (hsize_t[]){SAMPLES, WIDTH}, H5T_STD_U8LE, H5T_NATIVE_UINT8, x, how[i]);
        H5Fclose(file);
        tr_data_settings_t settings = test_settings();
        settings.direct_io = TR_DIRECT_YES;
        tr_dataset_t *set = open_with(settings, TR_SPLIT_TRAIN);
        const int fd = open(path, O_RDONLY | O_DIRECT); /* whether this file system can */
        const bool direct = fd >= 0, dropped = drop_from_cache();
        if (direct) close(fd);
        check_epochs(set, x);
        /* What opening reads; and on a busy machine ranges that were given up, as nobody came for
         * them. */
        if (direct && dropped) assert_in_range(cached_kib(), 0, SAMPLES * WIDTH / 1024 / 4);
        tr_dataset_close(&set);
        unlink(path);
    }
    free(x);
}

/* Every sample is in one part, in the file's order, whatever the reads; sorted labels are in both.
 */
static void a_fraction_is_kept_for_validation(void **state) {
    enum { SAMPLES = 10007 };
    static int32_t y[SAMPLES], got[SAMPLES];
    static uint8_t x[SAMPLES], times[SAMPLES];
    const hsize_t table[] = {SAMPLES, 1}, rows[] = {SAMPLES};
    tr_data_settings_t settings = test_settings();
    for (int i = 0; i < SAMPLES; i++) x[i] = (uint8_t)(i % 251), y[i] = i;
    hid_t file = create(0, false);
    put(file, "x", 2, table, H5T_STD_U8LE, H5T_NATIVE_UINT8, x, contiguous);
    put(file, "y", 1, rows, H5T_STD_I32LE, H5T_NATIVE_INT32, y, contiguous);
    H5Fclose(file);
    settings.valid_fraction = 0.15;
    for (int split = TR_SPLIT_TRAIN; split <= TR_SPLIT_VALID; split++) {
        tr_dataset_t *part = open_with(settings, (tr_split_t)split);
        const int64_t n = part->info.samples;
        const double share = split == TR_SPLIT_VALID ? 0.15 : 0.85;
        assert_true(fabs((double)n / SAMPLES - share) < 0.01);
        for (int64_t first = 0, step = 1; first < n; first += step, step = step * 3 % 1009 + 1) {
            static uint8_t xs[SAMPLES];
            if (step > n - first) step = n - first;
            OK(part->ops->read(part, first, step, (void *[]){xs, got + first}));
            for (int64_t i = 0; i < step; i++) assert_int_equal(xs[i], got[first + i] % 251);
        }
        for (int64_t i = 0; i < n; i++) {
            assert_true(i == 0 || got[i] > got[i - 1]);
            times[got[i]]++;
        }
        assert_true(got[0] < SAMPLES / 10 && got[n - 1] > SAMPLES * 9 / 10);
        tr_dataset_close(&part);
    }
    for (int i = 0; i < SAMPLES; i++) assert_int_equal(times[i], 1);
    unlink(path);
}

/* Every sample is validation data of one fold, and each class is in every fold alike. */
static void the_folds_have_each_class_alike(void **state) {
    enum { SAMPLES = 1003, FOLDS = 5, CLASSES = 3 };
    static int32_t y[SAMPLES], got[SAMPLES];
    static uint8_t x[SAMPLES * 2], xs[SAMPLES * 2], times[SAMPLES];
    static const int64_t of_class[CLASSES] = {10, 200, SAMPLES - 210};
    tr_data_settings_t settings = test_settings();
    for (int i = 0; i < SAMPLES; i++) {
        y[i] = (i >= 10) + (i >= 210);
        x[2 * i] = (uint8_t)i, x[2 * i + 1] = (uint8_t)(i >> 8);
    }
    hid_t file = create(0, false);
    put(file, "x", 2, (hsize_t[]){SAMPLES, 2}, H5T_STD_U8LE, H5T_NATIVE_UINT8, x, contiguous);
    put(file, "y", 1, (hsize_t[]){SAMPLES}, H5T_STD_I32LE, H5T_NATIVE_INT32, y, contiguous);
    H5Fclose(file);
    for (int k = 1; k <= FOLDS; k++) {
        char fold[16];
        snprintf(fold, sizeof fold, "%d/%d", k, FOLDS);
        settings.fold = fold;
        tr_dataset_t *train = open_with(settings, TR_SPLIT_TRAIN),
                     *valid = open_with(settings, TR_SPLIT_VALID);
        const int64_t n = valid->info.samples;
        int64_t found[CLASSES] = {0};
        assert_int_equal(train->info.samples + n, SAMPLES);
        assert_false(tr_dataset_shares(train, valid));
        OK(valid->ops->read(valid, 0, n, (void *[]){xs, got}));
        for (int64_t i = 0; i < n; i++) {
            const int sample = xs[2 * i] + 256 * xs[2 * i + 1];
            assert_int_equal(got[i], y[sample]);
            times[sample]++;
            found[got[i]]++;
        }
        for (int c = 0; c < CLASSES; c++)
            assert_in_range(found[c], of_class[c] / FOLDS, of_class[c] / FOLDS + 1);
        tr_dataset_close(&train);
        tr_dataset_close(&valid);
    }
    for (int i = 0; i < SAMPLES; i++) assert_int_equal(times[i], 1);
    unlink(path);
}

static void folds_of_labels_that_are_no_classes(void **state) {
    test_dataset_t set;
    tr_dataset_t *part = NULL;
    test_dataset_make(&set, 1000, 1); /* the labels are 0 to 999 */
    set.base.info.classes = 5;
    assert_int_equal(tr_dataset_fold(&set.base, "1/2", true, &part), TR_ERR_DATA);
    assert_error_names("sample 5 & 4 & found 5");
    assert_null(part);
}

/* Of two files with 2 and 4 samples; of a split; none if a file lacks them or has another number of
 * them; not for training. */
static void ids_and_files_are_for_predictions(void **state) {
    char pattern[600], second[600];
    snprintf(pattern, sizeof pattern, "%s/?.h5", folder);
    snprintf(second, sizeof second, "%s/b.h5", folder);
    hid_t fixed = H5Tcopy(H5T_C_S1), variable = H5Tcopy(H5T_C_S1);
    H5Tset_size(fixed, 4), H5Tset_strpad(fixed, H5T_STR_SPACEPAD);
    H5Tset_size(variable, H5T_VARIABLE);
    const char *texts[] = {"one", "", "three", "four"};
    for (int i = 0; i < 2; i++) {
        hid_t file = create(0, false);
        const hsize_t count = i ? 2 : 4;
        put_x(file, "test/x", (int)count);
        if (i)
            put(file, "test/id", 1, &count, fixed, fixed, "no 1no  ", contiguous);
        else
            put(file, "test/id", 1, &count, variable, variable, texts, contiguous);
        put(file, "test/file", 1, &(hsize_t){3}, variable, variable, texts, contiguous);
        H5Fclose(file);
        if (i == 0) assert_int_equal(rename(path, second), 0);
    }
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = NULL;
    settings.test = pattern;
    OK(tr_dataset_open_inputs(&settings, TR_SPLIT_TEST, &set));
    assert_int_equal(set->info.text_count, 1);
    assert_string_equal(set->info.text_name[0], "id");
    static const char *const expect[] = {"no 1", "no", "one", "", "three", "four"};
    assert_int_equal(set->info.samples, 6);
    for (int i = 0; i < 6; i++) assert_string_equal(set->info.text[i], expect[i]);
    tr_dataset_close(&set);
    settings.x = "/test/x";
    OK(tr_dataset_open_inputs(&settings, TR_SPLIT_TEST, &set));
    assert_int_equal(set->info.text_count, 1);
    tr_dataset_close(&set);
    OK(tr_dataset_open(&settings, TR_SPLIT_TEST, &set));
    assert_int_equal(set->info.text_count, 0);
    tr_dataset_close(&set);
    H5Tclose(fixed), H5Tclose(variable);
    unlink(path), unlink(second);
}

/* 4096 samples of 28 x 28 bytes in a chunk of 7 x 7: a block of so many reads nothing twice, and
 * yet anything smaller does. */
static void chunks_that_are_read_whole_get_a_warning(void **state) {
    const hsize_t dims[] = {8192, 28, 28}, rows[] = {8192};
    const storage_t coarse = {.chunk = {4096, 7, 7}, .checksum = true},
                    fine = {.chunk = {256, 28, 28}, .checksum = true};
    char detour[601] = "", remedy[1600], given[1400]; /* long paths leave the remedy whole */
    for (int i = 0; i < 600; i += 2) memcpy(detour + i, "./", 3);
    snprintf(given, sizeof given, "%s/%sa.h5", folder, detour);
    snprintf(remedy, sizeof remedy, "trainer repack %s OUT.h5", given);
    for (int i = 0; i < 2; i++) {
        tr_str_t text = {0};
        tr_data_settings_t settings = test_settings();
        hid_t file = create(0, false);
        put(file, "x", 3, dims, H5T_STD_U8LE, H5T_NATIVE_UINT8, NULL, i ? fine : coarse);
        put(file, "y", 1, rows, H5T_STD_I32LE, H5T_NATIVE_INT32, NULL, contiguous);
        H5Fclose(file);
        settings.train = given;
        OK(tr_data_report(&settings, 1 << 20, &text));
        assert_int_equal(names_in_line(text.text, "4096 & 334 & 12.3"), i == 0);
        assert_int_equal(strstr(text.text, remedy) != NULL, i == 0);
        tr_str_free(&text);
        unlink(path);
    }
}

/* A few mistakes among labels make numbers of all: it is said where the first is, and what settles
 * it. */
static void check_doubt(int ndim, const hsize_t *dim, const float *y, const char *names) {
    hid_t file = create(0, false);
    put_x(file, "x", dim[0]);
    put(file, "y", ndim, dim, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, y, contiguous);
    H5Fclose(file);
    tr_dataset_t *set = open_plain();
    assert_int_equal(set->info.classes, 0);
    if (*names)
        assert_names(set->info.label_doubt, names);
    else
        assert_null(set->info.label_doubt);
    tr_dataset_close(&set);
    tr_data_settings_t settings = test_settings();
    settings.classes = 0; /* no doubt is left */
    set = open_with(settings, TR_SPLIT_TRAIN);
    assert_null(set->info.label_doubt);
    tr_dataset_close(&set);
    unlink(path);
}

static void test_labels_with_mistakes(void **state) {
    enum { M = 400 };
    float one_hot[M * 4] = {0}, whole[M], wide[M];
    for (int i = 0; i < M; i++) {
        one_hot[i * 4 + i % 4] = 1;
        whole[i] = (float)(i % 4);
        wide[i] = (float)(i * 7);
    }
    one_hot[44 * 4 + 1] = 1;
    check_doubt(2, (hsize_t[]){M, 4}, one_hot, "399 & 400 & 44 & 2");
    one_hot[44 * 4] = one_hot[44 * 4 + 1] = 0;
    check_doubt(2, (hsize_t[]){M, 4}, one_hot, "399 & 400 & 44");
    one_hot[3] = 0.25f;
    check_doubt(2, (hsize_t[]){M, 4}, one_hot, "398 & 400 & 0 & 0.25");
    whole[0] = 2.5f, whole[300] = -1;
    check_doubt(1, (hsize_t[]){M}, whole,
                "398 & 400 & 0 & 2.5 & data.classes = 4 & data.classes = 0");
    check_doubt(1, (hsize_t[]){20}, whole, ""); /* too few to tell */
    for (int i = 0; i < 5; i++) whole[i] = 2.5f;
    check_doubt(1, (hsize_t[]){M}, whole, ""); /* too many to be mistakes */
    wide[17] = 2.5f;
    check_doubt(1, (hsize_t[]){M}, wide, ""); /* each of them another number */
}

/* -- missing and packed values, as netCDF and CF declare them ---------------------------------- */

/* An attribute of one number in an array, of the data set. */
static void put_number(hid_t file, const char *array, const char *name, hid_t type, double value) {
    hid_t id = H5Dopen2(file, array, H5P_DEFAULT),
          space = H5Screate_simple(1, (hsize_t[]){1}, NULL),
          attribute = H5Acreate2(id, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    assert_true(H5Awrite(attribute, H5T_NATIVE_DOUBLE, &value) >= 0);
    H5Aclose(attribute);
    H5Sclose(space);
    H5Dclose(id);
}

/* What a run does with a data set when it starts: the mean is measured, and missing values become
 * it. */
static tr_preprocess_t *prepare(tr_dataset_t *set) {
    const tr_data_settings_t settings = test_settings();
    const tr_preprocess_sources_t sources = {
        .settings = &settings, .info = &set->info, .train = set};
    tr_preprocess_t *told = NULL;
    OK(tr_preprocess_resolve(&sources, &told));
    OK(set->ops->set_fill(set, &told->input.mean));
    return told;
}

static void check_moments(const tr_preprocess_t *told, const double *mean, const double *std) {
    assert_int_equal(told->input.mean.count, 2);
    for (int c = 0; c < 2; c++) {
        assert_float_equal(told->input.mean.data[c], mean[c], 1e-6 * fabs(mean[c]));
        assert_float_equal(told->input.std.data[c], std[c], 1e-6 * std[c]);
    }
}

/* Without the missing values: channel 0 is 1, 3, 5, channel 1 is 10, 30. */
static void missing_values_become_the_mean(void **state) {
    const float x[] = {1, 10, 3, -9999, -9999, 30, 5, NAN};
    const float expected[] = {1, 10, 3, 20, 3, 30, 5, 20};
    const double mean[] = {3, 20}, std[] = {sqrt(8.0 / 3), 10}, more[] = {-1e30, NAN};
    for (int kind = 0; kind < 3; kind++) { /* the last one in chunks */
        const hid_t types[] = {H5T_IEEE_F32LE, H5T_IEEE_F64BE, H5T_IEEE_F32LE};
        hid_t file = create(0, false);
        put(file, "x", 2, (hsize_t[]){4, 2}, types[kind], H5T_NATIVE_FLOAT, x,
            (storage_t){.chunk = {kind == 2 ? 3 : 0, 1}, .gzip = kind == 2});
        put_number(file, "x", "_FillValue", kind ? H5T_IEEE_F32BE : H5T_STD_I16LE, -9999);
        hid_t id = H5Dopen2(file, "x", H5P_DEFAULT);
        put_attribute(id, "missing_value", H5T_NATIVE_DOUBLE, 2, more);
        H5Dclose(id);
        H5Fclose(file);
        tr_dataset_t *set = open_plain();
        assert_int_equal(set->info.field[0].dtype, TR_F32);
        tr_preprocess_t *told = prepare(set);
        check_moments(told, mean, std);
        tr_preprocess_destroy(&told);
        check_all(set, expected, NULL);
    }
}

/* Images with channels first, whose bytes and integers stay such: channel 0 is 1 to 5, channel 1 is
 * 100, 101, 103. The mean of the latter, 101.33, becomes 101. */
static void missing_integers_become_the_rounded_mean(void **state) {
    const int16_t x[2][2][2][2] = {{{{1, 2}, {255, 3}}, {{100, 255}, {255, 255}}},
                                   {{{255, 255}, {4, 5}}, {{255, 101}, {103, 255}}}};
    const int16_t expected[] = {1, 100, 2, 101, 3, 101, 3, 101, 3, 101, 3, 101, 4, 103, 5, 101};
    const double mean[] = {3, 304.0 / 3}, std[] = {sqrt(2), sqrt(14.0 / 9)};
    for (int bytes = 0; bytes < 2; bytes++) {
        uint8_t narrow[16];
        for (int i = 0; i < 16; i++) narrow[i] = (uint8_t)expected[i];
        hid_t file = create(0, false);
        put(file, "x", 4, (hsize_t[]){2, 2, 2, 2}, bytes ? H5T_STD_U8LE : H5T_STD_I16BE,
            H5T_NATIVE_INT16, x, contiguous);
        put_number(file, "x", "_FillValue", H5T_NATIVE_DOUBLE, 255);
        H5Fclose(file);
        tr_data_settings_t settings = test_settings();
        settings.layout = TR_LAYOUT_NCHW;
        tr_dataset_t *set = open_with(settings, TR_SPLIT_TRAIN);
        assert_int_equal(set->info.field[0].dtype, bytes ? TR_U8 : TR_I16);
        tr_preprocess_t *told = prepare(set);
        check_moments(told, mean, std);
        tr_preprocess_destroy(&told);
        check_all(set, bytes ? (const void *)narrow : expected, NULL);
    }
}

/* Two files of one set are packed differently, as the years of a reanalysis are; the second one is
 * unsigned in a signed type, with values outside the valid range. */
static void put_packed_file(const char *name, const int16_t *x, double scale, double offset,
                            bool is_unsigned) {
    snprintf(path, sizeof path, "%s/%s", folder, name);
    hid_t file = create(0, false);
    put(file, "x", 2, (hsize_t[]){2, 2}, H5T_STD_I16LE, H5T_NATIVE_INT16, x, contiguous);
    put_number(file, "x", "scale_factor", H5T_IEEE_F64LE, scale);
    put_number(file, "x", "add_offset", H5T_IEEE_F32BE, offset);
    put_number(file, "x", "_FillValue", H5T_STD_I16LE, -1);
    if (is_unsigned) {
        hid_t id = H5Dopen2(file, "x", H5P_DEFAULT), text = H5Tcopy(H5T_C_S1);
        H5Tset_size(text, 4);
        put_attribute(id, "_Unsigned", text, 0, "true");
        put_attribute(id, "valid_range", H5T_NATIVE_INT16, 2, (int16_t[]){10, -6});
        H5Tclose(text);
        H5Dclose(id);
    }
    H5Fclose(file);
}

/* A number that no value of the type has declares none. */
static void attributes_beyond_the_type_are_not_used(void **state) {
    snprintf(path, sizeof path, "%s/beyond.h5", folder);
    hid_t file = create(0, false);
    put(file, "x", 2, (hsize_t[]){2, 2}, H5T_STD_U8LE, H5T_NATIVE_UINT8,
        (uint8_t[]){0, 255, 7, 200}, contiguous);
    hid_t id = H5Dopen2(file, "x", H5P_DEFAULT);
    put_attribute(id, "missing_value", H5T_NATIVE_INT16, 0, &(int16_t){-1});
    put_attribute(id, "valid_range", H5T_NATIVE_INT16, 2, (int16_t[]){-1, 255});
    H5Dclose(id);
    H5Fclose(file);
    tr_dataset_t *set = open_with(test_settings(), TR_SPLIT_TRAIN);
    assert_false(set->info.has_missing);
    check_reads(set, 2, (uint8_t[]){0, 255, 7, 200}, NULL);
    tr_dataset_close(&set);
}

/* Channel 0 is 268, 10200, channel 1 is 274, 280, 225. */
static void packed_values_are_decoded_by_each_file(void **state) {
    const float expected[] = {268, 274, 5234, 280, 10200, (float)(779.0 / 3), 5234, 225};
    const double mean[] = {5234, 779.0 / 3}, std[] = {4966, sqrt(5462.0 / 9)};
    tr_data_settings_t settings = test_settings();
    char glob[1024], first[1024];
    snprintf(glob, sizeof glob, "%s/p?.h5", folder);
    settings.train = glob;
    put_packed_file("p1.h5", (int16_t[]){-4, 8, -1, 20}, 0.5, 270, false);
    /* read as unsigned: 40000, 9, 65531, 100, of which 10 to 65530 are valid */
    put_packed_file("p2.h5", (int16_t[]){-25536, 9, -5, 100}, 0.25, 200, true);
    tr_dataset_t *set = open_with(settings, TR_SPLIT_TRAIN);
    assert_int_equal(set->info.field[0].dtype, TR_F32);
    tr_preprocess_t *told = prepare(set);
    assert_true(told->decodes);
    check_moments(told, mean, std);
    for (int64_t step = 1; step < 5; step++) check_reads(set, step, expected, NULL);
    tr_dataset_close(&set);

    /* Weights of a release that did not decode go on with the stored values. */
    told->decodes = false;
    settings.trained = told;
    snprintf(first, sizeof first, "%s/p1.h5", folder);
    settings.train = first;
    set = open_with(settings, TR_SPLIT_TRAIN);
    assert_int_equal(set->info.field[0].dtype, TR_I16);
    assert_false(set->info.has_missing);
    check_reads(set, 2, (int16_t[]){-4, 8, -1, 20}, NULL);
    tr_dataset_close(&set);
    tr_preprocess_destroy(&told);
    unlink(path);
    unlink(first);
    snprintf(path, sizeof path, "%s/a.h5", folder);
}

/* y (4) as i16, with an attribute. */
static void put_targets(const int16_t *y, const char *name, double value) {
    const float x[4] = {0, 1, 2, 3};
    hid_t file = create(0, false);
    put(file, "x", 1, (hsize_t[]){4}, H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, x, contiguous);
    put(file, "y", 1, (hsize_t[]){4}, H5T_STD_I16LE, H5T_NATIVE_INT16, y, contiguous);
    put_number(file, "y", name, H5T_NATIVE_DOUBLE, value);
    H5Fclose(file);
}

static void check_targets_refused(int64_t classes, const char *names) {
    tr_data_settings_t settings = test_settings();
    tr_dataset_t *set = NULL;
    settings.train = path;
    settings.classes = classes;
    assert_int_equal(tr_dataset_open(&settings, TR_SPLIT_TRAIN, &set), TR_ERR_DATA);
    assert_error_names(names);
    unlink(path);
}

static void packed_targets_are_decoded_and_missing_ones_refused(void **state) {
    const int16_t y[] = {0, 1, 2, 3}, holes[] = {0, 1, -9, -9};
    const float x[] = {0, 1, 2, 3}, decoded[] = {0, 0.25, 0.5, 0.75};
    put_targets(y, "scale_factor", 0.25); /* not labels, although they are stored as 0 to 3 */
    tr_dataset_t *set = open_plain();
    assert_int_equal(set->info.classes, 0);
    check_all(set, x, decoded);
    put_targets(y, "scale_factor", 0.25);
    check_targets_refused(4, "/y & scale_factor & 0.25 & 4 & data.classes");
    put_targets(holes, "_FillValue", -9);
    check_targets_refused(0, "/y & 2 & 4 & _FillValue");
    put_targets(holes, "_FillValue", -9);
    check_targets_refused(2, "/y & 2 & 4 & _FillValue");
    put_targets(y, "_FillValue", -9); /* none is missing: labels as ever */
    set = open_plain();
    assert_int_equal(set->info.classes, 4);
    check_all(set, x, (int32_t[]){0, 1, 2, 3});
    put_targets(y, "scale_factor", 0);
    check_targets_refused(-1, "/y & scale_factor & 0");
}

int main(void) {
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(missing_values_become_the_mean),
        cmocka_unit_test(attributes_beyond_the_type_are_not_used),
        cmocka_unit_test(missing_integers_become_the_rounded_mean),
        cmocka_unit_test(packed_values_are_decoded_by_each_file),
        cmocka_unit_test(packed_targets_are_decoded_and_missing_ones_refused),
        cmocka_unit_test(a_fraction_is_kept_for_validation),
        cmocka_unit_test(the_folds_have_each_class_alike),
        cmocka_unit_test(folds_of_labels_that_are_no_classes),
        cmocka_unit_test(ids_and_files_are_for_predictions),
        cmocka_unit_test(chunks_that_are_read_whole_get_a_warning),
        cmocka_unit_test(test_storage),
        cmocka_unit_test(test_types),
        cmocka_unit_test(half_floats),
        cmocka_unit_test(the_library_keeps_chunks),
        cmocka_unit_test(test_channels_first),
        cmocka_unit_test(test_shapes),
        cmocka_unit_test(test_labels),
        cmocka_unit_test(test_labels_with_mistakes),
        cmocka_unit_test(labels_of_positions),
        cmocka_unit_test(masks_that_are_doubtful),
        cmocka_unit_test(few_labels_of_positions),
        cmocka_unit_test(targets_of_positions),
        cmocka_unit_test(statistics_beside_labels_of_positions),
        cmocka_unit_test(test_names),
        cmocka_unit_test(links),
        cmocka_unit_test(repack_keeps_groups_links_and_types),
        cmocka_unit_test(repack_leaves_out_references_and_external_links),
        cmocka_unit_test(virtual_data_sets_are_refused),
        cmocka_unit_test(odd_types_are_refused),
        cmocka_unit_test(damaged_groups_are_told),
        cmocka_unit_test(names_that_cannot_be_read),
        cmocka_unit_test(names_padded_with_blanks),
        cmocka_unit_test(one_hot_beyond_the_classes),
        cmocka_unit_test(the_cost_of_more_rows_than_there_are),
        cmocka_unit_test(unreadable),
        cmocka_unit_test(test_several_files),
        cmocka_unit_test(files_of_several_types_are_joined),
        cmocka_unit_test(test_bad_files),
        cmocka_unit_test(test_not_finite),
        cmocka_unit_test(test_damage),
        cmocka_unit_test(test_attributes),
        cmocka_unit_test(test_attributes_that_are_no_numbers),
        cmocka_unit_test(test_checksum),
        cmocka_unit_test(test_y_file),
        cmocka_unit_test(labels_are_in_a_file_called_like_the_inputs),
        cmocka_unit_test(test_lzf),
        cmocka_unit_test(samples_that_were_never_written),
        cmocka_unit_test(labels_that_were_never_written),
        cmocka_unit_test(chunks_without_a_table_are_looked_for),
        cmocka_unit_test(fill_values_of_half_floats),
        cmocka_unit_test(repack_without_a_fill_value_stores_zeros),
        cmocka_unit_test(sorted_labels_get_a_warning),
        cmocka_unit_test(all_splits_are_normalised_as_the_training_data),
        cmocka_unit_test(numbers_too_large_for_f32),
        cmocka_unit_test(test_through_loader),
        cmocka_unit_test(past_the_page_cache),
    };
    return cmocka_run_group_tests_name("hdf5", tests, setup, teardown);
}
