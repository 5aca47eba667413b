/*
 * Writes, into the folder it is started in, one good HDF5 file and the odd ones that
 * tests/cli/bad_input.table speaks of: 64 samples of 8 x 8 x 1 bytes with labels 0 .. 9, and one
 * thing wrong in each.
 */
#include <hdf5.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>

enum { SAMPLES = 64, PIXELS = 64 };
static uint8_t image[SAMPLES * PIXELS];
static uint8_t label[SAMPLES];
static float number[SAMPLES * PIXELS];
static int failures;

#define RANK(...)                                                                                  \
    (int)(sizeof((hsize_t[]){__VA_ARGS__}) / sizeof(hsize_t)), (const hsize_t[]) {                 \
        __VA_ARGS__                                                                                \
    }

static hid_t create(const char *path) {
    hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    failures += file < 0;
    return file;
}

static void put_as(hid_t file, const char *name, int ndim, const hsize_t *dim, hid_t type,
                   const void *data, hid_t how) {
    hid_t space = ndim ? H5Screate_simple(ndim, dim, NULL) : H5Screate(H5S_SCALAR);
    hid_t links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    hid_t id = H5Dcreate2(file, name, type, space, links, how, H5P_DEFAULT);
    failures += id < 0 || (data && H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, data) < 0);
    H5Dclose(id);
    H5Pclose(links);
    H5Sclose(space);
}

static void put(hid_t file, const char *name, int ndim, const hsize_t *dim, hid_t type,
                const void *data) {
    put_as(file, name, ndim, dim, type, data, H5P_DEFAULT);
}

static void put_images(hid_t file) {
    put(file, "x", RANK(SAMPLES, 8, 8, 1), H5T_NATIVE_UINT8, image);
}
static void put_labels(hid_t file) {
    put(file, "y", RANK(SAMPLES), H5T_NATIVE_UINT8, label);
}
static void put_numbers(hid_t file) {
    put(file, "x", RANK(SAMPLES, 8, 8, 1), H5T_NATIVE_FLOAT, number);
}

static void end(hid_t file) {
    failures += H5Fclose(file) < 0;
}

static void fill(void) {
    for (int i = 0; i < SAMPLES * PIXELS; i++) {
        image[i] = (uint8_t)(i * 7 + i / PIXELS);
        number[i] = (float)image[i] / 255;
    }
    /* Eight bytes that stand nowhere else, for the test to find: in the third chunk of damaged.h5.
     */
    for (int i = 0; i < 8; i++) image[32 * PIXELS + i] = 13;
    for (int i = 0; i < SAMPLES; i++) label[i] = (uint8_t)(i % 10);
}

static void write_good(void) {
    hid_t file = create("good.h5");
    put_images(file);
    put_labels(file);
    end(file);
    file = create("floats.h5");
    put_numbers(file);
    put_labels(file);
    end(file);
}

static void write_names(void) {
    hid_t file = create("names.h5");
    put(file, "run7/pixels", RANK(SAMPLES, 8, 8, 1), H5T_NATIVE_UINT8, image);
    put(file, "run7/kinds", RANK(SAMPLES), H5T_NATIVE_UINT8, label);
    end(file);
    file = create("unlabelled.h5");
    put_images(file);
    end(file);
    file = create("bare.h5");
    end(file);
}

static void write_shapes(void) {
    hid_t file = create("scalar.h5");
    put(file, "x", 0, NULL, H5T_NATIVE_UINT8, image);
    put_labels(file);
    end(file);
    file = create("deep.h5");
    put(file, "x", RANK(SAMPLES, 2, 2, 2, 2, 2, 2), H5T_NATIVE_UINT8, image);
    put_labels(file);
    end(file);
    file = create("table.h5");
    put(file, "x", RANK(SAMPLES, 64), H5T_NATIVE_UINT8, image);
    put_labels(file);
    end(file);
    file = create("other.h5");
    put(file, "x", RANK(SAMPLES, 8, 4, 2), H5T_NATIVE_UINT8, image);
    put_labels(file);
    end(file);
    file = create("none0.h5");
    put(file, "x", RANK(0, 8, 8, 1), H5T_NATIVE_UINT8, NULL);
    put(file, "y", RANK(0), H5T_NATIVE_UINT8, NULL);
    end(file);
    file = create("maps.h5");
    put_images(file);
    put(file, "y", RANK(SAMPLES, 8, 8), H5T_NATIVE_FLOAT, number);
    end(file);
    file = create("lengths.h5");
    put_images(file);
    put(file, "y", RANK(SAMPLES - 4), H5T_NATIVE_UINT8, label);
    end(file);
}

static void write_types(void) {
    static const char words[SAMPLES * PIXELS];
    hid_t file = create("text.h5"), text = H5Tcopy(H5T_C_S1);
    put(file, "x", RANK(SAMPLES, PIXELS), text, words);
    put_labels(file);
    end(file);
    file = create("words.h5");
    put_images(file);
    put(file, "y", RANK(SAMPLES), text, words);
    end(file);
    H5Tclose(text);
    hid_t pair = H5Tcreate(H5T_COMPOUND, 2);
    H5Tinsert(pair, "real", 0, H5T_NATIVE_UINT8);
    H5Tinsert(pair, "imaginary", 1, H5T_NATIVE_UINT8);
    file = create("compound.h5");
    put(file, "x", RANK(SAMPLES, PIXELS / 2), pair, image);
    put_labels(file);
    end(file);
    H5Tclose(pair);
}

static void write_values(void) {
    hid_t file = create("nan.h5");
    number[17 * PIXELS + 5] = NAN;
    put_numbers(file);
    put_labels(file);
    end(file);
    file = create("targets.h5");
    put_images(file);
    put(file, "y", RANK(SAMPLES, 2), H5T_NATIVE_FLOAT, number + 18 * PIXELS);
    end(file);
    file = create("nan_targets.h5");
    put_images(file);
    put(file, "y", RANK(SAMPLES, 2), H5T_NATIVE_FLOAT, number + 17 * PIXELS - 20);
    end(file);
    label[40] = 12;
    file = create("label.h5");
    put_images(file);
    put_labels(file);
    end(file);
    file = create("negative.h5");
    int8_t negative[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) negative[i] = i == 40 ? -3 : (int8_t)(i % 10);
    put_images(file);
    put(file, "y", RANK(SAMPLES), H5T_NATIVE_INT8, negative);
    end(file);
}

/* Its chunks are checked: the test damages one. */
static void write_checked(void) {
    hid_t file = create("damaged.h5"), how = H5Pcreate(H5P_DATASET_CREATE);
    H5Pset_chunk(how, 4, (const hsize_t[]){16, 8, 8, 1});
    H5Pset_fletcher32(how);
    put_as(file, "x", RANK(SAMPLES, 8, 8, 1), H5T_NATIVE_UINT8, image, how);
    put_labels(file);
    end(file);
    H5Pclose(how);
    file = create("linked.h5");
    failures += H5Lcreate_external("elsewhere.h5", "/x", file, "x", H5P_DEFAULT, H5P_DEFAULT) < 0;
    put_labels(file);
    end(file);
}

/* As a writer leaves it that was killed half way: the last chunks of x were never allocated. */
static void write_half(void) {
    const hsize_t half[] = {SAMPLES / 2, 8, 8, 1};
    hid_t file = create("unwritten.h5"), how = H5Pcreate(H5P_DATASET_CREATE),
          memory = H5Screate_simple(4, half, NULL);
    H5Pset_chunk(how, 4, (const hsize_t[]){16, 8, 8, 1});
    put_as(file, "x", RANK(SAMPLES, 8, 8, 1), H5T_NATIVE_UINT8, NULL, how);
    hid_t id = H5Dopen2(file, "x", H5P_DEFAULT), space = H5Dget_space(id);
    failures += H5Sselect_hyperslab(space, H5S_SELECT_SET, (const hsize_t[]){0, 0, 0, 0}, NULL,
                                    half, NULL) < 0;
    failures += H5Dwrite(id, H5T_NATIVE_UINT8, memory, space, H5P_DEFAULT, image) < 0;
    H5Dclose(id), H5Sclose(space), H5Sclose(memory), H5Pclose(how);
    put_labels(file);
    end(file);
}

static void write_virtual(const char *path, const char *source, const char *dataset) {
    hid_t file = create(path), how = H5Pcreate(H5P_DATASET_CREATE);
    hid_t space = H5Screate_simple(RANK(SAMPLES, 8, 8, 1), NULL);
    failures += H5Pset_virtual(how, space, source, dataset, space) < 0;
    put_as(file, "x", RANK(SAMPLES, 8, 8, 1), H5T_NATIVE_UINT8, NULL, how);
    put_labels(file);
    end(file);
    H5Sclose(space);
    H5Pclose(how);
}

/* In doubles, times and targets that 32-bit floats round away; in 32-bit integers, what they hold
 * and what not. */
static void write_rounded(void) {
    double x[SAMPLES][3], y[SAMPLES];
    int32_t whole[SAMPLES][2];
    for (int i = 0; i < SAMPLES; i++) {
        x[i][0] = sin(i);
        x[i][1] = 1.7e9 + 10.5 * i;
        x[i][2] = 101325; /* and never varies */
        y[i] = 2e8 + x[i][0];
        whole[i][0] = 1000 * i;
        whole[i][1] = 2000000000 + i;
    }
    hid_t file = create("rounded.h5");
    put(file, "x", RANK(SAMPLES, 3), H5T_NATIVE_DOUBLE, x);
    put(file, "y", RANK(SAMPLES), H5T_NATIVE_DOUBLE, y);
    put(file, "whole", RANK(SAMPLES, 2), H5T_NATIVE_INT32, whole);
    end(file);
}

/* Samples of two dimensions: six instruments over 24 steps in units of their own, and pictures with
 * dark edges. */
static void write_two_dimensional(void) {
    static float series[SAMPLES][24][6], picture[SAMPLES][24][24];
    for (int i = 0; i < SAMPLES; i++)
        for (int t = 0; t < 24; t++) {
            for (int c = 0; c < 6; c++)
                series[i][t][c] = (float)((sin(i + 0.3 * t + c) + 7 * c) * pow(10, c % 3));
            for (int c = 4; c < 20; c++)
                picture[i][t][c] = (float)(100 + 50 * sin(i + 0.3 * t) * cos(0.4 * c + i));
        }
    hid_t file = create("two.h5");
    put(file, "x", RANK(SAMPLES, 24, 6), H5T_NATIVE_FLOAT, series);
    put(file, "long", RANK(SAMPLES, 12, 12), H5T_NATIVE_FLOAT, series);
    put(file, "swapped", RANK(SAMPLES, 6, 24), H5T_NATIVE_FLOAT, series);
    put(file, "picture", RANK(SAMPLES, 24, 24), H5T_NATIVE_FLOAT, picture);
    put_labels(file);
    end(file);
}

static void put_number(hid_t file, const char *array, const char *name, double value) {
    hid_t space = H5Screate_simple(RANK(1), NULL),
          id = H5Acreate_by_name(file, array, name, H5T_IEEE_F64LE, space, H5P_DEFAULT, H5P_DEFAULT,
                                 H5P_DEFAULT);
    failures += H5Awrite(id, H5T_NATIVE_DOUBLE, &value) < 0;
    H5Aclose(id);
    H5Sclose(space);
}

/* As netCDF writes them: temperatures of two classes in packed integers, with 5 missing values in
 * the first sample of every 8; then missing targets, and labels that are packed. */
static void write_declared(void) {
    static int16_t packed[SAMPLES][PIXELS];
    static float targets[SAMPLES][2];
    uint8_t kind[SAMPLES];
    for (int i = 0; i < SAMPLES; i++) {
        kind[i] = (uint8_t)(i * 7 / 3 % 2);
        for (int p = 0; p < PIXELS; p++)
            packed[i][p] = (int16_t)((kind[i] ? 300 : -300) + (i * 31 + p * 17) % 101);
        for (int h = 0; h < 5 && i % 8 == 0; h++) packed[i][11 * h + i % 3] = -32767;
        targets[i][0] = (float)i, targets[i][1] = i == 9 || i == 20 ? 9.96921e36F : 1;
    }
    hid_t file = create("packed.h5");
    put(file, "x", RANK(SAMPLES, 8, 8), H5T_NATIVE_INT16, packed);
    put_number(file, "x", "scale_factor", 0.01);
    put_number(file, "x", "add_offset", 280);
    put_number(file, "x", "_FillValue", -32767);
    put(file, "y", RANK(SAMPLES), H5T_NATIVE_UINT8, kind);
    end(file);
    file = create("missing_targets.h5");
    put_images(file);
    put(file, "y", RANK(SAMPLES, 2), H5T_NATIVE_FLOAT, targets);
    put_number(file, "y", "missing_value", 9.96921e36);
    end(file);
    file = create("packed_labels.h5");
    put_images(file);
    put(file, "y", RANK(SAMPLES), H5T_NATIVE_UINT8, kind);
    put_number(file, "y", "scale_factor", 0.5);
    end(file);
}

/* Types of elements that are not numbers. */
static void write_odd_types(void) {
    static struct { float r, i; } complex[SAMPLES][2];
    static hvl_t rows[SAMPLES];
    hid_t pair = H5Tcreate(H5T_COMPOUND, sizeof complex[0][0]),
          ragged = H5Tvlen_create(H5T_NATIVE_FLOAT),
          triple = H5Tarray_create2(H5T_NATIVE_FLOAT, 1, (const hsize_t[]){2});
    H5Tinsert(pair, "r", 0, H5T_NATIVE_FLOAT);
    H5Tinsert(pair, "i", sizeof(float), H5T_NATIVE_FLOAT);
    for (int i = 0; i < SAMPLES; i++) rows[i] = (hvl_t){(size_t)(1 + i % 3), number};
    hid_t file = create("complex.h5");
    put(file, "x", RANK(SAMPLES, 2), pair, complex);
    put_labels(file);
    end(file);
    file = create("ragged.h5");
    put(file, "x", RANK(SAMPLES), ragged, rows);
    put_labels(file);
    end(file);
    file = create("arrays.h5");
    put(file, "x", RANK(SAMPLES), triple, complex);
    put_labels(file);
    end(file);
    H5Tclose(pair), H5Tclose(ragged), H5Tclose(triple);
}

/* Tables of pandas, a sparse matrix, MATLAB's order of dimensions, and a file that is still open. */
static void write_foreign(void) {
    static char bytes[1 << 16];
    hid_t file = create("frame.h5");
    put(file, "df/axis0", RANK(SAMPLES), H5T_NATIVE_INT32, number);
    put(file, "df/block0_values", RANK(SAMPLES, 2), H5T_NATIVE_FLOAT, number);
    end(file);
    file = create("sparse.h5");
    put(file, "X/data", RANK(SAMPLES), H5T_NATIVE_FLOAT, number);
    put(file, "X/indices", RANK(SAMPLES), H5T_NATIVE_INT32, number);
    put(file, "X/indptr", RANK(9), H5T_NATIVE_INT32, number);
    end(file);
    file = create("matlab.h5");
    put(file, "x", RANK(3, SAMPLES), H5T_NATIVE_FLOAT, number);
    put(file, "y", RANK(1, SAMPLES), H5T_NATIVE_UINT8, label);
    put_number(file, "x", "MATLAB_class", 0);
    end(file);
    file = create("row.h5");
    put_images(file);
    put(file, "y", RANK(1, SAMPLES), H5T_NATIVE_UINT8, label);
    end(file);

    hid_t latest = H5Pcreate(H5P_FILE_ACCESS);
    H5Pset_libver_bounds(latest, H5F_LIBVER_LATEST, H5F_LIBVER_LATEST);
    file = H5Fcreate("written.h5", H5F_ACC_TRUNC, H5P_DEFAULT, latest);
    put_images(file);
    H5Fflush(file, H5F_SCOPE_GLOBAL);
    FILE *from = fopen("written.h5", "rb"), *to = fopen("open.h5", "wb");
    failures += !from || !to || fwrite(bytes, 1, fread(bytes, 1, sizeof bytes, from), to) == 0;
    if (from) fclose(from);
    if (to) fclose(to);
    end(file);
    H5Pclose(latest);
    remove("written.h5");
}

int main(void) {
    fill();
    write_good();
    write_names();
    write_shapes();
    write_types();
    write_checked();
    write_half();
    write_virtual("virtual.h5", "elsewhere.h5", "/x");
    write_values();
    write_rounded();
    write_two_dimensional();
    write_declared();
    write_odd_types();
    write_foreign();
    if (failures) fprintf(stderr, "make_bad_input: %d calls of HDF5 failed\n", failures);
    return failures ? 1 : 0;
}
