/* Finds and runs the command, prints the error, and exits with the code; after an error, with all
 * ranks. */
#include "cmd.h"
#include "comm/watchdog_launch.h"
#include "run/verdict.h"
#include "h5/writer.h"
#include "trainer/log.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define FIRST_MSEC    1200 /* Open MPI ends the other ranks one second after the first exit */
#define TURN_MSEC     100
#define LAST_TURN     15
#define ALONE_SEC     3  /* longer than the last turn; this process has no other ranks */
#define PEER_SAYS_SEC 60 /* the rank that prints an agreed error is alive, but may be slow */

static const cmd_command_t *const commands[] = {
#define COMMAND(name) &cmd_##name,
#include "commands.def"
#undef COMMAND
};

static bool is_said;    /* the error that ends the process */
static bool is_leaving; /* normally, together with all other ranks */
static tr_world_t *world;
static tr_world_info_t place = {.size = 1}; /* copied when the world is closed */

const cmd_command_t *const *cmd_list(size_t *out_count) {
    *out_count = TR_COUNT(commands);
    return commands;
}

const cmd_command_t *cmd_find(const char *name) {
    for (size_t i = 0; i < TR_COUNT(commands); i++)
        if (strcmp(commands[i]->name, name) == 0) return commands[i];
    return NULL;
}

const cmd_command_t *cmd_find_target(const cmd_command_t *command, const char *name) {
    for (size_t t = 0; command->targets && command->targets[t]; t++)
        if (strcmp(command->targets[t]->name + strlen(command->name) + 1, name) == 0)
            return command->targets[t];
    return NULL;
}

tr_status_t cmd_world_open(tr_world_t **out) {
    tr_launch_limit_t *limit = NULL;
    const bool may_end = tr_launch_link() == TR_LAUNCH_PMI && tr_launch_rank() == 0;
    if (may_end) {
        /* Most builds of Open MPI do not support PMI-1 or PMI-2 and end the program in MPI_Init:
         * the remedy must be printed before that. */
        const tr_status_t failure = tr_launch_fail();
        TR_WARN("MPI_Init may abort the program: %s", tr_error_last()->message);
        tr_verdict_write((int)failure, tr_error_last()->message, NULL);
        tr_error_clear();
    }
    TR_TRY(tr_launch_limit_begin(tr_verdict_again, &limit));
    const tr_status_t status =
        tr_launch_exists() ? tr_world_open(NULL, &world) : tr_world_open_alone(&world);
    tr_launch_limit_end(&limit);
    TR_TRY(status);
    if (may_end) TR_TRY(tr_verdict_clear());
    place = *tr_world_info(world);
    tr_log_set_rank(place.rank, place.size, place.host);
    *out = world;
    return TR_OK;
}

void cmd_world_close(tr_world_t **closing) {
    tr_world_close(closing);
    world = NULL;
}

void cmd_world_leave(tr_world_t **leaving, tr_status_t status) {
    tr_error_t kept = *tr_error_last();
    if (status != TR_OK) cmd_say_error(status);
    is_leaving = tr_world_barrier(*leaving) == TR_OK; /* not if a peer is lost */
    cmd_world_close(leaving);
    tr_error_set(&kept);
}

void cmd_say_error(tr_status_t status) {
    const tr_error_t *error = tr_error_last();
    const char *trace = getenv("TRAINER_TRACE");
    char from[128] = "";
    /* A usage error is the same on every rank. Before MPI is initialised, the launcher's environment
     * determines the rank that reports it. */
    const bool is_said_by_peer = error->origin == TR_ORIGIN_PEER ||
                                 (place.size == 1 && tr_launch_rank() > 0 &&
                                  (status == TR_ERR_USAGE || tr_launch_link() == TR_LAUNCH_NONE));
    is_said |= error->origin == TR_ORIGIN_LOGGED;
    if (is_said || is_said_by_peer) return;
    /* Several ranks may have the same error at the same time and cannot agree by a collective on
     * the one that reports it. The lowest rank reports it and ends the job, which ends the others
     * while they wait. The rank that knows the node at fault comes first, and those that have an
     * error because another rank failed wait. */
    if (error->origin == TR_ORIGIN_OPEN && !error->node[0] && (place.rank > 0 || error->fault[0])) {
        const int turn = place.rank < LAST_TURN ? place.rank : LAST_TURN;
        const int msec = FIRST_MSEC + turn * TURN_MSEC;
        nanosleep(&(struct timespec){.tv_sec = msec / 1000, .tv_nsec = msec % 1000 * 1000000L},
                  NULL);
    }
    if (place.size > 1) snprintf(from, sizeof from, "[rank %d %s] ", place.rank, place.host);
    const char *message =
        error->code == status && error->message[0] ? error->message : tr_status_name(status);
    fflush(stdout);
    fprintf(stderr, "%strainer: error: %s\n", from, message);
    tr_log_write_files(TR_LOG_ERROR, "%strainer: error: %s", from, message);
    tr_verdict_write((int)status, message, error->code == status ? error->node : NULL);
    if (trace && *trace && strcmp(trace, "0") != 0) fprintf(stderr, "%s\n", error->trace);
    is_said = true;
}

static int main_end(tr_status_t status) {
    if (status == TR_OK || is_leaving) return (int)status;
    /* The rank that prints the error ends a rank that waits below. */
    signal(SIGTERM, SIG_DFL);
    cmd_say_error(status);
    /* When the first process exits, the launcher ends all: a rank that does not print waits, so
     * that the one that prints can also write the verdict. */
    if (!is_said) nanosleep(&(struct timespec){.tv_sec = world ? PEER_SAYS_SEC : ALONE_SEC}, NULL);
    if (world && place.size > 1) tr_world_abort(world, (int)status);
    cmd_world_close(&world);
    return (int)status;
}

static bool main_is_config(const char *name) {
    size_t length = strlen(name);
    return (length > 4 && strcmp(name + length - 4, ".ini") == 0) || strchr(name, '/') ||
           access(name, F_OK) == 0;
}

static tr_status_t main_find_command(const char *name, const cmd_command_t **out) {
    const char *names[TR_COUNT(commands)];
    *out = cmd_find(name);
    if (!*out && main_is_config(name)) *out = &cmd_train; /* trainer CONFIG.ini ... */
    if (*out) return TR_OK;
    for (size_t i = 0; i < TR_COUNT(commands); i++) names[i] = commands[i]->name;
    const char *nearest = tr_nearest(name, names, TR_COUNT(names));
    return TR_FAIL(TR_ERR_USAGE,
                   "unknown command '%s', and no file of that name exists%s%s%s See trainer help.",
                   name, nearest ? "; did you mean '" : ".", nearest ? nearest : "",
                   nearest ? "'?" : "");
}

/* The target `name` (may be NULL) of a command that has some. */
static tr_status_t main_find_target(const char *name, const cmd_command_t *command,
                                    const cmd_command_t **out) {
    const char *names[16];
    size_t count = 0;
    tr_str_t list = {0};
    for (; command->targets[count]; count++) {
        names[count] = command->targets[count]->name + strlen(command->name) + 1;
        tr_str_printf(&list, "%s%s", count == 0 ? "" : ", ", names[count]);
        *out = command->targets[count];
        if (name && strcmp(names[count], name) == 0) return tr_str_free(&list), TR_OK;
    }
    const char *nearest = name ? tr_nearest(name, names, count) : NULL;
    TR_FAIL(TR_ERR_USAGE, "%s: %s%s%s: expected one of %s%s%s%s. See trainer %s --help",
            command->name, name ? "unknown target '" : "the target is missing", name ? name : "",
            name ? "'" : "", list.text ? list.text : "", nearest ? " (did you mean " : "",
            nearest ? nearest : "", nearest ? "?)" : "", command->name);
    tr_str_free(&list);
    return TR_ERR_USAGE;
}

static bool main_asks_help(const char *word) {
    return strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0;
}

static tr_status_t main_run(int argc, char **argv) {
    const bool prints = tr_launch_rank() == 0;
    const cmd_command_t *command = NULL;
    void *options = NULL;
    if (argc < 2) {
        if (prints) TR_TRY(cmd_help_print(""));
        return TR_FAIL(TR_ERR_USAGE, "expected a command or a configuration file");
    }
    if (strcmp(argv[1], "--version") == 0) {
        if (prints) printf("trainer %s\n", cmd_version);
        return TR_OK;
    }
    if (main_asks_help(argv[1])) return prints ? cmd_help_print("") : TR_OK;
    TR_TRY(main_find_command(argv[1], &command));
    int first = cmd_find(argv[1]) ? 1 : 0; /* the word before the arguments */
    for (int i = 2; i < argc && strcmp(argv[i], "--") != 0; i++)
        if (main_asks_help(argv[i])) {
            const cmd_command_t *target = cmd_find_target(command, argv[2]);
            if (prints) cmd_help_command(target ? target : command);
            return TR_OK;
        }
    /* No rank initialises MPI in this case, so the launcher treats their exits as normal. */
    if (command->runs == CMD_ON_FIRST && !prints) return TR_OK;
    if (command->runs == CMD_ON_FIRST && tr_launch_tasks() > 1 && command != &cmd_help)
        TR_INFO("%s runs on one process: rank 0 of %lld runs it", command->name,
                (long long)tr_launch_tasks());
    if (command->targets) {
        first++;
        TR_TRY(main_find_target(argv[first], command, &command));
    }
    TR_TRY(tr_alloc(command->options_bytes, "the options", &options));
    tr_status_t status = cmd_options_parse(command, argc - first, argv + first, options);
    if (status == TR_OK) status = command->run(options);
    cmd_options_free(command, options);
    tr_free(&options);
    return status;
}

int main(int argc, char **argv) {
    const cmd_command_t *command = argc > 1 ? cmd_find(argv[1]) : NULL;
    cmd_train_signals(command ? command == &cmd_train : argc > 1 && main_is_config(argv[1]));
    signal(SIGXFSZ, SIG_IGN); /* beyond a file size limit, writes fail with an error */
    tr_h5_own_process();
    int code = main_end(main_run(argc, argv));
    if (code == 0 && (fflush(stdout) != 0 || ferror(stdout))) {
        fprintf(stderr, "trainer: error: cannot write to standard output\n");
        code = TR_ERR_IO;
    }
    return code;
}
