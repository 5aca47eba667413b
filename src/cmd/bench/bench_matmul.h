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
    bench_copies_t pinned, pageable; /* by the kind of host memory */
} bench_product_t;

/* C = A B, all (n, n) of `dtype`. Medians of several blocks of runs, after two runs that do not
 * count. */
tr_status_t bench_time_product(tr_device_t *device, tr_dtype_t dtype, int64_t n,
                               bench_product_t *out);
/* Bytes per second, read and written, of copies of 256 MiB within the device. */
tr_status_t bench_copy_rate(tr_device_t *device, double *out_bytes_per_sec);

#endif
