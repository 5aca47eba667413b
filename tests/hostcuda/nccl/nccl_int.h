/*
 * The fake libnccl: ranks meet in a file that all map, which nodes share below HOSTCUDA_NCCL_DIR. A collective is a piece of work on the
 * stream that moves a chunk whenever the others have done their part, and gives way otherwise; the
 * pump of the fake libcudart keeps it going.
 */
#ifndef HOSTCUDA_NCCL_INT_H
#define HOSTCUDA_NCCL_INT_H

#include "hostcuda.h"
#include "numeric.h"
#include <nccl.h>
#include <stdatomic.h>

#define EXPORT     __attribute__((visibility("default")))
#define MAX_RANKS  16
#define CHUNK      ((size_t)4 << 20) /* bytes that a rank offers at once */
#define MAIL       ((size_t)1 << 18) /* bytes of a message at once, per pair */
#define MAX_SPLITS 16

/* Shared by the ranks of a communicator; zero when made. */
typedef struct {
    _Atomic int joined, left;
    struct {
        _Atomic int present;
        _Atomic uint64_t wrote, consumed; /* chunks of collectives */
        _Atomic uint64_t call;            /* what this rank is in: a checksum of the arguments */
        _Atomic uint64_t graph;           /* op_t.place */
        char host[64], bus_id[16];        /* its GPU */
        struct {
            _Atomic int set;
            int color, key;
        } split[MAX_SPLITS];
    } rank[MAX_RANKS];
    struct {
        _Atomic uint64_t wrote, consumed;
    } mail[MAX_RANKS][MAX_RANKS]; /* [from][to] */
} shared_t;

typedef enum { JOINING, SPLITTING, READY, FINALIZED } phase_t;

typedef struct op op_t;
struct ncclComm {
    int users;            /* the program, and each operation that may run */
    _Atomic int captured; /* operations that graphs hold */
    phase_t phase;
    int ranks, rank, device;
    bool blocking;
    bool in_progress; /* the last call of a non-blocking communicator has not been asked about */
    bool aborted;
    ncclResult_t error; /* asynchronous; stays */
    char name[64];      /* of the file */
    shared_t *shared;
    char *chunks, *mails;
    size_t mapped;
    uint64_t chunk;                   /* number of the next chunk of collectives */
    op_t *last_eager, *last_captured; /* issued last; NULL once they are gone */
    op_t *running;                    /* the collective that moves chunks now */
    uint64_t capture;                 /* the last capture that held a collective */
    uint32_t graphs, in_graph;        /* such captures so far; collectives of the last one so far */
    int calls;                        /* operations so far, for scripted faults */
    int splits;
    struct ncclComm *parent; /* while splitting */
    int color, key, split;
    struct ncclComm *child; /* a split that is not complete: this communicator is in progress */
    ncclComm_t *child_out;  /* gets the child when it is complete; NULL until then */
    char why[160];
};
typedef struct ncclComm comm_t;

typedef enum { ALL_REDUCE, REDUCE, BROADCAST, REDUCE_SCATTER, ALL_GATHER, SEND, RECEIVE } kind_t;
struct op {
    int users;
    kind_t kind;
    comm_t *comm;
    const char *from;
    char *to;
    size_t count; /* elements: of the whole for reduce-scatter, of one rank for all-gather */
    num_type_t type;
    ncclRedOp_t reduction;
    int peer; /* root, or the other side */
    cudaStream_t stream;
    uint64_t capture; /* id of the capture that it was issued in; 0: none */
    uint64_t place;   /* of a collective in a graph: number of the graph << 32 | its number there */
    op_t *before;  /* the collective issued before this one, outside of captures or in the same */
    uint64_t runs; /* how often it has completed */
    size_t at;     /* bytes done in this run */
    bool wrote, done, begun;
};

/* -- fault.c ----------------------------------------------------------------------------------- */
/* What HOSTCUDA_NCCL_FAULT asks of this rank at this call. */
bool nccl_fault_init_hangs(const comm_t *comm);
ncclResult_t nccl_fault_init(const comm_t *comm);
/* May sleep, or end the process; the error that the communicator gets. */
ncclResult_t nccl_fault_call(const comm_t *comm);

/* Behind an operation: may sleep, so that what the stream has before the next one comes late. */
void nccl_fault_next(const comm_t *comm);

/* -- comm.c ------------------------------------------------------------------------------------ */
ncclResult_t nccl_refuse(comm_t *comm, ncclResult_t result, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
void nccl_drop(comm_t *comm);
/* Moves initialization on; READY when all ranks are there. */
void nccl_advance(comm_t *comm);
/* The result of a call: of a non-blocking communicator sometimes ncclInProgress, although it is
 * on its way. */
ncclResult_t nccl_result(comm_t *comm, ncclResult_t result);
ncclResult_t nccl_check(comm_t *comm);

/* -- collective.c ------------------------------------------------------------------------------ */
hostcuda_state_t nccl_step_collective(op_t *op);
hostcuda_state_t nccl_step_mail(op_t *op);

#define NCCL_CALL(...)                                                                             \
    do {                                                                                           \
        if (hostcuda_call(__func__, __VA_ARGS__)) return ncclInternalError;                        \
    } while (0)

#endif
