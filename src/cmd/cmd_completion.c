/* trainer completion bash: prints a script that completes the words of a command line. */
#include "cmd.h"
#include "trainer/session.h"

#include <stdio.h>
#include <string.h>

/* "$command" in the script is the name of a command or of a target, and "$before" the word before
 * the one that is completed. Nothing to choose from leaves COMPREPLY empty: files. */
static const char head[] =
    "# Completion of trainer for bash, printed by `trainer completion bash`.\n"
    "_trainer() {\n"
    "    local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD - 1]} words= "
    "options= keys= list=\n"
    "    local command=${COMP_WORDS[1]} first=2\n"
    "    COMPREPLY=()\n"
    "    [ \"$before\" != = ] && [ \"$word\" != = ] || return 0\n";
static const char tail[] =
    "    case $word in\n"
    "    -*) [ -n \"$words\" ] || words=$options ;;\n"
    "    *) [ -n \"$words\" ] || [ \"$COMP_CWORD\" -le \"$first\" ] || words=$keys ;;\n"
    "    esac\n"
    "    case $word in ?*,*) list=${word%,*}, ;; esac\n"
    "    COMPREPLY=($(compgen -P \"$list\" -W \"$words\" -- \"${word#\"$list\"}\"))\n"
    "    case ${COMPREPLY-} in *=) compopt -o nospace 2>/dev/null ;; esac\n"
    "    return 0\n"
    "}\n"
    "complete -o default -F _trainer trainer\n";

/* "fp32|bf16" as words. */
static void completion_print_words(const char *choices) {
    for (; *choices; choices++) putchar(*choices == '|' ? ' ' : *choices);
}

/* The part of `case "$command"` for one command. */
static void completion_print_command(const cmd_command_t *command) {
    const char *first = command->argument_count > 0 ? command->arguments[0].choices : NULL;
    bool takes_keys = false;
    for (size_t i = 0; i < command->argument_count; i++)
        takes_keys |= strncmp(command->arguments[i].name, "[key=", 5) == 0;
    printf("    '%s')\n        options='", command->name);
    for (size_t i = 0; i < command->option_count; i++)
        printf("%s%s", i > 0 ? " " : "", command->options[i].field.name);
    printf("'%s\n", takes_keys ? " keys=$_trainer_keys" : "");
    if (first) {
        printf("        [ \"$COMP_CWORD\" != \"$first\" ] || words='");
        completion_print_words(first);
        printf("'\n");
    }
    printf("        case $before in\n");
    for (size_t i = 0; i < command->option_count; i++) {
        const cmd_option_t *o = &command->options[i];
        if (o->takes == CMD_FLAG) continue;
        printf("        %s) %s", o->field.name, o->field.choices ? "words='" : "return 0");
        if (o->field.choices) completion_print_words(o->field.choices);
        printf("%s ;;\n", o->field.choices ? "'" : "");
    }
    printf("        esac ;;\n");
}

typedef struct {
    const char *shell;
} completion_options_t;

static tr_status_t completion_run(void *options) {
    const completion_options_t *o = options;
    const tr_config_table_t *const *tables;
    size_t count, commands;
    const cmd_command_t *const *all = cmd_list(&commands);
    if (strcmp(o->shell, "bash") != 0)
        return TR_FAIL(TR_ERR_USAGE, "completion: expected bash, found '%s'", o->shell);
    TR_TRY(tr_all_tables(&tables, &count));
    printf("_trainer_keys='");
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tables[t]->count; i++)
            printf("%s%s%s=\n", tables[t]->section, *tables[t]->section ? "." : "",
                   tables[t]->fields[i].name);
    printf("'\n%s", head);

    /* the command, or a configuration file, which is short for train */
    printf("    if [ \"$COMP_CWORD\" = 1 ]; then\n        words='");
    for (size_t c = 0; c < commands; c++) printf("%s%s", c > 0 ? " " : "", all[c]->name);
    printf(" --help --version'\n    fi\n    case $command in\n    ");
    for (size_t c = 0; c < commands; c++) printf("%s%s", c > 0 ? "|" : "", all[c]->name);
    printf(") ;;\n    *) command=train first=1 ;;\n    esac\n");

    /* the target of a command */
    for (size_t c = 0; c < commands; c++) {
        if (!all[c]->targets) continue;
        printf("    if [ \"$command\" = %s ] && [ \"$COMP_CWORD\" -gt 2 ]; then\n"
               "        command=\"%s ${COMP_WORDS[2]}\" first=3\n"
               "    elif [ \"$command\" = %s ]; then\n        words='",
               all[c]->name, all[c]->name, all[c]->name);
        for (size_t t = 0; all[c]->targets[t]; t++)
            printf("%s%s", t > 0 ? " " : "", strchr(all[c]->targets[t]->name, ' ') + 1);
        printf("'\n    fi\n");
    }
    printf("    [ \"$COMP_CWORD\" = 1 ] || case $command in\n");
    for (size_t c = 0; c < commands; c++) {
        if (!all[c]->targets) completion_print_command(all[c]);
        for (size_t t = 0; all[c]->targets && all[c]->targets[t]; t++)
            completion_print_command(all[c]->targets[t]);
    }
    printf("    esac\n%s", tail);
    return TR_OK;
}

static const cmd_argument_t arguments[] = {
    {"bash", offsetof(completion_options_t, shell), CMD_REQUIRED, "bash"},
};

const cmd_command_t cmd_completion = {
    .name = "completion",
    .runs = CMD_ON_FIRST,
    .summary = "Prints a script for bash that completes commands, options, values and keys.",
    .help = "`make install` installs it. Without an installation: . <(trainer completion bash)",
    CMD_ARGUMENTS(completion_options_t),
    .run = completion_run,
};
