/* Streaming encoding: keeps text that is not final yet, and finds the ends of texts. */
#include "tokenizer_int.h"
#include <stdlib.h>
#include <string.h>

#define ROOM                                                                                       \
    (TR_TOKENIZER_PIECE + (64 << 10)) /* at most TR_TOKENIZER_PIECE of them wait for more text */

struct tr_encoder {
    const tr_tokenizer_t *tokenizer;
    void *state;
    char *text; /* [ROOM + 1]: text not yet encoded */
    size_t bytes;
    /* The texts that are one token, in the order of their bytes: TR_END_OF_TEXT and the added ones. */
    tr_added_token_t *special;
    size_t specials, longest; /* longest: bytes of the longest one */
    bool begins[256];         /* the bytes that begin one */
};

tr_status_t tr_ids_reserve(tr_ids_t *ids, size_t more) {
    return tr_vec_reserve_(&ids->data, &ids->capacity, ids->count + more, sizeof *ids->data);
}

static int encoder_special_order(const void *a, const void *b) {
    return strcmp(((const tr_added_token_t *)a)->text, ((const tr_added_token_t *)b)->text);
}

static tr_status_t encoder_sort_specials(tr_encoder_t *e) {
    const tr_tokenizer_t *tokenizer = e->tokenizer;
    e->specials = 1 + tokenizer->added.count;
    TR_TRY(tr_alloc(e->specials * sizeof *e->special, "added tokens", &e->special));
    e->special[0] = (tr_added_token_t){TR_END_OF_TEXT, tokenizer->end};
    for (size_t i = 1; i < e->specials; i++) e->special[i] = tokenizer->added.data[i - 1];
    qsort(e->special, e->specials, sizeof *e->special, encoder_special_order);
    for (size_t i = 0; i < e->specials; i++) {
        const size_t bytes = strlen(e->special[i].text);
        e->begins[(unsigned char)e->special[i].text[0]] = true;
        if (bytes > e->longest) e->longest = bytes;
    }
    return TR_OK;
}

tr_status_t tr_encoder_create(const tr_tokenizer_t *tokenizer, tr_encoder_t **out) {
    tr_encoder_t *e = NULL;
    TR_TRY(tr_alloc(sizeof *e, "encoder", &e));
    e->tokenizer = tokenizer;
    tr_status_t status = encoder_sort_specials(e);
    if (status == TR_OK) status = tr_alloc(ROOM + 1, "text to encode", &e->text);
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
    tr_free(&e->special);
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

/* The first of the special texts first .. end that has at least the byte c at `at`. They agree in the
 * bytes before it. */
static size_t encoder_seek(const tr_encoder_t *e, size_t first, size_t end, size_t at, int c) {
    while (first < end) {
        const size_t middle = first + (end - first) / 2;
        if ((unsigned char)e->special[middle].text[at] < c)
            first = middle + 1;
        else
            end = middle;
    }
    return first;
}

/* The number of first bytes of text[0 .. bytes) with which a special text begins. *out: the longest
 * special text that is all there; unchanged if there is none. */
static size_t encoder_match(const tr_encoder_t *e, const char *text, size_t bytes,
                            const tr_added_token_t **out) {
    size_t first = 0, end = e->specials;
    for (size_t at = 0; at < bytes; at++) {
        const unsigned char c = (unsigned char)text[at];
        first = encoder_seek(e, first, end, at, c);
        end = encoder_seek(e, first, end, at, c + 1);
        if (c == '\0' || first == end) return at;
        if (e->special[first].text[at + 1] == '\0') *out = &e->special[first];
    }
    return bytes;
}

/* The first of them from `at` on, and of several there the longest. NULL: there is none. */
static const char *encoder_find_special(const tr_encoder_t *e, size_t at,
                                        const tr_added_token_t **out) {
    *out = NULL;
    for (const char *found = e->text + at, *end = e->text + e->bytes; found < end; found++) {
        if (!e->begins[(unsigned char)*found]) continue;
        encoder_match(e, found, (size_t)(end - found), out);
        if (*out) return found;
    }
    return NULL;
}

/* Encodes the texts between such tokens, and the final part of the last one, or all of it if it is
 * `whole`. */
static tr_status_t encoder_encode_held(tr_encoder_t *e, bool whole, tr_ids_t *out) {
    size_t at = 0, used = 0;
    const tr_added_token_t *token;
    for (const char *found; (found = encoder_find_special(e, at, &token));) {
        const size_t bytes = (size_t)(found - e->text) - at;
        TR_TRY(encoder_encode(e, at, bytes, true, out, &used));
        if (!e->tokenizer->is_learning) TR_TRY(tr_vec_push(out, token->id));
        at += bytes + strlen(token->text);
    }
    /* the last bytes may be the start of such a token */
    size_t open = whole ? 0 : e->bytes - at;
    if (open >= e->longest) open = e->longest - 1;
    while (open > 0 && encoder_match(e, e->text + e->bytes - open, open, &token) < open) open--;
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
        if (e->bytes == ROOM) TR_TRY(encoder_encode_held(e, false, out));
    }
    return TR_OK;
}

tr_status_t tr_encoder_finish(tr_encoder_t *e, tr_ids_t *out) {
    return encoder_encode_held(e, true, out);
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
