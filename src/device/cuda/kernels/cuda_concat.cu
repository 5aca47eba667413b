/* Tensors side by side along their last dimension, and ranges of it. */
#include "cuda_types.cuh"

enum { THREADS = 256 };

/* Copies rows of `columns` elements between arrays whose rows begin `x_stride` and `y_stride`
 * elements apart. Neighbouring threads copy neighbouring elements. */
template <typename T>
static __global__ void __launch_bounds__(THREADS)
    concat_rows_kernel(const T *x, int64_t x_stride, T *y, int64_t y_stride, int64_t columns, int64_t n) {
    for (int64_t i = global_thread(); i < n; i += global_threads())
        y[i / columns * y_stride + i % columns] = x[i / columns * x_stride + i % columns];
}

/* x, y: of type `dtype`; n elements in all. */
static tr_status_t copy_rows(tr_device_t *device, tr_stream_t *stream, tr_dtype_t dtype,
                             const void *x, int64_t x_stride, void *y, int64_t y_stride,
                             int64_t columns, int64_t n) {
    if (n == 0) return TR_OK;
    CUDA_BY_TYPE(dtype, T, {
        const unsigned blocks = cuda_blocks(n, THREADS, tr_cuda_grid_limit(device));
        CUDA_LAUNCH((concat_rows_kernel<T>), blocks, THREADS, stream, (const T *)x, x_stride, (T *)y,
                    y_stride, columns, n);
    });
    return TR_OK;
}

static int64_t last_dim(const tr_view_t *view) {
    return view->shape.dim[view->shape.ndim - 1];
}

CUDA_KERNEL(concat) {
    const tr_view_t *y = &call->out[0];
    char *at = (char *)y->data;
    for (int i = 0; i < call->n_in; i++) {
        const tr_view_t *x = &call->in[i];
        const int64_t columns = last_dim(x);
        TR_TRY(copy_rows(device, stream, y->dtype, x->data, columns, at, last_dim(y), columns,
                         tr_shape_elems(&x->shape)));
        at += columns * (int64_t)tr_dtype_bytes(y->dtype);
    }
    return TR_OK;
}

CUDA_KERNEL(columns) {
    const tr_columns_attr_t *attr = (const tr_columns_attr_t *)call->attr;
    const tr_view_t *x = &call->in[0], *y = &call->out[0];
    const char *from = (const char *)x->data + attr->first * (int64_t)tr_dtype_bytes(x->dtype);
    return copy_rows(device, stream, y->dtype, from, last_dim(x), y->data, last_dim(y), last_dim(y),
                     tr_shape_elems(&y->shape));
}
