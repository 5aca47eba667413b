/* The facts about kernels, from their rows. */
#include "device/device.h"
#include "base/str.h"

#define IN_PLACE(o, i) UINT64_C(1) << (8 * o + i)
static const tr_kernel_facts_t kernel_facts[TR_K_COUNT] = {
#define KERNEL(id, required, what, cpu, cuda, ...)                                                 \
    [TR_K_##id] = {.name = #id, .is_required = required, .kind = TR_KERNEL_##what, __VA_ARGS__},
#include "device/kernels.def"
#undef KERNEL
};

const tr_kernel_facts_t *tr_kernel_facts(tr_kernel_id_t id) {
    return &kernel_facts[id];
}

const char *tr_kernel_name(tr_kernel_id_t id) {
    return (unsigned)id < TR_K_COUNT ? kernel_facts[id].name : "NONE";
}

/* Lists all missing kernels at once, for the developer of a device. */
tr_status_t tr_device_check_kernels(const tr_device_ops_t *ops) {
    tr_str_t gaps = {0};
    for (int i = 0; i < TR_K_COUNT; i++)
        if (kernel_facts[i].is_required && !ops->kernels[i].run)
            tr_str_printf(&gaps, " %s", kernel_facts[i].name);
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
