/* optimizer.ema: evaluation with the moving average of the weights. Private to src/session. */
#ifndef TR_SESSION_EMA_H
#define TR_SESSION_EMA_H

#include "session.h"

/* Declares a copy of the trained weights for use during evaluation. Call it before the plan. Does
 * nothing without an average. */
tr_status_t tr_ema_declare(tr_session_t *s);
/* Saves the trained weights and copies the average to the parameters. tr_ema_end restores them. */
tr_status_t tr_ema_begin(tr_session_t *s);
tr_status_t tr_ema_end(tr_session_t *s);

#endif
