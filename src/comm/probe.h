/*
 * A probe of the network: times collectives and round trips over the engine that training uses. For `trainer bench allreduce` and `trainer doctor`.
 */
#ifndef TR_COMM_PROBE_H
#define TR_COMM_PROBE_H

#include "device/collectives.h"
#include "comm/comm.h"

typedef struct tr_probe tr_probe_t;

/* Allocates device and host memory for messages of up to max_bytes (a multiple of 4). World
 * and device are borrowed until tr_probe_close. pause_sec: time that every rank sleeps before each timed
 * collective. Collective. */
tr_status_t tr_probe_open(tr_world_t *world, tr_device_t *device, tr_collectives_t *collectives,
                          int64_t max_bytes, double pause_sec, tr_probe_t **out);
/* After the collectives are closed: until then they may have registered its memory. Not
 * collective. */
void tr_probe_close(tr_probe_t **probe);

typedef struct {
    double median_sec, p90_sec; /* 90th percentile */
    int64_t runs;
} tr_probe_times_t;
/*
 * Times collectives (of floats, in place) on a range of `bytes` for about 0.2 s: a multiple of 4
 * from 4 to max_bytes; of 4 times the ranks, unless kind is TR_ALLREDUCE. The time of one is that of
 * its slowest rank. One before and one after the timed ones are checked on every rank:
 * TR_ERR_INTERNAL if a value is wrong. Collective.
 */
tr_status_t tr_probe_collective(tr_probe_t *probe, tr_collective_kind_t kind, int64_t bytes,
                                tr_probe_times_t *out);
/* The limit of collectives in memory that the ranks of a node share: each rank copies `bytes` that
 * the next one of its node has just written. NAN where they share none. Collective. */
tr_status_t tr_probe_copy(tr_probe_t *probe, int64_t bytes, tr_probe_times_t *out);
/* Rates in bytes per second, as defined in doc/PERFORMANCE.md of nccl-tests. The algorithm
 * bandwidth is bytes / time. The bus bandwidth is (ranks - 1) / ranks times that, twice as much for
 * an all-reduce; it does not depend on the number of ranks if the network is the limit. */
double tr_probe_algorithm_bandwidth(int64_t bytes, double sec);
double tr_probe_bus_bandwidth(tr_collective_kind_t kind, int64_t bytes, double sec, int ranks);

/* The times of a small and a large message in one direction: half of the shortest round trip. */
typedef struct {
    int from, to; /* ranks */
    double small_sec, large_sec;
} tr_probe_link_t;
enum { TR_PROBE_SMALL_BYTES = 4, TR_PROBE_LARGE_BYTES = 1 << 20 };
/*
 * Times the links of a ring over `count` >= 2 ranks: out[i] is the link from ranks[i] to the next.
 * Two ranks have one link, out[0]. Links without a common rank are timed at the same time. The
 * probe's max_bytes must be at least TR_PROBE_LARGE_BYTES. Every rank gets all results. `ranks` is
 * the same on all ranks. Collective, also for ranks that are not in `ranks`.
 */
tr_status_t tr_probe_ring(tr_probe_t *probe, const int *ranks, int count, tr_probe_link_t *out);
int tr_probe_link_count(int ranks);

#endif
