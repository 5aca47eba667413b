/* The registry of backends. */
#include "device/plan_cache.h"
#include "base/str.h"
#include <string.h>

#define DEVICE(name) extern const tr_backend_t tr_backend_##name;
#include "devices.def"
#undef DEVICE

static const tr_backend_t *const backends[] = {
#define DEVICE(name) &tr_backend_##name,
#include "devices.def"
#undef DEVICE
};
enum { BACKEND_COUNT = sizeof backends / sizeof *backends };

const tr_backend_t *const *tr_backend_list(size_t *out_count) {
    *out_count = BACKEND_COUNT;
    return backends;
}

static tr_status_t backend_fail_unknown(const char *name) {
    tr_str_t names = {0};
    for (int i = 0; i < BACKEND_COUNT; i++)
        tr_str_printf(&names, "%s%s", i ? ", " : "", backends[i]->name);
    tr_status_t status =
        TR_FAIL(TR_ERR_CONFIG, "device: unknown device '%s' in this build; choose one of auto, %s",
                name, names.text ? names.text : "cpu");
    tr_str_free(&names);
    return status;
}

tr_status_t tr_backend_find(const char *name, const tr_backend_t **out) {
    const bool any = strcmp(name, "auto") == 0;
    for (int i = 0; i < BACKEND_COUNT; i++) {
        if (!any && strcmp(name, backends[i]->name) != 0) continue;
        const char *reason = backends[i]->unavailable ? backends[i]->unavailable() : NULL;
        if (any && reason) continue;
        if (reason)
            return TR_FAIL(TR_ERR_CONFIG,
                           "device: '%s' cannot be used on this machine: %s; start it on one where "
                           "it can, or set "
                           "device = cpu",
                           name, reason);
        *out = backends[i];
        return TR_OK;
    }
    return backend_fail_unknown(name);
}

tr_status_t tr_device_open(const char *name, const tr_device_params_t *params, tr_device_t **out) {
    static const tr_device_params_t defaults = {0};
    const tr_backend_t *backend = NULL;
    *out = NULL;
    if (params && params->model)
        backend = &tr_backend_cuda; /* which may be without a GPU */
    else
        TR_TRY(tr_backend_find(name, &backend));
    TR_TRY(backend->open(params ? params : &defaults, out));
    tr_status_t status = tr_plan_cache_create(&(*out)->plans);
    if (status != TR_OK) tr_device_close(out);
    return status;
}

void tr_device_close(tr_device_t **device) {
    if (!device || !*device) return;
    tr_plan_cache_destroy(*device);
    (*device)->ops->close(*device);
    *device = NULL;
}
