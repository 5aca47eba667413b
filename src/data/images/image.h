/* Image files, decoded to 8-bit pixels: for `import images` and the data set of images. PNG files
 * are also written. */
#ifndef TR_DATA_IMAGE_H
#define TR_DATA_IMAGE_H

#include "base/str.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Pixels are (height, width, channels), channels 1 (grey) or 3 (RGB); NULL after a probe. */
typedef struct {
    int64_t height, width;
    int channels, bits; /* bits: of a channel in the file */
    uint8_t *pixels;    /* owned */
} tr_image_t;

/* Whether the path ends in .jpg, .jpeg or .png. */
bool tr_image_is_named(const char *path);
/*
 * Reads the header of a JPEG or PNG file, identified by its first bytes. TR_ERR_DATA names the file
 * and the error. TR_ERR_CONFIG if this build lacks the library.
 */
tr_status_t tr_image_probe(const char *path, tr_image_t *out);
/*
 * Reads the file with `channels` (1 or 3; 0: those of the file). Grey is 0.299 R + 0.587 G + 0.114 B. Transparency is
 * dropped, 16 bits are reduced to 8, and the EXIF orientation is ignored. Thread-safe.
 */
tr_status_t tr_image_read(const char *path, int channels, tr_image_t *out);
void tr_image_free(tr_image_t *image);

/*
 * Resizes `in` to (height, width, in->channels) with antialiased bilinear interpolation. Results
 * equal those of PIL's BILINEAR and torchvision's Resize within one of 256 levels.
 */
tr_status_t tr_image_resize(const tr_image_t *in, int64_t height, int64_t width, uint8_t *out);

/* Whether this build can write PNG files. */
bool tr_png_is_here(void);
/*
 * Appends the image to `out` as a PNG file: grey or RGB, or with are_classes, which requires one
 * channel, classes in a palette of tr_class_colour. title: a text that the file carries, in ASCII;
 * NULL: none. TR_ERR_CONFIG if this build lacks the library.
 */
tr_status_t tr_png_write(const tr_image_t *image, bool are_classes, const char *title,
                         tr_str_t *out);
/* The colour of a class of positions, as in the masks of PASCAL VOC. TR_CLASS_NONE is that of positions
 * without a class, TR_VALUE_NONE (purple) that of positions without a value in pictures of numbers. */
enum { TR_CLASS_NONE = 255, TR_VALUE_NONE = 5 };
void tr_class_colour(int class, uint8_t rgb[3]);

/* The decoders. Pixels have the channels of the file, 1 or 3. probe: read only the header. */
tr_status_t tr_jpeg_read(FILE *file, const char *path, bool probe, tr_image_t *out);
tr_status_t tr_png_read(FILE *file, const char *path, bool probe, tr_image_t *out);
/* Checks the size and allocates the pixels. */
tr_status_t tr_image_make(const char *path, int64_t height, int64_t width, int channels, bool probe,
                          tr_image_t *out);
/* Records TR_ERR_DATA with the library's reason and the remedy. */
tr_status_t tr_image_fail(const char *path, const char *reason);
/* Records TR_ERR_CONFIG: this build has no library for files of this format. */
tr_status_t tr_image_fail_absent(const char *path, const char *format, const char *library);

#endif
