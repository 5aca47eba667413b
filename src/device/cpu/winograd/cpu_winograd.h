/*
 * Convolutions of stride 1 with 3 x 3 or 5 x 5 filters by Winograd's algorithm, and their
 * gradients. Private to src/device/cpu. 36 multiplications give 16 outputs of a 3 x 3 or 4 outputs
 * of a 5 x 5 filter; direct sums need 144 and 100. A volume is a stack of planes: each output plane
 * is the sum of `depth` convolutions of planes, and each plane is transformed once for all of them.
 *
 * Images are (N, [D,] H, W, C), filters (K, [depth,] r, r, C), all of one type. Sums are f32, and
 * rounded once where they are written. Results are bitwise equal for any number of threads.
 */
#ifndef TR_DEVICE_CPU_WINOGRAD_CPU_WINOGRAD_H
#define TR_DEVICE_CPU_WINOGRAD_CPU_WINOGRAD_H

#include "device/cpu/cpu_int.h"

typedef struct {
    int64_t n, d, h, w, c; /* d: 1 where images have no depth */
} cpu_images_t;

/* y = x * filters, padded by pad_d planes in front, pad_h rows above and pad_w columns on the left;
 * the padding on the other sides follows from the size of y. */
typedef struct {
    cpu_images_t x, y;
    int depth, size; /* of the filters; size: r */
    int pad_d, pad_h, pad_w;
    tr_dtype_t type; /* of images and filters; gradients of filters are f32 */
} cpu_winograd_t;

/* Whether the convolution is supported and faster this way: of x, or, where it is to be the same for
 * any number of images (alone), of many. If so, *out describes it. w: (K, [depth,] r, r, C). */
bool tr_cpu_winograd_suits(const tr_conv_attr_t *attr, bool alone, const tr_view_t *x,
                           const tr_view_t *w, const tr_view_t *y, cpu_winograd_t *out);

size_t tr_cpu_winograd_fwd_scratch_bytes(const tr_device_t *device, const cpu_winograd_t *conv);
size_t tr_cpu_winograd_bwd_data_scratch_bytes(const tr_device_t *device,
                                              const cpu_winograd_t *conv);
size_t tr_cpu_winograd_bwd_weights_scratch_bytes(const tr_device_t *device,
                                                 const cpu_winograd_t *conv);

/* y = act(x * w + bias); bias (K) may be NULL. */
void tr_cpu_winograd_fwd(const tr_device_t *device, const cpu_winograd_t *conv, const void *x,
                         const void *w, const float *bias, bool relu, void *y, void *scratch);
void tr_cpu_winograd_bwd_data(const tr_device_t *device, const cpu_winograd_t *conv, const void *dy,
                              const void *w, void *dx, void *scratch);
void tr_cpu_winograd_bwd_weights(const tr_device_t *device, const cpu_winograd_t *conv,
                                 const void *x, const void *dy, float *dw, void *scratch);

#endif
