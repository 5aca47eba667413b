/* The lists of `trainer help`, and its search by words. */
#ifndef TR_CMD_HELP_H
#define TR_CMD_HELP_H

#include "cmd.h"
#include "datatools/datatools.h"
#include "model/layer.h"

typedef struct {
    const char *name, *help;
    const tr_layer_t *layer;       /* its arguments are also shown; NULL: not a layer */
    const cmd_command_t *command;  /* its usage is shown; NULL: not a command */
    const tr_importer_t *importer; /* the same */
} help_entry_t;

/* A registry; `at` returns false after the last entry. */
typedef struct {
    const char *topic, *title;
    bool (*at)(size_t index, help_entry_t *out);
} help_list_t;

/* The list at `index`, commands first; NULL after the last. */
const help_list_t *cmd_help_list_at(size_t index);
/* Prints `text` wrapped to the terminal, with each line indented by `indent`; the first line starts at
 * column `at`, at most `indent`. */
void cmd_help_print_wrapped(const char *text, int at, int indent);

/* Prints the keys, entries of lists, options, fields of records, pages (by their headings and by the
 * rows of docs/index.md) and configurations that mention `words`, in this order; if none does, those
 * that have a form of each word. *out_count: how many are found. */
tr_status_t cmd_help_search(const char *words, int *out_count);

#endif
