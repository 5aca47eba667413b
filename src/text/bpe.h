/*
 * Byte-pair encoding: a piece of text begins as one token a byte, and the pair of neighbours whose
 * merge has the lowest rank is merged until there is none (Sennrich, Haddow, Birch, "Neural Machine
 * Translation of Rare Words with Subword Units", ACL 2016).
 */
#ifndef BPE_H
#define BPE_H

#include "tokenizer_int.h"

typedef struct {
    int32_t left, right; /* left -1: an empty row */
    int32_t rank, id;    /* rank: its place in the list of merges; id: of the merged token */
} bpe_pair_t;

/* The merges, by pair. */
typedef struct {
    bpe_pair_t *row; /* [mask + 1], open addressing, at most half full */
    size_t mask;
} bpe_merges_t;
tr_status_t tr_bpe_merges_create(size_t count, bpe_merges_t *out);
/* At most `count` of them. False: the pair is there already. */
bool tr_bpe_merges_add(bpe_merges_t *merges, int32_t left, int32_t right, int32_t rank, int32_t id);
void tr_bpe_merges_free(bpe_merges_t *merges);

/* Memory of one thread that merges: the work, and the ids of words met before. */
typedef struct bpe_work bpe_work_t;
tr_status_t tr_bpe_work_create(void **out);
void tr_bpe_work_destroy(void *work);
/* Appends the ids of the piece text[0 .. bytes); byte_id (256): the tokens of single bytes. */
tr_status_t tr_bpe_encode(const bpe_merges_t *merges, const int32_t *byte_id, bpe_work_t *work,
                          const char *text, size_t bytes, tr_ids_t *out);

#endif
