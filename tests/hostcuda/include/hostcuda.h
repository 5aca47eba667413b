/*
 * What the fake libcudart offers to the other fakes and to kernels compiled for the host.
 *
 * All work of a process is executed under one lock, by whichever thread waits for something, or by
 * the pump thread when nobody has called for a while. A fake library only enqueues; it never
 * executes anything at the call.
 */
#ifndef HOSTCUDA_H
#define HOSTCUDA_H

#include <cuda_runtime_api.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    HOSTCUDA_DONE,   /* this piece of work is complete */
    HOSTCUDA_AGAIN,  /* it waits for something else: call run again later */
    HOSTCUDA_PARTLY, /* a part of it was executed: call run again */
    HOSTCUDA_FAILED  /* it failed; hostcuda_fail() has recorded why */
} hostcuda_state_t;

/* A piece of work on a stream. A graph runs it once per replay. */
typedef struct {
    const char *name;                               /* for traces; a literal, or part of arg */
    hostcuda_state_t (*run)(void *arg, bool first); /* first: this execution begins */
    void (*release)(void *arg);                     /* NULL: nothing to free */
    void *arg;
} hostcuda_work_t;

/* Gives `work` to `stream`, or to the graph that the stream is captured into. Takes `work` in
 * every case. */
cudaError_t hostcuda_enqueue(cudaStream_t stream, const hostcuda_work_t *work);
/* The id of the capture that `stream` is in; 0: none. */
uint64_t hostcuda_capture_id(cudaStream_t stream);
/* Counts this call of a library and traces it. True if the environment asks for its failure
 * (HOSTCUDA_FAIL). */
bool hostcuda_call(const char *name, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* The device has failed, as after an illegal address: later calls of the runtime return `error`.
 * Prints the reason. */
void hostcuda_fail(cudaError_t error, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Refused by a fake: prints the reason where HOSTCUDA_VERBOSE is set, and to the trace. */
void hostcuda_refuse(const char *call, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* True if [pointer, pointer + bytes) lies in one allocation that kernels may access. */
bool hostcuda_accessible(const void *pointer, size_t bytes);
bool hostcuda_is_device(const void *pointer);
/* Device memory is closed to the host outside of work; a fake that has to look at it opens it.
 * Calls nest. */
void hostcuda_open(void);
void hostcuda_close(void);
/* Counts objects that live: `what` names the kind, change is 1 or -1. HOSTCUDA_LEAKS prints what
 * is left at exit. */
void hostcuda_count(const char *what, int change);
/* Integer of the environment; accepts K, M and G as binary suffixes. */
long long hostcuda_env(const char *name, long long otherwise);
/* Takes so much memory of the current device, for ever. */
void hostcuda_take(size_t bytes);
/* The next number of the seeded sequence (HOSTCUDA_SEED). */
uint64_t hostcuda_random(void);

/* A kernel compiled for the host: thread() executes one thread of the current block. */
typedef struct {
    const char *name;
    const void *function; /* the key of cudaFuncSetAttribute */
    void (*thread)(void *args);
    void (*release)(void *args);
    void *args;
    char *shared, *shared_end; /* static shared memory of the module */
} hostcuda_kernel_t;
cudaError_t hostcuda_launch(const hostcuda_kernel_t *kernel, dim3 grid, dim3 block,
                            size_t shared_bytes, cudaStream_t stream);

/* The thread that runs. Written by the fake, read by kernels. */
typedef struct {
    uint3 thread, block;
    dim3 block_dim, grid_dim;
} hostcuda_index_t;
extern hostcuda_index_t hostcuda_index;

void *hostcuda_shared_memory(void);
typedef enum { HOSTCUDA_ALL, HOSTCUDA_ANY, HOSTCUDA_SUM } hostcuda_vote_t;
/* Barrier of the block; returns the vote over `predicate`. file and line identify the barrier. */
int hostcuda_barrier(hostcuda_vote_t vote, int predicate, const char *file, int line);
/* All lanes of `mask` meet and exchange values. *value becomes that of lane `source`; bits
 * outside mask hold poison. The result is the set of lanes whose predicate is true. */
unsigned hostcuda_exchange(unsigned mask, uint64_t *value, int source, int predicate,
                           const char *file, int line);
/* As exchange, but combines the values of all lanes in ascending order of lanes. */
uint64_t hostcuda_reduce(unsigned mask, uint64_t value, uint64_t (*combine)(uint64_t, uint64_t),
                         const char *file, int line);
void hostcuda_trap(const char *file, int line);

#ifdef __cplusplus
}
#endif
#endif
