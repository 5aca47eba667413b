/* Shared by the importers. */
#ifndef TR_DATATOOLS_IMPORT_INT_H
#define TR_DATATOOLS_IMPORT_INT_H

#include "data/shared.h"
#include "datatools.h"
#include "base/mem.h"
#include "base/stats.h"

#define IMPORT_ROWS 1000 /* rows per write and per progress report */

/* Mean and standard deviation of each channel, channels last. */
typedef struct {
    int channels;   /* 0: not computed */
    tr_stats_t *of; /* [channels] */
} tr_moments_t;
/* Attributes are limited to 64 KiB: for more than 4096 channels there are none, with a warning. */
tr_status_t tr_moments_begin(tr_moments_t *moments, int64_t channels);
/* count: number of values, a multiple of the channels. */
void tr_moments_add(tr_moments_t *moments, tr_dtype_t dtype, const void *values, int64_t count);
/* Writes the attributes mean and std of the file, if computed. A constant channel gets std 1. */
tr_status_t tr_moments_write(const tr_moments_t *moments, tr_writer_t *writer);
void tr_moments_free(tr_moments_t *moments);

static inline tr_status_t tr_import_progress(const tr_import_params_t *params, int64_t done,
                                             int64_t total) {
    return params->progress ? params->progress(params->self, done, total) : TR_OK;
}

/* TR_ERR_USAGE if `out` is the file `in`, which it would replace. */
tr_status_t tr_import_check_place(const char *in, const char *out);

/* Describe y in params->y: `count` classes, named 0, 1, ... if `names` is NULL, or `count`
 * regression targets per sample. */
void tr_import_say_classes(const tr_import_params_t *params, int64_t count,
                           const char *const *names);
void tr_import_say_numbers(const tr_import_params_t *params, int64_t count,
                           const tr_stats_t *stats);

/* -- idx.c: the format of MNIST's files -------------------------------------------------------- */

typedef struct tr_idx tr_idx_t;
/* Takes ownership of `fd`; gzip or not. `name` is for messages. TR_ERR_DATA if it is not an IDX
 * file of bytes with `ndim` dimensions. */
tr_status_t tr_idx_open(int fd, const char *name, int ndim, tr_idx_t **out);
const int64_t *tr_idx_dims(const tr_idx_t *idx);
/* Reads the next bytes of the content; TR_ERR_DATA if the file is too short. */
tr_status_t tr_idx_read(tr_idx_t *idx, void *out, size_t bytes);
/* TR_ERR_DATA if the file is longer than the header says. */
tr_status_t tr_idx_at_end(tr_idx_t *idx);
void tr_idx_close(tr_idx_t **idx);

/* -- digits.c ---------------------------------------------------------------------------------- */

#define TR_DIGIT_SIDE 28
/* Draws digit 0 .. 9 in the handwriting of (seed, sample): white on black, (28, 28). */
void tr_digit_draw(uint64_t seed, int64_t sample, int digit, uint8_t *out);

/* -- shapes.c ---------------------------------------------------------------------------------- */

/* The shape of the mask, (H, W) or (D, H, W), of samples `x` (H, W), (H, W, C), (D, H, W) or
 * (D, H, W, C) with C 1 or 3. TR_ERR_USAGE for others. */
tr_status_t tr_shapes_mask_shape(const tr_shape_t *x, tr_shape_t *out);
/* Draws the sample (seed, sample). mask[i]: 0 background, 1 disc or ball, 2 box, 3 triangle, of
 * which the first `kinds` are drawn; images have 3, volumes 2. x: `channels` values a position. */
void tr_shapes_draw(uint64_t seed, int64_t sample, int kinds, const tr_shape_t *mask_shape,
                    int channels, uint8_t *x, uint8_t *mask);

#endif
