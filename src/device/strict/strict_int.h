/*
 * The strict device, private. It computes with the cpu device's kernels, but behaves like the worst
 * legal GPU:
 *
 * - addresses of device memory carry a tag that no host address has, so that the host's first touch
 * of one faults;
 * - fresh memory and memory after a tensor's planned death hold NaN;
 * - work is recorded and done only when somebody waits for it, streams against each other in a
 * seeded random order that keeps to stream order and events, so that a missing event or a source
 * overwritten too early shows; and the order of all accesses is checked when work is given, so that
 * it shows in every order;
 * - every view handed to a kernel must lie in live memory, and outputs may not partly overlap other
 * views.
 *
 * strict_device.c has the table and memory, strict_stream.c the queues, strict_capture.c capture and
 * replay, strict_order.c the check of order, strict_kernels.c the kernels.
 */
#ifndef TRAINER_STRICT_INT_H
#define TRAINER_STRICT_INT_H

#include "device/device.h"
#include "trainer/mem.h"
#include "trainer/rng.h"
#include <pthread.h>

typedef enum {
    STRICT_KERNEL,
    STRICT_COPY,
    STRICT_FILL,
    STRICT_CALL,
    STRICT_RECORD,
    STRICT_WAIT
} strict_kind_t;

/* A function of the host as a piece of work; data is untagged. */
typedef tr_status_t (*strict_call_fn)(void *self, void *data, size_t bytes);

/* One piece of recorded work; all addresses are host addresses (untagged). */
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
/* For every stream, how much of its work is before something. */
typedef struct {
    uint64_t tick[STRICT_STREAMS];
} strict_clock_t;

/* Bytes [first, last) were touched by work number `tick` of a stream. */
typedef struct {
    const char *first, *last;
    int stream;
    uint64_t tick;
    bool write;
    const char *what;
} strict_access_t;

struct tr_stream {
    int id;                /* below STRICT_STREAMS; given again once the stream is gone */
    uint64_t capture;      /* that this stream has joined, 0: none */
    size_t captured, seen; /* pieces of work in that capture, and how many the origin waits for */
    strict_clock_t clock;
    TR_VEC(strict_work_t) work;
    size_t head; /* work[head ..] is still to do */
};

struct tr_event {
    uint64_t recorded, done;
    uint64_t capture; /* number of the capture that holds the last record, 0: none does */
    tr_stream_t *captured_on;
    size_t captured;      /* pieces of work of that stream before the record */
    strict_clock_t clock; /* of the last record */
};

typedef void (*strict_trace_fn)(void *self, const char *stream, const char *what, size_t amount);

/* Captured work, in the order in which it was given, with copies of all attributes. */
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
    tr_device_ops_t ops; /* the table with the kernels that cpu has */
    tr_kernel_t kernels[TR_K_COUNT];
    tr_device_t *cpu;
    tr_stream_t *cpu_stream;
    pthread_mutex_t mutex; /* over all below: threads may use different streams at the same time */
    TR_VEC(strict_block_t) blocks;
    TR_VEC(tr_stream_t *) streams;
    TR_VEC(strict_access_t) accesses;
    strict_clock_t host_clock;
    uint64_t last_tick[STRICT_STREAMS];
    const char *stream_name[STRICT_STREAMS]; /* NULL: this id is free */
    tr_rng_t rng;
    int64_t given[STRICT_WAIT + 1]; /* pieces of work by kind, since the device was opened */
    int64_t host_waits, launches;
    strict_trace_fn trace; /* NULL: nobody */
    void *trace_self;
    tr_executable_t *capture; /* being recorded; NULL: none */
    uint64_t capture_number;  /* of it, or of the last one */
    tr_stream_t *capture_origin;
    pthread_t capture_thread;
    tr_stream_t *favourite; /* the stream that ran last */
    /* `error` happened where nobody could be told; the next sync returns it */
    bool failed;
    tr_error_t error;
} strict_device_t;

extern const tr_backend_t tr_backend_strict;
/* From now on tells `trace` of each thing that the host does: the stream that gets work ("host":
 * none does), what it is, and its bytes, or the kernels of a launch. For tests. */
void tr_strict_trace(tr_device_t *device, strict_trace_fn trace, void *self);
void tr_strict_note(const strict_device_t *strict, const tr_stream_t *stream, const char *what,
                    size_t amount);
/* The host address behind a tagged one. TR_ERR_INTERNAL names `who` where [address, +bytes) is not
 * in live device memory. */
tr_status_t tr_strict_untag(const strict_device_t *strict, const void *address, size_t bytes,
                            const char *who, void **out);

/* strict_stream.c. Callers hold the mutex. */
tr_status_t tr_strict_push(strict_device_t *strict, tr_stream_t *stream, const strict_work_t *work);
/* Does work until `stream` is empty. */
tr_status_t tr_strict_run_stream(strict_device_t *strict, const tr_stream_t *stream);
/* ... until `event`'s record number `count` is done. */
tr_status_t tr_strict_run_event(strict_device_t *strict, const tr_event_t *event, uint64_t count);
/* ... until all streams are empty; an error is kept for the next sync. */
void tr_strict_run_all(strict_device_t *strict);

/* Without a look at captures. */
tr_status_t tr_strict_enqueue(strict_device_t *strict, tr_stream_t *stream,
                              const strict_work_t *work);
/* Gives `stream` a function of the host, which reads and writes [data, +bytes) of device memory
 * when its turn comes. For collectives tables of tests. Takes the mutex. */
tr_status_t tr_strict_call(tr_device_t *device, tr_stream_t *stream, strict_call_fn call,
                           void *self, void *data, size_t bytes);

/* strict_capture.c. Callers of the first two hold the mutex. */
/* *out_taken: the work is part of a capture now and not to be enqueued. */
tr_status_t tr_strict_capture(strict_device_t *strict, tr_stream_t *stream,
                              const strict_work_t *work, bool *out_taken);
/* TR_ERR_INTERNAL where this thread is capturing: `what` is not allowed then. */
tr_status_t tr_strict_not_capturing(const strict_device_t *strict, const char *what);
tr_status_t tr_strict_capture_begin(tr_device_t *device, tr_stream_t *stream);
tr_status_t tr_strict_capture_end(tr_device_t *device, tr_stream_t *stream, tr_executable_t **out);
tr_status_t tr_strict_launch(tr_device_t *device, tr_executable_t *executable, tr_stream_t *stream);
void tr_strict_executable_destroy(tr_device_t *device, tr_executable_t *executable);

/* strict_order.c. Callers hold the mutex. */
/* TR_ERR_INTERNAL where nothing orders the work after other work on the same bytes. */
tr_status_t tr_strict_order(strict_device_t *strict, tr_stream_t *stream,
                            const strict_work_t *work);
void tr_strict_host_waited(strict_device_t *strict, const strict_clock_t *clock);

/* strict_kernels.c: one forwarder a slot, and those of them whose kernels `cpu` has. */
extern const tr_kernel_t tr_strict_kernels[TR_K_COUNT];
void tr_strict_fill_kernels(const tr_device_t *cpu, tr_kernel_t *kernels);

#endif
