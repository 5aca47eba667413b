/* trainer completion SHELL: prints a script that completes command lines. The scripts ask the program
 * itself, `trainer completion reply -- WORDS`, so that all shells say the same. */
#include "cmd.h"
#include "trainer/session.h"

#include <stdio.h>
#include <string.h>

/* Where nothing is replied, the shells complete the names of files. */
static const struct {
    const char *name, *script;
} shells[] = {
    {"bash", "# Completion of trainer for bash, printed by `trainer completion bash`.\n"
             "_trainer() {\n"
             "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]}\n"
             "    COMPREPLY=()\n"
             "    [ \"$before\" != = ] && [ \"$word\" != = ] || return 0\n"
             "    mapfile -t COMPREPLY < <(\"${COMP_WORDS[0]}\" completion reply -- "
             "\"${COMP_WORDS[@]:1:COMP_CWORD}\" 2>/dev/null)\n"
             "    case ${COMPREPLY-} in *=) compopt -o nospace 2>/dev/null ;; esac\n"
             "    return 0\n"
             "}\n"
             "complete -o default -F _trainer trainer\n"},
    {"zsh",
     "#compdef trainer\n"
     "# Completion of trainer for zsh, printed by `trainer completion zsh`.\n"
     "_trainer() {\n"
     "    local -a replies\n"
     "    replies=(${(f)\"$($words[1] completion reply -- \"${(@)words[2,CURRENT]}\" "
     "2>/dev/null)\"})\n"
     "    if (( $#replies == 0 )); then _files\n"
     "    elif [[ $replies[1] == *= ]]; then compadd -S '' -- $replies\n"
     "    else compadd -- $replies\n"
     "    fi\n"
     "}\n"
     "if [[ $funcstack[1] == _trainer ]]; then _trainer; else compdef _trainer trainer; fi\n"},
    {"fish", "# Completion of trainer for fish, printed by `trainer completion fish`.\n"
             "function __trainer_replies\n"
             "    set -l words (commandline -opc) (commandline -ct)\n"
             "    set -l replies ($words[1] completion reply -- $words[2..-1] 2>/dev/null)\n"
             "    if test (count $replies) -gt 0\n"
             "        printf '%s\\n' $replies\n"
             "    else\n"
             "        __fish_complete_path (commandline -ct)\n"
             "    end\n"
             "end\n"
             "complete -c trainer -f -a '(__trainer_replies)'\n"},
};

/* Prints `word`, with what is before the last comma of the user's word, if that word begins it. */
static void completion_reply(const char *user, const char *word, size_t length) {
    const char *comma = strrchr(user, ','), *part = comma ? comma + 1 : user;
    if (strlen(part) <= length && strncmp(part, word, strlen(part)) == 0)
        printf("%.*s%.*s\n", (int)(part - user), user, (int)length, word);
}

/* "fp32|bf16" */
static void completion_reply_choices(const char *user, const char *choices) {
    for (size_t length; *choices; choices += length + (choices[length] == '|')) {
        length = strcspn(choices, "|");
        completion_reply(user, choices, length);
    }
}

static tr_status_t completion_reply_keys(const char *user) {
    const tr_config_table_t *const *tables;
    size_t count;
    TR_TRY(tr_all_tables(&tables, &count));
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tables[t]->count; i++) {
            char key[100];
            tr_snprintf(key, sizeof key, "%s%s%s=", tables[t]->section,
                        *tables[t]->section ? "." : "", tables[t]->fields[i].name);
            if (!strchr(user, ',')) completion_reply(user, key, strlen(key));
        }
    return TR_OK;
}

/* What the last of `words`, which follow the name of the program, may become. */
static tr_status_t completion_reply_to(cmd_words_t words) {
    const char *const user = words.word[words.count - 1];
    size_t count;
    const cmd_command_t *const *all = cmd_list(&count);
    if (words.count == 1) {
        for (size_t c = 0; c < count; c++)
            completion_reply(user, all[c]->name, strlen(all[c]->name));
        completion_reply_choices(user, "--help|--version");
        return TR_OK;
    }
    const cmd_command_t *command = cmd_find(words.word[0]);
    int at = command ? 1 : 0; /* of the first argument; a configuration is short for train */
    if (!command) command = &cmd_train;
    if (command->targets) {
        const cmd_command_t *found = cmd_find_target(command, words.word[1]);
        for (size_t t = 0; command->targets[t] && words.count == 2; t++) {
            const char *name = command->targets[t]->name + strlen(command->name) + 1;
            completion_reply(user, name, strlen(name));
        }
        if (words.count == 2 || !found) return TR_OK;
        command = found;
        at = 2;
    }
    bool takes_keys = false;
    for (size_t i = 0; i < command->argument_count; i++)
        takes_keys |= command->arguments[i].kind == CMD_SETTINGS;
    for (size_t i = 0; i < command->option_count; i++) {
        const cmd_option_t *o = &command->options[i];
        if (o->takes == CMD_FLAG || strcmp(words.word[words.count - 2], o->field.name) != 0)
            continue;
        if (o->field.choices) completion_reply_choices(user, o->field.choices);
        return TR_OK;
    }
    if (user[0] == '-')
        for (size_t i = 0; i < command->option_count; i++)
            completion_reply(user, command->options[i].field.name,
                             strlen(command->options[i].field.name));
    else if (words.count == at + 1 && command->argument_count > 0 && command->arguments[0].choices)
        completion_reply_choices(user, command->arguments[0].choices);
    else if (words.count > at + 1 && takes_keys)
        return completion_reply_keys(user);
    return TR_OK;
}

typedef struct {
    const char *shell;
    cmd_words_t words;
} completion_options_t;

static tr_status_t completion_run(void *options) {
    const completion_options_t *o = options;
    if (strcmp(o->shell, "reply") == 0)
        return o->words.count > 0 ? completion_reply_to(o->words) : TR_OK;
    for (size_t i = 0; i < TR_COUNT(shells); i++) {
        if (strcmp(o->shell, shells[i].name) != 0) continue;
        fputs(shells[i].script, stdout);
        return TR_OK;
    }
    return TR_FAIL(TR_ERR_USAGE, "completion: expected bash, zsh or fish, found '%s'", o->shell);
}

static const cmd_argument_t arguments[] = {
    {"bash|zsh|fish", offsetof(completion_options_t, shell), CMD_REQUIRED, "bash|zsh|fish"},
    {"", offsetof(completion_options_t, words), CMD_WORDS, NULL},
};

const cmd_command_t cmd_completion = {
    .name = "completion",
    .runs = CMD_ON_FIRST,
    .summary = "Prints a script for a shell that completes commands, options, values and keys.",
    .help = "`make install` installs those for bash, zsh and fish. Without an installation: "
            ". <(trainer completion bash), or in fish: trainer completion fish | source",
    CMD_ARGUMENTS(completion_options_t),
    .run = completion_run,
};
