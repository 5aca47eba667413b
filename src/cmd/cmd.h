/*
 * Commands: the floor of main(). A command is one file cmd_<name>.c with one function, and one line
 * in commands.def.
 *
 * It gets the arguments from its own name on (argv[0] is "train"), prints results on stdout and
 * returns a status; main prints the error record and ends the process with the code. Commands that
 * need no other rank never open the world: of several ranks main runs them on the first.
 */
#ifndef TRAINER_CMD_H
#define TRAINER_CMD_H

#include "trainer/comm.h"
#include "trainer/config.h"
#include "trainer/status.h"
#include "trainer/str.h"

#define COMMAND(name, function, runs, usage, help) tr_status_t function(int argc, char **argv);
#include "commands.def"
#undef COMMAND

typedef enum { CMD_ON_RANKS, CMD_ON_FIRST } cmd_runs_t;

typedef struct {
    const char *name;
    tr_status_t (*run)(int argc, char **argv);
    cmd_runs_t runs;
    const char *usage; /* the arguments: "CONFIG.ini [key=value ...]" */
    const char *help;  /* one sentence; behind a newline what `trainer COMMAND --help` adds */
} cmd_command_t;
const cmd_command_t *cmd_list(size_t *out_count);
const cmd_command_t *cmd_find(const char *name); /* NULL where there is none */

/*
 * The world, known to main from here on: a command that fails while its world is open ends all
 * ranks at once with MPI_Abort. A command that ends with a code in good order (stopped with a
 * checkpoint saved) closes its world first, and only this process ends with it. Collective.
 */
tr_status_t cmd_world_open(tr_world_t **out);
void cmd_world_close(tr_world_t **world);
/* All ranks have the same `status`, by agreement: one prints its error, and they leave together, so
 * that no launcher finds one gone and kills others that are still ending. The error record is kept.
 * Collective. */
void cmd_world_leave(tr_world_t **world, tr_status_t status);

/* Prints the error record of `status` now, before the world is closed, where this rank is the one
 * to say it; main does not repeat it. */
void cmd_say_error(tr_status_t status);

/* The first thing that main does. The program begins with TERM, INT, HUP and USR1 blocked: they are
 * let through, and if it trains, caught first. */
void cmd_train_signals(bool trains);

/* Whether `path` is a folder: a run's, its checkpoints/ or one of these, in place of a
 * configuration file. */
bool cmd_is_folder(const char *path);
/* Such a folder's configuration, config.ini in the run's folder, into out; false, and `path`
 * itself, where it is a file or there is none. */
bool cmd_config_path(const char *path, char out[4096]);
/* The configuration of a file (NULL: none), the environment and `count` assignments (key=value),
 * checked. Not collective. */
tr_status_t cmd_config_load(const char *path, int count, char **assignments, tr_config_t **out);
/* The same on every rank: rank 0 reads, the others get its values. Collective. */
tr_status_t cmd_config_load_all(tr_world_t *world, const char *path, int count, char **assignments,
                                tr_config_t **out);

/* `trainer help NAME`: help of a command, a list or one of its entries, a section or a key; "" for
 * the overview. On stdout. */
tr_status_t cmd_help_print(const char *name);
/* What `trainer import` takes, a paragraph each. */
void cmd_import_list(tr_str_t *out);
/* `trainer COMMAND --help`. On stdout. */
void cmd_help_command(const cmd_command_t *command);

/* The usage error of an option that `command` does not know, or that came without its value: known
 * are those in its help. */
tr_status_t cmd_fail_option(const char *command, const char *option);

/* Writes `object`, which is taken, to the file of --json; a reader never sees half of it. "-": to
 * standard output. */
struct json_t;
tr_status_t cmd_json_write(struct json_t *object, const char *path);
/* Whether it takes the place of the text there; `path` may be NULL. */
bool cmd_json_is_stdout(const char *path);

/* `trainer bench allreduce`; argv[0] is "allreduce". */
tr_status_t cmd_bench_allreduce(int argc, char **argv);
/* `trainer bench attention`; argv[0] is "attention". */
tr_status_t cmd_bench_attention(int argc, char **argv);
/* `trainer bench matmul`; argv[0] is "matmul". */
tr_status_t cmd_bench_matmul(int argc, char **argv);
/* `trainer bench generate`; argv[0] is "generate". */
tr_status_t cmd_bench_generate(int argc, char **argv);

/* version.c */
extern const char cmd_version[];     /* "0.1.0+1a2b3c4" */
extern const char cmd_build_cc[];    /* "cc, gcc 12.2.0" */
extern const char cmd_build_flags[]; /* "-O3 -g -march=native" */

#endif
