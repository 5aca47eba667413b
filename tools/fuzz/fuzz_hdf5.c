/*
 * Fuzz entry: any bytes as an HDF5 file through opening, reading and describing.
 *
 * The HDF5 library itself crashes on and loops over some hostile files, which is known and not ours
 * to mend: run-fuzz goes on behind a crash and
 * counts as a finding only what has its innermost frame, but for libc's and the sanitizer's, in
 * src/.
 */
#include "data/data.h"
#include "datatools/datatools.h"
#include "base/mem.h"

#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define BYTES_READ (1 << 20)
#define SAMPLE_BYTES                                                                               \
    (1 << 28) /* a few bytes can claim any size; memory that is not there is no finding */

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void read_all(tr_dataset_t *d) {
    const tr_dataset_info_t *info = &d->info;
    void *field[TR_DATASET_MAX_FIELDS] = {0};
    int64_t widest = 1, count;
    for (int f = 0; f < info->field_count; f++)
        if (info->field[f].sample_bytes > widest) widest = info->field[f].sample_bytes;
    count = BYTES_READ / widest < info->samples ? BYTES_READ / widest : info->samples;
    for (int f = 0; f < info->field_count && count > 0; f++)
        if (!(field[f] = malloc((size_t)(count * info->field[f].sample_bytes)))) count = 0;
    if (count > 0) (void)d->ops->read(d, 0, count, field);
    if (count > 0 && info->samples > count)
        (void)d->ops->read(d, info->samples - count, count, field);
    for (int f = 0; f < info->field_count; f++) free(field[f]);
}

static void open_and_read(const char *path) {
    tr_str_t text = {0};
    tr_data_settings_t s = {.format = "hdf5",
                            .train = path,
                            .valid = "",
                            .test = "",
                            .x = "",
                            .y = "",
                            .batch_size = 4,
                            .micro_batch = -1,
                            .workers = 1,
                            .prefetch = 4,
                            .block = -1,
                            .shuffle = -1,
                            .mean = "auto",
                            .std = "auto",
                            .classes = -1};
    bool huge = false;
    for (int split = 0; split < 3; split++) {
        tr_dataset_t *d = NULL;
        if (tr_dataset_open(&s, (tr_split_t)split, &d) == TR_OK && d) read_all(d);
        for (int f = 0; d && f < d->info.field_count; f++)
            huge |= d->info.field[f].sample_bytes > SAMPLE_BYTES;
        tr_dataset_close(&d);
    }
    if (!huge) (void)tr_data_report(&s, BYTES_READ, &text);
    tr_str_free(&text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    const int64_t live = tr_mem_stats().live;
    /* A file with a name: HDF5 follows links in /proc by name. */
    char path[512];
    snprintf(path, sizeof path, "%s/fuzz-XXXXXX", getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp");
    const int fd = mkstemp(path);
    if (fd < 0 || write(fd, data, size) != (ssize_t)size) abort();
    open_and_read(path);
    close(fd);
    unlink(path);
    if (tr_mem_stats().live != live) abort();
    return 0;
}
