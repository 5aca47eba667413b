/*
 * The gradient of the filters by Winograd's algorithm. Tiles are transformed a block at a time, then each place's product is added to
 * its sums. Where the sums are small, tiles are cut into groups, whose number follows from the shape alone: a group is one thread's and
 * has sums of its own, which are joined in their order. Where they are large there is one group, and all threads share its tiles and
 * then its places.
 */
#include "cpu_winograd_int.h"
#include <string.h>

enum { PLACES = CPU_WINO_PLACES, MAX_GROUPS = 16 };
#define STAGED_FLOATS (1 << 19) /* of transformed tiles that threads share, at most */
#define GROUP_FLOATS  (1 << 20) /* of sums of all groups, at most */

typedef struct {
    cpu_wino_tiles_t tiles;
    const float *x, *dy, *zeros;
    int groups;
    int64_t block; /* tiles at a time */
    int64_t step_v, step_z, step_sums;
    float *staged, *sums;
} pass_t;

/* Who of how many works at a block. */
typedef struct {
    int member, members;
} share_t;

static int groups_of(const cpu_wino_tiles_t *tiles) {
    int64_t fit = GROUP_FLOATS / (PLACES * tiles->conv.x.c * tiles->conv.y.c);
    int64_t full = tiles->count / CPU_WINO_TILES, groups = fit < full ? fit : full;
    if (groups > MAX_GROUPS) groups = MAX_GROUPS;
    while (groups & (groups - 1)) groups &= groups - 1; /* a power of two: as much for each thread */
    return groups < 1 ? 1 : (int)groups;
}

static pass_t pass_of(const cpu_winograd_t *conv) {
    int64_t fit = STAGED_FLOATS / (PLACES * (conv->x.c + conv->y.c));
    pass_t q = {.tiles = cpu_wino_tiles(conv)};
    q.groups = groups_of(&q.tiles);
    q.block = q.groups > 1 || fit < CPU_WINO_TILES ? CPU_WINO_TILES : fit;
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

size_t tr_cpu_winograd_bwd_weights_scratch_bytes(const tr_device_t *device, const cpu_winograd_t *conv) {
    const pass_t q = pass_of(conv);
    int64_t staged = (q.groups > 1 ? device->threads : 1) * staged_floats(&q);
    return (size_t)(zeros_floats(conv) + staged + q.groups * PLACES * q.step_sums) * sizeof(float);
}

static void add_block(const pass_t *q, int64_t first, int64_t count, float *staged, float *sums, share_t s) {
    int64_t in = q->tiles.conv.x.c, out = q->tiles.conv.y.c;
    float *v = staged, *z = staged + PLACES * q->step_v;
    cpu_range_t tiles = cpu_range(count, 1, s.members, s.member);
    cpu_range_t places = cpu_range(PLACES, 1, s.members, s.member);
    for (int64_t t = tiles.first; t < tiles.last; t++) {
        tr_cpu_wino_input(&q->tiles, first + t, q->x, q->zeros, v + t * in, q->step_v);
        tr_cpu_wino_gradient(&q->tiles, first + t, q->dy, q->zeros, z + t * out, q->step_z);
    }
    if (s.members > 1) {
#pragma omp barrier
    }
    for (int64_t place = places.first; place < places.last; place++)
        tr_cpu_wino_multiply_add((cpu_wino_product_t){.a = z + place * q->step_z,
                                                      .row_a = 1,
                                                      .step_a = out,
                                                      .b = v + place * q->step_v,
                                                      .row_b = in,
                                                      .depth = count,
                                                      .c = sums + place * q->step_sums,
                                                      .row_c = in},
                                 out, in);
    if (s.members > 1) {
#pragma omp barrier
    }
}

static void add_group(const pass_t *q, int group, float *staged, share_t s) {
    cpu_range_t tiles = cpu_range(q->tiles.count, 1, q->groups, group);
    float *sums = q->sums + group * PLACES * q->step_sums;
    for (int64_t first = tiles.first; first < tiles.last; first += q->block)
        add_block(q, first, tiles.last - first < q->block ? tiles.last - first : q->block, staged, sums, s);
}

static void unpack_filters(const pass_t *q, float *dw) {
    const cpu_winograd_t *conv = &q->tiles.conv;
    const cpu_wino_sums_t sums = {conv->size, q->groups, conv->x.c, q->step_sums, q->sums};
    int64_t floats = conv->size * conv->size * conv->x.c;
#pragma omp for schedule(static)
    for (int64_t out = 0; out < conv->y.c; out++) tr_cpu_wino_unpack(&sums, out, dw + out * floats);
}

void tr_cpu_winograd_bwd_weights(const tr_device_t *device, const cpu_winograd_t *conv, const float *x,
                                 const float *dy, float *dw, void *scratch) {
    pass_t q = pass_of(conv);
    int64_t own = q.groups > 1 ? staged_floats(&q) : 0, floats = PLACES * q.step_sums;
    q.x = x, q.dy = dy, q.zeros = scratch;
    q.sums = (float *)scratch + zeros_floats(conv), q.staged = q.sums + q.groups * floats;
    memset(scratch, 0, (size_t)zeros_floats(conv) * sizeof(float));
#pragma omp parallel num_threads(device->threads)
    {
        int member = omp_get_thread_num(), members = omp_get_num_threads();
#pragma omp for schedule(static)
        for (int64_t i = 0; i < q.groups * PLACES; i++)
            memset(q.sums + i * q.step_sums, 0, (size_t)q.step_sums * sizeof(float));
        if (q.groups == 1)
            add_group(&q, 0, q.staged, (share_t){member, members});
        else
#pragma omp for schedule(static)
            for (int group = 0; group < q.groups; group++)
                add_group(&q, group, q.staged + member * own, (share_t){0, 1});
        unpack_filters(&q, dw);
    }
}
