/*
 * Predicts the time of a step on a GPU from its published peaks, without the GPU: the roofline model
 * (Williams, Waterman, Patterson, "Roofline: an insightful visual performance model", 2009).
 *
 * An op takes the larger of two times, and a fixed time for each launch:
 *     FLOPs / (peak of its unit x share x terms / (terms + fill))      terms: of the sums of a product
 *     bytes / (bandwidth of the memory x share)
 * Ops follow one another. The shares are one set for all GPUs and models, from published
 * measurements or assumed; tr_roofline_assumptions names each with its source.
 *
 * A prediction is no measurement: whatever prints one says "predicted". Times are in seconds. Not
 * collective; no global state.
 */
#ifndef TR_SCALING_ROOFLINE_H
#define TR_SCALING_ROOFLINE_H

#include "base/str.h"
#include "device/gpu_kinds.h"
#include "device/kernels.h"

/* The groups that a step is shown in: a tr_kernel_kind_t, and exposed communication. */
enum { TR_STEP_COMMUNICATION = TR_KERNEL_KINDS, TR_STEP_GROUPS };

/* What computes an op's FLOPs. */
typedef enum {
    TR_UNIT_NONE,      /* the op is as fast as its bytes */
    TR_UNIT_PRODUCT,   /* cuBLAS, cuDNN's convolutions */
    TR_UNIT_ATTENTION, /* cuDNN's fused attention */
    TR_UNIT_CORES      /* a kernel without tensor cores */
} tr_step_unit_t;

typedef struct {
    tr_kernel_kind_t group;
    tr_step_unit_t unit;
    double flops, terms; /* terms: of each sum of a PRODUCT */
    double bytes;        /* of device memory, read and written */
    double launches;     /* kernels */
} tr_step_op_t;

typedef struct {
    const tr_gpu_kind_t *gpu;
    double peak; /* of its products, FLOP/s: one of gpu->fp32, tf32, fp16, bf16 */
    bool eager;  /* launched one by one, not by CUDA graphs */
} tr_roofline_t;

double tr_roofline_op_sec(const tr_roofline_t *r, const tr_step_op_t *op);
/* An all-reduce of `bytes` by NCCL's rings; 0 on one rank. Up to 8 ranks are GPUs of one node; more
 * are nodes of 8, between which each GPU reduces its part. */
double tr_roofline_allreduce_sec(const tr_roofline_t *r, int ranks, double bytes);
const char *tr_step_group_name(int group);
/* Appends peaks and shares with their sources, one per line. */
void tr_roofline_assumptions(const tr_roofline_t *r, tr_str_t *out);

#endif
