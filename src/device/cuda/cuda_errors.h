/* Errors of CUDA's libraries: the exit code of each, and whose fault it is. */
#ifndef TR_DEVICE_CUDA_CUDA_ERRORS_H
#define TR_DEVICE_CUDA_CUDA_ERRORS_H

#include "trainer/status.h"
#include <cuda_runtime_api.h>
#include <stdbool.h>

/* The GPU of this process, which messages name. Errors of the runtime do not say it. */
void tr_cuda_errors_gpu(int ordinal, const char *bus_id, const char *uuid);

typedef enum { CUDA_ERRORS_RUNTIME, CUDA_ERRORS_NCCL } cuda_errors_of_t;
/* One row of cuda_errors.def. */
typedef struct {
    cuda_errors_of_t of;
    int number;
    const char *name;
    tr_status_t code;
    bool blames; /* the node of this process */
} cuda_error_t;
/* The row of an error; one of code TR_ERR_INTERNAL for those that have none. */
cuda_error_t tr_cuda_error(cuda_errors_of_t of, int number);
/* What the runtime says now, where another library failed: an error that stays, or the last of this
 * thread. Its row is that of a bug where there is none. */
cuda_error_t tr_cuda_error_now(void);

/* Records an error with the code and the fault of `row`, and with the GPU and the node. Returns the
 * code. */
tr_status_t tr_cuda_error_record(const cuda_error_t *row, const char *file, int line,
                                 const char *func, const char *format, ...)
    __attribute__((format(printf, 5, 6)));
/* As tr_error_record, for a call of a library that works on the GPU: if the hardware of the GPU has
 * failed, that is the error. */
tr_status_t tr_cuda_library_error(tr_status_t code, const char *file, int line, const char *func,
                                  const char *format, ...) __attribute__((format(printf, 5, 6)));

#endif
