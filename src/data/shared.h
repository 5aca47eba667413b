/* What the files of the data floor share with each other and with src/datatools. */
#ifndef DATA_SHARED_H
#define DATA_SHARED_H

#include "base/int_math.h"
#include "trainer/data.h"
#include "trainer/str.h"
#include <math.h>

/* Whether `labels` labels of `classes` classes, beside `others` values that are not labels, look
 * like labels with mistakes. */
static inline bool tr_nearly_labels(int64_t labels, int64_t others, int64_t classes) {
    return others > 0 && others <= (labels + others) / 100 && labels >= 10 * classes;
}

/* Whether values can be divided by it: they are multiplied by its inverse. */
static inline bool tr_is_divisor(float std) {
    return std > 0 && isfinite(std) && isfinite(1 / std);
}

/* "28x28x1" as a shape; `key` is named in the error. */
tr_status_t tr_data_parse_shape(const char *key, const char *text, tr_shape_t *out);

/* The names with commas between them; only some if there are many or they are long. */
void tr_names_say(const char *const *name, int64_t count, tr_str_t *out);

/* The part of `whole` that data.valid_fraction keeps for validation, or the rest for training.
 * Takes ownership of `whole` on success. */
tr_status_t tr_dataset_part(tr_dataset_t *whole, double fraction, bool is_valid,
                            tr_dataset_t **out);

#endif
