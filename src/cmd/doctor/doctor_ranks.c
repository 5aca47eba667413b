/* Checks of the ranks: cores, threads, versions, speed. */
#include "doctor.h"
#include "cmd/machine.h"
#include "base/clock.h"
#include "base/cores.h"
#include "base/stats.h"
#include "base/host.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define SLOW_RANK 0.6 /* of the median rate */
#define BUSY      0.1 /* of the cores that the ranks wanted */

/* -- gathering --------------------------------------------------------------------------------- */

static void doctor_ranks_add_row(void *self, const char *name, const char *value) {
    doctor_rank_t *mine = self;
    const size_t used = strlen(mine->report);
    snprintf(mine->report + used, sizeof mine->report - used, "%s\t%s\n", name, value);
}

static void doctor_ranks_read_version(const char *library, char *text, size_t bytes) {
    for (size_t i = 0; cmd_library_name(i); i++) {
        char version[128];
        const char *path;
        if (strcmp(cmd_library_name(i), library) == 0)
            snprintf(text, bytes, "%s", cmd_library_version(i, version, &path));
    }
}

/* SLURM grants a job fewer cores than a node has; a container, fewer than it shows. */
static int doctor_ranks_node_cores(void) {
    const char *granted = getenv("SLURM_CPUS_ON_NODE");
    const int limit = tr_host_cpu_limit();
    int64_t slurm;
    int cores = (int)sysconf(_SC_NPROCESSORS_ONLN);
    if (granted && tr_parse_int(granted, &slurm) && slurm > 0 && slurm < cores) cores = (int)slurm;
    return limit > 0 && limit < cores ? limit : cores;
}

tr_status_t doctor_gather_ranks(doctor_t *d) {
    const tr_device_ops_t *ops = d->device->ops;
    doctor_rank_t *mine = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc((size_t)d->info->size * sizeof *d->ranks, "table of ranks", &d->ranks));
    TR_TRY(tr_alloc(sizeof *mine, "table of ranks", &mine));
    const tr_world_info_t *info = d->info;
    mine->rank = info->rank;
    mine->node = info->node;
    mine->local_rank = info->local_rank;
    mine->threads = d->device->threads;
    mine->node_cores = doctor_ranks_node_cores();
    mine->user_namespace = doctor_user_namespace();
    memcpy(mine->host, info->host, sizeof mine->host);
    snprintf(mine->device, sizeof mine->device, "%s", d->device->ops->name);
    snprintf(mine->description, sizeof mine->description, "%.159s", d->device->description);
    snprintf(mine->trainer, sizeof mine->trainer, "%s", cmd_version);
    snprintf(mine->mpi, sizeof mine->mpi, "%s", info->mpi_version);
    doctor_ranks_read_version("HDF5", mine->hdf5, sizeof mine->hdf5);
    doctor_ranks_read_version("oneDNN", mine->onednn, sizeof mine->onednn);
    if (ops->place) {
        tr_device_place_t place = {0};
        ops->place(d->device, &place);
        mine->near_cores = place.near_cores;
        mine->siblings = place.siblings;
        mine->visible = place.visible;
    }
    (void)sched_getaffinity(0, sizeof mine->cores, &mine->cores);
    tr_cores_format(&mine->cores, mine->cores_text, sizeof mine->cores_text);
    cmd_format_numa(&mine->cores, mine->numa, sizeof mine->numa);
    TR_TRY_GOTO(tr_world_barrier(d->world), done); /* all compute at the same time */
    const double from_sec = tr_clock_sec(), waited_sec = tr_host_cores_wait_sec(),
                 used_sec = tr_host_cpu_sec();
    if (ops->measure_peak &&
        ops->measure_peak(d->device, TR_F32, &mine->flops, &mine->bytes) != TR_OK)
        mine->flops = mine->bytes = 0;
    mine->cores_used = (tr_host_cpu_sec() - used_sec) / (tr_clock_sec() - from_sec);
    mine->cores_waited =
        fmax(0, tr_host_cores_wait_sec() - waited_sec) / (tr_clock_sec() - from_sec);
    if (ops->report) (void)ops->report(d->device, doctor_ranks_add_row, mine);
    status = tr_world_allgather(d->world, mine, sizeof *mine, d->ranks);
done:
    tr_free(&mine);
    return status;
}

/* -- cores ------------------------------------------------------------------------------------- */

typedef struct {
    const doctor_rank_t *first; /* its rank with the lowest number */
    cpu_set_t cores;            /* of all its ranks */
    int ranks, threads;
    double used, waited;        /* cores */
    const doctor_rank_t *a, *b; /* two ranks that share cores; NULL: none do */
    cpu_set_t shared;           /* by these */
} node_t;

static void doctor_ranks_look_at_node(const doctor_t *d, int node, node_t *out) {
    *out = (node_t){0};
    for (int r = 0; r < d->info->size; r++) {
        const doctor_rank_t *rank = &d->ranks[r];
        cpu_set_t both;
        if (rank->node != node) continue;
        CPU_AND(&both, &rank->cores, &out->cores);
        for (int o = 0; o < r && !out->a && CPU_COUNT(&both) > 0; o++) {
            const doctor_rank_t *other = &d->ranks[o];
            CPU_AND(&out->shared, &rank->cores, &other->cores);
            if (other->node == node && CPU_COUNT(&out->shared) > 0) out->a = other, out->b = rank;
        }
        CPU_OR(&out->cores, &out->cores, &rank->cores);
        if (!out->first) out->first = rank;
        out->ranks++;
        out->threads += rank->threads;
        out->used += rank->cores_used;
        out->waited += rank->cores_waited;
    }
}

typedef enum { FEW_CORES, SHARED_CORES, MANY_THREADS, BUSY_CORES, IDLE_CORES, PROBLEMS } problem_t;

static void doctor_ranks_find_problem(doctor_t *d, problem_t problem, const node_t *n, int nodes) {
    static const char *const remedies[] = {
        [FEW_CORES] =
            "Start at most one rank per core: --ntasks-per-node and --cpus-per-task with "
            "srun, -np with mpirun; check whether taskset or a cgroup restricts the cores.",
        [SHARED_CORES] = "Bind the ranks: --cpu-bind=cores with --cpus-per-task=N on srun's own "
                         "line, or mpirun --bind-to core --map-by slot:PE=N.",
        [MANY_THREADS] = "Set threads = auto, and check OMP_NUM_THREADS.",
        [BUSY_CORES] = "Look for other programs on these cores (top), or take a node for the job "
                       "alone (--exclusive with SLURM); until then steps take longer.",
        [IDLE_CORES] = "Give the ranks more cores: --cpus-per-task=N on srun's own line, mpirun "
                       "--map-by slot:PE=N, or mpirun --bind-to none.",
    };
    char cores[128], more[48] = "";
    tr_cores_format(problem == SHARED_CORES ? &n->shared : &n->cores, cores, sizeof cores);
    if (nodes > 1) snprintf(more, sizeof more, ", and likewise on %d more", nodes - 1);
    const char *host = n->first->host;
    if (problem == SHARED_CORES)
        doctor_find(d, "cores", DOCTOR_WARNING, TR_OK, remedies[problem],
                    "%s: ranks %d and %d share the cores %s%s", host, n->a->rank, n->b->rank, cores,
                    more);
    else if (problem == BUSY_CORES)
        doctor_find(d, "cores", DOCTOR_WARNING, TR_OK, remedies[problem],
                    "%s: other programs use the cores: the ranks computed on %.1f and waited for "
                    "%.1f more%s",
                    host, n->used, n->waited, more);
    else
        doctor_find(d, "cores", DOCTOR_WARNING, TR_OK, remedies[problem],
                    "%s: %d rank%s with %d thread%s in total %s %d of %d cores (%s)%s", host,
                    n->ranks, n->ranks > 1 ? "s" : "", n->threads, n->threads > 1 ? "s" : "",
                    problem == IDLE_CORES ? "can use only" : "share", CPU_COUNT(&n->cores),
                    n->first->node_cores, cores, more);
}

bool doctor_is_busy(const doctor_t *d, int rank) {
    const doctor_rank_t *r = &d->ranks[rank];
    return r->cores_waited > BUSY * (r->cores_used + r->cores_waited);
}

void doctor_check_cores(doctor_t *d) {
    node_t first[PROBLEMS];
    int nodes[PROBLEMS + 1] = {0};
    double used = 0, waited = 0;
    for (int i = 0; i < d->info->nodes; i++) {
        node_t n;
        doctor_ranks_look_at_node(d, i, &n);
        const int cores = CPU_COUNT(&n.cores), all = n.first->node_cores;
        const bool is_crowded = n.ranks > cores || n.ranks > all || n.threads > cores;
        const bool is_busy = !is_crowded && n.waited > BUSY * (n.used + n.waited);
        const problem_t problem = n.ranks > cores || n.ranks > all        ? FEW_CORES
                                  : is_crowded                            ? MANY_THREADS
                                  : n.a                                   ? SHARED_CORES
                                  : is_busy                               ? BUSY_CORES
                                  : n.threads > 0 && n.threads * 2 <= all ? IDLE_CORES
                                                                          : PROBLEMS;
        if (nodes[problem]++ == 0 && problem < PROBLEMS) first[problem] = n;
        if (is_busy && problem != BUSY_CORES && nodes[BUSY_CORES]++ == 0) first[BUSY_CORES] = n;
        used += n.used;
        waited += n.waited;
    }
    for (problem_t p = 0; p < PROBLEMS; p++)
        if (nodes[p] > 0) doctor_ranks_find_problem(d, p, &first[p], nodes[p]);
    if (nodes[PROBLEMS] == d->info->nodes)
        doctor_find(d, "cores", DOCTOR_OK, TR_OK, NULL,
                    "every rank has cores of its own: the ranks computed on %.1f and waited for "
                    "%.1f more",
                    used, fmax(0, waited));
}

/* -- versions ---------------------------------------------------------------------------------- */

/* Whether the text at `offset` of a row is the same on all ranks. */
static bool doctor_ranks_have_same(doctor_t *d, const char *name, size_t offset,
                                   doctor_verdict_t verdict) {
    const char *expected = (const char *)&d->ranks[0] + offset;
    int other = 0, count = 0;
    for (int r = 1; r < d->info->size; r++)
        if (strcmp((const char *)&d->ranks[r] + offset, expected) != 0 && count++ == 0) other = r;
    if (count == 0) return true;
    doctor_find(d, "versions", verdict, TR_ERR_CONFIG,
                "Load the same modules and start the same program on all nodes.",
                "%s is %s on rank 0 (%s), but %s on rank %d (%s); ranks that differ: %d", name,
                expected, d->ranks[0].host, (const char *)&d->ranks[other] + offset, other,
                d->ranks[other].host, count);
    return false;
}

void doctor_check_versions(doctor_t *d) {
    const doctor_rank_t *first = &d->ranks[0];
    bool same =
        doctor_ranks_have_same(d, "trainer", offsetof(doctor_rank_t, trainer), DOCTOR_ERROR);
    same &= doctor_ranks_have_same(d, "MPI", offsetof(doctor_rank_t, mpi), DOCTOR_ERROR);
    same &= doctor_ranks_have_same(d, "HDF5", offsetof(doctor_rank_t, hdf5), DOCTOR_WARNING);
    same &= doctor_ranks_have_same(d, "oneDNN", offsetof(doctor_rank_t, onednn), DOCTOR_WARNING);
    if (same)
        doctor_find(d, "versions", DOCTOR_OK, TR_OK, NULL, "trainer %s, %s, HDF5 %s, oneDNN %s",
                    first->trainer, first->mpi, first->hdf5, first->onednn);
}

/* -- speed ------------------------------------------------------------------------------------- */

void doctor_check_speed(doctor_t *d) {
    const int size = d->info->size;
    double *sorted = NULL;
    int slowest = 0;
    if (d->ranks[0].flops <= 0 ||
        tr_alloc((size_t)size * sizeof *sorted, "rates", &sorted) != TR_OK)
        return;
    for (int r = 0; r < size; r++) {
        sorted[r] = d->ranks[r].flops;
        if (d->ranks[r].flops < d->ranks[slowest].flops) slowest = r;
    }
    tr_sort(sorted, size);
    const double median = sorted[size / 2], least = sorted[0];
    const doctor_rank_t *slow = &d->ranks[slowest];
    tr_free(&sorted);
    if (least < SLOW_RANK * median)
        doctor_find(
            d, "speed", DOCTOR_WARNING, TR_OK,
            "Look for other programs, a lower clock or shared cores there; leave the node "
            "out with --exclude.",
            "rank %d on %s computes at %.1f GFLOP/s, the median is %.1f; it used %.1f cores "
            "and waited for %.1f more",
            slowest, slow->host, least / 1e9, median / 1e9, slow->cores_used, slow->cores_waited);
    else
        doctor_find(d, "speed", DOCTOR_OK, TR_OK, NULL,
                    "every rank computes at %.1f GFLOP/s or more, at the same time", least / 1e9);
}
