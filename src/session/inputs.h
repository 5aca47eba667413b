/* Checks the range of the training inputs. Private to src/session. */
#ifndef TR_SESSION_INPUTS_H
#define TR_SESSION_INPUTS_H

#include "session.h"

/* For a new run (a resumed run cannot change these settings): warns if the normalised inputs are
 * far from mean 0 and standard deviation 1, and if rounding to 32-bit floats loses most of the
 * information in inputs or targets. Reads a sample of the training data, in less than 50 ms. Not
 * collective: rank 0 calls it. */
tr_status_t tr_inputs_check(const tr_session_t *s);

#endif
