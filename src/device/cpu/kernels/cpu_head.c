/* The head of a language model with its loss. It processes a slice of rows at a time: the logits
 * are replaced by their gradients in place and multiplied at once. They stay in the cache, and all
 * logits are never in memory. */
#include "device/kernel_parts.h"
#include "cpu_loss.h"
#include "device/cpu/cpu_product.h"
#include "device/cpu/cpu_types.h"
#include "base/mem.h"

/* Operations an element costs beside a copy; elements of a slice's logits (64 MiB), and of what its
 * rows are padded to. */
enum { COST = 8, SLICE_ELEMS = 1 << 24, ROW_ELEMS = 16, SCRATCH_ALIGN = 64 };

/* The products of a slice: logits = x w^T, dx = dlogits w, dw (+)= dlogits^T x. */
typedef struct {
    cpu_product_t *logits, *dx, *dw;
} products_t;

typedef struct {
    tr_head_slices_t slices;
    size_t product_bytes; /* of scratch, after the logits */
    products_t products[TR_HEAD_PLACES];
} head_t;

static cpu_dnn_tensor_t matrix(tr_dtype_t dtype, int64_t rows, int64_t columns, int64_t row,
                               int64_t column) {
    return (cpu_dnn_tensor_t){2, {rows, columns}, {row, column}, dtype};
}

static tr_status_t make_product(head_t *h, int threads, cpu_dnn_tensor_t a, cpu_dnn_tensor_t b,
                                cpu_dnn_tensor_t c, float beta, cpu_product_t **out) {
    const cpu_dnn_desc_t desc = {.kind = CPU_DNN_MATMUL,
                                 .src = a,
                                 .weights = b,
                                 .dst = c,
                                 .alpha = 1,
                                 .beta = beta,
                                 .threads = threads};
    TR_TRY(tr_cpu_product_create(&desc, out));
    const size_t bytes = tr_cpu_product_scratch_bytes(*out);
    if (bytes > h->product_bytes) h->product_bytes = bytes;
    return TR_OK;
}

static tr_status_t make_products(head_t *h, int threads, int place, int64_t rows) {
    const tr_head_slices_t *s = &h->slices;
    products_t *p = &h->products[place];
    const int64_t c = s->width, v = s->tokens, apart = s->stride;
    TR_TRY(make_product(h, threads, matrix(s->dtype, rows, c, c, 1), matrix(s->dtype, c, v, 1, c),
                        matrix(TR_F32, rows, v, apart, 1), 0, &p->logits));
    if (s->has_dx)
        TR_TRY(make_product(h, threads, matrix(s->dtype, rows, v, apart, 1),
                            matrix(s->dtype, v, c, c, 1), matrix(s->dtype, rows, c, c, 1), 0,
                            &p->dx));
    if (s->has_dw)
        TR_TRY(make_product(h, threads, matrix(s->dtype, v, rows, 1, apart),
                            matrix(s->dtype, rows, c, c, 1), matrix(TR_F32, v, c, c, 1),
                            tr_head_place_beta(s, place), &p->dw));
    return TR_OK;
}

CPU_KERNEL_RELEASE(head_loss) {
    head_t *h = state;
    for (int place = 0; h && place < TR_HEAD_PLACES; place++) {
        tr_cpu_product_destroy(&h->products[place].logits);
        tr_cpu_product_destroy(&h->products[place].dx);
        tr_cpu_product_destroy(&h->products[place].dw);
    }
    tr_free(&h);
}

CPU_KERNEL_PREPARE(head_loss) {
    head_t *h = NULL;
    tr_status_t status = TR_OK;
    *out_state = NULL;
    TR_TRY(tr_alloc(sizeof *h, "a head", &h));
    h->slices = tr_head_slices(call, TR_F32, SLICE_ELEMS, ROW_ELEMS, SCRATCH_ALIGN);
    for (int place = 0; place < TR_HEAD_PLACES && status == TR_OK; place++) {
        const int64_t rows = tr_head_place_rows(&h->slices, place);
        if (rows > 0) status = make_products(h, device->threads, place, rows);
    }
    if (status != TR_OK) {
        tr_cpu_head_loss_release(device, h);
        return status;
    }
    *out_state = h;
    *out_scratch_bytes = h->slices.logits_bytes + h->slices.narrow_bytes + h->product_bytes;
    return TR_OK;
}

/* One row: its loss, and in `grad` the gradient factor (softmax - one-hot) of its logits x, which
 * are destroyed. */
CPU_INLINE float row_loss(float *x, int64_t width, int64_t label, float weight, float factor,
                          void *grad, int type) {
    double sum = 0;
    float max = x[0];
    const bool is_known = label >= 0 && label < width;
#pragma omp simd reduction(max : max)
    for (int64_t i = 1; i < width; i++) max = x[i] > max ? x[i] : max;
    const float own = is_known ? x[label] - max : NAN;
#pragma omp simd
    for (int64_t i = 0; i < width; i++) x[i] = cpu_exp_nonpositive(x[i] - max);
    CPU_LANE_SUM(sum, width, i, x[i]);
    const float share = is_known ? (float)(factor / sum) : NAN;
    if (is_known) x[label] -= (float)sum; /* softmax - 1, before the division */
    if (grad)
#pragma omp simd
        for (int64_t i = 0; i < width; i++) cpu_put(grad, i, share * x[i], type);
    return (float)(weight * (log(sum) - own));
}

/* Logits of the rows from `first` on -> losses, counts, and gradients in `grad` (NULL: none). */
static void slice_loss(const tr_device_t *device, const tr_head_slices_t *h,
                       const tr_kernel_call_t *call, int64_t first, int64_t rows, float *logits,
                       void *grad) {
    const int64_t per_sample = h->rows / call->in[TR_HEAD_WEIGHT].shape.dim[0];
    const float *weight = call->in[TR_HEAD_WEIGHT].data,
                *dloss = grad ? call->in[TR_HEAD_DLOSS].data : NULL;
    float *loss = call->out[TR_HEAD_LOSS].data, *count = call->out[TR_HEAD_COUNT].data;
#pragma omp parallel for num_threads(cpu_threads(device, rows * h->tokens * COST)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = first + i, label = cpu_label(&call->in[TR_HEAD_LABEL], row),
                      at = i * h->stride;
        const float own = label == -1 ? 0.0f : weight[row / per_sample];
        count[row] = own;
        CPU_BY_TYPE(h->dtype, t, {
            void *to = grad ? cpu_at_out(grad, at, t) : NULL;
            loss[row] = own == 0.0f ? 0.0f
                                    : row_loss(logits + at, h->tokens, label, own,
                                               dloss ? own * dloss[row] : 0.0f, to, t);
            for (int64_t c = 0; to && own == 0.0f && c < h->tokens; c++) cpu_put(to, c, 0.0f, t);
        });
    }
}

static tr_status_t cpu_head_run_slice(const tr_device_t *device, const head_t *h,
                                      const tr_kernel_call_t *call, int64_t i) {
    const tr_head_slices_t *s = &h->slices;
    const products_t *p = &h->products[tr_head_place(s, i)];
    const int64_t first = i * s->slice;
    char *logits = call->scratch, *narrow = logits + s->logits_bytes,
         *rest = narrow + s->narrow_bytes;
    void *grad = !p->dx && !p->dw ? NULL : s->narrow_bytes ? narrow : logits;
    void *x = cpu_at_out(call->in[TR_HEAD_X].data, first * s->width, s->dtype),
         *w = call->in[TR_HEAD_W].data;
    TR_TRY(tr_cpu_product_run(p->logits, &(cpu_dnn_data_t){x, w, NULL, logits}, rest));
    slice_loss(device, s, call, first, tr_head_slice_rows(s, i), (float *)logits, grad);
    if (p->dx) {
        void *dx = cpu_at_out(call->out[TR_HEAD_DX].data, first * s->width, s->dtype);
        TR_TRY(tr_cpu_product_run(p->dx, &(cpu_dnn_data_t){grad, w, NULL, dx}, rest));
    }
    if (!p->dw) return TR_OK;
    return tr_cpu_product_run(p->dw, &(cpu_dnn_data_t){grad, x, NULL, call->out[TR_HEAD_DW].data},
                              rest);
}

CPU_KERNEL(head_loss) {
    const head_t *h = call->state;
    for (int64_t i = 0; i < h->slices.slices; i++) TR_TRY(cpu_head_run_slice(device, h, call, i));
    return TR_OK;
}
