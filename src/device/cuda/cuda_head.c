/*
 * HEAD_LOSS: a slice of rows at a time, whose logits become their own gradients in place and are
 * multiplied at once, so that the logits are never whole in memory. Products by cuBLASLt, the loss
 * of a row by cuda_head_rows.cu.
 */
#include "device/kernel_parts.h"
#include "cuda_head.h"
#include "cuda_product.h"
#include "base/mem.h"

/* A slice's logits, f32 and narrow, take at most this part of the GPU's memory. Each slice reads dw
 * and writes it, so there should be few. */
enum { MEMORY_PARTS = 32, LOGIT_BYTES = 6, SCRATCH_ALIGN = 256 };
#define MAX_SLICE_ELEMS ((int64_t)1 << 29) /* more do not make it faster */

/* The products of dlogits run along the tokens, and cuBLASLt is slow where those are no whole packs of
 * 16 bytes: the few tokens beyond them, as of GPT-2's 50257, have products of their own. They come
 * first, so that the large product rounds dx last. */
enum { TOKENS_BEYOND, TOKENS_WHOLE, TOKEN_PARTS };

/* logits = x w^T, dx (+)= dlogits w, dw (+)= dlogits^T x. NULL: not needed. */
typedef struct {
    cuda_product_plan_t *logits, *dx, *dw;
} products_t;

typedef struct {
    tr_head_slices_t slices;
    size_t workspace_bytes; /* of scratch, after the logits */
    products_t products[TR_HEAD_PLACES][TOKEN_PARTS];
} head_t;

static int64_t head_first_token(const tr_head_slices_t *s, int part) {
    return part == TOKENS_WHOLE ? 0 : s->tokens / TR_CUDA_HEAD_PACK * TR_CUDA_HEAD_PACK;
}
static int64_t head_token_count(const tr_head_slices_t *s, int part) {
    const int64_t whole = head_first_token(s, TOKENS_BEYOND);
    return part == TOKENS_WHOLE ? whole : s->tokens - whole;
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
    const int64_t tokens = head_token_count(s, part);
    products_t *p = &h->products[place][part];
    if (tokens == 0) return TR_OK;
    TR_TRY(plan_product(device, h,
                        (cuda_product_t){.in = s->dtype,
                                         .out = TR_F32,
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
                                                     head_token_count(s, TOKENS_BEYOND) > 0},
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
                                         .beta = tr_head_place_beta(s, place)},
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

/* The elements of a slice's logits, at most. The bits of dw depend on it, so it is a power of two and
 * follows from the memory of the GPU, whether that is free or not: all ranks and later runs on such
 * GPUs get the same. */
static tr_status_t head_slice_elems(tr_device_t *device, int64_t *out) {
    size_t total = 0;
    TR_TRY(tr_cuda_total_memory(device, &total));
    *out = 1;
    while (*out < MAX_SLICE_ELEMS && 2 * *out <= (int64_t)(total / MEMORY_PARTS / LOGIT_BYTES))
        *out *= 2;
    return TR_OK;
}

CUDA_KERNEL_PREPARE(head_loss) {
    head_t *h = NULL;
    int64_t slice_elems = 0;
    tr_status_t status = TR_OK;
    TR_TRY(head_slice_elems(device, &slice_elems));
    TR_TRY(tr_alloc(sizeof *h, "a head", &h));
    h->slices = tr_head_slices(call, slice_elems, SCRATCH_ALIGN);
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
    *out_scratch_bytes = h->slices.logits_bytes + h->slices.narrow_bytes + h->workspace_bytes;
    return TR_OK;
}

static tr_status_t cuda_head_run_slice(tr_device_t *device, tr_stream_t *stream, const head_t *h,
                                       const tr_kernel_call_t *call, int64_t i) {
    const tr_head_slices_t *s = &h->slices;
    const products_t *parts = h->products[tr_head_place(s, i)];
    const int64_t first = i * s->slice;
    const size_t bytes = tr_dtype_bytes(s->dtype), row_bytes = (size_t)s->width * bytes;
    char *scratch = call->scratch, *narrow = scratch + s->logits_bytes,
         *workspace = narrow + s->narrow_bytes;
    float *logits = call->scratch;
    char *grad = !s->has_dx && !s->has_dw ? NULL : s->narrow_bytes ? narrow : scratch;
    const char *x = (const char *)call->in[TR_HEAD_X].data + (size_t)first * row_bytes,
               *w = call->in[TR_HEAD_W].data;
    for (int part = 0; part < TOKEN_PARTS; part++) {
        const int64_t token = head_first_token(s, part);
        if (parts[part].logits)
            TR_TRY(tr_cuda_product_run(device, stream, parts[part].logits, x,
                                       w + (size_t)token * row_bytes, NULL, logits + token,
                                       workspace));
    }
    const cuda_head_rows_t rows = {.first = first,
                                   .count = tr_head_slice_rows(s, i),
                                   .per_sample = s->rows / call->in[TR_HEAD_WEIGHT].shape.dim[0],
                                   .tokens = s->tokens,
                                   .stride = s->stride,
                                   .label = call->in[TR_HEAD_LABEL].data,
                                   .narrow_label = call->in[TR_HEAD_LABEL].dtype == TR_I32,
                                   .weight = call->in[TR_HEAD_WEIGHT].data,
                                   .dloss = grad && cuda_present(&call->in[TR_HEAD_DLOSS])
                                                ? call->in[TR_HEAD_DLOSS].data
                                                : NULL,
                                   .loss = call->out[TR_HEAD_LOSS].data,
                                   .counted = call->out[TR_HEAD_COUNT].data};
    TR_TRY(tr_cuda_head_rows(stream, &rows, logits, grad, s->dtype));
    for (int part = 0; part < TOKEN_PARTS; part++) {
        const products_t *p = &parts[part];
        const size_t token = (size_t)head_first_token(s, part);
        const char *own = grad + token * bytes;
        if (p->dx) {
            char *dx = (char *)call->out[TR_HEAD_DX].data + (size_t)first * row_bytes;
            TR_TRY(tr_cuda_product_run(device, stream, p->dx, own, w + token * row_bytes, NULL, dx,
                                       workspace));
        }
        if (p->dw) {
            float *dw = (float *)call->out[TR_HEAD_DW].data + token * (size_t)s->width;
            TR_TRY(tr_cuda_product_run(device, stream, p->dw, own, x, NULL, dw, workspace));
        }
    }
    return TR_OK;
}

CUDA_KERNEL(head_loss) {
    const head_t *h = call->state;
    for (int64_t i = 0; i < h->slices.slices; i++)
        TR_TRY(cuda_head_run_slice(device, stream, h, call, i));
    return TR_OK;
}
