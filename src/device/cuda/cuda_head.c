/*
 * HEAD_LOSS: a slice of rows at a time, whose logits become their own gradients in place and are
 * multiplied at once, so that the logits are never whole in memory. Products by cuBLASLt, the loss
 * of a row by cuda_head_rows.cu.
 *
 * Logits of training in half precision are of the type of x, and the vocabulary is padded to whole tiles
 * of a product: in the logits, in a copy of w and in sums of dw.
 */
#include "device/kernel_parts.h"
#include "cuda_head.h"
#include "cuda_place.h"
#include "cuda_product.h"
#include "base/mem.h"

/* A slice's logits and their gradients take at most this part of the GPU's memory. Each slice reads dw
 * and writes it, so there should be few. */
enum { MEMORY_PARTS = 32 };
#define MAX_SLICE_ELEMS ((int64_t)1 << 29) /* more do not make it faster */
enum { ROW_ELEMS = 16, TILE_ELEMS = 128 }; /* what rows of logits are padded to */

/* The products of dlogits run along the tokens, and cuBLASLt is slow where those are no whole packs of
 * 16 bytes: the few tokens beyond them, as of GPT-2's 50257, have products of their own. They come
 * first, so that the large product rounds dx last. A padded vocabulary has none beyond. */
enum { TOKENS_BEYOND, TOKENS_WHOLE, TOKEN_PARTS };

/* logits = x w^T, dx (+)= dlogits w, dw (+)= dlogits^T x. NULL: not needed. */
typedef struct {
    cuda_product_plan_t *logits, *dx, *dw;
} products_t;

typedef struct {
    tr_head_slices_t slices;
    bool is_padded;           /* w and dw have copies in scratch, of slices.stride tokens */
    size_t w_bytes, dw_bytes; /* of the copies, after the logits */
    size_t workspace_bytes;   /* of scratch, last */
    size_t kept_bytes;        /* of a row in shared memory; 0: it is read twice */
    products_t products[TR_HEAD_PLACES][TOKEN_PARTS];
} head_t;

static int64_t head_first_token(const head_t *h, int part) {
    const tr_head_slices_t *s = &h->slices;
    if (part == TOKENS_WHOLE) return 0;
    return h->is_padded ? s->stride : s->tokens / TR_CUDA_HEAD_PACK * TR_CUDA_HEAD_PACK;
}
static int64_t head_token_count(const head_t *h, int part) {
    const int64_t whole = head_first_token(h, TOKENS_BEYOND);
    return part == TOKENS_WHOLE ? whole : h->is_padded ? 0 : h->slices.tokens - whole;
}

static tr_status_t plan_product(tr_device_t *device, head_t *h, cuda_product_t product,
                                cuda_product_plan_t **out) {
    size_t bytes = 0;
    product.batch = 1;
    product.alpha = 1;
    TR_TRY(tr_cuda_product_plan(device, &product, out, &bytes));
    if (bytes > h->workspace_bytes) h->workspace_bytes = bytes;
    return TR_OK;
}

static tr_status_t plan_part(tr_device_t *device, head_t *h, int place, int part, int64_t rows) {
    const tr_head_slices_t *s = &h->slices;
    const int64_t tokens = head_token_count(h, part);
    products_t *p = &h->products[place][part];
    if (tokens == 0) return TR_OK;
    TR_TRY(plan_product(device, h,
                        (cuda_product_t){.in = s->dtype,
                                         .out = s->logits,
                                         .trans_b = true,
                                         .m = rows,
                                         .n = tokens,
                                         .k = s->width,
                                         .c_row = s->stride},
                        &p->logits));
    if (s->has_dx)
        TR_TRY(plan_product(device, h,
                            (cuda_product_t){.in = s->dtype,
                                             .out = s->dtype,
                                             .m = rows,
                                             .n = s->width,
                                             .k = tokens,
                                             .a_row = s->stride,
                                             .beta = part == TOKENS_WHOLE &&
                                                     head_token_count(h, TOKENS_BEYOND) > 0},
                            &p->dx));
    if (!s->has_dw) return TR_OK;
    return plan_product(device, h,
                        (cuda_product_t){.in = s->dtype,
                                         .out = TR_F32,
                                         .trans_a = true,
                                         .m = tokens,
                                         .n = s->width,
                                         .k = rows,
                                         .a_row = s->stride,
                                         .beta = h->dw_bytes ? place != TR_HEAD_FIRST
                                                             : tr_head_place_beta(s, place)},
                        &p->dw);
}

CUDA_KERNEL_RELEASE(head_loss) {
    head_t *h = state;
    (void)device;
    for (int i = 0; h && i < TR_HEAD_PLACES * TOKEN_PARTS; i++) {
        products_t *p = &h->products[i / TOKEN_PARTS][i % TOKEN_PARTS];
        tr_cuda_product_release(&p->logits);
        tr_cuda_product_release(&p->dx);
        tr_cuda_product_release(&p->dw);
    }
    tr_free(&h);
}

/* The elements of a slice's logits, at most, which take `logit_bytes` each with their gradients. The
 * bits of dw depend on it, so it is a power of two and follows from the memory of the GPU, whether that
 * is free or not: all ranks and later runs on such GPUs get the same. */
static tr_status_t head_slice_elems(tr_device_t *device, int64_t logit_bytes, int64_t *out) {
    size_t total = 0;
    TR_TRY(tr_cuda_total_memory(device, &total));
    *out = 1;
    while (*out < MAX_SLICE_ELEMS && 2 * *out <= (int64_t)total / MEMORY_PARTS / logit_bytes)
        *out *= 2;
    return TR_OK;
}

static size_t head_copy_bytes(const tr_head_slices_t *s, tr_dtype_t dtype) {
    return cuda_place_bytes((size_t)(s->stride * s->width) * tr_dtype_bytes(dtype));
}

static tr_status_t head_cut(tr_device_t *device, const tr_kernel_call_t *call, head_t *h) {
    const tr_head_slices_t *s = &h->slices;
    const tr_dtype_t dtype = call->in[TR_HEAD_X].dtype;
    const bool trains =
                   cuda_present(&call->out[TR_HEAD_DX]) || cuda_present(&call->out[TR_HEAD_DW]),
               in_place = trains && tr_dtype_is_half(dtype);
    int64_t slice_elems = 0;
    TR_TRY(head_slice_elems(device, in_place ? 2 : 6, &slice_elems));
    h->slices = tr_head_slices(call, in_place ? dtype : TR_F32, slice_elems,
                               in_place ? TILE_ELEMS : ROW_ELEMS, CUDA_PLACE_BYTES);
    h->is_padded = in_place && s->stride > s->tokens;
    if (h->is_padded) h->w_bytes = head_copy_bytes(s, dtype);
    if (h->is_padded && s->has_dw) h->dw_bytes = head_copy_bytes(s, TR_F32);
    return in_place && !cuda_self(device)->model
               ? tr_cuda_head_keep(device, s->stride, dtype, &h->kept_bytes)
               : TR_OK;
}

CUDA_KERNEL_PREPARE(head_loss) {
    head_t *h = NULL;
    TR_TRY(tr_alloc(sizeof *h, "a head", &h));
    tr_status_t status = head_cut(device, call, h);
    for (int i = 0; i < TR_HEAD_PLACES * TOKEN_PARTS && status == TR_OK; i++) {
        const int place = i / TOKEN_PARTS;
        const int64_t rows = tr_head_place_rows(&h->slices, place);
        if (rows > 0) status = plan_part(device, h, place, i % TOKEN_PARTS, rows);
    }
    if (status != TR_OK) {
        tr_cuda_head_loss_release(device, h);
        return status;
    }
    *out_state = h;
    *out_scratch_bytes = h->slices.logits_bytes + h->slices.narrow_bytes + h->w_bytes +
                         h->dw_bytes + h->workspace_bytes;
    return TR_OK;
}

/* Where a run has what all slices use. */
typedef struct {
    char *logits, *grad; /* grad NULL: no gradient is wanted */
    char *w, *workspace;
    float *dw;
} head_memory_t;

static head_memory_t head_memory(const head_t *h, const tr_kernel_call_t *call) {
    const tr_head_slices_t *s = &h->slices;
    char *narrow = (char *)call->scratch + s->logits_bytes, *w = narrow + s->narrow_bytes,
         *dw = w + h->w_bytes;
    return (head_memory_t){.logits = call->scratch,
                           .grad = !s->has_dx && !s->has_dw ? NULL
                                   : s->narrow_bytes        ? narrow
                                                            : call->scratch,
                           .w = h->w_bytes ? w : call->in[TR_HEAD_W].data,
                           .workspace = dw + h->dw_bytes,
                           .dw = h->dw_bytes ? (float *)dw : call->out[TR_HEAD_DW].data};
}

static tr_status_t cuda_head_run_slice(tr_device_t *device, tr_stream_t *stream, const head_t *h,
                                       const tr_kernel_call_t *call, int64_t i) {
    const tr_head_slices_t *s = &h->slices;
    const products_t *parts = h->products[tr_head_place(s, i)];
    const int64_t first = i * s->slice;
    const size_t bytes = tr_dtype_bytes(s->dtype), row_bytes = (size_t)s->width * bytes;
    const head_memory_t m = head_memory(h, call);
    const char *x = (const char *)call->in[TR_HEAD_X].data + (size_t)first * row_bytes;
    for (int part = 0; part < TOKEN_PARTS; part++) {
        const size_t token = (size_t)head_first_token(h, part);
        if (parts[part].logits)
            TR_TRY(tr_cuda_product_run(device, stream, parts[part].logits, x,
                                       m.w + token * row_bytes, NULL,
                                       m.logits + token * tr_dtype_bytes(s->logits), m.workspace));
    }
    const cuda_head_rows_t rows = {.first = first,
                                   .count = tr_head_slice_rows(s, i),
                                   .per_sample = s->rows / call->in[TR_HEAD_WEIGHT].shape.dim[0],
                                   .tokens = s->tokens,
                                   .columns = h->is_padded ? s->stride : s->tokens,
                                   .stride = s->stride,
                                   .label = call->in[TR_HEAD_LABEL].data,
                                   .narrow_label = call->in[TR_HEAD_LABEL].dtype == TR_I32,
                                   .weight = call->in[TR_HEAD_WEIGHT].data,
                                   .dloss = m.grad && cuda_present(&call->in[TR_HEAD_DLOSS])
                                                ? call->in[TR_HEAD_DLOSS].data
                                                : NULL,
                                   .loss = call->out[TR_HEAD_LOSS].data,
                                   .counted = call->out[TR_HEAD_COUNT].data};
    TR_TRY(s->logits == TR_F32
               ? tr_cuda_head_rows(stream, &rows, (float *)m.logits, m.grad, s->dtype)
               : tr_cuda_head_rows_in_place(stream, &rows, m.logits, s->dtype, h->kept_bytes));
    for (int part = 0; part < TOKEN_PARTS; part++) {
        const products_t *p = &parts[part];
        const size_t token = (size_t)head_first_token(h, part);
        const char *own = m.grad + token * bytes;
        if (p->dx) {
            char *dx = (char *)call->out[TR_HEAD_DX].data + (size_t)first * row_bytes;
            TR_TRY(tr_cuda_product_run(device, stream, p->dx, own, m.w + token * row_bytes, NULL,
                                       dx, m.workspace));
        }
        if (p->dw)
            TR_TRY(tr_cuda_product_run(device, stream, p->dw, own, x, NULL,
                                       m.dw + token * (size_t)s->width, m.workspace));
    }
    return TR_OK;
}

/* The tokens behind the vocabulary are zeros in w, and so in the logits and in dx. */
static tr_status_t head_pad_w(tr_device_t *device, tr_stream_t *stream, const head_t *h,
                              const tr_kernel_call_t *call) {
    const tr_view_t *w = &call->in[TR_HEAD_W];
    const size_t bytes = (size_t)tr_shape_elems(&w->shape) * tr_dtype_bytes(w->dtype);
    char *copy = head_memory(h, call).w;
    TR_TRY(device->ops->copy(device, stream, copy, w->data, bytes, TR_COPY_ON_DEVICE));
    return device->ops->zero(device, stream, copy + bytes, h->w_bytes - bytes);
}

static tr_status_t head_take_dw(tr_device_t *device, tr_stream_t *stream, const head_t *h,
                                const tr_kernel_call_t *call) {
    const tr_view_t *dw = &call->out[TR_HEAD_DW];
    const tr_view_t sums = {head_memory(h, call).dw, TR_F32, dw->shape};
    if (h->slices.adds_dw)
        return tr_cuda_accumulate(
            device, stream, &(tr_kernel_call_t){.n_in = 1, .n_out = 1, .in = {sums}, .out = {*dw}});
    return device->ops->copy(device, stream, dw->data, sums.data,
                             (size_t)tr_shape_elems(&dw->shape) * sizeof(float), TR_COPY_ON_DEVICE);
}

CUDA_KERNEL(head_loss) {
    const head_t *h = call->state;
    if (h->w_bytes) TR_TRY(head_pad_w(device, stream, h, call));
    for (int64_t i = 0; i < h->slices.slices; i++)
        TR_TRY(cuda_head_run_slice(device, stream, h, call, i));
    return h->dw_bytes ? head_take_dw(device, stream, h, call) : TR_OK;
}
