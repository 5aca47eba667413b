/* optimizer.ema: evaluations use the weights' moving average. Private to src/train. */
#ifndef TRAINER_AVERAGE_H
#define TRAINER_AVERAGE_H

#include "session.h"

/* Makes room for the trained weights during an evaluation; before the plan. Nothing where there is
 * no average. */
tr_status_t tr_ema_declare(tr_session_t *s);
/* Puts the average in the parameters' place and the trained weights aside; tr_ema_end puts them
 * back. */
tr_status_t tr_ema_begin(tr_session_t *s);
tr_status_t tr_ema_end(tr_session_t *s);

#endif
