/*
 * A device: memory, streams, events, copies and kernels, as one const table of functions.
 *
 * Device memory is opaque: only kernels and copies of the same device read or write it, on every
 * device. On `cpu` it is host memory; `host_visible` says so, for optimisations only. The graph
 * checks shapes, types and NULL once; kernels only compute.
 *
 * Order: work given to one stream runs in order. Events alone order different streams. `cpu` does
 * all work at once, in the caller's thread; `strict` runs streams in any legal order.
 *
 * Entries marked "optional" may be NULL. Not collective: a device knows no other rank. One thread
 * at a time uses a stream; any thread may call.
 */
#ifndef TRAINER_DEVICE_H
#define TRAINER_DEVICE_H

#include "device/kernels.h"
#include "trainer/status.h"
#include "trainer/tensor_types.h"

typedef struct tr_device tr_device_t;
typedef struct tr_stream tr_stream_t; /* made by the device; opaque */
typedef struct tr_event tr_event_t;
typedef struct tr_executable tr_executable_t;                 /* captured work */
typedef struct tr_collectives_engine tr_collectives_engine_t; /* collectives.h */
typedef struct tr_plan_cache tr_plan_cache_t;

/* -- kernels ----------------------------------------------------------------------------------- */

/* What a kernel gets. Pointers are device addresses; in `prepare` all pointers are NULL. */
typedef struct {
    void *data;
    tr_dtype_t dtype;
    tr_shape_t shape;
} tr_view_t;

typedef struct {
    int n_in, n_out;
    /* an optional input or output that is absent has ndim -1, data NULL */
    tr_view_t in[TR_KERNEL_MAX_IN];
    tr_view_t out[TR_KERNEL_MAX_OUT];
    const void *attr; /* the kernel's attribute struct (attributes.h); outlives the call */
    size_t attr_bytes; /* of *attr, where a graph made the call; 0: not known */
    void *scratch;    /* device memory of the size that prepare asked for, or NULL */
    void *state;      /* what prepare made, or NULL */
} tr_kernel_call_t;

/*
 * A kernel. A kernel whose `run` is NULL is absent on this device.
 * run        enqueues on `stream`. It reads *call only until it returns.
 * prepare    optional. Makes a plan for the call's shapes, types and attributes: it may create a
 *            primitive or choose an algorithm, and says how much scratch `run` needs. Calls with
 *            equal
 *            shapes, types and attributes share one plan (plan_cache.h), so `run` must not write to
 *            it.
 * workspace  optional, cheap: only the scratch bytes that prepare would ask for, or an upper bound.
 * release    frees what prepare put into *out_state.
 */
typedef struct {
    tr_status_t (*run)(tr_device_t *device, tr_stream_t *stream, const tr_kernel_call_t *call);
    tr_status_t (*prepare)(tr_device_t *device, const tr_kernel_call_t *call, void **out_state,
                           size_t *out_scratch_bytes);
    void (*release)(tr_device_t *device, void *state);
    tr_status_t (*workspace)(tr_device_t *device, const tr_kernel_call_t *call,
                             size_t *out_scratch_bytes);
} tr_kernel_t;

/* -- an open device ---------------------------------------------------------------------------- */

typedef enum { TR_COPY_TO_DEVICE, TR_COPY_TO_HOST, TR_COPY_ON_DEVICE } tr_copy_kind_t;
/* HIGH: its work goes first where the device must choose (collectives). Only a hint. */
typedef enum { TR_PRIORITY_NORMAL, TR_PRIORITY_HIGH } tr_priority_t;

enum { TR_ALLOC_SHARED_BY_RANKS = 1 }; /* alloc: collectives will work on this memory */
enum { TR_EVENT_TIMED = 1 };           /* event_create: for event_elapsed */

/* One line of a report: "cuDNN", "9.19.0, /usr/lib/libcudnn.so.9". */
typedef void (*tr_report_row_fn)(void *self, const char *name, const char *value);
/* One choice made by timing: `key` names device, library version, op, shapes and types. */
typedef tr_status_t (*tr_choice_fn)(void *self, const char *key, const void *value, size_t bytes);

typedef struct {
    const char *name; /* the backend's */
    void (*close)(tr_device_t *device);

    /* Memory, 256-byte aligned. flags: 0 or TR_ALLOC_SHARED_BY_RANKS. TR_ERR_MEMORY says how much
     * was planned and free. host_alloc gives pinned memory: copies may read and write it
     * asynchronously. */
    tr_status_t (*alloc)(tr_device_t *device, size_t bytes, unsigned flags, void **out);
    void (*free)(tr_device_t *device, void *pointer);
    tr_status_t (*host_alloc)(tr_device_t *device, size_t bytes, void **out);
    void (*host_free)(tr_device_t *device, void *pointer);
    /* optional: bytes of the whole device, and those that nobody uses now */
    tr_status_t (*memory_info)(tr_device_t *device, size_t *out_free, size_t *out_total);

    /* Streams and events. flags: 0 or TR_EVENT_TIMED. An event that was never recorded counts as
     * done. */
    tr_status_t (*stream_create)(tr_device_t *device, const char *name, tr_priority_t priority,
                                 tr_stream_t **out);
    void (*stream_destroy)(tr_device_t *device, tr_stream_t *stream);
    tr_status_t (*stream_sync)(tr_device_t *device, tr_stream_t *stream);
    tr_status_t (*event_create)(tr_device_t *device, unsigned flags, tr_event_t **out);
    void (*event_destroy)(tr_device_t *device, tr_event_t *event);
    tr_status_t (*event_record)(tr_device_t *device, tr_event_t *event, tr_stream_t *stream);
    /* `stream` waits for the event's last record */
    tr_status_t (*event_wait)(tr_device_t *device, tr_event_t *event, tr_stream_t *stream);
    /* the host waits for it */
    tr_status_t (*event_sync)(tr_device_t *device, tr_event_t *event);
    /* optional, both or none: whether it is done, without waiting; seconds from `first` to `last`,
     * two TR_EVENT_TIMED events that are done */
    tr_status_t (*event_query)(tr_device_t *device, tr_event_t *event, bool *out_done);
    tr_status_t (*event_elapsed)(tr_device_t *device, tr_event_t *first, tr_event_t *last,
                                 double *out_sec);

    /* dst and src stay valid until the stream has passed the copy; the host side is from
     * host_alloc. */
    tr_status_t (*copy)(tr_device_t *device, tr_stream_t *stream, void *dst, const void *src,
                        size_t bytes, tr_copy_kind_t kind);
    tr_status_t (*zero)(tr_device_t *device, tr_stream_t *stream, void *dst, size_t bytes);
    /* optional: the bytes hold nothing from here on (strict fills them with NaN) */
    tr_status_t (*poison)(tr_device_t *device, tr_stream_t *stream, void *dst, size_t bytes);

    /*
     * Optional, all four or none: capture. From capture_begin to capture_end work that this thread
     * gives to `stream`, and to streams that wait for an event of it, is recorded and not run;
     * `stream` must have waited for those streams again before the end. Host waits, allocation and
     * event_query are errors meanwhile. capture_end with out NULL discards the recording; it must
     * be called after an error, too. TR_ERR_CONFIG: something given to the stream cannot be
     * captured. A launch runs the recording, with the addresses and attributes of the time of
     * capture, as one piece of work of `stream`. The same executable does not overlap itself.
     */
    tr_status_t (*capture_begin)(tr_device_t *device, tr_stream_t *stream);
    tr_status_t (*capture_end)(tr_device_t *device, tr_stream_t *stream, tr_executable_t **out);
    tr_status_t (*executable_launch)(tr_device_t *device, tr_executable_t *executable,
                                     tr_stream_t *stream);
    /* Launched work still completes; the memory is freed after it. */
    void (*executable_destroy)(tr_device_t *device, tr_executable_t *executable);

    const tr_kernel_t *kernels; /* [TR_K_COUNT] */

    /* Optional: multiply-adds of products of `dtype` and memory copies at the rate that this device
     * can sustain, timed for about 0.1 s: what a measured rate is compared with. TR_ERR_CONFIG
     * where the device has no products of that type. */
    tr_status_t (*measure_peak)(tr_device_t *device, tr_dtype_t dtype, double *out_flops_per_sec,
                                double *out_bytes_per_sec);
    /* Optional: the rate at which this device can read memory that no cache holds, in bytes/s: the
     * limit of products with few rows. */
    tr_status_t (*measure_read)(tr_device_t *device, double *out_bytes_per_sec);

    /* Optional, both or none: what was chosen by timing, as bytes by key. Rank 0's choices are
     * broadcast and kept in checkpoints; a key that is set is not timed. choices_set of an unknown
     * key or one of another device or version is ignored. */
    tr_status_t (*choices_get)(tr_device_t *device, tr_choice_fn each, void *self);
    tr_status_t (*choices_set)(tr_device_t *device, const char *key, const void *value,
                               size_t bytes);

    /* optional, for `trainer doctor`: what this device is, uses and chose: library versions, paths,
     * clocks, memory, plans. Called after the device was opened; may be called again. */
    tr_status_t (*report)(tr_device_t *device, tr_report_row_fn row, void *self);
} tr_device_ops_t;

/* An open device. Implementations embed this as their first member. Read-only to users. */
struct tr_device {
    const tr_device_ops_t *ops;
    /* its own engine for collectives on its memory; NULL: none, ranks use MPI's */
    const tr_collectives_engine_t *collectives;
    tr_plan_cache_t *plans; /* made by tr_device_open, freed by tr_device_close before ops->close */
    bool host_visible;      /* the host can read and write device memory directly */
    bool immediate;         /* work is done when the call returns; streams and events do nothing */
    /* products of bf16 have instructions; else they are emulated, slower than f32 */
    bool fast_bf16;
    bool winograd;         /* convolutions may use Winograd's algorithm; prepare reads it */
    int threads;           /* CPU threads that compute; 0 where none do */
    int capability;        /* of a GPU: 10 * major + minor, 90 for 9.0; else 0 */
    size_t memory_bytes;   /* how much may be planned for */
    char uuid[96];         /* the same on all ranks that share the device; "" where it has none */
    char bus_id[32];       /* PCI, "0000:c1:00.0"; "" where it has none */
    char description[256]; /* "AMD EPYC ..., 2 threads, AVX-512" */
};

/* -- backends: kinds of devices ---------------------------------------------------------------- */

typedef struct {
    /* CPU threads to compute with, if OpenMP makes as many; 0: as many as this process may run on
     * */
    int threads;
    int index;     /* which of the backend's devices, from 0; the caller resolves "by local rank" */
    uint64_t seed; /* strict: seed of its legal orders */
    bool direct;   /* convolutions by direct sums only */
    /* GPUs: how much of the memory that is free once the device is open may be planned for; 0:
     * 0.95 */
    double memory_share;
    bool sync; /* GPUs: wait after every kernel, so that an error names its kernel */
} tr_device_params_t;

typedef struct {
    const char *name; /* what `device = NAME` says */
    const char *help;
    /* optional: why the backend cannot be used here ("no CUDA driver"), or NULL where it can */
    const char *(*unavailable)(void);
    /* optional: how many devices this process sees; NULL: one. Opens none. */
    tr_status_t (*count)(int *out);
    tr_status_t (*open)(const tr_device_params_t *params, tr_device_t **out);
    /* optional: driver, libraries and devices of this machine, for `trainer info`. Opens none. */
    tr_status_t (*report)(tr_report_row_fn row, void *self);
} tr_backend_t;

/* All backends compiled in or loadable, in devices.def's order. */
const tr_backend_t *const *tr_backend_list(size_t *out_count);
/* Finds one by name; "auto" is the best that is available. TR_ERR_CONFIG says which there are, or
 * why this one cannot be used. */
tr_status_t tr_backend_find(const char *name, const tr_backend_t **out);
/* Finds and opens. params NULL: defaults. */
tr_status_t tr_device_open(const char *name, const tr_device_params_t *params, tr_device_t **out);
/* TR_ERR_INTERNAL with the names of the required kernels that `ops` lacks. */
tr_status_t tr_device_check_kernels(const tr_device_ops_t *ops);
bool tr_device_has(const tr_device_t *device, tr_kernel_id_t kernel);
void tr_device_close(tr_device_t **device);

#endif
