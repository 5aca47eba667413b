/* The world of ranks: opening MPI, places on nodes, agreement, host collectives. */
#include "world_int.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* "Open MPI v4.1.4, package: ..." and "MPICH Version:\t4.0.2\nMPICH ..." as one short line. */
static void world_read_mpi_version(char out[128]) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING] = "";
    int length = 0;
    size_t n = 0;
    MPI_Get_library_version(text, &length);
    for (const char *c = text; *c && !strchr(",\n", *c) && n < 127; c++) {
        bool space = *c == ' ' || *c == '\t' || *c == ':';
        if (!space)
            out[n++] = *c;
        else if (n && out[n - 1] != ' ')
            out[n++] = ' ';
    }
    out[n] = '\0';
}

/*
 * A process without a launcher. Open MPI would start a daemon, which only MPI_Comm_spawn needs, and
 * look for networks: together 0.3 s. It would listen for other ranks. And without the daemon,
 * version 4 has one folder for all such processes of a user, which one removes while another makes
 * it; version 5 names it by process. What the user has set stays; what is set here is removed after
 * MPI_Init, for the programs that this process starts.
 */
static const char *const alone[][2] = {{"OMPI_MCA_ess_singleton_isolated", "1"},
                                       {"OMPI_MCA_orte_create_session_dirs", "0"},
                                       {"OMPI_MCA_pml", "ob1"},
                                       {"OMPI_MCA_btl", "self"}};

static tr_status_t world_init_mpi_alone(int *out_level) {
    bool is_ours[TR_COUNT(alone)];
    for (size_t i = 0; i < TR_COUNT(alone); i++) {
        is_ours[i] = !getenv(alone[i][0]);
        if (is_ours[i]) setenv(alone[i][0], alone[i][1], 1);
    }
    const int code = MPI_Init_thread(NULL, NULL, MPI_THREAD_SERIALIZED, out_level);
    for (size_t i = 0; i < TR_COUNT(alone); i++)
        if (is_ours[i]) unsetenv(alone[i][0]);
    return code == MPI_SUCCESS
               ? TR_OK
               : tr_mpi_check(code, "MPI_Init_thread", __FILE__, __LINE__, __func__);
}

/* *out_tasks: from the environment of the launcher, read before MPI adds its own variables. */
static tr_status_t world_init_mpi(tr_world_t *w, int64_t *out_tasks) {
    int initialised = 0, finalised = 0, level = MPI_THREAD_SINGLE;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (finalised)
        return TR_FAIL(TR_ERR_CONFIG,
                       "MPI was already finalized: a process can open the world once. Start a new "
                       "process.");
    *out_tasks = tr_launch_tasks();
    /* Not MULTIPLE: one thread at a time is enough, and the locks of MULTIPLE slow every call. */
    if (initialised) {
        TR_MPI(MPI_Query_thread, (&level));
    } else {
        /* Open MPI would end the program there, with its own message. */
        if (tr_launch_link() == TR_LAUNCH_NONE) return tr_launch_fail();
        if (!tr_launch_exists())
            TR_TRY(world_init_mpi_alone(&level));
        else
            TR_MPI(MPI_Init_thread, (NULL, NULL, MPI_THREAD_SERIALIZED, &level));
        w->owns_mpi = true;
    }
    w->any_thread = level >= MPI_THREAD_SERIALIZED;
    return TR_OK;
}

static tr_status_t world_check_launch(const tr_world_t *w, int64_t tasks) {
    if (w->info.size > 1 || tasks <= 1) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "The launcher started %lld tasks, but MPI (%s) sees one rank: each task would "
                   "train alone. Launch with 'srun --mpi=pmix ...' ('srun --mpi=list' shows the "
                   "types of this SLURM) or with the mpirun of the same MPI.",
                   (long long)tasks, w->info.mpi_version);
}

static tr_status_t world_find_node(tr_world_t *w, MPI_Comm local) {
    tr_world_info_t *info = &w->info;
    int mine = info->rank, *lowest = NULL;
    TR_MPI(MPI_Bcast, (&mine, 1, MPI_INT, 0, local));
    TR_TRY(tr_alloc((size_t)info->size * sizeof *lowest, "nodes", &lowest));
    tr_status_t status = tr_world_allgather(w, &mine, sizeof mine, lowest);
    if (status == TR_OK) tr_count_nodes(lowest, info->size, info->rank, &info->node, &info->nodes);
    tr_free(&lowest);
    return status;
}

/* local: of the ranks of this node; MPI_COMM_NULL: without MPI. */
static tr_status_t world_find_cores(tr_world_t *w, MPI_Comm local) {
    tr_world_info_t *info = &w->info;
    const size_t bytes = sizeof(cpu_set_t);
    TR_TRY(tr_alloc((size_t)info->local_size * bytes, "affinity masks", &w->node_cores));
    cpu_set_t *mine = &w->node_cores[info->local_rank];
    if (sched_getaffinity(0, bytes, mine) != 0 || CPU_COUNT(mine) == 0) CPU_SET(0, mine);
    if (local != MPI_COMM_NULL)
        TR_MPI(MPI_Allgather,
               (MPI_IN_PLACE, 0, MPI_BYTE, w->node_cores, (int)bytes, MPI_BYTE, local));
    int64_t crowded = tr_count_cores(w->node_cores, info->local_size, info->local_rank,
                                     &info->cores, &info->cores_shared_by);
    crowded |= tr_limit_cores(tr_host_cpu_limit(), info);
    TR_TRY(tr_world_allreduce_int(w, &crowded, 1, TR_REDUCE_MAX));
    info->more_than_cores = crowded;
    return TR_OK;
}

static tr_status_t world_find_place(tr_world_t *w) {
    MPI_Comm local = MPI_COMM_NULL;
    TR_MPI(MPI_Comm_split_type,
           (w->comm, MPI_COMM_TYPE_SHARED, w->info.rank, MPI_INFO_NULL, &local));
    MPI_Comm_set_errhandler(local, MPI_ERRORS_RETURN);
    MPI_Comm_rank(local, &w->info.local_rank);
    MPI_Comm_size(local, &w->info.local_size);
    tr_status_t status = world_find_node(w, local);
    if (status == TR_OK) status = world_find_cores(w, local);
    MPI_Comm_free(&local);
    return status;
}

/* Errors are returned, also those of the duplication; otherwise only on the duplicate, because
 * `comm` may belong to an embedding program. */
static tr_status_t world_duplicate(MPI_Comm comm, MPI_Comm *out) {
    MPI_Errhandler before;
    TR_MPI(MPI_Comm_get_errhandler, (comm, &before));
    TR_MPI(MPI_Comm_set_errhandler, (comm, MPI_ERRORS_RETURN));
    TR_MPI(MPI_Comm_dup, (comm, out));
    TR_MPI(MPI_Comm_set_errhandler, (*out, MPI_ERRORS_RETURN));
    TR_MPI(MPI_Comm_set_errhandler, (comm, before));
    TR_MPI(MPI_Errhandler_free, (&before));
    return TR_OK;
}

static tr_status_t world_open(tr_world_t *w, const MPI_Comm *given) {
    int64_t tasks = 0;
    TR_TRY(world_init_mpi(w, &tasks));
    TR_TRY(world_duplicate(given ? *given : MPI_COMM_WORLD, &w->comm));
    MPI_Comm_rank(w->comm, &w->info.rank);
    MPI_Comm_size(w->comm, &w->info.size);
    if (!given) TR_TRY(world_check_launch(w, tasks));
    return world_find_place(w);
}

static tr_status_t world_open_alone(tr_world_t *w) {
    w->info.size = w->info.local_size = w->info.nodes = 1;
    w->any_thread = true;
    return world_find_cores(w, MPI_COMM_NULL);
}

static tr_status_t world_create(bool with_mpi, const MPI_Comm *given, tr_world_t **out) {
    tr_world_t *w = NULL;
    TR_TRY(tr_alloc(sizeof *w, "world", &w));
    w->comm = MPI_COMM_NULL;
    pthread_mutex_init(&w->heartbeat.words_lock, NULL);
    const double begin_sec = tr_clock_sec();
    snprintf(w->info.host, sizeof w->info.host, "%s", tr_host_name());
    world_read_mpi_version(w->info.mpi_version);
    tr_status_t status = with_mpi ? world_open(w, given) : world_open_alone(w);
    w->info.open_sec = tr_clock_sec() - begin_sec;
    if (status != TR_OK) {
        tr_world_close(&w);
        return status;
    }
    *out = w;
    return TR_OK;
}

tr_status_t tr_world_open(const void *comm, tr_world_t **out) {
    return world_create(true, comm, out);
}

tr_status_t tr_world_open_alone(tr_world_t **out) {
    return world_create(false, NULL, out);
}

void tr_world_close(tr_world_t **world) {
    tr_world_t *w = *world;
    if (!w) return;
    /* If a peer is lost, finalizing would wait for it. When this process exits, the launcher ends
     * the others. */
    if (!w->lost) tr_mpi_free(&w->comm);
    if (!w->lost && w->owns_mpi) MPI_Finalize();
    tr_watchdog_stop(w); /* last: it also watches over finalizing */
    if (!w->lost) tr_free(&w->node_cores);
    if (!w->lost) tr_free(world);
    *world = NULL; /* if a peer was lost, the communication thread may still use it */
}

const tr_world_info_t *tr_world_info(const tr_world_t *world) {
    return &world->info;
}

const cpu_set_t *tr_world_node_cores(const tr_world_t *world) {
    return world->node_cores;
}

void tr_world_abort(tr_world_t *world, int code) {
    int initialised = 0, finalised = 0;
    MPI_Initialized(&initialised);
    MPI_Finalized(&finalised);
    if (world) tr_watchdog_end(world);
    if (initialised && !finalised)
        MPI_Abort(world && world->comm != MPI_COMM_NULL ? world->comm : MPI_COMM_WORLD, code);
}
