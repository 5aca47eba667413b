/* The head of a language model with its loss. It processes a slice of rows at a time: the logits
 * are replaced by their gradients in place and multiplied at once. They stay in the cache, and all
 * logits are never in memory. */
#include "cpu_loss.h"
#include "device/cpu/cpu_onednn.h"
#include "device/cpu/cpu_types.h"
#include "base/mem.h"

enum { X, W, LABEL, WEIGHT, DLOSS };
enum { LOSS, COUNT, DX, DW };
/* Operations an element costs beside a copy; elements of a slice's logits (64 MiB), and to what
 * rows of them are padded. */
enum { COST = 8, SLICE_ELEMS = 1 << 24, ALIGN = 16 };

/* The products of a slice: logits = x w^T, dx = dlogits w, dw (+)= dlogits^T x. */
typedef struct {
    cpu_dnn_t *logits, *dx, *dw;
} products_t;

/* The first slice begins dw, the others add to it; the last may have fewer rows. */
enum { FIRST, MIDDLE, LAST, PLACES };
typedef struct {
    int64_t rows, width, tokens, stride; /* R, C, V; elements of a row of logits */
    int64_t slice, slices;               /* rows of a slice; how many there are */
    tr_dtype_t dtype;
    size_t logits_bytes, narrow_bytes, product_bytes; /* of scratch, in this order */
    products_t products[PLACES];
} head_t;

static int64_t slice_rows(const head_t *h, int64_t i) {
    return i + 1 < h->slices ? h->slice : h->rows - i * h->slice;
}
static int place_of(const head_t *h, int64_t i) {
    return i == 0 ? FIRST : i + 1 == h->slices ? LAST : MIDDLE;
}
static size_t aligned(size_t bytes) {
    return (bytes + 63) / 64 * 64;
}

static cpu_dnn_tensor_t matrix(tr_dtype_t dtype, int64_t rows, int64_t columns, int64_t row,
                               int64_t column) {
    return (cpu_dnn_tensor_t){2, {rows, columns}, {row, column}, dtype};
}

static tr_status_t make_product(head_t *h, int threads, cpu_dnn_tensor_t a, cpu_dnn_tensor_t b,
                                cpu_dnn_tensor_t c, float beta, cpu_dnn_t **out) {
    const cpu_dnn_desc_t desc = {.kind = CPU_DNN_MATMUL,
                                 .src = a,
                                 .weights = b,
                                 .dst = c,
                                 .alpha = 1,
                                 .beta = beta,
                                 .threads = threads};
    TR_TRY(tr_cpu_dnn_create(&desc, out));
    const size_t bytes = tr_cpu_dnn_scratch_bytes(*out);
    if (bytes > h->product_bytes) h->product_bytes = bytes;
    return TR_OK;
}

static tr_status_t make_products(head_t *h, const tr_kernel_call_t *call, int threads, int place,
                                 int64_t rows) {
    products_t *p = &h->products[place];
    const int64_t c = h->width, v = h->tokens, s = h->stride;
    TR_TRY(make_product(h, threads, matrix(h->dtype, rows, c, c, 1), matrix(h->dtype, c, v, 1, c),
                        matrix(TR_F32, rows, v, s, 1), 0, &p->logits));
    if (cpu_present(&call->out[DX]))
        TR_TRY(make_product(h, threads, matrix(h->dtype, rows, v, s, 1),
                            matrix(h->dtype, v, c, c, 1), matrix(h->dtype, rows, c, c, 1), 0,
                            &p->dx));
    if (cpu_present(&call->out[DW]))
        TR_TRY(make_product(h, threads, matrix(h->dtype, v, rows, 1, s),
                            matrix(h->dtype, rows, c, c, 1), matrix(TR_F32, v, c, c, 1),
                            place == FIRST ? 0 : 1, &p->dw));
    return TR_OK;
}

CPU_KERNEL_RELEASE(head_loss) {
    head_t *h = state;
    for (int place = 0; h && place < PLACES; place++) {
        tr_cpu_dnn_destroy(&h->products[place].logits);
        tr_cpu_dnn_destroy(&h->products[place].dx);
        tr_cpu_dnn_destroy(&h->products[place].dw);
    }
    tr_free(&h);
}

CPU_KERNEL_PREPARE(head_loss) {
    const bool has_grad = cpu_present(&call->out[DX]) || cpu_present(&call->out[DW]);
    head_t *h = NULL;
    *out_state = NULL;
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
            status = make_products(h, call, device->threads, place, slice_rows(h, shown[place]));
    if (status != TR_OK) {
        tr_cpu_head_loss_release(device, h);
        return status;
    }
    *out_state = h;
    *out_scratch_bytes = h->logits_bytes + h->narrow_bytes + h->product_bytes;
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
static void slice_loss(const tr_device_t *device, const head_t *h, const tr_kernel_call_t *call,
                       int64_t first, int64_t rows, float *logits, void *grad) {
    const int64_t per_sample = h->rows / call->in[WEIGHT].shape.dim[0];
    const float *weight = call->in[WEIGHT].data, *dloss = grad ? call->in[DLOSS].data : NULL;
    float *loss = call->out[LOSS].data, *count = call->out[COUNT].data;
#pragma omp parallel for num_threads(cpu_threads(device, rows * h->tokens * COST)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        const int64_t row = first + i, label = cpu_label(&call->in[LABEL], row), at = i * h->stride;
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

static tr_status_t run_slice(const tr_device_t *device, const head_t *h,
                             const tr_kernel_call_t *call, int64_t i) {
    const products_t *p = &h->products[place_of(h, i)];
    const int64_t first = i * h->slice;
    char *logits = call->scratch, *narrow = logits + h->logits_bytes,
         *rest = narrow + h->narrow_bytes;
    void *grad = !p->dx && !p->dw ? NULL : h->narrow_bytes ? narrow : logits;
    void *x = cpu_at_out(call->in[X].data, first * h->width, h->dtype), *w = call->in[W].data;
    TR_TRY(tr_cpu_dnn_run(p->logits, &(cpu_dnn_data_t){x, w, NULL, logits}, rest));
    slice_loss(device, h, call, first, slice_rows(h, i), (float *)logits, grad);
    if (p->dx) {
        void *dx = cpu_at_out(call->out[DX].data, first * h->width, h->dtype);
        TR_TRY(tr_cpu_dnn_run(p->dx, &(cpu_dnn_data_t){grad, w, NULL, dx}, rest));
    }
    if (!p->dw) return TR_OK;
    return tr_cpu_dnn_run(p->dw, &(cpu_dnn_data_t){grad, x, NULL, call->out[DW].data}, rest);
}

CPU_KERNEL(head_loss) {
    const head_t *h = call->state;
    for (int64_t i = 0; i < h->slices; i++) TR_TRY(run_slice(device, h, call, i));
    return TR_OK;
}
