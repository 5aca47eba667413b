/* Random transforms of images. kernels.h specifies their random numbers. */
#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_math.h"
#include "base/rng.h"
#include <string.h>

/* TILE: pixels whose coordinates are computed at once. BORDER: pixels of `fill` around an image, so
 * that taps need no bounds checks. */
enum { TILE = 128, BORDER = 2, COST = 16 };

typedef struct {
    int64_t height, width, channels;
} image_t;

/* The transform of one image: the affine map from result to source coordinates, then the shift and
 * flip by whole pixels. */
typedef struct {
    double xx, xy, yx, yy, x0, y0; /* source = (xx x + xy y + x0, yx x + yy y + y0) */
    int64_t shift_x, shift_y;
    bool flip;
} transform_t;

static int64_t cpu_augment_row_elems(const image_t *image) {
    return image->width * image->channels;
}

static bool is_affine(const tr_augment_attr_t *attr) {
    return attr->rotate_deg != 0 || attr->translate != 0 || attr->zoom != 0 || attr->shear_deg != 0;
}

/* Uniform in [-range, range). */
static double cpu_augment_spread(uint32_t word, double range) {
    return (2 * (double)tr_rng_to_float(word) - 1) * range;
}

static int64_t cpu_augment_pick_shift(uint32_t word, int pad) {
    return (int64_t)(((uint64_t)word * (2 * (uint64_t)pad + 1)) >> 32) - pad;
}

/* The forward map about the centre c is: p -> c + t + A (p - c), A = rotation * shear * zoom; this
 * is its inverse. */
static transform_t cpu_augment_draw(const tr_augment_attr_t *attr, const tr_step_t *step,
                                    int64_t sample, const image_t *image) {
    tr_rng_block_t w =
        tr_rng_philox(step->seed, TR_RNG_AUGMENT, 0, (uint64_t)step->step, (uint64_t)sample);
    tr_rng_block_t v =
        tr_rng_philox(step->seed, TR_RNG_AUGMENT, 1, (uint64_t)step->step, (uint64_t)sample);
    double angle = cpu_augment_spread(w.v[0], attr->rotate_deg) * M_PI / 180,
           zoom = 1 + cpu_augment_spread(w.v[3], attr->zoom);
    double shear = tan(cpu_augment_spread(v.v[0], attr->shear_deg) * M_PI / 180), c = cos(angle),
           s = sin(angle);
    double centre_x = 0.5 * (double)(image->width - 1),
           centre_y = 0.5 * (double)(image->height - 1);
    double to_x = centre_x + cpu_augment_spread(w.v[1], attr->translate) * (double)image->width;
    double to_y = centre_y + cpu_augment_spread(w.v[2], attr->translate) * (double)image->height;
    transform_t t = {.xx = (c + shear * s) / zoom,
                     .xy = (s - shear * c) / zoom,
                     .yx = -s / zoom,
                     .yy = c / zoom};
    t.x0 = centre_x - t.xx * to_x - t.xy * to_y;
    t.y0 = centre_y - t.yx * to_x - t.yy * to_y;
    t.shift_x = cpu_augment_pick_shift(v.v[1], attr->crop_pad);
    t.shift_y = cpu_augment_pick_shift(v.v[2], attr->crop_pad);
    t.flip = attr->flip && v.v[3] >> 31;
    return t;
}

/* Result column x before flip and crop shift. */
static int64_t column_of(const transform_t *t, const image_t *image, int64_t x) {
    return (t->flip ? image->width - 1 - x : x) - t->shift_x;
}

static void fill_pixels(float fill, int64_t count, float *y) {
    for (int64_t i = 0; i < count; i++) y[i] = fill;
}

/* Where one image comes from and goes to, and memory for one thread. */
typedef struct {
    const cpu_normalize_t *normalize;
    int64_t first; /* of the image, in elements of the batch */
    float *padded; /* the normalised image in its border; without an affine part, a row of it */
    float *row;    /* of the result */
    const tr_view_t *out;
} work_t;

/* Row i of the result, which is in work->row unless it is f32. */
static float *result_row(const work_t *work, const image_t *image, int64_t i) {
    const int64_t at = work->first + i * cpu_augment_row_elems(image);
    return work->out->dtype == TR_F32 ? (float *)work->out->data + at : work->row;
}

static void finish_row(const work_t *work, const image_t *image, int64_t i) {
    const int64_t count = cpu_augment_row_elems(image);
    if (work->out->dtype != TR_F32)
        tr_cpu_narrow(work->row, count, work->out->data, work->first + i * count, work->out->dtype);
}

/* Only crop shift and flip: moves whole pixels, exactly. */
static void move_pixels(const transform_t *t, const image_t *image, float fill,
                        const work_t *work) {
    const int64_t row = cpu_augment_row_elems(image);
    const size_t pixel_bytes = (size_t)image->channels * sizeof(float);
    for (int64_t i = 0; i < image->height; i++) {
        const int64_t from = i - t->shift_y;
        const bool is_inside = from >= 0 && from < image->height;
        float *y = result_row(work, image, i);
        if (is_inside)
            tr_cpu_normalize(work->normalize, work->first + from * row, row, work->padded);
        for (int64_t j = 0; j < image->width; j++) {
            const int64_t column = column_of(t, image, j);
            if (!is_inside || column < 0 || column >= image->width)
                fill_pixels(fill, image->channels, y + j * image->channels);
            else
                memcpy(y + j * image->channels, work->padded + column * image->channels,
                       pixel_bytes);
        }
        finish_row(work, image, i);
    }
}

/* Puts the normalised image into a border of `fill`. */
static void pad(const image_t *image, float fill, const work_t *work) {
    const int64_t row = cpu_augment_row_elems(image),
                  padded_row = (image->width + 2 * BORDER) * image->channels;
    fill_pixels(fill, padded_row * (image->height + 2 * BORDER), work->padded);
    for (int64_t i = 0; i < image->height; i++)
        tr_cpu_normalize(work->normalize, work->first + i * row, row,
                         work->padded + (i + BORDER) * padded_row + BORDER * image->channels);
}

/* The positions of the first of four taps in the padded image, and the weights of the taps. */
typedef struct {
    int32_t at[TILE];
    float right[TILE], down[TILE];
} taps_t;

/* Beyond -BORDER or `size`, all four taps are in the border. NaN coordinates are also moved
 * there. */
CPU_INLINE float clamp(float v, float size) {
    v = v > -BORDER ? v : -BORDER;
    return v < size ? v : size;
}

static void find_taps(const transform_t *t, const image_t *image, int64_t y, int64_t first,
                      int64_t count, taps_t *taps) {
    float width = (float)image->width, height = (float)image->height;
    float sign = t->flip ? -1.0f : 1.0f, begin = (float)column_of(t, image, first);
    double line = (double)(y - t->shift_y);
    float x0 = (float)(t->x0 + t->xy * line), y0 = (float)(t->y0 + t->yy * line), xx = (float)t->xx,
          yx = (float)t->yx;
    int32_t row = (int32_t)(image->width + 2 * BORDER), channels = (int32_t)image->channels;
#pragma omp simd
    for (int32_t i = 0; i < (int32_t)count; i++) {
        float x = begin + sign * (float)i;
        float source_x = clamp(xx * x + x0, width), source_y = clamp(yx * x + y0, height);
        float left = floorf(source_x), top = floorf(source_y);
        taps->right[i] = source_x - left;
        taps->down[i] = source_y - top;
        taps->at[i] = (((int32_t)top + BORDER) * row + (int32_t)left + BORDER) * channels;
    }
}

CPU_INLINE float blend(const float *p, int32_t channels, int32_t row, float right, float down) {
    float top = p[0] + right * (p[channels] - p[0]);
    float bottom = p[row] + right * (p[row + channels] - p[row]);
    return top + down * (bottom - top);
}

static void sample_pixels(const taps_t *taps, const float *padded, int32_t channels, int32_t row,
                          int64_t count, float *y) {
    const int32_t *restrict at = taps->at;
    const float *restrict right = taps->right, *restrict down = taps->down;
    if (channels == 1) {
#pragma omp simd
        for (int64_t i = 0; i < count; i++) y[i] = blend(padded + at[i], 1, row, right[i], down[i]);
        return;
    }
    for (int64_t i = 0; i < count; i++)
        for (int32_t c = 0; c < channels; c++)
            y[i * channels + c] = blend(padded + at[i] + c, channels, row, right[i], down[i]);
}

static void warp(const transform_t *t, const image_t *image, float fill, const work_t *work) {
    int32_t channels = (int32_t)image->channels,
            row = (int32_t)(image->width + 2 * BORDER) * channels;
    taps_t taps;
    pad(image, fill, work);
    for (int64_t i = 0; i < image->height; i++) {
        float *y = result_row(work, image, i);
        for (int64_t j = 0; j < image->width; j += TILE) {
            int64_t count = image->width - j < TILE ? image->width - j : TILE;
            find_taps(t, image, i, j, count, &taps);
            sample_pixels(&taps, work->padded, channels, row, count, y + j * channels);
        }
        finish_row(work, image, i);
    }
}

static image_t cpu_augment_image_of(const tr_view_t *view) {
    return (image_t){view->shape.dim[1], view->shape.dim[2], view->shape.dim[3]};
}

static int64_t padded_elems(const image_t *image) {
    return (image->height + 2 * BORDER) * (image->width + 2 * BORDER) * image->channels;
}

/* Elements of memory that one thread needs: work_t's padded, and row unless the result is f32. */
static int64_t scratch_elems(const tr_kernel_call_t *call, const image_t *image) {
    return (is_affine(call->attr) ? padded_elems(image) : cpu_augment_row_elems(image)) +
           (call->out[0].dtype == TR_F32 ? 0 : cpu_augment_row_elems(image));
}

CPU_KERNEL(augment) {
    const tr_augment_attr_t *attr = call->attr;
    const int64_t *ids = call->in[1].data;
    const tr_step_t *step = call->in[2].data;
    const tr_view_t absent = {.shape.ndim = -1}, *scale = call->n_in > 3 ? &call->in[3] : &absent,
                    *shift = call->n_in > 4 ? &call->in[4] : &absent;
    const image_t image = cpu_augment_image_of(&call->in[0]);
    const int64_t images = call->in[0].shape.dim[0],
                  elems = image.height * cpu_augment_row_elems(&image),
                  room = scratch_elems(call, &image);
    const cpu_normalize_t normalize = tr_cpu_normalize_begin(&call->in[0], scale, shift);
#pragma omp parallel for num_threads(cpu_threads(device, images *elems *COST)) schedule(static)
    for (int64_t i = 0; i < images; i++) {
        float *scratch = (float *)call->scratch + omp_get_thread_num() * room;
        const work_t work = {&normalize, i * elems, scratch,
                             scratch + room - cpu_augment_row_elems(&image), &call->out[0]};
        const transform_t t = cpu_augment_draw(attr, step, ids[i], &image);
        if (is_affine(attr))
            warp(&t, &image, attr->fill, &work);
        else
            move_pixels(&t, &image, attr->fill, &work);
    }
    return TR_OK;
}

CPU_KERNEL_PREPARE(augment) {
    const image_t image = cpu_augment_image_of(&call->in[0]);
    *out_scratch_bytes = (size_t)(device->threads * scratch_elems(call, &image)) * sizeof(float);
    /* the limit of the indices in taps_t: gathers with 32-bit indices are faster */
    if (is_affine(call->attr) && padded_elems(&image) > INT32_MAX)
        return TR_FAIL(TR_ERR_CONFIG,
                       "images of %lld x %lld with %lld channels are too large for data.rotate, "
                       "translate, zoom and shear, which support up to 2^31 numbers: remove these "
                       "keys",
                       (long long)image.height, (long long)image.width, (long long)image.channels);
    return TR_OK;
}
