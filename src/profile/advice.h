/* What takes the time of a step away from computing, and the remedy. Not collective. */
#ifndef TR_PROFILE_ADVICE_H
#define TR_PROFILE_ADVICE_H

#include "step_profile.h"

typedef enum {
    TR_LOSS_CORES,         /* threads wait for cores that others use, and all else is late for it */
    TR_LOSS_INPUT,         /* ranks wait for their loaders */
    TR_LOSS_COMMUNICATION, /* that no computation hides */
    TR_LOSS_SLOW_RANK,     /* the others wait for it */
    TR_LOSS_LAUNCH_GAPS,   /* the device has nothing to do between ops */
    TR_LOSS_MEMORY_BOUND,  /* ops move bytes for longer than they compute */
    TR_LOSS_SMALL_OPS,     /* ops are far from the peaks of the device */
    TR_LOSSES
} tr_loss_t;
const char *tr_loss_name(tr_loss_t loss);

/* Fills lost[i] with the seconds per step of each loss; NaN: unknown. They overlap where a rank is
 * slow for the reason of another loss. */
void tr_advice_losses(const tr_step_profile_t *profile, double lost[TR_LOSSES]);

enum { TR_ADVICE = 2 };
typedef struct {
    tr_loss_t loss;
    double sec;     /* per step */
    int rank;       /* that loses it, or for which the others wait; -1: all */
    int bucket;     /* of COMMUNICATION; -1: none */
    char text[512]; /* one or two sentences */
} tr_advice_t;
/* The largest losses, at most TR_ADVICE and only those of at least a tenth of a step. Cores that
 * are missing are named alone. What keeps the device from computing comes before what makes its ops slow, which is named only where nothing
 * else is. Returns their number. */
int tr_advice_take(const tr_step_profile_t *profile, tr_advice_t out[TR_ADVICE]);

#endif
