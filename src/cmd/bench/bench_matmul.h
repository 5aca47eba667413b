/* Times of one matrix product on one device. Private to src/cmd. Not collective. */
#ifndef TR_CMD_BENCH_BENCH_MATMUL_H
#define TR_CMD_BENCH_BENCH_MATMUL_H

#include "device/device.h"

enum { BENCH_MATMUL_DEVICES = 2 }; /* cpu, cuda */

/* Seconds to bring both operands to the device and the product back; NAN on a device that works on
 * host memory. */
typedef struct {
    double to_sec, from_sec;
} bench_copies_t;

typedef struct {
    double product_sec;
    size_t bytes;                    /* of the device: three matrices and scratch */
    bench_copies_t pinned, pageable; /* by the kind of host memory */
} bench_product_t;

/* TR_ERR_MEMORY where the matrices of a product of size n are more than the memory of the device,
 * or those that transfers use more than that of the host. Allocates nothing. */
tr_status_t bench_product_check(const tr_device_t *device, tr_dtype_t dtype, int64_t n);
/* C = A B, all (n, n) of `dtype`. Medians of several blocks of runs, after two runs that do not
 * count; one run if it takes longer than 0.3 s. */
tr_status_t bench_time_product(tr_device_t *device, tr_dtype_t dtype, int64_t n,
                               bench_product_t *out);
/* Bytes per second, read and written, of copies of 256 MiB within the device. */
tr_status_t bench_copy_rate(tr_device_t *device, double *out_bytes_per_sec);

#endif
