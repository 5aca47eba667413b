/* What the files of the fake libcudart share. Everything here is used under the lock of enter(). */
#ifndef HOSTCUDA_CUDART_INT_H
#define HOSTCUDA_CUDART_INT_H

#include "hostcuda.h"
#include <stdatomic.h>

#define EXPORT        __attribute__((visibility("default")))
#define MAX_DEVICES   8
#define COUNT(array)  (sizeof(array) / sizeof((array)[0]))

/* -- error.c -------------------------------------------------------------------------------------------------------- */
/* Every entry point begins with ENTER or ENTER_UNSAFE and ends with LEAVE. An unsafe call is refused while its thread
 * captures a stream, unless that capture is relaxed. */
#define ENTER(...)                                                                                                      \
    do {                                                                                                                \
        const cudaError_t entered_ = hc_enter(__func__, false, __VA_ARGS__);                                            \
        if (entered_) return entered_;                                                                                  \
    } while (0)
#define ENTER_UNSAFE(...)                                                                                               \
    do {                                                                                                                \
        const cudaError_t entered_ = hc_enter(__func__, true, __VA_ARGS__);                                             \
        if (entered_) return entered_;                                                                                  \
    } while (0)
#define LEAVE(error) return hc_leave(error)
cudaError_t hc_enter(const char *name, bool unsafe, const char *format, ...) __attribute__((format(printf, 3, 4)));
cudaError_t hc_leave(cudaError_t error);
/* The lock alone, for what is no call of CUDA's. */
void hc_lock(void);
void hc_unlock(void);
cudaError_t hc_sticky(void);
/* Seconds since the last call by the program. */
double hc_idle_sec(void);
double hc_now_sec(void);
/* Callbacks of cudaLaunchHostFunc must not call CUDA; on: this thread is in one. */
void hc_in_callback(bool on);

/* -- device.c ------------------------------------------------------------------------------------------------------- */
int hc_device_count(void);
int hc_current(void);               /* the device of this thread */
cudaError_t hc_device_check(int device);
void hc_context_open(int device);   /* the first use of a device opens its context, which takes memory */
size_t hc_memory_free(int device);

/* -- memory.c ------------------------------------------------------------------------------------------------------- */
typedef enum { MEMORY_PAGEABLE, MEMORY_DEVICE, MEMORY_PINNED, MEMORY_REGISTERED } memory_kind_t;
typedef struct {
    memory_kind_t kind;
    char *base;
    size_t bytes;
    char *map; /* the pages, with a guard page on both sides */
    size_t map_bytes;
    int device;
} memory_t;
/* The allocation that holds `pointer`, or NULL: pageable memory. */
const memory_t *hc_memory_find(const void *pointer);
size_t hc_memory_used(int device);
void hc_memory_reset(int device);

/* -- stream.c ------------------------------------------------------------------------------------------------------- */
typedef struct work work_t; /* hostcuda_work_t with a count of users */
struct work {
    hostcuda_work_t call;
    int users;
};
work_t *hc_work_make(const hostcuda_work_t *call);
void hc_work_drop(work_t *work);

typedef struct item {
    struct item *next;
    work_t *work;
    uint64_t number; /* order of all work of the process */
    bool started;
} item_t;

typedef struct capture capture_t;
typedef struct node node_t;
typedef struct {
    node_t **list;
    int count;
} nodes_t;

struct CUstream_st {
    struct CUstream_st *next;
    uint64_t id;
    int device, priority;
    unsigned flags;
    bool blocking; /* ordered with the legacy stream */
    item_t *head, **tail;
    capture_t *capture;
    nodes_t ends; /* while captured: what the next node depends on */
};
typedef struct CUstream_st stream_t;
/* The stream of a handle, also for 0, cudaStreamLegacy and cudaStreamPerThread; NULL where there is none such. */
stream_t *hc_stream(cudaStream_t handle);
stream_t *hc_streams(void);
/* Puts `work` at the end, or into the capture. Takes one use of `work`. */
cudaError_t hc_stream_push(stream_t *stream, work_t *work);
/* Executes one piece of work of any stream. False where nothing can move. */
bool hc_step(void);
/* Waits until done(arg); the lock is given up in between. */
cudaError_t hc_wait(bool (*done)(void *arg), void *arg);
cudaError_t hc_drain(stream_t *stream); /* NULL: all streams of the current device */

/* -- event.c -------------------------------------------------------------------------------------------------------- */
struct CUevent_st {
    int users;
    unsigned flags;
    int device;
    bool destroyed;
    uint64_t issued, completed; /* number of the last record that was given to a stream, and that was executed */
    double time_sec;            /* of the last executed record */
    uint64_t capture;           /* id of the capture that it was recorded in; 0: none */
    nodes_t ends;
};
typedef struct CUevent_st event_t;

/* -- capture.c ------------------------------------------------------------------------------------------------------ */
struct capture {
    uint64_t id;
    stream_t *origin;
    enum cudaStreamCaptureMode mode;
    long thread;
    cudaError_t broken; /* why the capture is invalid; 0: valid */
    struct CUgraph_st *graph;
};
cudaError_t hc_capture_add(stream_t *stream, work_t *work);
/* Breaks the capture with `error` and returns it; what a stream that is captured cannot do. */
cudaError_t hc_capture_break(capture_t *capture, cudaError_t error, const char *why);
cudaError_t hc_capture_record(stream_t *stream, event_t *event);
cudaError_t hc_capture_wait(stream_t *stream, event_t *event);
/* An unsafe call by this thread: breaks the captures that forbid it. */
cudaError_t hc_capture_unsafe(const char *call);
/* Work on the legacy stream: refused while a blocking stream is captured. */
cudaError_t hc_capture_implicit(void);
bool hc_nodes_add(nodes_t *nodes, node_t *node);
void hc_nodes_join(nodes_t *nodes, const nodes_t *more);
void hc_nodes_clear(nodes_t *nodes);

/* -- graph.c -------------------------------------------------------------------------------------------------------- */
struct node {
    work_t *work;
    nodes_t needs;
    int index; /* in its graph */
};
struct CUgraph_st {
    nodes_t nodes;
    int users; /* the program, and each executable made of it */
};
typedef struct CUgraph_st graph_t;
graph_t *hc_graph_new(void);
node_t *hc_graph_add(graph_t *graph, work_t *work, const nodes_t *needs);
void hc_graph_drop(graph_t *graph);

/* -- kernel.c, fiber.c ---------------------------------------------------------------------------------------------- */
/* Stops the running fiber and lets `to` run on; *from is where it stopped. */
typedef void *fiber_stack_t;
void hc_fiber_switch(fiber_stack_t *from, fiber_stack_t to);
/* A stack that begins in entry() when it is switched to. index: 0 to 1023; stacks are used again. */
fiber_stack_t hc_fiber_new(int index, void (*entry)(void));

#endif
