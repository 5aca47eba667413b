/* Concatenation along the last dimension, and ranges of it. */
#include "device/cpu/cpu_int.h"

#include <string.h>

/* Copies `rows` rows of `bytes` bytes between arrays with rows *_stride bytes apart. */
static void cpu_concat_copy_rows(const tr_device_t *device, const char *x, int64_t x_stride,
                                 char *y, int64_t y_stride, int64_t bytes, int64_t rows) {
    const int threads = cpu_threads(device, rows * bytes / 4);
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int64_t r = 0; r < rows; r++) memcpy(y + r * y_stride, x + r * x_stride, (size_t)bytes);
}

static int64_t row_bytes(const tr_view_t *view) {
    return view->shape.dim[view->shape.ndim - 1] * (int64_t)tr_dtype_bytes(view->dtype);
}

static int64_t cpu_concat_rows_of(const tr_view_t *view) {
    return tr_shape_elems(&view->shape) / view->shape.dim[view->shape.ndim - 1];
}

CPU_KERNEL(concat) {
    const tr_view_t *y = &call->out[0];
    char *at = y->data;
    for (int i = 0; i < call->n_in; at += row_bytes(&call->in[i]), i++) {
        const int64_t bytes = row_bytes(&call->in[i]);
        cpu_concat_copy_rows(device, call->in[i].data, bytes, at, row_bytes(y), bytes,
                             cpu_concat_rows_of(y));
    }
    return TR_OK;
}

CPU_KERNEL(columns) {
    const tr_columns_attr_t *attr = call->attr;
    const tr_view_t *x = &call->in[0], *y = &call->out[0];
    const char *from = x->data;
    from += attr->first * (int64_t)tr_dtype_bytes(x->dtype);
    cpu_concat_copy_rows(device, from, row_bytes(x), y->data, row_bytes(y), row_bytes(y),
                         cpu_concat_rows_of(y));
    return TR_OK;
}
