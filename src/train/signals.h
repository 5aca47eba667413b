/* Asked to stop: TERM, INT and USR1 set a flag that the loop looks at between steps. Private to src/train. */
#ifndef TRAINER_SIGNALS_H
#define TRAINER_SIGNALS_H

/* Handlers for the process, until tr_signals_restore. A second INT or TERM ends the process at once. */
void tr_signals_install(void);
void tr_signals_restore(void);
/* The signal that came, 0 for none. */
int tr_signals_pending(void);

#endif
