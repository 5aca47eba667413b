/*
 * Dynamic loss scaling for f16 activations (Micikevicius et al. 2018). Small gradients would be 0
 * in f16, so the backward pass computes `scale` times the gradient, and GRAD_NORM divides by it.
 * The scale is state on the device and changed only by GRAD_NORM: if a scaled gradient overflows,
 * the scale is halved and the update skipped; after many steps without overflow, the scale is
 * doubled.
 *
 * C and CUDA C include this file.
 */
#ifndef TR_DEVICE_LOSS_SCALE_H
#define TR_DEVICE_LOSS_SCALE_H

#include <stdbool.h>

#ifdef __CUDACC__
#define TR_LOSS_SCALE_INLINE static __host__ __device__ __forceinline__
#else
#define TR_LOSS_SCALE_INLINE static inline
#endif

/* If gradients overflow at the lowest scale, loss scaling is not the cause. */
#define TR_LOSS_SCALE_LOWEST  1.0f
#define TR_LOSS_SCALE_HIGHEST 1073741824.0f /* 2^30 */

/* Stored as f32 (4), so that the backward pass can multiply by `scale`. Counts are exact up to
 * 2^24. */
typedef struct {
    float scale;
    float good;       /* steps without overflow since the scale last changed */
    float skipped;    /* steps skipped because of an overflow */
    float overflowed; /* 1: the last step was skipped because of an overflow; else 0 */
} tr_loss_scale_t;

/* Updates the scale after a step. finite: whether its loss and its gradient are finite. A loss that
 * is not finite is no overflow: it is not scaled. growth_steps: steps without overflow after which
 * the scale doubles; 0: never. */
TR_LOSS_SCALE_INLINE void tr_loss_scale_update(tr_loss_scale_t *s, bool finite, bool loss_finite,
                                               int growth_steps) {
    s->overflowed = !finite && loss_finite && s->scale > TR_LOSS_SCALE_LOWEST ? 1.0f : 0.0f;
    s->skipped += s->overflowed;
    s->good = finite ? s->good + 1 : 0.0f;
    if (s->overflowed > 0) {
        s->scale *= 0.5f;
        if (s->scale < TR_LOSS_SCALE_LOWEST) s->scale = TR_LOSS_SCALE_LOWEST;
    }
    if (growth_steps <= 0 || s->good < (float)growth_steps) return;
    s->good = 0;
    if (s->scale < TR_LOSS_SCALE_HIGHEST) s->scale *= 2;
}

#endif
