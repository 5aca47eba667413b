/* Synthetic handwritten digits. Each is a few arcs and lines in a unit square, randomly bent,
 * slanted and scaled, drawn with a pen of random width, and blurred by noise. They are similar
 * enough to handwriting that a network has to learn them and a person can read them. */
#include "import_int.h"
#include "base/rng.h"
#include <math.h>

#define SIDE       TR_DIGIT_SIDE
#define MAX_POINTS 96
#define ARC_POINTS 12

/* An arc of an ellipse from angle `from` to `to` in degrees (0 right, 90 down), or if rx < 0 a line
 * from (a, b) to (c, d). */
typedef struct {
    float a, b, rx, ry, from, to, c, d;
} stroke_t;
#define ARC(x, y, rx, ry, from, to)                                                                \
    { x, y, rx, ry, from, to, 0, 0 }
#define LINE(x, y, to_x, to_y)                                                                     \
    { x, y, -1, 0, 0, 0, to_x, to_y }

static const stroke_t glyphs[10][4] = {
    {ARC(.50f, .50f, .25f, .37f, 0, 360)},
    {LINE(.36f, .30f, .54f, .13f), LINE(.54f, .13f, .52f, .87f)},
    {ARC(.49f, .34f, .23f, .20f, -170, 40), LINE(.67f, .47f, .25f, .86f),
     LINE(.25f, .86f, .77f, .85f)},
    {ARC(.46f, .31f, .23f, .18f, -150, 90), ARC(.46f, .68f, .27f, .19f, -90, 150)},
    {LINE(.60f, .13f, .22f, .61f), LINE(.22f, .61f, .80f, .60f), LINE(.61f, .34f, .59f, .88f)},
    {LINE(.72f, .14f, .34f, .15f), LINE(.34f, .15f, .31f, .46f),
     ARC(.46f, .65f, .25f, .22f, -125, 140)},
    {ARC(.62f, .52f, .35f, .40f, -95, -180), ARC(.50f, .67f, .23f, .20f, 0, 360),
     LINE(.27f, .52f, .27f, .66f)},
    {LINE(.24f, .16f, .76f, .15f), LINE(.76f, .15f, .42f, .88f)},
    {ARC(.50f, .31f, .19f, .17f, 0, 360), ARC(.50f, .68f, .24f, .20f, 0, 360)},
    {ARC(.49f, .33f, .22f, .20f, 0, 360), ARC(.31f, .45f, .40f, .45f, -18, 75)},
};

typedef struct {
    int points;
    float x[MAX_POINTS], y[MAX_POINTS];
    bool joined[MAX_POINTS]; /* with the point before */
} path_t;

static void path_add_point(path_t *path, double x, double y, bool joined) {
    if (path->points == MAX_POINTS) return;
    path->x[path->points] = (float)x;
    path->y[path->points] = (float)y;
    path->joined[path->points++] = joined;
}

static void path_add_stroke(path_t *path, tr_rng_t *rng, const stroke_t *s) {
    double move_x = tr_rng_between(rng, -.03, .03), move_y = tr_rng_between(rng, -.03, .03);
    if (s->rx < 0) {
        /* Lines are bent slightly in the middle. */
        double bend = tr_rng_between(rng, -.06, .06);
        for (int i = 0; i <= 4; i++) {
            double t = i / 4.0, bow = 4 * t * (1 - t) * bend;
            path_add_point(path, s->a + t * (s->c - s->a) + bow * (s->d - s->b) + move_x,
                           s->b + t * (s->d - s->b) - bow * (s->c - s->a) + move_y, i > 0);
        }
        return;
    }
    double rx = s->rx * tr_rng_between(rng, .85, 1.15), ry = s->ry * tr_rng_between(rng, .9, 1.1);
    double from = s->from + tr_rng_between(rng, -10, 10),
           to =
               s->to + (s->to - s->from >= 360 ? s->from - from : 0) + tr_rng_between(rng, -10, 10);
    int pieces = ARC_POINTS + (fabs(to - from) > 270 ? ARC_POINTS : 0);
    for (int i = 0; i <= pieces; i++) {
        double angle = (from + (to - from) * i / pieces) * M_PI / 180;
        path_add_point(path, s->a + rx * cos(angle) + move_x, s->b + ry * sin(angle) + move_y,
                       i > 0);
    }
}

/* Rotation, slant, scale and shift about the middle; then to pixels. */
static void path_bend(path_t *path, tr_rng_t *rng) {
    double angle = tr_rng_between(rng, -14, 14) * M_PI / 180,
           slant = tr_rng_between(rng, -.25, .25);
    double sx = tr_rng_between(rng, .8, 1.15) * 22, sy = tr_rng_between(rng, .85, 1.1) * 22;
    double dx = SIDE / 2.0 + tr_rng_between(rng, -2, 2),
           dy = SIDE / 2.0 + tr_rng_between(rng, -1.5, 1.5);
    double wave = tr_rng_between(rng, -.04, .04), phase = tr_rng_between(rng, 0, 2 * M_PI);
    for (int i = 0; i < path->points; i++) {
        double x = path->x[i] - .5, y = path->y[i] - .5;
        x += wave * sin(5 * y + phase) - slant * y;
        y += wave * sin(5 * x + phase);
        path->x[i] = (float)(dx + sx * x * cos(angle) - sy * y * sin(angle));
        path->y[i] = (float)(dy + sx * x * sin(angle) + sy * y * cos(angle));
    }
}

static double path_distance(const path_t *p, double x, double y) {
    double best = 1e9;
    for (int i = 1; i < p->points; i++) {
        if (!p->joined[i]) continue;
        double ax = p->x[i - 1], ay = p->y[i - 1], bx = p->x[i] - ax, by = p->y[i] - ay;
        double length = bx * bx + by * by,
               t = length > 0 ? ((x - ax) * bx + (y - ay) * by) / length : 0;
        t = t < 0 ? 0 : t > 1 ? 1 : t;
        double ex = x - ax - t * bx, ey = y - ay - t * by, d = ex * ex + ey * ey;
        if (d < best) best = d;
    }
    return sqrt(best);
}

void tr_digit_draw(uint64_t seed, int64_t sample, int digit, uint8_t *out) {
    tr_rng_t rng = tr_rng_make(seed, TR_RNG_SYNTHETIC, 4, (uint64_t)sample);
    path_t path = {0};
    for (int s = 0; s < 4 && glyphs[digit][s].a > 0; s++)
        path_add_stroke(&path, &rng, &glyphs[digit][s]);
    path_bend(&path, &rng);
    double pen = tr_rng_between(&rng, .7, 1.7), ink = tr_rng_between(&rng, 190, 255),
           noise = tr_rng_between(&rng, 0, 14);
    for (int y = 0; y < SIDE; y++)
        for (int x = 0; x < SIDE; x++) {
            double cover = pen + .5 - path_distance(&path, x + .5, y + .5),
                   value = ink * (cover < 0   ? 0
                                  : cover > 1 ? 1
                                              : cover);
            value += noise * tr_rng_normal(&rng) * (value > 0 ? 1 : .5);
            out[y * SIDE + x] = (uint8_t)(value < 0 ? 0 : value > 255 ? 255 : value);
        }
}
