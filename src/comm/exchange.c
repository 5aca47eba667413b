/* Collective operations on host memory. Each function packs its arguments into a job for the thread
 * that makes MPI calls. */
#include "base/mem.h"
#include "world_int.h"
#include <limits.h>
#include <string.h>
#include <xxhash.h>

#define PIECE_BYTES ((size_t)1 << 30) /* MPI counts are ints */

typedef struct {
    void *bytes;
    size_t count;
    int root;
} broadcast_t;

static tr_status_t exchange_run_broadcast(MPI_Comm comm, void *arg) {
    broadcast_t *b = arg;
    for (size_t at = 0; at < b->count; at += PIECE_BYTES) {
        size_t piece = b->count - at < PIECE_BYTES ? b->count - at : PIECE_BYTES;
        TR_MPI(MPI_Bcast, ((char *)b->bytes + at, (int)piece, MPI_BYTE, b->root, comm));
    }
    return TR_OK;
}

tr_status_t tr_world_broadcast(tr_world_t *world, void *bytes, size_t count, int root) {
    broadcast_t b = {bytes, count, root};
    return tr_world_run(world, exchange_run_broadcast, &b);
}

tr_status_t tr_world_broadcast_text(tr_world_t *world, char **text, int root) {
    bool sender = world->info.rank == root;
    uint64_t length = sender ? strlen(*text) : 0;
    TR_TRY(tr_world_broadcast(world, &length, sizeof length, root));
    char *received = NULL;
    tr_status_t status = sender ? TR_OK : tr_alloc(length + 1, "broadcast text", &received);
    status = tr_world_agree(world, status);
    if (status == TR_OK)
        status = tr_world_broadcast(world, sender ? *text : received, length, root);
    if (sender) return status;
    if (status == TR_OK)
        *text = received;
    else
        tr_free(&received);
    return status;
}

static tr_status_t exchange_run_barrier(MPI_Comm comm, void *arg) {
    (void)arg;
    TR_MPI(MPI_Barrier, (comm));
    return TR_OK;
}

tr_status_t tr_world_barrier(tr_world_t *world) {
    return tr_world_run(world, exchange_run_barrier, NULL);
}

typedef struct {
    void *values;
    int count;
    MPI_Datatype type;
    tr_reduce_t op;
} reduce_t;

static tr_status_t exchange_run_reduce(MPI_Comm comm, void *arg) {
    reduce_t *r = arg;
    MPI_Op op = r->op == TR_REDUCE_SUM ? MPI_SUM : r->op == TR_REDUCE_MIN ? MPI_MIN : MPI_MAX;
    TR_MPI(MPI_Allreduce, (MPI_IN_PLACE, r->values, r->count, r->type, op, comm));
    return TR_OK;
}

tr_status_t tr_world_allreduce(tr_world_t *world, double *values, int count, tr_reduce_t op) {
    reduce_t r = {values, count, MPI_DOUBLE, op};
    return tr_world_run(world, exchange_run_reduce, &r);
}

tr_status_t tr_world_allreduce_int(tr_world_t *world, int64_t *values, int count, tr_reduce_t op) {
    reduce_t r = {values, count, MPI_INT64_T, op};
    return tr_world_run(world, exchange_run_reduce, &r);
}

typedef struct {
    size_t bytes;
    void *all;
} gather_t;

static tr_status_t exchange_run_gather(MPI_Comm comm, void *arg) {
    gather_t *g = arg;
    TR_MPI(MPI_Allgather, (MPI_IN_PLACE, 0, MPI_BYTE, g->all, (int)g->bytes, MPI_BYTE, comm));
    return TR_OK;
}

tr_status_t tr_world_allgather(tr_world_t *world, const void *mine, size_t bytes, void *all) {
    if (bytes > INT_MAX)
        return TR_FAIL(TR_ERR_INTERNAL,
                       "tr_world_allgather takes up to %d bytes per rank, found %zu.", INT_MAX,
                       bytes);
    gather_t g = {bytes, all};
    memcpy((char *)all + (size_t)world->info.rank * bytes, mine, bytes);
    return tr_world_run(world, exchange_run_gather, &g);
}

typedef struct {
    uint64_t hash, count;
} fingerprint_t;

/* Lists the ranks that differ from rank 0, "0, 3", and their number. */
static int exchange_list_different(const fingerprint_t *all, int size, tr_str_t *list) {
    int different = 0;
    for (int r = 1; r < size; r++) {
        if (all[r].hash == all[0].hash && all[r].count == all[0].count) continue;
        if (different < 16) tr_str_printf(list, "%s%d", different ? ", " : "", r);
        if (different == 16) tr_str_append(list, ", ...");
        different++;
    }
    return different;
}

static tr_status_t exchange_compare(const fingerprint_t *all, int size, const char *what) {
    tr_str_t list = {0};
    int different = exchange_list_different(all, size, &list);
    tr_status_t status = TR_OK;
    if (different)
        status = TR_FAIL(TR_ERR_INTERNAL,
                         "%s must be the same on all %d ranks, but on rank %d (%s) it differs from "
                         "rank 0. Do all nodes have the same program, files and environment?",
                         what, size, different, list.text ? list.text : "?");
    tr_str_free(&list);
    return status;
}

tr_status_t tr_world_same(tr_world_t *world, const char *what, const void *bytes, size_t count) {
    fingerprint_t mine = {XXH3_64bits(bytes, count), count}, *all = NULL;
    TR_TRY(tr_alloc((size_t)world->info.size * sizeof *all, "fingerprints", &all));
    tr_status_t status = tr_world_allgather(world, &mine, sizeof mine, all);
    if (status == TR_OK) status = exchange_compare(all, world->info.size, what);
    tr_free(&all);
    return status;
}
