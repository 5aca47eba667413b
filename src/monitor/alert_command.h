/* Runs monitor.alert_command when an alert begins or ends. Not collective; for one thread. */
#ifndef TR_MONITOR_ALERT_COMMAND_H
#define TR_MONITOR_ALERT_COMMAND_H

#include "alerts.h"
#include <sys/types.h>

enum { TR_ALERT_COMMANDS = 32 }; /* that may wait */

/* An alert, for the command. */
typedef struct {
    char rule[64], words[128];
    bool begins;
    double value;
    int64_t step;
} tr_alert_facts_t;

typedef struct {
    const char *command; /* of a shell; "": none. Borrowed */
    const char *run_dir; /* borrowed */
    pid_t pid;           /* of the one that runs; 0: none */
    double begin_sec;
    tr_alert_facts_t
        facts[TR_ALERT_COMMANDS]; /* of the one that runs or ran, and those that wait */
    int waiting;                  /* facts[1], ... */
} tr_alert_command_t;

/* Runs the command in the background: at once, or after those that were asked for before. Its
 * environment has TRAINER_ALERT (the rule), TRAINER_ALERT_STATE (begin, end), TRAINER_ALERT_TEXT,
 * TRAINER_ALERT_VALUE, TRAINER_ALERT_STEP and TRAINER_ALERT_RUN. */
void tr_alert_command_run(tr_alert_command_t *c, const tr_alert_t *alert, int64_t step);
/* Collects a command that has ended, kills one after 30 s, and starts the next. What went wrong is a
 * warning. Call now and then. */
void tr_alert_command_tend(tr_alert_command_t *c);
/* At the end of the run: gives the commands `sec` seconds, and kills the one that runs then. */
void tr_alert_command_finish(tr_alert_command_t *c, double sec);

#endif
