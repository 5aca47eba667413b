/* Whether the inputs of a training are fit to train on. Private to src/train. */
#ifndef TRAINER_INPUTS_H
#define TRAINER_INPUTS_H

#include "session.h"

/* Warns where a training that begins (one that is resumed has nothing to choose) normalises its
 * inputs to something far from mean 0 and deviation 1, and where 32-bit floats round inputs or
 * targets away. Reads a sample of the training data, in less than 50 ms. Not collective: rank 0
 * calls it. */
tr_status_t tr_inputs_check(const tr_session_t *s);

#endif
