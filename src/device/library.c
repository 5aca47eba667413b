/* Loads a device library: the program's side. */
#include "device/library.h"
#include "base/clock.h"
#include "base/mem.h"
#include <dlfcn.h>

static tr_status_t error_record(tr_status_t code, const char *file, int line, const char *func,
                                const char *message) {
    return tr_error_record(code, file, line, func, "%s", message);
}

static void log_write(tr_log_level_t level, bool all_ranks, const char *line) {
    tr_log_write(level, all_ranks, "%s", line);
}

static const tr_host_services_t services = {
    .error_record = error_record,
    .error_frame = tr_error_frame,
    .error_last = tr_error_last,
    .error_set = tr_error_set,
    .error_clear = tr_error_clear,
    .log_shows = tr_log_shows,
    .log_write = log_write,
    .clock_sec = tr_clock_sec,
    .alloc = tr_alloc,
    .alloc_aligned = tr_alloc_aligned,
    .realloc = tr_realloc,
    .free = tr_free,
    .vec_reserve = tr_vec_reserve_,
    .backend_find = tr_backend_find,
};

/* The library stays loaded, because errors and device tables refer to its memory until the process
 * ends. */
tr_status_t tr_library_load(const char *path, const tr_backend_t **out) {
    *out = NULL;
    void *handle = dlopen(path, RTLD_NOW | RTLD_LOCAL);
    if (!handle) return TR_FAIL(TR_ERR_CONFIG, "cannot load %s: %s", path, dlerror());
    const tr_backend_entry_fn entry = (tr_backend_entry_fn)dlsym(handle, TR_BACKEND_ENTRY);
    if (!entry)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s is not a device library of trainer: it has no function %s", path,
                       TR_BACKEND_ENTRY);
    const int abi = entry(TR_BACKEND_ABI, &services, out);
    if (abi == TR_BACKEND_ABI && *out) return TR_OK;
    *out = NULL;
    return TR_FAIL(
        TR_ERR_CONFIG,
        "%s was built for ABI %d of device libraries, and this program has ABI %d: build both from "
        "the same source (make clean all)",
        path, abi, TR_BACKEND_ABI);
}
