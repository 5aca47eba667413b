/* Element types and shapes. */
#ifndef TRAINER_TENSOR_TYPES_H
#define TRAINER_TENSOR_TYPES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TR_MAX_DIMS 6

typedef enum {
    TR_F32,
    TR_BF16,
    TR_F16,
    TR_F64,
    TR_U8,
    TR_I8,
    TR_U16,
    TR_I16,
    TR_U32,
    TR_I32,
    TR_U64,
    TR_I64,
    TR_DTYPE_COUNT
} tr_dtype_t;

size_t tr_dtype_bytes(tr_dtype_t dtype);
const char *tr_dtype_name(tr_dtype_t dtype); /* "f32", "bf16", ... */
bool tr_dtype_is_float(tr_dtype_t dtype);
bool tr_dtype_is_half(tr_dtype_t dtype); /* bf16 or f16 */

/* A dense shape, last dimension contiguous. Images are N [D] [H] W C. ndim 0: a scalar. */
typedef struct {
    int ndim;
    int64_t dim[TR_MAX_DIMS];
} tr_shape_t;

/* TR_SHAPE(64, 10): a shape. &TR_SHAPE(64, 10): its address, valid as long as that of a compound
 * literal in C, and to the end of the full expression in C++. */
#ifdef __cplusplus
extern "C++" {
struct tr_shape_literal : tr_shape_t {
    template <typename... Dims>
    explicit tr_shape_literal(Dims... dims)
        : tr_shape_t{static_cast<int>(sizeof...(dims)), {static_cast<int64_t>(dims)...}} {}
    const tr_shape_t *operator&() const { return this; }
};
}
#define TR_SHAPE(...) (tr_shape_literal(__VA_ARGS__))
#else
#define TR_SHAPE(...)                                                                              \
    ((tr_shape_t){.ndim = (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)),               \
                  .dim = {__VA_ARGS__}})
#endif

int64_t tr_shape_elems(const tr_shape_t *shape);
bool tr_shape_equal(const tr_shape_t *a, const tr_shape_t *b);
/* Writes "(64, 28, 28, 1)". Returns text. */
char *tr_shape_format(const tr_shape_t *shape, char text[96]);

#ifdef __cplusplus
}
#endif

#endif
