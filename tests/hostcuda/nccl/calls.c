/* The calls that enqueue collectives and messages, alone and in groups. */
#include "nccl_int.h"
#include <stdlib.h>

#define MAX_GROUP 1024

/* Operations that run together: one piece of work on one stream. */
typedef struct {
    int count;
    op_t **list;
} batch_t;

static __thread int depth;
static __thread op_t *group[MAX_GROUP];
static __thread int group_count;
static __thread ncclResult_t group_error;

static void op_drop(op_t *op) {
    if (--op->users) return;
    if (op->before) op_drop(op->before);
    if (op->capture) op->comm->captured--;
    if (op->comm->last_eager == op) op->comm->last_eager = NULL;
    if (op->comm->last_captured == op) op->comm->last_captured = NULL;
    nccl_drop(op->comm);
    free(op);
}

static bool is_mail(const op_t *op) {
    return op->kind == SEND || op->kind == RECEIVE;
}

static hostcuda_state_t step(op_t *op) {
    if (op->comm->aborted) return HOSTCUDA_DONE;
    if (op->comm->error) return HOSTCUDA_AGAIN; /* hangs until it is aborted */
    if (op->before && op->before->runs <= op->runs) return HOSTCUDA_AGAIN;
    if (op->before && !op->capture) {
        op_drop(op->before);
        op->before = NULL;
    }
    if (!op->begun) {
        op->begun = true;
        op->comm->calls++;
        const ncclResult_t fault = nccl_fault_call(op->comm);
        if (fault) op->comm->error = nccl_refuse(op->comm, fault, "asynchronous error on demand");
        if (fault) return HOSTCUDA_AGAIN;
    }
    const hostcuda_state_t state = !op->count    ? HOSTCUDA_DONE
                                   : is_mail(op) ? nccl_step_mail(op)
                                                 : nccl_step_collective(op);
    if (state == HOSTCUDA_DONE) nccl_fault_next(op->comm);
    return state;
}

/* Messages between the same two ranks keep their order. */
static bool is_behind(const batch_t *batch, int at) {
    const op_t *op = batch->list[at];
    for (int i = 0; i < at; i++) {
        const op_t *other = batch->list[i];
        if (!other->done && other->comm == op->comm && is_mail(op) == is_mail(other) &&
            (!is_mail(op) || (other->kind == op->kind && other->peer == op->peer)))
            return true;
    }
    return false;
}

static hostcuda_state_t batch_run(void *arg, bool first) {
    batch_t *batch = arg;
    bool moved = false, complete = true;
    for (int i = 0; i < batch->count; i++) {
        op_t *op = batch->list[i];
        if (first) op->at = 0, op->wrote = op->done = op->begun = false;
    }
    for (int i = 0; i < batch->count; i++) {
        op_t *op = batch->list[i];
        if (op->done) continue;
        const hostcuda_state_t state = is_behind(batch, i) ? HOSTCUDA_AGAIN : step(op);
        op->done = state == HOSTCUDA_DONE;
        op->runs += op->done;
        moved |= state != HOSTCUDA_AGAIN;
        complete &= op->done;
    }
    return complete ? HOSTCUDA_DONE : moved ? HOSTCUDA_PARTLY : HOSTCUDA_AGAIN;
}
static void batch_release(void *arg) {
    batch_t *batch = arg;
    for (int i = 0; i < batch->count; i++) op_drop(batch->list[i]);
    free(batch->list);
    free(batch);
}

/* Collectives of a communicator run in the order in which they were issued, whatever their
 * streams, so that all ranks run them in one order; captured ones keep it in every replay. */
static void link_order(op_t *op) {
    op->capture = hostcuda_capture_id(op->stream);
    if (op->capture) op->comm->captured++;
    if (is_mail(op)) return;
    if (op->capture) {
        comm_t *comm = op->comm;
        if (op->capture != comm->capture) comm->graphs++, comm->in_graph = 0;
        comm->capture = op->capture;
        op->place = (uint64_t)comm->graphs << 32 | ++comm->in_graph;
    }
    op_t **last = op->capture ? &op->comm->last_captured : &op->comm->last_eager;
    if (*last && (*last)->capture == op->capture) {
        op->before = *last;
        op->before->users++;
    }
    *last = op;
}

static ncclResult_t launch(op_t **ops, int count) {
    ncclResult_t result = ncclSuccess;
    for (int i = 0; i < count; i++) {
        if (!ops[i]) continue;
        batch_t *batch = malloc(sizeof *batch);
        *batch = (batch_t){0, malloc((size_t)count * sizeof *batch->list)};
        const cudaStream_t stream = ops[i]->stream;
        for (int k = i; k < count; k++) {
            if (!ops[k] || ops[k]->stream != stream) continue;
            link_order(ops[k]);
            batch->list[batch->count++] = ops[k];
            ops[k] = NULL;
        }
        if (hostcuda_enqueue(stream, &(hostcuda_work_t){"nccl", batch_run, batch_release, batch}))
            result = ncclUnhandledCudaError;
    }
    return result;
}

static num_type_t type_of(ncclDataType_t type) {
    switch (type) {
    case ncclInt8: return NUM_I8;
    case ncclUint8: return NUM_U8;
    case ncclInt32: return NUM_I32;
    case ncclInt64: return NUM_I64;
    case ncclFloat16: return NUM_F16;
    case ncclFloat32: return NUM_F32;
    case ncclFloat64: return NUM_F64;
    case ncclBfloat16: return NUM_BF16;
    default: return NUM_COUNT;
    }
}

static ncclResult_t check(const op_t *op) {
    comm_t *comm = op->comm;
    const size_t bytes = op->type == NUM_COUNT ? 0 : op->count * num_size(op->type),
                 ranks = (size_t)comm->ranks;
    const size_t to_bytes = op->kind == ALL_GATHER       ? bytes * ranks
                            : op->kind == REDUCE_SCATTER ? bytes / ranks
                                                         : bytes;
    const bool rooted = op->kind == REDUCE || op->kind == BROADCAST;
    const bool reads = op->kind != RECEIVE && (op->kind != BROADCAST || comm->rank == op->peer);
    const bool writes = op->kind != SEND && (op->kind != REDUCE || comm->rank == op->peer);
    if (op->type == NUM_COUNT)
        return nccl_refuse(comm, ncclInvalidArgument, "the data type is not in the fake");
    if ((rooted || is_mail(op)) && (op->peer < 0 || op->peer >= comm->ranks))
        return nccl_refuse(comm, ncclInvalidArgument, "rank %d of %d", op->peer, comm->ranks);
    if ((unsigned)op->reduction > ncclAvg)
        return nccl_refuse(comm, ncclInvalidArgument, "reduction %d", (int)op->reduction);
    if (bytes && ((reads && !hostcuda_accessible(op->from, bytes)) ||
                  (writes && !hostcuda_accessible(op->to, to_bytes))))
        return nccl_refuse(comm, ncclInvalidArgument,
                           "a buffer of %zu bytes does not lie in device memory", to_bytes);
    return ncclSuccess;
}

static ncclResult_t issue(const op_t *plan) {
    ncclResult_t result = nccl_check(plan->comm);
    if (!result) result = check(plan);
    if (result) {
        if (depth && !group_error) group_error = result;
        return result;
    }
    op_t *op = malloc(sizeof *op);
    *op = *plan;
    op->users = 1;
    op->comm->users++;
    if (!depth) return nccl_result(plan->comm, launch(&op, 1));
    if (group_count == MAX_GROUP) return ncclInternalError;
    group[group_count++] = op;
    return ncclSuccess;
}

/* nccl.h declares them without a prototype. */
ncclResult_t ncclGroupStart(void);
ncclResult_t ncclGroupEnd(void);

EXPORT ncclResult_t ncclGroupStart(void) {
    NCCL_CALL("%s", "");
    if (!depth++) group_count = 0, group_error = ncclSuccess;
    return ncclSuccess;
}
EXPORT ncclResult_t ncclGroupEnd(void) {
    NCCL_CALL("%s", "");
    if (!depth) return nccl_refuse(NULL, ncclInvalidUsage, "ncclGroupEnd without ncclGroupStart");
    if (--depth) return ncclSuccess;
    if (group_error) {
        for (int i = 0; i < group_count; i++) op_drop(group[i]);
        return group_error;
    }
    comm_t *comm = group_count ? group[0]->comm : NULL;
    const ncclResult_t result = launch(group, group_count);
    return comm ? nccl_result(comm, result) : result;
}

/* -- entry points ------------------------------------------------------------------------------ */
#define TRACE NCCL_CALL("count %zu type %d", count, (int)type)

EXPORT ncclResult_t ncclAllReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                                  ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
    TRACE;
    return issue(&(op_t){.kind = ALL_REDUCE,
                         .comm = comm,
                         .from = from,
                         .to = to,
                         .count = count,
                         .type = type_of(type),
                         .reduction = reduction,
                         .stream = stream});
}
EXPORT ncclResult_t ncclReduce(const void *from, void *to, size_t count, ncclDataType_t type,
                               ncclRedOp_t reduction, int root, ncclComm_t comm,
                               cudaStream_t stream) {
    TRACE;
    return issue(&(op_t){.kind = REDUCE,
                         .comm = comm,
                         .from = from,
                         .to = to,
                         .count = count,
                         .type = type_of(type),
                         .reduction = reduction,
                         .peer = root,
                         .stream = stream});
}
EXPORT ncclResult_t ncclBroadcast(const void *from, void *to, size_t count, ncclDataType_t type,
                                  int root, ncclComm_t comm, cudaStream_t stream) {
    TRACE;
    return issue(&(op_t){.kind = BROADCAST,
                         .comm = comm,
                         .from = from,
                         .to = to,
                         .count = count,
                         .type = type_of(type),
                         .peer = root,
                         .stream = stream});
}
EXPORT ncclResult_t ncclBcast(void *buffer, size_t count, ncclDataType_t type, int root,
                              ncclComm_t comm, cudaStream_t stream) {
    return ncclBroadcast(buffer, buffer, count, type, root, comm, stream);
}
EXPORT ncclResult_t ncclReduceScatter(const void *from, void *to, size_t count, ncclDataType_t type,
                                      ncclRedOp_t reduction, ncclComm_t comm, cudaStream_t stream) {
    TRACE;
    const size_t all = comm ? count * (size_t)comm->ranks : count;
    return issue(&(op_t){.kind = REDUCE_SCATTER,
                         .comm = comm,
                         .from = from,
                         .to = to,
                         .count = all,
                         .type = type_of(type),
                         .reduction = reduction,
                         .stream = stream});
}
EXPORT ncclResult_t ncclAllGather(const void *from, void *to, size_t count, ncclDataType_t type,
                                  ncclComm_t comm, cudaStream_t stream) {
    TRACE;
    return issue(&(op_t){.kind = ALL_GATHER,
                         .comm = comm,
                         .from = from,
                         .to = to,
                         .count = count,
                         .type = type_of(type),
                         .stream = stream});
}
EXPORT ncclResult_t ncclSend(const void *from, size_t count, ncclDataType_t type, int peer,
                             ncclComm_t comm, cudaStream_t stream) {
    TRACE;
    return issue(&(op_t){.kind = SEND,
                         .comm = comm,
                         .from = from,
                         .count = count,
                         .type = type_of(type),
                         .peer = peer,
                         .stream = stream});
}
EXPORT ncclResult_t ncclRecv(void *to, size_t count, ncclDataType_t type, int peer, ncclComm_t comm,
                             cudaStream_t stream) {
    TRACE;
    return issue(&(op_t){.kind = RECEIVE,
                         .comm = comm,
                         .to = to,
                         .count = count,
                         .type = type_of(type),
                         .peer = peer,
                         .stream = stream});
}
