/*
 * The gradient of the filters of a convolution that has few channels on one side: of its input, or of
 * the output of a 1 x 1 convolution. Private to src/device/cpu. oneDNN's code takes whole blocks of
 * channels on both sides.
 */
#ifndef TR_DEVICE_CPU_KERNELS_CPU_CONV_FEW_H
#define TR_DEVICE_CPU_KERNELS_CPU_CONV_FEW_H

#include "device/cpu/cpu_int.h"

/* Of an image with few channels and one with `wide`: x and dy, or, with few outputs, dy and x. Sizes
 * have three dimensions, of which missing leading ones are 1. */
typedef struct {
    int64_t images, few, wide;
    int64_t in[3], padded[3],
        out[3]; /* of the few channels, without and with padding; of the wide */
    int64_t kernel[3], stride[3], dilation[3], pad[3];
    bool few_outputs;
} cpu_conv_few_t;

/* Whether the convolution is such a one. x, w, y: f32 as in CONV_FWD. */
bool tr_cpu_conv_few_suits(const tr_conv_attr_t *attr, const tr_view_t *x, const tr_view_t *w,
                           const tr_view_t *y, cpu_conv_few_t *out);
size_t tr_cpu_conv_few_scratch_bytes(const cpu_conv_few_t *conv);
/* dw, overwritten. Results are bitwise equal for any number of threads. */
void tr_cpu_conv_few(const tr_device_t *device, const cpu_conv_few_t *conv, const float *x,
                     const float *dy, float *dw, void *scratch);

#endif
