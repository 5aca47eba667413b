/* The clocks of the ranks, compared by messages (F. Cristian, "Probabilistic clock synchronization",
 * Distributed Computing 3, 1989). */
#include "base/clock.h"
#include "world_int.h"

enum { OFFSET_TAG = 2, ROUND_TRIPS = 20 };

/* Rank 0 answers each rank in turn with the time of its clock. */
static tr_status_t clock_offset_answer(MPI_Comm comm, int size) {
    for (int rank = 1; rank < size; rank++)
        for (int i = 0; i < ROUND_TRIPS; i++) {
            double now;
            TR_MPI(MPI_Recv, (&now, 1, MPI_DOUBLE, rank, OFFSET_TAG, comm, MPI_STATUS_IGNORE));
            now = tr_clock_sec();
            TR_MPI(MPI_Send, (&now, 1, MPI_DOUBLE, rank, OFFSET_TAG, comm));
        }
    return TR_OK;
}

static tr_status_t clock_offset_ask(MPI_Comm comm, tr_clock_offset_t *best) {
    for (int i = 0; i < ROUND_TRIPS; i++) {
        double of_root = 0;
        const double begin_sec = tr_clock_sec();
        TR_MPI(MPI_Send, (&of_root, 1, MPI_DOUBLE, 0, OFFSET_TAG, comm));
        TR_MPI(MPI_Recv, (&of_root, 1, MPI_DOUBLE, 0, OFFSET_TAG, comm, MPI_STATUS_IGNORE));
        const double half_sec = 0.5 * (tr_clock_sec() - begin_sec);
        if (i == 0 || half_sec < best->error_sec)
            *best = (tr_clock_offset_t){.at_sec = begin_sec + half_sec,
                                        .offset_sec = of_root - (begin_sec + half_sec),
                                        .error_sec = half_sec};
    }
    return TR_OK;
}

static tr_status_t clock_offset_run(MPI_Comm comm, void *arg) {
    int rank, size;
    tr_clock_offset_t *out = arg;
    MPI_Comm_rank(comm, &rank);
    MPI_Comm_size(comm, &size);
    return rank == 0 ? clock_offset_answer(comm, size) : clock_offset_ask(comm, out);
}

tr_status_t tr_world_clock_offset(tr_world_t *world, tr_clock_offset_t *out) {
    *out = (tr_clock_offset_t){.at_sec = tr_clock_sec()}; /* of rank 0 */
    return tr_world_run(world, clock_offset_run, out);
}
