/* Private to cuda_dnn*.c: graphs of cuDNN's backend interface. */
#ifndef TR_DEVICE_CUDA_CUDNN_CUDA_DNN_INT_H
#define TR_DEVICE_CUDA_CUDNN_CUDA_DNN_INT_H

#include "cuda_dnn.h"
#include <cudnn.h>

#if CUDNN_VERSION < 91100 /* as later headers have them; older libraries refuse them */
#define CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR       ((cudnnBackendDescriptorType_t)38)
#define CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION ((cudnnBackendAttributeName_t)2702)
#define CUDNN_ATTR_ENGINEHEUR_DEVICEPROP          ((cudnnBackendAttributeName_t)204)
#define CUDNN_ATTR_ENGINE_DEVICEPROP              ((cudnnBackendAttributeName_t)1307)
#define CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP      ((cudnnBackendAttributeName_t)407)
#define CUDNN_KNOB_TYPE_STREAM_K                  ((cudnnBackendKnobType_t)38)
#define CUDNN_KNOB_TYPE_TILE_M                    ((cudnnBackendKnobType_t)40)
#define CUDNN_KNOB_TYPE_TILE_N                    ((cudnnBackendKnobType_t)41)
#endif

/* Addresses of tensors are multiples of this. */
#define CUDA_DNN_ALIGNMENT 16

enum { CUDA_DNN_MAX_DESCRIPTORS = 128, CUDA_DNN_MAX_OPS = 32, CUDA_DNN_MAX_OPERANDS = 16 };

typedef cudnnBackendDescriptor_t desc_t;

/* Descriptors refer to each other, so all of a graph live as long as its plan. A plan that was
 * restored has no graph. */
struct cuda_dnn_plan {
    double timed_sec; /* of the fastest that was timed: INFINITY: none could be; 0: none was */
    desc_t all[CUDA_DNN_MAX_DESCRIPTORS];
    int count, inside; /* tensors inside the graph so far */
    desc_t ops[CUDA_DNN_MAX_OPS];
    int64_t op_count;
    int64_t uid[CUDA_DNN_MAX_OPERANDS];          /* tensors and scalars with an address */
    size_t operand_bytes[CUDA_DNN_MAX_OPERANDS]; /* 0: a scalar */
    int operand_count;
    desc_t plan, config, engine; /* engine NULL where the configuration has its own */
    size_t workspace_limit, workspace_bytes;
    int64_t engine_index;
    bool compiled; /* by cuDNN, at run time */
    bool restored;
    bool bound; /* no plan: workspace_bytes is an upper bound, for cuDNN is too old to plan here */
};

tr_status_t tr_cuda_dnn_check(cudnnStatus_t status, const char *call, const char *file, int line,
                              const char *func);
#define DNN_TRY(call) TR_TRY(tr_cuda_dnn_check((call), #call, __FILE__, __LINE__, __func__))

/* Makes a descriptor that lives as long as the plan. */
tr_status_t tr_cuda_dnn_create(cuda_dnn_plan_t *p, cudnnBackendDescriptorType_t type, desc_t *out);
tr_status_t tr_cuda_dnn_set(desc_t d, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t count, const void *values);
tr_status_t tr_cuda_dnn_set_desc(desc_t d, cudnnBackendAttributeName_t name, desc_t value);
tr_status_t tr_cuda_dnn_finalize(desc_t d);

cudnnDataType_t tr_cuda_dnn_type(tr_dtype_t dtype);
/* A tensor of `n` dimensions, with strides in elements. uid 0: inside the graph, never in memory.
 */
tr_status_t tr_cuda_dnn_tensor(cuda_dnn_plan_t *p, int n, const int64_t *dim, const int64_t *stride,
                               cudnnDataType_t type, int64_t uid, desc_t *out);
/* One f32 number, given at each run. */
tr_status_t tr_cuda_dnn_scalar(cuda_dnn_plan_t *p, int64_t uid, desc_t *out);
/* y = f(x), f(x, b), which ? x : b (BINARY_SELECT), or the index along `axis` (GEN_INDEX, in i32);
 * computed in f32. What a mode does not take is NULL. */
typedef struct {
    cudnnPointwiseMode_t mode;
    desc_t x, b, which, y;
    int64_t axis;
} cuda_dnn_pointwise_t;
tr_status_t tr_cuda_dnn_apply(cuda_dnn_plan_t *p, const cuda_dnn_pointwise_t *f);
/* The same for y = f(x), or f(x, b) where b is not NULL. */
tr_status_t tr_cuda_dnn_pointwise(cuda_dnn_plan_t *p, cudnnPointwiseMode_t mode, desc_t x, desc_t b,
                                  desc_t y);
/* Likewise y = a b; of the last two dimensions, in f32. */
tr_status_t tr_cuda_dnn_matmul(cuda_dnn_plan_t *p, desc_t a, desc_t b, desc_t y);
/* Makes the next operation of the graph. The caller finalizes it. */
tr_status_t tr_cuda_dnn_add(cuda_dnn_plan_t *p, cudnnBackendDescriptorType_t type, desc_t *out);

/* How exact products are. Tensor cores multiply f32 as TF32. */
typedef enum { CUDA_DNN_F32, CUDA_DNN_TF32, CUDA_DNN_HALF } cuda_dnn_math_t;

/* An engine by its number, with settings that differ from its defaults. */
typedef struct {
    int64_t number;
    int knobs;
    struct {
        cudnnBackendKnobType_t type;
        int64_t value;
    } knob[6];
} cuda_dnn_engine_t;

/* `build` appends the operations of `self` with tr_cuda_dnn_add. */
typedef struct {
    const char *key;                /* names all that `build` looks at */
    const cuda_dnn_engine_t *first; /* tried before what the heuristics suggest; NULL: none */
    cuda_dnn_math_t math;
    size_t workspace_limit; /* engines that need more are passed over */
    size_t bound;           /* counted where cuDNN is too old to plan without the GPU */
    tr_status_t (*build)(cuda_dnn_plan_t *p, const void *self);
    const void *self;
} cuda_dnn_graph_t;

/* The stored plan of the graph, or that of the first engine that is deterministic, as exact as
 * `math` says and within the limit: of `first` and the heuristics' suggestions, best first. With
 * `tune` the fastest of the first few, which need not be deterministic where device->any_order.
 * *out is NULL where cuDNN has no engine, which is no error. */
tr_status_t tr_cuda_dnn_make(tr_device_t *device, const cuda_dnn_graph_t *graph,
                             cuda_dnn_plan_t **out);
/* Runs a plan: `count` tensors and scalars by their uid. Addresses of scalars are on the host. */
tr_status_t tr_cuda_dnn_execute(tr_device_t *device, tr_stream_t *stream,
                                const cuda_dnn_plan_t *plan, int64_t count, const int64_t *uid,
                                void *const *address, void *workspace);

#endif
