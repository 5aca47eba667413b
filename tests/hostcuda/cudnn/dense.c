/* Tensors of any strides as dense arrays of f32. */
#include "dnn_int.h"
#include <stdlib.h>

num_type_t dnn_num(int type) {
    switch (type) {
    case CUDNN_DATA_FLOAT: return NUM_F32;
    case CUDNN_DATA_DOUBLE: return NUM_F64;
    case CUDNN_DATA_HALF: return NUM_F16;
    case CUDNN_DATA_BFLOAT16: return NUM_BF16;
    case CUDNN_DATA_INT8: return NUM_I8;
    case CUDNN_DATA_UINT8:
    case CUDNN_DATA_BOOLEAN: return NUM_U8;
    case CUDNN_DATA_INT32: return NUM_I32;
    case CUDNN_DATA_INT64: return NUM_I64;
    default: return NUM_COUNT;
    }
}

dense_t dense_new(const tensor_t *shape) {
    dense_t x = {.nd = shape->nd, .count = 1};
    for (int i = 0; i < x.nd; i++) x.count *= x.dim[i] = shape->dim[i];
    x.data = calloc((size_t)x.count, sizeof *x.data);
    return x;
}

/* The place of row `number`, a row being the last dimension. */
static int64_t row_place(const tensor_t *t, int64_t number) {
    int64_t at = 0;
    for (int i = t->nd - 2; i >= 0; i--) {
        at += number % t->dim[i] * t->stride[i];
        number /= t->dim[i];
    }
    return at;
}
void dense_read(dense_t *to, const tensor_t *t, const void *data) {
    const int64_t n = t->dim[t->nd - 1];
    for (int64_t row = 0; row * n < to->count; row++)
        num_read(dnn_num(t->type), data, row_place(t, row), t->stride[t->nd - 1], n, to->data + row * n);
}
void dense_write(const dense_t *from, const tensor_t *t, void *data) {
    const int64_t n = t->dim[t->nd - 1];
    for (int64_t row = 0; row * n < from->count; row++)
        num_write(dnn_num(t->type), data, row_place(t, row), t->stride[t->nd - 1], n, from->data + row * n);
}
void dense_round(dense_t *x, int type) {
    const num_type_t num = dnn_num(type);
    double word;
    if (num == NUM_F32) return;
    for (int64_t i = 0; i < x->count; i++) {
        num_store(num, &word, 0, x->data[i]);
        x->data[i] = (float)num_load(num, &word, 0);
    }
}

walk_t walk_begin(const dense_t *shape, int operands, const dense_t *const operand[]) {
    walk_t w = {.nd = shape->nd, .operands = operands};
    for (int i = 0; i < w.nd; i++) w.dim[i] = shape->dim[i];
    for (int k = 0; k < operands; k++) {
        int64_t step = 1;
        for (int i = w.nd - 1; i >= 0 && operand[k]; i--) {
            w.step[k][i] = operand[k]->dim[i] == 1 ? 0 : step;
            step *= operand[k]->dim[i];
        }
    }
    return w;
}
bool walk_next(walk_t *w) {
    for (int i = w->nd - 1; i >= 0; i--) {
        for (int k = 0; k < w->operands; k++) w->at[k] += w->step[k][i];
        if (++w->index[i] < w->dim[i]) return true;
        for (int k = 0; k < w->operands; k++) w->at[k] -= w->step[k][i] * w->dim[i];
        w->index[i] = 0;
    }
    return false;
}
