/* Fuzz entry: the header of a safetensors file in memory. What is accepted claims no byte that the
 * file lacks. */
#include "checkpoint/checkpoint_int.h"
#include "checkpoint/safetensors_int.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    tr_safetensors_t *f = NULL;
    if (tr_safetensors_parse(data, size, "fuzz", &f) != TR_OK) return 0;
    int64_t sum = 0;
    for (size_t i = 0; i < tr_safetensors_count(f); i++) {
        const tr_named_tensor_t *t = tr_safetensors_at(f, i);
        int64_t bytes = 0;
        if (!tr_tensor_bytes(t->dtype, &t->shape, &bytes) || tr_safetensors_find(f, t->name) != t)
            __builtin_trap();
        sum += bytes;
    }
    if (tr_safetensors_data_start(f) + sum != (int64_t)size) __builtin_trap();
    tr_safetensors_close(&f);
    return 0;
}
