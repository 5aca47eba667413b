/* Checks of the network: an all-reduce over all ranks, and the links of a ring over the nodes (with
 * one node, over its ranks). A node is reported as slow if both of its links are slow. Ranks of one
 * node are not compared, because their times depend on its scheduler. */
#include "doctor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOW_LINK       2.0   /* times the median */
#define LEAST_BANDWIDTH 110e6 /* bytes per second: less than gigabit Ethernet */

static double bandwidth(double sec) {
    return sec > 0 ? TR_PROBE_LARGE_BYTES / sec : 0;
}

/* -- timing ------------------------------------------------------------------------------------ */

/* The ranks of the ring: the first rank of every node; with one node, all ranks. */
static int choose_ring(const doctor_t *d, int *ranks) {
    int count = 0;
    for (int r = 0; r < d->info->size; r++)
        if (d->info->nodes == 1 || d->ranks[r].local_rank == 0) ranks[count++] = r;
    return count;
}

static tr_status_t time_with(doctor_t *d, tr_probe_t *probe) {
    int *ring = NULL;
    TR_TRY(tr_alloc((size_t)d->info->size * sizeof *ring, "ring of ranks", &ring));
    const int count = choose_ring(d, ring);
    tr_status_t status = tr_alloc((size_t)count * sizeof *d->links, "links", &d->links);
    if (status == TR_OK) status = tr_probe_ring(probe, ring, count, d->links);
    if (status == TR_OK) d->link_count = tr_probe_link_count(count);
    tr_free(&ring);
    TR_TRY(status);
    TR_TRY(tr_probe_allreduce(probe, TR_PROBE_SMALL_BYTES, &d->small));
    return tr_probe_allreduce(probe, TR_PROBE_LARGE_BYTES, &d->large);
}

static tr_status_t time_network(doctor_t *d) {
    tr_collectives_t *c = NULL;
    tr_probe_t *probe = NULL;
    TR_TRY(tr_world_collectives(d->world, d->device, &d->parallel, &c));
    d->engine = c->engine;
    const tr_status_t opened =
        tr_probe_open(d->world, d->device, c, TR_PROBE_LARGE_BYTES, 0, &probe);
    TR_TRY(tr_world_agree(d->world, opened));
    TR_TRY(time_with(d, probe));
    tr_probe_close(&probe);
    tr_world_collectives_close(d->world, &c);
    return TR_OK;
}

/* -- judging ----------------------------------------------------------------------------------- */

/* Place i of the ring belongs to link i and to the previous link: the better of their times. */
static double best_of_place(const doctor_t *d, int i) {
    const int before = (i + d->link_count - 1) % d->link_count;
    return fmin(d->links[i].large_sec, d->links[before].large_sec);
}

/* The slowest place of a ring of three or more nodes, if it is much slower than the others; else
 * -1. */
static int find_slow_place(const doctor_t *d, double *out_median) {
    const int count = d->link_count;
    double *sorted = NULL;
    int slowest = 0;
    if (d->info->nodes < 2 || count < 3) return -1;
    if (tr_alloc((size_t)count * sizeof *sorted, "times", &sorted) != TR_OK) return -1;
    for (int i = 0; i < count; i++) {
        sorted[i] = best_of_place(d, i);
        if (sorted[i] > best_of_place(d, slowest)) slowest = i;
    }
    tr_sort(sorted, count);
    *out_median = sorted[(count - 1) / 2];
    tr_free(&sorted);
    return best_of_place(d, slowest) > SLOW_LINK * *out_median ? slowest : -1;
}

static void find_slow_link(doctor_t *d, double fastest, double slowest,
                           const tr_probe_link_t *slow) {
    const bool few = bandwidth(slowest) < LEAST_BANDWIDTH && d->info->nodes > 1;
    const char *between = d->info->nodes > 1 ? "nodes" : "ranks";
    if (few)
        doctor_find(
            d, "network", DOCTOR_WARNING, TR_OK,
            "Let MPI use the fast network: check its interfaces (OMPI_MCA_btl_tcp_if_include, "
            "UCX_NET_DEVICES) in slurm/env.sh.",
            "the link %s - %s (ranks %d and %d) has %.1f MB/s, less than gigabit Ethernet",
            d->ranks[slow->from].host, d->ranks[slow->to].host, slow->from, slow->to,
            bandwidth(slowest) / 1e6);
    else
        doctor_find(d, "network", DOCTOR_OK, TR_OK, NULL,
                    "links between %s: 1 MiB at %.1f to %.1f MB/s", between,
                    bandwidth(slowest) / 1e6, bandwidth(fastest) / 1e6);
}

static void judge_links(doctor_t *d) {
    const tr_probe_link_t *fast = d->links, *slow = d->links;
    double median = 0;
    const int place = find_slow_place(d, &median);
    for (int i = 1; i < d->link_count; i++) {
        if (d->links[i].large_sec < fast->large_sec) fast = &d->links[i];
        if (d->links[i].large_sec > slow->large_sec) slow = &d->links[i];
    }
    if (place < 0) {
        find_slow_link(d, fast->large_sec, slow->large_sec, slow);
        return;
    }
    const int rank = d->links[place].from;
    doctor_find(d, "network", DOCTOR_WARNING, TR_OK,
                "Leave it out (--exclude=NODE), and report it to the administrators.",
                "%s (rank %d) is slow: its best link has %.1f MB/s, the median is %.1f MB/s",
                d->ranks[rank].host, rank, bandwidth(best_of_place(d, place)) / 1e6,
                bandwidth(median) / 1e6);
}

tr_status_t doctor_check_network(doctor_t *d) {
    if (d->info->size < 2) return TR_OK;
    TR_TRY(time_network(d));
    doctor_find(d, "all-reduce", DOCTOR_OK, TR_OK, NULL,
                "4 bytes in %.1f us, 1 MiB in %.1f us (%.1f MB/s of bus bandwidth), engine %s",
                d->small.median_sec * 1e6, d->large.median_sec * 1e6,
                tr_probe_bus_bandwidth(TR_PROBE_LARGE_BYTES, d->large.median_sec, d->info->size) /
                    1e6,
                d->engine);
    judge_links(d);
    return TR_OK;
}
