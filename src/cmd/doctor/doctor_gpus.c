/* Checks of GPUs: whether ranks run near theirs, and see those of the other ranks. */
#include "doctor.h"
#include "base/cores.h"

/* Of several ranks on a node, one that sees only a part of the node's GPUs. */
static bool doctor_gpus_is_blind(const doctor_t *d, const doctor_rank_t *rank) {
    if (rank->visible == 0 || rank->siblings <= rank->visible) return false;
    for (int r = 0; r < d->info->size; r++)
        if (d->ranks[r].node == rank->node && d->ranks[r].rank != rank->rank) return true;
    return false;
}

void doctor_check_gpus(doctor_t *d) {
    struct {
        const doctor_rank_t *first; /* NULL: none */
        int count;
    } far = {0}, blind = {0};
    bool any = false;
    for (int r = 0; r < d->info->size; r++) {
        const doctor_rank_t *rank = &d->ranks[r];
        cpu_set_t both;
        CPU_AND(&both, &rank->near_cores, &rank->cores);
        const bool is_far = CPU_COUNT(&rank->near_cores) > 0 && CPU_COUNT(&both) == 0;
        any |= rank->visible > 0;
        if (is_far && far.count++ == 0) far.first = rank;
        if (doctor_gpus_is_blind(d, rank) && blind.count++ == 0) blind.first = rank;
    }
    if (far.first) {
        char cores[128], near[128];
        tr_cores_format(&far.first->cores, cores, sizeof cores);
        tr_cores_format(&far.first->near_cores, near, sizeof near);
        doctor_find(d, "gpus", DOCTOR_WARNING, TR_OK,
                    "Spread the ranks over the NUMA nodes: --cpu-bind=ldoms with srun, --map-by "
                    "numa with mpirun. Each rank then takes the nearest free GPU that it sees.",
                    "rank %d on %s runs on cores %s, and its GPU is near cores %s; ranks far from "
                    "their GPU: %d",
                    far.first->rank, far.first->host, cores, near, far.count);
    }
    if (blind.first)
        doctor_find(d, "gpus", DOCTOR_WARNING, TR_OK,
                    "Let every rank see all GPUs of the job: --gpus-per-node instead of "
                    "--gpus-per-task, no CUDA_VISIBLE_DEVICES per rank; trainer gives each rank "
                    "its own.",
                    "rank %d on %s sees %d of %d GPUs: NCCL cannot use P2P between ranks that do "
                    "not see each other's GPUs; such ranks: %d",
                    blind.first->rank, blind.first->host, blind.first->visible,
                    blind.first->siblings, blind.count);
    if (any && !far.first && !blind.first)
        doctor_find(d, "gpus", DOCTOR_OK, TR_OK, NULL,
                    "every rank runs near its GPU and sees those of its node");
}
