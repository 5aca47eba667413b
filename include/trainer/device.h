/*
 * A device: memory, streams, events, copies and kernels, as one const table of functions.
 *
 * Device memory is opaque: only kernels and copies of the same device may look at it, whatever the device
 * (on `cpu` it happens to be host memory, `host_visible` says so and is for optimisations only). The graph
 * checks shapes, types and NULL once; kernels only compute.
 *
 * Order: work given to one stream runs in order; different streams are ordered by events only. `cpu` runs
 * everything at once, in the caller's thread; `strict` runs streams in any legal order.
 *
 * Not collective: a device knows no other rank. One thread at a time uses a stream.
 */
#ifndef TRAINER_DEVICE_H
#define TRAINER_DEVICE_H

#include "trainer/kernels.h"
#include "trainer/status.h"
#include "trainer/tensor_types.h"

typedef struct tr_device tr_device_t;
typedef struct tr_stream tr_stream_t; /* made by the device; opaque */
typedef struct tr_event tr_event_t;

typedef enum { TR_COPY_TO_DEVICE, TR_COPY_TO_HOST, TR_COPY_ON_DEVICE } tr_copy_kind_t;

typedef struct {
    int threads; /* CPU threads to compute with, if OpenMP makes as many; 0: as many as this process may run on */
    int index;     /* which GPU; -1: by local rank */
    uint64_t seed; /* strict: seed of its legal orders */
    bool direct;   /* convolutions by direct sums only */
} tr_device_params_t;

/* What a kernel gets. Pointers are device addresses; in `prepare` all pointers are NULL. */
typedef struct {
    void *data;
    tr_dtype_t dtype;
    tr_shape_t shape;
} tr_view_t;

#define TR_KERNEL_MAX_IN  8
#define TR_KERNEL_MAX_OUT 8

typedef struct {
    int n_in, n_out;
    tr_view_t in[TR_KERNEL_MAX_IN]; /* an optional input or output that is absent has ndim -1, data NULL */
    tr_view_t out[TR_KERNEL_MAX_OUT];
    const void *attr; /* the kernel's attribute struct (kernels.h); outlives the call */
    void *scratch;    /* device memory of the size that prepare asked for, or NULL */
    void *state;      /* what prepare made, or NULL */
} tr_kernel_call_t;

/*
 * A kernel. `prepare` runs once per op when a program is planned: it may create a primitive, choose an
 * algorithm and say how much scratch `run` wants; NULL where there is nothing to do. `run` enqueues on `stream`.
 * `release` frees what prepare put into *state. A kernel whose `run` is NULL is absent on this device.
 */
typedef struct {
    tr_status_t (*run)(tr_device_t *device, tr_stream_t *stream, const tr_kernel_call_t *call);
    tr_status_t (*prepare)(tr_device_t *device, const tr_kernel_call_t *call, void **out_state,
                           size_t *out_scratch_bytes);
    void (*release)(tr_device_t *device, void *state);
} tr_kernel_t;

typedef struct {
    const char *name;
    const char *help;
    /* Why the device cannot be used here ("no CUDA driver"), or NULL where it can. */
    const char *(*unavailable)(void);
    tr_status_t (*open)(const tr_device_params_t *params, tr_device_t **out);
    void (*close)(tr_device_t *device);

    /* memory, 256-byte aligned. host_alloc gives memory that copies may read and write asynchronously (pinned). */
    tr_status_t (*alloc)(tr_device_t *device, size_t bytes, void **out);
    void (*free)(tr_device_t *device, void *pointer);
    tr_status_t (*host_alloc)(tr_device_t *device, size_t bytes, void **out);
    void (*host_free)(tr_device_t *device, void *pointer);

    /* streams and events */
    tr_status_t (*stream_create)(tr_device_t *device, const char *name, tr_stream_t **out);
    void (*stream_destroy)(tr_device_t *device, tr_stream_t *stream);
    tr_status_t (*stream_sync)(tr_device_t *device, tr_stream_t *stream);
    tr_status_t (*event_create)(tr_device_t *device, tr_event_t **out);
    void (*event_destroy)(tr_device_t *device, tr_event_t *event);
    tr_status_t (*event_record)(tr_device_t *device, tr_event_t *event, tr_stream_t *stream);
    /* stream waits for event */
    tr_status_t (*event_wait)(tr_device_t *device, tr_event_t *event, tr_stream_t *stream);
    /* host waits for event */
    tr_status_t (*event_sync)(tr_device_t *device, tr_event_t *event);

    /* dst and src must stay valid until the stream has passed the copy; host side from host_alloc for overlap. */
    tr_status_t (*copy)(tr_device_t *device, tr_stream_t *stream, void *dst, const void *src, size_t bytes,
                        tr_copy_kind_t kind);
    tr_status_t (*zero)(tr_device_t *device, tr_stream_t *stream, void *dst, size_t bytes);

    /* optional: the bytes hold nothing from here on (strict fills them with NaN). */
    tr_status_t (*poison)(tr_device_t *device, tr_stream_t *stream, void *dst, size_t bytes);

    const tr_kernel_t *kernels; /* [TR_K_COUNT] */

    /* optional: f32 multiply-adds and memory copies at the rate that this device can sustain, timed for about 0.1 s:
     * what a measured rate is compared with. */
    tr_status_t (*measure_peak)(tr_device_t *device, double *out_flops_per_sec, double *out_bytes_per_sec);
} tr_device_ops_t;

/* An open device. Implementations embed this as their first member. Read-only to users. */
struct tr_device {
    const tr_device_ops_t *ops;
    bool host_visible;     /* device memory can be read and written by the host as it is */
    bool immediate;        /* work is done when the call returns; streams and events do nothing */
    bool fast_bf16;        /* products of bf16 have instructions; else they are emulated, slower than f32 */
    bool winograd;         /* convolutions may be computed by Winograd's algorithm; prepare goes by it */
    int threads;           /* CPU threads that compute; 0 where none do */
    size_t memory_bytes;   /* what may be planned for */
    char description[256]; /* "AMD EPYC ..., 2 threads, AVX-512" */
};

/* All devices compiled in or found, in devices.def's order. */
const tr_device_ops_t *const *tr_device_list(size_t *out_count);
/* Opens by name; "auto" is the best that is available. TR_ERR_CONFIG says which there are. params NULL: defaults. */
tr_status_t tr_device_open(const char *name, const tr_device_params_t *params, tr_device_t **out);
/* TR_ERR_INTERNAL with the names of the required kernels that `ops` lacks. */
tr_status_t tr_device_check_kernels(const tr_device_ops_t *ops);
void tr_device_close(tr_device_t **device);

#endif
