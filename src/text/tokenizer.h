/*
 * Tokenizers: text to the ids of tokens, and back. decode(encode(bytes)) gives the same bytes, also
 * where they are no UTF-8.
 *
 * Ids are 0 .. vocab_size - 1. One of them, `end`, stands for the end of a text; its own text is
 * TR_END_OF_TEXT. Threads may share a tokenizer; an encoder belongs to one thread. Nothing here is
 * collective.
 */
#ifndef TOKENIZER_H
#define TOKENIZER_H

#include "trainer/mem.h"
#include "trainer/str.h"

#define TR_END_OF_TEXT "<|endoftext|>"

typedef TR_VEC(int32_t) tr_ids_t; /* {0} is an empty list; tr_vec_free */

typedef struct tr_tokenizer {
    const struct tr_tokenizer_ops *ops;
    int32_t vocab_size, end;
    /* The vocabulary comes from the text. Until tr_tokenizer_learned, encoding collects it and
     * gives no ids. */
    bool is_learning;
} tr_tokenizer_t;

/* `spec` is a kind, with its argument after a ':' where it has one: "bytes", "chars", "gpt2:DIR".
 * TR_ERR_USAGE: there is no such kind. TR_ERR_NOINPUT, TR_ERR_DATA: a file of DIR is missing or
 * bad. */
tr_status_t tr_tokenizer_create(const char *spec, tr_tokenizer_t **out);
void tr_tokenizer_destroy(tr_tokenizer_t **tokenizer);
tr_status_t tr_tokenizer_learned(tr_tokenizer_t *tokenizer);
const char *tr_tokenizer_name(const tr_tokenizer_t *tokenizer); /* "bytes", "chars", "gpt2" */

/* The whole tokenizer as a JSON object, and from it. `*out_text`: tr_free. TR_ERR_DATA: the text is
 * no tokenizer; `from` says where it is, for messages. */
tr_status_t tr_tokenizer_to_json(const tr_tokenizer_t *tokenizer, char **out_text);
tr_status_t tr_tokenizer_from_json(const char *text, const char *from, tr_tokenizer_t **out);

/* The files in which the library transformers looks for this tokenizer, by index from 0: gpt2 has
 * vocab.json, merges.txt and tokenizer_config.json, of which the first two make it again
 * (gpt2:DIR). `*out_name` is NULL after the last, and for kinds that transformers does not know.
 * `*out_text`: tr_free. */
tr_status_t tr_tokenizer_file(const tr_tokenizer_t *tokenizer, int index, const char **out_name,
                              char **out_text);

/* Appends the ids of the whole of `text`. TR_END_OF_TEXT in it becomes the id `end`.
 * chars: TR_ERR_DATA where a character is not in the vocabulary. */
tr_status_t tr_tokenizer_encode(const tr_tokenizer_t *tokenizer, const char *text, size_t bytes,
                                tr_ids_t *out);
/* Appends the bytes that the ids stand for; a character's bytes may be in several tokens.
 * TR_ERR_DATA where an id is not of the vocabulary. */
tr_status_t tr_tokenizer_decode(const tr_tokenizer_t *tokenizer, const int32_t *ids, size_t count,
                                tr_str_t *out);

/* Encoding of a text that comes in pieces, in memory that does not grow with it. gpt2: a word, a
 * number or a run of signs or spaces of more than 1 MiB is cut there. */
typedef struct tr_encoder tr_encoder_t;
/* The tokenizer is borrowed. */
tr_status_t tr_encoder_create(const tr_tokenizer_t *tokenizer, tr_encoder_t **out);
void tr_encoder_destroy(tr_encoder_t **encoder);
/* Appends the ids of what is certain so far. TR_END_OF_TEXT, also in two pieces, becomes `end`. */
tr_status_t tr_encoder_add(tr_encoder_t *encoder, const char *text, size_t bytes, tr_ids_t *out);
/* Appends the rest; the encoder is ready for the next text. Does not append the id `end`. */
tr_status_t tr_encoder_finish(tr_encoder_t *encoder, tr_ids_t *out);

#endif
