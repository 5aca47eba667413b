/* Private: NCCL, loaded at run time, so that one GPU works on machines without it. */
#ifndef TR_DEVICE_CUDA_NCCL_CUDA_NCCL_H
#define TR_DEVICE_CUDA_NCCL_CUDA_NCCL_H

#include "device/cuda/cuda_int.h"
#include <nccl.h>

#define NCCL_REQUIRED(X)                                                                           \
    X(GetVersion)                                                                                  \
    X(GetErrorString)                                                                              \
    X(GetLastError)                                                                                \
    X(GetUniqueId)                                                                                 \
    X(CommInitRankConfig)                                                                          \
    X(CommGetAsyncError)                                                                           \
    X(CommSplit)                                                                                   \
    X(CommCount)                                                                                   \
    X(CommUserRank)                                                                                \
    X(CommFinalize)                                                                                \
    X(CommDestroy)                                                                                 \
    X(CommAbort)                                                                                   \
    X(AllReduce)                                                                                   \
    X(ReduceScatter)                                                                               \
    X(AllGather)                                                                                   \
    X(Broadcast)                                                                                   \
    X(Send)                                                                                        \
    X(Recv)
/* Registered memory. All of them are there from NCCL 2.27 on. */
#define NCCL_OPTIONAL(X)                                                                           \
    X(MemAlloc)                                                                                    \
    X(MemFree)                                                                                     \
    X(CommWindowRegister)                                                                          \
    X(CommWindowDeregister)

typedef struct {
#define NCCL_MEMBER(name) __typeof__(nccl##name) *name;
    NCCL_REQUIRED(NCCL_MEMBER)
    NCCL_OPTIONAL(NCCL_MEMBER) /* NULL where the library is older */
#undef NCCL_MEMBER
    int version;
    char path[512];
} cuda_nccl_t;

/* The library, loaded at the first call. NULL: *out_reason says why it cannot be used. */
const cuda_nccl_t *tr_cuda_nccl_load(const char **out_reason);

/* A sentence for an error of the network while ranks connect by `id`: NCCL_SOCKET_IFNAME, the
 * address at which rank 0 waits, and the interfaces of this node. */
void tr_cuda_nccl_network(const ncclUniqueId *id, char *text, size_t text_bytes);

#endif
