/* What the launcher says before MPI is initialised: rank, tasks, and how they connect. */
#include "world_int.h"
#include <stdlib.h>
#include <string.h>

static int64_t env_int(const char *name) {
    const char *text = getenv(name);
    int64_t value = 0;
    return text && tr_parse_int(text, &value) ? value : -1;
}

/* The batch script, interactive shells and helpers of a Slurm job carry step numbers above this
 * one; those are no srun steps. */
#define SLURM_FIRST_SPECIAL_STEP 0xfffffff0

static bool in_srun_step(void) {
    int64_t step = env_int("SLURM_STEP_ID");
    if (step < 0) step = env_int("SLURM_STEPID");
    if (step < 0 || step >= SLURM_FIRST_SPECIAL_STEP) return false;
    /* mpirun starts its daemons by srun, and ranks inherit the daemon's step: then PMIx is the
     * daemon's, not Slurm's. */
    const char *space = getenv("PMIX_NAMESPACE");
    return !space || strncmp(space, "slurm.", 6) == 0;
}

tr_launch_link_t tr_launch_link(void) {
    if (!in_srun_step() || tr_launch_tasks() <= 1 || getenv("PMIX_NAMESPACE")) return TR_LAUNCH_ANY;
    return getenv("PMI_FD") || getenv("PMI_RANK") || getenv("PMI_SIZE") ? TR_LAUNCH_PMI
                                                                        : TR_LAUNCH_NONE;
}

tr_status_t tr_launch_fail(void) {
    return TR_FAIL(TR_ERR_CONFIG,
                   "srun started %lld tasks, but MPI cannot connect them. Launch with 'srun "
                   "--mpi=pmix ...' ('srun --mpi=list' shows the types of this SLURM; 'export "
                   "SLURM_MPI_TYPE=pmix' makes it the default) or with the mpirun of the same MPI.",
                   (long long)tr_launch_tasks());
}

int64_t tr_launch_tasks(void) {
    int64_t tasks = env_int("OMPI_COMM_WORLD_SIZE");
    if (tasks < 0) tasks = env_int("PMI_SIZE");
    if (tasks < 0 && in_srun_step()) {
        tasks = env_int("SLURM_STEP_NUM_TASKS");
        if (tasks < 0) tasks = env_int("SLURM_NTASKS");
    }
    return tasks < 0 ? 0 : tasks;
}

int tr_launch_rank(void) {
    int64_t rank = env_int("OMPI_COMM_WORLD_RANK");
    if (rank < 0) rank = env_int("PMI_RANK");
    if (rank < 0 && in_srun_step()) rank = env_int("SLURM_PROCID");
    return rank < 0 ? 0 : (int)rank;
}

bool tr_launch_is_mpirun(void) {
    return getenv("OMPI_COMM_WORLD_SIZE") && !in_srun_step();
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
