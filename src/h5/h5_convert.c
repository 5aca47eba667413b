/* Elements: byte order, types, layout, and the search for NaN and infinity. */
#include "h5.h"
#include <math.h>

tr_dtype_t tr_h5_travels_as(tr_dtype_t stored) {
    bool wide = stored == TR_F64 || stored == TR_I64 || stored == TR_U64 || stored == TR_U32;
    return wide ? TR_F32 : stored;
}

bool tr_h5_rounds(tr_dtype_t stored, tr_dtype_t travels_as) {
    return travels_as == TR_F32 && stored != TR_F32 && tr_dtype_bytes(stored) >= 4;
}

void tr_swap_bytes(void *data, int64_t elems, size_t elem_bytes) {
    uint16_t *two = data;
    uint32_t *four = data;
    uint64_t *eight = data;
    if (elem_bytes == 2)
        for (int64_t i = 0; i < elems; i++) two[i] = __builtin_bswap16(two[i]);
    if (elem_bytes == 4)
        for (int64_t i = 0; i < elems; i++) four[i] = __builtin_bswap32(four[i]);
    if (elem_bytes == 8)
        for (int64_t i = 0; i < elems; i++) eight[i] = __builtin_bswap64(eight[i]);
}

#define CHANNELS_LAST(T)                                                                           \
    do {                                                                                           \
        const T *from = in;                                                                        \
        T *to = out;                                                                               \
        for (int64_t begin = 0; begin < points; begin += TILE)                                     \
            for (int64_t c = 0; c < channels; c++)                                                 \
                for (int64_t p = begin; p < points && p < begin + TILE; p++)                       \
                    to[p * channels + c] = from[c * points + p];                                   \
    } while (0)
#define TILE 256 /* points whose channels stay in the cache */

void tr_channels_last(const void *in, int64_t channels, int64_t points, size_t elem_bytes,
                      void *out) {
    if (elem_bytes == 1)
        CHANNELS_LAST(uint8_t);
    else if (elem_bytes == 2)
        CHANNELS_LAST(uint16_t);
    else if (elem_bytes == 4)
        CHANNELS_LAST(uint32_t);
    else
        CHANNELS_LAST(uint64_t);
}

/* All bits of the exponent set: NaN or infinity. First whether there is any, in vectors; then
 * where. */
#define FIND(T, mask)                                                                              \
    do {                                                                                           \
        const T *bits = data;                                                                      \
        T any = 0;                                                                                 \
        for (int64_t i = 0; i < elems; i++) any |= (T)((bits[i] & (T)(mask)) == (T)(mask));        \
        for (int64_t i = 0; any && i < elems; i++)                                                 \
            if ((bits[i] & (T)(mask)) == (T)(mask)) return i;                                      \
    } while (0)

int64_t tr_find_not_finite(tr_dtype_t dtype, const void *data, int64_t elems) {
    if (dtype == TR_F32) FIND(uint32_t, 0x7f800000);
    if (dtype == TR_F16) FIND(uint16_t, 0x7c00);
    for (int64_t i = 0; dtype == TR_F64 && i < elems; i++)
        if (!isfinite((float)((const double *)data)[i])) return i;
    return -1;
}
