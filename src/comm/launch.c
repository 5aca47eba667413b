/* What the launcher says before MPI is initialised: rank, tasks, and how they connect. */
#include "world_int.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int64_t launch_env_int(const char *name) {
    const char *text = getenv(name);
    int64_t value = 0;
    return text && tr_parse_int(text, &value) ? value : -1;
}

/* The batch script, interactive shells and helpers of a Slurm job carry step numbers above this
 * one; those are no srun steps. */
#define SLURM_FIRST_SPECIAL_STEP 0xfffffff0

bool tr_launch_is_srun(void) {
    int64_t step = launch_env_int("SLURM_STEP_ID");
    if (step < 0) step = launch_env_int("SLURM_STEPID");
    if (step < 0 || step >= SLURM_FIRST_SPECIAL_STEP) return false;
    /* mpirun starts its daemons by srun, and ranks inherit the daemon's step: then PMIx is the
     * daemon's, not Slurm's. */
    const char *space = getenv("PMIX_NAMESPACE");
    return !space || strncmp(space, "slurm.", 6) == 0;
}

tr_launch_link_t tr_launch_link(void) {
    if (!tr_launch_is_srun() || tr_launch_tasks() <= 1 || getenv("PMIX_NAMESPACE"))
        return TR_LAUNCH_ANY;
    return getenv("PMI_FD") || getenv("PMI_RANK") || getenv("PMI_SIZE") ? TR_LAUNCH_PMI
                                                                        : TR_LAUNCH_NONE;
}

tr_status_t tr_launch_fail(void) {
    return TR_FAIL(
        TR_ERR_CONFIG,
        "srun started %lld tasks, but MPI cannot connect them. Launch with 'srun "
        "--mpi=pmix ...' ('srun --mpi=list' shows the types of this SLURM; 'export "
        "SLURM_MPI_TYPE=pmix' makes it the default; in a shell of 'srun --pty' it needs --overlap) "
        "or with the mpirun of the same MPI.",
        (long long)tr_launch_tasks());
}

/* Whether NAME=VALUE is what a launcher gives a rank: Open MPI's, PMIx, PMI (MPICH, Intel MPI, srun),
 * Cray's and MVAPICH's. Not by the beginning of a name: users set OMPI_MCA_..., PMIX_MCA_... and
 * PMI_... themselves. */
static bool launch_is_of_rank(const char *entry) {
    static const char names[] = " OMPI_COMM_WORLD_SIZE PMIX_RANK PMIX_NAMESPACE PMI_RANK PMI_SIZE "
                                "PMI_FD PMI_PORT PMI_ID PMI_CONTROL_PORT PALS_RANKID ALPS_APP_PE "
                                "MV2_COMM_WORLD_RANK MVP_COMM_WORLD_RANK ";
    char name[64];
    const int length = (int)strcspn(entry, "=");
    if (length == 0 || length > (int)sizeof name - 3) return false;
    tr_snprintf(name, sizeof name, " %.*s ", length, entry);
    /* others: MPIRANK, MPI_RANKID, MPI_LOCALRANKID, MPIRUN_RANK */
    const char *mpi = strstr(name, "MPI");
    return strstr(names, name) || (mpi && (strstr(mpi, "RANK ") || strstr(mpi, "RANKID ")));
}

bool tr_launch_exists(void) {
    for (char **entry = environ; entry && *entry; entry++)
        if (launch_is_of_rank(*entry)) return true;
    return tr_launch_tasks() > 1;
}

void tr_launch_leave(void) {
    for (char **entry = environ; entry && *entry;) {
        char name[256];
        const int length = (int)strcspn(*entry, "=");
        const bool is_launcher = launch_is_of_rank(*entry) ||
                                 strncmp(*entry, "SLURM_STEP", 10) == 0 ||
                                 strncmp(*entry, "SLURM_PROCID=", 13) == 0;
        tr_snprintf(name, sizeof name, "%.*s", length, *entry);
        if (!is_launcher || length >= (int)sizeof name || unsetenv(name) != 0) entry++;
    }
}

int64_t tr_launch_tasks(void) {
    int64_t tasks = launch_env_int("OMPI_COMM_WORLD_SIZE");
    if (tasks < 0) tasks = launch_env_int("PMI_SIZE");
    if (tasks < 0 && tr_launch_is_srun()) {
        tasks = launch_env_int("SLURM_STEP_NUM_TASKS");
        if (tasks < 0) tasks = launch_env_int("SLURM_NTASKS");
    }
    return tasks < 0 ? 0 : tasks;
}

int tr_launch_rank(void) {
    int64_t rank = launch_env_int("OMPI_COMM_WORLD_RANK");
    if (rank < 0) rank = launch_env_int("PMI_RANK");
    if (rank < 0 && tr_launch_is_srun()) rank = launch_env_int("SLURM_PROCID");
    return rank < 0 ? 0 : (int)rank;
}

bool tr_launch_is_mpirun(void) {
    return getenv("OMPI_COMM_WORLD_SIZE") && !tr_launch_is_srun();
}

void tr_count_nodes(const int *lowest, int size, int rank, int *out_node, int *out_nodes) {
    int node = 0, nodes = 0;
    for (int r = 0; r < size; r++) {
        if (lowest[r] != r) continue;
        if (r < lowest[rank]) node++;
        nodes++;
    }
    *out_node = node;
    *out_nodes = nodes;
}

bool tr_count_cores(const cpu_set_t *masks, int count, int mine, int *out_cores,
                    int *out_shared_by) {
    cpu_set_t all, both;
    CPU_ZERO(&all);
    int shared_by = 0;
    for (int r = 0; r < count; r++) {
        CPU_OR(&all, &all, &masks[r]);
        CPU_AND(&both, &masks[r], &masks[mine]);
        if (CPU_COUNT(&both) > 0) shared_by++;
    }
    *out_cores = CPU_COUNT(&masks[mine]);
    *out_shared_by = shared_by;
    return count > CPU_COUNT(&all);
}

bool tr_limit_cores(int limit, tr_world_info_t *info) {
    const int share = limit > info->local_size ? limit / info->local_size : 1;
    if (limit == 0) return false;
    if (share < info->cores / info->cores_shared_by) {
        info->cores = share;
        info->cores_shared_by = 1;
    }
    return info->local_size > limit;
}
