/*
 * make_fields FILE: drawn shapes with labels of each position
 *   {train,test}/x      f32 (N, 24, 20, 1): noise, a bright rectangle, a dark disc
 *   {train,test}/y      u8 (N, 24, 20): 0 background, 1 rectangle, 2 disc; 255 in the first row
 *   {train,test}/z      f32 (N, 24, 20, 2): 3 + 2 x, 5 - x, in part NaN
 *   {train,test}/small  u8 (N, 12, 10)
 *   {train,test}/mask   u8 (N, 24, 20): 0 in the first row
 *   {train,test}/grey   u8 (N, 24, 20): 0 background, 128 rectangle, 255 disc
 *   {train,test}/black  u8 (N, 24, 20): 0, and 255 in the rectangle
 *   {train,test}/hot    u8 (N, 24, 20, 3): one-hot, of the classes of y
 *   {train,test}/rgb    u8 (N, 24, 20, 3): the classes of y in the colours of PASCAL VOC
 *   {train,test}/w      f32 (N, 24, 20): 0 background, 1 rectangle, -1 disc; NaN in the first row
 * make_fields pictures FILE NAME FOLDER [BLACK WHITE]: the number of files FOLDER/000000.png, ..., if they show the rows
 *   of the array: classes in the colours of PASCAL VOC or, with a range, numbers; fails where they do not
 * make_fields climate NAME COUNT H W [ROWS [LABEL]]: files NAME0000.h5, ..., in the form of DeepCAM's, of a sample each:
 *   climate/data        f32 (H, W, 16): noise in units of each channel, with traces of the classes
 *   climate/labels_0    i64 (H, W), or (ROWS, W): 0 background (98 %), 1 small discs, 2 narrow bands; 255 in the last row;
 *                       LABEL, if given, at one position
 * make_fields scores PREDICTIONS NAME FILE...: of the labels NAME of the files, accuracy and IoU of each class
 * make_fields errors PREDICTIONS NAME FILE...: of the numbers NAME, RMSE and MAE of each of two channels
 * make_fields overlap PREDICTIONS NAME FILE...: of the masks NAME, 0 or more, IoU and Dice of predictions of at least 1/2
 */
#include "data/images/image.h"
#include "h5/writer.h"

#include <hdf5.h>
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        if ((expr) != TR_OK) {                                                                     \
            fprintf(stderr, "make_fields: %s\n", tr_error_last()->message);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

enum { H = 24, W = 20, POINTS = H * W, MOST = 96, CLASSES = 3 };
static float x[POINTS], z[2 * POINTS], signs[POINTS];
static uint8_t y[POINTS], small[POINTS / 4], mask[POINTS], greys[POINTS], blacks[POINTS],
    hot[CLASSES * POINTS], rgb[3 * POINTS];
static uint32_t seed = 1;

static int below(int n) {
    seed = seed * 1664525u + 1013904223u;
    return (int)((seed >> 8) % (uint32_t)n);
}

static void draw(void) {
    const int top = 1 + below(12), left = below(10), height = 4 + below(6), width = 4 + below(6),
              row = 6 + below(13), column = 5 + below(11), radius = 3 + below(3);
    for (int i = 0; i < POINTS; i++) {
        const int r = i / W, c = i % W, down = r - row, right = c - column;
        const int is_rectangle = r >= top && r < top + height && c >= left && c < left + width,
                  is_disc = down * down + right * right <= radius * radius;
        y[i] = is_disc ? 2 : is_rectangle ? 1 : 0;
        x[i] = (float)(y[i] == 1) - (float)(y[i] == 2) + (float)(below(1000) - 500) / 2000;
        z[2 * i] = below(7) ? 3 + 2 * x[i] : NAN;
        z[2 * i + 1] = below(5) ? 5 - x[i] : NAN;
        mask[i] = r > 0;
        greys[i] = y[i] == 2 ? 255 : (uint8_t)(128 * y[i]);
        blacks[i] = y[i] == 1 ? 255 : 0;
        for (int k = 0; k < CLASSES; k++) hot[CLASSES * i + k] = y[i] == k;
        tr_class_colour(y[i], rgb + 3 * i);
        signs[i] = r == 0 ? NAN : (float)((y[i] == 1) - (y[i] == 2));
        if (r == 0) y[i] = 255;
    }
    for (int i = 0; i < POINTS / 4; i++) small[i] = y[i / (W / 2) * 2 * W + i % (W / 2) * 2] & 3;
}

static void make(const char *path) {
    static const char *const groups[] = {"train", "test"};
    static const int samples[] = {MOST, 20};
    tr_writer_t *writer;
    MUST(tr_writer_create(path, &(tr_writer_params_t){.force = true}, &writer));
    for (int g = 0; g < 2; g++) {
        const struct {
            const char *name;
            tr_dtype_t dtype;
            tr_shape_t shape;
            const void *data;
        } arrays[] = {{"x", TR_F32, TR_SHAPE(H, W, 1), x},
                      {"y", TR_U8, TR_SHAPE(H, W), y},
                      {"z", TR_F32, TR_SHAPE(H, W, 2), z},
                      {"small", TR_U8, TR_SHAPE(H / 2, W / 2), small},
                      {"mask", TR_U8, TR_SHAPE(H, W), mask},
                      {"grey", TR_U8, TR_SHAPE(H, W), greys},
                      {"black", TR_U8, TR_SHAPE(H, W), blacks},
                      {"hot", TR_U8, TR_SHAPE(H, W, CLASSES), hot},
                      {"rgb", TR_U8, TR_SHAPE(H, W, 3), rgb},
                      {"w", TR_F32, TR_SHAPE(H, W), signs}};
        enum { ARRAYS = sizeof arrays / sizeof *arrays };
        int id[ARRAYS];
        for (int a = 0; a < ARRAYS; a++) {
            char name[32];
            snprintf(name, sizeof name, "%s/%s", groups[g], arrays[a].name);
            MUST(tr_writer_array(writer, name, arrays[a].dtype, samples[g], &arrays[a].shape,
                                 &id[a]));
        }
        for (int i = 0; i < samples[g]; i++) {
            draw();
            for (int a = 0; a < ARRAYS; a++)
                MUST(tr_writer_append(writer, id[a], 1, arrays[a].data));
        }
    }
    MUST(tr_writer_commit(writer));
    tr_writer_destroy(&writer);
}

static void put_array(hid_t file, const char *name, hid_t type, int ndim, const hsize_t *dim,
                      const void *values) {
    const hid_t space = H5Screate_simple(ndim, dim, NULL),
                id = H5Dcreate2(file, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (id < 0 || H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0) exit(1);
    H5Dclose(id);
    H5Sclose(space);
}

static void make_climate_file(const char *path, int h, int w, int rows, int odd) {
    enum { CHANNELS = 16 };
    const hsize_t dim[] = {(hsize_t)h, (hsize_t)w, CHANNELS},
                  label_dim[] = {(hsize_t)rows, (hsize_t)w};
    const int points = h * w, row = below(h), column = below(w), radius = h / 20 + 1,
              left = below(w - w / 4), at = below(h);
    float *data = malloc((size_t)points * CHANNELS * sizeof *data);
    int64_t *label = calloc((size_t)points, sizeof *label);
    for (int i = 0; i < points; i++) {
        const int r = i / w, c = i % w, down = r - row, right = c - column;
        if (down * down + right * right <= radius * radius) label[i] = 1;
        if (r == at && c >= left && c < left + w / 4) label[i] = 2;
        for (int k = 0; k < CHANNELS; k++) {
            const double trace = 1.5 * ((label[i] == 1 && k < 4) - (label[i] == 2 && k % 3 == 2)),
                         unit = pow(10, 3 - k % 7);
            data[i * CHANNELS + k] =
                (float)(unit * (k + trace + (double)(below(1000) - 500) / 1000));
        }
        if (r == h - 1) label[i] = 255;
    }
    if (odd > 0) label[points / 2] = odd;
    const hid_t file = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
    H5Gclose(H5Gcreate2(file, "climate", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
    put_array(file, "climate/data", H5T_NATIVE_FLOAT, 3, dim, data);
    put_array(file, "climate/labels_0", H5T_NATIVE_INT64, 2, label_dim, label);
    H5Fclose(file);
    free(data);
    free(label);
}

/* All values of an array as floats. */
static float *read_all(const char *path, const char *name, hsize_t *out_count) {
    const hid_t file = H5Fopen(path, H5F_ACC_RDONLY, H5P_DEFAULT),
                array = file < 0 ? -1 : H5Dopen2(file, name, H5P_DEFAULT),
                space = array < 0 ? -1 : H5Dget_space(array);
    if (space < 0) exit(1);
    *out_count = (hsize_t)H5Sget_simple_extent_npoints(space);
    float *values = malloc((size_t)*out_count * sizeof *values);
    if (!values || H5Dread(array, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, values) < 0)
        exit(1);
    H5Sclose(space);
    H5Dclose(array);
    H5Fclose(file);
    return values;
}

static void print_scores(const float *truth, const float *found, hsize_t count) {
    double hits = 0, all = 0, both[CLASSES] = {0}, either[CLASSES] = {0};
    for (hsize_t i = 0; i < count; i++) {
        if (truth[i] == 255) continue;
        all++;
        hits += truth[i] == found[i];
        for (int c = 0; c < CLASSES; c++) {
            const int is = truth[i] == (float)c, was = found[i] == (float)c;
            both[c] += is && was;
            either[c] += is || was;
        }
    }
    printf("%.6f", hits / all);
    for (int c = 0; c < CLASSES; c++) printf(" %.6f", both[c] / either[c]);
    printf("\n");
}

static void print_errors(const float *truth, const float *found, hsize_t count) {
    double n[2] = {0}, squared[2] = {0}, absolute[2] = {0};
    for (hsize_t i = 0; i < count; i++) {
        const double error = (double)found[i] - (double)truth[i];
        if (isnan(error)) continue;
        n[i % 2]++;
        squared[i % 2] += error * error;
        absolute[i % 2] += fabs(error);
    }
    for (int c = 0; c < 2; c++)
        printf("%.6f %.6f%s", sqrt(squared[c] / n[c]), absolute[c] / n[c], c ? "\n" : " ");
}

static void print_overlap(const float *truth, const float *found, hsize_t count) {
    double both = 0, either = 0;
    for (hsize_t i = 0; i < count; i++) {
        both += truth[i] > 0 && found[i] >= 0.5F;
        either += truth[i] > 0 || found[i] >= 0.5F;
    }
    printf("%.6f %.6f\n", both / either, 2 * both / (either + both));
}

/* What a pixel of a picture of this value is. */
static void colour_of(float value, const double *range, uint8_t out[3]) {
    static const uint8_t voc[][3] = {{0, 0, 0}, {128, 0, 0}, {0, 128, 0}}, none[] = {224, 224, 192},
                         unknown[] = {128, 0, 128};
    const double grey = range ? 255 * ((double)value - range[0]) / (range[1] - range[0]) : 0;
    if (isnan(value))
        memcpy(out, unknown, 3);
    else if (range)
        memset(out, (int)lround(grey < 0 ? 0 : grey > 255 ? 255 : grey), 3);
    else
        memcpy(out, value == 255 ? none : voc[(int)value], 3);
}

static int count_pictures(const char *path, const char *name, const char *folder,
                          const double *range) {
    hsize_t count;
    float *values = read_all(path, name, &count);
    int pictures = 0;
    for (; (hsize_t)pictures * POINTS < count; pictures++) {
        char file[512];
        tr_image_t image;
        snprintf(file, sizeof file, "%s/%06d.png", folder, pictures);
        if (access(file, F_OK) != 0) break;
        MUST(tr_image_read(file, 3, &image));
        for (int i = 0; i < POINTS; i++) {
            uint8_t wanted[3];
            colour_of(values[pictures * POINTS + i], range, wanted);
            for (int c = 0; c < 3; c++)
                if (image.height != H || image.width != W ||
                    abs(image.pixels[3 * i + c] - wanted[c]) > (range ? 1 : 0)) {
                    fprintf(stderr, "%s: position %d is wrong\n", file, i);
                    exit(1);
                }
        }
        tr_image_free(&image);
    }
    free(values);
    return pictures;
}

/* The arrays of these files, one after the other. */
static float *read_files(const char *name, char **path, int paths, hsize_t *out_count) {
    float *all = NULL;
    *out_count = 0;
    for (int i = 0; i < paths; i++) {
        hsize_t count;
        float *values = read_all(path[i], name, &count);
        all = realloc(all, (size_t)(*out_count + count) * sizeof *all);
        memcpy(all + *out_count, values, (size_t)count * sizeof *all);
        *out_count += count;
        free(values);
    }
    return all;
}

int main(int argc, char **argv) {
    hsize_t count, found_count;
    if (argc == 2) return make(argv[1]), 0;
    if (argc >= 5 && strcmp(argv[1], "pictures") == 0) {
        const double range[] = {argc > 6 ? atof(argv[5]) : 0, argc > 6 ? atof(argv[6]) : 0};
        printf("%d\n", count_pictures(argv[2], argv[3], argv[4], argc > 6 ? range : NULL));
        return 0;
    }
    if (argc >= 6 && strcmp(argv[1], "climate") == 0) {
        const int h = atoi(argv[4]), w = atoi(argv[5]);
        for (const char *c = argv[2]; *c; c++) seed = seed * 31 + (uint32_t)*c; /* sets differ */
        for (int i = 0; i < atoi(argv[3]); i++) {
            char path[512];
            snprintf(path, sizeof path, "%s%04d.h5", argv[2], i);
            make_climate_file(path, h, w, argc > 6 ? atoi(argv[6]) : h,
                              argc > 7 ? atoi(argv[7]) : 0);
        }
        return 0;
    }
    if (argc < 5) return 2;
    float *truth = read_files(argv[3], argv + 4, argc - 4, &count),
          *found = read_all(argv[2], "prediction", &found_count);
    if (count != found_count) return 1;
    (strcmp(argv[1], "scores") == 0    ? print_scores
     : strcmp(argv[1], "overlap") == 0 ? print_overlap
                                       : print_errors)(truth, found, count);
    free(truth);
    free(found);
    return 0;
}
