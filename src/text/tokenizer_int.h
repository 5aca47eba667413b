/* The interface of a kind of tokenizer. */
#ifndef TR_TEXT_TOKENIZER_INT_H
#define TR_TEXT_TOKENIZER_INT_H

#include "tokenizer.h"
#include <jansson.h>

typedef struct tr_tokenizer_ops {
    const char *name, *usage, *help;
    bool has_argument; /* create gets the text after the ':' */
    tr_status_t (*create)(const char *argument, tr_tokenizer_t **out);
    void (*destroy)(tr_tokenizer_t *tokenizer);
    tr_status_t (*learned)(tr_tokenizer_t *tokenizer); /* NULL: never learns */
    /* To and from the members of a JSON object. `from`: its source, for messages. */
    tr_status_t (*write)(const tr_tokenizer_t *tokenizer, json_t *out);
    tr_status_t (*read)(const json_t *object, const char *from, tr_tokenizer_t **out);
    /* As tr_tokenizer_file; NULL: no files. */
    tr_status_t (*file)(const tr_tokenizer_t *tokenizer, int index, const char **out_name,
                        tr_str_t *out_text);
    /* Private state of an encoder; NULL: none. */
    tr_status_t (*state_create)(void **out);
    void (*state_destroy)(void *state);
    /* Appends the ids of text[0 .. bytes); text[bytes] is 0. *out_used: the number of encoded
     * bytes, all of them if the text is `whole`, otherwise those that further text cannot change.
     * It is positive for texts of at least TR_TOKENIZER_PIECE bytes. */
    tr_status_t (*encode)(const tr_tokenizer_t *tokenizer, void *state, const char *text,
                          size_t bytes, bool whole, tr_ids_t *out, size_t *out_used);
    /* Whether an id from 0 to vocab_size - 1 is a token; NULL: all are. */
    bool (*has)(const tr_tokenizer_t *tokenizer, int32_t id);
    /* Appends the text of a token; the id is in the vocabulary and not `end`. */
    void (*decode)(const tr_tokenizer_t *tokenizer, int32_t id, tr_str_t *out);
} tr_tokenizer_ops_t;

#define TR_TOKENIZER_PIECE (1 << 20)
/* The member of a stored tokenizer with its added tokens, a list of objects as in a tokenizer.json:
 * id, content, special, ... */
#define TR_TOKENIZER_ADDED "added_tokens"

/* Makes room for `more` ids. */
tr_status_t tr_ids_reserve(tr_ids_t *ids, size_t more);

#endif
