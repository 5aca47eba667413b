/* Conversion of elements of any type to floats or doubles. */
#include "shared.h"
#include "base/half.h"
#include "base/mem.h"

#define CONVERT(TO, FROM, value)                                                                   \
    do {                                                                                           \
        TO *to_ = out;                                                                             \
        const FROM *from_ = in;                                                                    \
        for (int64_t i = 0; i < elems; i++) {                                                      \
            FROM v = from_[i];                                                                     \
            to_[i] = (TO)(value);                                                                  \
        }                                                                                          \
    } while (0)
#define CONVERT_FROM(TO)                                                                           \
    switch (from) {                                                                                \
    case TR_U8: CONVERT(TO, uint8_t, v); break;                                                    \
    case TR_I8: CONVERT(TO, int8_t, v); break;                                                     \
    case TR_U16: CONVERT(TO, uint16_t, v); break;                                                  \
    case TR_I16: CONVERT(TO, int16_t, v); break;                                                   \
    case TR_U32: CONVERT(TO, uint32_t, v); break;                                                  \
    case TR_I32: CONVERT(TO, int32_t, v); break;                                                   \
    case TR_U64: CONVERT(TO, uint64_t, v); break;                                                  \
    case TR_I64: CONVERT(TO, int64_t, v); break;                                                   \
    case TR_F16: CONVERT(TO, uint16_t, tr_float_of_f16(v)); break;                                   \
    case TR_F64: CONVERT(TO, double, v); break;                                                    \
    default: CONVERT(TO, float, v); break;                                                         \
    }

void tr_convert(tr_dtype_t from, const void *in, int64_t elems, tr_dtype_t to, void *out) {
    if (to == TR_F64)
        CONVERT_FROM(double)
    else
        CONVERT_FROM(float)
}

/* Whole rows at once if they are short, else one row in pieces. */
void tr_stats_add_values(tr_stats_t *stats, int64_t width, tr_dtype_t dtype, const void *values,
                         int64_t count) {
    double piece[1024];
    const int64_t most = (int64_t)TR_COUNT(piece), columns = min64(width, most),
                  rows = most / columns;
    for (int64_t i = 0; i < count;) {
        const int64_t column = i % width, part = min64(columns, width - column),
                      elems = width <= most ? min64(rows * width, count - i) : part;
        tr_convert(dtype, (const char *)values + i * (int64_t)tr_dtype_bytes(dtype), elems, TR_F64,
                   piece);
        tr_stats_add(stats + column, part, piece, elems / part);
        i += elems;
    }
}
