/*
 * The order of samples is a pure function of the members below. A checkpoint needs to save only the
 * step.
 *
 * A step has `slots` = batch_size / micro_batch slots. Slot s draws from sample stream s. In epoch
 * e, the blocks of the data set are permuted by Philox(seed, BLOCKS, e). Stream s takes a
 * contiguous share of n_s(e) samples of the resulting sequence, where the shares of epochs 0 .. e-1
 * of stream s sum to floor((e N + s) / slots). By Hermite's identity the streams together take
 * every sample exactly once per epoch, and their lengths never differ by more than one sample. A
 * stream is the concatenation of its shares; within a share, windows of `shuffle` samples are
 * permuted by Philox(seed, WINDOW, stream, epoch, window). Ranks take ranges of slots, so the order
 * does not depend on the number of ranks.
 */
#ifndef TR_DATA_SAMPLER_H
#define TR_DATA_SAMPLER_H

#include "data/data.h"

typedef struct {
    uint64_t seed;
    int64_t samples, batch_size, micro_batch, block, shuffle; /* resolved, no -1 */
} tr_sampler_t;
/*
 * Fills *out. data.block and data.shuffle are resolved from the data, the batch and the micro-batch
 * only. TR_ERR_CONFIG if batch_size is not a multiple of micro_batch.
 */
tr_status_t tr_sampler_init(const tr_data_settings_t *settings, const tr_dataset_info_t *info,
                            uint64_t seed, int64_t batch_size, int64_t micro_batch,
                            tr_sampler_t *out);
int64_t tr_sampler_slots(const tr_sampler_t *order);
/*
 * Returns the epoch of a position (samples drawn by stream `slot` so far), the first position of
 * that epoch and that of the next.
 */
int64_t tr_sampler_epoch(const tr_sampler_t *order, int64_t slot, int64_t position,
                         int64_t *out_first, int64_t *out_next);
/*
 * Sample ids at positions [position, position + count) of stream `slot`. For tools and tests: it
 * computes the permutation of every window again.
 */
tr_status_t tr_sampler_samples(const tr_sampler_t *order, int64_t slot, int64_t position,
                               int64_t count, int64_t *out_ids);

/* A shuffle window: consecutive positions of a stream whose samples are shuffled together. */
typedef struct {
    int64_t slot, epoch, index; /* index of the window in the stream's share of the epoch */
    int64_t first, count;       /* positions in the stream */
    int64_t sequence;           /* first position in the epoch's sequence of samples */
} tr_sampler_window_t;
void tr_sampler_window(const tr_sampler_t *order, int64_t slot, int64_t position,
                       tr_sampler_window_t *out);
int64_t tr_sampler_window_max(const tr_sampler_t *order); /* count of the longest window */
/* Whether windows are permuted. */
bool tr_sampler_shuffles(const tr_sampler_t *order);
/* out_place[i], i < window->count: the position in the window of the i-th sample of the sequence.
 * */
void tr_sampler_permutation(const tr_sampler_t *order, const tr_sampler_window_t *window,
                            int64_t *out_place);
/*
 * The sample at position `sequence` of the epoch's sequence, and the length of the run of
 * consecutive samples of the data set that starts with it.
 */
void tr_sampler_run(const tr_sampler_t *order, int64_t epoch, int64_t sequence, int64_t *out_sample,
                    int64_t *out_count);
/* Rank `rank` of `size` takes slots [first, first + count). */
void tr_sampler_slots_of_rank(int64_t slots, int rank, int size, int64_t *out_first,
                              int64_t *out_count);

#endif
