/* Element types and shapes. */
#include "trainer/tensor_types.h"

#include <stdio.h>

static const struct {
    const char *name;
    size_t bytes;
    bool is_float;
} dtypes[TR_DTYPE_COUNT] = {
    [TR_F32] = {"f32", 4, true},  [TR_BF16] = {"bf16", 2, true}, [TR_F16] = {"f16", 2, true},
    [TR_F64] = {"f64", 8, true},  [TR_U8] = {"u8", 1, false},    [TR_I8] = {"i8", 1, false},
    [TR_U16] = {"u16", 2, false}, [TR_I16] = {"i16", 2, false},  [TR_U32] = {"u32", 4, false},
    [TR_I32] = {"i32", 4, false}, [TR_U64] = {"u64", 8, false},  [TR_I64] = {"i64", 8, false},
};

size_t tr_dtype_bytes(tr_dtype_t dtype) {
    return (unsigned)dtype < TR_DTYPE_COUNT ? dtypes[dtype].bytes : 0;
}

const char *tr_dtype_name(tr_dtype_t dtype) {
    return (unsigned)dtype < TR_DTYPE_COUNT ? dtypes[dtype].name : "?";
}

bool tr_dtype_is_float(tr_dtype_t dtype) {
    return (unsigned)dtype < TR_DTYPE_COUNT && dtypes[dtype].is_float;
}

bool tr_dtype_is_half(tr_dtype_t dtype) {
    return dtype == TR_BF16 || dtype == TR_F16;
}

int64_t tr_shape_elems(const tr_shape_t *shape) {
    int64_t elems = 1;
    for (int i = 0; i < shape->ndim; i++) elems *= shape->dim[i];
    return elems;
}

bool tr_shape_equal(const tr_shape_t *a, const tr_shape_t *b) {
    if (a->ndim != b->ndim) return false;
    for (int i = 0; i < a->ndim; i++)
        if (a->dim[i] != b->dim[i]) return false;
    return true;
}

char *tr_shape_format(const tr_shape_t *shape, char text[96]) {
    size_t used = 0, room = 96;
    used += (size_t)snprintf(text, room, "(");
    for (int i = 0; i < shape->ndim && used < room; i++)
        used += (size_t)snprintf(text + used, room - used, "%s%lld", i ? ", " : "",
                                 (long long)shape->dim[i]);
    if (used < room) snprintf(text + used, room - used, ")");
    return text;
}
