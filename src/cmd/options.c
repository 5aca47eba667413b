/* Errors about options. */
#include "cmd.h"

#include <stdio.h>
#include <string.h>

enum { MAX_OPTIONS = 48, NAME_BYTES = 32 };

typedef struct {
    char name[MAX_OPTIONS][NAME_BYTES];
    size_t count;
} names_t;

static size_t name_bytes(const char *text) {
    return strspn(text, "-abcdefghijklmnopqrstuvwxyz");
}

/* Every --name in the text. */
static void add_names(const char *text, names_t *names) {
    for (; (text = strstr(text, "--")) && names->count < MAX_OPTIONS; text += name_bytes(text))
        if (name_bytes(text) > 2)
            snprintf(names->name[names->count++], NAME_BYTES, "%.*s", (int)name_bytes(text), text);
}

/* "--steps N" in the usage: a value belongs to it. */
static bool wants_value(const char *usage, const char *name) {
    const size_t bytes = strlen(name);
    for (const char *at = usage; (at = strstr(at, name)); at += bytes)
        if (at[bytes] == ' ') return true;
    return false;
}

/* Whether the target in `command` ("bench allreduce") has the option: in its part of the usage,
 * "allreduce ... | ", or in the part for all targets, after two spaces. */
static bool has_option(const char *usage, const char *command, const char *option) {
    const char *target = strchr(command, ' '), *tail = strstr(usage, "  "), *part, *at;
    const size_t bytes = strlen(option);
    if (!target || !tail || !(part = strstr(usage, target + 1))) return true;
    const char *bar = strstr(part, " | "), *end = bar ? bar : tail;
    for (at = part; (at = strstr(at, option)); at += bytes)
        if (name_bytes(at) == bytes && (at < end || at > tail)) return true;
    return false;
}

tr_status_t cmd_fail_option(const char *command, const char *option) {
    char first_word[NAME_BYTES];
    snprintf(first_word, sizeof first_word, "%.*s", (int)strcspn(command, " "), command);
    const cmd_command_t *known = cmd_find(first_word);
    const char *candidates[MAX_OPTIONS], *nearest;
    char name[NAME_BYTES];
    names_t names = {0};
    tr_str_t importers = {0};
    if (strcmp(first_word, "import") == 0) cmd_import_list(&importers);
    add_names(known->usage, &names);
    add_names(known->help, &names);
    if (importers.text) add_names(importers.text, &names);
    tr_str_free(&importers);
    for (size_t i = 0; i < names.count; i++) candidates[i] = names.name[i];
    snprintf(name, sizeof name, "%.*s", (int)strcspn(option, "="), option);
    for (size_t i = 0; i < names.count; i++)
        if (strcmp(candidates[i], name) == 0 && wants_value(known->usage, name))
            return has_option(known->usage, command, name)
                       ? TR_FAIL(TR_ERR_USAGE,
                                 "%s: %s requires a value, separated by a space: trainer %s %s",
                                 command, name, first_word, known->usage)
                       : TR_FAIL(TR_ERR_USAGE, "%s has no option %s; see trainer %s --help",
                                 command, name, first_word);
    nearest = tr_nearest(name, candidates, names.count);
    if (nearest)
        return TR_FAIL(TR_ERR_USAGE,
                       "%s: unknown option %s; did you mean %s? See trainer %s --help", command,
                       option, nearest, first_word);
    return TR_FAIL(TR_ERR_USAGE, "%s: unknown option %s; see trainer %s --help", command, option,
                   first_word);
}
