/* How collectives and messages move, a chunk at a time. */
#include "nccl_int.h"
#include <stdlib.h>

static size_t total_bytes(const op_t *op) {
    return op->count * num_size(op->type);
}

/* -- collectives ------------------------------------------------------------------------------- */
static uint64_t checksum(const op_t *op) {
    uint64_t h = 1469598103934665603u;
    const uint64_t parts[] = {(uint64_t)op->kind,      op->count,          (uint64_t)op->type,
                              (uint64_t)op->reduction, (uint64_t)op->peer, op->at};
    for (size_t i = 0; i < sizeof parts / sizeof parts[0]; i++) h = (h ^ parts[i]) * 1099511628211u;
    return h;
}

static double combine(ncclRedOp_t op, double a, double b) {
    switch (op) {
    case ncclProd: return a * b;
    case ncclMax: return a > b ? a : b;
    case ncclMin: return a < b ? a : b;
    default: return a + b;
    }
}
/* to[0..n) = the reduction over ranks of element `first`.. of their chunks, in the order of
 * ranks. */
static void reduce(const op_t *op, size_t first, size_t n, char *to) {
    const comm_t *comm = op->comm;
    if (op->type == NUM_I64 && op->reduction == ncclSum) { /* a double would round */
        for (size_t i = 0; i < n; i++) {
            int64_t sum = 0;
            for (int r = 0; r < comm->ranks; r++)
                sum += ((const int64_t *)(comm->chunks + (size_t)r * CHUNK))[first + i];
            ((int64_t *)to)[i] = sum;
        }
        return;
    }
    for (size_t i = 0; i < n; i++) {
        double sum = num_load(op->type, comm->chunks, (int64_t)(first + i));
        for (int r = 1; r < comm->ranks; r++)
            sum =
                combine(op->reduction, sum,
                        num_load(op->type, comm->chunks + (size_t)r * CHUNK, (int64_t)(first + i)));
        num_store(op->type, to, (int64_t)i, op->reduction == ncclAvg ? sum / comm->ranks : sum);
    }
}

static void consume(op_t *op, size_t bytes) {
    const comm_t *comm = op->comm;
    const size_t size = num_size(op->type), n = bytes / size, all = total_bytes(op);
    switch (op->kind) {
    case ALL_REDUCE: reduce(op, 0, n, op->to + op->at); break;
    case REDUCE:
        if (comm->rank == op->peer) reduce(op, 0, n, op->to + op->at);
        break;
    case BROADCAST: memcpy(op->to + op->at, comm->chunks + (size_t)op->peer * CHUNK, bytes); break;
    case ALL_GATHER:
        for (int r = 0; r < comm->ranks; r++)
            memcpy(op->to + (size_t)r * all + op->at, comm->chunks + (size_t)r * CHUNK, bytes);
        break;
    case REDUCE_SCATTER: { /* the part of this chunk that is this rank's */
        const size_t mine = all / (size_t)comm->ranks, low = mine * (size_t)comm->rank,
                     high = low + mine;
        const size_t from = op->at > low ? op->at : low,
                     until = op->at + bytes < high ? op->at + bytes : high;
        if (from < until)
            reduce(op, (from - op->at) / size, (until - from) / size, op->to + (from - low));
        break;
    }
    default: break;
    }
}

/* Every rank has come at least this far in writing (or consuming) chunks. */
static bool all_past(const comm_t *comm, uint64_t number, bool writing) {
    for (int r = 0; r < comm->ranks; r++)
        if (atomic_load(writing ? &comm->shared->rank[r].wrote : &comm->shared->rank[r].consumed) <
            number)
            return false;
    return true;
}

static ncclResult_t refuse_graph(comm_t *comm, int other, uint64_t mine, uint64_t its) {
    hostcuda_fail(
        cudaErrorLaunchFailure,
        "nccl: rank %d is in collective %u of graph %u, rank %d in %u of %u (0: in none): "
        "graphs must be captured and launched uniformly over all ranks",
        comm->rank, (unsigned)mine, (unsigned)(mine >> 32), other, (unsigned)its,
        (unsigned)(its >> 32));
    return nccl_refuse(comm, ncclInvalidUsage, "rank %d and rank %d run different graphs",
                       comm->rank, other);
}

/* Every rank is in the same collective of the same graph. */
static bool agree(op_t *op, uint64_t mine) {
    comm_t *comm = op->comm;
    for (int r = 0; r < comm->ranks; r++) {
        const uint64_t its = atomic_load(&comm->shared->rank[r].graph);
        if (its == op->place) continue;
        comm->error = refuse_graph(comm, r, op->place, its);
        return false;
    }
    for (int r = 0; r < comm->ranks; r++) {
        if (atomic_load(&comm->shared->rank[r].call) == mine) continue;
        comm->error =
            nccl_refuse(comm, ncclInvalidUsage, "rank %d and rank %d are in different collectives",
                        comm->rank, r);
        hostcuda_fail(cudaErrorLaunchFailure,
                      "nccl: rank %d and rank %d are in different collectives (kind, count, type, "
                      "operation or root)",
                      comm->rank, r);
        return false;
    }
    return true;
}

hostcuda_state_t nccl_step_collective(op_t *op) {
    comm_t *comm = op->comm;
    hostcuda_state_t state = HOSTCUDA_AGAIN;
    if (comm->running && comm->running != op) return HOSTCUDA_AGAIN;
    comm->running = op;
    do {
        const size_t left = total_bytes(op) - op->at, bytes = left < CHUNK ? left : CHUNK;
        if (!op->wrote) {
            if (!all_past(comm, comm->chunk, false)) return state;
            if (op->kind != BROADCAST || comm->rank == op->peer)
                memcpy(comm->chunks + (size_t)comm->rank * CHUNK, op->from + op->at, bytes);
            atomic_store(&comm->shared->rank[comm->rank].call, checksum(op));
            atomic_store(&comm->shared->rank[comm->rank].graph, op->place);
            atomic_store(&comm->shared->rank[comm->rank].wrote, comm->chunk + 1);
            op->wrote = true;
            state = HOSTCUDA_PARTLY;
        }
        if (!all_past(comm, comm->chunk + 1, true)) return state;
        if (!agree(op, checksum(op))) return HOSTCUDA_AGAIN;
        consume(op, bytes);
        atomic_store(&comm->shared->rank[comm->rank].consumed, ++comm->chunk);
        op->wrote = false;
        op->at += bytes;
        state = HOSTCUDA_PARTLY;
    } while (op->at < total_bytes(op));
    comm->running = NULL;
    return HOSTCUDA_DONE;
}

/* -- messages ---------------------------------------------------------------------------------- */
hostcuda_state_t nccl_step_mail(op_t *op) {
    comm_t *comm = op->comm;
    const int from = op->kind == SEND ? comm->rank : op->peer,
              to = op->kind == SEND ? op->peer : comm->rank;
    char *mail = comm->mails + ((size_t)from * (size_t)comm->ranks + (size_t)to) * MAIL;
    hostcuda_state_t state = HOSTCUDA_AGAIN;
    while (op->at < total_bytes(op)) {
        const size_t left = total_bytes(op) - op->at, bytes = left < MAIL ? left : MAIL;
        const uint64_t wrote = atomic_load(&comm->shared->mail[from][to].wrote),
                       consumed = atomic_load(&comm->shared->mail[from][to].consumed);
        if ((wrote > consumed) == (op->kind == SEND)) return state; /* the other side has to act */
        if (op->kind == SEND)
            memcpy(mail, op->from + op->at, bytes);
        else
            memcpy(op->to + op->at, mail, bytes);
        atomic_store(op->kind == SEND ? &comm->shared->mail[from][to].wrote
                                      : &comm->shared->mail[from][to].consumed,
                     op->kind == SEND ? wrote + 1 : consumed + 1);
        op->at += bytes;
        state = HOSTCUDA_PARTLY;
    }
    return HOSTCUDA_DONE;
}
