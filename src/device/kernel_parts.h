/* What the kernels of several devices have in common beside their contract: how work is cut. */
#ifndef TR_DEVICE_KERNEL_PARTS_H
#define TR_DEVICE_KERNEL_PARTS_H

#include "device/device.h"

/* The gradient of a convolution's bias, the sum of dy over all pixels: CONV_BWD_WEIGHTS as a call of
 * COLUMN_SUM. */
static inline tr_kernel_call_t tr_conv_bias_call(const tr_kernel_call_t *call) {
    const int64_t outputs = call->out[1].shape.dim[0];
    tr_kernel_call_t sum = {.n_in = 1,
                            .n_out = 1,
                            .in = {call->in[1]},
                            .out = {call->out[1]},
                            .scratch = call->scratch};
    sum.in[0].shape = TR_SHAPE(tr_shape_elems(&call->in[1].shape) / outputs, outputs);
    return sum;
}

/*
 * HEAD_LOSS works on a slice of rows at a time, so that the logits are never whole in memory. The
 * first slice begins dw, unless that is added to; the others add to it; the last may have fewer rows.
 */
enum { TR_HEAD_FIRST, TR_HEAD_MIDDLE, TR_HEAD_LAST, TR_HEAD_PLACES };
enum { TR_HEAD_X, TR_HEAD_W, TR_HEAD_LABEL, TR_HEAD_WEIGHT, TR_HEAD_DLOSS }; /* inputs */
enum { TR_HEAD_LOSS, TR_HEAD_COUNT, TR_HEAD_DX, TR_HEAD_DW };                /* outputs */
typedef struct {
    int64_t rows, width, tokens, stride; /* R, C, V; elements from row to row of the logits */
    int64_t slice, slices;               /* rows of a slice; how many there are */
    tr_dtype_t dtype, logits;
    bool has_dx, has_dw, adds_dw;
    /* of a slice, each a multiple of the alignment: the logits; their gradients, 0 where there are
     * none or they are of the logits' type and take their place */
    size_t logits_bytes, narrow_bytes;
} tr_head_slices_t;

/* logits: their type, f32 or that of x. slice_elems: at most, of the logits of a slice, if that is a
 * row. Rows are padded to `row_elems` elements, because products are faster where rows are aligned.
 * Slices are as few as that allows, and as equal as whole 64 rows allow within it. */
static inline tr_head_slices_t tr_head_slices(const tr_kernel_call_t *call, tr_dtype_t logits,
                                              int64_t slice_elems, int64_t row_elems,
                                              size_t align_bytes) {
    enum { ALIGN_ROWS = 64 };
    const int64_t *x = call->in[TR_HEAD_X].shape.dim;
    tr_head_slices_t h = {.rows = x[0],
                          .width = x[1],
                          .tokens = call->in[TR_HEAD_W].shape.dim[0],
                          .dtype = call->in[TR_HEAD_X].dtype,
                          .logits = logits,
                          .has_dx = call->out[TR_HEAD_DX].shape.ndim >= 0,
                          .has_dw = call->out[TR_HEAD_DW].shape.ndim >= 0,
                          .adds_dw = call->adds >> TR_HEAD_DW & 1};
    h.stride = (h.tokens + row_elems - 1) / row_elems * row_elems;
    const int64_t most = slice_elems > h.stride ? slice_elems / h.stride : 1;
    h.slices = (h.rows + most - 1) / most;
    h.slice = (h.rows + h.slices - 1) / h.slices;
    if (h.slices > 1) h.slice = (h.slice + ALIGN_ROWS - 1) / ALIGN_ROWS * ALIGN_ROWS;
    if (h.slice > most) h.slice = most;
    h.slices = (h.rows + h.slice - 1) / h.slice;
    const size_t elems = (size_t)(h.slice * h.stride);
    h.logits_bytes = (elems * tr_dtype_bytes(logits) + align_bytes - 1) / align_bytes * align_bytes;
    if ((h.has_dx || h.has_dw) && h.dtype != logits)
        h.narrow_bytes = (elems * sizeof(uint16_t) + align_bytes - 1) / align_bytes * align_bytes;
    return h;
}

static inline int64_t tr_head_slice_rows(const tr_head_slices_t *h, int64_t i) {
    return i + 1 < h->slices ? h->slice : h->rows - i * h->slice;
}
static inline int tr_head_place(const tr_head_slices_t *h, int64_t i) {
    return i == 0 ? TR_HEAD_FIRST : i + 1 == h->slices ? TR_HEAD_LAST : TR_HEAD_MIDDLE;
}
/* What dw is multiplied by before a slice at `place` adds to it. */
static inline float tr_head_place_beta(const tr_head_slices_t *h, int place) {
    return place == TR_HEAD_FIRST && !h->adds_dw ? 0 : 1;
}
/* The rows of a slice at `place`; 0 if there is none. */
static inline int64_t tr_head_place_rows(const tr_head_slices_t *h, int place) {
    const int64_t at[TR_HEAD_PLACES] = {0, 1, h->slices - 1};
    return at[place] < h->slices && tr_head_place(h, at[place]) == place
               ? tr_head_slice_rows(h, at[place])
               : 0;
}

#endif
