/*
 * The plan cache of a device: results of `prepare`, keyed by kernel, attributes, shapes and types.
 * Equal calls in all programs and graphs share one plan until the device is closed. Not collective;
 * one thread at a time.
 */
#ifndef TR_DEVICE_PLAN_CACHE_H
#define TR_DEVICE_PLAN_CACHE_H

#include "device/device.h"

typedef struct {
    void *state;
    size_t scratch_bytes;
} tr_plan_t;

/* The plan of the kernel for `call`, whose attributes have attr_bytes. Created at the first
 * request; owned by the device. */
tr_status_t tr_plan_get(tr_device_t *device, tr_kernel_id_t kernel, const tr_kernel_call_t *call,
                        size_t attr_bytes, tr_plan_t *out);
/* Only the scratch bytes of that plan. If there is no plan yet, uses the kernel's `workspace` if it
 * has one. */
tr_status_t tr_plan_workspace(tr_device_t *device, tr_kernel_id_t kernel,
                              const tr_kernel_call_t *call, size_t attr_bytes,
                              size_t *out_scratch_bytes);

/* Forgets all plans. No graph may use one. */
void tr_plan_cache_clear(tr_device_t *device);

/* For device.c. */
tr_status_t tr_plan_cache_create(tr_plan_cache_t **out);
void tr_plan_cache_destroy(tr_device_t *device);

#endif
