/*
 * The text of tokens that come one by one. Bytes are shown when later tokens cannot change them: an
 * incomplete UTF-8 character and the beginning of a stop string are held back. What is shown in
 * parts is therefore what is shown at once. Not collective.
 */
#ifndef TR_SERVE_DETOKENIZER_H
#define TR_SERVE_DETOKENIZER_H

#include "text/tokenizer.h"

typedef struct {
    const tr_tokenizer_t *tokenizer;
    /* The text ends before the one of these that is complete first; UTF-8, not empty. Borrowed. */
    const char *const *stops;
    size_t stop_count;

    tr_str_t text;         /* what may be shown: UTF-8 */
    size_t shown_tokens;   /* those whose bytes are in it */
    bool is_stopped;       /* by a stop string: no token may follow */
    tr_str_t bytes;        /* of all tokens, up to the stop string */
    TR_VEC(size_t) starts; /* of each token in `bytes` */
    size_t settled;        /* bytes that are in `text` */
} tr_detokenizer_t;

/* An id outside of the tokenizer's vocabulary is a character U+FFFD. TR_ERR_MEMORY. */
tr_status_t tr_detokenizer_add(tr_detokenizer_t *d, int32_t token);
/* No token follows: shows what was held back. Not after an error. */
tr_status_t tr_detokenizer_finish(tr_detokenizer_t *d);
void tr_detokenizer_free(tr_detokenizer_t *d);

#endif
