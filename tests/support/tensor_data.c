#include "tensor_data.h"

#include <stdio.h>
#include <stdlib.h>

void *tensor_data(const tr_named_tensor_t *t) {
    const int64_t bytes = tr_shape_elems(&t->shape) * (int64_t)tr_dtype_bytes(t->dtype);
    void *data = malloc((size_t)bytes + 1);
    if (data && tr_safetensors_read(t, 0, bytes, data) == TR_OK) return data;
    fprintf(stderr, "%s: %s\n", t->name, tr_error_last()->message);
    exit(1);
}
