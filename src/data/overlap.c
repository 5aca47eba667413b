/*
 * Looks for samples of the validation and the test data in the training data. Samples are the same if
 * their inputs are, whatever their labels are. Of a stream of tokens, blocks of BLOCK tokens are looked
 * up at every position, by a hash that rolls (Karp and Rabin, Efficient randomized pattern-matching
 * algorithms, IBM Journal of Research and Development 31, 1987).
 */
#include "shared.h"
#include "base/clock.h"
#include "base/mem.h"
#include "trainer/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <xxhash.h>

/* Of each split at most HELD samples or blocks are looked up, of HELD_BYTES. At most TRAIN_BYTES of the
 * training data are compared with them, in pieces of about PIECE_BYTES. */
enum {
    BLOCK = 64,
    FEW_FOUND = 16,
    HELD = 4096,
    HELD_BYTES = 16 << 20,
    TRAIN_BYTES = 256 << 20,
    PIECE_BYTES = 1 << 20,
    FILTER_BITS = 1 << 17
};
#define HELD_SEC  0.1
#define TRAIN_SEC 0.4
#define ROLL      0x9E3779B97F4A7C15u

typedef struct {
    uint64_t hash;
    int split;
    bool is_found;
} overlap_item_t;

typedef struct {
    TR_VEC(overlap_item_t) item;       /* what is looked up, by ascending hash */
    uint64_t filter[FILTER_BITS / 64]; /* the bits of these hashes */
    int64_t looked_up[3], found[3];    /* of each split */
    int64_t compared;                  /* training samples */
    void *dst[TR_DATASET_MAX_FIELDS];  /* inputs that were read */
} overlap_t;

/* Of pieces that are read one after the other until the time is over, the k-th: at any time, those that
 * were read are spread over all. */
static int64_t overlap_place(int64_t k, int64_t count) {
    int64_t stride = count * 5 / 8 + 1, a, b;
    do {
        stride--;
        for (a = count, b = stride; b > 0;) {
            const int64_t rest = a % b;
            a = b;
            b = rest;
        }
    } while (a > 1);
    return k * stride % count;
}

static void overlap_free_inputs(overlap_t *c) {
    for (int f = 0; f < TR_DATASET_MAX_FIELDS; f++) tr_free(&c->dst[f]);
}

/* For the inputs of `most` samples. */
static tr_status_t overlap_alloc_inputs(overlap_t *c, const tr_dataset_info_t *info, int64_t most) {
    overlap_free_inputs(c);
    for (int f = 0; f < info->field_count; f++)
        if (strcmp(info->field[f].name, "y") != 0)
            TR_TRY(tr_alloc((size_t)(most * info->field[f].sample_bytes), "samples", &c->dst[f]));
    return TR_OK;
}

/* -- hashes ------------------------------------------------------------------------------------ */

/* Of the i-th sample that was read. false if each of its inputs has one value only, as an empty image:
 * many samples may be so. */
static bool overlap_hash(const overlap_t *c, const tr_dataset_info_t *info, int64_t i,
                         uint64_t *out) {
    bool varies = false;
    *out = 0;
    for (int f = 0; f < info->field_count; f++) {
        if (!c->dst[f]) continue;
        const size_t bytes = (size_t)info->field[f].sample_bytes,
                     one = tr_dtype_bytes(info->field[f].dtype);
        const char *sample = (const char *)c->dst[f] + (size_t)i * bytes;
        varies |= memcmp(sample, sample + one, bytes - one) != 0;
        *out = XXH3_64bits_withSeed(sample, bytes, *out);
    }
    return varies;
}

static uint64_t overlap_mix(int32_t token) {
    const uint64_t mixed = ((uint64_t)(uint32_t)token + 1) * 0xD6E8FEB86659FD93u;
    return mixed ^ mixed >> 32;
}

/* The length of a window of a stream of tokens; 0: there is none. */
static int64_t overlap_window(const tr_dataset_info_t *info) {
    return info->tokens > 0 ? info->field[0].shape.dim[0] : 0;
}

/* -- what is looked up ------------------------------------------------------------------------- */

static tr_status_t overlap_add(overlap_t *c, int split, uint64_t hash) {
    c->looked_up[split]++;
    c->filter[hash % FILTER_BITS / 64] |= 1ull << hash % 64;
    return tr_vec_push(&c->item, ((overlap_item_t){hash, split, false}));
}

static tr_status_t overlap_add_samples(overlap_t *c, tr_dataset_t *held, int split) {
    const tr_dataset_info_t *info = &held->info;
    const int64_t most = tr_samples_within(info, info->field[0].sample_bytes, HELD_BYTES),
                  count = min64(HELD, most);
    const double start = tr_clock_sec();
    TR_TRY(overlap_alloc_inputs(c, info, 1));
    for (int64_t i = 0; i < count && tr_clock_sec() - start < HELD_SEC; i++) {
        uint64_t hash;
        TR_TRY(held->ops->read(held, info->samples * overlap_place(i, count) / count, 1, c->dst));
        if (overlap_hash(c, info, 0, &hash)) TR_TRY(overlap_add(c, split, hash));
    }
    return TR_OK;
}

static tr_status_t overlap_add_blocks(overlap_t *c, tr_dataset_t *held, int split) {
    const tr_dataset_info_t *info = &held->info;
    const int64_t T = overlap_window(info), tokens = min64(info->tokens, info->samples * T),
                  count = min64(HELD, tokens / BLOCK);
    const double start = tr_clock_sec();
    TR_TRY(overlap_alloc_inputs(c, info, BLOCK / T + 2));
    for (int64_t i = 0; i < count && tr_clock_sec() - start < HELD_SEC; i++) {
        const int64_t begin = (tokens - BLOCK) * overlap_place(i, count) / count, first = begin / T;
        const int32_t *block = (const int32_t *)c->dst[0] + begin % T;
        uint64_t hash = 0;
        TR_TRY(held->ops->read(held, first, (begin + BLOCK - 1) / T - first + 1, c->dst));
        for (int k = 0; k < BLOCK; k++) hash = hash * ROLL + overlap_mix(block[k]);
        if (memcmp(block, block + 1, (BLOCK - 1) * sizeof *block) != 0)
            TR_TRY(overlap_add(c, split, hash));
    }
    return TR_OK;
}

static int overlap_order(const void *a, const void *b) {
    const uint64_t x = ((const overlap_item_t *)a)->hash, y = ((const overlap_item_t *)b)->hash;
    return (x > y) - (x < y);
}

/* -- the training data ------------------------------------------------------------------------- */

/* Marks what has this hash. */
static void overlap_find(overlap_t *c, uint64_t hash) {
    size_t low = 0, high = c->item.count;
    if (!(c->filter[hash % FILTER_BITS / 64] >> hash % 64 & 1)) return;
    while (low < high) {
        const size_t middle = (low + high) / 2;
        if (c->item.data[middle].hash < hash)
            low = middle + 1;
        else
            high = middle;
    }
    for (overlap_item_t *i = c->item.data + low;
         i < c->item.data + c->item.count && i->hash == hash && !i->is_found; i++) {
        i->is_found = true;
        c->found[i->split]++;
    }
}

static void overlap_find_blocks(overlap_t *c, const int32_t *token, int64_t count) {
    uint64_t hash = 0, gone = 1;
    for (int k = 0; k < BLOCK; k++) gone *= ROLL;
    for (int64_t i = 0; i < count; i++) {
        hash = hash * ROLL + overlap_mix(token[i]);
        if (i >= BLOCK) hash -= gone * overlap_mix(token[i - BLOCK]);
        if (i >= BLOCK - 1) overlap_find(c, hash);
    }
}

static tr_status_t overlap_compare(overlap_t *c, tr_dataset_t *train) {
    const tr_dataset_info_t *info = &train->info;
    const int64_t bytes = info->field[0].sample_bytes, T = overlap_window(info),
                  most = tr_samples_within(info, bytes, TRAIN_BYTES),
                  unit = min64(info->read_unit, HELD_BYTES / bytes),
                  rows = min64(most, max64(max64(1, PIECE_BYTES / bytes), unit)),
                  pieces = ceil_div(info->samples, rows);
    const double start = tr_clock_sec();
    TR_TRY(overlap_alloc_inputs(c, info, rows));
    for (int64_t p = 0; p < pieces && c->compared < most && tr_clock_sec() - start < TRAIN_SEC;
         p++) {
        const int64_t first = rows * overlap_place(p, pieces),
                      count = min64(rows, info->samples - first);
        uint64_t hash;
        TR_TRY(train->ops->read(train, first, count, c->dst));
        for (int64_t i = 0; i < count && T == 0; i++)
            if (overlap_hash(c, info, i, &hash)) overlap_find(c, hash);
        if (T > 0) overlap_find_blocks(c, c->dst[0], min64(count * T, info->tokens - first * T));
        c->compared += count;
    }
    return TR_OK;
}

/* -- the whole --------------------------------------------------------------------------------- */

/* A warning, if a twentieth of the split is probably in the training data. Where only a part of it was
 * compared, a few may be phrases or pictures that all such data repeat. */
static void overlap_warn(const overlap_t *c, const tr_dataset_info_t *train, int split,
                         const tr_dataset_info_t *held) {
    const int64_t T = overlap_window(train), found = c->found[split],
                  all = T ? min64(train->tokens, train->samples * T) : train->samples,
                  compared = T ? min64(c->compared * T, all) : c->compared;
    const double part = (double)c->compared / (double)train->samples;
    char blocks[32] = "samples", of[64] = "";
    if (found == 0 || (double)found < 0.05 * part * (double)c->looked_up[split]) return;
    if (c->compared < train->samples && found < FEW_FOUND) return;
    if (T) snprintf(blocks, sizeof blocks, "blocks of %d tokens", BLOCK);
    if (c->compared < train->samples) snprintf(of, sizeof of, " of the %lld", (long long)all);
    TR_WARN("data.%s (%s): %lld of %lld %s that were looked up are also in the training data, of "
            "which %lld%s %s were compared: its scores are too good for new data, unless these are "
            "as often like training samples. Remove from the training data what is in both, or "
            "divide the data anew",
            tr_split_name((tr_split_t)split), held->description, (long long)found,
            (long long)c->looked_up[split], blocks, (long long)compared, of,
            T ? "tokens" : "samples");
}

void tr_dataset_warn_overlap(tr_dataset_t *const dataset[3]) {
    tr_dataset_t *const train = dataset[TR_SPLIT_TRAIN];
    overlap_t *c = NULL;
    bool is_checked[3] = {false};
    tr_status_t status = tr_alloc(sizeof *c, "a search for equal samples", &c);
    for (int split = TR_SPLIT_VALID; split <= TR_SPLIT_TEST && status == TR_OK; split++) {
        tr_dataset_t *const held = dataset[split];
        if (!held) continue;
        is_checked[split] = !tr_dataset_shares(train, held);
        if (!is_checked[split])
            TR_WARN("data.%s is data.train (%s): its scores do not show how good the model is for "
                    "new data. Set other data, or data.valid_fraction = 0.1",
                    tr_split_name((tr_split_t)split), held->info.description);
        else
            status = overlap_window(&held->info) ? overlap_add_blocks(c, held, split)
                                                 : overlap_add_samples(c, held, split);
    }
    if (status == TR_OK && c->item.count > 0) {
        qsort(c->item.data, c->item.count, sizeof *c->item.data, overlap_order);
        status = overlap_compare(c, train);
    }
    for (int split = TR_SPLIT_VALID; split <= TR_SPLIT_TEST && status == TR_OK; split++)
        if (is_checked[split]) overlap_warn(c, &train->info, split, &dataset[split]->info);
    if (status != TR_OK) tr_error_clear(); /* the loader says what cannot be read */
    if (c) {
        overlap_free_inputs(c);
        tr_vec_free(&c->item);
    }
    tr_free(&c);
}
