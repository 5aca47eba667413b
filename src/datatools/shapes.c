/* Samples for segmentation: shapes of random place, size, angle and shade on a noisy ground, and
 * the mask of their classes. */
#include "import_int.h"
#include "base/rng.h"
#include <math.h>
#include <string.h>

#define MIN_SIDE   8
#define MAX_SHAPES 4
#define CONTRAST   50 /* between a shape and the ground */
#define NOISE      24 /* uniform, to both sides */

enum { DISC = 1, BOX, TRIANGLE }; /* of a volume: ball, box */

typedef struct {
    int class;
    double centre[3], radius;
    double cos, sin;  /* of the angle by which it is turned in its plane */
    double extent[3]; /* half the sides of a box */
    int shade[3];     /* added to the ground, per channel */
} drawn_t;

tr_status_t tr_shapes_mask_shape(const tr_shape_t *x, tr_shape_t *out) {
    const int64_t last = x->dim[x->ndim - 1];
    char text[96];
    *out = *x;
    if (x->ndim > 2 && (last == 1 || last == 3)) out->ndim--;
    bool fits = out->ndim == 2 || out->ndim == 3;
    for (int d = 0; d < out->ndim; d++) fits = fits && out->dim[d] >= MIN_SIDE;
    if (fits) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE,
                   "trainer import synthetic shapes: expected a --shape such as 64x64, 64x64x3, "
                   "24x24x24 or 24x24x24x1, with sides from %d on and 1 or 3 channels, found %s.",
                   MIN_SIDE, tr_shape_format(x, text));
}

static void drawn_choose(drawn_t *shape, tr_rng_t *rng, const tr_shape_t *mask, int kinds) {
    const int first = 3 - mask->ndim; /* an image is a volume of depth 1 */
    int64_t smallest = mask->dim[0];
    for (int d = 1; d < mask->ndim; d++) smallest = min64(smallest, mask->dim[d]);
    *shape = (drawn_t){.class = 1 + (int)tr_rng_below(rng, (uint64_t)kinds), .cos = 1};
    shape->radius = tr_rng_between(rng, .14, .3) * (double)smallest;
    for (int d = first; d < 3; d++) {
        shape->centre[d] = tr_rng_between(rng, .1, .9) * (double)mask->dim[d - first];
        shape->extent[d] = tr_rng_between(rng, .5, .85) * shape->radius;
    }
    if (mask->ndim == 2) {
        const double angle = tr_rng_between(rng, 0, 2 * M_PI);
        shape->cos = cos(angle);
        shape->sin = sin(angle);
    }
    for (int c = 0; c < 3; c++) shape->shade[c] = (int)tr_rng_between(rng, CONTRAST, 2 * CONTRAST);
}

/* p: from the centre, (depth, height, width) */
static bool drawn_has(const drawn_t *shape, const double p[3]) {
    const double h = shape->cos * p[1] - shape->sin * p[2],
                 w = shape->sin * p[1] + shape->cos * p[2];
    if (shape->class == DISC) return p[0] * p[0] + h * h + w * w <= shape->radius * shape->radius;
    if (shape->class == BOX)
        return fabs(p[0]) <= shape->extent[0] && fabs(h) <= shape->extent[1] &&
               fabs(w) <= shape->extent[2];
    /* equilateral: each side has the distance radius / 2 */
    return h <= shape->radius / 2 && sqrt(.75) * fabs(w) - h / 2 <= shape->radius / 2;
}

void tr_shapes_draw(uint64_t seed, int64_t sample, int kinds, const tr_shape_t *mask_shape,
                    int channels, uint8_t *x, uint8_t *mask) {
    tr_rng_t rng = tr_rng_make(seed, TR_RNG_SYNTHETIC, 6, (uint64_t)sample);
    const int64_t positions = tr_shape_elems(mask_shape),
                  height = mask_shape->dim[mask_shape->ndim - 2],
                  width = mask_shape->dim[mask_shape->ndim - 1];
    const int count = 1 + (int)tr_rng_below(&rng, MAX_SHAPES),
              ground = (int)tr_rng_between(&rng, 40, 110);
    drawn_t shapes[MAX_SHAPES];
    for (int s = 0; s < count; s++) drawn_choose(&shapes[s], &rng, mask_shape, kinds);
    tr_rng_block_t noise = {{0}};
    for (int64_t i = 0; i < positions; i++) {
        const double at[] = {(double)(i / (height * width)) + .5, (double)(i / width % height) + .5,
                             (double)(i % width) + .5};
        const drawn_t *top = NULL;
        for (int s = count - 1; s >= 0 && !top; s--) {
            const double *c = shapes[s].centre, p[] = {mask_shape->ndim == 3 ? at[0] - c[0] : 0,
                                                       at[1] - c[1], at[2] - c[2]};
            if (drawn_has(&shapes[s], p)) top = &shapes[s];
        }
        mask[i] = top ? (uint8_t)top->class : 0;
        if (i % 4 == 0)
            noise = tr_rng_philox(seed, TR_RNG_SYNTHETIC, 7, (uint64_t)sample, (uint64_t)i / 4);
        for (int c = 0; c < channels; c++) {
            const int of = (int)(noise.v[i % 4] >> 8 * c & 0xff);
            x[i * channels + c] =
                (uint8_t)(ground + (top ? top->shade[c] : 0) + (of - 128) * NOISE / 128);
        }
    }
}
