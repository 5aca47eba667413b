/* Private to cpu_onednn*.c: cpu_onednn_plan.c requests a primitive descriptor with the API of the
 * installed version, cpu_onednn.c creates and runs the primitive. */
#ifndef TR_DEVICE_CPU_CPU_ONEDNN_INT_H
#define TR_DEVICE_CPU_CPU_ONEDNN_INT_H

#include "cpu_onednn.h"
#include <oneapi/dnnl/dnnl.h>

static inline const char *cpu_dnn_status_text(dnnl_status_t status) {
    switch (status) {
    case dnnl_out_of_memory: return "out of memory";
    case dnnl_invalid_arguments: return "invalid arguments";
    case dnnl_unimplemented: return "not implemented";
    case dnnl_runtime_error: return "run-time error";
    default: return "failed";
    }
}

#define DNN_TRY(expr)                                                                              \
    do {                                                                                           \
        dnnl_status_t dnn_status_ = (expr);                                                        \
        if (dnn_status_ != dnnl_success)                                                           \
            return TR_FAIL(dnn_status_ == dnnl_out_of_memory ? TR_ERR_MEMORY : TR_ERR_INTERNAL,    \
                           "oneDNN: %s: %s", #expr, cpu_dnn_status_text(dnn_status_));             \
    } while (0)

#if DNNL_VERSION_MAJOR >= 3
typedef const_dnnl_memory_desc_t layout_ref_t;
typedef struct {
    dnnl_memory_desc_t desc; /* NULL: absent */
} layout_t;

static inline layout_ref_t layout_ref(const layout_t *layout) {
    return layout->desc;
}
#else
typedef const dnnl_memory_desc_t *layout_ref_t;
typedef struct {
    dnnl_memory_desc_t desc; /* ndims 0: absent */
} layout_t;

static inline layout_ref_t layout_ref(const layout_t *layout) {
    return layout->desc.ndims ? &layout->desc : NULL;
}
#endif

/* The arguments of a primitive descriptor, in oneDNN's types. */
typedef struct {
    layout_t own_weights;             /* as stored by the caller */
    layout_t src, weights, bias, dst; /* as passed to the primitive */
    /* of the forward hint, in the type of its input */
    layout_t hint_weights;
    dnnl_dims_t stride, dilation, pad_lo, pad_hi;
    dnnl_primitive_attr_t attr;
} recipe_t;

/* *recipe must be {0}. Call tr_cpu_dnn_recipe_fini also after an error. */
tr_status_t tr_cpu_dnn_recipe_init(const cpu_dnn_desc_t *desc, recipe_t *recipe);
void tr_cpu_dnn_recipe_fini(recipe_t *recipe);
/* dnnl_unimplemented if oneDNN does not support these types on this processor. */
dnnl_status_t tr_cpu_dnn_plan(cpu_dnn_kind_t kind, const recipe_t *recipe, dnnl_engine_t engine,
                              dnnl_primitive_desc_t *out);

#endif
