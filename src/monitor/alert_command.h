/* Runs monitor.alert_command when an alert begins or ends. Not collective; for one thread. */
#ifndef TR_MONITOR_ALERT_COMMAND_H
#define TR_MONITOR_ALERT_COMMAND_H

#include "alerts.h"
#include <sys/types.h>

typedef struct {
    const char *command; /* of a shell; "": none. Borrowed */
    const char *run_dir; /* borrowed */
    pid_t pid;           /* of the one that runs; 0: none */
    double begin_sec;
} tr_alert_command_t;

/* Starts the command in the background, unless one runs: one at a time. Its environment has
 * TRAINER_ALERT (the rule), TRAINER_ALERT_STATE (begin, end), TRAINER_ALERT_TEXT, TRAINER_ALERT_VALUE,
 * TRAINER_ALERT_STEP and TRAINER_ALERT_RUN. Returns false if it could not be started. */
bool tr_alert_command_run(tr_alert_command_t *c, const tr_alert_t *alert, int64_t step);
/* Collects a command that has ended, and kills one after 30 s. Call now and then. */
void tr_alert_command_tend(tr_alert_command_t *c);

#endif
