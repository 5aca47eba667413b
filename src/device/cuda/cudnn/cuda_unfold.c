/* Filter gradients of convolutions of few channels as products. */
#include "cuda_unfold.h"
#include "base/mem.h"
#include "device/cuda/cuda_place.h"
#include "device/cuda/cuda_product.h"

/* The unfolded images of a slice, at most; of the memory of the GPU, at most so small a part. */
#define SLICE_BYTES ((size_t)256 << 20)

enum {
    SLICE_SHARE = 256,
    MOST_COLUMNS = 256,       /* more channels than a first layer has are for cuDNN */
    MOST_SHARED = 48 << 10,   /* bytes that every GPU gives a block */
    PIECE_POSITIONS = 1 << 12 /* of a product, at least, where there are so many */
};

/* Scratch: u; the results of all pieces; their sum; the workspace. */
struct cuda_unfold_plan {
    cuda_unfold_t unfold;
    cuda_product_plan_t *product; /* of a slice; its pieces are a batch */
    int64_t images, slice,
        piece;                /* piece divides slice, slice images. Pieces follow from the shape. */
    int64_t outputs;          /* K */
    size_t x_bytes, dy_bytes; /* of an image */
    size_t pieces_at, sum_at, workspace_at;
};

static cuda_unfold_t unfold_of(const cuda_dnn_conv_t *c) {
    const tr_conv_attr_t *a = c->attr;
    cuda_unfold_t u = {.channels = (int)c->x.dim[c->x.ndim - 1], .taps = 1};
    for (int i = 0; i < 3; i++) {
        const int d = i - (3 - a->spatial);
        u.size[i] = d < 0 ? 1 : (int)c->x.dim[1 + d];
        u.out[i] = d < 0 ? 1 : (int)c->y.dim[1 + d];
        u.kernel[i] = d < 0 ? 1 : a->kernel[d];
        u.stride[i] = d < 0 ? 1 : a->stride[d];
        u.pad[i] = d < 0 ? 0 : a->pad_lo[d];
        u.dilation[i] = d < 0 ? 1 : a->dilation[d];
        u.taps *= u.kernel[i];
    }
    u.columns = (u.taps * u.channels + CUDA_UNFOLD_PACK - 1) / CUDA_UNFOLD_PACK * CUDA_UNFOLD_PACK;
    u.line = ((u.out[2] - 1) * u.stride[2] + (u.kernel[2] - 1) * u.dilation[2] + 1) * u.channels;
    return u;
}

static bool unfold_suits(const cuda_dnn_conv_t *c) {
    const int64_t channels = c->x.dim[c->x.ndim - 1], outputs = c->y.dim[c->y.ndim - 1];
    if (!tr_dtype_is_half(c->dtype) || c->attr->groups != 1 ||
        channels % CUDA_UNFOLD_PACK == 0 || outputs % CUDA_UNFOLD_PACK != 0 ||
        tr_shape_elems(&c->w) > MOST_COLUMNS * outputs)
        return false;
    const cuda_unfold_t u = unfold_of(c);
    return cuda_unfold_shared_bytes(&u) <= MOST_SHARED;
}

/* Images of a piece and of a slice; slice 0: not even a piece fits. */
static tr_status_t unfold_cut(tr_device_t *device, int64_t positions, cuda_unfold_plan_t *p) {
    const size_t image_bytes = (size_t)(positions * p->unfold.columns) * 2;
    size_t memory = 0;
    TR_TRY(tr_cuda_total_memory(device, &memory));
    const size_t bytes = memory / SLICE_SHARE < SLICE_BYTES ? memory / SLICE_SHARE : SLICE_BYTES;
    for (p->piece = 1; p->piece * positions < PIECE_POSITIONS && p->images % (2 * p->piece) == 0;)
        p->piece *= 2;
    for (int64_t n = p->piece; n <= p->images && (size_t)n * image_bytes <= bytes; n += p->piece)
        if (p->images % n == 0) p->slice = n;
    return TR_OK;
}

/* The results of all pieces to their sum (K, columns), as a call of COLUMN_SUM. */
static tr_kernel_call_t unfold_join(const cuda_unfold_plan_t *p) {
    const int64_t elems = p->outputs * p->unfold.columns;
    return (tr_kernel_call_t){
        .n_in = 1,
        .n_out = 1,
        .in = {{.dtype = TR_F32, .shape = TR_SHAPE(p->images / p->piece, elems)}},
        .out = {{.dtype = TR_F32, .shape = TR_SHAPE(elems)}}};
}

static tr_status_t unfold_prepare(tr_device_t *device, const cuda_dnn_conv_t *c, int64_t positions,
                                  cuda_unfold_plan_t *p, size_t *out_scratch_bytes) {
    const int64_t columns = p->unfold.columns, elems = p->outputs * columns;
    const cuda_product_t product = {.in = c->dtype,
                                    .out = TR_F32,
                                    .trans_a = true,
                                    .m = p->outputs,
                                    .n = columns,
                                    .k = p->piece * positions,
                                    .batch = p->slice / p->piece,
                                    .b_step = p->piece * positions * columns,
                                    .alpha = 1};
    const tr_kernel_call_t join = unfold_join(p);
    const size_t u_bytes = (size_t)(p->slice * positions * columns) * 2;
    size_t join_bytes = 0;
    void *none = NULL;
    TR_TRY(tr_cuda_column_sum_prepare(device, &join, &none, &join_bytes));
    TR_TRY(tr_cuda_product_find(device, &product, &p->product, out_scratch_bytes));
    p->pieces_at = cuda_place_bytes(u_bytes > join_bytes ? u_bytes : join_bytes);
    p->sum_at = p->pieces_at + cuda_place_bytes((size_t)(p->images / p->piece * elems) * 4);
    p->workspace_at = p->sum_at + cuda_place_bytes((size_t)elems * 4);
    *out_scratch_bytes += p->workspace_at;
    return TR_OK;
}

tr_status_t tr_cuda_unfold_plan(tr_device_t *device, const cuda_dnn_conv_t *c,
                                cuda_unfold_plan_t **out, size_t *out_scratch_bytes) {
    const int64_t images = c->x.dim[0], outputs = c->y.dim[c->y.ndim - 1],
                  positions = tr_shape_elems(&c->y) / (images * outputs);
    cuda_unfold_plan_t *p = *out = NULL;
    if (!unfold_suits(c)) return TR_OK;
    TR_TRY(tr_alloc(sizeof *p, "a convolution", &p));
    *p = (cuda_unfold_plan_t){.unfold = unfold_of(c),
                              .images = images,
                              .outputs = outputs,
                              .x_bytes = (size_t)(tr_shape_elems(&c->x) / images) * 2,
                              .dy_bytes = (size_t)(positions * outputs) * 2};
    tr_status_t status = unfold_cut(device, positions, p);
    if (status == TR_OK && p->slice > 0)
        status = unfold_prepare(device, c, positions, p, out_scratch_bytes);
    if (status != TR_OK || !p->product) tr_cuda_unfold_release(&p);
    return *out = p, status;
}

void tr_cuda_unfold_release(cuda_unfold_plan_t **plan) {
    if (!*plan) return;
    tr_cuda_product_release(&(*plan)->product);
    tr_free(plan);
}

tr_status_t tr_cuda_unfold_run(tr_device_t *device, tr_stream_t *stream,
                               const cuda_unfold_plan_t *p, const cuda_dnn_data_t *data,
                               void *scratch) {
    char *u = scratch, *pieces = u + p->pieces_at;
    const int64_t columns = p->unfold.columns, used = (int64_t)p->unfold.taps * p->unfold.channels;
    tr_kernel_call_t join = unfold_join(p);
    for (int64_t i = 0; i < p->images; i += p->slice) {
        TR_TRY(tr_cuda_unfold(stream, (char *)data->x + (size_t)i * p->x_bytes, u, &p->unfold,
                              p->slice));
        TR_TRY(tr_cuda_product_run(
            device, stream, p->product, (char *)data->y + (size_t)i * p->dy_bytes, u, NULL,
            pieces + (size_t)(i / p->piece * p->outputs * columns) * 4, u + p->workspace_at));
    }
    join.in[0].data = pieces, join.out[0].data = u + p->sum_at;
    join.scratch = u; /* the last slice has been used */
    TR_TRY(tr_cuda_column_sum(device, stream, &join));
    return tr_cuda_pad_columns(device, stream, join.out[0].data, data->w, TR_F32, p->outputs,
                               columns, used);
}
