/* Checks of the network: an all-reduce over all ranks, and the links of a ring over the nodes (with
 * one node, over its ranks). A node is reported as slow if both of its links are slow. Ranks of one
 * node are not compared, because their times depend on its scheduler. */
#include "doctor.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#define SLOW_LINK       2.0   /* times the median */
#define LEAST_BANDWIDTH 110e6 /* bytes per second: less than gigabit Ethernet */

static double doctor_network_bandwidth(double sec) {
    return sec > 0 ? TR_PROBE_LARGE_BYTES / sec : 0;
}

/* -- timing ------------------------------------------------------------------------------------ */

static tr_status_t doctor_network_time(doctor_t *d) {
    tr_collectives_t *c = NULL;
    tr_probe_t *probe = NULL;
    int *ring = NULL, count = 0;
    tr_status_t status = TR_OK;
    TR_TRY(tr_world_collectives(d->world, d->device, &d->parallel, &c));
    d->engine = c->engine;
    if (c->advice[0]) doctor_find(d, "network", DOCTOR_WARNING, TR_OK, NULL, "%s", c->advice);
    const tr_status_t opened =
        tr_probe_open(d->world, d->device, c, TR_PROBE_LARGE_BYTES, 0, &probe);
    TR_TRY(tr_world_agree(d->world, opened));
    /* The ring: the first rank of every node; with one node, all ranks. */
    TR_TRY(tr_alloc((size_t)d->info->size * sizeof *ring, "ring of ranks", &ring));
    for (int r = 0; r < d->info->size; r++)
        if (d->info->nodes == 1 || d->ranks[r].local_rank == 0) ring[count++] = r;
    TR_TRY_GOTO(tr_alloc((size_t)count * sizeof *d->links, "links", &d->links), done);
    TR_TRY_GOTO(tr_probe_ring(probe, ring, count, d->links), done);
    d->link_count = tr_probe_link_count(count);
    TR_TRY_GOTO(tr_probe_collective(probe, TR_ALLREDUCE, TR_PROBE_SMALL_BYTES, &d->small), done);
    TR_TRY_GOTO(tr_probe_collective(probe, TR_ALLREDUCE, TR_PROBE_LARGE_BYTES, &d->large), done);
    tr_world_collectives_close(d->world, &c); /* after an error, main ends the other ranks */
    tr_probe_close(&probe);
done:
    tr_free(&ring);
    return status;
}

/* -- judging ----------------------------------------------------------------------------------- */

/* Place i of the ring belongs to link i and to the previous link: the better of their times. */
static double doctor_network_best_of_place(const doctor_t *d, int i) {
    const int before = (i + d->link_count - 1) % d->link_count;
    return fmin(d->links[i].large_sec, d->links[before].large_sec);
}

/* The slowest place of a ring of three or more nodes, if it is much slower than the others; else
 * -1. */
static int doctor_network_slow_place(const doctor_t *d, double *out_median) {
    const int count = d->link_count;
    double *sorted = NULL;
    int slowest = 0;
    if (d->info->nodes < 2 || count < 3) return -1;
    if (tr_alloc((size_t)count * sizeof *sorted, "times", &sorted) != TR_OK) return -1;
    for (int i = 0; i < count; i++) {
        sorted[i] = doctor_network_best_of_place(d, i);
        if (sorted[i] > doctor_network_best_of_place(d, slowest)) slowest = i;
    }
    tr_sort(sorted, count);
    *out_median = sorted[(count - 1) / 2];
    tr_free(&sorted);
    return doctor_network_best_of_place(d, slowest) > SLOW_LINK * *out_median ? slowest : -1;
}

static void doctor_network_judge(doctor_t *d) {
    const tr_probe_link_t *fast = d->links, *slow = d->links;
    const char *between = d->info->nodes > 1 ? "nodes" : "ranks";
    double median = 0;
    const int place = doctor_network_slow_place(d, &median);
    for (int i = 1; i < d->link_count; i++) {
        if (d->links[i].large_sec < fast->large_sec) fast = &d->links[i];
        if (d->links[i].large_sec > slow->large_sec) slow = &d->links[i];
    }
    const double least = doctor_network_bandwidth(slow->large_sec);
    if (place >= 0 && doctor_is_busy(d, d->links[place].from))
        doctor_find(d, "network", DOCTOR_WARNING, TR_OK,
                    "Repeat this when nothing else uses its cores: messages wait for them.",
                    "%s (rank %d) answers slowly, and other programs use its cores",
                    d->ranks[d->links[place].from].host, d->links[place].from);
    else if (place >= 0)
        doctor_find(d, "network", DOCTOR_WARNING, TR_OK,
                    "Leave it out (--exclude=NODE), and report it to the administrators.",
                    "%s (rank %d) is slow: its best link has %.1f MB/s, the median is %.1f MB/s",
                    d->ranks[d->links[place].from].host, d->links[place].from,
                    doctor_network_bandwidth(doctor_network_best_of_place(d, place)) / 1e6,
                    doctor_network_bandwidth(median) / 1e6);
    else if (least < LEAST_BANDWIDTH && d->info->nodes > 1)
        doctor_find(
            d, "network", DOCTOR_WARNING, TR_OK,
            "Let MPI use the fast network: check its interfaces (OMPI_MCA_btl_tcp_if_include, "
            "UCX_NET_DEVICES) in slurm/env.sh.",
            "the link %s - %s (ranks %d and %d) has %.1f MB/s, less than gigabit Ethernet",
            d->ranks[slow->from].host, d->ranks[slow->to].host, slow->from, slow->to, least / 1e6);
    else
        doctor_find(d, "network", DOCTOR_OK, TR_OK, NULL,
                    "links between %s: 1 MiB at %.1f to %.1f MB/s", between, least / 1e6,
                    doctor_network_bandwidth(fast->large_sec) / 1e6);
}

tr_status_t doctor_check_network(doctor_t *d) {
    if (d->info->size < 2) return TR_OK;
    TR_TRY(doctor_network_time(d));
    doctor_find(d, "all-reduce", DOCTOR_OK, TR_OK, NULL,
                "4 bytes in %.1f us, 1 MiB in %.1f us (%.1f MB/s of bus bandwidth), engine %s",
                d->small.median_sec * 1e6, d->large.median_sec * 1e6,
                tr_probe_bus_bandwidth(TR_ALLREDUCE, TR_PROBE_LARGE_BYTES, d->large.median_sec,
                                       d->info->size) /
                    1e6,
                d->engine);
    doctor_network_judge(d);
    return TR_OK;
}
