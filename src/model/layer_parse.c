/*
 * The grammar of a list of layers:
 *
 *     list  = { "," | end of line | layer }
 *     layer = name { word | key "=" value } { "{" list "}" }
 *
 * A block may start on a later line than its layer. # starts a comment that ends with the line.
 */
#include "layer_int.h"
#include "base/mem.h"
#include <stdio.h>
#include <string.h>

#define MAX_DEPTH 16 /* of nested blocks; bounds the recursion */

typedef struct {
    const char *at;
    int line, column;
    int depth;
} cursor_t;

typedef TR_VEC(tr_layer_spec_t) spec_vec_t;
typedef TR_VEC(tr_layer_word_t) word_vec_t;

static tr_status_t parse_list(cursor_t *c, const cursor_t *open, tr_layer_block_t *out);

static void parse_advance(cursor_t *c) {
    if (*c->at == '\n') {
        c->line++;
        c->column = 1;
    } else {
        c->column++;
    }
    c->at++;
}

static bool parse_is_one_of(char character, const char *set) {
    return character != '\0' && strchr(set, character) != NULL;
}

/* Skips characters of `set`, and comments. */
static void skip(cursor_t *c, const char *set) {
    for (;;) {
        if (parse_is_one_of(*c->at, set)) {
            parse_advance(c);
        } else if (*c->at == '#') {
            while (*c->at != '\0' && *c->at != '\n') parse_advance(c);
        } else {
            return;
        }
    }
}

static void layer_parse_skip_blanks(cursor_t *c) {
    skip(c, " \t\r\v\f");
}

static size_t word_length(const cursor_t *c) {
    return strcspn(c->at, " \t\r\v\f\n,{}#=");
}

/* The text at the cursor, for a message. */
static const char *found(const cursor_t *c, char text[48]) {
    size_t length = word_length(c);
    if (*c->at == '\0') return "the end of the text";
    if (*c->at == '\n' || *c->at == '#') return "the end of the line";
    if (length == 0) length = 1;
    snprintf(text, 48, "'%.*s'", (int)(length < 40 ? length : 40), c->at);
    return text;
}

static tr_status_t take_word(cursor_t *c, char **out) {
    size_t length = word_length(c);
    TR_TRY(tr_alloc(length + 1, "layer text", out));
    memcpy(*out, c->at, length);
    while (length-- > 0) parse_advance(c);
    return TR_OK;
}

static bool is_letter(char character) {
    return (character >= 'a' && character <= 'z') || (character >= 'A' && character <= 'Z') ||
           character == '_';
}

static void free_spec(tr_layer_spec_t *spec) {
    tr_free(&spec->name);
    for (int i = 0; i < spec->word_count; i++) {
        tr_free(&spec->words[i].key);
        tr_free(&spec->words[i].value);
    }
    tr_free(&spec->words);
    for (int i = 0; i < spec->block_count; i++)
        tr_layers_free(&spec->blocks[i].specs, spec->blocks[i].count);
}

void tr_layers_free(tr_layer_spec_t **specs, int count) {
    if (*specs == NULL) return;
    for (int i = 0; i < count; i++) free_spec(&(*specs)[i]);
    tr_free(specs);
}

/* "5x5" or "pad=same" into *out, which the caller frees, also after a failure. */
static tr_status_t parse_word(cursor_t *c, tr_layer_word_t *out) {
    char text[48];
    out->line = c->line;
    out->column = c->column;
    if (word_length(c) == 0)
        return TR_LAYER_FAIL(c, "expected an argument or an option as key=value, found %s.",
                             found(c, text));
    TR_TRY(take_word(c, &out->value));
    layer_parse_skip_blanks(c);
    if (*c->at != '=') return TR_OK;
    parse_advance(c);
    layer_parse_skip_blanks(c);
    out->key = out->value;
    out->value = NULL;
    if (word_length(c) == 0)
        return TR_LAYER_FAIL(c, "expected a value after '%s=', found %s.", out->key,
                             found(c, text));
    return take_word(c, &out->value);
}

static tr_status_t parse_blocks(cursor_t *c, tr_layer_spec_t *spec) {
    for (;;) {
        cursor_t ahead = *c;
        skip(&ahead, " \t\r\v\f\n");
        if (*ahead.at != '{') return TR_OK;
        if (spec->block_count == TR_LAYER_MAX_BLOCKS)
            return TR_LAYER_FAIL(
                &ahead,
                "expected a comma or a new line after the %d blocks of '%s', found another block.",
                TR_LAYER_MAX_BLOCKS, spec->name);
        if (ahead.depth == MAX_DEPTH)
            return TR_LAYER_FAIL(&ahead, "blocks are nested deeper than %d.", MAX_DEPTH);
        cursor_t open = ahead;
        parse_advance(&ahead);
        ahead.depth++;
        tr_layer_block_t *block = &spec->blocks[spec->block_count++];
        TR_TRY(parse_list(&ahead, &open, block));
        ahead.depth--;
        *c = ahead;
    }
}

/* Fills *out, which the caller frees, also after a failure. */
static tr_status_t parse_layer(cursor_t *c, tr_layer_spec_t *out) {
    char text[48];
    word_vec_t words = {0};
    tr_status_t status = TR_OK;
    out->line = c->line;
    out->column = c->column;
    if (!is_letter(*c->at))
        return TR_LAYER_FAIL(c, "expected a layer name, found %s%s.", found(c, text),
                             *c->at == '{' ? " (write no comma between blocks)" : "");
    TR_TRY(take_word(c, &out->name));
    if (strchr(out->name, '('))
        return TR_LAYER_FAIL(
            out,
            "expected a layer name followed by its arguments, as in 'conv 16 3x3', found '%s'.",
            out->name);
    layer_parse_skip_blanks(c);
    if (*c->at == '=')
        return TR_LAYER_FAIL(
            out,
            "expected a layer name, found the option '%s='; options follow their layer, without a "
            "comma.",
            out->name);
    for (layer_parse_skip_blanks(c);
         status == TR_OK && !parse_is_one_of(*c->at, "\n,{}") && *c->at != '\0';
         layer_parse_skip_blanks(c)) {
        status = tr_vec_push(&words, (tr_layer_word_t){0});
        if (status == TR_OK) status = parse_word(c, &words.data[words.count - 1]);
    }
    out->words = words.data;
    out->word_count = (int)words.count;
    TR_TRY(status);
    return parse_blocks(c, out);
}

/* Reads to the end of the text, or past the brace that closes `open`. *out can be freed, also after
 * a failure. */
static tr_status_t parse_list(cursor_t *c, const cursor_t *open, tr_layer_block_t *out) {
    spec_vec_t specs = {0};
    tr_status_t status = TR_OK;
    for (skip(c, " \t\r\v\f\n,"); status == TR_OK && *c->at != '\0' && *c->at != '}';
         skip(c, " \t\r\v\f\n,")) {
        tr_layer_spec_t spec = {0};
        status = parse_layer(c, &spec);
        if (status == TR_OK) status = tr_vec_push(&specs, spec);
        if (status != TR_OK) free_spec(&spec);
    }
    out->specs = specs.data;
    out->count = (int)specs.count;
    TR_TRY(status);
    if (open != NULL && *c->at == '\0')
        return TR_LAYER_FAIL(open, "expected a } that closes this {, found the end of the text.");
    if (open == NULL && *c->at == '}')
        return TR_LAYER_FAIL(c, "expected a layer name, found a } without {.");
    if (open != NULL) parse_advance(c);
    return TR_OK;
}

tr_status_t tr_layers_parse(const char *text, tr_layer_spec_t **out, int *out_count) {
    cursor_t cursor = {text, 1, 1, 0};
    tr_layer_block_t list = {0};
    tr_status_t status;
    TR_TRY_GOTO(parse_list(&cursor, NULL, &list), fail);
    for (int i = 0; i < list.count; i++) TR_TRY_GOTO(tr_layer_check(&list.specs[i]), fail);
    *out = list.specs;
    *out_count = list.count;
    return TR_OK;
fail:
    tr_layers_free(&list.specs, list.count);
    return status;
}
