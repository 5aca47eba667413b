/* Errors of CUDA's libraries by the table cuda_errors.def, with the GPU and the node. */
#include "cuda_errors.h"
#include "base/host.h"
#include "base/str.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static const cuda_error_t table[] = {
#define CUDA_ERROR(number, name, code, blames, meaning)                                            \
    {CUDA_ERRORS_RUNTIME, number, #name, code, blames},
#define NCCL_ERROR(number, name, code, blames, meaning)                                            \
    {CUDA_ERRORS_NCCL, number, #name, code, blames},
#include "cuda_errors.def"
#undef CUDA_ERROR
#undef NCCL_ERROR
};

static char gpu[128]; /* "": none is open */

void tr_cuda_errors_gpu(int ordinal, const char *bus_id, const char *uuid) {
    snprintf(gpu, sizeof gpu, "GPU %d (%s, %s)", ordinal, bus_id, uuid);
}

cuda_error_t tr_cuda_error(cuda_errors_of_t of, int number) {
    for (size_t i = 0; i < sizeof table / sizeof *table; i++)
        if (table[i].of == of && table[i].number == number) return table[i];
    return (cuda_error_t){.of = of, .number = number, .name = "", .code = TR_ERR_INTERNAL};
}

cuda_error_t tr_cuda_error_now(void) {
    size_t available = 0, total = 0;
    cudaError_t error = cudaSuccess;
    if (*gpu) error = cudaMemGetInfo(&available, &total); /* else only plans are made: no fault */
    if (*gpu && error == cudaSuccess) error = cudaPeekAtLastError();
    return tr_cuda_error(CUDA_ERRORS_RUNTIME, (int)error);
}

static tr_status_t record_at_gpu(const cuda_error_t *row, const char *file, int line,
                                 const char *func, const char *what) {
    tr_error_record(row->code, file, line, func, "%s on %s of node %s", what, *gpu ? gpu : "a GPU",
                    tr_host_name());
    if (row->code != TR_ERR_RETRY) return row->code;
    tr_error_t error = *tr_error_last();
    snprintf(error.fault, sizeof error.fault, "%s", row->name);
    if (row->blames) snprintf(error.node, sizeof error.node, "%s", tr_host_name());
    return tr_error_set(&error);
}

tr_status_t tr_cuda_error_record(const cuda_error_t *row, const char *file, int line,
                                 const char *func, const char *format, ...) {
    char what[1024];
    va_list args;
    va_start(args, format);
    tr_vsnprintf(what, sizeof what, format, args);
    va_end(args);
    return record_at_gpu(row, file, line, func, what);
}

tr_status_t tr_cuda_library_error(tr_status_t code, const char *file, int line, const char *func,
                                  const char *format, ...) {
    char what[1024];
    const cuda_error_t row = tr_cuda_error_now();
    va_list args;
    va_start(args, format);
    const int used = tr_vsnprintf(what, sizeof what, format, args);
    va_end(args);
    if (!row.blames) return tr_error_record(code, file, line, func, "%s", what);
    if (used >= 0 && (size_t)used < sizeof what)
        snprintf(what + used, sizeof what - (size_t)used, ": %s", row.name);
    return record_at_gpu(&row, file, line, func, what);
}
