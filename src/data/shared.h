/* Shared by the files of src/data and src/datatools. */
#ifndef TR_DATA_SHARED_H
#define TR_DATA_SHARED_H

#include "base/int_math.h"
#include "data/data.h"
#include "base/str.h"
#include <math.h>

/* Whether a y with `labels` labels of `classes` classes and `others` other values looks like labels
 * with mistakes. */
static inline bool tr_nearly_labels(int64_t labels, int64_t others, int64_t classes) {
    return others > 0 && others <= (labels + others) / 100 && labels >= 10 * classes;
}

/* Whether std and its inverse are positive and finite. */
static inline bool tr_is_divisor(float std) {
    return std > 0 && isfinite(std) && isfinite(1 / std);
}

/* "28x28x1" as a shape; `key` is named in the error. */
tr_status_t tr_data_parse_shape(const char *key, const char *text, tr_shape_t *out);

/* *out has the strings of a JSON array, none of another value; it names `from`, borrowed, as their
 * source. Free *out also after an error. */
struct json_t;
tr_status_t tr_names_from_json(const struct json_t *array, const char *from, tr_names_t *out);
/* Appends the names, separated by commas; only the first ones if there are many. */
void tr_names_say(const char *const *name, int64_t count, tr_str_t *out);

/* data.label_values: what the classes 0, 1, ... are in the data. */
#define TR_LABEL_VALUES_MAX 256
typedef struct {
    double value[TR_LABEL_VALUES_MAX];
    int count; /* 0: labels are class numbers */
} tr_label_values_t;
/* TR_ERR_CONFIG unless these are different numbers, as many as data.classes if that is set. */
tr_status_t tr_label_values_read(const tr_data_settings_t *settings, tr_label_values_t *out);
/* The class of a stored label; -1: it is none below `limit`. */
int64_t tr_label_values_class(const tr_label_values_t *values, double stored, int64_t limit);
/* Makes `names`, those that the data have for their labels or for the classes, or none, the names of
 * the classes: without any, these are the values. `from`, borrowed: their source. */
tr_status_t tr_label_values_name(const tr_label_values_t *values, const char *from,
                                 tr_names_t *names);

/* Whether labels, of which count[] says how often each occurs, are few levels and many rarer values near
 * these, as in masks that were compressed with loss. If so, writes the levels, "0,255". */
bool tr_labels_are_lossy(const int64_t count[256], char levels[16]);
/* What they are then; the levels stand in it twice. */
#define TR_LOSSY_TEXT                                                                              \
    "near the levels %s, as in masks that were compressed with loss (JPEG) or resized by "         \
    "interpolation. Store them without loss (PNG), resized to the nearest pixel, or round each "   \
    "value to the nearest level when you create the file; then data.label_values = %s makes "      \
    "them classes"

/* Whether the name of a file ends as that of a table: .csv, .tsv, one of these with .gz, or one that
 * is refused with the command that makes CSV of it. */
bool tr_table_is_named(const char *path);

/* Whether the path is a folder, or the name of a list (.txt) of image files. */
bool tr_images_are_named(const char *path);

/* The part of `whole` that data.valid_fraction reserves for validation, or the rest for training.
 * Takes ownership of `whole` on success. */
tr_status_t tr_dataset_part(tr_dataset_t *whole, double fraction, bool is_valid,
                            tr_dataset_t **out);
/* Fold `fold`, "2/5", of `whole` for validation, or the rest for training. Takes ownership of
 * `whole` on success. TR_ERR_CONFIG: not of this form, or fewer samples than folds. */
tr_status_t tr_dataset_fold(tr_dataset_t *whole, const char *fold, bool is_valid,
                            tr_dataset_t **out);

#endif
