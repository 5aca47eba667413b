/* Predictions of positions as a folder of PNG files, one for each sample: 000000.png, ... Classes are
 * in a palette (tr_class_colour), numbers grey or RGB. Not collective. */
#ifndef TR_INFER_PREDICTION_PICTURES_H
#define TR_INFER_PREDICTION_PICTURES_H

#include "predictions.h"

typedef struct tr_prediction_pictures tr_prediction_pictures_t;
/* Whether the path is that of a folder: it ends in /, or there is one. */
bool tr_prediction_pictures_are_meant(const char *path);
/* Creates the folder PATH.part-PID. TR_ERR_USAGE if pictures cannot hold what is predicted.
 * TR_ERR_CONFIG if `path` is a folder with files, unless `force` is set and all of them are named as
 * such pictures. */
tr_status_t tr_prediction_pictures_create(const char *path, bool force,
                                          const tr_predictions_t *what,
                                          tr_prediction_pictures_t **out);
/* Writes a file for each row, of u8 classes or floats. */
tr_status_t tr_prediction_pictures_append(tr_prediction_pictures_t *pictures, int64_t rows,
                                          const void *prediction);
/* Gives the folder its name; one that was there is removed. The files are not synced. */
tr_status_t tr_prediction_pictures_commit(tr_prediction_pictures_t *pictures);
/* Removes a folder that was not committed. */
void tr_prediction_pictures_destroy(tr_prediction_pictures_t **pictures);
/* The same from another thread, while no picture is being written. Returns false if there is none. */
bool tr_prediction_pictures_remove_part(const char *path);

#endif
