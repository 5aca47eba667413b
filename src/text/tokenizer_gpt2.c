/* gpt2:DIR: GPT-2's byte-level byte-pair encoding, with the vocabulary and merges in DIR/vocab.json
 * and DIR/merges.txt. In these files, a byte is written as a printable character: itself if it is
 * one, otherwise one from U+0100. */
#include "bpe.h"
#include "gpt2_split.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

#define BYTES     256
#define PATH_ROOM 4096

typedef struct {
    int32_t left, right;
} merge_t;

typedef struct {
    tr_tokenizer_t base;
    char **token; /* [vocab_size]: as in the file */
    int32_t byte_id[BYTES];
    uint32_t char_of[BYTES];    /* the character that stands for a byte */
    int16_t byte_of[2 * BYTES]; /* the byte of a character; -1: none */
    bpe_merges_t merges;
    merge_t *merge; /* [merge_count], in the order of their ranks */
    int32_t merge_count;
} gpt2_t;

static void destroy(tr_tokenizer_t *tokenizer) {
    gpt2_t *self = (gpt2_t *)tokenizer;
    for (int32_t i = 0; self->token && i < self->base.vocab_size; i++) tr_free(&self->token[i]);
    tr_free(&self->token);
    tr_free(&self->merge);
    tr_bpe_merges_free(&self->merges);
    tr_free(&self);
}

static void set_characters(gpt2_t *self) {
    uint32_t next = BYTES;
    memset(self->byte_of, -1, sizeof self->byte_of);
    for (uint32_t byte = 0; byte < BYTES; byte++) {
        const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
        self->char_of[byte] = printable ? byte : next++;
        self->byte_of[self->char_of[byte]] = (int16_t)byte;
    }
}

/* -- the vocabulary ---------------------------------------------------------------------------- */

/* Whether every character stands for a byte. */
static bool is_bytes(const gpt2_t *self, const char *token) {
    uint32_t code;
    for (int bytes; *token; token += bytes) {
        bytes = tr_utf8_decode(token, &code);
        if (bytes == 0 || code >= 2 * BYTES || self->byte_of[code] < 0) return false;
    }
    return true;
}

static tr_status_t add_token(gpt2_t *self, const char *text, const json_t *id, const char *from) {
    const json_int_t at = json_is_integer(id) ? json_integer_value(id) : -1;
    if (at < 0 || at >= self->base.vocab_size || self->token[at])
        return TR_FAIL(TR_ERR_DATA,
                       "%s: the token '%s' has the id %lld; expected ids from 0 to %d, each once.",
                       from, text, (long long)at, (int)self->base.vocab_size - 1);
    if (strcmp(text, TR_END_OF_TEXT) == 0)
        self->base.end = (int32_t)at;
    else if (!is_bytes(self, text))
        return TR_FAIL(TR_ERR_DATA,
                       "%s: the token '%s' (%lld) has a character that represents no byte.", from,
                       text, (long long)at);
    return tr_strdup(text, &self->token[at]);
}

static tr_status_t read_bytes(gpt2_t *self, const json_t *vocab, const char *from) {
    for (int byte = 0; byte < BYTES; byte++) {
        char text[8] = "";
        tr_utf8_encode(self->char_of[byte], text);
        const json_t *id = json_object_get(vocab, text);
        if (!id)
            return TR_FAIL(TR_ERR_DATA,
                           "%s: the byte 0x%02X ('%s') is not a token of the vocabulary.", from,
                           (unsigned)byte, text);
        self->byte_id[byte] = (int32_t)json_integer_value(id);
    }
    return TR_OK;
}

static tr_status_t read_vocab(gpt2_t *self, json_t *vocab, const char *from) {
    const char *text;
    json_t *id;
    if (!json_is_object(vocab))
        return TR_FAIL(TR_ERR_DATA, "%s: expected an object that maps tokens to ids.", from);
    const bool has_end = json_object_get(vocab, TR_END_OF_TEXT) != NULL;
    self->base.vocab_size = (int32_t)json_object_size(vocab);
    TR_TRY(tr_alloc(((size_t)self->base.vocab_size + 1) * sizeof *self->token, "tokens",
                    &self->token));
    json_object_foreach(vocab, text, id) TR_TRY(add_token(self, text, id, from));
    TR_TRY(read_bytes(self, vocab, from));
    if (!has_end) self->base.end = self->base.vocab_size++;
    return TR_OK;
}

/* -- the merges -------------------------------------------------------------------------------- */

/* "left right". Both and their concatenation are tokens. */
static tr_status_t add_merge(gpt2_t *self, const json_t *vocab, const char *line,
                             const char *from) {
    const int32_t rank = self->merge_count;
    const char *space = strchr(line, ' ');
    tr_str_t left = {0}, both = {0};
    if (space) {
        tr_str_append_bytes(&left, line, (size_t)(space - line));
        tr_str_printf(&both, "%s%s", left.text ? left.text : "", space + 1);
    }
    const json_t *left_id = left.text ? json_object_get(vocab, left.text) : NULL,
                 *right_id = space ? json_object_get(vocab, space + 1) : NULL,
                 *id = both.text ? json_object_get(vocab, both.text) : NULL;
    tr_str_free(&left);
    tr_str_free(&both);
    if (!left_id || !right_id || !id)
        return TR_FAIL(
            TR_ERR_DATA,
            "%s: merge %d is '%s'; expected two tokens separated by a space, whose concatenation "
            "is a token of the vocabulary.",
            from, (int)rank + 1, line);
    const merge_t merge = {(int32_t)json_integer_value(left_id),
                           (int32_t)json_integer_value(right_id)};
    if (!tr_bpe_merges_add(&self->merges, merge.left, merge.right, rank,
                           (int32_t)json_integer_value(id)))
        return TR_FAIL(TR_ERR_DATA, "%s: merge %d, '%s', occurs twice.", from, (int)rank + 1, line);
    self->merge[self->merge_count++] = merge;
    return TR_OK;
}

/* `merges`: an array of strings. */
static tr_status_t build(gpt2_t *self, json_t *vocab, const char *vocab_from, const json_t *merges,
                         const char *merges_from) {
    const size_t count = json_array_size(merges);
    set_characters(self);
    TR_TRY(read_vocab(self, vocab, vocab_from));
    TR_TRY(tr_alloc(count * sizeof *self->merge, "merges", &self->merge));
    TR_TRY(tr_bpe_merges_create(count, &self->merges));
    for (size_t i = 0; i < count; i++) {
        const char *line = json_string_value(json_array_get(merges, i));
        TR_TRY(add_merge(self, vocab, line ? line : "", merges_from));
    }
    return TR_OK;
}

static tr_status_t make(json_t *vocab, const char *vocab_from, const json_t *merges,
                        const char *merges_from, tr_tokenizer_t **out) {
    gpt2_t *self = NULL;
    TR_TRY(tr_alloc(sizeof *self, "tokenizer", &self));
    tr_status_t status = build(self, vocab, vocab_from, merges, merges_from);
    if (status != TR_OK) destroy(&self->base), self = NULL;
    *out = self ? &self->base : NULL;
    return status;
}

/* -- files ------------------------------------------------------------------------------------- */

static tr_status_t open_file(const char *folder, const char *name, char path[PATH_ROOM],
                             FILE **out) {
    if ((size_t)snprintf(path, PATH_ROOM, "%s/%s", folder, name) >= PATH_ROOM)
        return TR_FAIL(TR_ERR_USAGE,
                       "gpt2:DIR: the name of the folder is longer than %d characters.",
                       PATH_ROOM - 16);
    *out = fopen(path, "re");
    if (*out) return TR_OK;
    return TR_FAIL(tr_status_of_errno(errno),
                   "cannot open '%s': %s. gpt2:DIR needs a folder with vocab.json and merges.txt.",
                   path, strerror(errno));
}

static tr_status_t load_vocab(const char *folder, char path[PATH_ROOM], json_t **out) {
    FILE *file;
    json_error_t error;
    TR_TRY(open_file(folder, "vocab.json", path, &file));
    *out = json_loadf(file, JSON_REJECT_DUPLICATES, &error);
    fclose(file);
    if (*out) return TR_OK;
    return TR_FAIL(TR_ERR_DATA, "%s: line %d, column %d: %s.", path, error.line, error.column,
                   error.text);
}

/* The lines of merges.txt, without the first line if that is the version. */
static tr_status_t load_merges(const char *folder, char path[PATH_ROOM], json_t *out) {
    FILE *file;
    char *line = NULL;
    size_t room = 0;
    bool is_text = true;
    TR_TRY(open_file(folder, "merges.txt", path, &file));
    for (int64_t number = 1; getline(&line, &room, file) >= 0; number++) {
        line[strcspn(line, "\r\n")] = '\0';
        if (*line == '\0' || (number == 1 && strncmp(line, "#version", 8) == 0)) continue;
        is_text = json_array_append_new(out, json_string(line)) == 0 && is_text;
    }
    const bool read = !ferror(file);
    free(line);
    fclose(file);
    if (!read) return TR_FAIL(TR_ERR_IO, "cannot read '%s'.", path);
    return is_text ? TR_OK : TR_FAIL(TR_ERR_DATA, "%s: the merges are not valid UTF-8.", path);
}

static tr_status_t create(const char *folder, tr_tokenizer_t **out) {
    char vocab_path[PATH_ROOM], merges_path[PATH_ROOM];
    json_t *vocab = NULL, *merges = json_array();
    tr_status_t status = load_vocab(folder, vocab_path, &vocab);
    if (status == TR_OK) status = load_merges(folder, merges_path, merges);
    if (status == TR_OK) status = make(vocab, vocab_path, merges, merges_path, out);
    json_decref(vocab);
    json_decref(merges);
    return status;
}

/* -- JSON -------------------------------------------------------------------------------------- */

/* The end of a text always gets a name in files, because readers need its id. */
static json_t *vocab_of(const gpt2_t *self) {
    json_t *vocab = json_object();
    for (int32_t i = 0; i < self->base.vocab_size; i++)
        json_object_set_new(vocab, self->token[i] ? self->token[i] : TR_END_OF_TEXT,
                            json_integer(i));
    return vocab;
}

static tr_status_t write(const tr_tokenizer_t *tokenizer, json_t *out) {
    const gpt2_t *self = (const gpt2_t *)tokenizer;
    json_t *merges = json_array();
    for (int32_t i = 0; i < self->merge_count; i++)
        json_array_append_new(merges, json_sprintf("%s %s", self->token[self->merge[i].left],
                                                   self->token[self->merge[i].right]));
    json_object_set_new(out, "vocab", vocab_of(self));
    json_object_set_new(out, "merges", merges);
    return TR_OK;
}

static tr_status_t dump_vocab(const gpt2_t *self, tr_str_t *out) {
    json_t *vocab = vocab_of(self);
    char *text = json_dumps(vocab, JSON_ENSURE_ASCII);
    json_decref(vocab);
    if (!text) return TR_FAIL(TR_ERR_MEMORY, "Not enough memory to write the vocabulary as JSON.");
    tr_str_append(out, text);
    free(text);
    return out->status;
}

static tr_status_t file(const tr_tokenizer_t *tokenizer, int index, const char **out_name,
                        tr_str_t *out) {
    static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer_config.json"};
    const gpt2_t *self = (const gpt2_t *)tokenizer;
    *out_name = index < (int)(sizeof names / sizeof *names) ? names[index] : NULL;
    if (index == 0) return dump_vocab(self, out);
    if (index == 1) {
        tr_str_append(out, "#version: 0.2\n");
        for (int32_t i = 0; i < self->merge_count; i++)
            tr_str_printf(out, "%s %s\n", self->token[self->merge[i].left],
                          self->token[self->merge[i].right]);
    } else if (index == 2) {
        tr_str_append(out,
                      "{\"tokenizer_class\": \"GPT2Tokenizer\", \"bos_token\": \"" TR_END_OF_TEXT
                      "\", \"eos_token\": \"" TR_END_OF_TEXT "\", \"unk_token\": \"" TR_END_OF_TEXT
                      "\"}\n");
    }
    return out->status;
}

static tr_status_t read(const json_t *object, const char *from, tr_tokenizer_t **out) {
    json_t *merges = json_object_get(object, "merges");
    if (!json_is_array(merges))
        return TR_FAIL(TR_ERR_DATA, "%s: the tokenizer has no list 'merges'.", from);
    return make(json_object_get(object, "vocab"), from, merges, from, out);
}

/* -- encoding and decoding --------------------------------------------------------------------- */

static tr_status_t encode(const tr_tokenizer_t *tokenizer, void *state, const char *text,
                          size_t bytes, bool whole, tr_ids_t *out, size_t *out_used) {
    const gpt2_t *self = (const gpt2_t *)tokenizer;
    for (*out_used = 0; *out_used < bytes;) {
        const char *at = text + *out_used;
        const size_t rest = bytes - *out_used, piece = tr_gpt2_piece(at, rest, TR_TOKENIZER_PIECE);
        if (!whole && piece + GPT2_AHEAD > rest) break;
        TR_TRY(tr_bpe_encode(&self->merges, self->byte_id, state, at, piece, out));
        *out_used += piece;
    }
    return TR_OK;
}

static void decode(const tr_tokenizer_t *tokenizer, int32_t id, tr_str_t *out) {
    const gpt2_t *self = (const gpt2_t *)tokenizer;
    uint32_t code = 0;
    for (const char *at = self->token[id]; *at; at += tr_utf8_decode(at, &code)) {
        tr_utf8_decode(at, &code);
        tr_str_append_bytes(out, &(char){(char)self->byte_of[code]}, 1);
    }
}

const tr_tokenizer_ops_t tr_tokenizer_gpt2_ops = {
    .name = "gpt2",
    .usage = "gpt2:DIR",
    .help = "GPT-2's byte-pair encoding, with the files vocab.json and merges.txt of DIR",
    .has_argument = true,
    .create = create,
    .destroy = destroy,
    .write = write,
    .read = read,
    .file = file,
    .state_create = tr_bpe_work_create,
    .state_destroy = tr_bpe_work_destroy,
    .encode = encode,
    .decode = decode,
};
