/* Streaming encoding: keeps text that is not final yet, and finds the ends of texts. */
#include "tokenizer_int.h"
#include <string.h>

#define ROOM                                                                                       \
    (TR_TOKENIZER_PIECE + (64 << 10)) /* at most TR_TOKENIZER_PIECE of them wait for more text */

struct tr_encoder {
    const tr_tokenizer_t *tokenizer;
    void *state;
    char *text; /* [ROOM + 1]: text not yet encoded */
    size_t bytes;
    bool begins[256]; /* the bytes that begin a text that is one token */
};

tr_status_t tr_ids_reserve(tr_ids_t *ids, size_t more) {
    return tr_vec_reserve_(&ids->data, &ids->capacity, ids->count + more, sizeof *ids->data);
}

/* The text that is one token: TR_END_OF_TEXT for 0, then those of the added tokens. */
static tr_added_token_t encoder_special(const tr_encoder_t *e, size_t i) {
    return i > 0 ? e->tokenizer->added.data[i - 1]
                 : (tr_added_token_t){TR_END_OF_TEXT, e->tokenizer->end};
}

tr_status_t tr_encoder_create(const tr_tokenizer_t *tokenizer, tr_encoder_t **out) {
    tr_encoder_t *e = NULL;
    TR_TRY(tr_alloc(sizeof *e, "encoder", &e));
    e->tokenizer = tokenizer;
    for (size_t i = 0; i <= tokenizer->added.count; i++)
        e->begins[(unsigned char)encoder_special(e, i).text[0]] = true;
    tr_status_t status = tr_alloc(ROOM + 1, "text to encode", &e->text);
    if (status == TR_OK && tokenizer->ops->state_create)
        status = tokenizer->ops->state_create(&e->state);
    if (status != TR_OK) tr_encoder_destroy(&e);
    *out = e;
    return status;
}

void tr_encoder_destroy(tr_encoder_t **encoder) {
    tr_encoder_t *e = *encoder;
    *encoder = NULL;
    if (!e) return;
    if (e->state) e->tokenizer->ops->state_destroy(e->state);
    tr_free(&e->text);
    tr_free(&e);
}

/* Encodes `bytes` bytes from `at`, or those that are final; *out_used: their number. */
static tr_status_t encoder_encode(tr_encoder_t *e, size_t at, size_t bytes, bool whole,
                                  tr_ids_t *out, size_t *out_used) {
    char *after = e->text + at + bytes, kept = *after;
    *after = '\0';
    tr_status_t status = e->tokenizer->ops->encode(e->tokenizer, e->state, e->text + at, bytes,
                                                   whole, out, out_used);
    *after = kept;
    return status;
}

/* The first of them from `at` on, and of several there the longest. NULL: there is none. */
static const char *encoder_find_special(const tr_encoder_t *e, size_t at, tr_added_token_t *out) {
    for (const char *found = e->text + at, *end = e->text + e->bytes; found < end; found++) {
        size_t longest = 0;
        if (!e->begins[(unsigned char)*found]) continue;
        for (size_t i = 0; i <= e->tokenizer->added.count; i++) {
            const tr_added_token_t token = encoder_special(e, i);
            if (token.text[0] != found[0]) continue;
            if (token.text[1] && token.text[1] != found[1]) continue; /* most of them */
            const size_t bytes = strlen(token.text);
            if (bytes <= longest || bytes > (size_t)(end - found) ||
                memcmp(found, token.text, bytes) != 0)
                continue;
            longest = bytes;
            *out = token;
        }
        if (longest > 0) return found;
    }
    return NULL;
}

/* The number of last bytes that may be the start of one of them. */
static size_t encoder_begun_special(const tr_encoder_t *e, size_t at) {
    const char *text = e->text + at;
    const size_t bytes = e->bytes - at;
    size_t most = 0;
    for (size_t i = 0; i <= e->tokenizer->added.count; i++) {
        const char *token = encoder_special(e, i).text;
        size_t count = strlen(token) - 1;
        if (count > bytes) count = bytes;
        while (count > most && memcmp(text + bytes - count, token, count) != 0) count--;
        if (count > most) most = count;
    }
    return most;
}

/* Encodes the texts between such tokens, and the final part of the last one, or all of it if it is
 * `whole`. */
static tr_status_t encode_held(tr_encoder_t *e, bool whole, tr_ids_t *out) {
    size_t at = 0, used = 0;
    tr_added_token_t token;
    for (const char *found; (found = encoder_find_special(e, at, &token));) {
        const size_t bytes = (size_t)(found - e->text) - at;
        TR_TRY(encoder_encode(e, at, bytes, true, out, &used));
        if (!e->tokenizer->is_learning) TR_TRY(tr_vec_push(out, token.id));
        at += bytes + strlen(token.text);
    }
    const size_t open = whole ? 0 : encoder_begun_special(e, at);
    TR_TRY(encoder_encode(e, at, e->bytes - at - open, whole, out, &used));
    e->bytes -= at + used;
    memmove(e->text, e->text + at + used, e->bytes);
    return TR_OK;
}

tr_status_t tr_encoder_add(tr_encoder_t *e, const char *text, size_t bytes, tr_ids_t *out) {
    while (bytes > 0) {
        size_t count = ROOM - e->bytes < bytes ? ROOM - e->bytes : bytes;
        memcpy(e->text + e->bytes, text, count);
        e->bytes += count;
        text += count;
        bytes -= count;
        if (e->bytes == ROOM) TR_TRY(encode_held(e, false, out));
    }
    return TR_OK;
}

tr_status_t tr_encoder_finish(tr_encoder_t *e, tr_ids_t *out) {
    return encode_held(e, true, out);
}

tr_status_t tr_tokenizer_encode(const tr_tokenizer_t *tokenizer, const char *text, size_t bytes,
                                tr_ids_t *out) {
    tr_encoder_t *e = NULL;
    TR_TRY(tr_encoder_create(tokenizer, &e));
    tr_status_t status = tr_encoder_add(e, text, bytes, out);
    if (status == TR_OK) status = tr_encoder_finish(e, out);
    tr_encoder_destroy(&e);
    return status;
}
