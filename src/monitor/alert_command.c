/* The command of alerts. */
#include "alert_command.h"

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/log.h"
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

extern char **environ;

enum { MOST_SEC = 30, VARIABLES = 6 };

/* The environment of this process, with the facts. The caller frees *out, but not its first
 * entries. */
static tr_status_t command_environment(const tr_alert_command_t *c, char *own[VARIABLES],
                                       char ***out) {
    const tr_alert_facts_t *facts = &c->facts[0];
    size_t count = 0;
    while (environ[count]) count++;
    TR_TRY(tr_alloc((count + VARIABLES + 1) * sizeof **out, "an environment", out));
    memcpy(*out, environ, count * sizeof **out);
    tr_str_t text[VARIABLES] = {{0}};
    tr_str_printf(&text[0], "TRAINER_ALERT=%s", facts->rule);
    tr_str_printf(&text[1], "TRAINER_ALERT_STATE=%s", facts->begins ? "begin" : "end");
    tr_str_printf(&text[2], "TRAINER_ALERT_TEXT=%s", facts->words);
    tr_str_printf(&text[3], "TRAINER_ALERT_VALUE=%.6g", facts->value);
    tr_str_printf(&text[4], "TRAINER_ALERT_STEP=%lld", (long long)facts->step);
    tr_str_printf(&text[5], "TRAINER_ALERT_RUN=%s", c->run_dir);
    tr_status_t status = TR_OK;
    for (int i = 0; i < VARIABLES; i++) {
        const tr_status_t taken = tr_str_take(&text[i], &own[i]);
        if (taken != TR_OK) status = taken;
        (*out)[count + (size_t)i] = own[i];
    }
    return status;
}

/* Starts the command with facts[0]. */
static void command_start(tr_alert_command_t *c) {
    char *own[VARIABLES] = {NULL}, **environment = NULL;
    char *argv[] = {"sh", "-c", (char *)c->command, NULL};
    posix_spawnattr_t attributes;
    sigset_t none;
    /* The thread of the caller blocks all signals, which the command must not inherit. */
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    if (command_environment(c, own, &environment) != TR_OK ||
        posix_spawn(&c->pid, "/bin/sh", NULL, &attributes, argv, environment) != 0) {
        c->pid = 0;
        TR_WARN("monitor.alert_command cannot be started for %s", c->facts[0].rule);
    }
    posix_spawnattr_destroy(&attributes);
    c->begin_sec = tr_clock_sec();
    tr_free(&environment);
    for (int i = 0; i < VARIABLES; i++) tr_free(&own[i]);
}

void tr_alert_command_run(tr_alert_command_t *c, const tr_alert_t *alert, int64_t step) {
    tr_alert_command_tend(c);
    if (c->waiting + 1 == TR_ALERT_COMMANDS) {
        TR_WARN("monitor.alert_command is not run for %s: %d commands wait", alert->rule,
                c->waiting);
        return;
    }
    tr_alert_facts_t *facts = &c->facts[++c->waiting];
    *facts = (tr_alert_facts_t){.begins = alert->begins, .value = alert->value, .step = step};
    tr_snprintf(facts->rule, sizeof facts->rule, "%s", alert->rule);
    tr_snprintf(facts->words, sizeof facts->words, "%s", alert->words);
    tr_alert_command_tend(c);
}

static void command_say_end(const tr_alert_command_t *c, int status) {
    if (WIFSIGNALED(status))
        TR_WARN(
            "monitor.alert_command for %s was ended by signal %d after %.0f s, at most %d s are "
            "allowed",
            c->facts[0].rule, WTERMSIG(status), tr_clock_sec() - c->begin_sec, MOST_SEC);
    else if (WEXITSTATUS(status) != 0)
        TR_WARN("monitor.alert_command for %s ended with code %d", c->facts[0].rule,
                WEXITSTATUS(status));
}

void tr_alert_command_tend(tr_alert_command_t *c) {
    int status = 0;
    if (c->pid != 0) {
        if (tr_clock_sec() - c->begin_sec > MOST_SEC)
            kill(-c->pid, SIGKILL); /* with its children */
        const pid_t ended = waitpid(c->pid, &status, WNOHANG);
        if (ended == 0) return;
        if (ended == c->pid) command_say_end(c, status);
        c->pid = 0;
    }
    if (c->waiting == 0) return;
    memmove(&c->facts[0], &c->facts[1], (size_t)c->waiting-- * sizeof *c->facts);
    command_start(c);
}

void tr_alert_command_finish(tr_alert_command_t *c, double sec) {
    const double until = tr_clock_sec() + sec;
    while ((c->pid != 0 || c->waiting > 0) && tr_clock_sec() < until) {
        tr_alert_command_tend(c);
        usleep(10000);
    }
    if (c->pid == 0) return;
    kill(-c->pid, SIGKILL);
    (void)waitpid(c->pid, NULL, 0);
    TR_WARN("monitor.alert_command for %s was ended with the run", c->facts[0].rule);
    c->pid = 0;
}
