/*
 * The order of samples, specified in trainer/data.h. Everything is computed; nothing is stored.
 *
 * The permutation of blocks is a Feistel network over the smallest power of two that is at least
 * their number, applied repeatedly until the result is in range (cycle walking: Black, Rogaway,
 * "Ciphers with arbitrary finite domains", CT-RSA 2002). Any block of any epoch is found without a
 * table.
 */
#include "sampler.h"
#include "shared.h"
#include "base/mem.h"
#include "base/rng.h"

#define FEISTEL_ROUNDS   10
#define FEISTEL_MIN_BITS 6 /* fewer rounds could not produce all permutations of a few blocks */
#define BLOCK_BYTES_MIN  (256 << 10)
#define BLOCK_BYTES_MAX  (1 << 20)
#define BLOCKS_MIN       64 /* per epoch and, if possible, per window */
#define WINDOW_BYTES     (64 << 20)

int64_t tr_sampler_slots(const tr_sampler_t *order) {
    return order->batch_size / order->micro_batch;
}
bool tr_sampler_shuffles(const tr_sampler_t *order) {
    return order->shuffle > 1;
}

int64_t tr_sampler_window_max(const tr_sampler_t *order) {
    int64_t longest_share = ceil_div(order->samples, tr_sampler_slots(order));
    /* Without shuffling a window is only a unit of reading ahead. */
    int64_t window =
        tr_sampler_shuffles(order) ? order->shuffle : max64(order->block, order->micro_batch);
    return min64(window, longest_share);
}

/* -- resolving --------------------------------------------------------------------------------- */

static int64_t sampler_auto_block(const tr_sampler_t *order, const tr_dataset_info_t *info,
                                  int64_t sample_bytes) {
    if (info->read_unit > 1) return info->read_unit;
    if (info->is_file_each) return 1;
    int64_t bytes = WINDOW_BYTES / tr_sampler_slots(order) / BLOCKS_MIN;
    bytes = max64(BLOCK_BYTES_MIN, min64(BLOCK_BYTES_MAX, bytes));
    return max64(1, min64(bytes / sample_bytes, order->samples / BLOCKS_MIN));
}

/* Windows of equal size, so that no short one remains at the end of a share. Files are in random order
 * already, as blocks of one sample. */
static int64_t sampler_auto_shuffle(const tr_sampler_t *order, const tr_dataset_info_t *info,
                                    int64_t sample_bytes) {
    if (info->is_file_each && order->block == 1) return 1;
    int64_t slots = tr_sampler_slots(order), share = ceil_div(order->samples, slots);
    int64_t fits = max64(WINDOW_BYTES / slots / sample_bytes, 1);
    return max64(1, ceil_div(share, ceil_div(share, fits)));
}

tr_status_t tr_sampler_init(const tr_data_settings_t *settings, const tr_dataset_info_t *info,
                            uint64_t seed, int64_t batch_size, int64_t micro_batch,
                            tr_sampler_t *out) {
    if (info->samples < 1)
        return TR_FAIL(TR_ERR_DATA, "The data set is empty: %s.", info->description);
    if (batch_size < 1 || micro_batch < 1 || batch_size % micro_batch)
        return TR_FAIL(TR_ERR_CONFIG,
                       "data.batch_size (%lld) must be a multiple of data.micro_batch (%lld), "
                       "because a step consists of whole micro-batches. Change one of them.",
                       (long long)batch_size, (long long)micro_batch);
    int64_t sample_bytes = 0;
    for (int f = 0; f < info->field_count; f++) sample_bytes += info->field[f].sample_bytes;
    sample_bytes = max64(sample_bytes, 1);
    *out = (tr_sampler_t){.seed = seed,
                          .samples = info->samples,
                          .batch_size = batch_size,
                          .micro_batch = micro_batch};
    out->block =
        min64(settings->block > 0 ? settings->block : sampler_auto_block(out, info, sample_bytes),
              info->samples);
    out->shuffle =
        settings->shuffle >= 0 ? settings->shuffle : sampler_auto_shuffle(out, info, sample_bytes);
    return TR_OK;
}

/* -- streams -------------------------------------------------------------------------------------
 */

/* Samples that stream `slot` has drawn when `epoch` begins. */
static int64_t sampler_stream_begin(const tr_sampler_t *order, int64_t slot, int64_t epoch) {
    return (epoch * order->samples + slot) / tr_sampler_slots(order);
}

/* Samples that all streams before `slot` have drawn when `epoch` begins: the sum over t < slot of
 * floor((x + t) / slots). */
static int64_t sampler_streams_before(const tr_sampler_t *order, int64_t slot, int64_t epoch) {
    int64_t slots = tr_sampler_slots(order), x = epoch * order->samples;
    return slot * (x / slots) + max64(0, slot + x % slots - slots);
}

int64_t tr_sampler_epoch(const tr_sampler_t *order, int64_t slot, int64_t position,
                         int64_t *out_first, int64_t *out_next) {
    int64_t epoch = ((position + 1) * tr_sampler_slots(order) - slot - 1) / order->samples;
    if (out_first) *out_first = sampler_stream_begin(order, slot, epoch);
    if (out_next) *out_next = sampler_stream_begin(order, slot, epoch + 1);
    return epoch;
}

void tr_sampler_window(const tr_sampler_t *order, int64_t slot, int64_t position,
                       tr_sampler_window_t *out) {
    int64_t first, next, length = tr_sampler_window_max(order);
    out->slot = slot;
    out->epoch = tr_sampler_epoch(order, slot, position, &first, &next);
    out->index = (position - first) / length;
    out->first = first + out->index * length;
    out->count = min64(length, next - out->first);
    out->sequence = sampler_streams_before(order, slot, out->epoch + 1) -
                    sampler_streams_before(order, slot, out->epoch) + out->index * length;
}

void tr_sampler_permutation(const tr_sampler_t *order, const tr_sampler_window_t *window,
                            int64_t *out_place) {
    for (int64_t i = 0; i < window->count; i++) out_place[i] = i;
    if (!tr_sampler_shuffles(order)) return;
    tr_rng_t rng = tr_rng_make(order->seed, TR_RNG_WINDOW, (uint32_t)window->slot,
                               (uint64_t)window->epoch << 32 | (uint32_t)window->index);
    tr_rng_shuffle(&rng, out_place, window->count);
}

void tr_sampler_slots_of_rank(int64_t slots, int rank, int size, int64_t *out_first,
                              int64_t *out_count) {
    *out_first = slots * rank / size;
    *out_count = slots * (rank + 1) / size - *out_first;
}

/* -- blocks ------------------------------------------------------------------------------------ */

/* One pass through the network, forward or back; value < 2^(left + right bits). */
static uint64_t sampler_feistel(const tr_sampler_t *order, int64_t epoch, int bits, bool inverse,
                                uint64_t value) {
    int half[2] = {bits / 2, bits - bits / 2}; /* bits of word 0 and word 1 */
    uint64_t word[2] = {value >> half[1], value & ((1ull << half[1]) - 1)};
    for (int i = 0; i < FEISTEL_ROUNDS; i++) {
        int round = inverse ? FEISTEL_ROUNDS - 1 - i : i, to = round & 1;
        tr_rng_block_t f =
            tr_rng_philox(order->seed, TR_RNG_BLOCKS, (uint32_t)round, (uint64_t)epoch, word[!to]);
        word[to] ^= f.v[0] & ((1ull << half[to]) - 1);
    }
    return word[0] << half[1] | word[1];
}

static int64_t sampler_permute(const tr_sampler_t *order, int64_t epoch, bool inverse,
                               int64_t block, int64_t blocks) {
    int bits = FEISTEL_MIN_BITS;
    while (bits < 62 && (1ll << bits) < blocks) bits++;
    uint64_t value = (uint64_t)block;
    do value = sampler_feistel(order, epoch, bits, inverse, value);
    while (value >= (uint64_t)blocks);
    return (int64_t)value;
}

void tr_sampler_run(const tr_sampler_t *order, int64_t epoch, int64_t sequence, int64_t *out_sample,
                    int64_t *out_count) {
    int64_t block = order->block, blocks = ceil_div(order->samples, block),
            missing = blocks * block - order->samples;
    if (order->shuffle == 0) {
        *out_sample = sequence;
        *out_count = order->samples - sequence;
        return;
    }
    /* The last block of the data set may be short: the samples after it in the sequence are shifted
     * by the difference. */
    int64_t size = block;
    if (missing) {
        int64_t place = sampler_permute(order, epoch, true, blocks - 1, blocks);
        if (sequence >= place * block + block - missing)
            sequence += missing;
        else if (sequence >= place * block)
            size = block - missing;
    }
    int64_t offset = sequence % block;
    *out_sample = sampler_permute(order, epoch, false, sequence / block, blocks) * block + offset;
    *out_count = size - offset;
}

/* -- for tools and tests ----------------------------------------------------------------------- */

static void window_samples(const tr_sampler_t *order, const tr_sampler_window_t *window,
                           const int64_t *place, int64_t *out_ids) {
    for (int64_t i = 0; i < window->count;) {
        int64_t sample, run;
        tr_sampler_run(order, window->epoch, window->sequence + i, &sample, &run);
        for (; run > 0 && i < window->count; run--) out_ids[place[i++]] = sample++;
    }
}

tr_status_t tr_sampler_samples(const tr_sampler_t *order, int64_t slot, int64_t position,
                               int64_t count, int64_t *out_ids) {
    int64_t *scratch = NULL, length = tr_sampler_window_max(order);
    TR_TRY(tr_alloc((size_t)(2 * length) * sizeof *scratch, "order of a window", &scratch));
    for (int64_t end = position + count; position < end;) {
        tr_sampler_window_t window;
        tr_sampler_window(order, slot, position, &window);
        tr_sampler_permutation(order, &window, scratch);
        window_samples(order, &window, scratch, scratch + length);
        int64_t stop = min64(end, window.first + window.count);
        for (; position < stop; position++) *out_ids++ = scratch[length + position - window.first];
    }
    tr_free(&scratch);
    return TR_OK;
}
