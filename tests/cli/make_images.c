/*
 * make_images FOLDER: pictures for tests/cli/images.t, made with libjpeg and libpng themselves.
 * FOLDER/set/{bars,rings}/ hold 24 pictures each of different sizes, JPEG and PNG, grey and RGB;
 * FOLDER/plain.png is a gradient in RGB of 37 x 53 pixels, FOLDER/deep.png has 16 bits per channel,
 * and FOLDER/cmyk.jpg four channels. Exit code 77 where a library is missing.
 */
#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#if !defined TR_HAVE_JPEG || !defined TR_HAVE_PNG
int main(void) {
    return 77;
}
#else
#include <jpeglib.h>
#include <png.h>

enum { SIDE = 64 };
static uint8_t pixels[SIDE * SIDE * 4];

static void write_png(const char *path, int height, int width, int channels) {
    png_image image = {.version = PNG_IMAGE_VERSION,
                       .width = (png_uint_32)width,
                       .height = (png_uint_32)height,
                       .format = channels == 1 ? PNG_FORMAT_GRAY : PNG_FORMAT_RGB};
    if (!png_image_write_to_file(&image, path, 0, pixels, 0, NULL)) exit(1);
}

static void write_jpeg(const char *path, int height, int width, int channels) {
    struct jpeg_error_mgr error;
    struct jpeg_compress_struct jpeg = {.err = jpeg_std_error(&error)};
    FILE *file = fopen(path, "wb");
    if (!file) exit(1);
    jpeg_create_compress(&jpeg);
    jpeg_stdio_dest(&jpeg, file);
    jpeg.image_height = (JDIMENSION)height;
    jpeg.image_width = (JDIMENSION)width;
    jpeg.input_components = channels;
    jpeg.in_color_space = channels == 1 ? JCS_GRAYSCALE : channels == 3 ? JCS_RGB : JCS_CMYK;
    jpeg_set_defaults(&jpeg);
    jpeg_start_compress(&jpeg, TRUE);
    for (int y = 0; y < height; y++) {
        JSAMPROW row = pixels + y * width * channels;
        jpeg_write_scanlines(&jpeg, &row, 1);
    }
    jpeg_finish_compress(&jpeg);
    jpeg_destroy_compress(&jpeg);
    fclose(file);
}

/* Bars or rings, brighter in one channel than in the next. */
static void draw(int kind, int sample, int height, int width, int channels) {
    const double phase = sample % 5, step = height / 6.0;
    for (int y = 0; y < height; y++)
        for (int x = 0; x < width; x++) {
            const double at = kind ? hypot(y - height / 2, x - width / 2) : y;
            for (int c = 0; c < channels; c++)
                pixels[(y * width + x) * channels + c] =
                    (uint8_t)(128 + (100 - 30 * c) * sin(6.28 * (at + phase) / step));
        }
}

static void make_set(const char *folder) {
    static const char *const kinds[] = {"bars", "rings"};
    char path[4096];
    snprintf(path, sizeof path, "%s/set", folder);
    mkdir(path, 0777);
    for (int kind = 0; kind < 2; kind++) {
        snprintf(path, sizeof path, "%s/set/%s", folder, kinds[kind]);
        mkdir(path, 0777);
        for (int i = 0; i < 24; i++) {
            const int height = 40 + i % 4, width = 30 + i % 3, channels = i % 5 ? 3 : 1;
            snprintf(path, sizeof path, "%s/set/%s/%02d.%s", folder, kinds[kind], i,
                     i % 2 ? "png" : "jpg");
            draw(kind, i, height, width, channels);
            (i % 2 ? write_png : write_jpeg)(path, height, width, channels);
        }
    }
}

int main(int argc, char **argv) {
    char path[4096];
    if (argc != 2) return 2;
    make_set(argv[1]);
    snprintf(path, sizeof path, "%s/plain.png", argv[1]);
    for (int y = 0; y < 37; y++)
        for (int x = 0; x < 53; x++)
            for (int c = 0; c < 3; c++)
                pixels[(y * 53 + x) * 3 + c] = (uint8_t)(x * 4 + y * (c + 1) + (x * y * 7 & 31));
    write_png(path, 37, 53, 3);
    png_image deep = {.version = PNG_IMAGE_VERSION, .width = 30, .height = 40};
    deep.format = PNG_FORMAT_LINEAR_Y;
    snprintf(path, sizeof path, "%s/deep.png", argv[1]);
    if (!png_image_write_to_file(&deep, path, 0, pixels, 0, NULL)) return 1;
    snprintf(path, sizeof path, "%s/cmyk.jpg", argv[1]);
    write_jpeg(path, 40, 30, 4);
    return 0;
}
#endif
