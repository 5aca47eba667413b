/*
 * Private: what was chosen for a GPU, as texts by key, in memory and in a folder: compiled plans of
 * cuDNN, algorithms of products that were timed, peak rates.
 *
 * The text of a plan is the JSON that cuDNN writes and restores. Compiling takes seconds, restoring
 * 0.05 s. The key names the version of the library, the GPU and the graph. A file is written under
 * another name and renamed, so that ranks and jobs may share the folder. A damaged file is ignored
 * with a warning and replaced.
 */
#ifndef TR_DEVICE_CUDA_CUDA_PLAN_STORE_H
#define TR_DEVICE_CUDA_CUDA_PLAN_STORE_H

#include "cuda_int.h"

typedef struct cuda_plan_store cuda_plan_store_t;

/* prefix: "cudnn 91900 sm_90 132 multiprocessors": begins every key. folder: NULL or "": memory
 * only. */
tr_status_t tr_cuda_plan_store_create(const char *prefix, const char *folder,
                                      cuda_plan_store_t **out);
void tr_cuda_plan_store_destroy(cuda_plan_store_t **store);

/* "": none */
const char *tr_cuda_plan_store_folder(const cuda_plan_store_t *store);

/* The text kept for the graph `key`, valid until the store is changed; NULL: none. */
const char *tr_cuda_plan_store_find(cuda_plan_store_t *store, const char *key);
/* Keeps a copy of `text`, and writes its file if it `lasts`. A folder that cannot be written costs
 * one warning. */
tr_status_t tr_cuda_plan_store_add(cuda_plan_store_t *store, const char *key, const char *text,
                                   bool lasts);
/* Forgets an entry, with the warning "PATH `problem`"; the next one replaces its file. */
void tr_cuda_plan_store_drop(cuda_plan_store_t *store, const char *key, const char *problem);

typedef struct {
    int made, restored;
} cuda_plan_counts_t;
/* For the caller to count in. */
cuda_plan_counts_t *tr_cuda_plan_store_counts(cuda_plan_store_t *store);

/* The device's choices_get and choices_set. */
tr_status_t tr_cuda_plan_store_each(tr_device_t *device, tr_choice_fn each, void *self);
tr_status_t tr_cuda_plan_store_take(tr_device_t *device, const char *key, const void *value,
                                    size_t bytes);

#endif
