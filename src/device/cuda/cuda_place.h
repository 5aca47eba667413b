/* Private: divides scratch memory into operands, at addresses that are multiples of CUDA_PLACE_BYTES. */
#ifndef TR_DEVICE_CUDA_CUDA_PLACE_H
#define TR_DEVICE_CUDA_CUDA_PLACE_H

#include <stddef.h>

enum { CUDA_PLACE_BYTES = 256 };

/* Rounds up. */
static inline size_t cuda_place_bytes(size_t bytes) {
    return (bytes + CUDA_PLACE_BYTES - 1) / CUDA_PLACE_BYTES * CUDA_PLACE_BYTES;
}

/* Returns *offset, and moves it behind an operand of `bytes`. */
static inline size_t cuda_place(size_t *offset, size_t bytes) {
    const size_t here = *offset;
    *offset += cuda_place_bytes(bytes);
    return here;
}

#endif
