#include "data_test.h"
#include "base/mem.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

bool test_folder_make(char path[512]) {
    const char *place = getenv("TMPDIR");
    snprintf(path, 512, "%s/trainer-test-XXXXXX", place ? place : "/tmp");
    return mkdtemp(path) != NULL;
}

static tr_status_t host_alloc(tr_device_t *device, size_t bytes, void **out) {
    return tr_alloc_aligned(bytes, 256, "test", out);
}
static void host_free(tr_device_t *device, void *pointer) {
    tr_free(&pointer);
}
static const tr_device_ops_t ops = {
    .name = "test", .host_alloc = host_alloc, .host_free = host_free};
tr_device_t test_device = {.ops = &ops};

tr_data_settings_t test_settings(void) {
    return (tr_data_settings_t){.format = "hdf5",
                                .train = "",
                                .valid = "",
                                .test = "",
                                .x = "",
                                .y = "",
                                .batch_size = 128,
                                .micro_batch = -1,
                                .workers = -1,
                                .prefetch = 4,
                                .block = -1,
                                .shuffle = -1,
                                .mean = "auto",
                                .std = "auto",
                                .target_mean = "auto",
                                .target_std = "auto",
                                .ignore_label = "none",
                                .classes = -1,
                                .synthetic_samples = 1000,
                                .synthetic_shape = "8x8x1",
                                .synthetic_targets = 1};
}

static tr_status_t read_ids(tr_dataset_t *dataset, int64_t first, int64_t count, void *const *dst) {
    test_dataset_t *self = (test_dataset_t *)dataset;
    int64_t width = dataset->info.field[0].sample_bytes / 8;
    __atomic_add_fetch(&self->reads, 1, __ATOMIC_RELAXED);
    for (int64_t i = first; i < first + count; i++) {
        if (i == self->bad) return TR_FAIL(TR_ERR_DATA, "sample %lld is bad", (long long)i);
        if (dst[0])
            for (int64_t j = 0; j < width; j++) ((int64_t *)dst[0])[(i - first) * width + j] = i;
        if (dst[1]) ((int32_t *)dst[1])[i - first] = (int32_t)i;
    }
    return TR_OK;
}

static void close_ids(tr_dataset_t *dataset) {}
static const tr_dataset_ops_t id_ops = {
    .name = "ids", .help = "the samples' numbers", .close = close_ids, .read = read_ids};

void test_dataset_make(test_dataset_t *self, int64_t samples, int64_t width) {
    memset(self, 0, sizeof *self);
    self->bad = -1;
    self->base.ops = &id_ops;
    self->base.info = (tr_dataset_info_t){.samples = samples, .field_count = 2, .read_unit = 1};
    self->base.info.field[0] = (tr_field_t){
        .name = "x", .dtype = TR_I64, .shape = TR_SHAPE(width), .sample_bytes = 8 * width};
    self->base.info.field[1] = (tr_field_t){.name = "y", .dtype = TR_I32, .sample_bytes = 4};
}
