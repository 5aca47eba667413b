/*
 * Faults by environment: HOSTCUDA_NCCL_FAULT=KIND[,rank=R][,call=N][,ms=M][,result=C], several separated by
 * semicolons. init_hang: rank R never joins. init_error: its initialization fails. async_error: its
 * N-th operation breaks the communicator with result C. late: its stream stalls M milliseconds between its operations N - 1 and N (N = 1: in it).
 * die: it is killed there.
 */
#include "nccl_int.h"
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
    char kind[16];
    int rank, call, ms, result;
} fault_t;

/* The first fault of this kind that names the rank (or none); call -1: any. */
static bool find(const char *kind, int rank, int call, fault_t *out) {
    const char *text = getenv("HOSTCUDA_NCCL_FAULT");
    while (text && *text) {
        fault_t f = {"", -1, 1, 1000, ncclRemoteError};
        int used = 0;
        sscanf(text, "%15[a-z_]%n", f.kind, &used);
        text += used;
        while (*text == ',') {
            char name[8];
            int value = 0;
            used = 0;
            if (sscanf(text, ",%7[a-z]=%d%n", name, &value, &used) != 2) return false;
            if (!strcmp(name, "rank")) f.rank = value;
            if (!strcmp(name, "call")) f.call = value;
            if (!strcmp(name, "ms")) f.ms = value;
            if (!strcmp(name, "result")) f.result = value;
            text += used;
        }
        text += *text == ';' ? 1 : strlen(text);
        if (strcmp(f.kind, kind) || (f.rank >= 0 && f.rank != rank) ||
            (call >= 0 && f.call != call))
            continue;
        *out = f;
        return true;
    }
    return false;
}

bool nccl_fault_init_hangs(const comm_t *comm) {
    fault_t f;
    return find("init_hang", comm->rank, -1, &f);
}
ncclResult_t nccl_fault_init(const comm_t *comm) {
    fault_t f;
    return find("init_error", comm->rank, -1, &f) ? ncclSystemError : ncclSuccess;
}
void nccl_fault_next(const comm_t *comm) {
    fault_t f;
    if (find("late", comm->rank, comm->calls + 1, &f)) usleep((useconds_t)f.ms * 1000);
}
ncclResult_t nccl_fault_call(const comm_t *comm) {
    fault_t f;
    if (comm->calls == 1 && find("late", comm->rank, 1, &f)) usleep((useconds_t)f.ms * 1000);
    if (find("die", comm->rank, comm->calls, &f)) kill(getpid(), SIGKILL);
    return find("async_error", comm->rank, comm->calls, &f) ? (ncclResult_t)f.result
                                                               : ncclSuccess;
}
