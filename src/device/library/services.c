/* The library's side of device/library.h, linked into every device library instead of libtrainer.a.
 * It exports tr_backend_entry and forwards calls of src/base in device code to the program that
 * loaded the library. */
#include "device/library.h"
#include "base/clock.h"
#include "base/mem.h"
#include "base/str.h"
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

static const tr_host_services_t *host;

__attribute__((visibility("default"))) int
tr_backend_entry(int abi, const tr_host_services_t *services, const tr_backend_t **out);
int tr_backend_entry(int abi, const tr_host_services_t *services, const tr_backend_t **out) {
    if (abi != TR_BACKEND_ABI) return TR_BACKEND_ABI;
    host = services;
    *out = &tr_library_backend;
    return TR_BACKEND_ABI;
}

tr_status_t tr_error_record(tr_status_t code, const char *file, int line, const char *func,
                            const char *format, ...) {
    char message[TR_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    tr_vsnprintf(message, sizeof message, format, args);
    va_end(args);
    return host->error_record(code, file, line, func, message);
}

tr_status_t tr_error_frame(tr_status_t code, const char *file, int line, const char *func) {
    return host->error_frame(code, file, line, func);
}

const tr_error_t *tr_error_last(void) {
    return host->error_last();
}

tr_status_t tr_error_set(const tr_error_t *error) {
    return host->error_set(error);
}

void tr_error_clear(void) {
    host->error_clear();
}

bool tr_log_shows(tr_log_level_t level) {
    return host->log_shows(level);
}

void tr_log_write(tr_log_level_t level, bool all_ranks, const char *format, ...) {
    char line[TR_ERROR_MESSAGE_BYTES];
    va_list args;
    va_start(args, format);
    tr_vsnprintf(line, sizeof line, format, args);
    va_end(args);
    host->log_write(level, all_ranks, line);
}

double tr_clock_sec(void) {
    return host->clock_sec();
}

tr_status_t tr_alloc(size_t bytes, const char *what, void *out_pointer) {
    return host->alloc(bytes, what, out_pointer);
}

tr_status_t tr_alloc_aligned(size_t bytes, size_t align, const char *what, void *out_pointer) {
    return host->alloc_aligned(bytes, align, what, out_pointer);
}

tr_status_t tr_realloc(void *pointer, size_t bytes, const char *what) {
    return host->realloc(pointer, bytes, what);
}

void tr_free(void *pointer) {
    host->free(pointer);
}

tr_status_t tr_vec_reserve_(void *data, size_t *capacity, size_t need, size_t elem_bytes) {
    return host->vec_reserve(data, capacity, need, elem_bytes);
}

tr_status_t tr_backend_find(const char *name, const tr_backend_t **out) {
    return host->backend_find(name, out);
}
