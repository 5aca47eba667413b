/* What predict writes: an HDF5 or CSV file, by the end of its name, or a folder of PNG files. */
#ifndef TR_INFER_PREDICTIONS_H
#define TR_INFER_PREDICTIONS_H

#include "trained.h"

/* What is written; borrowed until the file is closed. */
typedef struct {
    const tr_trained_t *t;
    const char *in;      /* path of the samples */
    const char *version; /* of this program */
    bool is_class, has_probability;
    int64_t width;        /* outputs of a sample, or of each of its positions */
    tr_shape_t positions; /* (), or (S...) where each position is predicted */
    tr_dtype_t
        class_type; /* of a class: i32; of positions u8 or u16, whose largest number is none */
    double black, white; /* in PNG files: these numbers are 0 and 255; NaN: unknown */
} tr_predictions_t;

typedef struct tr_predictions_file tr_predictions_file_t;
/* TR_ERR_USAGE if `path` is no folder, and ends neither as an HDF5 file nor in .csv or /.
 * TR_ERR_CONFIG if this build cannot write PNG files. */
tr_status_t tr_predictions_check(const char *path);
/* Creates PATH.part-PID. TR_ERR_CONFIG if `path` exists and `force` is false. */
tr_status_t tr_predictions_create(const char *path, bool force, const tr_predictions_t *what,
                                  tr_predictions_file_t **out);
/* Appends rows in the order of the samples. prediction: classes in class_type, (rows, positions), or
 * (rows, positions, width) floats; probability: (rows, positions, width), read only with has_probability. */
tr_status_t tr_predictions_append(tr_predictions_file_t *file, int64_t rows, const void *prediction,
                                  const void *probability);
/* Makes the file durable (a folder of PNG files is not synced), and gives it its name. */
tr_status_t tr_predictions_commit(tr_predictions_file_t *file);
/* Removes a file that was not committed. */
void tr_predictions_destroy(tr_predictions_file_t **file);
/* The same from another thread when the process is about to end, and nothing is being appended.
 * Returns false if nothing is being written to `path`. */
bool tr_predictions_remove_part(const char *path);

#endif
