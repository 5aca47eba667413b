/* The command of alerts. */
#include "alert_command.h"

#include "base/clock.h"
#include "base/mem.h"
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

extern char **environ;

enum { MOST_SEC = 30, VARIABLES = 6 };

void tr_alert_command_tend(tr_alert_command_t *c) {
    if (c->pid == 0) return;
    if (tr_clock_sec() - c->begin_sec > MOST_SEC) kill(-c->pid, SIGKILL); /* with its children */
    if (waitpid(c->pid, NULL, WNOHANG) != 0) c->pid = 0;
}

/* The environment of this process, with the facts. The caller frees *out, but not its first
 * entries. */
static tr_status_t command_environment(const tr_alert_command_t *c, const tr_alert_t *alert,
                                       int64_t step, char *own[VARIABLES], char ***out) {
    size_t count = 0;
    while (environ[count]) count++;
    TR_TRY(tr_alloc((count + VARIABLES + 1) * sizeof **out, "an environment", out));
    memcpy(*out, environ, count * sizeof **out);
    tr_str_t text[VARIABLES] = {{0}};
    tr_str_printf(&text[0], "TRAINER_ALERT=%s", alert->rule);
    tr_str_printf(&text[1], "TRAINER_ALERT_STATE=%s", alert->begins ? "begin" : "end");
    tr_str_printf(&text[2], "TRAINER_ALERT_TEXT=%s", alert->words);
    tr_str_printf(&text[3], "TRAINER_ALERT_VALUE=%.6g", alert->value);
    tr_str_printf(&text[4], "TRAINER_ALERT_STEP=%lld", (long long)step);
    tr_str_printf(&text[5], "TRAINER_ALERT_RUN=%s", c->run_dir);
    tr_status_t status = TR_OK;
    for (int i = 0; i < VARIABLES; i++) {
        const tr_status_t taken = tr_str_take(&text[i], &own[i]);
        if (taken != TR_OK) status = taken;
        (*out)[count + (size_t)i] = own[i];
    }
    return status;
}

bool tr_alert_command_run(tr_alert_command_t *c, const tr_alert_t *alert, int64_t step) {
    char *own[VARIABLES] = {NULL}, **environment = NULL;
    char *argv[] = {"sh", "-c", (char *)c->command, NULL};
    posix_spawnattr_t attributes;
    sigset_t none;
    tr_alert_command_tend(c);
    if (c->pid != 0) return false;
    /* The thread of the caller blocks all signals, which the command must not inherit. */
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETPGROUP);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setpgroup(&attributes, 0);
    const bool has_begun =
        command_environment(c, alert, step, own, &environment) == TR_OK &&
        posix_spawn(&c->pid, "/bin/sh", NULL, &attributes, argv, environment) == 0;
    posix_spawnattr_destroy(&attributes);
    if (!has_begun) c->pid = 0;
    c->begin_sec = tr_clock_sec();
    tr_free(&environment);
    for (int i = 0; i < VARIABLES; i++) tr_free(&own[i]);
    return has_begun;
}
