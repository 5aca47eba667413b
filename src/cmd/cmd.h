/*
 * Commands. A command is one file cmd_<name>.c, which describes and runs it (options.h), and one
 * line in commands.def.
 *
 * main parses the command line, runs the command, prints the error record and exits with the code.
 * Commands that need no other rank do not open the world; with several ranks, main runs them on the
 * first one.
 */
#ifndef TR_CMD_CMD_H
#define TR_CMD_CMD_H

#include "options.h"
#include "comm/comm.h"
#include "config/config.h"
#include "trainer/status.h"
#include "base/str.h"
#include "base/table.h"
#include "report/page/plot.h"

#define COMMAND(name) extern const cmd_command_t cmd_##name;
#include "commands.def"
#undef COMMAND
const cmd_command_t *const *cmd_list(size_t *out_count);
const cmd_command_t *cmd_find(const char *name); /* NULL if there is none */
/* The target `name` of a command, "step" of bench; NULL if it has none of that name. */
const cmd_command_t *cmd_find_target(const cmd_command_t *command, const char *name);

/*
 * Opens the world, without MPI if no launcher started this process, and registers it with main: if a command fails while its world is open, main ends
 * all ranks with MPI_Abort. A command that ends normally with a nonzero code (stopped with a
 * checkpoint saved) closes the world first, and only its own process exits. Collective.
 */
tr_status_t cmd_world_open(tr_world_t **out);
void cmd_world_close(tr_world_t **world);
/* Closes the world after all ranks have agreed on `status`. One rank prints the error, and all
 * leave together, so that a launcher does not kill ranks that are still exiting. The error record
 * is kept. Collective. */
void cmd_world_leave(tr_world_t **world, tr_status_t status);

/* Prints the error record of `status` before the world is closed, if this rank is the one to report
 * it. main does not print it again. */
void cmd_say_error(tr_status_t status);

/* Called first in main. The program starts with TERM, INT, HUP and USR1 blocked. Unblocks them,
 * after installing the handlers if the command trains. */
void cmd_train_signals(bool trains);

/* If `path` is a folder given instead of a configuration file (a run folder, its checkpoints/ or a
 * checkpoint), writes the path of its configuration, RUN/config.ini. Otherwise, or if there is none,
 * writes `path` and returns false. */
bool cmd_config_path(const char *path, char out[4096]);
/* Loads and checks the configuration from a file (NULL: none), the environment and settings
 * (key=value). Not collective. */
tr_status_t cmd_config_load(const char *path, cmd_words_t settings, tr_config_t **out);
/* The same on every rank: rank 0 reads and broadcasts the values. Collective. */
tr_status_t cmd_config_load_all(tr_world_t *world, const char *path, cmd_words_t settings,
                                tr_config_t **out);

/* Prints `trainer help NAME` to stdout: the help of a command, a list or one of its entries, a
 * section or a key; "" for the overview. */
tr_status_t cmd_help_print(const char *name);
/* Appends the formats of `trainer import`, one paragraph each. */
void cmd_import_list(tr_str_t *out);
/* Prints `trainer COMMAND --help` to stdout; also of a target. */
void cmd_help_command(const cmd_command_t *command);

/* `trainer compare FOLDER --out OUT`, after a sweep. */
tr_status_t cmd_compare_folder(const char *folder, const char *out);

/* Writes `object` atomically to the file of --json; "-": stdout. Steals `object`. */
struct json_t;
tr_status_t cmd_json_write(struct json_t *object, const char *path);
/* Writes `text` atomically to the file of `option`; "-": stdout. */
tr_status_t cmd_text_write(const char *option, const char *path, const char *text);
/* Writes the file of --svg, and frees the charts. TR_ERR_DATA: there is none. */
tr_status_t cmd_svg_write(const char *path, tr_svg_t *charts);
/* The same for plots of a table, one below the other. */
tr_status_t cmd_plots_write(const char *path, const tr_plot_t *plots, size_t count,
                            const tr_table_t *table, const tr_plot_rows_t *rows, size_t groups);
/* Prints a table to stdout; its headings alone, one row alone. */
void cmd_table_print(const tr_table_t *t, const void *rows, size_t count);
void cmd_table_print_head(const tr_table_t *t);
void cmd_table_print_line(const tr_table_t *t, const void *row);
/* As CSV; with the keys as its first line, or without. */
void cmd_table_print_csv(const tr_table_t *t, const void *rows, size_t count, bool has_head);
/* Whether JSON replaces the text on stdout; `path` may be NULL. */
bool cmd_json_is_stdout(const char *path);

/* Columns of standard output; 0: not a terminal. COLUMNS sets it, as in other programs. */
int cmd_terminal_columns(void);

/* version.c */
extern const char cmd_version[];     /* "0.1.0+1a2b3c4" */
extern const char cmd_build_cc[];    /* "cc, gcc 12.2.0" */
extern const char cmd_build_flags[]; /* "-O3 -g -march=native" */

#endif
