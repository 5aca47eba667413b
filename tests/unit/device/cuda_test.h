/* For tests of the kernels of device cuda. */
#ifndef CUDA_TEST_H
#define CUDA_TEST_H

#include "device/device.h"

/* Fails the running test with the last error. */
void must(tr_status_t status);

/* cpu and cuda, each with a stream: between cuda_test_open and cuda_test_close. */
enum { CPU, CUDA };
extern tr_device_t *devices[2];
extern tr_stream_t *streams[2];
int cuda_test_open(void **state);
int cuda_test_close(void **state);

/* Bytes of a view's content; 0 if it is absent. */
size_t view_bytes(const tr_view_t *view);
/* Random numbers of the view's type, f32, bf16 or f16, in host memory: magnitudes in [0.5, 1). The
 * caller frees them. */
void *random_values(const tr_view_t *view, uint32_t seed);

#endif
