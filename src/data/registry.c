/* The registry of data sets, and opening a split. */
#include "base/registry.h"
#include "shared.h"
#include "trainer/log.h"
#include "base/str.h"
#include <string.h>

#define DATASET(name) extern const tr_dataset_ops_t tr_dataset_##name##_ops;
#include "datasets.def"
#undef DATASET

static tr_registry_t datasets = {"data set",
                                 "data.format",
                                 {
#define DATASET(name) &tr_dataset_##name##_ops,
#include "datasets.def"
#undef DATASET
                                 }};

const tr_dataset_ops_t *tr_dataset_at(size_t index) {
    return tr_registry_at(&datasets, index);
}

tr_status_t tr_dataset_register(const tr_dataset_ops_t *ops) {
    if (!ops->open || !ops->close || !ops->read)
        return TR_FAIL(TR_ERR_CONFIG, "The data set '%s' has no open, close or read function.",
                       ops->name ? ops->name : "(null)");
    return tr_registry_add(&datasets, ops);
}

const char *tr_split_name(tr_split_t split) {
    static const char *const names[] = {"train", "valid", "test"};
    return names[split];
}

static tr_status_t registry_open_whole(const tr_data_settings_t *settings, tr_split_t split,
                                       bool inputs_only, tr_dataset_t **out) {
    *out = NULL;
    const char *const paths[] = {settings->train, settings->valid, settings->test};
    const char *format = settings->format;
    if (strcmp(format, "hdf5") == 0 && tr_table_is_named(paths[split]))
        format = "table";
    else if (strcmp(format, "hdf5") == 0 && settings->trained && tr_images_are_named(paths[split]))
        format = "images";
    const tr_dataset_ops_t *ops = tr_registry_find(&datasets, format);
    if (!ops) return tr_registry_fail_unknown(&datasets, settings->format);
    TR_TRY((inputs_only && ops->open_inputs ? ops->open_inputs : ops->open)(settings, split, out));
    if (!*out) return TR_OK;
    tr_dataset_t *dataset = *out;
    if (!dataset->ops) dataset->ops = ops; /* open may choose others */
    if (dataset->info.read_unit < 1) dataset->info.read_unit = 1;
    if (settings->classes == 0) dataset->info.is_regression = true;
    if (settings->limit > 0 && settings->limit < dataset->info.samples)
        dataset->info.samples = settings->limit;
    if (dataset->info.samples > 0) return TR_OK;
    TR_FAIL(TR_ERR_DATA, "The data set is empty: %s. Set another file or group in data.%s.",
            dataset->info.description, tr_split_name(split));
    tr_dataset_close(out);
    return TR_ERR_DATA;
}

static void registry_warn_of_labels(const tr_dataset_t *dataset) {
    if (dataset->info.label_doubt) TR_WARN("%s", dataset->info.label_doubt);
}

static tr_status_t registry_open_split(const tr_data_settings_t *settings, tr_split_t split,
                                       bool inputs_only, tr_dataset_t **out) {
    tr_dataset_t *whole = NULL;
    const char *fold = settings->fold;
    const bool has_folds = fold && *fold && strcmp(fold, "none") != 0;
    if ((settings->valid_fraction <= 0 && !has_folds) || split == TR_SPLIT_TEST) {
        TR_TRY(registry_open_whole(settings, split, inputs_only, out));
        if (*out && split == TR_SPLIT_TRAIN) registry_warn_of_labels(*out);
        return TR_OK;
    }
    *out = NULL;
    if (*settings->valid || (settings->valid_fraction > 0 && has_folds))
        return TR_FAIL(TR_ERR_CONFIG, "%s and %s are both set: remove one of them.",
                       *settings->valid ? "data.valid" : "data.valid_fraction",
                       has_folds ? "data.fold" : "data.valid_fraction");
    const bool is_valid = split == TR_SPLIT_VALID;
    tr_data_settings_t of_whole = *settings;
    of_whole.is_again = is_valid;
    TR_TRY(registry_open_whole(&of_whole, TR_SPLIT_TRAIN, inputs_only, &whole));
    if (!whole) return TR_OK;
    if (!is_valid) registry_warn_of_labels(whole);
    tr_status_t status = has_folds
                             ? tr_dataset_fold(whole, fold, is_valid, out)
                             : tr_dataset_part(whole, settings->valid_fraction, is_valid, out);
    if (status != TR_OK) tr_dataset_close(&whole);
    return status;
}

tr_status_t tr_dataset_open(const tr_data_settings_t *settings, tr_split_t split,
                            tr_dataset_t **out) {
    return registry_open_split(settings, split, false, out);
}

tr_status_t tr_dataset_open_inputs(const tr_data_settings_t *settings, tr_split_t split,
                                   tr_dataset_t **out) {
    return registry_open_split(settings, split, true, out);
}

void tr_dataset_close(tr_dataset_t **dataset) {
    if (*dataset) (*dataset)->ops->close(*dataset);
    *dataset = NULL;
}

tr_status_t tr_data_parse_shape(const char *key, const char *text, tr_shape_t *out) {
    *out = (tr_shape_t){0};
    const char *at = text;
    for (int64_t elems = 1;;) {
        char number[24];
        size_t length = strcspn(at, "x");
        int64_t value = 0;
        bool good = length < sizeof number && out->ndim < TR_MAX_DIMS - 1;
        if (good) {
            memcpy(number, at, length);
            number[length] = '\0';
            good = tr_parse_int(number, &value) && value > 0 &&
                   !__builtin_mul_overflow(elems, value, &elems) && elems < INT32_MAX;
        }
        if (!good)
            return TR_FAIL(TR_ERR_CONFIG,
                           "%s: expected up to %d sizes such as 28x28x1, with a product below "
                           "2^31, found '%s'.",
                           key, TR_MAX_DIMS - 1, text);
        out->dim[out->ndim++] = value;
        if (!at[length]) return TR_OK;
        at += length + 1;
    }
}
