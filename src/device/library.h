/*
 * A device library: a backend in a shared object, loaded at run time, so that one build of the
 * program runs with and without it.
 *
 * It is linked with src/device/library/services.c, not with libtrainer.a: services.c forwards
 * TR_FAIL, the log, the clock and counted memory to the program. The library exports one function,
 * tr_backend_entry. Its devices may have their own collectives engine.
 */
#ifndef TR_DEVICE_LIBRARY_H
#define TR_DEVICE_LIBRARY_H

#include "device/collectives.h"
#include "trainer/log.h"

/* Version of the tables and kernels.def: the program and the library must have the same. */
#define TR_BACKEND_ABI (15 << 16 | TR_K_COUNT)

/* Functions of the program for a library; valid until the process ends. Messages are formatted. */
typedef struct {
    tr_status_t (*error_record)(tr_status_t code, const char *file, int line, const char *func,
                                const char *message);
    tr_status_t (*error_frame)(tr_status_t code, const char *file, int line, const char *func);
    const tr_error_t *(*error_last)(void);
    tr_status_t (*error_set)(const tr_error_t *error);
    void (*error_clear)(void);
    bool (*log_shows)(tr_log_level_t level);
    void (*log_write)(tr_log_level_t level, bool all_ranks, const char *line);
    double (*clock_sec)(void);
    tr_status_t (*alloc)(size_t bytes, const char *what, void *out_pointer);
    tr_status_t (*alloc_aligned)(size_t bytes, size_t align, const char *what, void *out_pointer);
    tr_status_t (*realloc)(void *pointer, size_t bytes, const char *what);
    void (*free)(void *pointer);
    tr_status_t (*vec_reserve)(void *data, size_t *capacity, size_t need, size_t elem_bytes);
    tr_status_t (*backend_find)(const char *name, const tr_backend_t **out);
} tr_host_services_t;

/* The exported function of a library. Returns its own TR_BACKEND_ABI. If that equals `abi`, it
 * keeps `host` and sets *out. */
typedef int (*tr_backend_entry_fn)(int abi, const tr_host_services_t *host,
                                   const tr_backend_t **out);
#define TR_BACKEND_ENTRY "tr_backend_entry"
/* Defined by the library: its backend, which services.c returns. */
extern const tr_backend_t tr_library_backend;

/* Loads `path` and returns its backend, which stays loaded. TR_ERR_CONFIG: it cannot be loaded or
 * has another ABI; the message says how to rebuild it. Not collective. */
tr_status_t tr_library_load(const char *path, const tr_backend_t **out);

#endif
