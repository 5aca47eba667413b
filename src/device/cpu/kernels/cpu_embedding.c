/* Embeddings. The gradient adds rows of equal ids in order, for any number of threads. */
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_types.h"
#include <string.h>

/* The columns of a thread start at multiples of this, a cache line. */
enum { COLUMN_ALIGN = 16 };

static int64_t cpu_embedding_id_at(const tr_view_t *ids, int64_t i) {
    switch (ids->dtype) {
    case TR_U16: return ((const uint16_t *)ids->data)[i];
    case TR_U32: return ((const uint32_t *)ids->data)[i];
    default: return ((const int32_t *)ids->data)[i];
    }
}

CPU_INLINE void row_forward(const void *token, const void *position, int64_t width, void *x,
                            int from, int type) {
    if (!token)
        for (int64_t c = 0; c < width; c++) cpu_put(x, c, NAN, type);
    else if (position)
        for (int64_t c = 0; c < width; c++)
            cpu_put(x, c, cpu_get(token, c, from) + cpu_get(position, c, from), type);
    else
        for (int64_t c = 0; c < width; c++) cpu_put(x, c, cpu_get(token, c, from), type);
}

CPU_KERNEL(embedding_fwd) {
    const tr_view_t *ids = &call->in[0];
    int64_t rows = tr_shape_elems(&ids->shape), steps = ids->shape.dim[ids->shape.ndim - 1];
    int64_t vocabulary = call->in[1].shape.dim[0], width = call->in[1].shape.dim[1];
    const void *wte = call->in[1].data, *wpe = cpu_present(&call->in[2]) ? call->in[2].data : NULL;
    const int from = (int)call->in[1].dtype;
    void *x = call->out[0].data;
#pragma omp parallel for num_threads(cpu_threads(device, rows *width)) schedule(static)
    for (int64_t i = 0; i < rows; i++) {
        int64_t id = cpu_embedding_id_at(ids, i);
        const void *token = id >= 0 && id < vocabulary ? cpu_at(wte, id * width, from) : NULL;
        const void *position = wpe ? cpu_at(wpe, i % steps * width, from) : NULL;
        CPU_BY_TYPE(
            from, f,
            CPU_BY_TYPE(call->out[0].dtype, t,
                        row_forward(token, position, width, cpu_at_out(x, i * width, t), f, t)));
    }
    return TR_OK;
}

CPU_INLINE void add_row(const void *dx, cpu_range_t columns, float *sum, int type) {
    for (int64_t c = columns.first; c < columns.last; c++) sum[c] += cpu_get(dx, c, type);
}

/* Processes all rows of the thread's columns: no two threads write to the same element. */
static void cpu_embedding_add_tokens(const tr_kernel_call_t *call, cpu_range_t columns) {
    const tr_view_t *dx = &call->in[0], *ids = &call->in[1], *dwte = &call->out[0];
    int64_t rows = tr_shape_elems(&ids->shape), vocabulary = dwte->shape.dim[0],
            width = dwte->shape.dim[1];
    size_t bytes = (size_t)(columns.last - columns.first) * sizeof(float);
    float *sum = dwte->data;
    for (int64_t v = 0; v < vocabulary && !((const tr_embedding_attr_t *)call->attr)->add; v++)
        memset(sum + v * width + columns.first, 0, bytes);
    for (int64_t i = 0; i < rows; i++) {
        int64_t id = cpu_embedding_id_at(ids, i);
        if (id < 0 || id >= vocabulary) continue;
        CPU_BY_TYPE(dx->dtype, t,
                    add_row(cpu_at(dx->data, i * width, t), columns, sum + id * width, t));
    }
}

static void add_positions(const tr_kernel_call_t *call, cpu_range_t columns) {
    const tr_view_t *dx = &call->in[0], *ids = &call->in[1], *dwpe = &call->out[1];
    int64_t steps = ids->shape.dim[ids->shape.ndim - 1],
            samples = tr_shape_elems(&ids->shape) / steps;
    int64_t positions = dwpe->shape.dim[0], width = dwpe->shape.dim[1];
    size_t bytes = (size_t)(columns.last - columns.first) * sizeof(float);
    for (int64_t p = 0; p < positions; p++) {
        float *sum = (float *)dwpe->data + p * width;
        memset(sum + columns.first, 0, bytes);
        for (int64_t b = 0; b < samples && p < steps; b++)
            CPU_BY_TYPE(dx->dtype, t,
                        add_row(cpu_at(dx->data, (b * steps + p) * width, t), columns, sum, t));
    }
}

CPU_KERNEL(embedding_bwd) {
    int64_t elems = tr_shape_elems(&call->in[0].shape), width = call->in[0].shape.dim[2];
    int parts = cpu_threads(device, elems);
#pragma omp parallel for num_threads(parts) schedule(static)
    for (int part = 0; part < parts; part++) {
        cpu_range_t columns = cpu_range(width, COLUMN_ALIGN, parts, part);
        if (cpu_present(&call->out[0])) cpu_embedding_add_tokens(call, columns);
        if (cpu_present(&call->out[1])) add_positions(call, columns);
    }
    return TR_OK;
}
