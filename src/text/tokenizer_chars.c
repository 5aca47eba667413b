/* chars: a token is a character of the text that it learned from, ordered by code point; the last
 * id is the end of a text. It learns only from valid UTF-8. In a stored tokenizer, the code
 * LONE_BYTE + byte stands for a byte that is not valid UTF-8. */
#include "tokenizer_int.h"
#include <string.h>

#define LONE_BYTE 0x110000
#define CODES     (LONE_BYTE + 256)
#define UTF8_MOST 4

typedef struct {
    tr_tokenizer_t base;
    int32_t *id_of; /* [CODES]: the token of a code, -1: none; while learning, 0: seen */
    int32_t *code;  /* [vocab_size - 1]: of a token */
} chars_t;

static void chars_destroy(tr_tokenizer_t *tokenizer) {
    chars_t *self = (chars_t *)tokenizer;
    tr_free(&self->id_of);
    tr_free(&self->code);
    tr_free(&self);
}

static tr_status_t chars_create(const char *argument, tr_tokenizer_t **out) {
    chars_t *self = NULL;
    TR_TRY(tr_alloc(sizeof *self, "tokenizer", &self));
    *out = &self->base;
    self->base.is_learning = true;
    tr_status_t status = tr_alloc(CODES * sizeof *self->id_of, "characters", &self->id_of);
    if (status == TR_OK)
        memset(self->id_of, -1, CODES * sizeof *self->id_of);
    else
        chars_destroy(&self->base), *out = NULL;
    return status;
}

static tr_status_t chars_learned(tr_tokenizer_t *tokenizer) {
    chars_t *self = (chars_t *)tokenizer;
    int32_t count = 0;
    for (int32_t code = 0; code < CODES; code++)
        if (self->id_of[code] >= 0) self->id_of[code] = count++;
    TR_TRY(tr_alloc((size_t)count * sizeof *self->code, "characters", &self->code));
    for (int32_t code = 0; code < CODES; code++)
        if (self->id_of[code] >= 0) self->code[self->id_of[code]] = code;
    self->base.end = count;
    self->base.vocab_size = count + 1;
    self->base.is_learning = false;
    return TR_OK;
}

static tr_status_t chars_write(const tr_tokenizer_t *tokenizer, json_t *out) {
    const chars_t *self = (const chars_t *)tokenizer;
    json_t *codes = json_array();
    for (int32_t i = 0; i < self->base.end; i++)
        json_array_append_new(codes, json_integer(self->code[i]));
    json_object_set_new(out, "characters", codes);
    return TR_OK;
}

static tr_status_t chars_read(const json_t *object, const char *from, tr_tokenizer_t **out) {
    const json_t *codes = json_object_get(object, "characters"), *code;
    size_t i;
    TR_TRY(chars_create("", out));
    int32_t *id_of = ((chars_t *)*out)->id_of;
    json_int_t before = -1;
    bool good = json_is_array(codes);
    json_array_foreach(codes, i, code) {
        const json_int_t value = json_is_integer(code) ? json_integer_value(code) : -1;
        good = good && value > before && value < CODES;
        if (!good) break;
        id_of[before = value] = 0;
    }
    tr_status_t status =
        good ? chars_learned(*out)
             : TR_FAIL(
                   TR_ERR_DATA,
                   "%s: expected code points in ascending order in the member 'characters' of the "
                   "tokenizer.",
                   from);
    if (status != TR_OK) chars_destroy(*out), *out = NULL;
    return status;
}

static tr_status_t chars_fail_unknown(const char *text, int bytes, uint32_t code) {
    if (code >= LONE_BYTE)
        return TR_FAIL(TR_ERR_DATA,
                       "the byte 0x%02X, which is not valid UTF-8, is not in the character "
                       "vocabulary of this model.",
                       (unsigned)(code - LONE_BYTE));
    return TR_FAIL(
        TR_ERR_DATA,
        "the character '%.*s' (U+%04X) is not in the character vocabulary of this model, which "
        "only has the characters of its training data.",
        bytes, text, (unsigned)code);
}

static tr_status_t chars_encode(const tr_tokenizer_t *tokenizer, void *state, const char *text,
                                size_t bytes, bool whole, tr_ids_t *out, size_t *out_used) {
    const chars_t *self = (const chars_t *)tokenizer;
    size_t at = 0;
    TR_TRY(tr_ids_reserve(out, bytes));
    while (at < bytes && (whole || at + UTF8_MOST <= bytes)) {
        uint32_t code = (unsigned char)text[at];
        int length = code > 0 && code < 0x80 ? 1 : tr_utf8_decode(text + at, &code);
        if (length == 0 && code > 0 && self->base.is_learning)
            return TR_FAIL(TR_ERR_DATA,
                           "chars requires UTF-8 text, found the byte 0x%02X, which is not valid "
                           "UTF-8: convert the text, or use the tokenizer bytes",
                           (unsigned)code);
        if (length == 0) {
            if (code) code += LONE_BYTE; /* U+0000 is a character, too */
            length = 1;
        }
        if (self->base.is_learning)
            self->id_of[code] = 0;
        else if (self->id_of[code] < 0)
            return chars_fail_unknown(text + at, length, code);
        else
            out->data[out->count++] = self->id_of[code];
        at += (size_t)length;
    }
    *out_used = at;
    return TR_OK;
}

static void chars_decode(const tr_tokenizer_t *tokenizer, int32_t id, tr_str_t *out) {
    const chars_t *self = (const chars_t *)tokenizer;
    const uint32_t code = (uint32_t)self->code[id];
    char text[UTF8_MOST];
    if (code >= LONE_BYTE)
        tr_str_append_bytes(out, &(char){(char)(code - LONE_BYTE)}, 1);
    else
        tr_str_append_bytes(out, text, (size_t)tr_utf8_encode(code, text));
}

const tr_tokenizer_ops_t tr_tokenizer_chars_ops = {
    .name = "chars",
    .usage = "chars",
    .help = "a token is a character of the training data",
    .create = chars_create,
    .destroy = chars_destroy,
    .learned = chars_learned,
    .write = chars_write,
    .read = chars_read,
    .encode = chars_encode,
    .decode = chars_decode};
