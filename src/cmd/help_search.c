/* What mentions some words: the search of `trainer help`. */
#include "help.h"
#include "base/record_fields.h"
#include "trainer/session.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

#define MOST_OF_A_KIND 10
#define NAME_COLUMNS   24

/* The headings of docs/, the tasks of its index and the configurations, from the build. */
static const struct {
    const char *page, *heading;
} pages[] = {
#include "docs_headings.inc"
};

/* The length of the longest prefix of `text` that is the `count` characters at `words`, where blanks
 * and punctuation are all the same, and so are upper and lower case; 0: none. "U-Net" is unet, too. */
static size_t search_match(const char *text, const char *words, size_t count) {
    const char *at = text;
    for (size_t i = 0; i < count; i++, at++) {
        const bool is_letter = isalnum((unsigned char)words[i]);
        if (is_letter && *at == '-' && at > text) at++;
        if (is_letter ? tolower((unsigned char)*at) != tolower((unsigned char)words[i])
                      : !*at || isalnum((unsigned char)*at))
            return 0;
    }
    return (size_t)(at - text);
}

/* Whether `text` has the words: as whole words, which may end in an s, or (begins) a word that begins
 * with them. */
static bool search_mentions(const char *text, const char *words, size_t count, bool begins) {
    bool is_inside = false;
    for (; text && *text; text++) {
        const size_t length = is_inside ? 0 : search_match(text, words, count);
        const char *end = text + length;
        if (length > 0 &&
            (begins || !isalnum((unsigned char)*end) ||
             (tolower((unsigned char)*end) == 's' && !isalnum((unsigned char)end[1]))))
            return true;
        is_inside = isalnum((unsigned char)*text);
    }
    return false;
}

/* The length of a word without its ending; words that begin so are forms of it. */
static size_t search_stem(const char *word, size_t length) {
    enum { SHORTEST = 4 };
    static const char *const endings[] = {"ation", "ing", "ed", "es", "s"};
    for (size_t i = 0; i < TR_COUNT(endings); i++) {
        const size_t end = strlen(endings[i]);
        if (length >= end + SHORTEST && strncasecmp(word + length - end, endings[i], end) == 0)
            return length - end;
    }
    return length;
}

/* The rows of one kind: the first are printed, all are counted. */
typedef struct {
    const char *words, *title;
    bool is_loose; /* any form of each word, in any order */
    int count, all;
} search_t;

static bool search_finds(const search_t *s, const char *name, const char *text) {
    const char *word = s->words;
    if (!s->is_loose)
        return search_mentions(name, word, strlen(word), false) ||
               search_mentions(text, word, strlen(word), false);
    bool is_any = false;
    for (size_t length; *word; word += length) {
        for (length = 0; isalnum((unsigned char)word[length]);) length++;
        const size_t stem = search_stem(word, length);
        if (stem > 0 && !search_mentions(name, word, stem, stem > 3) &&
            !search_mentions(text, word, stem, stem > 3))
            return false;
        is_any |= stem > 0;
        length += length == 0;
    }
    return is_any;
}

static void search_row(search_t *s, const char *name, const char *text) {
    if (!search_finds(s, name, text)) return;
    if (s->count++ == 0) printf("\n%s\n", s->title);
    if (s->count > MOST_OF_A_KIND) return;
    const char *end = text;
    while (*end && !(*end == '.' && (end[1] == ' ' || end[1] == '\0'))) end++;
    char first[400];
    tr_snprintf(first, sizeof first, "%.*s", (int)(end - text), text);
    int at = printf("  %-*s  ", NAME_COLUMNS, name);
    if (at > NAME_COLUMNS + 4) printf("\n"), at = 0;
    cmd_help_print_wrapped(first, at, NAME_COLUMNS + 4);
}

static void search_begin(search_t *s, const char *title) {
    if (s->count > MOST_OF_A_KIND) printf("  and %d more\n", s->count - MOST_OF_A_KIND);
    s->all += s->count;
    s->count = 0;
    s->title = title;
}

static void search_options(search_t *s, const cmd_command_t *command) {
    char name[100];
    for (size_t i = 0; i < command->option_count; i++) {
        tr_snprintf(name, sizeof name, "%s %s", command->name, command->options[i].field.name);
        search_row(s, name, command->options[i].field.help);
    }
    for (size_t t = 0; command->targets && command->targets[t]; t++)
        search_options(s, command->targets[t]);
}

static tr_status_t search_all(search_t *s) {
    const tr_config_table_t *const *tables;
    size_t count;
    help_entry_t entry;
    TR_TRY(tr_all_tables(&tables, &count));
    search_begin(s, "Keys");
    for (size_t t = 0; t < count; t++)
        for (size_t i = 0; i < tables[t]->count; i++) {
            char key[100];
            tr_snprintf(key, sizeof key, "%s%s%s", tables[t]->section,
                        *tables[t]->section ? "." : "", tables[t]->fields[i].name);
            search_row(s, key, tables[t]->fields[i].help);
        }
    for (size_t l = 0; cmd_help_list_at(l); l++) {
        search_begin(s, l == 0 ? "Commands" : cmd_help_list_at(l)->title);
        for (size_t i = 0; cmd_help_list_at(l)->at(i, &entry); i++)
            search_row(s, entry.name, entry.help ? entry.help : "");
    }
    search_begin(s, "Options of commands");
    const cmd_command_t *const *commands = cmd_list(&count);
    for (size_t c = 0; c < count; c++) search_options(s, commands[c]);
    search_begin(s, "Fields of records; see trainer help records");
    for (int i = 0; i < TR_RECORD_FIELD_COUNT; i++)
        search_row(s, tr_record_fields[i].key, tr_record_fields[i].help);
    search_begin(s, "Pages and configurations");
    for (size_t i = 0; pages[i].page; i++) search_row(s, pages[i].page, pages[i].heading);
    search_begin(s, "");
    return TR_OK;
}

tr_status_t cmd_help_search(const char *words, int *out_count) {
    char singular[100];
    tr_snprintf(singular, sizeof singular, "%s", words);
    const size_t length = strlen(singular);
    if (length > 3 && singular[length - 1] == 's') singular[length - 1] = '\0';
    search_t s = {.words = singular};
    TR_TRY(search_all(&s));
    s.is_loose = true;
    if (s.all == 0) TR_TRY(search_all(&s));
    *out_count = s.all;
    return TR_OK;
}
