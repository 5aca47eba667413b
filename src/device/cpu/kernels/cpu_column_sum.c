/* The sum over rows. Rows are split into chunks that depend only on the shape, so that the result
 * does not depend on the number of threads. */
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_types.h"
#include <string.h>

#define CHUNK_ELEMS 32768
#define MAX_CHUNKS  64

static int chunk_count(const tr_shape_t *shape) {
    int64_t rows = shape->dim[0], chunks = rows * shape->dim[1] / CHUNK_ELEMS;
    if (chunks > MAX_CHUNKS) chunks = MAX_CHUNKS;
    if (chunks > rows) chunks = rows;
    return chunks > 1 ? (int)chunks : 1;
}

CPU_KERNEL_PREPARE(column_sum) {
    int chunks = chunk_count(&call->in[0].shape);
    *out_state = NULL;
    *out_scratch_bytes =
        chunks > 1 ? (size_t)chunks * (size_t)call->in[0].shape.dim[1] * sizeof(float) : 0;
    *out_scratch_bytes += tr_cpu_adding_bytes(call);
    return TR_OK;
}

/* Four rows at a time: a quarter of the traffic on `sum`. */
CPU_INLINE void sum_rows(const void *x, int64_t rows, int64_t columns, float *sum, int type) {
    int64_t i = 0;
    memset(sum, 0, (size_t)columns * sizeof *sum);
    for (; i + 4 <= rows; i += 4, x = cpu_at(x, 4 * columns, type))
        for (int64_t j = 0; j < columns; j++)
            sum[j] += (cpu_get(x, j, type) + cpu_get(x, columns + j, type)) +
                      (cpu_get(x, 2 * columns + j, type) + cpu_get(x, 3 * columns + j, type));
    for (; i < rows; i++, x = cpu_at(x, columns, type))
        for (int64_t j = 0; j < columns; j++) sum[j] += cpu_get(x, j, type);
}

static tr_status_t overwrite_sum(tr_device_t *device, tr_stream_t *stream,
                                 const tr_kernel_call_t *call) {
    const void *x = call->in[0].data;
    tr_dtype_t dtype = call->in[0].dtype;
    float *y = call->out[0].data, *part = call->scratch;
    int64_t rows = call->in[0].shape.dim[0], columns = call->in[0].shape.dim[1];
    int chunks = chunk_count(&call->in[0].shape);
    if (chunks == 1) {
        CPU_BY_TYPE(dtype, t, sum_rows(x, rows, columns, y, t));
        return TR_OK;
    }
#pragma omp parallel for num_threads(device->threads) schedule(static)
    for (int i = 0; i < chunks; i++) {
        cpu_range_t range = cpu_range(rows, 1, chunks, i);
        int64_t at = range.first * columns, count = range.last - range.first;
        CPU_BY_TYPE(dtype, t, sum_rows(cpu_at(x, at, t), count, columns, part + i * columns, t));
    }
    sum_rows(part, chunks, columns, y, TR_F32);
    return TR_OK;
}

CPU_KERNEL(column_sum) {
    return tr_cpu_run_adding(device, stream, call, overwrite_sum);
}
