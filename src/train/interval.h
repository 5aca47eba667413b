/* Periodic actions of the training loop. Private to src/train. */
#ifndef TR_TRAIN_INTERVAL_H
#define TR_TRAIN_INTERVAL_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stdint.h>

/* A period in steps or in seconds; neither: never. */
typedef struct {
    double steps, seconds, last_sec;
} tr_interval_t;

/* Parses "500", "1epoch", "10%" of the run, "10min" if allow_time, or "0" for never. TR_ERR_CONFIG
 * names `key`. Time is counted from this call. */
tr_status_t tr_interval_parse(const char *key, const char *text, bool allow_time,
                              int64_t total_steps, double steps_per_epoch, tr_interval_t *out);
/* Call once after each step, counted from 1. True if a multiple of the period is in (step - 1,
 * step], so that a fractional epoch ends at the step that completes it; or if the time has passed,
 * which then restarts. */
bool tr_interval_is_due(tr_interval_t *due, int64_t step);

#endif
