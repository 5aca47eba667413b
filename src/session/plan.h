/* Planning the graph of a session. Private to src/session. */
#ifndef TR_SESSION_PLAN_H
#define TR_SESSION_PLAN_H

#include "session.h"

/* Builds and plans the graph, and sets the order of samples. Needs the data and the device.
 * Collective if there is a world. */
tr_status_t tr_session_plan(tr_session_t *s);
void tr_session_drop_graph(tr_session_t *s);

#endif
