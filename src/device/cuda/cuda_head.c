/*
 * HEAD_LOSS: a slice of rows at a time, whose logits become their own gradients in place and are
 * multiplied at once, so that the logits are never whole in memory. Products by cuBLASLt, the loss
 * of a row by cuda_head_rows.cu.
 */
#include "cuda_head.h"
#include "cuda_product.h"
#include "base/mem.h"

enum { X, W, LABEL, WEIGHT, DLOSS };
enum { LOSS, COUNT, DX, DW };
/* Elements of a slice's logits (128 MiB). Their rows are padded to 16 elements, for products are
 * faster where rows are aligned. */
enum { SLICE_ELEMS = 1 << 25, ALIGN = 16 };
#define SCRATCH_ALIGN 256

/* logits = x w^T, dx = dlogits w, dw (+)= dlogits^T x. NULL: not needed. */
typedef struct {
    cuda_product_plan_t *logits, *dx, *dw;
} products_t;

/* The first slice begins dw, the others add to it; the last may have fewer rows. */
enum { FIRST, MIDDLE, LAST, PLACES };
typedef struct {
    int64_t rows, width, tokens, stride; /* R, C, V; elements from row to row of the logits */
    int64_t slice, slices;               /* rows of a slice; how many there are */
    tr_dtype_t dtype;
    size_t logits_bytes, narrow_bytes, workspace_bytes; /* of scratch, in this order */
    products_t products[PLACES];
} head_t;

static int64_t slice_rows(const head_t *h, int64_t i) {
    return i + 1 < h->slices ? h->slice : h->rows - i * h->slice;
}

static int place_of(const head_t *h, int64_t i) {
    return i == 0 ? FIRST : i + 1 == h->slices ? LAST : MIDDLE;
}

static size_t aligned(size_t bytes) {
    return (bytes + SCRATCH_ALIGN - 1) / SCRATCH_ALIGN * SCRATCH_ALIGN;
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

static tr_status_t plan_place(tr_device_t *device, head_t *h, const tr_kernel_call_t *call,
                              int place, int64_t rows) {
    products_t *p = &h->products[place];
    TR_TRY(plan_product(device, h,
                        (cuda_product_t){.in = h->dtype,
                                         .out = TR_F32,
                                         .trans_b = true,
                                         .m = rows,
                                         .n = h->tokens,
                                         .k = h->width,
                                         .c_row = h->stride},
                        &p->logits));
    if (cuda_present(&call->out[DX]))
        TR_TRY(plan_product(device, h,
                            (cuda_product_t){.in = h->dtype,
                                             .out = h->dtype,
                                             .m = rows,
                                             .n = h->width,
                                             .k = h->tokens,
                                             .a_row = h->stride},
                            &p->dx));
    if (!cuda_present(&call->out[DW])) return TR_OK;
    return plan_product(device, h,
                        (cuda_product_t){.in = h->dtype,
                                         .out = TR_F32,
                                         .trans_a = true,
                                         .m = h->tokens,
                                         .n = h->width,
                                         .k = rows,
                                         .a_row = h->stride,
                                         .beta = place == FIRST ? 0 : 1},
                        &p->dw);
}

CUDA_KERNEL_RELEASE(head_loss) {
    head_t *h = state;
    (void)device;
    for (int place = 0; h && place < PLACES; place++) {
        tr_cuda_product_release(&h->products[place].logits);
        tr_cuda_product_release(&h->products[place].dx);
        tr_cuda_product_release(&h->products[place].dw);
    }
    tr_free(&h);
}

CUDA_KERNEL_PREPARE(head_loss) {
    const bool has_grad = cuda_present(&call->out[DX]) || cuda_present(&call->out[DW]);
    head_t *h = NULL;
    TR_TRY(tr_alloc(sizeof *h, "a head", &h));
    h->rows = call->in[X].shape.dim[0], h->width = call->in[X].shape.dim[1];
    h->tokens = call->in[W].shape.dim[0];
    h->stride = (h->tokens + ALIGN - 1) / ALIGN * ALIGN;
    h->dtype = call->in[X].dtype;
    h->slice = SLICE_ELEMS / h->stride;
    if (h->slice > h->rows) h->slice = h->rows;
    if (h->slice < 1) h->slice = 1;
    h->slices = (h->rows + h->slice - 1) / h->slice;
    const size_t elems = (size_t)(h->slice * h->stride);
    h->logits_bytes = aligned(elems * sizeof(float));
    h->narrow_bytes = has_grad && h->dtype != TR_F32 ? aligned(elems * sizeof(uint16_t)) : 0;
    tr_status_t status = TR_OK;
    const int64_t shown[PLACES] = {0, 1, h->slices - 1}; /* a slice at each place */
    for (int place = 0; place < PLACES && status == TR_OK; place++)
        if (shown[place] < h->slices && place_of(h, shown[place]) == place)
            status = plan_place(device, h, call, place, slice_rows(h, shown[place]));
    if (status != TR_OK) {
        tr_cuda_head_loss_release(device, h);
        return status;
    }
    *out_state = h;
    *out_scratch_bytes = h->logits_bytes + h->narrow_bytes + h->workspace_bytes;
    return TR_OK;
}

static tr_status_t run_slice(tr_device_t *device, tr_stream_t *stream, const head_t *h,
                             const tr_kernel_call_t *call, int64_t i) {
    const products_t *p = &h->products[place_of(h, i)];
    const int64_t first = i * h->slice;
    const size_t row_bytes = (size_t)h->width * tr_dtype_bytes(h->dtype);
    char *logits = call->scratch, *narrow = logits + h->logits_bytes,
         *workspace = narrow + h->narrow_bytes;
    void *grad = !p->dx && !p->dw ? NULL : h->narrow_bytes ? narrow : logits;
    const void *x = (const char *)call->in[X].data + (size_t)first * row_bytes,
               *w = call->in[W].data;
    TR_TRY(tr_cuda_product_run(device, stream, p->logits, x, w, NULL, logits, workspace));
    const cuda_head_rows_t rows = {
        .first = first,
        .count = slice_rows(h, i),
        .per_sample = h->rows / call->in[WEIGHT].shape.dim[0],
        .tokens = h->tokens,
        .stride = h->stride,
        .label = call->in[LABEL].data,
        .narrow_label = call->in[LABEL].dtype == TR_I32,
        .weight = call->in[WEIGHT].data,
        .dloss = grad && cuda_present(&call->in[DLOSS]) ? call->in[DLOSS].data : NULL,
        .loss = call->out[LOSS].data,
        .counted = call->out[COUNT].data};
    TR_TRY(tr_cuda_head_rows(stream, &rows, (float *)logits, grad, h->dtype));
    if (p->dx) {
        char *dx = (char *)call->out[DX].data + (size_t)first * row_bytes;
        TR_TRY(tr_cuda_product_run(device, stream, p->dx, grad, w, NULL, dx, workspace));
    }
    if (!p->dw) return TR_OK;
    return tr_cuda_product_run(device, stream, p->dw, grad, x, NULL, call->out[DW].data, workspace);
}

CUDA_KERNEL(head_loss) {
    const head_t *h = call->state;
    for (int64_t i = 0; i < h->slices; i++) TR_TRY(run_slice(device, stream, h, call, i));
    return TR_OK;
}
