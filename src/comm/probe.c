/* Measures the network between ranks. */
#include "probe.h"
#include "base/stats.h"
#include "engine_int.h"
#include "base/clock.h"
#include "base/mem.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { PERIOD = 31, WARM_RUNS = 3, LEAST_RUNS = 5, MOST_RUNS = 200, ROUND_TRIPS = 8 };
#define TIMED_SEC 0.2
#define MOST_SEC  1.0

struct tr_probe {
    tr_world_t *world;
    tr_device_t *device;
    tr_collectives_t *collectives;
    tr_stream_t *stream;
    void *data, *host; /* device memory; host memory for copies; both of max_bytes */
    int64_t max_bytes;
    double pause_sec;
    double sec[MOST_RUNS];
};

tr_status_t tr_probe_open(tr_world_t *world, tr_device_t *device, tr_collectives_t *collectives,
                          int64_t max_bytes, double pause_sec, tr_probe_t **out) {
    const tr_device_ops_t *ops = device->ops;
    tr_probe_t *p = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *p, "network probe", &p));
    *p = (tr_probe_t){.world = world,
                      .device = device,
                      .collectives = collectives,
                      .max_bytes = max_bytes,
                      .pause_sec = pause_sec};
    TR_TRY_GOTO(ops->stream_create(device, "probe", TR_PRIORITY_NORMAL, &p->stream), fail);
    TR_TRY_GOTO(ops->alloc(device, (size_t)max_bytes, TR_ALLOC_SHARED_BY_RANKS, &p->data), fail);
    TR_TRY_GOTO(ops->host_alloc(device, (size_t)max_bytes, &p->host), fail);
    TR_TRY_GOTO(ops->zero(device, p->stream, p->data, (size_t)max_bytes), fail);
    if (collectives->ops->share)
        TR_TRY_GOTO(collectives->ops->share(collectives, p->data, (size_t)max_bytes), fail);
    *out = p;
    return TR_OK;
fail:
    tr_probe_close(&p);
    return status;
}

void tr_probe_close(tr_probe_t **probe) {
    tr_probe_t *p = *probe;
    if (!p) return;
    if (p->host) p->device->ops->host_free(p->device, p->host);
    if (p->data) p->device->ops->free(p->device, p->data);
    if (p->stream) p->device->ops->stream_destroy(p->device, p->stream);
    tr_free(probe);
}

/* -- collectives ------------------------------------------------------------------------------- */

static tr_status_t probe_run_once(tr_probe_t *p, tr_collective_kind_t kind, int64_t count) {
    const tr_collective_t what = {kind, TR_GROUP_ALL, p->data, count, TR_F32, 0};
    tr_collectives_t *c = p->collectives;
    tr_ticket_t ticket;
    TR_TRY(c->ops->start(c, &what, p->stream, &ticket));
    TR_TRY(c->ops->wait(c, ticket, p->stream));
    return p->device->ops->stream_sync(p->device, p->stream);
}

/* Small integers, whose sums are exact in floats. The period is prime, so that a misplaced piece is
 * detected. */
static float probe_value_at(int rank, int64_t i) {
    return (float)((rank + i) % PERIOD + 1);
}

static tr_status_t probe_check(const tr_probe_t *p, tr_collective_kind_t kind, int64_t count) {
    const int size = p->collectives->size;
    const int64_t part = kind == TR_REDUCE_SCATTER ? count / size : count;
    const int64_t first = kind == TR_REDUCE_SCATTER ? p->collectives->rank * part : 0;
    const float *found = p->host;
    float sum[PERIOD] = {0};
    for (int i = 0; i < PERIOD; i++)
        for (int r = 0; r < size; r++) sum[i] += probe_value_at(r, i);
    for (int64_t i = first; i < first + part; i++) {
        const float expected =
            kind == TR_ALLGATHER ? probe_value_at((int)(i / (count / size)), i) : sum[i % PERIOD];
        if (found[i] != expected)
            return TR_FAIL(TR_ERR_INTERNAL,
                           "%s of %lld bytes over %d ranks (engine %s): expected %g at element "
                           "%lld, found %g. Results of training would be wrong: try another "
                           "parallel.engine, and report it to the administrators.",
                           kind == TR_ALLREDUCE   ? "all-reduce"
                           : kind == TR_ALLGATHER ? "all-gather"
                                                  : "reduce-scatter",
                           (long long)(count * 4), size, p->collectives->engine, (double)expected,
                           (long long)i, (double)found[i]);
    }
    return TR_OK;
}

static tr_status_t probe_run_and_check(tr_probe_t *p, tr_collective_kind_t kind, int64_t count) {
    const tr_device_ops_t *ops = p->device->ops;
    const size_t bytes = (size_t)count * sizeof(float);
    float *host = p->host;
    for (int64_t i = 0; i < count; i++) host[i] = probe_value_at(p->collectives->rank, i);
    TR_TRY(ops->copy(p->device, p->stream, p->data, host, bytes, TR_COPY_TO_DEVICE));
    TR_TRY(probe_run_once(p, kind, count));
    TR_TRY(ops->copy(p->device, p->stream, host, p->data, bytes, TR_COPY_TO_HOST));
    TR_TRY(ops->stream_sync(p->device, p->stream));
    return tr_world_agree(p->world, probe_check(p, kind, count));
}

static tr_status_t probe_rest(const tr_probe_t *p) {
    const double sec = floor(p->pause_sec);
    if (p->pause_sec <= 0) return TR_OK;
    nanosleep(
        &(struct timespec){.tv_sec = (time_t)sec, .tv_nsec = (long)((p->pause_sec - sec) * 1e9)},
        NULL);
    return tr_world_barrier(p->world);
}

/* Writes the times of `runs` collectives on this rank to p->sec. peer: instead of them, a copy of
 * this memory of another rank. As in a training step, every rank has just written its data: what
 * other cores read is not in their caches. */
static tr_status_t probe_time_runs(tr_probe_t *p, tr_collective_kind_t kind, int64_t bytes,
                                   const void *peer, int runs) {
    const tr_device_ops_t *ops = p->device->ops;
    for (int i = 0; i < runs; i++) {
        TR_TRY(probe_rest(p));
        /* zeros stay finite, however often they are summed */
        TR_TRY(ops->zero(p->device, p->stream, p->data, (size_t)bytes));
        TR_TRY(ops->stream_sync(p->device, p->stream));
        TR_TRY(tr_world_barrier(p->world));
        const double begin_sec = tr_clock_sec();
        if (peer)
            memcpy(p->host, peer, (size_t)bytes);
        else
            TR_TRY(probe_run_once(p, kind, bytes / (int64_t)sizeof(float)));
        p->sec[i] = tr_clock_sec() - begin_sec;
        if (peer) TR_TRY(tr_world_barrier(p->world));
    }
    return TR_OK;
}

/* As many runs as TIMED_SEC has room for, and no more than take MOST_SEC with the barriers between
 * them, which take long where ranks share cores. */
static tr_status_t probe_time(tr_probe_t *p, tr_collective_kind_t kind, int64_t bytes,
                              const void *peer, tr_probe_times_t *out) {
    double shortest[2] = {INFINITY, INFINITY}; /* of a collective; with its barrier */
    for (int i = 0; i < WARM_RUNS; i++) {
        const double begin_sec = tr_clock_sec();
        TR_TRY(probe_time_runs(p, kind, bytes, peer, 1));
        shortest[0] = fmin(shortest[0], p->sec[0]);
        shortest[1] = fmin(shortest[1], tr_clock_sec() - begin_sec - p->pause_sec);
    }
    TR_TRY(tr_world_allreduce(p->world, shortest, 2, TR_REDUCE_MAX));
    const double fit =
        fmin(TIMED_SEC / fmax(shortest[0], 1e-9), MOST_SEC / fmax(shortest[1], 1e-9));
    const int runs = fit < LEAST_RUNS ? LEAST_RUNS : fit > MOST_RUNS ? MOST_RUNS : (int)fit;
    TR_TRY(probe_time_runs(p, kind, bytes, peer, runs));
    TR_TRY(tr_world_allreduce(p->world, p->sec, runs, TR_REDUCE_MAX));
    tr_sort(p->sec, runs);
    *out = (tr_probe_times_t){p->sec[runs / 2], p->sec[(runs * 9 + 9) / 10 - 1], runs};
    return TR_OK;
}

tr_status_t tr_probe_collective(tr_probe_t *p, tr_collective_kind_t kind, int64_t bytes,
                                tr_probe_times_t *out) {
    const int64_t count = bytes / (int64_t)sizeof(float);
    TR_TRY(probe_run_and_check(p, kind, count));
    TR_TRY(probe_time(p, kind, bytes, NULL, out));
    return probe_run_and_check(p, kind, count);
}

tr_status_t tr_probe_copy(tr_probe_t *p, int64_t bytes, tr_probe_times_t *out) {
    const void *peer = tr_shared_next(p->collectives, p->data, bytes);
    *out = (tr_probe_times_t){.median_sec = NAN, .p90_sec = NAN};
    return peer ? probe_time(p, TR_ALLREDUCE, bytes, peer, out) : TR_OK;
}

double tr_probe_algorithm_bandwidth(int64_t bytes, double sec) {
    return sec > 0 ? (double)bytes / sec : 0;
}

double tr_probe_bus_bandwidth(tr_collective_kind_t kind, int64_t bytes, double sec, int ranks) {
    return tr_probe_algorithm_bandwidth(bytes, sec) * (kind == TR_ALLREDUCE ? 2 : 1) * (ranks - 1) /
           ranks;
}

/* -- links ------------------------------------------------------------------------------------- */

static tr_status_t probe_pass(tr_probe_t *p, int peer, int64_t count, bool sends) {
    tr_collectives_t *c = p->collectives;
    if (sends)
        TR_TRY(c->ops->send(c, p->data, count, TR_F32, peer, p->stream));
    else
        TR_TRY(c->ops->receive(c, p->data, count, TR_F32, peer, p->stream));
    return p->device->ops->stream_sync(p->device, p->stream);
}

/* Half of the shortest round trip to `peer`, which also calls this. The first one is a warm-up. */
static tr_status_t probe_time_peer(tr_probe_t *p, int peer, int64_t bytes, double *out_sec) {
    const bool first = p->collectives->rank < peer;
    const int64_t count = bytes / (int64_t)sizeof(float);
    *out_sec = INFINITY;
    for (int i = 0; i <= ROUND_TRIPS; i++) {
        const double begin_sec = tr_clock_sec();
        TR_TRY(probe_pass(p, peer, count, first));
        TR_TRY(probe_pass(p, peer, count, !first));
        if (i > 0) *out_sec = fmin(*out_sec, (tr_clock_sec() - begin_sec) / 2);
    }
    return TR_OK;
}

int tr_probe_link_count(int ranks) {
    return ranks == 2 ? 1 : ranks;
}

tr_status_t tr_probe_ring(tr_probe_t *p, const int *ranks, int count, tr_probe_link_t *out) {
    const int links = tr_probe_link_count(count), rank = p->collectives->rank;
    double *sec = NULL; /* [2 * links]; 0 on ranks that do not start the link */
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(2 * (size_t)links * sizeof *sec, "times of links", &sec));
    for (int round = 0; round < 3; round++) {
        for (int i = 0; i < links; i++) {
            const int from = ranks[i], to = ranks[(i + 1) % count];
            double small, large;
            /* links of one round have no common rank: those that start at even places, at odd
             * places, and the last one of an odd ring */
            const int of_link = count % 2 == 1 && i == count - 1 ? 2 : i % 2;
            if (of_link != round || (rank != from && rank != to)) continue;
            const int peer = rank == from ? to : from;
            TR_TRY_GOTO(probe_time_peer(p, peer, TR_PROBE_SMALL_BYTES, &small), done);
            TR_TRY_GOTO(probe_time_peer(p, peer, TR_PROBE_LARGE_BYTES, &large), done);
            sec[2 * i] = small;
            sec[2 * i + 1] = large;
        }
        TR_TRY_GOTO(tr_world_barrier(p->world), done);
    }
    TR_TRY_GOTO(tr_world_allreduce(p->world, sec, 2 * links, TR_REDUCE_MAX), done);
    for (int i = 0; i < links; i++)
        out[i] = (tr_probe_link_t){ranks[i], ranks[(i + 1) % count], sec[2 * i], sec[2 * i + 1]};
done:
    tr_free(&sec);
    return status;
}
