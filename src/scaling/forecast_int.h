/* Reading JSON files. Private to src/scaling. */
#ifndef TR_SCALING_FORECAST_INT_H
#define TR_SCALING_FORECAST_INT_H

#include "forecast.h"
#include <jansson.h>

/* A file and the command that writes such files, for messages. */
typedef struct {
    const char *path, *command;
} tr_source_t;

tr_status_t tr_source_open(const tr_source_t *from, json_t **out);
/* The number `key` of `object`. TR_ERR_DATA if it is absent or smaller than `least`. */
tr_status_t tr_source_number(const tr_source_t *from, const json_t *object, const char *key,
                             double least, double *out);
tr_status_t tr_source_int(const tr_source_t *from, const json_t *object, const char *key,
                          double least, int *out);
/* The array `key` of `object`. TR_ERR_DATA if it is absent or empty. */
tr_status_t tr_source_list(const tr_source_t *from, const json_t *object, const char *key,
                           const json_t **out);

#endif
