/* Communicators: meeting in shared memory, splitting, leaving. */
#include "nccl_int.h"
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <unistd.h>

static __thread char last_error[160];

ncclResult_t nccl_refuse(comm_t *comm, ncclResult_t result, const char *format, ...) {
    char *to = comm ? comm->why : last_error;
    va_list list;
    va_start(list, format);
    vsnprintf(to, sizeof last_error, format, list);
    va_end(list);
    hostcuda_refuse("nccl", "%s", to);
    return result;
}

/* -- shared memory ----------------------------------------------------------------------------- */

static const char *path_of(const comm_t *comm, char path[256]) {
    const char *folder = getenv("HOSTCUDA_NCCL_DIR");
    snprintf(path, 256, "%.180s%s", folder ? folder : "/dev/shm", comm->name);
    return path;
}

static void forget(const comm_t *comm) {
    char path[256];
    unlink(path_of(comm, path));
}

static bool map(comm_t *comm) {
    char path[256];
    const size_t head = (sizeof(shared_t) + 4095) / 4096 * 4096, ranks = (size_t)comm->ranks;
    comm->mapped = head + ranks * CHUNK + ranks * ranks * MAIL;
    const int file = open(path_of(comm, path), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (file < 0 || ftruncate(file, (off_t)comm->mapped)) return false;
    void *memory = mmap(NULL, comm->mapped, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (memory == MAP_FAILED) return false;
    comm->shared = memory;
    comm->chunks = (char *)memory + head;
    comm->mails = comm->chunks + ranks * CHUNK;
    return true;
}

static void join(comm_t *comm) {
    comm->phase = JOINING;
    if (!map(comm)) {
        char path[256];
        comm->error = nccl_refuse(comm, ncclSystemError, "cannot map %s", path_of(comm, path));
        return;
    }
    if (nccl_fault_init_hangs(comm)) return;
    gethostname(comm->shared->rank[comm->rank].host, 64);
    cudaDeviceGetPCIBusId(comm->shared->rank[comm->rank].bus_id, 16, comm->device);
    if (atomic_exchange(&comm->shared->rank[comm->rank].present, 1))
        comm->error = nccl_refuse(comm, ncclInvalidArgument, "rank %d is there twice", comm->rank);
    atomic_fetch_add(&comm->shared->joined, 1);
}

/* As the real library, refuses two ranks on one GPU unless they are asked for. */
static ncclResult_t check_devices(comm_t *comm) {
    if (hostcuda_env("NCCL_MULTI_RANK_GPU_ENABLE", 0)) return ncclSuccess;
    const char *host = comm->shared->rank[comm->rank].host,
               *bus_id = comm->shared->rank[comm->rank].bus_id;
    for (int r = 0; r < comm->ranks; r++)
        if (r != comm->rank && !strcmp(comm->shared->rank[r].host, host) &&
            !strcmp(comm->shared->rank[r].bus_id, bus_id))
            return nccl_refuse(comm, ncclInvalidUsage,
                               "Duplicate GPU detected: ranks %d and %d both on %s", comm->rank, r,
                               bus_id);
    return ncclSuccess;
}

/* Ranks of the same color, in the order of key and old rank, have a communicator of their own. */
static void finish_split(comm_t *comm) {
    const comm_t *parent = comm->parent;
    int ranks = 0, rank = 0;
    for (int r = 0; r < parent->ranks; r++)
        if (!atomic_load(&parent->shared->rank[r].split[comm->split].set))
            return; /* not all have called */
    for (int r = 0; r < parent->ranks; r++) {
        const int color = parent->shared->rank[r].split[comm->split].color,
                  key = parent->shared->rank[r].split[comm->split].key;
        if (color != comm->color) continue;
        ranks++;
        rank += key < comm->key || (key == comm->key && r < parent->rank);
    }
    comm->ranks = ranks;
    comm->rank = rank;
    snprintf(comm->name, sizeof comm->name, "%.40s-%d-%d", parent->name, comm->split, comm->color);
    nccl_drop(comm->parent);
    comm->parent = NULL;
    join(comm);
}

/* The program gets the new communicator when the split is complete, as from the real library. */
static void advance_child(comm_t *comm) {
    comm_t *child = comm->child;
    nccl_advance(child);
    if (child->error) comm->error = child->error;
    if (child->error || child->phase == READY) *comm->child_out = child, comm->child = NULL;
}

void nccl_advance(comm_t *comm) {
    if (comm->child) advance_child(comm);
    if (comm->phase == SPLITTING) finish_split(comm);
    if (comm->phase != JOINING || comm->error || atomic_load(&comm->shared->joined) < comm->ranks)
        return;
    comm->error = check_devices(comm);
    if (!comm->error) comm->error = nccl_fault_init(comm);
    comm->phase = READY;
    forget(comm); /* all have it; the name is not needed any more */
}

void nccl_drop(comm_t *comm) {
    if (--comm->users) return;
    if (comm->shared) {
        atomic_fetch_add(&comm->shared->left, 1);
        munmap(comm->shared, comm->mapped);
    }
    if (comm->phase == JOINING) forget(comm);
    free(comm);
}

/* Waits where the communicator is blocking. */
static ncclResult_t settle(comm_t *comm) {
    if (!comm->blocking) return ncclInProgress;
    for (;;) {
        nccl_advance(comm);
        if (comm->error || (comm->phase == READY && !comm->child)) return comm->error;
        usleep(200);
    }
}

static ncclResult_t read_config(comm_t *comm, const ncclConfig_t *config) {
    comm->blocking = true;
    if (!config) return ncclSuccess;
    if (config->magic != 0xcafebeef)
        return nccl_refuse(NULL, ncclInvalidArgument, "this configuration was not initialized");
    if (config->blocking != NCCL_CONFIG_UNDEF_INT && config->blocking != 0 && config->blocking != 1)
        return nccl_refuse(NULL, ncclInvalidArgument, "blocking is %d", config->blocking);
    comm->blocking = config->blocking != 0;
    return ncclSuccess;
}

static comm_t *comm_new(void) {
    comm_t *comm = calloc(1, sizeof *comm);
    comm->users = 1;
    cudaGetDevice(&comm->device);
    hostcuda_count("nccl communicators", 1);
    return comm;
}

/* -- entry points ------------------------------------------------------------------------------ */
EXPORT ncclResult_t ncclGetUniqueId(ncclUniqueId *id) {
    unsigned char bytes[12];
    NCCL_CALL("%s", "");
    memset(id, 0, sizeof *id);
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes) return ncclSystemError;
    int n = sprintf(id->internal, "/hostcuda-");
    for (size_t i = 0; i < sizeof bytes; i++) n += sprintf(id->internal + n, "%02x", bytes[i]);
    return ncclSuccess;
}

EXPORT ncclResult_t ncclCommInitRankConfig(ncclComm_t *out, int ranks, ncclUniqueId id, int rank,
                                           ncclConfig_t *config) {
    int devices = 0;
    NCCL_CALL("%d of %d", rank, ranks);
    *out = NULL;
    if (cudaGetDeviceCount(&devices) || !devices)
        return nccl_refuse(NULL, ncclUnhandledCudaError, "no device");
    if (ranks < 1 || ranks > MAX_RANKS || rank < 0 || rank >= ranks ||
        strncmp(id.internal, "/hostcuda-", 10))
        return nccl_refuse(NULL, ncclInvalidArgument, "rank %d of %d, or an id that is none", rank,
                           ranks);
    hostcuda_take((size_t)hostcuda_env("HOSTCUDA_NCCL_MEMORY", 0));
    comm_t *comm = comm_new();
    comm->ranks = ranks;
    comm->rank = rank;
    snprintf(comm->name, sizeof comm->name, "%.60s", id.internal);
    ncclResult_t result = read_config(comm, config);
    if (result) {
        hostcuda_count("nccl communicators", -1);
        return nccl_drop(comm), result;
    }
    *out = comm;
    join(comm);
    return settle(comm);
}
EXPORT ncclResult_t ncclCommInitRank(ncclComm_t *out, int ranks, ncclUniqueId id, int rank) {
    return ncclCommInitRankConfig(out, ranks, id, rank, NULL);
}

EXPORT ncclResult_t ncclCommSplit(ncclComm_t parent, int color, int key, ncclComm_t *out,
                                  ncclConfig_t *config) {
    NCCL_CALL("color %d key %d", color, key);
    *out = NULL;
    const ncclResult_t ready = nccl_check(parent);
    if (ready) return ready;
    if (parent->splits == MAX_SPLITS)
        return nccl_refuse(parent, ncclInternalError, "more than %d splits", MAX_SPLITS);
    const int split = parent->splits++;
    parent->shared->rank[parent->rank].split[split].color = color;
    parent->shared->rank[parent->rank].split[split].key = key;
    atomic_store(&parent->shared->rank[parent->rank].split[split].set, 1);
    if (color == NCCL_SPLIT_NOCOLOR) return ncclSuccess;
    comm_t *comm = comm_new();
    comm->blocking = parent->blocking;
    if (config) {
        const ncclResult_t result = read_config(comm, config);
        if (result) return nccl_drop(comm), result;
        if (config->blocking == NCCL_CONFIG_UNDEF_INT) comm->blocking = parent->blocking;
    }
    *comm = (comm_t){.users = 1,
                     .phase = SPLITTING,
                     .device = parent->device,
                     .blocking = comm->blocking,
                     .parent = parent,
                     .color = color,
                     .key = key,
                     .split = split};
    parent->users++;
    parent->child = comm;
    parent->child_out = out;
    const ncclResult_t result = settle(parent);
    return result == ncclInProgress ? ncclSuccess : result; /* as 2.28 and 2.30 answer */
}

EXPORT ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t *error) {
    NCCL_CALL("%s", "");
    if (!comm) return nccl_refuse(NULL, ncclInvalidArgument, "the communicator is NULL");
    nccl_advance(comm);
    const bool busy = comm->phase == JOINING || comm->phase == SPLITTING || comm->child ||
                      comm->in_progress || (comm->phase == FINALIZED && comm->captured > 0);
    comm->in_progress = false;
    *error = comm->error ? comm->error : busy ? ncclInProgress : ncclSuccess;
    return ncclSuccess;
}

ncclResult_t nccl_check(comm_t *comm) {
    if (!comm) return nccl_refuse(NULL, ncclInvalidArgument, "the communicator is NULL");
    if (comm->error) return comm->error;
    if (comm->phase != READY)
        return nccl_refuse(comm, ncclInvalidArgument,
                           "the communicator is not ready, or finalized");
    if (comm->in_progress || comm->child)
        return nccl_refuse(comm, ncclInvalidUsage,
                           "the last call is in progress: ask ncclCommGetAsyncError first");
    return ncclSuccess;
}
ncclResult_t nccl_result(comm_t *comm, ncclResult_t result) {
    if (result || comm->blocking || hostcuda_random() % 2) return result;
    comm->in_progress = true;
    return ncclInProgress;
}

/* As the real library, does not end before all graphs that hold operations of the communicator are
 * gone; a blocking communicator is refused instead of hanging. */
EXPORT ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    NCCL_CALL("%s", "");
    const ncclResult_t ready = nccl_check(comm);
    if (ready) return ready;
    if (comm->captured > 0 && comm->blocking)
        return nccl_refuse(comm, ncclInvalidUsage, "graphs hold %d operations", comm->captured);
    comm->phase = FINALIZED;
    if (comm->captured > 0) return ncclInProgress;
    return nccl_result(comm, ncclSuccess);
}

/* Releases the program's hold; operations that were enqueued keep theirs until they have run. */
static ncclResult_t leave(comm_t *comm) {
    if (!comm) return nccl_refuse(NULL, ncclInvalidArgument, "the communicator is NULL");
    hostcuda_count("nccl communicators", -1);
    nccl_drop(comm);
    return ncclSuccess;
}
EXPORT ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    NCCL_CALL("%s", "");
    return leave(comm);
}
/* What is enqueued ends without a result. */
EXPORT ncclResult_t ncclCommAbort(ncclComm_t comm) {
    NCCL_CALL("%s", "");
    if (comm) comm->aborted = true;
    if (comm && comm->phase == JOINING) forget(comm);
    return leave(comm);
}

EXPORT ncclResult_t ncclCommCount(const ncclComm_t comm, int *count) {
    const ncclResult_t ready = nccl_check(comm);
    if (!ready) *count = comm->ranks;
    return ready;
}
EXPORT ncclResult_t ncclCommUserRank(const ncclComm_t comm, int *rank) {
    const ncclResult_t ready = nccl_check(comm);
    if (!ready) *rank = comm->rank;
    return ready;
}
EXPORT ncclResult_t ncclCommCuDevice(const ncclComm_t comm, int *device) {
    const ncclResult_t ready = nccl_check(comm);
    if (!ready) *device = comm->device;
    return ready;
}
EXPORT ncclResult_t ncclGetVersion(int *version) {
    *version = (int)hostcuda_env("HOSTCUDA_NCCL_VERSION", NCCL_VERSION_CODE);
    return ncclSuccess;
}
EXPORT const char *ncclGetLastError(ncclComm_t comm) {
    return comm && *comm->why ? comm->why : last_error;
}
EXPORT const char *ncclGetErrorString(ncclResult_t result) {
    static const char *const texts[] = {"no error",
                                        "unhandled cuda error",
                                        "unhandled system error",
                                        "internal error",
                                        "invalid argument",
                                        "invalid usage",
                                        "remote process exited or network error",
                                        "NCCL operation in progress"};
    return (unsigned)result < sizeof texts / sizeof texts[0] ? texts[result]
                                                             : "unknown result code";
}
