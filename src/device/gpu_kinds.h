/*
 * The kinds of GPU that a run can be planned for without one: `plan --gpu NAME`.
 *
 * All numbers are published ones, none was measured by this program. Rates are peaks without
 * sparsity, in FLOP/s; bandwidths are of one direction, in bytes per second.
 */
#ifndef TR_DEVICE_GPU_KINDS_H
#define TR_DEVICE_GPU_KINDS_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stdint.h>

/* The names of all rows, for the help of commands. */
#define TR_GPU_KINDS "t4|a10g|l4|l40s|a100|h100|h200|b200"

typedef struct tr_gpu_kind {
    const char *name, *title;
    int capability;      /* 10 * major + minor */
    int multiprocessors; /* SMs */
    int sm_clock_khz, memory_clock_khz;
    int l2_bytes;
    int64_t memory_bytes; /* that a program sees */
    double bandwidth;     /* of the memory */
    double fp32, tf32;    /* tf32: 0 where it has none */
    double fp16, bf16;    /* tensor cores; bf16: 0 where it has none */
    double link;          /* to the other GPUs of its node: NVLink, else PCIe */
    bool has_nvlink;
    double network;     /* of its node, for each GPU */
    const char *source; /* of these numbers */
} tr_gpu_kind_t;

/* Limits of a multiprocessor by compute capability. */
typedef struct {
    int capability, threads, blocks; /* resident at once */
    int shared_optin;                /* bytes of shared memory that one block may ask for */
} tr_gpu_limits_t;

/* The row of this name. TR_ERR_USAGE lists the names, or says why this GPU is too old. */
tr_status_t tr_gpu_kind_find(const char *name, const tr_gpu_kind_t **out);
/* Row `index`, from 0; NULL after the last. */
const tr_gpu_kind_t *tr_gpu_kind_at(size_t index);
/* Of 7.5, 8.0, 8.6, 8.9, 9.0, 10.0 or 12.0; NULL: of another. */
const tr_gpu_limits_t *tr_gpu_limits_of(int capability);

#endif
