/*
 * The scale of the loss where activations are f16 (Micikevicius et al. 2018): small gradients would
 * be 0 in f16, so the backward pass computes `scale` times the gradient, and GRAD_NORM takes the
 * factor out again. It is state on the device, which GRAD_NORM alone changes: half the scale, and no
 * update, where a scaled gradient overflowed; twice the scale after many steps without.
 *
 * C and CUDA C include this file.
 */
#ifndef TRAINER_LOSS_SCALE_H
#define TRAINER_LOSS_SCALE_H

#include <stdbool.h>

#ifdef __CUDACC__
#define TR_LOSS_SCALE_INLINE static __host__ __device__ __forceinline__
#else
#define TR_LOSS_SCALE_INLINE static inline
#endif

/* Gradients that overflow at the lowest scale are not finite for another reason. */
#define TR_LOSS_SCALE_LOWEST  1.0f
#define TR_LOSS_SCALE_HIGHEST 1073741824.0f /* 2^30 */

/* f32 (4), so that the backward pass can multiply by `scale`. Numbers of steps are exact up to 2^24.
 */
typedef struct {
    float scale;
    float good;       /* steps without an overflow since the scale last changed */
    float skipped;    /* steps that were not applied because of an overflow */
    float overflowed; /* 1: the last step was one of them; else 0 */
} tr_loss_scale_t;

/* After a step whose gradient was `finite` or not. growth_steps: good steps that double the scale;
 * 0: it never grows. */
TR_LOSS_SCALE_INLINE void tr_loss_scale_update(tr_loss_scale_t *s, bool finite, int growth_steps) {
    s->overflowed = !finite && s->scale > TR_LOSS_SCALE_LOWEST ? 1.0f : 0.0f;
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
