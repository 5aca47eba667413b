/*
 * The gradient of the filters by Winograd's algorithm. Tiles are transformed one block at a time;
 * then the product of each place is added to its sums. If the sums are small, tiles are split into
 * groups with separate sums, which are joined in order. The number of groups depends only on the
 * shape, so results are bitwise equal. A thread takes whole groups. If there are more threads than
 * groups, all threads share the same block of every group, first its tiles, then the rows of its
 * products.
 */
#include "cpu_winograd_int.h"
#include <string.h>

enum { PLACES = CPU_WINO_PLACES, MAX_GROUPS = 16 };
#define STAGED_FLOATS (1 << 19) /* limit of transformed tiles shared by threads */
#define GROUP_FLOATS  (1 << 20) /* limit of the sums of all groups */

typedef struct {
    cpu_wino_tiles_t tiles;
    const float *x, *dy, *zeros;
    int groups;
    int64_t block; /* tiles at a time */
    int64_t step_v, step_z, step_sums;
    float *staged, *sums; /* of each group, or of each thread; of each group */
} pass_t;

static int groups_of(const cpu_wino_tiles_t *tiles) {
    int64_t fit = GROUP_FLOATS / (PLACES * tiles->conv.x.c * tiles->conv.y.c);
    int64_t full = tiles->count / CPU_WINO_TILES, groups = fit < full ? fit : full;
    if (groups > MAX_GROUPS) groups = MAX_GROUPS;
    /* a power of two, for equal work per thread */
    while (groups & (groups - 1)) groups &= groups - 1;
    return groups < 1 ? 1 : (int)groups;
}

static pass_t cpu_winograd_filters_pass_of(const cpu_winograd_t *conv, int threads) {
    int64_t fit = STAGED_FLOATS / (PLACES * (conv->x.c + conv->y.c));
    pass_t q = {.tiles = cpu_wino_tiles(conv)};
    q.groups = groups_of(&q.tiles);
    bool alone = q.groups > 1 && q.groups >= threads;
    q.block = alone || fit < CPU_WINO_TILES ? CPU_WINO_TILES : fit;
    if (q.block > q.tiles.count) q.block = q.tiles.count;
    q.step_v = cpu_wino_apart(q.block * conv->x.c), q.step_z = cpu_wino_apart(q.block * conv->y.c);
    q.step_sums = cpu_wino_apart(conv->x.c * conv->y.c);
    return q;
}

static int64_t staged_floats(const pass_t *q) {
    return PLACES * (q->step_v + q->step_z);
}
static int64_t zeros_floats(const cpu_winograd_t *conv) {
    return cpu_wino_apart(conv->x.c > conv->y.c ? conv->x.c : conv->y.c);
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

/* Transforms up to `count` tiles of each group, after the first `done`. */
static void stage(const pass_t *q, int64_t done, int64_t count, const share_t *s) {
    const int64_t in = q->tiles.conv.x.c, out = q->tiles.conv.y.c;
    const cpu_range_t own = cpu_range((s->last - s->first) * count, 1, s->members, s->member);
    for (int64_t i = own.first; i < own.last; i++) {
        const int64_t group = i / count, t = i % count;
        const cpu_range_t tiles = tiles_of(q, s->first + group);
        float *v = s->staged + group * staged_floats(q), *z = v + PLACES * q->step_v;
        if (tiles.first + done + t >= tiles.last) continue;
        tr_cpu_wino_input(&q->tiles, tiles.first + done + t, q->x, q->zeros, v + t * in, q->step_v);
        tr_cpu_wino_gradient(&q->tiles, tiles.first + done + t, q->dy, q->zeros, z + t * out,
                             q->step_z);
    }
}

/* sums += z' v of the tiles that were staged. */
static void add_products(const pass_t *q, int64_t done, int64_t count, const share_t *s) {
    const int64_t in = q->tiles.conv.x.c, out = q->tiles.conv.y.c, all = PLACES * out;
    const cpu_range_t own =
        cpu_range((s->last - s->first) * all, CPU_VEC_LANES, s->members, s->member);
    for (int64_t at = own.first, rows; at < own.last; at += rows) {
        const int64_t group = at / all, place = at % all / out, row = at % out;
        const cpu_range_t tiles = tiles_of(q, s->first + group);
        const int64_t left = tiles.last - tiles.first - done;
        const float *v = s->staged + group * staged_floats(q), *z = v + PLACES * q->step_v;
        float *sums = q->sums + ((s->first + group) * PLACES + place) * q->step_sums;
        rows = out - row < own.last - at ? out - row : own.last - at;
        tr_cpu_wino_multiply_add((cpu_wino_product_t){.a = z + place * q->step_z + row,
                                                      .row_a = 1,
                                                      .step_a = out,
                                                      .b = v + place * q->step_v,
                                                      .row_b = in,
                                                      .depth = left < count ? left : count,
                                                      .c = sums + row * in,
                                                      .row_c = in},
                                 rows, in);
    }
}

static void add_groups(const pass_t *q, share_t s) {
    const int64_t most = (q->tiles.count + q->groups - 1) / q->groups; /* tiles of a group */
    for (int64_t done = 0; done < most; done += q->block) {
        const int64_t count = most - done < q->block ? most - done : q->block;
        stage(q, done, count, &s);
        if (s.members > 1) {
#pragma omp barrier
        }
        add_products(q, done, count, &s);
        if (s.members > 1) {
#pragma omp barrier
        }
    }
}

static void unpack_filters(const pass_t *q, float *dw) {
    const cpu_winograd_t *conv = &q->tiles.conv;
    const cpu_wino_sums_t sums = {conv->size, q->groups, conv->x.c, q->step_sums, q->sums};
    int64_t floats = conv->size * conv->size * conv->x.c;
#pragma omp for schedule(static)
    for (int64_t out = 0; out < conv->y.c; out++) tr_cpu_wino_unpack(&sums, out, dw + out * floats);
}

void tr_cpu_winograd_bwd_weights(const tr_device_t *device, const cpu_winograd_t *conv,
                                 const float *x, const float *dy, float *dw, void *scratch) {
    pass_t q = cpu_winograd_filters_pass_of(conv, device->threads);
    q.x = x, q.dy = dy, q.zeros = scratch;
    q.sums = (float *)scratch + zeros_floats(conv),
    q.staged = q.sums + q.groups * PLACES * q.step_sums;
    memset(scratch, 0, (size_t)zeros_floats(conv) * sizeof(float));
#pragma omp parallel num_threads(device->threads)
    {
#pragma omp for schedule(static)
        for (int64_t i = 0; i < q.groups * PLACES; i++)
            memset(q.sums + i * q.step_sums, 0, (size_t)q.step_sums * sizeof(float));
        int thread = omp_get_thread_num(), threads = omp_get_num_threads();
        if (q.groups < threads)
            add_groups(&q, (share_t){0, q.groups, thread, threads, q.staged});
        else
#pragma omp for schedule(static)
            for (int group = 0; group < q.groups; group++)
                add_groups(
                    &q, (share_t){group, group + 1, 0, 1, q.staged + thread * staged_floats(&q)});
        unpack_filters(&q, dw);
    }
}
