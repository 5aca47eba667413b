/* The registry of devices and the kernels' names. */
#include "trainer/device.h"
#include "trainer/str.h"
#include <string.h>

#define DEVICE(name) extern const tr_device_ops_t tr_device_##name;
#include "devices.def"
#undef DEVICE

static const tr_device_ops_t *const device_list[] = {
#define DEVICE(name) &tr_device_##name,
#include "devices.def"
#undef DEVICE
};
enum { DEVICE_COUNT = sizeof device_list / sizeof *device_list };

static const char *const kernel_names[TR_K_COUNT] = {
#define KERNEL(name, required) #name,
#include "trainer/kernels.def"
#undef KERNEL
};

static const bool kernel_required[TR_K_COUNT] = {
#define KERNEL(name, required) required,
#include "trainer/kernels.def"
#undef KERNEL
};

const char *tr_kernel_name(tr_kernel_id_t id) {
    return (unsigned)id < TR_K_COUNT ? kernel_names[id] : "NONE";
}

const tr_device_ops_t *const *tr_device_list(size_t *out_count) {
    *out_count = DEVICE_COUNT;
    return device_list;
}

static const char *reason_unavailable(const tr_device_ops_t *ops) {
    return ops->unavailable ? ops->unavailable() : NULL;
}

static tr_status_t fail_unknown(const char *name) {
    tr_str_t names = {0};
    for (int i = 0; i < DEVICE_COUNT; i++) tr_str_printf(&names, "%s%s", i ? ", " : "", device_list[i]->name);
    tr_status_t status =
        TR_FAIL(TR_ERR_CONFIG, "device: there is no '%s' in this build; choose one of auto, %s", name,
                names.text ? names.text : "cpu");
    tr_str_free(&names);
    return status;
}

static tr_status_t find(const char *name, const tr_device_ops_t **out) {
    bool any = strcmp(name, "auto") == 0;
    for (int i = 0; i < DEVICE_COUNT; i++) {
        const char *reason = reason_unavailable(device_list[i]);
        if (any && reason) continue;
        if (!any && strcmp(name, device_list[i]->name) != 0) continue;
        if (reason)
            return TR_FAIL(TR_ERR_CONFIG,
                           "device: '%s' cannot be used on this machine: %s; use device = auto", name,
                           reason);
        *out = device_list[i];
        return TR_OK;
    }
    return fail_unknown(name);
}

/* Says all the gaps at once: a device under construction shows what is left to write. */
tr_status_t tr_device_check_kernels(const tr_device_ops_t *ops) {
    tr_str_t gaps = {0};
    for (int i = 0; i < TR_K_COUNT; i++)
        if (kernel_required[i] && !ops->kernels[i].run) tr_str_printf(&gaps, " %s", kernel_names[i]);
    tr_status_t status = TR_OK;
    if (gaps.text)
        status = TR_FAIL(TR_ERR_INTERNAL, "device '%s' lacks required kernels:%s", ops->name, gaps.text);
    tr_str_free(&gaps);
    return status;
}

tr_status_t tr_device_open(const char *name, const tr_device_params_t *params, tr_device_t **out) {
    static const tr_device_params_t defaults = {.index = -1};
    const tr_device_ops_t *ops = NULL;
    *out = NULL;
    TR_TRY(find(name, &ops));
    TR_TRY(ops->open(params ? params : &defaults, out));
    return TR_OK;
}

void tr_device_close(tr_device_t **device) {
    if (!device || !*device) return;
    (*device)->ops->close(*device);
    *device = NULL;
}
