/*
 * Byte-pair encoding (Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with
 * Subword Units", ACL 2016). A piece of text starts as one token per byte. The adjacent pair whose
 * merge has the lowest rank is merged, until no pair has a merge.
 */
#ifndef TR_TEXT_BPE_H
#define TR_TEXT_BPE_H

#include "tokenizer_int.h"

typedef struct {
    int32_t left, right; /* left -1: an empty row */
    int32_t rank, id;    /* rank: position in the list of merges; id: the merged token */
} bpe_pair_t;

/* Hash table of the merges, keyed by pair. */
typedef struct {
    bpe_pair_t *row; /* [mask + 1], open addressing, at most half full */
    size_t mask;
} bpe_merges_t;
tr_status_t tr_bpe_merges_create(size_t count, bpe_merges_t *out);
/* Adds a merge, at most `count` in total. False if the pair already has one. */
bool tr_bpe_merges_add(bpe_merges_t *merges, int32_t left, int32_t right, int32_t rank, int32_t id);
void tr_bpe_merges_free(bpe_merges_t *merges);

/* Memory of one encoding thread: scratch, and a cache of the ids of words. */
typedef struct bpe_work bpe_work_t;
tr_status_t tr_bpe_work_create(void **out);
void tr_bpe_work_destroy(void *work);
/* Appends the ids of the piece text[0 .. bytes). byte_id (256): the tokens of single bytes. */
tr_status_t tr_bpe_encode(const bpe_merges_t *merges, const int32_t *byte_id, bpe_work_t *work,
                          const char *text, size_t bytes, tr_ids_t *out);

#endif
