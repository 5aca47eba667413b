/* Byte-pair encoding: merges a piece of text to tokens. */
#include "bpe.h"
#include <string.h>
#include <xxhash.h>

/* -- the merges -------------------------------------------------------------------------------- */

/* The row of the pair, or the empty row for it. */
static inline bpe_pair_t *bpe_row_of(const bpe_merges_t *m, int32_t left, int32_t right) {
    const uint64_t key = (uint64_t)(uint32_t)left << 32 | (uint32_t)right;
    size_t at = (size_t)(key * 0x9E3779B97F4A7C15u >> 20) & m->mask;
    while (m->row[at].left >= 0 && (m->row[at].left != left || m->row[at].right != right))
        at = (at + 1) & m->mask;
    return &m->row[at];
}

tr_status_t tr_bpe_merges_create(size_t count, bpe_merges_t *out) {
    size_t rows = 2;
    while (rows < 2 * count) rows *= 2;
    out->mask = rows - 1;
    TR_TRY(tr_alloc(rows * sizeof *out->row, "merges", &out->row));
    memset(out->row, -1, rows * sizeof *out->row);
    return TR_OK;
}

bool tr_bpe_merges_add(bpe_merges_t *m, int32_t left, int32_t right, int32_t rank, int32_t id) {
    bpe_pair_t *row = bpe_row_of(m, left, right);
    if (row->left >= 0) return false;
    *row = (bpe_pair_t){left, right, rank, id};
    return true;
}

void tr_bpe_merges_free(bpe_merges_t *m) {
    tr_free(&m->row);
}

/* -- words met before -------------------------------------------------------------------------- */

#define CACHE_ROWS (1 << 15)
#define WORD_BYTES 30
#define WORD_IDS   8

typedef struct {
    uint8_t bytes, count; /* bytes 0: empty */
    char text[WORD_BYTES];
    int32_t id[WORD_IDS];
} word_t;

/* A part of the piece, one token. */
typedef struct {
    int32_t id, before, next; /* neighbours, -1: none; id -1: merged into the previous part */
} part_t;

/* A merge that was possible when it was added. */
typedef struct {
    int32_t rank, at;  /* at: the part on the left */
    int32_t right, id; /* token on the right when it was added; token of the merge */
} candidate_t;

struct bpe_work {
    word_t *word; /* [CACHE_ROWS]: each word has one row; the latest word replaces an older one */
    part_t *part;
    candidate_t *heap; /* lowest rank first; of equal ranks, the leftmost */
    size_t room, count;
};

tr_status_t tr_bpe_work_create(void **out) {
    bpe_work_t *work = NULL;
    TR_TRY(tr_alloc(sizeof *work, "tokenizer", &work));
    tr_status_t status = tr_alloc(CACHE_ROWS * sizeof *work->word, "words", &work->word);
    if (status != TR_OK) tr_free(&work);
    *out = work;
    return status;
}

void tr_bpe_work_destroy(void *self) {
    bpe_work_t *work = self;
    tr_free(&work->word);
    tr_free(&work->part);
    tr_free(&work->heap);
    tr_free(&work);
}

/* -- merging ----------------------------------------------------------------------------------- */

static inline bool bpe_is_before(const candidate_t *a, const candidate_t *b) {
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static candidate_t bpe_heap_pop(bpe_work_t *w) {
    const candidate_t first = w->heap[0], last = w->heap[--w->count];
    size_t at = 0;
    for (size_t child; (child = 2 * at + 1) < w->count; at = child) {
        if (child + 1 < w->count && bpe_is_before(&w->heap[child + 1], &w->heap[child])) child++;
        if (!bpe_is_before(&w->heap[child], &last)) break;
        w->heap[at] = w->heap[child];
    }
    w->heap[at] = last;
    return first;
}

/* Adds the merge of part `at` with the next part, if there is one. */
static void bpe_consider(const bpe_merges_t *merges, bpe_work_t *w, int32_t at) {
    if (at < 0 || w->part[at].next < 0) return;
    const bpe_pair_t *row = bpe_row_of(merges, w->part[at].id, w->part[w->part[at].next].id);
    if (row->left < 0) return;
    const candidate_t candidate = {row->rank, at, row->right, row->id};
    size_t to = w->count++;
    for (; to > 0 && bpe_is_before(&candidate, &w->heap[(to - 1) / 2]); to = (to - 1) / 2)
        w->heap[to] = w->heap[(to - 1) / 2];
    w->heap[to] = candidate;
}

static void bpe_merge(const bpe_merges_t *merges, bpe_work_t *w, const candidate_t *c) {
    part_t *left = &w->part[c->at], *right = &w->part[left->next];
    left->id = c->id;
    left->next = right->next;
    right->id = -1;
    if (left->next >= 0) w->part[left->next].before = c->at;
    bpe_consider(merges, w, left->before);
    bpe_consider(merges, w, c->at);
}

static tr_status_t bpe_merge_all(const bpe_merges_t *merges, const int32_t *byte_id, bpe_work_t *w,
                                 const char *text, size_t bytes, tr_ids_t *out) {
    /* `bytes` bytes have at most so many parts and twice as many candidates, because each merge
     * adds two and removes one. */
    if (bytes > w->room) {
        TR_TRY(tr_realloc(&w->part, bytes * sizeof *w->part, "parts of a word"));
        TR_TRY(tr_realloc(&w->heap, 2 * bytes * sizeof *w->heap, "merges of a word"));
        w->room = bytes;
    }
    TR_TRY(tr_ids_reserve(out, bytes));
    w->count = 0;
    for (int32_t i = 0; i < (int32_t)bytes; i++)
        w->part[i] =
            (part_t){byte_id[(unsigned char)text[i]], i - 1, i + 1 < (int32_t)bytes ? i + 1 : -1};
    for (int32_t i = 0; i < (int32_t)bytes; i++) bpe_consider(merges, w, i);
    while (w->count > 0) {
        const candidate_t first = bpe_heap_pop(w);
        const part_t *left = &w->part[first.at];
        /* The pair may exist no longer. Tokens of a part only grow, so equal tokens mean the same
         * pair. */
        if (left->id >= 0 && left->next >= 0 && w->part[left->next].id == first.right &&
            bpe_row_of(merges, left->id, first.right)->rank == first.rank)
            bpe_merge(merges, w, &first);
    }
    for (int32_t i = 0; i >= 0; i = w->part[i].next) out->data[out->count++] = w->part[i].id;
    return TR_OK;
}

tr_status_t tr_bpe_encode(const bpe_merges_t *merges, const int32_t *byte_id, bpe_work_t *work,
                          const char *text, size_t bytes, tr_ids_t *out) {
    if (bytes > WORD_BYTES) return bpe_merge_all(merges, byte_id, work, text, bytes, out);
    word_t *word = &work->word[XXH3_64bits(text, bytes) % CACHE_ROWS];
    if (word->bytes == bytes && !memcmp(word->text, text, bytes)) {
        TR_TRY(tr_ids_reserve(out, WORD_IDS));
        memcpy(out->data + out->count, word->id, sizeof word->id);
        out->count += word->count;
        return TR_OK;
    }
    const size_t first = out->count;
    TR_TRY(bpe_merge_all(merges, byte_id, work, text, bytes, out));
    const size_t count = out->count - first;
    if (count > WORD_IDS) return TR_OK;
    word->bytes = (uint8_t)bytes;
    word->count = (uint8_t)count;
    memcpy(word->text, text, bytes);
    memcpy(word->id, out->data + first, count * sizeof *word->id);
    return TR_OK;
}
