/*
 * The rates that this GPU reaches: products by cuBLASLt, and copies. Sizes grow until one run takes
 * LONG_SEC, so that a launch no longer counts. The rate that training asks for is kept with the
 * plans of cuDNN, by GPU, type and driver.
 */
#include "cuda_plan_store.h"
#include "cuda_product.h"
#include "cuda_tune.h"
#include "base/mem.h"
#include "base/str.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LONG_SEC   1e-3
#define ROUND_SEC  4e-3  /* of one round, which repeats a run */
#define BUDGET_SEC 60e-3 /* of all rounds; the first always counts */
enum { ROUNDS = 5, MOST_REPEATS = 256 };
enum { FIRST_SIZE = 128, LAST_SIZE = 8192 }; /* rows and columns of a product */
#define FIRST_COPY   ((size_t)1 << 20)
#define LAST_COPY    ((size_t)512 << 20)
#define SAMPLE_BYTES ((size_t)1 << 18) /* of random numbers, repeated over the whole memory */

typedef struct {
    tr_device_t *device;
    cuda_timer_t timer;
    tr_status_t (*run)(void *probe, tr_stream_t *stream);
    char *memory;
    cuda_product_plan_t *plan;
    size_t bytes; /* of an operand, or of a copy */
} probe_t;

/* -- timing ------------------------------------------------------------------------------------ */

static tr_status_t cuda_peak_time_runs(probe_t *p, int repeats, double *out_sec) {
    TR_TRY(tr_cuda_timer_run(&p->timer, p->run, p, repeats, out_sec));
    *out_sec = fmax(*out_sec, 1e-9);
    return TR_OK;
}

static int cuda_peak_compare(const void *a, const void *b) {
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The median of some rounds, or one run where that is short and `last` is false. */
static tr_status_t time_size(probe_t *p, bool last, double *out_sec) {
    double round[ROUNDS], sum = 0;
    int rounds = 0;
    TR_TRY(cuda_peak_time_runs(p, 1, out_sec)); /* loads the kernel */
    TR_TRY(cuda_peak_time_runs(p, 1, out_sec));
    if (*out_sec < LONG_SEC && !last) return TR_OK;
    const int repeats = (int)fmin(fmax(ROUND_SEC / *out_sec, 1), MOST_REPEATS);
    while (rounds < ROUNDS && sum < BUDGET_SEC) {
        TR_TRY(cuda_peak_time_runs(p, repeats, &round[rounds]));
        sum += round[rounds++] * repeats;
    }
    qsort(round, (size_t)rounds, sizeof *round, cuda_peak_compare);
    *out_sec = round[rounds / 2];
    return TR_OK;
}

/* -- products ---------------------------------------------------------------------------------- */

/* Fills the first p->bytes of the memory, which are a multiple of the sample, with random numbers in
 * [0.5, 1) with a random sign. Zeros would be multiplied faster: they take less power. */
static tr_status_t fill_operand(const probe_t *p, tr_dtype_t dtype) {
    const tr_device_ops_t *ops = p->device->ops;
    const size_t elem = tr_dtype_bytes(dtype),
                 sample = p->bytes < SAMPLE_BYTES ? p->bytes : SAMPLE_BYTES;
    uint32_t state = 1;
    char *host = NULL;
    TR_TRY(tr_alloc(sample, "the probe of a GPU", &host));
    for (size_t i = 0; i < sample; i += elem) {
        state = state * 1664525u + 1013904223u;
        const uint32_t bits = dtype == TR_BF16  ? 0x3f00u | (state >> 16 & 0x807fu)
                              : dtype == TR_F16 ? 0x3800u | (state >> 16 & 0x83ffu)
                                                : 0x3f000000u | (state & 0x807fffffu);
        memcpy(host + i, &bits, elem); /* little-endian */
    }
    tr_status_t status =
        ops->copy(p->device, p->timer.stream, p->memory, host, sample, TR_COPY_TO_DEVICE);
    for (size_t done = sample; done < p->bytes && status == TR_OK; done *= 2)
        status = ops->copy(p->device, p->timer.stream, p->memory + done, p->memory, done,
                           TR_COPY_ON_DEVICE);
    if (status == TR_OK) status = ops->stream_sync(p->device, p->timer.stream);
    tr_free(&host);
    return status;
}

/* C = A A^T: operand, result, workspace */
static tr_status_t run_product(void *probe, tr_stream_t *stream) {
    const probe_t *p = probe;
    return tr_cuda_product_run(p->device, stream, p->plan, p->memory, p->memory, NULL,
                               p->memory + p->bytes, p->memory + 2 * p->bytes);
}

static tr_status_t time_product(probe_t *p, tr_dtype_t dtype, int64_t n, double *out_sec) {
    const cuda_product_t product = {
        .in = dtype, .out = dtype, .trans_b = true, .m = n, .n = n, .k = n, .batch = 1, .alpha = 1};
    void *memory = NULL;
    size_t workspace = 0;
    tr_status_t status = TR_OK;
    TR_TRY(tr_cuda_product_plan(p->device, &product, &p->plan, &workspace));
    p->run = run_product;
    p->bytes = (size_t)(n * n) * tr_dtype_bytes(dtype);
    TR_TRY_GOTO(p->device->ops->alloc(p->device, 2 * p->bytes + workspace, 0, &memory), done);
    p->memory = memory;
    TR_TRY_GOTO(fill_operand(p, dtype), done);
    TR_TRY_GOTO(time_size(p, n == LAST_SIZE, out_sec), done);
done:
    if (memory) p->device->ops->free(p->device, memory);
    tr_cuda_product_release(&p->plan);
    return status;
}

/* If there is not enough memory, the largest size that fits counts. *out_whole: there was enough.
 * */
static tr_status_t measure_products(probe_t *p, tr_dtype_t dtype, double *out_flops,
                                    bool *out_whole) {
    double sec = 0;
    *out_flops = 0, *out_whole = false;
    for (int64_t n = FIRST_SIZE; n <= LAST_SIZE && sec < LONG_SEC; n *= n < 2048 ? 4 : 2) {
        const tr_status_t status = time_product(p, dtype, n, &sec);
        if (status == TR_ERR_MEMORY && *out_flops > 0) return tr_error_clear(), TR_OK;
        TR_TRY(status);
        *out_flops = 2 * (double)n * (double)n * (double)n / sec;
    }
    return *out_whole = true, TR_OK;
}

/* -- copies ------------------------------------------------------------------------------------ */

static tr_status_t run_copy(void *probe, tr_stream_t *stream) {
    const probe_t *p = probe;
    return p->device->ops->copy(p->device, stream, p->memory + p->bytes, p->memory, p->bytes,
                                TR_COPY_ON_DEVICE);
}

static tr_status_t time_copy(probe_t *p, size_t bytes, double *out_sec) {
    void *memory = NULL;
    p->run = run_copy;
    p->bytes = bytes;
    TR_TRY(p->device->ops->alloc(p->device, 2 * bytes, 0, &memory));
    p->memory = memory;
    tr_status_t status = p->device->ops->zero(p->device, p->timer.stream, memory, 2 * bytes);
    if (status == TR_OK) status = time_size(p, bytes == LAST_COPY, out_sec);
    p->device->ops->free(p->device, memory);
    return status;
}

static tr_status_t measure_copies(probe_t *p, double *out_bytes) {
    double sec = 0;
    *out_bytes = 0;
    for (size_t bytes = FIRST_COPY; bytes <= LAST_COPY && sec < LONG_SEC; bytes *= 8) {
        const tr_status_t status = time_copy(p, bytes, &sec);
        if (status == TR_ERR_MEMORY && *out_bytes > 0) return tr_error_clear(), TR_OK;
        TR_TRY(status);
        *out_bytes = 2 * (double)bytes / sec; /* read and written */
    }
    return TR_OK;
}

/* -- the entry of the device's table ----------------------------------------------------------- */

static tr_status_t cuda_peak_measure(tr_device_t *device, tr_dtype_t dtype, double *out_flops,
                                     double *out_bytes, bool *out_whole) {
    probe_t p = {.device = device};
    tr_status_t status = tr_cuda_timer_open(device, &p.timer);
    if (status == TR_OK) status = measure_products(&p, dtype, out_flops, out_whole);
    if (status == TR_OK && out_bytes) status = measure_copies(&p, out_bytes);
    tr_cuda_timer_close(&p.timer);
    return status;
}

/* Not in the device's store, whose plans all ranks share: each rank has its own rate. */
static tr_status_t measure_once(tr_device_t *device, cuda_plan_store_t *store, tr_dtype_t dtype,
                                double *out_flops) {
    char key[400], text[64];
    int driver = 0;
    bool whole = false;
    CUDA_TRY(cudaDriverGetVersion(&driver));
    tr_snprintf(key, sizeof key, "of %s: %s, driver %d",
                dtype == TR_F32 && device->tf32 ? "tf32" : tr_dtype_name(dtype),
                device->description, driver);
    const char *kept = tr_cuda_plan_store_find(store, key);
    if (kept && (*out_flops = tr_strtod(kept, NULL)) > 0) return TR_OK;
    TR_TRY(cuda_peak_measure(device, dtype, out_flops, NULL, &whole));
    tr_snprintf(text, sizeof text, "%.17g", *out_flops);
    return whole ? tr_cuda_plan_store_add(store, key, text, true) : TR_OK;
}

/* A caller that asks for bytes/s, too, reports on this GPU at this time: nothing is kept. */
tr_status_t tr_cuda_measure_peak(tr_device_t *device, tr_dtype_t dtype, double *out_flops,
                                 double *out_bytes) {
    const char *folder = tr_cuda_plan_store_folder(cuda_self(device)->plans);
    cuda_plan_store_t *store = NULL;
    if (dtype != TR_F32 && !tr_dtype_is_half(dtype))
        return TR_FAIL(TR_ERR_CONFIG, "device cuda: there are no products of %s",
                       tr_dtype_name(dtype));
    TR_TRY(tr_cuda_enter(device));
    if (out_bytes) return cuda_peak_measure(device, dtype, out_flops, out_bytes, &(bool){false});
    TR_TRY(tr_cuda_plan_store_create("peak", folder, &store));
    const tr_status_t status = measure_once(device, store, dtype, out_flops);
    tr_cuda_plan_store_destroy(&store);
    return status;
}
