/* The programs of a session's graph. Private to src/session. */
#ifndef TR_SESSION_PROGRAMS_H
#define TR_SESSION_PROGRAMS_H

#include "session.h"

/* Builds the programs selected by s->params, their inputs and the reduction tree in the empty graph
 * s->g. Call it before the plan. Not collective. */
tr_status_t tr_programs_build(tr_session_t *s);

#endif
