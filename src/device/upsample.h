/*
 * UPSAMPLE along one dimension, for the kernels of all devices: which inputs an output reads, with
 * which weights, and which outputs read an input. The positions of `linear` are those of PyTorch's
 * interpolate with align_corners=False: output o lies at (o + 1/2) / factor - 1/2.
 */
#ifndef TR_DEVICE_UPSAMPLE_H
#define TR_DEVICE_UPSAMPLE_H

#include <stdbool.h>
#include <stdint.h>

enum { TR_UPSAMPLE_MAX_FACTOR = 16 };

#ifdef __CUDACC__
#define TR_UPSAMPLE_INLINE static __host__ __device__ __forceinline__
#else
#define TR_UPSAMPLE_INLINE static inline
#endif

/* The sum of the weights of an output, which are integers. */
TR_UPSAMPLE_INLINE int tr_upsample_unit(int factor, bool linear) {
    return linear ? 2 * factor : 1;
}

/* An output is ((unit - next) * x[index] + next * x[index + 1]) / unit; next is 0 at the last input. */
typedef struct {
    int index, next;
} tr_upsample_source_t;

TR_UPSAMPLE_INLINE tr_upsample_source_t tr_upsample_source(int output, int inputs, int factor,
                                                           bool linear) {
    tr_upsample_source_t source = {output / factor, 0};
    const int units = 2 * output + 1 - factor; /* the position */
    if (!linear) return source;
    source.index = units < 0 ? 0 : units / (2 * factor);
    if (units >= 0 && source.index + 1 < inputs) source.next = units % (2 * factor);
    return source;
}

/* The outputs from `first` to before `last` read the input, some at the ends with weight 0: at most
 * 2 * factor + 1. */
TR_UPSAMPLE_INLINE void tr_upsample_readers(int input, int factor, int outputs, bool linear,
                                            int *first, int *last) {
    *first = linear ? ((2 * input - 1) * factor) / 2 : input * factor;
    *last = linear ? ((2 * input + 3) * factor) / 2 : (input + 1) * factor;
    if (*first < 0) *first = 0;
    if (*last > outputs) *last = outputs;
}

TR_UPSAMPLE_INLINE int tr_upsample_weight(int output, int input, int inputs, int factor,
                                          bool linear) {
    const tr_upsample_source_t source = tr_upsample_source(output, inputs, factor, linear);
    if (source.index == input) return tr_upsample_unit(factor, linear) - source.next;
    return source.index + 1 == input ? source.next : 0;
}

#endif
