/* trainer train CONFIG.ini: trains a model. Also holds the signals that stop it until then. */
#include "cmd.h"
#include "base/file.h"
#include "base/mem.h"
#include "trainer/log.h"
#include "trainer/train.h"
#include "run/verdict.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

/* Runs before libraries are initialised, which takes a while: signals that request a stop stay
 * blocked until they can be handled. Also, UCX, which many MPIs use, installs a handler for HUP
 * when it is loaded, even if nohup has set it to ignored. Uses system calls, because sanitizers are
 * not initialised yet. */
static bool hup_is_ignored;
static unsigned long blocked_before;
enum { MASK_BYTES = 8 };
#define BIT(number) (1ul << ((number)-1))

__attribute__((no_sanitize("address", "thread", "undefined"))) static void
train_hold_signals(void) {
    const unsigned long stop = BIT(SIGTERM) | BIT(SIGINT) | BIT(SIGHUP) | BIT(SIGUSR1);
    struct {
        void (*handler)(int);
        char rest[64];
    } action = {0};
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, &stop, &blocked_before, MASK_BYTES);
    hup_is_ignored = syscall(SYS_rt_sigaction, SIGHUP, NULL, &action, MASK_BYTES) == 0 &&
                     action.handler == SIG_IGN;
}
__attribute__((section(".preinit_array"),
               used)) static void (*const before_libraries)(void) = train_hold_signals;

void cmd_train_signals(bool trains) {
    if (trains) {
        if (hup_is_ignored) signal(SIGHUP, SIG_IGN);
        signal(SIGPIPE, SIG_IGN); /* the reader of the output may exit before training ends */
        tr_train_catch_signals();
    }
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &blocked_before, NULL, MASK_BYTES);
}

typedef struct {
    const char *path;
    cmd_words_t settings;
} train_options_t;

/* A run folder stands for its configuration with run.dir, so that the run goes on. *path: the
 * configuration. */
static tr_status_t train_load(tr_world_t *world, const train_options_t *o, char path[4096],
                              tr_config_t **out) {
    char dir[4096 + 16];
    char *first[] = {dir};
    cmd_words_t all;
    tr_snprintf(path, 4096, "%s", o->path);
    if (!tr_is_folder(o->path)) return cmd_config_load_all(world, path, o->settings, out);
    tr_snprintf(dir, sizeof dir, "run.dir=%s", o->path);
    TR_TRY(tr_path_join(o->path, "config.ini", path));
    if (tr_world_info(world)->rank == 0 && access(path, F_OK) != 0)
        return TR_FAIL(TR_ERR_NOINPUT,
                       "%s is a folder without config.ini: expected a configuration, or the folder "
                       "of a run",
                       o->path);
    TR_TRY(cmd_words_join((cmd_words_t){1, first}, o->settings, &all));
    const tr_status_t status = cmd_config_load_all(world, path, all, out);
    tr_free(&all.word);
    return status;
}

static tr_status_t train_run(void *options) {
    const train_options_t *o = options;
    tr_world_t *world = NULL;
    tr_config_t *config = NULL;
    char path[4096];
    /* for an error before the configuration is read */
    tr_verdict_open(getenv("TRAINER_RUN_VERDICT"));
    if (tr_launch_rank() == 0) TR_TRY(tr_verdict_clear());
    TR_TRY(cmd_world_open(&world));
    TR_TRY(train_load(world, o, path, &config));
    const tr_train_params_t params = {.config_path = path, .version = cmd_version};
    const tr_status_t status = tr_train(config, world, &params);
    tr_config_destroy(&config);
    const tr_error_t *error = tr_error_last();
    const bool is_fault = error->fault[0] && error->origin == TR_ORIGIN_OPEN; /* the others wait */
    /* A normal end on every rank. */
    if (status == TR_OK || (status == TR_ERR_RETRY && !is_fault)) cmd_world_leave(&world, status);
    return status;
}

static const cmd_argument_t arguments[] = {
    {"CONFIG.ini|RUN", offsetof(train_options_t, path), CMD_REQUIRED, NULL},
    {"[key=value ...]", offsetof(train_options_t, settings), CMD_SETTINGS, NULL},
};

/* None: what training does is in the configuration. */
static const cmd_option_t options[] = {};

const cmd_command_t cmd_train = {
    .name = "train",
    .runs = CMD_ON_RANKS,
    .summary = "Trains a model. `trainer CONFIG.ini ...` is short for it. Use mpirun or srun to "
               "train on several ranks.",
    .help = "RUN is a run folder, and stands for its config.ini with run.dir=RUN: the run goes on. "
            "The run folder (run.dir) receives config.ini, log.txt, metrics.jsonl, summary.json "
            "and checkpoints/. Running the same command again resumes from the newest checkpoint. "
            "The signals TERM, INT, HUP and USR1 save a checkpoint and stop the run with exit code "
            "75.",
    CMD_ARGUMENTS(train_options_t),
    CMD_OPTIONS,
    .run = train_run,
};
