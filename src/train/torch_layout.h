/*
 * Weights in PyTorch's order of dimensions. Images are channels-last here and channels-first there:
 *
 *   convolution                   (O, kernel..., I) here, (O, I, kernel...) there
 *   linear after flatten          its inputs are (S..., C) here, (C, S...) there
 *   norm after flatten            likewise
 *
 * All other tensors are the same. Which they are follows from a program of the graph. Not
 * collective.
 */
#ifndef TRAINER_TORCH_LAYOUT_H
#define TRAINER_TORCH_LAYOUT_H

#include "session.h"
#include "checkpoint/checkpoint.h"

/* A tensor (outer, pixels, channels) here is (outer, channels, pixels) there; `shape` is its shape
 * there. */
typedef struct {
    int64_t outer, pixels, channels;
    tr_shape_t shape;
} tr_torch_order_t;

/* The order of the parameter or running moment `name`; false where it is the same in both. */
bool tr_torch_order(const tr_session_t *s, const char *name, tr_torch_order_t *out);
/* out = in, (outer, rows, columns), with the last two dimensions exchanged. */
void tr_torch_exchange(const float *in, int64_t outer, int64_t rows, int64_t columns, float *out);

#endif
