/*
 * Tokenizers: text to token ids and back. decode(encode(bytes)) returns the same bytes, including
 * invalid UTF-8.
 *
 * Ids are 0 .. vocab_size - 1. One of them, `end`, marks the end of a text; its text is
 * TR_END_OF_TEXT. The text of an added token is one token wherever it stands. Threads may share a tokenizer; an encoder belongs to one thread. Not collective.
 */
#ifndef TR_TEXT_TOKENIZER_H
#define TR_TEXT_TOKENIZER_H

#include "base/mem.h"
#include "base/str.h"

#define TR_END_OF_TEXT "<|endoftext|>"

typedef TR_VEC(int32_t) tr_ids_t; /* {0} is an empty list; tr_vec_free */

typedef struct {
    const char *text;
    int32_t id;
} tr_added_token_t;

typedef struct tr_tokenizer {
    const struct tr_tokenizer_ops *ops;
    int32_t vocab_size, end;
    tr_ids_t ends; /* the tokens that end a generated text; none: `end` does */
    TR_VEC(tr_added_token_t) added;
    /* The vocabulary is learned from the text. Until tr_tokenizer_learned is called, encoding
     * collects it and returns no ids. */
    bool is_learning;
} tr_tokenizer_t;

/* `spec` is a kind and, after a ':', its argument if it has one: "bytes", "chars", "gpt2:DIR".
 * TR_ERR_USAGE: unknown kind. TR_ERR_NOINPUT, TR_ERR_DATA: a file in DIR is missing or invalid. */
tr_status_t tr_tokenizer_create(const char *spec, tr_tokenizer_t **out);
void tr_tokenizer_destroy(tr_tokenizer_t **tokenizer);
tr_status_t tr_tokenizer_learned(tr_tokenizer_t *tokenizer);
const char *tr_tokenizer_name(const tr_tokenizer_t *tokenizer); /* "bytes", "chars", "gpt2" */
/* Whether `id` is a token: between those of gpt2 there may be ids without a text. */
bool tr_tokenizer_has(const tr_tokenizer_t *tokenizer, int32_t id);

/* Converts the whole tokenizer to a JSON object and back. `*out_text`: tr_free. `from`: the source
 * of the text, for messages. TR_ERR_DATA: the text is not a tokenizer. */
tr_status_t tr_tokenizer_to_json(const tr_tokenizer_t *tokenizer, char **out_text);
tr_status_t tr_tokenizer_from_json(const char *text, const char *from, tr_tokenizer_t **out);

/* Whether the JSON texts `a` and `b` are of the same tokenizer, which may differ in its added tokens
 * and in what ends a generated text. */
bool tr_tokenizer_is_same(const char *a, const char *b);
/* The tokenizer of the training data, `text`, as JSON. If that of the trained model, `trained`
 * (NULL: unknown), is the same, its added tokens are kept, and what ends its texts: with the end of
 * the texts in the data. */
tr_status_t tr_tokenizer_keep(const char *text, const char *trained, const char *from,
                              char **out_text);

/* The files from which Hugging Face transformers loads this tokenizer, by index from 0. gpt2 has
 * vocab.json, merges.txt and tokenizer_config.json, which gpt2:DIR reads. `*out_name` is
 * NULL after the last file, and for kinds that transformers does not support. `*out_text`: tr_free.
 * */
tr_status_t tr_tokenizer_file(const tr_tokenizer_t *tokenizer, int index, const char **out_name,
                              char **out_text);

/* Appends the ids of `text`. TR_END_OF_TEXT in it becomes the id `end`, and the text of an added
 * token its id. chars: TR_ERR_DATA if a
 * character is not in the vocabulary. */
tr_status_t tr_tokenizer_encode(const tr_tokenizer_t *tokenizer, const char *text, size_t bytes,
                                tr_ids_t *out);
/* Appends the bytes of the ids. A character may be split over several tokens. TR_ERR_DATA if an id
 * is not in the vocabulary. */
tr_status_t tr_tokenizer_decode(const tr_tokenizer_t *tokenizer, const int32_t *ids, size_t count,
                                tr_str_t *out);

/* Streaming encoding of a text, in constant memory. gpt2: a word, a number or a run of other
 * characters or spaces is split after 1 MiB. */
typedef struct tr_encoder tr_encoder_t;
/* The tokenizer is borrowed. */
tr_status_t tr_encoder_create(const tr_tokenizer_t *tokenizer, tr_encoder_t **out);
void tr_encoder_destroy(tr_encoder_t **encoder);
/* Appends the ids that further text cannot change. TR_END_OF_TEXT and the texts of added tokens,
 * even if split over two calls, become one id. */
tr_status_t tr_encoder_add(tr_encoder_t *encoder, const char *text, size_t bytes, tr_ids_t *out);
/* Appends the remaining ids, without `end`. The encoder can then be used for the next text. */
tr_status_t tr_encoder_finish(tr_encoder_t *encoder, tr_ids_t *out);

#endif
