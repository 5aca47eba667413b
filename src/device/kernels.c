/* The names of the kernels, and which of them are required. */
#include "device/device.h"
#include "base/str.h"

static const char *const kernel_names[TR_K_COUNT] = {
#define KERNEL(name, ...) #name,
#include "device/kernels.def"
#undef KERNEL
};

static const bool kernel_required[TR_K_COUNT] = {
#define KERNEL(name, required, ...) required,
#include "device/kernels.def"
#undef KERNEL
};

const char *tr_kernel_name(tr_kernel_id_t id) {
    return (unsigned)id < TR_K_COUNT ? kernel_names[id] : "NONE";
}

/* Lists all missing kernels at once, for the developer of a device. */
tr_status_t tr_device_check_kernels(const tr_device_ops_t *ops) {
    tr_str_t gaps = {0};
    for (int i = 0; i < TR_K_COUNT; i++)
        if (kernel_required[i] && !ops->kernels[i].run)
            tr_str_printf(&gaps, " %s", kernel_names[i]);
    tr_status_t status = TR_OK;
    if (gaps.text)
        status =
            TR_FAIL(TR_ERR_INTERNAL, "device '%s' lacks required kernels:%s", ops->name, gaps.text);
    tr_str_free(&gaps);
    return status;
}

bool tr_device_has(const tr_device_t *device, tr_kernel_id_t kernel) {
    return device->ops->kernels[kernel].run != NULL;
}
