/* Whether inputs are fit to train on as they are. Private to src/train. */
#ifndef TRAINER_INPUTS_H
#define TRAINER_INPUTS_H

#include "session.h"

/* Warns where a training takes inputs as they are that are far from 0 and 1, that 32-bit floats round away, or that look like
 * series where they are taken for images. Rank 0 of a world reads alone;
 * not collective. */
tr_status_t tr_inputs_check(const tr_session_t *s);

#endif
