/* The programs of a session's graph. Private to src/train. */
#ifndef TRAINER_PROGRAMS_H
#define TRAINER_PROGRAMS_H

#include "session.h"

/* Declares in s->g, which is empty, the programs that s->params asks for, their inputs and the
 * reduction tree; before the plan. Not collective. */
tr_status_t tr_programs_build(tr_session_t *s);

#endif
