/* A checksum of the contents of a data set, by a bounded number of samples. */
#include "shared.h"
#include "base/clock.h"
#include "base/mem.h"
#include <stdio.h>
#include <xxhash.h>

/* Of each field, at most PIECES evenly spaced pieces are read. A piece has one sample, or more
 * small ones: up to 64 KiB, and 256 KiB of y, which is often all that changes; up to four, if each is a
 * file. */
enum { PIECES = 8, FILES = 4, X_BYTES = 64 << 10, Y_BYTES = 256 << 10, MOST_BYTES = 32 << 20 };
#define MOST_SEC 2

static tr_status_t checksum_add(tr_dataset_t *dataset, int field, int64_t samples, uint64_t *sum) {
    const tr_field_t *f = &dataset->info.field[field];
    const double start = tr_clock_sec();
    const int64_t wanted = strcmp(f->name, "y") == 0 ? Y_BYTES : X_BYTES,
                  fits = max64(1, wanted / f->sample_bytes),
                  together = dataset->info.is_file_each ? min64(fits, FILES) : fits,
                  rows = min64(together, ceil_div(samples, PIECES)),
                  most = max64(1, MOST_BYTES / (rows * f->sample_bytes)),
                  pieces = min64(min64(PIECES, most), ceil_div(samples, rows));
    void *dst[TR_DATASET_MAX_FIELDS] = {NULL};
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc((size_t)(rows * f->sample_bytes), "samples", &dst[field]));
    for (int64_t p = 0; p < pieces && status == TR_OK; p++) {
        const int64_t first = pieces > 1 ? (samples - rows) * p / (pieces - 1) : 0;
        status = dataset->ops->read(dataset, first, rows, dst);
        if (status == TR_OK)
            *sum = XXH3_64bits_withSeed(dst[field], (size_t)(rows * f->sample_bytes), *sum);
        if (status == TR_OK && tr_clock_sec() - start > MOST_SEC)
            status = TR_FAIL(TR_ERR_IO, "%s: its samples take long", dataset->info.description);
    }
    tr_free(&dst[field]);
    return status;
}

uint64_t tr_dataset_checksum(tr_dataset_t *dataset, int64_t samples) {
    uint64_t sum = 0;
    tr_status_t status = TR_OK;
    for (int f = 0; f < dataset->info.field_count && status == TR_OK; f++) {
        const tr_field_t *field = &dataset->info.field[f];
        char shape[96], text[256];
        const int length =
            snprintf(text, sizeof text, "%s %s %s %lld\n", field->name, tr_dtype_name(field->dtype),
                     tr_shape_format(&field->shape, shape), (long long)samples);
        sum = XXH3_64bits_withSeed(text, (size_t)length, sum);
        status = checksum_add(dataset, f, samples, &sum);
    }
    tr_error_clear();
    return status == TR_OK ? sum : 0;
}
