/*
 * Conversion of weights to and from PyTorch's order of dimensions. Images are channels-last here
 * and channels-first in PyTorch:
 *
 *   convolution             (O, kernel..., I) here, (O, I, kernel...) in PyTorch
 *   linear after flatten    inputs (S..., C) here, (C, S...) in PyTorch
 *   norm after flatten      as linear
 *
 * All other tensors are the same. The order of a tensor is derived from a program of the graph. Not
 * collective.
 */
#ifndef TR_WEIGHTS_TORCH_LAYOUT_H
#define TR_WEIGHTS_TORCH_LAYOUT_H

#include "session/session.h"
#include "checkpoint/checkpoint.h"

/* A tensor (outer, pixels, channels) here is (outer, channels, pixels) in PyTorch; `shape` is its
 * shape in PyTorch. */
typedef struct {
    int64_t outer, pixels, channels;
    tr_shape_t shape;
} tr_torch_order_t;

typedef struct tr_torch_layout tr_torch_layout_t;
tr_status_t tr_torch_layout_create(const tr_session_t *s, tr_torch_layout_t **out);
void tr_torch_layout_destroy(tr_torch_layout_t **layout);
/* The order of the parameter or running moment `name`; false if it is the same in both. */
bool tr_torch_order(const tr_torch_layout_t *layout, const char *name, tr_torch_order_t *out);
/* Transposes the last two dimensions of in (outer, rows, columns). */
void tr_torch_exchange(const float *in, int64_t outer, int64_t rows, int64_t columns, float *out);

#endif
