/* What a device has prepared for equal calls, kept until its graph is planned. */
#include "device/plan_cache.h"
#include "base/mem.h"
#include <string.h>

/* Everything that `prepare` may read. There is no padding of undefined content except in the
 * attributes. */
typedef struct {
    int32_t kernel, winograd, n_in, n_out, adds, alone;
    struct {
        int64_t dtype, ndim, dim[TR_MAX_DIMS];
    } view[TR_KERNEL_MAX_IN + TR_KERNEL_MAX_OUT];
} plan_key_t;

typedef struct {
    plan_key_t key;
    /* a copy: a plan may refer to it after the graph that requested it is destroyed */
    void *attr;
    size_t attr_bytes;
    tr_plan_t plan;
} entry_t;

struct tr_plan_cache {
    TR_VEC(entry_t *) entries;
};

static void add_views(plan_key_t *key, int at, const tr_view_t *view, int count) {
    for (int i = 0; i < count; i++) {
        key->view[at + i].dtype = view[i].dtype;
        key->view[at + i].ndim = view[i].shape.ndim;
        for (int d = 0; d < view[i].shape.ndim; d++)
            key->view[at + i].dim[d] = view[i].shape.dim[d];
    }
}

static plan_key_t plan_cache_key_of(const tr_device_t *device, tr_kernel_id_t kernel,
                                    const tr_kernel_call_t *call) {
    plan_key_t key;
    memset(&key, 0, sizeof key);
    key.kernel = kernel;
    key.winograd = device->winograd;
    key.alone = device->alone;
    key.n_in = call->n_in;
    key.n_out = call->n_out;
    key.adds = (int32_t)call->adds;
    add_views(&key, 0, call->in, call->n_in);
    add_views(&key, TR_KERNEL_MAX_IN, call->out, call->n_out);
    return key;
}

static const entry_t *plan_find(const tr_plan_cache_t *cache, const plan_key_t *key,
                                const void *attr, size_t attr_bytes) {
    for (size_t i = 0; i < cache->entries.count; i++) {
        const entry_t *e = cache->entries.data[i];
        if (memcmp(&e->key, key, sizeof *key) == 0 && e->attr_bytes == attr_bytes &&
            (attr_bytes == 0 || memcmp(e->attr, attr, attr_bytes) == 0))
            return e;
    }
    return NULL;
}

static void plan_cache_free_entry(entry_t *e) {
    tr_free(&e->attr);
    tr_free(&e);
}

static tr_status_t plan_add(tr_device_t *device, const plan_key_t *key,
                            const tr_kernel_call_t *call, size_t attr_bytes, tr_plan_t *out) {
    const tr_kernel_t *kernel = &device->ops->kernels[key->kernel];
    tr_kernel_call_t planned = *call;
    entry_t *e = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(sizeof *e, "a kernel's plan", &e));
    e->key = *key;
    e->attr_bytes = attr_bytes;
    if (attr_bytes > 0) {
        TR_TRY_GOTO(tr_alloc(attr_bytes, "a kernel's plan", &e->attr), fail);
        planned.attr = memcpy(e->attr, call->attr, attr_bytes);
    }
    TR_TRY_GOTO(tr_vec_push(&device->plans->entries, e), fail);
    status = kernel->prepare(device, &planned, &e->plan.state, &e->plan.scratch_bytes);
    *out = e->plan;
    if (status == TR_OK) return TR_OK;
    device->plans->entries.count--;
fail:
    plan_cache_free_entry(e);
    return status;
}

tr_status_t tr_plan_get(tr_device_t *device, tr_kernel_id_t kernel, const tr_kernel_call_t *call,
                        size_t attr_bytes, tr_plan_t *out) {
    *out = (tr_plan_t){0};
    if (!device->ops->kernels[kernel].prepare) return TR_OK;
    const plan_key_t key = plan_cache_key_of(device, kernel, call);
    const entry_t *e = plan_find(device->plans, &key, call->attr, attr_bytes);
    if (!e) return plan_add(device, &key, call, attr_bytes, out);
    *out = e->plan;
    return TR_OK;
}

tr_status_t tr_plan_workspace(tr_device_t *device, tr_kernel_id_t kernel,
                              const tr_kernel_call_t *call, size_t attr_bytes,
                              size_t *out_scratch_bytes) {
    const plan_key_t key = plan_cache_key_of(device, kernel, call);
    const entry_t *e = plan_find(device->plans, &key, call->attr, attr_bytes);
    tr_plan_t plan = {0};
    if (!e && device->ops->kernels[kernel].workspace)
        return device->ops->kernels[kernel].workspace(device, call, out_scratch_bytes);
    if (e)
        plan = e->plan;
    else
        TR_TRY(tr_plan_get(device, kernel, call, attr_bytes, &plan));
    *out_scratch_bytes = plan.scratch_bytes;
    return TR_OK;
}

tr_status_t tr_plan_cache_create(tr_plan_cache_t **out) {
    return tr_alloc(sizeof **out, "the plans of kernels", out);
}

void tr_plan_cache_clear(tr_device_t *device) {
    tr_plan_cache_t *cache = device->plans;
    for (size_t i = 0; i < cache->entries.count; i++) {
        entry_t *e = cache->entries.data[i];
        const tr_kernel_t *kernel = &device->ops->kernels[e->key.kernel];
        if (e->plan.state && kernel->release) kernel->release(device, e->plan.state);
        plan_cache_free_entry(e);
    }
    tr_vec_free(&cache->entries);
}

void tr_plan_cache_destroy(tr_device_t *device) {
    if (!device->plans) return;
    tr_plan_cache_clear(device);
    tr_free(&device->plans);
}
