/* Times of one matrix product on one device, and of the transfers of its matrices. */
#include "bench_matmul.h"
#include "device/plan_cache.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"
#include "base/rng.h"
#include "base/stats.h"
#include "base/str.h"

#include <math.h>
#include <string.h>

enum { MATRICES = 3, HOST_MATRICES = 2 /* pinned and pageable */ };
enum { BLOCKS = 5, MOST_RUNS = 2000 };
#define BLOCK_SEC 20e-3
#define BLOCK_MOST_SEC                                                                             \
    0.1                /* where runs take longer than the first ones did: beside other programs */
#define LONG_SEC   0.3 /* of a run that needs no other one to warm up */
#define COPY_BYTES ((size_t)256 << 20)

/* One product with its memory, or one copy. */
typedef struct {
    tr_device_t *device;
    tr_stream_t *stream;
    tr_kernel_call_t call;
    tr_matmul_attr_t attr;
    size_t bytes;            /* of one matrix */
    size_t taken;            /* of the device */
    void *a, *b, *c;         /* on the device */
    void *host;              /* what copies use: pinned or pageable */
    void *pinned, *pageable; /* NULL where the device works on host memory */
} bench_work_t;
typedef tr_status_t (*bench_work_fn)(bench_work_t *w);

static tr_status_t bench_work_sync(const bench_work_t *w) {
    return w->device->ops->stream_sync(w->device, w->stream);
}

static tr_status_t bench_work_run_block(bench_work_t *w, bench_work_fn work, int runs,
                                        double *out_sec) {
    const double began = tr_clock_sec();
    int done = 0;
    do TR_TRY(work(w));
    while (++done < runs && tr_clock_sec() - began < BLOCK_MOST_SEC);
    TR_TRY(bench_work_sync(w));
    *out_sec = (tr_clock_sec() - began) / done;
    return TR_OK;
}

/* Blocks of runs without a wait in between, as in training; the median block. */
static tr_status_t bench_work_time(bench_work_t *w, bench_work_fn work, double *out_sec) {
    double once = 0, sec[BLOCKS];
    TR_TRY(bench_work_run_block(w, work, 1, &once)); /* does not count */
    TR_TRY(bench_work_run_block(w, work, 1, &once));
    *out_sec = once;
    if (once > LONG_SEC) return TR_OK;
    const int runs = (int)fmin(MOST_RUNS, fmax(1, BLOCK_SEC / once));
    for (int i = 0; i < BLOCKS; i++) TR_TRY(bench_work_run_block(w, work, runs, &sec[i]));
    tr_sort(sec, BLOCKS);
    *out_sec = sec[BLOCKS / 2];
    return TR_OK;
}

static tr_status_t bench_work_copy(bench_work_t *w, void *to, const void *from,
                                   tr_copy_kind_t kind) {
    return w->device->ops->copy(w->device, w->stream, to, from, w->bytes, kind);
}

static tr_status_t bench_work_multiply(bench_work_t *w) {
    return w->device->ops->kernels[TR_K_MATMUL].run(w->device, w->stream, &w->call);
}
static tr_status_t bench_work_copy_to(bench_work_t *w) {
    TR_TRY(bench_work_copy(w, w->a, w->host, TR_COPY_TO_DEVICE));
    return bench_work_copy(w, w->b, w->host, TR_COPY_TO_DEVICE);
}
static tr_status_t bench_work_copy_from(bench_work_t *w) {
    return bench_work_copy(w, w->host, w->c, TR_COPY_TO_HOST);
}
static tr_status_t bench_work_copy_inside(bench_work_t *w) {
    return bench_work_copy(w, w->b, w->a, TR_COPY_ON_DEVICE);
}

/* Numbers from -1 to 1 with a period of a few thousand. With zeros, a GPU would use less power and
 * run faster. */
static void bench_work_fill(void *data, tr_dtype_t dtype, int64_t count) {
    enum { PERIOD = 4093 };
    tr_rng_t rng = tr_rng_make(1, TR_RNG_TEST, 0, 0);
    for (int64_t i = 0; i < count; i++) {
        const float x = i < PERIOD ? (float)(2 * tr_rng_uniform(&rng) - 1) : 0;
        uint32_t bits;
        memcpy(&bits, &x, sizeof bits);
        if (dtype == TR_F32)
            ((float *)data)[i] = i < PERIOD ? x : ((float *)data)[i - PERIOD];
        else if (i >= PERIOD)
            ((uint16_t *)data)[i] = ((uint16_t *)data)[i - PERIOD];
        else if (dtype == TR_BF16)
            ((uint16_t *)data)[i] = (uint16_t)(bits >> 16);
        else /* of magnitude 1/2 to 1 */
            ((uint16_t *)data)[i] = (uint16_t)((bits >> 8 & 0x83ff) | 0x3800);
    }
}

static tr_status_t bench_work_open_memory(bench_work_t *w) {
    const tr_device_ops_t *ops = w->device->ops;
    TR_TRY(ops->stream_create(w->device, "bench", TR_PRIORITY_NORMAL, &w->stream));
    TR_TRY(ops->alloc(w->device, w->bytes, 0, &w->a));
    return ops->alloc(w->device, w->bytes, 0, &w->b);
}

static tr_status_t bench_work_fill_operands(bench_work_t *w, tr_dtype_t dtype, int64_t count) {
    if (w->device->host_visible) {
        bench_work_fill(w->a, dtype, count);
        bench_work_fill(w->b, dtype, count);
        return TR_OK;
    }
    TR_TRY(w->device->ops->host_alloc(w->device, w->bytes, &w->pinned));
    TR_TRY(tr_alloc(w->bytes, "a matrix", &w->pageable));
    bench_work_fill(w->pinned, dtype, count);
    memcpy(w->pageable, w->pinned, w->bytes);
    w->host = w->pinned;
    TR_TRY(bench_work_copy_to(w));
    return bench_work_sync(w);
}

static tr_status_t bench_work_open(bench_work_t *w, tr_dtype_t dtype, int64_t n) {
    const tr_device_ops_t *ops = w->device->ops;
    const tr_view_t matrix = {.dtype = dtype, .shape = TR_SHAPE(n, n)};
    tr_plan_t plan;
    w->bytes = (size_t)(n * n) * tr_dtype_bytes(dtype);
    w->attr.alpha = 1;
    w->call = (tr_kernel_call_t){.n_in = 2,
                                 .n_out = 1,
                                 .in = {matrix, matrix},
                                 .out = {matrix},
                                 .attr = &w->attr,
                                 .attr_bytes = sizeof w->attr};
    for (int i = 2; i < TR_KERNEL_MAX_IN; i++) w->call.in[i].shape.ndim = -1;
    for (int i = 1; i < TR_KERNEL_MAX_OUT; i++) w->call.out[i].shape.ndim = -1;
    TR_TRY(tr_plan_get(w->device, TR_K_MATMUL, &w->call, sizeof w->attr, &plan));
    TR_TRY(bench_work_open_memory(w));
    TR_TRY(ops->alloc(w->device, w->bytes, 0, &w->c));
    w->taken = MATRICES * w->bytes + plan.scratch_bytes;
    if (plan.scratch_bytes > 0)
        TR_TRY(ops->alloc(w->device, plan.scratch_bytes, 0, &w->call.scratch));
    w->call.state = plan.state;
    w->call.in[0].data = w->a, w->call.in[1].data = w->b, w->call.out[0].data = w->c;
    return bench_work_fill_operands(w, dtype, n * n);
}

static void bench_work_close(bench_work_t *w) {
    const tr_device_ops_t *ops = w->device->ops;
    void *const memory[] = {w->a, w->b, w->c, w->call.scratch};
    for (size_t i = 0; i < TR_COUNT(memory); i++)
        if (memory[i]) ops->free(w->device, memory[i]);
    if (w->pinned) ops->host_free(w->device, w->pinned);
    if (w->stream) ops->stream_destroy(w->device, w->stream);
    tr_free(&w->pageable);
}

static tr_status_t bench_work_time_copies(bench_work_t *w, void *host, bench_copies_t *out) {
    *out = (bench_copies_t){NAN, NAN};
    if (w->device->host_visible) return TR_OK;
    w->host = host;
    TR_TRY(bench_work_time(w, bench_work_copy_to, &out->to_sec));
    return bench_work_time(w, bench_work_copy_from, &out->from_sec);
}

static tr_status_t bench_product_refuse(const char *where, int64_t n, size_t matrix, int count,
                                        size_t has) {
    char need[32], left[32], each[32];
    return TR_FAIL(
        TR_ERR_MEMORY,
        "a product of n = %lld needs %s on device '%s', which has %s:\n"
        "  %d matrices of %s\nUse smaller --sizes, --types bf16 or fp16, or more memory.",
        (long long)n, tr_format_bytes((double)count * (double)matrix, need), where,
        tr_format_bytes((double)has, left), count, tr_format_bytes((double)matrix, each));
}

tr_status_t bench_product_check(const tr_device_t *device, tr_dtype_t dtype, int64_t n) {
    const size_t matrix = (size_t)(n * n) * tr_dtype_bytes(dtype), host = tr_host_memory_bytes();
    if (device->memory_bytes > 0 && MATRICES * matrix > device->memory_bytes)
        return bench_product_refuse(device->ops->name, n, matrix, MATRICES, device->memory_bytes);
    if (!device->host_visible && host > 0 && HOST_MATRICES * matrix > host)
        return bench_product_refuse("cpu", n, matrix, HOST_MATRICES, host);
    return TR_OK;
}

tr_status_t bench_time_product(tr_device_t *device, tr_dtype_t dtype, int64_t n,
                               bench_product_t *out) {
    bench_work_t w = {.device = device};
    tr_status_t status = bench_work_open(&w, dtype, n);
    out->bytes = w.taken;
    if (status == TR_OK) status = bench_work_time(&w, bench_work_multiply, &out->product_sec);
    if (status == TR_OK) status = bench_work_time_copies(&w, w.pinned, &out->pinned);
    if (status == TR_OK) status = bench_work_time_copies(&w, w.pageable, &out->pageable);
    bench_work_close(&w);
    return status;
}

tr_status_t bench_copy_rate(tr_device_t *device, double *out_bytes_per_sec) {
    bench_work_t w = {.device = device, .bytes = COPY_BYTES};
    double sec = NAN;
    tr_status_t status = bench_work_open_memory(&w);
    if (status == TR_OK) status = device->ops->zero(device, w.stream, w.a, w.bytes);
    if (status == TR_OK) status = device->ops->zero(device, w.stream, w.b, w.bytes);
    if (status == TR_OK) status = bench_work_time(&w, bench_work_copy_inside, &sec);
    *out_bytes_per_sec = 2 * (double)COPY_BYTES / sec;
    bench_work_close(&w);
    return status;
}
