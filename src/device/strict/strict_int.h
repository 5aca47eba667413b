/*
 * The strict device, private. It computes with the kernels of the cpu device, but behaves like the
 * least cooperative legal GPU:
 *
 * - Device addresses carry a tag that host addresses never have, so any host access faults. - New
 * memory, and memory of tensors after their planned lifetime, contains NaN. - Work is recorded and
 * runs only when something waits for it. Streams run in a seeded random order
 *   that respects stream order and events, which exposes missing events and sources overwritten too
 *   early. The order of all accesses is also checked when work is enqueued, so that such errors are
 *   found in every run.
 * - Every view passed to a kernel must be in allocated memory, and outputs must not partly overlap
 *   other views.
 *
 * strict_device.c has the table and memory, strict_stream.c the queues, strict_capture.c capture
 * and replay, strict_order.c the check of order, strict_kernels.c the kernels.
 */
#ifndef TR_DEVICE_STRICT_STRICT_INT_H
#define TR_DEVICE_STRICT_STRICT_INT_H

#include "device/device.h"
#include "base/mem.h"
#include "base/rng.h"
#include <pthread.h>

typedef enum {
    STRICT_KERNEL,
    STRICT_COPY,
    STRICT_FILL,
    STRICT_CALL,
    STRICT_RECORD,
    STRICT_WAIT
} strict_kind_t;

/* A host function as an item of work; data is untagged. */
typedef tr_status_t (*strict_call_fn)(void *self, void *data, size_t bytes);

/* One item of recorded work; all addresses are host addresses (untagged). */
typedef struct {
    strict_kind_t kind;
    tr_kernel_id_t kernel;
    tr_kernel_call_t call;
    strict_call_fn host_call; /* CALL: reads and writes dst */
    void *self;
    void *dst; /* COPY, FILL, CALL */
    const void *src;
    size_t bytes;
    int fill;
    tr_event_t *event; /* RECORD, WAIT */
    uint64_t count;    /* which record of the event */
} strict_work_t;

#define STRICT_STREAMS 32
/* A vector clock: for every stream, the number of its work items that precede something. */
typedef struct {
    uint64_t tick[STRICT_STREAMS];
} strict_clock_t;

/* An access to bytes [first, last) by work item `tick` of a stream. */
typedef struct {
    const char *first, *last;
    int stream;
    uint64_t tick;
    bool write;
    const char *what;
} strict_access_t;

struct tr_stream {
    int id;                /* below STRICT_STREAMS; reused after the stream is destroyed */
    uint64_t capture;      /* the capture that this stream has joined; 0: none */
    size_t captured, seen; /* work items in that capture, and how many the origin waits for */
    strict_clock_t clock;
    TR_VEC(strict_work_t) work;
    size_t head; /* work[head ..] has not run yet */
};

struct tr_event {
    uint64_t recorded, done;
    uint64_t capture; /* number of the capture with the last record; 0: none */
    tr_stream_t *captured_on;
    size_t captured;      /* work items of that stream before the record */
    strict_clock_t clock; /* of the last record */
};

typedef void (*strict_trace_fn)(void *self, const char *stream, const char *what, size_t amount);

/* Captured work, in the order of enqueuing, with copies of all attributes. */
struct tr_executable {
    TR_VEC(strict_work_t) work;
    TR_VEC(void *) attrs;
};

typedef struct {
    char *host;
    size_t bytes;
} strict_block_t;

typedef struct {
    tr_device_t base;
    tr_device_ops_t ops; /* the table with the kernels of cpu */
    tr_kernel_t kernels[TR_K_COUNT];
    tr_device_t *cpu;
    tr_stream_t *cpu_stream;
    pthread_mutex_t mutex; /* guards the members below: threads may use different streams */
    TR_VEC(strict_block_t) blocks;
    TR_VEC(tr_stream_t *) streams;
    TR_VEC(strict_access_t) accesses;
    strict_clock_t host_clock;
    uint64_t last_tick[STRICT_STREAMS];
    const char *stream_name[STRICT_STREAMS]; /* NULL: this id is free */
    tr_rng_t rng;
    int64_t given[STRICT_WAIT + 1]; /* number of work items by kind, since the device was opened */
    int64_t host_waits, launches;
    strict_trace_fn trace; /* NULL: none */
    void *trace_self;
    tr_executable_t *capture; /* being recorded; NULL: none */
    uint64_t capture_number;  /* of the current or the last capture */
    tr_stream_t *capture_origin;
    pthread_t capture_thread;
    tr_stream_t *favourite; /* the stream that ran last */
    /* an asynchronous error, which the next sync returns */
    bool failed;
    tr_error_t error;
} strict_device_t;

extern const tr_backend_t tr_backend_strict;
/* Reports every action of the host to `trace`: the stream ("host" if none), the action, and its
 * bytes, or the number of kernels of a launch. For tests. */
void tr_strict_trace(tr_device_t *device, strict_trace_fn trace, void *self);
void tr_strict_note(const strict_device_t *strict, const tr_stream_t *stream, const char *what,
                    size_t amount);
/* Converts a tagged address to a host address. TR_ERR_INTERNAL names `who` if [address, +bytes) is
 * not in allocated device memory. */
tr_status_t tr_strict_untag(const strict_device_t *strict, const void *address, size_t bytes,
                            const char *who, void **out);

/* strict_stream.c. Callers hold the mutex. */
tr_status_t tr_strict_push(strict_device_t *strict, tr_stream_t *stream, const strict_work_t *work);
/* Run work until `stream` is empty, */
tr_status_t tr_strict_run_stream(strict_device_t *strict, const tr_stream_t *stream);
/* until record number `count` of `event` is done, */
tr_status_t tr_strict_run_event(strict_device_t *strict, const tr_event_t *event, uint64_t count);
/* or until all streams are empty; an error is kept for the next sync. */
void tr_strict_run_all(strict_device_t *strict);

/* Enqueues work regardless of captures. */
tr_status_t tr_strict_enqueue(strict_device_t *strict, tr_stream_t *stream,
                              const strict_work_t *work);
/* Enqueues a host function that reads and writes [data, +bytes) of device memory. For collectives
 * in tests. Takes the mutex. */
tr_status_t tr_strict_call(tr_device_t *device, tr_stream_t *stream, strict_call_fn call,
                           void *self, void *data, size_t bytes);

/* strict_capture.c. Callers of the first two hold the mutex. */
/* *out_taken: the work was added to a capture and must not be enqueued. */
tr_status_t tr_strict_capture(strict_device_t *strict, tr_stream_t *stream,
                              const strict_work_t *work, bool *out_taken);
/* TR_ERR_INTERNAL if this thread is capturing, when `what` is not allowed. */
tr_status_t tr_strict_not_capturing(const strict_device_t *strict, const char *what);
tr_status_t tr_strict_capture_begin(tr_device_t *device, tr_stream_t *stream);
tr_status_t tr_strict_capture_end(tr_device_t *device, tr_stream_t *stream, tr_executable_t **out);
tr_status_t tr_strict_launch(tr_device_t *device, tr_executable_t *executable, tr_stream_t *stream);
void tr_strict_executable_destroy(tr_device_t *device, tr_executable_t *executable);

/* strict_order.c. Callers hold the mutex. */
/* TR_ERR_INTERNAL if the work is not ordered after other work on the same bytes. */
tr_status_t tr_strict_order(strict_device_t *strict, tr_stream_t *stream,
                            const strict_work_t *work);
void tr_strict_host_waited(strict_device_t *strict, const strict_clock_t *clock);

/* strict_kernels.c: one forwarder per kernel; fill copies those whose kernels `cpu` has. */
extern const tr_kernel_t tr_strict_kernels[TR_K_COUNT];
void tr_strict_fill_kernels(const tr_device_t *cpu, tr_kernel_t *kernels);

#endif
