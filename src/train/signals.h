/* Asked to stop: TERM, INT, HUP and USR1 set a flag that the loop looks at between steps. Private
 * to src/train. */
#ifndef TRAINER_SIGNALS_H
#define TRAINER_SIGNALS_H

/* Handlers for the process, and a stack for them for the calling thread, until tr_signals_restore
 * (not where tr_train_catch_signals was called). A second INT ends the process at once; a second
 * TERM, USR1 or HUP does not. HUP stays ignored where it was (nohup). Called again it keeps what
 * came, and sets handlers again that a library has taken. */
void tr_signals_install(void);
/* Where this rank saves checkpoints, and what to do to go on from the newest: it says both where a
 * second signal ends it. */
void tr_signals_checkpoints(const char *dir, const char *resume_hint);
void tr_signals_restore(void);
/* Asks to stop at a time of the wall clock, in seconds since 1970; 0: at none. Any thread. */
void tr_signals_until(double unix_sec);
/* The signal that came, SIGALRM for the time of tr_signals_until, 0 for none. Any thread; the first
 * call that sees one says so (tr_signals_say). */
int tr_signals_pending(void);
/* Tells the user, once, that the signal `number` stops the run; 0: one that another rank got. */
void tr_signals_say(int number);

#endif
