/* When something is due in the course of a training. Private to src/train. */
#ifndef TRAINER_INTERVAL_H
#define TRAINER_INTERVAL_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stdint.h>

/* Every so many steps, or seconds; neither: never. */
typedef struct {
    double steps, seconds, last_sec;
} tr_interval_t;

/* "500", "1epoch", "10%" of the run, with allow_time "10min", and "0" for never; TR_ERR_CONFIG
 * names `key`. Time counts from now. */
tr_status_t tr_interval_parse(const char *key, const char *text, bool allow_time,
                              int64_t total_steps, double steps_per_epoch, tr_interval_t *out);
/* After step `step` (counted from 1), asked once a step: whether a multiple of the period lies in
 * (step - 1, step], so that fractional epochs are met at the step that completes them; or the time
 * is over, which then begins anew. */
bool tr_interval_is_due(tr_interval_t *due, int64_t step);

#endif
