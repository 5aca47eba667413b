/* Pictures from files, as 8-bit pixels. Private to src/datatools. */
#ifndef IMAGE_H
#define IMAGE_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Pixels are (height, width, channels), channels 1 (grey) or 3 (RGB); NULL after a probe. */
typedef struct {
    int64_t height, width;
    int channels;
    uint8_t *pixels; /* owned */
} tr_image_t;

/*
 * Reads the header of a JPEG or PNG file, told apart by their first bytes. TR_ERR_DATA names the
 * file and what is wrong with it; TR_ERR_CONFIG where this build lacks the library.
 */
tr_status_t tr_image_probe(const char *path, tr_image_t *out);
/*
 * Reads the whole file, as `channels` (1 or 3). Grey is 0.299 R + 0.587 G + 0.114 B; transparency
 * is dropped, 16 bits become 8. The orientation in EXIF data is ignored. Thread-safe.
 */
tr_status_t tr_image_read(const char *path, int channels, tr_image_t *out);
void tr_image_free(tr_image_t *image);

/*
 * Scales `in` to (height, width, in->channels): bilinear interpolation, over the whole area of a
 * pixel where the picture shrinks. The same as PIL's BILINEAR and torchvision's Resize, to one
 * level of 256.
 */
tr_status_t tr_image_resize(const tr_image_t *in, int64_t height, int64_t width, uint8_t *out);

/* The decoders: pixels in the file's own 1 or 3 channels; only the header if `probe`. */
tr_status_t tr_jpeg_read(FILE *file, const char *path, bool probe, tr_image_t *out);
tr_status_t tr_png_read(FILE *file, const char *path, bool probe, tr_image_t *out);
/* Checks the size and allocates the pixels. */
tr_status_t tr_image_make(const char *path, int64_t height, int64_t width, int channels, bool probe,
                          tr_image_t *out);
/* TR_ERR_DATA: the library's reason, and what to do with the file. */
tr_status_t tr_image_fail(const char *path, const char *reason);

#endif
