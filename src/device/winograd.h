/* Winograd's algorithm for convolutions, as the device cpu has it: which ones, and what they cost. */
#ifndef TR_DEVICE_WINOGRAD_H
#define TR_DEVICE_WINOGRAD_H

#include "device/device.h"

/* Of an image, or a plane of a volume, a tile of 6 x 6 numbers of each channel gives the (7 - r)^2
 * outputs of r x r filters. It takes a multiplication per number, and the transforms. */
enum { TR_WINOGRAD_SIDE = 6, TR_WINOGRAD_PLACES = TR_WINOGRAD_SIDE * TR_WINOGRAD_SIDE };

/* r; 0 where convolutions with these attributes are computed by direct sums. */
static inline int tr_winograd_size(const tr_conv_attr_t *attr) {
    if (attr->spatial < 2 || attr->groups != 1) return 0;
    const int size = attr->kernel[attr->spatial - 1];
    if (attr->kernel[attr->spatial - 2] != size || (size != 3 && size != 5)) return 0;
    for (int i = 0; i < attr->spatial; i++)
        if (attr->stride[i] != 1 || attr->dilation[i] != 1 || attr->pad_lo[i] >= attr->kernel[i])
            return 0;
    return size;
}

/* Multiplications of whole tiles, without the transforms, as a share of those of direct sums. */
static inline double tr_winograd_share(int size) {
    const int side = TR_WINOGRAD_SIDE + 1 - size;
    return TR_WINOGRAD_PLACES / (double)(side * side * size * size);
}

#endif
