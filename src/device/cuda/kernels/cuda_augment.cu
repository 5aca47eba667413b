/* Random transforms of images; kernels.h defines the numbers they draw. */
#include "cuda_types.cuh"
#include "base/rng.h"

enum { THREADS = 256 };

/* What happens to one image: source = (xx x + xy y + x0, yx x + yy y + y0), then whole pixels. */
typedef struct {
    float xx, xy, yx, yy;
    double x0, y0;
    int shift_x, shift_y;
    bool flip;
} transform_t;

typedef struct {
    int64_t count;
    int height, width, channels;
} images_t;

/* Uniform in [-range, range). */
static __device__ double spread(uint32_t word, double range) {
    return (2 * (double)tr_rng_to_float(word) - 1) * range;
}

static __device__ int pick_shift(uint32_t word, int pad) {
    return (int)(((uint64_t)word * (2 * (uint64_t)pad + 1)) >> 32) - pad;
}

/* The forward map about the centre c is p -> c + t + A (p - c), A = rotation * shear * zoom; this
 * is its inverse. */
static __global__ void __launch_bounds__(THREADS)
    draw_kernel(tr_augment_attr_t attr, const tr_step_t *step, const int64_t *ids, images_t images,
                transform_t *transforms) {
    const double degree = 3.14159265358979323846 / 180;
    const int64_t i = global_thread();
    if (i >= images.count) return;
    const uint64_t a = (uint64_t)step->step, b = (uint64_t)ids[i];
    const tr_rng_block_t w = tr_philox(tr_philox_key(step->seed, TR_RNG_AUGMENT, 0), a, b);
    const tr_rng_block_t v = tr_philox(tr_philox_key(step->seed, TR_RNG_AUGMENT, 1), a, b);
    const double angle = spread(w.v[0], attr.rotate_deg) * degree,
                 zoom = 1 + spread(w.v[3], attr.zoom);
    const double shear = tan(spread(v.v[0], attr.shear_deg) * degree), c = cos(angle),
                 s = sin(angle);
    const double centre_x = 0.5 * (images.width - 1), centre_y = 0.5 * (images.height - 1);
    const double to_x = centre_x + spread(w.v[1], attr.translate) * images.width;
    const double to_y = centre_y + spread(w.v[2], attr.translate) * images.height;
    const double xx = (c + shear * s) / zoom, xy = (s - shear * c) / zoom, yx = -s / zoom,
                 yy = c / zoom;
    transform_t t;
    t.xx = (float)xx, t.xy = (float)xy, t.yx = (float)yx, t.yy = (float)yy;
    t.x0 = centre_x - xx * to_x - xy * to_y;
    t.y0 = centre_y - yx * to_x - yy * to_y;
    t.shift_x = pick_shift(v.v[1], attr.crop_pad);
    t.shift_y = pick_shift(v.v[2], attr.crop_pad);
    t.flip = attr.flip && v.v[3] >> 31;
    transforms[i] = t;
}

/* A number of an image after normalisation, `fill` outside. */
template <typename From> struct pixels_t {
    const From *x;
    const float *scale, *shift; /* NULL: 1, 0 */
    float fill;
    __device__ __forceinline__ float operator()(const images_t &images, int row, int column,
                                                int c) const {
        if (row < 0 || row >= images.height || column < 0 || column >= images.width) return fill;
        const float value =
            to_float(x[((int64_t)row * images.width + column) * images.channels + c]);
        if (!scale && !shift) return value;
        return value * (scale ? scale[c] : 1.0f) + (shift ? shift[c] : 0.0f);
    }
};

/* Beyond the border all four taps are `fill`; a coordinate that is no number goes there too. */
static __device__ __forceinline__ float clamp(float v, int size) {
    v = v > -2.0f ? v : -2.0f;
    return v < (float)size ? v : (float)size;
}

template <typename From>
static __device__ float sample(const pixels_t<From> &pixel, const images_t &images, float source_x,
                               float source_y, int c) {
    const float left = floorf(source_x), top = floorf(source_y);
    const float right = source_x - left, down = source_y - top;
    const int column = (int)left, row = (int)top;
    const float p00 = pixel(images, row, column, c), p01 = pixel(images, row, column + 1, c);
    const float p10 = pixel(images, row + 1, column, c),
                p11 = pixel(images, row + 1, column + 1, c);
    const float upper = p00 + right * (p01 - p00), lower = p10 + right * (p11 - p10);
    return upper + down * (lower - upper);
}

/* A thread makes one element of the result. */
template <typename From, typename To>
static __global__ void __launch_bounds__(THREADS)
    augment_kernel(pixels_t<From> batch, const transform_t *transforms, To *y, images_t images,
                   bool is_affine) {
    const int row_elems = images.width * images.channels;
    const int64_t elems = (int64_t)images.height * row_elems;
    for (int64_t i = global_thread(); i < images.count * elems; i += global_threads()) {
        const int64_t image = i / elems, at = i % elems;
        const int row = (int)(at / row_elems), column = (int)(at % row_elems) / images.channels,
                  c = (int)(at % images.channels);
        const transform_t &t = transforms[image];
        pixels_t<From> pixel = batch;
        pixel.x += image * elems;
        const int u = (t.flip ? images.width - 1 - column : column) - t.shift_x,
                  v = row - t.shift_y;
        if (is_affine) {
            const float source_x = t.xx * (float)u + (float)(t.x0 + (double)t.xy * v),
                        source_y = t.yx * (float)u + (float)(t.y0 + (double)t.yy * v);
            y[i] = from_float<To>(sample(pixel, images, clamp(source_x, images.width),
                                         clamp(source_y, images.height), c));
        } else {
            y[i] = from_float<To>(pixel(images, v, u, c));
        }
    }
}

CUDA_KERNEL_PREPARE(augment) {
    *out_state = NULL;
    *out_scratch_bytes = (size_t)call->in[0].shape.dim[0] * sizeof(transform_t);
    return TR_OK;
}

template <typename From>
static tr_status_t augment(tr_device_t *device, tr_stream_t *stream, const tr_kernel_call_t *call,
                           const images_t &images, bool is_affine) {
    const float fill = ((const tr_augment_attr_t *)call->attr)->fill;
    const tr_view_t *scale = call->n_in > 3 ? &call->in[3] : NULL,
                    *shift = call->n_in > 4 ? &call->in[4] : NULL;
    const pixels_t<From> pixels = {(const From *)call->in[0].data,
                                   scale && cuda_present(scale) ? (const float *)scale->data : NULL,
                                   shift && cuda_present(shift) ? (const float *)shift->data : NULL,
                                   fill};
    const unsigned blocks = cuda_blocks(tr_shape_elems(&call->in[0].shape), THREADS,
                                        64 * (int64_t)tr_cuda_grid_limit(device));
    CUDA_BY_TYPE(call->out[0].dtype, To,
                 CUDA_LAUNCH((augment_kernel<From, To>), blocks, THREADS, stream, pixels,
                             (const transform_t *)call->scratch, (To *)call->out[0].data, images,
                             is_affine));
    return TR_OK;
}

CUDA_KERNEL(augment) {
    const tr_augment_attr_t *attr = (const tr_augment_attr_t *)call->attr;
    const int64_t *dim = call->in[0].shape.dim;
    const images_t images = {dim[0], (int)dim[1], (int)dim[2], (int)dim[3]};
    const bool is_affine =
        attr->rotate_deg != 0 || attr->translate != 0 || attr->zoom != 0 || attr->shear_deg != 0;
    if (tr_shape_elems(&call->in[0].shape) == 0) return TR_OK;
    CUDA_LAUNCH(draw_kernel, cuda_blocks(images.count, THREADS, INT32_MAX), THREADS, stream, *attr,
                (const tr_step_t *)call->in[2].data, (const int64_t *)call->in[1].data, images,
                (transform_t *)call->scratch);
    return call->in[0].dtype == TR_U8 ? augment<uint8_t>(device, stream, call, images, is_affine)
                                      : augment<float>(device, stream, call, images, is_affine);
}
