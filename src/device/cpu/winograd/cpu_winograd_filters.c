/*
 * The gradient of the filters by Winograd's algorithm. Tiles are transformed one block at a time;
 * then the product of each place and plane of the filters is added to its sums. If the sums are
 * small, tiles are split into groups with separate sums, which are joined in order. The number of
 * groups depends only on the shape, so results are bitwise equal. A thread takes whole groups. If
 * there are more threads than groups, all threads share the same block of every group, first its
 * tiles, then the rows of its products.
 */
#include "cpu_winograd_int.h"
#include <string.h>

/* BLOCK: tiles of a thread that takes whole groups; all sums are read and written once for them. */
enum { PLACES = CPU_WINO_PLACES, MAX_GROUPS = 16, BLOCK = 2 * CPU_WINO_TILES };
#define STAGED_FLOATS (1 << 19) /* limit of transformed tiles shared by threads */
#define GROUP_FLOATS  (1 << 20) /* limit of the sums of all groups */

typedef struct {
    cpu_wino_tiles_t tiles;
    const void *x, *dy, *zeros;
    int groups;
    int64_t block; /* tiles at a time */
    int64_t step_v, step_z, step_sums;
    float *staged, *sums; /* of each group, or of each thread; of each group */
} pass_t;

/* Of the sums of a group and place. */
static int64_t sums_floats(const cpu_winograd_t *conv) {
    return conv->depth * conv->x.c * conv->y.c;
}

static int groups_of(const cpu_wino_tiles_t *tiles) {
    int64_t fit = GROUP_FLOATS / (PLACES * sums_floats(&tiles->conv));
    int64_t full = tiles->count * tiles->planes / BLOCK, groups = fit < full ? fit : full;
    if (groups > MAX_GROUPS) groups = MAX_GROUPS;
    /* a power of two, for equal work per thread */
    while (groups & (groups - 1)) groups &= groups - 1;
    return groups < 1 ? 1 : (int)groups;
}

static pass_t cpu_winograd_filters_pass_of(const cpu_winograd_t *conv, int threads) {
    int64_t fit = STAGED_FLOATS / (PLACES * (conv->x.c + conv->y.c));
    pass_t q = {.tiles = cpu_wino_tiles(conv)};
    const int64_t planes = q.tiles.planes;
    q.groups = groups_of(&q.tiles);
    bool alone = q.groups > 1 && q.groups >= threads;
    q.block = (alone || fit < BLOCK ? BLOCK : fit) / planes;
    if (q.block > q.tiles.count) q.block = q.tiles.count;
    q.step_v = cpu_wino_apart(cpu_wino_planes_of_x(&q.tiles, planes) * q.block * conv->x.c);
    q.step_z = cpu_wino_apart(planes * q.block * conv->y.c);
    q.step_sums = cpu_wino_apart(sums_floats(conv));
    return q;
}

static int64_t staged_floats(const pass_t *q) {
    return PLACES * (q->step_v + q->step_z);
}
static int64_t zeros_floats(const cpu_winograd_t *conv) {
    return cpu_wino_zeros(conv->x.c > conv->y.c ? conv->x.c : conv->y.c);
}

size_t tr_cpu_winograd_bwd_weights_scratch_bytes(const tr_device_t *device,
                                                 const cpu_winograd_t *conv) {
    const pass_t q = cpu_winograd_filters_pass_of(conv, device->threads);
    int64_t blocks = q.groups < device->threads ? q.groups : device->threads;
    int64_t floats = blocks * staged_floats(&q) + q.groups * PLACES * q.step_sums;
    return (size_t)(zeros_floats(conv) + floats) * sizeof(float);
}

/* The part of a thread in groups [first, last), which are shared by `members` threads. */
typedef struct {
    int first, last, member, members;
    float *staged; /* one block per group */
} share_t;

static cpu_range_t tiles_of(const pass_t *q, int64_t group) {
    return cpu_range(q->tiles.count, 1, q->groups, (int)group);
}

/* A block of every group: `tiles` after the first `done`, or those that are left, and planes. */
typedef struct {
    int64_t done, tiles, plane, planes;
} block_t;

/* Transforms a block of each group, ordered by place, then tile, then plane, then channel. */
static void stage(const pass_t *q, const block_t *b, const share_t *s) {
    const cpu_winograd_t *conv = &q->tiles.conv;
    const int64_t in = conv->x.c, out = conv->y.c,
                  planes_of_x = cpu_wino_planes_of_x(&q->tiles, b->planes);
    const cpu_range_t own = cpu_range((s->last - s->first) * b->tiles, 1, s->members, s->member);
    for (int64_t i = own.first; i < own.last; i++) {
        const int64_t group = i / b->tiles, t = i % b->tiles;
        const cpu_range_t tiles = tiles_of(q, s->first + group);
        const int64_t tile = tiles.first + b->done + t;
        float *v = s->staged + group * staged_floats(q), *z = v + PLACES * q->step_v;
        if (tile >= tiles.last) continue;
        for (int64_t p = 0; p < planes_of_x; p++)
            tr_cpu_wino_input(&q->tiles, tile, b->plane + p - conv->pad_d, q->x, q->zeros,
                              v + (t * planes_of_x + p) * in, q->step_v);
        for (int64_t p = 0; p < b->planes; p++)
            tr_cpu_wino_gradient(&q->tiles, tile, b->plane + p, q->dy, q->zeros,
                                 z + (t * b->planes + p) * out, q->step_z);
    }
}

/* sums += z' v of the tiles that were staged; = of the first ones. */
static void add_products(const pass_t *q, const block_t *b, const share_t *s) {
    const cpu_winograd_t *conv = &q->tiles.conv;
    const int64_t in = conv->x.c, out = conv->y.c, of_place = conv->depth * out,
                  all = PLACES * of_place;
    const cpu_range_t own =
        cpu_range((s->last - s->first) * all, CPU_VEC_LANES, s->members, s->member);
    for (int64_t at = own.first, rows; at < own.last; at += rows) {
        const int64_t group = at / all, place = at % all / of_place, plane = at % of_place / out,
                      row = at % out;
        const cpu_range_t tiles = tiles_of(q, s->first + group);
        const int64_t first = tiles.first + b->done, last = first + b->tiles;
        const cpu_range_t need =
            cpu_wino_needing(&q->tiles, (int)place, first, last < tiles.last ? last : tiles.last);
        const int64_t count = need.last - need.first, skip = need.first - first,
                      part_a = b->planes * out,
                      part_b = cpu_wino_planes_of_x(&q->tiles, b->planes) * in;
        const float *v = s->staged + group * staged_floats(q), *z = v + PLACES * q->step_v;
        float *sums = q->sums + ((s->first + group) * PLACES + place) * q->step_sums;
        rows = out - row < own.last - at ? out - row : own.last - at;
        cpu_wino_product_t product = {.a = z + place * q->step_z + skip * part_a + row,
                                      .row_a = 1,
                                      .part_a = part_a,
                                      .step_a = out,
                                      .b = v + place * q->step_v + skip * part_b + plane * in,
                                      .row_b = in,
                                      .part_b = part_b,
                                      .parts = count,
                                      .terms = b->planes,
                                      .c = sums + (plane * out + row) * in,
                                      .row_c = in};
        if (conv->depth == 1) product.parts = 1, product.terms = count * b->planes;
        tr_cpu_wino_multiply_add(product, rows, in, b->done + b->plane > 0);
    }
}

/* Planes are in the outer loop, so that the order of sums does not depend on the size of blocks. */
static void add_groups(const pass_t *q, share_t s) {
    const int64_t most = (q->tiles.count + q->groups - 1) / q->groups, /* tiles of a group */
        planes = q->tiles.conv.y.d;
    for (block_t b = {0}; b.plane < planes; b.plane += b.planes) {
        b.planes = planes - b.plane < q->tiles.planes ? planes - b.plane : q->tiles.planes;
        for (b.done = 0; b.done < most; b.done += q->block) {
            b.tiles = most - b.done < q->block ? most - b.done : q->block;
            stage(q, &b, &s);
            if (s.members > 1) {
#pragma omp barrier
            }
            add_products(q, &b, &s);
            if (s.members > 1) {
#pragma omp barrier
            }
        }
    }
}

static void unpack_filters(const pass_t *q, float *dw) {
    const cpu_winograd_t *conv = &q->tiles.conv;
    const cpu_wino_sums_t sums = {conv->size, q->groups, conv->x.c, q->step_sums, q->sums};
    const int64_t floats = conv->size * conv->size * conv->x.c;
#pragma omp for schedule(static) collapse(2)
    for (int64_t plane = 0; plane < conv->depth; plane++)
        for (int64_t out = 0; out < conv->y.c; out++)
            tr_cpu_wino_unpack(&sums, plane * conv->y.c + out,
                               dw + (out * conv->depth + plane) * floats);
}

void tr_cpu_winograd_bwd_weights(const tr_device_t *device, const cpu_winograd_t *conv,
                                 const void *x, const void *dy, float *dw, void *scratch) {
    pass_t q = cpu_winograd_filters_pass_of(conv, device->threads);
    q.x = x, q.dy = dy, q.zeros = scratch;
    q.sums = (float *)scratch + zeros_floats(conv),
    q.staged = q.sums + q.groups * PLACES * q.step_sums;
    memset(scratch, 0, (size_t)zeros_floats(conv) * sizeof(float));
#pragma omp parallel num_threads(device->threads)
    {
        int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        if (q.groups < threads)
            add_groups(&q, (share_t){0, q.groups, thread, threads, q.staged});
        else
#pragma omp for schedule(static, 1)
            for (int group = 0; group < q.groups; group++)
                add_groups(
                    &q, (share_t){group, group + 1, 0, 1, q.staged + thread * staged_floats(&q)});
        unpack_filters(&q, dw);
    }
}
