/*
 * Writes a token file. It has the groups train and valid, each with
 *   tokens     (N) u16, or u32 if the vocabulary has more than 65,536 ids
 *   documents  (D) i64: start of each document
 * and the attributes vocab_size, end_of_text and, if known, tokenizer (JSON).
 *
 * The number of tokens is known only at the end, so they are first written to an unnamed temporary
 * file in the folder of the result.
 */
#ifndef TR_DATATOOLS_TOKEN_FILE_H
#define TR_DATATOOLS_TOKEN_FILE_H

#include "datatools.h"
#include "text/tokenizer.h"

static inline tr_dtype_t tr_token_type(int32_t vocab_size) {
    return vocab_size <= 65536 ? TR_U16 : TR_U32;
}

typedef struct tr_token_file tr_token_file_t;
tr_status_t tr_token_file_create(const char *path, tr_dtype_t dtype, tr_token_file_t **out);
void tr_token_file_destroy(tr_token_file_t **file);
/* Starts a new document. */
tr_status_t tr_token_file_document(tr_token_file_t *file);
/* Appends ids, which must fit the type. */
tr_status_t tr_token_file_add(tr_token_file_t *file, const int32_t *ids, size_t count);
int64_t tr_token_file_count(const tr_token_file_t *file);

typedef struct {
    int32_t vocab_size, end;         /* end -1: unknown */
    const tr_tokenizer_t *tokenizer; /* NULL: unknown */
} tr_token_vocab_t;
/* Writes the final file. The last params->valid_fraction of the tokens form the group valid. */
tr_status_t tr_token_file_write(tr_token_file_t *file, const tr_token_vocab_t *vocab,
                                const tr_import_params_t *params);

#endif
