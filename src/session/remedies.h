/*
 * What makes a training run smaller, and by how much: each remedy is the plan of the same run with
 * other keys. Nothing is estimated but the rows that say so. Not collective.
 */
#ifndef TR_SESSION_REMEDIES_H
#define TR_SESSION_REMEDIES_H

#include "session.h"
#include "base/mem.h"
#include "base/str.h"

typedef struct {
    size_t bytes;   /* of one rank; 0: not planned */
    double flops;   /* per sample, forward and backward */
    size_t moments; /* optimizer state, of bytes */
    bool has_batchnorm;
} tr_remedy_plan_t;

typedef struct {
    char settings[128]; /* "data.batch_size=2 data.micro_batch=1"; "" if shares > 0 */
    const char *what;   /* in words */
    int shares;         /* computed only: ranks that share the optimizer state; 0: planned */
    tr_remedy_plan_t alone, together; /* together: with the rows above that are used */
    bool is_used;                     /* in the rows below */
} tr_remedy_t;

typedef struct {
    tr_remedy_plan_t now, least; /* the run as it is; with all remedies that are used */
    TR_VEC(tr_remedy_t) rows;    /* smaller than the run as it is, alone */
} tr_remedies_t;

/* Plans for the last of `size` ranks. device: open, borrowed; NULL: that of the configuration. Free
 * with tr_remedies_free, also after an error. */
tr_status_t tr_remedies_plan(const tr_config_t *config, int size, tr_device_t *device,
                             tr_remedies_t *out);
void tr_remedies_free(tr_remedies_t *remedies);
/* Appends the remedies with which the run fits in `limit` bytes: each alone, else all together. */
void tr_remedies_name(const tr_remedies_t *remedies, size_t limit, tr_str_t *out);
/* More FLOPs of `plan`, in percent of those of the run as it is. */
double tr_remedies_extra(const tr_remedies_t *remedies, const tr_remedy_plan_t *plan);

#endif
