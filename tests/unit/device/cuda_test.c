#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <setjmp.h>
#include <cmocka.h>
#include <stdlib.h>
#include <string.h>
#include "cuda_test.h"

tr_device_t *devices[2];
tr_stream_t *streams[2];

void must(tr_status_t status) {
    if (status != TR_OK) fail_msg("%s", tr_error_last()->message);
}

int cuda_test_open(void **state) {
    static const char *const names[] = {[CPU] = "cpu", [CUDA] = "cuda"};
    for (int d = 0; d < 2; d++) {
        const tr_device_params_t params = {.threads = 2};
        if (tr_device_open(names[d], &params, &devices[d]) != TR_OK) return -1;
        must(devices[d]->ops->stream_create(devices[d], "test", TR_PRIORITY_NORMAL, &streams[d]));
    }
    return 0;
}

int cuda_test_close(void **state) {
    for (int d = 0; d < 2; d++) {
        devices[d]->ops->stream_destroy(devices[d], streams[d]);
        tr_device_close(&devices[d]);
    }
    return 0;
}

size_t view_bytes(const tr_view_t *view) {
    return view->shape.ndim < 0
               ? 0
               : (size_t)tr_shape_elems(&view->shape) * tr_dtype_bytes(view->dtype);
}

void *random_values(const tr_view_t *view, uint32_t seed) {
    const size_t bytes = view_bytes(view), elem = tr_dtype_bytes(view->dtype);
    char *host = malloc(bytes + 1);
    for (size_t i = 0; i < bytes; i += elem) {
        seed = seed * 1664525u + 1013904223u;
        const uint64_t bits = view->dtype == TR_BF16  ? 0x3f00u | (seed >> 16 & 0x807fu)
                              : view->dtype == TR_F16 ? 0x3800u | (seed >> 16 & 0x83ffu)
                                                      : 0x3f000000u | (seed & 0x807fffffu);
        memcpy(host + i, &bits, elem);
    }
    return host;
}
