/* The parser of command lines, and the usage lines: both follow from the rows of options.h. */
#include "cmd.h"
#include "base/file.h"
#include "config/field.h"
#include "trainer/session.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* -- values ------------------------------------------------------------------------------------ */

/* "1,2,4..64"; A..B stands for A doubled until it reaches B. */
static bool options_parse_numbers(const tr_config_field_t *field, const char *text,
                                  cmd_list_t *out) {
    int64_t from = 0; /* after "A..": A */
    out->count = 0;
    for (const char *at = text; *at;) {
        char *end;
        const int64_t n = strtol(at, &end, 10);
        const bool is_range = strncmp(end, "..", 2) == 0 && from == 0;
        if (end == at || (double)n < field->min || (double)n > field->max || n <= from ||
            (*end && *end != ',' && !is_range))
            return false;
        for (int64_t next = from > 0 ? 2 * from : n;; next *= 2) {
            if (out->count == CMD_LIST_MAX) return false;
            out->value[out->count++] = (int)(next < n ? next : n);
            if (next >= n) break;
        }
        from = is_range ? n : 0;
        at = is_range ? end + 2 : *end ? end + 1 : end;
    }
    return out->count > 0 && from == 0;
}

/* "fp32,bf16" */
static bool options_parse_choices(const tr_config_field_t *field, const char *text,
                                  cmd_list_t *out) {
    tr_config_field_t one = *field;
    int most = 1;
    one.offset = 0;
    for (const char *bar = field->choices; (bar = strchr(bar, '|')); bar++) most++;
    out->count = 0;
    for (const char *at = text; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
        char name[32];
        tr_snprintf(name, sizeof name, "%.*s", (int)strcspn(at, ","), at);
        if (out->count == most || !tr_config_parse_value(&one, name, &out->value[out->count]))
            return false;
        out->count++;
    }
    return true;
}

static tr_status_t options_set_value(const cmd_command_t *command, const cmd_option_t *option,
                                     const char *text, void *options) {
    void *member = (char *)options + option->field.offset;
    tr_str_t expected = {0};
    bool is_valid = true;
    switch (option->takes) {
    case CMD_FLAG: *(bool *)member = true; break;
    case CMD_TEXTS: return tr_vec_push((cmd_texts_t *)member, text);
    case CMD_VALUE: is_valid = tr_config_parse_value(&option->field, text, options); break;
    case CMD_NUMBERS: is_valid = options_parse_numbers(&option->field, text, member); break;
    case CMD_CHOICES: is_valid = options_parse_choices(&option->field, text, member); break;
    }
    if (is_valid) return TR_OK;
    if (option->takes == CMD_NUMBERS)
        tr_str_printf(&expected,
                      "numbers from %.0f to %.0f, at most %d of them, such as 1,2,4 or 1..64 (1, "
                      "2, 4 to 64)",
                      option->field.min, option->field.max, CMD_LIST_MAX);
    else
        tr_config_describe(&option->field, text, &expected);
    if (option->takes == CMD_CHOICES) tr_str_append(&expected, ", or several with commas");
    TR_FAIL(TR_ERR_USAGE, "%s: %s '%s': expected %s", command->name, option->field.name, text,
            expected.text ? expected.text : option->placeholder);
    tr_str_free(&expected);
    return TR_ERR_USAGE;
}

/* -- errors ------------------------------------------------------------------------------------ */

tr_status_t cmd_fail_missing(const cmd_command_t *command, const char *missing) {
    tr_str_t usage = {0};
    cmd_usage(command, 0, &usage);
    TR_FAIL(TR_ERR_USAGE, "%s requires %s: %s", command->name, missing,
            usage.text ? usage.text : "");
    tr_str_free(&usage);
    return TR_ERR_USAGE;
}

static tr_status_t options_fail_unknown(const cmd_command_t *command, const char *word) {
    const char *names[64], *nearest;
    char name[64];
    bool takes_settings = false;
    size_t count = 0;
    tr_snprintf(name, sizeof name, "%.*s", (int)strcspn(word, "="), word);
    for (size_t i = 0; i < command->option_count; i++) {
        const cmd_option_t *option = &command->options[i];
        if (strcmp(name, option->field.name) == 0 && option->takes != CMD_FLAG)
            return TR_FAIL(TR_ERR_USAGE, "%s: %s requires a value, separated by a space: %s %s",
                           command->name, name, name, option->placeholder);
        names[count++] = option->field.name;
    }
    for (size_t i = 0; i < command->argument_count; i++)
        takes_settings |= command->arguments[i].kind == CMD_SETTINGS;
    nearest = tr_nearest(name, names, count);
    if (nearest)
        return TR_FAIL(TR_ERR_USAGE,
                       "%s: unknown option %s; did you mean %s? See trainer %s --help",
                       command->name, word, nearest, command->name);
    if (takes_settings) { /* --epochs, --max-steps */
        const tr_config_table_t *const *tables;
        tr_config_t *config = NULL;
        TR_TRY(tr_all_tables(&tables, &count));
        TR_TRY(tr_config_create(tables, count, &config));
        const char *const key = tr_config_suggest(config, name + strspn(name, "-"));
        if (key)
            TR_FAIL(TR_ERR_USAGE,
                    "%s: unknown option %s; did you mean %s=VALUE? See trainer help %s",
                    command->name, word, key, key);
        tr_config_destroy(&config);
        if (key) return TR_ERR_USAGE;
    }
    return TR_FAIL(TR_ERR_USAGE, "%s: unknown option %s%s; see trainer %s --help", command->name,
                   word, takes_settings ? "; settings are written as section.key=value" : "",
                   command->name);
}

/* -- parsing ----------------------------------------------------------------------------------- */

/* Gives argv[i] to the argument at *next, or to one after it. */
static tr_status_t options_take_word(const cmd_command_t *command, char **argv, int i, size_t *next,
                                     void *options) {
    char *word = argv[i];
    for (size_t k = *next; k < command->argument_count; k++) {
        const cmd_argument_t *argument = &command->arguments[k];
        void *member = (char *)options + argument->offset;
        const bool is_setting = strchr(word, '=') != NULL,
                   is_alone = k == 0; /* without a file before it, a word is no setting */
        if ((argument->kind == CMD_OPTIONAL && is_setting) ||
            (argument->kind == CMD_NOT_FOLDER && tr_is_folder(word)) ||
            (argument->kind == CMD_SETTINGS && is_alone && !is_setting))
            continue;
        if (argument->kind == CMD_NOT_FOLDER && access(word, F_OK) != 0)
            return TR_FAIL(TR_ERR_NOINPUT,
                           "%s: there is no run folder, checkpoint or configuration file %s",
                           command->name, word);
        if (argument->kind == CMD_WORDS || argument->kind == CMD_SETTINGS) {
            cmd_words_t *words = member;
            words->word = argv;
            argv[words->count++] = word; /* at or before i */
        } else {
            *(const char **)member = word;
            *next = k + 1;
        }
        return TR_OK;
    }
    return TR_FAIL(TR_ERR_USAGE, "%s: unexpected argument '%s'; see trainer %s --help",
                   command->name, word, command->name);
}

/* What is missing, and options that do not go with the others. */
static tr_status_t options_check(const cmd_command_t *command, uint64_t given, size_t next,
                                 void *options) {
    for (size_t k = next; k < command->argument_count; k++)
        if (command->arguments[k].kind == CMD_REQUIRED ||
            command->arguments[k].kind == CMD_NOT_FOLDER)
            return cmd_fail_missing(command, command->arguments[k].name);
    for (size_t i = 0; i < command->option_count; i++) {
        const cmd_option_t *option = &command->options[i];
        const char *name = option->field.name;
        bool is_allowed = option->with == NULL;
        if (option->required && !(given >> i & 1)) {
            char missing[96];
            tr_snprintf(missing, sizeof missing, "%s %s", name, option->placeholder);
            return cmd_fail_missing(command, missing);
        }
        if (!(given >> i & 1)) continue;
        if (command->check) TR_TRY(command->check(options, name));
        for (const char *at = option->with; at && !is_allowed; at = strchr(at, '|')) {
            at += *at == '|';
            for (size_t j = 0; j < command->option_count; j++) {
                const char *other = command->options[j].field.name;
                is_allowed |= (given >> j & 1) && strlen(other) == strcspn(at, "|") &&
                              strncmp(at, other, strlen(other)) == 0;
            }
        }
        if (!is_allowed)
            return TR_FAIL(TR_ERR_USAGE, "%s: %s requires %s", command->name, name, option->with);
    }
    return TR_OK;
}

tr_status_t cmd_options_parse(const cmd_command_t *command, int argc, char **argv, void *options) {
    uint64_t given = 0; /* bit i: options[i] */
    size_t next = 0;    /* argument */
    bool is_over = false;
    for (size_t k = 0; k < command->option_count; k++) {
        const cmd_option_t *option = &command->options[k];
        if (option->field.fallback)
            TR_TRY(options_set_value(command, option, option->field.fallback, options));
    }
    for (int i = 1; i < argc; i++) {
        const char *word = argv[i];
        if (strcmp(word, "--") == 0 && !is_over) { /* what follows are no options */
            is_over = true;
            continue;
        }
        if (word[0] != '-' || is_over) {
            TR_TRY(options_take_word(command, argv, i, &next, options));
            continue;
        }
        size_t k = 0;
        while (k < command->option_count && strcmp(word, command->options[k].field.name) != 0) k++;
        if (k == command->option_count) return options_fail_unknown(command, word);
        const cmd_option_t *option = &command->options[k];
        if (option->takes != CMD_FLAG && ++i == argc) return options_fail_unknown(command, word);
        TR_TRY(options_set_value(command, option, argv[i], options));
        given |= 1ull << k;
    }
    return options_check(command, given, next, options);
}

void cmd_options_free(const cmd_command_t *command, void *options) {
    for (size_t i = 0; i < command->option_count; i++)
        if (command->options[i].takes == CMD_TEXTS)
            tr_vec_free((cmd_texts_t *)((char *)options + command->options[i].field.offset));
}

tr_status_t cmd_words_join(cmd_words_t a, cmd_words_t b, cmd_words_t *out) {
    TR_TRY(tr_alloc((size_t)(a.count + b.count) * sizeof *out->word, "settings", &out->word));
    out->count = a.count + b.count;
    for (int i = 0; i < out->count; i++)
        out->word[i] = i < a.count ? a.word[i] : b.word[i - a.count];
    return TR_OK;
}

/* -- usage ------------------------------------------------------------------------------------- */

typedef struct {
    tr_str_t *out;
    int columns; /* 0: no limit */
    size_t line; /* where the current line begins in `out` */
} usage_t;

static void usage_append(usage_t *u, const char *piece) {
    enum { INDENT = 3 };
    if (u->columns > 0 && u->out->length - u->line + strlen(piece) + 1 > (size_t)u->columns) {
        tr_str_printf(u->out, "\n%*s", INDENT, "");
        u->line = u->out->length - INDENT;
    }
    tr_str_printf(u->out, " %s", piece);
}

static void usage_append_arguments(usage_t *u, const cmd_command_t *command, bool are_settings) {
    for (size_t i = 0; i < command->argument_count; i++)
        if ((command->arguments[i].kind == CMD_SETTINGS) == are_settings &&
            *command->arguments[i].name)
            usage_append(u, command->arguments[i].name);
}

void cmd_usage(const cmd_command_t *command, int columns, tr_str_t *out) {
    usage_t usage = {out, columns, out->length};
    tr_str_printf(out, "trainer %s%s", command->name, command->targets ? " TARGET ..." : "");
    usage_append_arguments(&usage, command, false);
    for (size_t i = 0; i < command->option_count; i++) {
        const cmd_option_t *option = &command->options[i];
        const bool has_value = option->placeholder != NULL;
        char piece[160];
        if (!*option->field.help) continue;
        tr_snprintf(piece, sizeof piece, "%s%s%s%s%s%s", option->required ? "" : "[",
                    option->field.name, has_value ? " " : "", has_value ? option->placeholder : "",
                    option->required ? "" : "]", option->takes == CMD_TEXTS ? "..." : "");
        usage_append(&usage, piece);
    }
    usage_append_arguments(&usage, command, true);
}
