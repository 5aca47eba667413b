/*
 * Stop requests: TERM, INT, HUP and USR1 set a flag that the loop checks between steps. Private to
 * src/train.
 *
 * On Ctrl-C, Open MPI's mpirun relays no more output, sends CONT to the ranks at once, TERM after
 * one second and KILL after two. A rank that mpirun started therefore takes CONT as a request for a
 * checkpoint. It may also come from `fg` after Ctrl-Z: then training goes on.
 */
#ifndef TR_TRAIN_SIGNALS_H
#define TR_TRAIN_SIGNALS_H

#include <stdbool.h>

/* Installs the handlers, and an alternate stack for the calling thread, until tr_signals_restore
 * (which does nothing after tr_train_catch_signals). A second INT ends the process at once; a
 * second TERM, USR1 or HUP does not. HUP stays ignored if it was (nohup). Calling it again keeps a
 * received signal and reinstalls handlers that a library has replaced. */
void tr_signals_install(void);
/* The checkpoint folder and the resume hint for the message when a second signal ends the process.
 * */
void tr_signals_checkpoints(const char *dir, const char *resume_hint);
void tr_signals_restore(void);
/* Requests a stop at a wall-clock time, in seconds since 1970; 0: none. Any thread. */
void tr_signals_until(double unix_sec);
/* The received signal, SIGALRM for the time of tr_signals_until, or 0. The first call that sees one
 * reports it (tr_signals_say). Any thread. */
int tr_signals_pending(void);
/* Takes the request for a checkpoint that CONT has made. */
bool tr_signals_take_save(void);
/* The checkpoint after CONT is written: says so on the terminal, and names it in the provisional
 * verdict that was written when CONT came. */
void tr_signals_saved(void);
/* Call now and then: if no TERM has followed CONT, removes that verdict. */
void tr_signals_settle(void);
/* Writes a line to the terminal if CONT has come, because mpirun may not relay what is logged. */
void tr_signals_tell(const char *text);
/* Logs once that signal `number` stops the run; 0: a signal that another rank received. */
void tr_signals_say(int number);

#endif
