/* Mean and standard deviation of a field of a data set, by a look at pieces spread evenly over it. Private to src/train. */
#ifndef TRAINER_MOMENTS_H
#define TRAINER_MOMENTS_H

#include "session.h"
#include "trainer/stats.h"

typedef struct {
    int count; /* of values told apart; 1: all alike, as they are where there would be more */
    tr_stats_t of[TR_TARGETS_MAX];
} tr_field_moments_t;

/* The index of the field `name`, -1: there is none. */
int tr_field_of(const tr_dataset_info_t *info, const char *name);
/* Its last dimension: of how many kinds the values are. */
int64_t tr_field_width(const tr_field_t *field);
/* Of `bytes` of field `field`, of any type but bf16, or of all of it, `width` values told apart. The same on every rank that calls it; not collective. */
tr_status_t tr_field_moments(tr_dataset_t *dataset, int field, int64_t width, int64_t bytes,
                             tr_field_moments_t *out);

#endif
