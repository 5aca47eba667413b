/* gpt2:DIR: GPT-2's byte-level byte-pair encoding, with the vocabulary, merges and added tokens of
 * the files in DIR (gpt2_folder.h). In the vocabulary, a byte is written as a printable character:
 * itself if it is one, otherwise one from U+0100. */
#include "bpe.h"
#include "gpt2_folder.h"
#include "gpt2_split.h"
#include <stdlib.h>
#include <string.h>

#define BYTES   256
#define MOST_ID ((1 << 24) - 1)

typedef struct {
    int32_t left, right;
} merge_t;

typedef struct {
    tr_tokenizer_t base;
    char **token;   /* [vocab_size]: as in the vocabulary; NULL: the end of a text, or no token */
    int32_t listed; /* the ids below it are in the vocabulary, the others were added */
    json_t *added;  /* a list of objects with id and content; without the end of a text */
    int32_t byte_id[BYTES];
    uint32_t char_of[BYTES];    /* the character that stands for a byte */
    int16_t byte_of[2 * BYTES]; /* the byte of a character; -1: none */
    bpe_merges_t merges;
    merge_t *merge; /* [merge_count], in the order of their ranks */
    int32_t merge_count;
} gpt2_t;

static void gpt2_destroy(tr_tokenizer_t *tokenizer) {
    gpt2_t *self = (gpt2_t *)tokenizer;
    for (int32_t i = 0; self->token && i < self->base.vocab_size; i++) tr_free(&self->token[i]);
    tr_free(&self->token);
    tr_free(&self->merge);
    tr_bpe_merges_free(&self->merges);
    tr_vec_free(&self->base.added);
    json_decref(self->added);
    tr_free(&self);
}

static void gpt2_set_characters(gpt2_t *self) {
    uint32_t next = BYTES;
    memset(self->byte_of, -1, sizeof self->byte_of);
    for (uint32_t byte = 0; byte < BYTES; byte++) {
        const bool printable = (byte > 0x20 && byte < 0x7F) || (byte > 0xA0 && byte != 0xAD);
        self->char_of[byte] = printable ? byte : next++;
        self->byte_of[self->char_of[byte]] = (int16_t)byte;
    }
}

/* -- the vocabulary ---------------------------------------------------------------------------- */

static tr_status_t gpt2_add_token(gpt2_t *self, const char *text, const json_t *id,
                                  const char *from) {
    const json_int_t at = json_is_integer(id) ? json_integer_value(id) : -1;
    if (at < 0 || at >= self->listed || self->token[at])
        return TR_FAIL(TR_ERR_DATA,
                       "%s: the token '%s' has the id %lld; expected ids from 0 to %d, each once.",
                       from, text, (long long)at, (int)self->listed - 1);
    const bool is_end = strcmp(text, TR_END_OF_TEXT) == 0;
    if (is_end) self->base.end = (int32_t)at;
    uint32_t code;
    for (int i = 0, bytes; text[i] && !is_end; i += bytes) {
        bytes = tr_utf8_decode(text + i, &code);
        if (bytes == 0 || code >= 2 * BYTES || self->byte_of[code] < 0)
            return TR_FAIL(TR_ERR_DATA,
                           "%s: the token '%s' (%lld) has a character that represents no byte.",
                           from, text, (long long)at);
    }
    return tr_strdup(text, &self->token[at]);
}

static tr_status_t gpt2_read_bytes(gpt2_t *self, const json_t *vocab, const char *from) {
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

/* An added token has its text as it is. It may be in the vocabulary, too. */
static tr_status_t gpt2_add_added(gpt2_t *self, json_t *object, const char *from) {
    const char *content = json_string_value(json_object_get(object, "content"));
    const json_t *id = json_object_get(object, "id");
    const json_int_t at = json_is_integer(id) ? json_integer_value(id) : -1;
    tr_str_t text = {0};
    for (const char *c = content; c && *c; c++) {
        char coded[8] = "";
        tr_utf8_encode(self->char_of[(unsigned char)*c], coded);
        tr_str_append(&text, coded);
    }
    TR_TRY(text.status);
    tr_status_t status = TR_OK;
    if (!text.text || at < 0 || at > MOST_ID ||
        (self->token[at] && strcmp(self->token[at], text.text) != 0)) {
        status = TR_FAIL(TR_ERR_DATA,
                         "%s: the added token '%s' has the id %lld; expected a text that is not "
                         "empty, and an id from 0 to %d that no other token has.",
                         from, content ? content : "", (long long)at, MOST_ID);
    } else if (strcmp(content, TR_END_OF_TEXT) == 0) {
        self->base.end = (int32_t)at;
    } else {
        const tr_added_token_t added = {content, (int32_t)at};
        status = tr_vec_push(&self->base.added, added);
        json_array_append(self->added, object);
    }
    if (status == TR_OK && !self->token[at]) status = tr_str_take(&text, &self->token[at]);
    if (status == TR_OK && at >= self->base.vocab_size) self->base.vocab_size = (int32_t)at + 1;
    tr_str_free(&text);
    return status;
}

/* An end of a text that neither has is the id after all others. */
static tr_status_t gpt2_read_vocab(gpt2_t *self, const tr_gpt2_folder_t *files) {
    json_t *vocab = files->vocab, *added = files->added;
    const char *from = files->vocab_from;
    const char *text;
    json_t *id;
    if (!json_is_object(vocab))
        return TR_FAIL(TR_ERR_DATA, "%s: expected an object that maps tokens to ids.", from);
    self->listed = self->base.vocab_size = (int32_t)json_object_size(vocab);
    self->base.end = -1;
    json_int_t most = self->listed;
    for (size_t i = 0; i < json_array_size(added); i++) {
        const json_int_t at = json_integer_value(json_object_get(json_array_get(added, i), "id"));
        if (at > most && at <= MOST_ID) most = at;
    }
    TR_TRY(tr_alloc(((size_t)most + 2) * sizeof *self->token, "tokens", &self->token));
    json_object_foreach(vocab, text, id) TR_TRY(gpt2_add_token(self, text, id, from));
    TR_TRY(gpt2_read_bytes(self, vocab, from));
    self->added = json_array();
    for (size_t i = 0; i < json_array_size(added); i++)
        TR_TRY(gpt2_add_added(self, json_array_get(added, i), files->added_from));
    if (self->base.end < 0) self->base.end = self->base.vocab_size++;
    return TR_OK;
}

/* -- the merges -------------------------------------------------------------------------------- */

/* "left right". Both and their concatenation are tokens. */
static tr_status_t gpt2_add_merge(gpt2_t *self, const json_t *vocab, const char *line,
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

static tr_status_t gpt2_make(const tr_gpt2_folder_t *files, tr_tokenizer_t **out) {
    const size_t count = json_array_size(files->merges);
    gpt2_t *self = NULL;
    tr_status_t status = TR_OK;
    *out = NULL;
    TR_TRY(tr_alloc(sizeof *self, "tokenizer", &self));
    gpt2_set_characters(self);
    TR_TRY_GOTO(gpt2_read_vocab(self, files), fail);
    TR_TRY_GOTO(tr_alloc(count * sizeof *self->merge, "merges", &self->merge), fail);
    TR_TRY_GOTO(tr_bpe_merges_create(count, &self->merges), fail);
    for (size_t i = 0; i < count; i++) {
        const char *line = json_string_value(json_array_get(files->merges, i));
        TR_TRY_GOTO(gpt2_add_merge(self, files->vocab, line ? line : "", files->merges_from), fail);
    }
    *out = &self->base;
    return TR_OK;
fail:
    gpt2_destroy(&self->base);
    return status;
}

static tr_status_t gpt2_create(const char *folder, tr_tokenizer_t **out) {
    tr_gpt2_folder_t files = {0};
    tr_status_t status = tr_gpt2_folder_read(folder, &files);
    if (status == TR_OK) status = gpt2_make(&files, out);
    tr_gpt2_folder_free(&files);
    return status;
}

/* -- JSON -------------------------------------------------------------------------------------- */

/* The end of a text always gets a name in files, because readers need its id. */
static json_t *gpt2_vocab_of(const gpt2_t *self) {
    json_t *vocab = json_object();
    for (int32_t i = 0; i < self->listed; i++)
        json_object_set_new(vocab, self->token[i], json_integer(i));
    if (self->base.end == self->listed)
        json_object_set_new(vocab, TR_END_OF_TEXT, json_integer(self->base.end));
    return vocab;
}

/* Of the ids that are not in that vocabulary, and others. */
static json_t *gpt2_added_of(const gpt2_t *self) {
    json_t *added = json_copy(self->added);
    if (self->base.end > self->listed)
        json_array_append_new(added, json_pack("{s:i, s:s, s:b}", "id", (int)self->base.end,
                                               "content", TR_END_OF_TEXT, "special", 1));
    return added;
}

static tr_status_t gpt2_write(const tr_tokenizer_t *tokenizer, json_t *out) {
    const gpt2_t *self = (const gpt2_t *)tokenizer;
    json_t *merges = json_array(), *added = gpt2_added_of(self);
    for (int32_t i = 0; i < self->merge_count; i++)
        json_array_append_new(merges, json_sprintf("%s %s", self->token[self->merge[i].left],
                                                   self->token[self->merge[i].right]));
    json_object_set_new(out, "vocab", gpt2_vocab_of(self));
    json_object_set_new(out, "merges", merges);
    if (json_array_size(added) > 0) json_object_set(out, TR_TOKENIZER_ADDED, added);
    json_decref(added);
    return TR_OK;
}

/* Steals `object`. */
static tr_status_t gpt2_dump(json_t *object, tr_str_t *out) {
    char *text = json_dumps(object, JSON_ENSURE_ASCII);
    json_decref(object);
    if (!text) return TR_FAIL(TR_ERR_MEMORY, "Not enough memory to write a tokenizer as JSON.");
    tr_str_append(out, text);
    free(text);
    return out->status;
}

static json_t *gpt2_settings_of(const gpt2_t *self) {
    const tr_ids_t *ends = &self->base.ends;
    json_t *added = gpt2_added_of(self), *by_id = json_object(), *object;
    tr_str_t end = {0};
    size_t i;
    json_array_foreach(added, i, object) {
        json_t *kept = json_copy(object);
        char id[16];
        tr_snprintf(id, sizeof id, "%lld",
                    (long long)json_integer_value(json_object_get(object, "id")));
        json_object_del(kept, "id");
        json_object_set_new(by_id, id, kept);
    }
    json_decref(added);
    if (ends->count > 0) (void)tr_tokenizer_decode(&self->base, ends->data, 1, &end);
    json_t *settings = json_pack("{s:s, s:s, s:s, s:s}", "tokenizer_class", "GPT2Tokenizer",
                                 "bos_token", TR_END_OF_TEXT, "eos_token",
                                 end.length > 0 && tr_utf8_bytes(end.text, end.length) == end.length
                                     ? end.text
                                     : TR_END_OF_TEXT,
                                 "unk_token", TR_END_OF_TEXT);
    if (json_object_size(by_id) > 0) json_object_set(settings, "added_tokens_decoder", by_id);
    json_decref(by_id);
    tr_str_free(&end);
    return settings;
}

static tr_status_t gpt2_file(const tr_tokenizer_t *tokenizer, int index, const char **out_name,
                             tr_str_t *out) {
    static const char *const names[] = {"vocab.json", "merges.txt", "tokenizer_config.json"};
    const gpt2_t *self = (const gpt2_t *)tokenizer;
    *out_name = index < (int)(sizeof names / sizeof *names) ? names[index] : NULL;
    if (index == 0) return gpt2_dump(gpt2_vocab_of(self), out);
    if (index == 2) return gpt2_dump(gpt2_settings_of(self), out);
    if (index == 1) {
        tr_str_append(out, "#version: 0.2\n");
        for (int32_t i = 0; i < self->merge_count; i++)
            tr_str_printf(out, "%s %s\n", self->token[self->merge[i].left],
                          self->token[self->merge[i].right]);
    }
    return out->status;
}

static tr_status_t gpt2_read(const json_t *object, const char *from, tr_tokenizer_t **out) {
    const tr_gpt2_folder_t files = {.vocab = json_object_get(object, "vocab"),
                                    .merges = json_object_get(object, "merges"),
                                    .added = json_object_get(object, TR_TOKENIZER_ADDED),
                                    .vocab_from = from,
                                    .added_from = from,
                                    .merges_from = from};
    if (!json_is_array(files.merges))
        return TR_FAIL(TR_ERR_DATA, "%s: the tokenizer has no list 'merges'.", from);
    return gpt2_make(&files, out);
}

/* -- encoding and decoding --------------------------------------------------------------------- */

static tr_status_t gpt2_encode(const tr_tokenizer_t *tokenizer, void *state, const char *text,
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

static bool gpt2_has(const tr_tokenizer_t *tokenizer, int32_t id) {
    return id == tokenizer->end || ((const gpt2_t *)tokenizer)->token[id] != NULL;
}

static void gpt2_decode(const tr_tokenizer_t *tokenizer, int32_t id, tr_str_t *out) {
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
    .help = "GPT-2's byte-pair encoding, with the files vocab.json and merges.txt of DIR, or its "
            "tokenizer.json",
    .has_argument = true,
    .create = gpt2_create,
    .destroy = gpt2_destroy,
    .write = gpt2_write,
    .read = gpt2_read,
    .file = gpt2_file,
    .state_create = tr_bpe_work_create,
    .state_destroy = tr_bpe_work_destroy,
    .encode = gpt2_encode,
    .has = gpt2_has,
    .decode = gpt2_decode,
};
