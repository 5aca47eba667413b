/* The loader: threads that fill batches ahead of the training loop. */
#ifndef TR_DATA_LOADER_H
#define TR_DATA_LOADER_H

#include "data/sampler.h"
#include "device/device.h"

typedef struct {
    tr_sampler_t order;
    int64_t first_slot, slot_count; /* of this rank */
    int64_t first_step;             /* nonzero on resume */
    /*
     * One pass over the first order.samples samples in file order. Micro-batch m goes to slot
     * m mod slots; the last ones are padded with samples of weight 0.
     */
    bool evaluation;
    int workers, prefetch; /* resolved */
} tr_loader_params_t;

/*
 * One micro-batch in pinned host memory, valid until released. At most `prefetch` may be held at a
 * time, and at most ceil(prefetch / slot_count) of one slot.
 */
typedef struct {
    int64_t step, slot;
    int64_t epoch;   /* of its first sample */
    bool ends_epoch; /* holds the last sample of an epoch of its stream */
    int64_t valid;   /* number of samples; the rest is padding (evaluation) */
    int field_count;
    void *field[TR_DATASET_MAX_FIELDS]; /* (micro_batch, sample shape) */
    int64_t *sample_id;                 /* (micro_batch): index in the data set; -1 for padding */
    float *weight;                      /* (micro_batch): 1; 0 for padding or no label */
    int ring;                           /* index in the ring; each index has fixed addresses */
} tr_batch_t;

typedef struct tr_loader tr_loader_t;
/* Starts reading at once. dataset and device are borrowed. */
tr_status_t tr_loader_create(tr_dataset_t *dataset, tr_device_t *device,
                             const tr_loader_params_t *params, tr_loader_t **out);
void tr_loader_destroy(tr_loader_t **loader);
/* The number of workers: data.workers, or if auto, from the number of cores of a rank. */
int tr_loader_workers(const tr_data_settings_t *settings, int cores);
/*
 * Waits for the next micro-batch, ordered by step, then slot. *out is NULL at the end of an
 * evaluation pass, in which every rank gets the same number of micro-batches; some may be padding
 * only.
 */
tr_status_t tr_loader_next(tr_loader_t *loader, tr_batch_t **out);
/* Starts another evaluation pass with the same memory and threads. The previous pass must have
 * ended, with all of its micro-batches released. */
tr_status_t tr_loader_restart(tr_loader_t *loader);
/* In any order. Memory is reused once the earlier micro-batches of its stream are released too. */
tr_status_t tr_loader_release(tr_loader_t *loader, tr_batch_t *batch);
/* Total time that tr_loader_next has waited. */
double tr_loader_stall_sec(const tr_loader_t *loader);
/* Host memory of the ring and the shuffle windows. */
size_t tr_loader_bytes(const tr_loader_t *loader);

#endif
