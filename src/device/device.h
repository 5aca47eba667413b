/*
 * A device: memory, streams, events, copies and kernels, as one const table of functions.
 *
 * Device memory is opaque: only kernels and copies of the same device may access it. On `cpu` it is
 * host memory; `host_visible` may be used only for optimisations. The graph checks shapes, types
 * and NULL once; kernels do not check them.
 *
 * Work in one stream runs in order. Only events order work in different streams. `cpu` runs all
 * work immediately in the caller's thread; `strict` runs streams in any legal order.
 *
 * Functions marked "optional" may be NULL. Not collective: a device does not know other ranks. Any
 * thread may call, but only one thread at a time may use a stream.
 */
#ifndef TR_DEVICE_DEVICE_H
#define TR_DEVICE_DEVICE_H

#include "device/kernels.h"
#include "trainer/device.h"
#include "trainer/tensor_types.h"
#include <sched.h>

typedef struct tr_stream tr_stream_t; /* opaque */
typedef struct tr_event tr_event_t;
typedef struct tr_executable tr_executable_t;                 /* captured work */
typedef struct tr_collectives_engine tr_collectives_engine_t; /* collectives.h */
typedef struct tr_plan_cache tr_plan_cache_t;

/* -- kernels ----------------------------------------------------------------------------------- */

/* An operand of a kernel. data is a device address; NULL in `prepare`. */
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
    const void *attr;  /* the kernel's attribute struct (attributes.h); outlives the call */
    size_t attr_bytes; /* size of *attr in calls from a graph; 0: unknown */
    void *scratch;     /* device memory of the size that prepare requested, or NULL */
    void *state;       /* from prepare, or NULL */
    unsigned adds;     /* bit i: output i, which is f32, is added to the existing values */
} tr_kernel_call_t;

/*
 * A kernel. If `run` is NULL, the device lacks the kernel.
 * run        enqueues the kernel on `stream`. *call is valid only during the call.
 * prepare    optional. Makes a plan for the shapes, types and attributes of the call: it may create
 *            a primitive or choose an algorithm, and returns the scratch size that `run` needs.
 *            Calls with equal shapes, types and attributes share one plan (plan_cache.h), so `run`
 *            must not write to it.
 * workspace  optional, cheap. Returns the scratch bytes that prepare would request, or an upper
 *            bound.
 * release    frees *out_state of prepare.
 * describe   optional: how the plan `state` computes, in a few words: "cuDNN engine 10, compiled".
 */
typedef struct {
    tr_status_t (*run)(tr_device_t *device, tr_stream_t *stream, const tr_kernel_call_t *call);
    tr_status_t (*prepare)(tr_device_t *device, const tr_kernel_call_t *call, void **out_state,
                           size_t *out_scratch_bytes);
    void (*release)(tr_device_t *device, void *state);
    tr_status_t (*workspace)(tr_device_t *device, const tr_kernel_call_t *call,
                             size_t *out_scratch_bytes);
    void (*describe)(const void *state, char *text, size_t text_bytes);
    unsigned adds; /* bit i: the kernel can add to output i */
} tr_kernel_t;

/* Where a device is. */
typedef struct {
    cpu_set_t near_cores;  /* CPU cores on its NUMA node; none if unknown */
    int siblings, visible; /* devices of its kind on this node, and visible to this process; 0: ? */
} tr_device_place_t;

/* -- an open device ---------------------------------------------------------------------------- */

typedef enum { TR_COPY_TO_DEVICE, TR_COPY_TO_HOST, TR_COPY_ON_DEVICE } tr_copy_kind_t;
/* HIGH: preferred by the device's scheduler (collectives). Only a hint. */
typedef enum { TR_PRIORITY_NORMAL, TR_PRIORITY_HIGH } tr_priority_t;

enum { TR_ALLOC_SHARED_BY_RANKS = 1 }; /* alloc: collectives will use this memory */
enum { TR_EVENT_TIMED = 1 };           /* event_create: for event_elapsed */

/* One line of a report: "cuDNN", "9.19.0, /usr/lib/libcudnn.so.9". */
typedef void (*tr_report_row_fn)(void *self, const char *name, const char *value);
/* One choice: `key` names device, library version, op, shapes and types. */
typedef tr_status_t (*tr_choice_fn)(void *self, const char *key, const void *value, size_t bytes);

typedef struct {
    const char *name; /* of the backend */
    void (*close)(tr_device_t *device);

    /* Memory, 256-byte aligned. flags: 0 or TR_ALLOC_SHARED_BY_RANKS. TR_ERR_MEMORY with the
     * planned and the free bytes. host_alloc allocates pinned memory, which copies may access
     * asynchronously. */
    tr_status_t (*alloc)(tr_device_t *device, size_t bytes, unsigned flags, void **out);
    void (*free)(tr_device_t *device, void *pointer);
    tr_status_t (*host_alloc)(tr_device_t *device, size_t bytes, void **out);
    void (*host_free)(tr_device_t *device, void *pointer);
    /* optional: total and currently free bytes of the device */
    tr_status_t (*memory_info)(tr_device_t *device, size_t *out_free, size_t *out_total);

    /* Streams and events. flags: 0 or TR_EVENT_TIMED. An event that was never recorded is done. */
    tr_status_t (*stream_create)(tr_device_t *device, const char *name, tr_priority_t priority,
                                 tr_stream_t **out);
    void (*stream_destroy)(tr_device_t *device, tr_stream_t *stream);
    tr_status_t (*stream_sync)(tr_device_t *device, tr_stream_t *stream);
    tr_status_t (*event_create)(tr_device_t *device, unsigned flags, tr_event_t **out);
    void (*event_destroy)(tr_device_t *device, tr_event_t *event);
    tr_status_t (*event_record)(tr_device_t *device, tr_event_t *event, tr_stream_t *stream);
    /* makes `stream` wait for the event's last record */
    tr_status_t (*event_wait)(tr_device_t *device, tr_event_t *event, tr_stream_t *stream);
    /* makes the host wait for it */
    tr_status_t (*event_sync)(tr_device_t *device, tr_event_t *event);
    /* optional: seconds between two TR_EVENT_TIMED events that are done */
    tr_status_t (*event_elapsed)(tr_device_t *device, tr_event_t *first, tr_event_t *last,
                                 double *out_sec);

    /* dst and src must stay valid until the copy is done; the host side must be from host_alloc.
     * On a device that is not host_visible it may also be pageable memory, outside of captures: the
     * call may then wait for the copy. */
    tr_status_t (*copy)(tr_device_t *device, tr_stream_t *stream, void *dst, const void *src,
                        size_t bytes, tr_copy_kind_t kind);
    tr_status_t (*zero)(tr_device_t *device, tr_stream_t *stream, void *dst, size_t bytes);
    /* optional: marks the bytes as undefined (strict fills them with NaN) */
    tr_status_t (*poison)(tr_device_t *device, tr_stream_t *stream, void *dst, size_t bytes);
    /* optional, both or none: a named range of the work that this thread enqueues, for a profiler.
     * Ranges may be nested. Useful only where `profiled` is set. */
    void (*range_begin)(tr_device_t *device, const char *name);
    void (*range_end)(tr_device_t *device);

    /*
     * Optional, all four or none: capture. Between capture_begin and capture_end, work that this
     * thread enqueues on `stream`, and on streams that wait for an event of it, is recorded but not
     * run. `stream` must wait for those streams before the end. Host waits and allocation are
     * errors during a capture. Call capture_end also after an error; out NULL discards the
     * recording. TR_ERR_CONFIG: some work cannot be captured. A launch runs the recording on
     * `stream`, with the addresses and attributes at the time of capture. Launches of the same
     * executable do not overlap.
     */
    tr_status_t (*capture_begin)(tr_device_t *device, tr_stream_t *stream);
    tr_status_t (*capture_end)(tr_device_t *device, tr_stream_t *stream, tr_executable_t **out);
    tr_status_t (*executable_launch)(tr_device_t *device, tr_executable_t *executable,
                                     tr_stream_t *stream);
    /* Launched work still completes; memory is freed afterwards. */
    void (*executable_destroy)(tr_device_t *device, tr_executable_t *executable);

    const tr_kernel_t *kernels; /* [TR_K_COUNT] */

    /* Optional: the sustained FLOP/s of matrix products of `dtype` and bytes/s of memory copies,
     * timed for about 0.1 s; on immediate devices less than 50 ms if out_bytes_per_sec is NULL. f32
     * products use TF32 if device->tf32. A device may keep what it measured, for calls without
     * out_bytes_per_sec. A reference for measured rates. TR_ERR_CONFIG if the device has no
     * products of that type. */
    tr_status_t (*measure_peak)(tr_device_t *device, tr_dtype_t dtype, double *out_flops_per_sec,
                                double *out_bytes_per_sec);
    /* Optional: the rate in bytes/s of reading memory that is not in a cache, which limits products
     * with few rows. */
    tr_status_t (*measure_read)(tr_device_t *device, double *out_bytes_per_sec);

    /* Optional: where the device is; *out is zero on entry. It may load libraries: for reports, not
     * for training. */
    void (*place)(const tr_device_t *device, tr_device_place_t *out);

    /* Optional, both or none: what `prepare` chose (algorithms, compiled plans), as bytes by key.
     * Ranks that do not know the choices of rank 0 get them by broadcast before they plan; a key
     * that is set is not chosen again. choices_set ignores keys of another device or version. */
    tr_status_t (*choices_get)(tr_device_t *device, tr_choice_fn each, void *self);
    tr_status_t (*choices_set)(tr_device_t *device, const char *key, const void *value,
                               size_t bytes);

    /* optional, for `trainer doctor`: library versions, paths, clocks, memory, plans. May be called
     * repeatedly on an open device. */
    tr_status_t (*report)(tr_device_t *device, tr_report_row_fn row, void *self);
} tr_device_ops_t;

/* An open device. Implementations embed this as their first member. Read-only to users. */
struct tr_device {
    const tr_device_ops_t *ops;
    /* the device's own engine for collectives; NULL: MPI is used */
    const tr_collectives_engine_t *collectives;
    tr_plan_cache_t *plans; /* created by tr_device_open, freed by tr_device_close */
    bool host_visible;      /* the host can read and write device memory directly */
    bool immediate;         /* work is done when the call returns; streams and events do nothing */
    bool allocates_zeros;   /* memory from alloc is zero */
    /* hardware products of the type; otherwise they are emulated, slower than f32 */
    bool fast_bf16, fast_f16;
    bool tf32;            /* products of f32 use TF32; read by prepare */
    bool bias_sums;       /* gradients of biases by the kernels that write what is summed: fuse.h */
    bool product_act;     /* products may have an activation beside them: fuse.h */
    bool any_order;       /* `tune` may choose what gives other last bits each time */
    bool chooses_nothing; /* prepare fails with TR_ERR_NOINPUT where a choice is not known */
    bool profiled;        /* ranges are wanted */
    bool winograd;        /* convolutions may use Winograd's algorithm; read by prepare */
    /* CPU: rows of f32 products by a matrix, and images of f32 convolutions, have the same bits among
     * any number of others. For predictions; read by prepare */
    bool alone;
    int threads;           /* computing CPU threads; 0: none */
    int capability;        /* of a GPU: 10 * major + minor, 90 for 9.0; else 0 */
    size_t memory_bytes;   /* limit for the plan */
    char uuid[96];         /* the same on all ranks that share the device; "" if unknown */
    char bus_id[32];       /* PCI, "0000:c1:00.0"; "" if unknown */
    char description[256]; /* "AMD EPYC ..., 2 threads, AVX-512" */
};

/* -- backends: kinds of devices ---------------------------------------------------------------- */

/* Why a GPU's clock is low, as bits: it is too hot or gets too little power. A power limit that the
 * GPU keeps by itself is none of them. */
enum { TR_GPU_HOT = 1, TR_GPU_SLOWED = 2, TR_GPU_POWER_BRAKE = 4 };
/* A GPU as its driver sees it now, all processes together. NaN: unknown. */
typedef struct {
    char bus_id[32]; /* PCI, "0000:c1:00.0" */
    char name[96];
    int index;
    double util; /* share of the driver's last period in which a kernel ran; unknown under MIG */
    double used_bytes, total_bytes;
    double celsius, watts, joules; /* joules: since the driver was loaded */
    double sm_hertz, memory_hertz;
    double ecc_errors;    /* uncorrected, since the driver was loaded */
    double nvlink_errors; /* recoveries and CRC errors of all links, since then */
    unsigned slowed;      /* TR_GPU_HOT | ... */
} tr_gpu_sample_t;

typedef struct {
    const char *name; /* as in `device = NAME` */
    const char *help;
    /* optional: why the backend cannot be used ("no CUDA driver"); NULL if it can */
    const char *(*unavailable)(void);
    /* optional: number of visible devices; NULL: one. Opens none. */
    tr_status_t (*count)(int *out);
    /* optional: the CPU cores near each of the first `count` visible devices, as
     * tr_device_place_t.near_cores; zero on entry. Opens none. */
    void (*near_cores)(int count, cpu_set_t *out);
    tr_status_t (*open)(const tr_device_params_t *params, tr_device_t **out);
    /* optional: driver, libraries and devices of this machine, for `trainer info`. Opens none. */
    tr_status_t (*report)(tr_report_row_fn row, void *self);
    /* optional: the GPUs of this node, or only the one at `bus_id` (NULL: all); fills at most
     * `most` and returns how many. Opens none, and waits for no work. The first call may load a
     * library, which stays. Any thread. */
    int (*sample)(const char *bus_id, tr_gpu_sample_t *out, int most);
} tr_backend_t;

/* All compiled-in or loadable backends, in the order of devices.def. */
const tr_backend_t *const *tr_backend_list(size_t *out_count);
/* Finds a backend by name; "auto" is the best available one. TR_ERR_CONFIG lists the backends, or
 * says why this one cannot be used. */
tr_status_t tr_backend_find(const char *name, const tr_backend_t **out);
/* TR_ERR_INTERNAL with the names of required kernels that `ops` lacks. */
tr_status_t tr_device_check_kernels(const tr_device_ops_t *ops);
bool tr_device_has(const tr_device_t *device, tr_kernel_id_t kernel);

#endif
