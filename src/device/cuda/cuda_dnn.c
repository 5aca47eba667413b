/* Graphs of cuDNN: tensors, operations, the choice of an engine, and runs. */
#include "cuda_dnn.h"
#include "trainer/mem.h"
#include <cudnn.h>

/* An engine that needs more is passed over. */
#define WORKSPACE_BYTES ((int64_t)128 << 20)
#define ALIGNMENT       16

enum { UID_X = 1, UID_W, UID_BIAS, UID_Y, UID_INSIDE };
enum { MAX_DESCRIPTORS = 16, MAX_CONFIGS = 64, MAX_NOTES = 32 };

typedef cudnnBackendDescriptor_t desc_t;

/* How exact products are. Tensor cores multiply f32 as TF32. */
typedef enum { MATH_F32, MATH_TF32, MATH_HALF } math_t;

/* Descriptors refer to each other, so all of a graph live as long as its plan. */
struct cuda_dnn_plan {
    desc_t all[MAX_DESCRIPTORS];
    int count, inside;           /* tensors inside the graph so far */
    desc_t plan, config, engine; /* engine NULL where the configuration has its own */
    size_t workspace_bytes;
    bool bias;
};

static tr_status_t check_at(cudnnStatus_t status, const char *call, const char *file, int line,
                            const char *func) {
    char why[512] = "";
    if (status == CUDNN_STATUS_SUCCESS) return TR_OK;
    cudnnGetLastErrorString(why, sizeof why);
    return tr_error_record(TR_ERR_INTERNAL, file, line, func, "cuDNN: %s failed: %s%s%s", call,
                           cudnnGetErrorString(status), *why ? ": " : "", why);
}
#define DNN_TRY(call) TR_TRY(check_at((call), #call, __FILE__, __LINE__, __func__))

static tr_status_t handle_of(tr_device_t *device, cudnnHandle_t *out) {
    cuda_device_t *cuda = cuda_self(device);
    if (!cuda->dnn) DNN_TRY(cudnnCreate(&cuda->dnn));
    *out = cuda->dnn;
    return TR_OK;
}

void tr_cuda_dnn_close(cuda_device_t *cuda) {
    if (cuda->dnn) cudnnDestroy(cuda->dnn);
    cuda->dnn = NULL;
}

/* -- descriptors ------------------------------------------------------------------------------- */

static tr_status_t create(cuda_dnn_plan_t *p, cudnnBackendDescriptorType_t type, desc_t *out) {
    if (p->count == MAX_DESCRIPTORS)
        return TR_FAIL(TR_ERR_INTERNAL, "a cuDNN graph has more than %d descriptors",
                       MAX_DESCRIPTORS);
    DNN_TRY(cudnnBackendCreateDescriptor(type, out));
    p->all[p->count++] = *out;
    return TR_OK;
}

static tr_status_t set(desc_t d, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type,
                       int64_t count, const void *values) {
    DNN_TRY(cudnnBackendSetAttribute(d, name, type, count, values));
    return TR_OK;
}

static tr_status_t set_desc(desc_t d, cudnnBackendAttributeName_t name, desc_t value) {
    return set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

static tr_status_t finalize(desc_t d) {
    DNN_TRY(cudnnBackendFinalize(d));
    return TR_OK;
}

static cudnnDataType_t type_of(tr_dtype_t dtype) {
    return dtype == TR_BF16  ? CUDNN_DATA_BFLOAT16
           : dtype == TR_F16 ? CUDNN_DATA_HALF
                             : CUDNN_DATA_FLOAT;
}

/* An image or filter, channels last. uid 0: inside the graph, never in memory. */
static tr_status_t tensor(cuda_dnn_plan_t *p, const tr_shape_t *shape, tr_dtype_t dtype,
                          int64_t uid, desc_t *out) {
    const int n = shape->ndim;
    const int64_t alignment = ALIGNMENT, id = uid ? uid : UID_INSIDE + p->inside++;
    const bool inside = uid == 0;
    const cudnnDataType_t type = type_of(dtype);
    int64_t dim[TR_MAX_DIMS], stride[TR_MAX_DIMS], step = shape->dim[n - 1];
    dim[0] = shape->dim[0], dim[1] = shape->dim[n - 1], stride[1] = 1;
    for (int i = n - 1; i >= 2; i--) {
        dim[i] = shape->dim[i - 1], stride[i] = step;
        step *= dim[i];
    }
    stride[0] = step;
    TR_TRY(create(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out));
    TR_TRY(set(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    TR_TRY(set(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, n, dim));
    TR_TRY(set(*out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, n, stride));
    TR_TRY(set(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &id));
    TR_TRY(set(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment));
    TR_TRY(set(*out, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside));
    return finalize(*out);
}

static tr_status_t convolution(cuda_dnn_plan_t *p, const tr_conv_attr_t *attr, desc_t *out) {
    const int64_t n = attr->spatial;
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    int64_t lo[3], hi[3], dilation[3], stride[3];
    for (int i = 0; i < attr->spatial; i++) {
        lo[i] = attr->pad_lo[i], hi[i] = attr->pad_hi[i];
        dilation[i] = attr->dilation[i], stride[i] = attr->stride[i];
    }
    TR_TRY(create(p, CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR, out));
    TR_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, CUDNN_TYPE_INT64, 1, &n));
    TR_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    TR_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_CONV_MODE, CUDNN_TYPE_CONVOLUTION_MODE, 1, &mode));
    TR_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_TYPE_INT64, n, lo));
    TR_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, CUDNN_TYPE_INT64, n, hi));
    TR_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_TYPE_INT64, n, dilation));
    TR_TRY(set(*out, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, CUDNN_TYPE_INT64, n, stride));
    return finalize(*out);
}

/* The attributes of one of the three operations. */
typedef struct {
    cudnnBackendDescriptorType_t type;
    cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
} operation_row_t;

static const operation_row_t operation_rows[] = {
    [CUDA_DNN_FORWARD] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_X,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_W,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_Y,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA,
                          CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA},
    [CUDA_DNN_BACKWARD_DATA] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DX,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_W,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_DY,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA,
                                CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA},
    [CUDA_DNN_BACKWARD_WEIGHTS] = {CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_X,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DW,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_DY,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA,
                                   CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA},
};

static tr_status_t operation(cuda_dnn_plan_t *p, const cuda_dnn_conv_t *conv, desc_t x, desc_t w,
                             desc_t y, desc_t *out) {
    const operation_row_t *row = &operation_rows[conv->kind];
    const double one = 1, zero = 0;
    desc_t how;
    TR_TRY(convolution(p, conv->attr, &how));
    TR_TRY(create(p, row->type, out));
    TR_TRY(set_desc(*out, row->conv, how));
    TR_TRY(set_desc(*out, row->x, x));
    TR_TRY(set_desc(*out, row->w, w));
    TR_TRY(set_desc(*out, row->y, y));
    TR_TRY(set(*out, row->alpha, CUDNN_TYPE_DOUBLE, 1, &one));
    TR_TRY(set(*out, row->beta, CUDNN_TYPE_DOUBLE, 1, &zero));
    return finalize(*out);
}

/* y = f(x), or f(x, b) where b is not NULL; computed in f32. */
static tr_status_t pointwise(cuda_dnn_plan_t *p, cudnnPointwiseMode_t mode, desc_t x, desc_t b,
                             desc_t y, desc_t *out) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    desc_t how;
    TR_TRY(create(p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &how));
    TR_TRY(set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &mode));
    TR_TRY(set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    TR_TRY(finalize(how));
    TR_TRY(create(p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, out));
    TR_TRY(set_desc(*out, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how));
    TR_TRY(set_desc(*out, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, x));
    if (b) TR_TRY(set_desc(*out, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, b));
    TR_TRY(set_desc(*out, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, y));
    return finalize(*out);
}

/* -- graphs ------------------------------------------------------------------------------------ */

/* conv, then bias, then relu: what lies between two of them is f32 and stays inside. */
static tr_status_t forward_operations(cuda_dnn_plan_t *p, const cuda_dnn_conv_t *conv, desc_t x,
                                      desc_t w, desc_t (*ops)[3], int64_t *count) {
    desc_t y, next, bias;
    tr_shape_t bias_shape = conv->y;
    for (int i = 0; i < bias_shape.ndim - 1; i++) bias_shape.dim[i] = 1;
    const bool more = conv->bias || conv->relu;
    TR_TRY(tensor(p, &conv->y, more ? TR_F32 : conv->dtype, more ? 0 : UID_Y, &y));
    TR_TRY(operation(p, conv, x, w, y, &(*ops)[(*count)++]));
    if (conv->bias) {
        TR_TRY(tensor(p, &bias_shape, conv->dtype, UID_BIAS, &bias));
        TR_TRY(
            tensor(p, &conv->y, conv->relu ? TR_F32 : conv->dtype, conv->relu ? 0 : UID_Y, &next));
        TR_TRY(pointwise(p, CUDNN_POINTWISE_ADD, y, bias, next, &(*ops)[(*count)++]));
        y = next;
    }
    if (!conv->relu) return TR_OK;
    TR_TRY(tensor(p, &conv->y, conv->dtype, UID_Y, &next));
    return pointwise(p, CUDNN_POINTWISE_RELU_FWD, y, NULL, next, &(*ops)[(*count)++]);
}

/* The filter gradient of bf16 and f16 is f32 only through an identity: the operation itself writes its
 * inputs' type. */
static tr_status_t weights_operations(cuda_dnn_plan_t *p, const cuda_dnn_conv_t *conv, desc_t x,
                                      desc_t y, desc_t (*ops)[3], int64_t *count) {
    desc_t w, inside;
    const bool direct = conv->dtype == TR_F32;
    TR_TRY(tensor(p, &conv->w, TR_F32, UID_W, &w));
    if (direct) return operation(p, conv, x, w, y, &(*ops)[(*count)++]);
    TR_TRY(tensor(p, &conv->w, TR_F32, 0, &inside));
    TR_TRY(operation(p, conv, x, inside, y, &(*ops)[(*count)++]));
    return pointwise(p, CUDNN_POINTWISE_IDENTITY, inside, NULL, w, &(*ops)[(*count)++]);
}

static tr_status_t build_graph(cuda_dnn_plan_t *p, const cuda_dnn_conv_t *conv,
                               cudnnHandle_t handle, desc_t *out) {
    desc_t x, w, y, ops[3];
    int64_t count = 0;
    TR_TRY(tensor(p, &conv->x, conv->dtype, UID_X, &x));
    if (conv->kind == CUDA_DNN_BACKWARD_WEIGHTS) {
        TR_TRY(tensor(p, &conv->y, conv->dtype, UID_Y, &y));
        TR_TRY(weights_operations(p, conv, x, y, &ops, &count));
    } else {
        TR_TRY(tensor(p, &conv->w, conv->dtype, UID_W, &w));
        if (conv->kind == CUDA_DNN_FORWARD) {
            TR_TRY(forward_operations(p, conv, x, w, &ops, &count));
        } else {
            TR_TRY(tensor(p, &conv->y, conv->dtype, UID_Y, &y));
            TR_TRY(operation(p, conv, x, w, y, &ops[count++]));
        }
    }
    TR_TRY(create(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, out));
    TR_TRY(set(*out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1, &handle));
    TR_TRY(set(*out, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR, count, ops));
    return finalize(*out);
}

/* -- engines ----------------------------------------------------------------------------------- */

/* Whether an engine's results are reproducible and as exact as the type says. */
static bool engine_suits(desc_t engine, math_t math) {
    cudnnBackendNumericalNote_t note[MAX_NOTES];
    int64_t count = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &count,
                                 note) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count; i++) {
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) return false;
        if (note[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) return false;
        if (math == MATH_HALF) continue;
        if (note[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && math == MATH_F32) return false;
        if (note[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) return false;
    }
    return true;
}

/* Makes the plan of a configuration. False where the engine does not fit, or declines. */
static bool try_config(cuda_dnn_plan_t *p, desc_t config, cudnnHandle_t handle) {
    desc_t plan = NULL;
    int64_t count = 0, workspace = 0;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    const bool made =
        cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE, CUDNN_TYPE_HANDLE, 1,
                                 &handle) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &config) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                 1, &count, &workspace) == CUDNN_STATUS_SUCCESS;
    if (!made || workspace > WORKSPACE_BYTES) {
        cudnnBackendDestroyDescriptor(plan);
        return false;
    }
    p->plan = plan;
    p->workspace_bytes = (size_t)workspace;
    return true;
}

/* The configuration's engine first: most are refused by its notes, which costs nothing. */
static bool try_heuristic(cuda_dnn_plan_t *p, desc_t config, cudnnHandle_t handle, math_t math) {
    desc_t engine = NULL;
    int64_t count = 0;
    bool suits = false;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &count, &engine) == CUDNN_STATUS_SUCCESS)
        suits = engine_suits(engine, math) && try_config(p, config, handle);
    cudnnBackendDestroyDescriptor(engine);
    return suits;
}

/* Heuristics name configurations, best first. They may name none, which is no error. A plan keeps
 * its own. */
static bool choose_by_heuristic(cuda_dnn_plan_t *p, desc_t graph, cudnnHandle_t handle,
                                cudnnBackendHeurMode_t mode, math_t math) {
    desc_t heuristic = NULL, config[MAX_CONFIGS] = {NULL};
    int64_t found = 0, made = 0, chosen = -1;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    while (made < MAX_CONFIGS &&
           cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[made]) ==
               CUDNN_STATUS_SUCCESS)
        made++;
    if (set_desc(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph) == TR_OK &&
        set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) == TR_OK &&
        cudnnBackendFinalize(heuristic) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &found,
                                 config) == CUDNN_STATUS_SUCCESS)
        for (int64_t i = 0; i < found && i < made && chosen < 0; i++)
            if (try_heuristic(p, config[i], handle, math)) chosen = i;
    for (int64_t i = 0; i < made; i++)
        if (i != chosen) cudnnBackendDestroyDescriptor(config[i]);
    if (chosen >= 0) p->config = config[chosen];
    cudnnBackendDestroyDescriptor(heuristic);
    return chosen >= 0;
}

/* One engine by its number, with its default settings. */
static bool try_engine(cuda_dnn_plan_t *p, desc_t graph, cudnnHandle_t handle, int64_t number,
                       math_t math) {
    desc_t engine = NULL, config = NULL;
    const bool chosen =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) ==
            CUDNN_STATUS_SUCCESS &&
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config) ==
            CUDNN_STATUS_SUCCESS &&
        set_desc(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph) == TR_OK &&
        set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &number) == TR_OK &&
        cudnnBackendFinalize(engine) == CUDNN_STATUS_SUCCESS && engine_suits(engine, math) &&
        set_desc(config, CUDNN_ATTR_ENGINECFG_ENGINE, engine) == TR_OK &&
        cudnnBackendFinalize(config) == CUDNN_STATUS_SUCCESS && try_config(p, config, handle);
    if (chosen) {
        p->engine = engine, p->config = config;
        return true;
    }
    if (config) cudnnBackendDestroyDescriptor(config);
    if (engine) cudnnBackendDestroyDescriptor(engine);
    return false;
}

/* The heuristics pass over deterministic engines for some filter gradients in f32; those are found
 * by number. */
static bool choose_by_number(cuda_dnn_plan_t *p, desc_t graph, cudnnHandle_t handle, math_t math) {
    int64_t count = 0, engines = 0;
    if (cudnnBackendGetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT,
                                 CUDNN_TYPE_INT64, 1, &count, &engines) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = engines - 1; i >= 0; i--)
        if (try_engine(p, graph, handle, i, math)) return true;
    return false;
}

/* -- plans and runs ---------------------------------------------------------------------------- */

static void insert_dim(tr_shape_t *shape) {
    for (int i = shape->ndim++; i > 1; i--) shape->dim[i] = shape->dim[i - 1];
    shape->dim[1] = 1;
}

/* cuDNN has two spatial dimensions or three: a series is an image of height 1. */
static cuda_dnn_conv_t two_dimensional(const cuda_dnn_conv_t *conv, tr_conv_attr_t *attr) {
    cuda_dnn_conv_t c = *conv;
    *attr = *conv->attr;
    c.attr = attr;
    if (attr->spatial != 1) return c;
    attr->spatial = 2;
    attr->kernel[1] = attr->kernel[0], attr->kernel[0] = 1;
    attr->stride[1] = attr->stride[0], attr->stride[0] = 1;
    attr->dilation[1] = attr->dilation[0], attr->dilation[0] = 1;
    attr->pad_lo[1] = attr->pad_lo[0], attr->pad_lo[0] = 0;
    attr->pad_hi[1] = attr->pad_hi[0], attr->pad_hi[0] = 0;
    insert_dim(&c.x), insert_dim(&c.w), insert_dim(&c.y);
    return c;
}

tr_status_t tr_cuda_dnn_plan(tr_device_t *device, const cuda_dnn_conv_t *conv,
                             cuda_dnn_plan_t **out, size_t *out_workspace_bytes) {
    cudnnHandle_t handle = NULL;
    cuda_dnn_plan_t *p = NULL;
    desc_t graph = NULL;
    tr_conv_attr_t attr;
    const cuda_dnn_conv_t images = two_dimensional(conv, &attr);
    const math_t math = conv->dtype != TR_F32 ? MATH_HALF : device->tf32 ? MATH_TF32 : MATH_F32;
    *out = NULL, *out_workspace_bytes = 0;
    TR_TRY(handle_of(device, &handle));
    TR_TRY(tr_alloc(sizeof *p, "a convolution", &p));
    p->bias = conv->bias;
    /* A graph that cuDNN refuses is one that it has no engine for. */
    if (build_graph(p, &images, handle, &graph) == TR_OK &&
        (choose_by_heuristic(p, graph, handle, CUDNN_HEUR_MODE_A, math) ||
         choose_by_heuristic(p, graph, handle, CUDNN_HEUR_MODE_FALLBACK, math) ||
         choose_by_number(p, graph, handle, math))) {
        *out = p;
        *out_workspace_bytes = p->workspace_bytes;
        return TR_OK;
    }
    tr_cuda_dnn_release(&p);
    return TR_OK;
}

static tr_status_t fill_pack(const cuda_dnn_plan_t *plan, const cuda_dnn_data_t *data,
                             void *workspace, desc_t pack) {
    int64_t uid[4] = {UID_X, UID_W, UID_Y, UID_BIAS};
    void *address[4] = {data->x, data->w, data->y, data->bias};
    const int64_t count = plan->bias ? 4 : 3;
    for (int64_t i = 0; i < count; i++)
        if ((uintptr_t)address[i] % ALIGNMENT != 0)
            return TR_FAIL(TR_ERR_INTERNAL,
                           "a convolution's tensor at %p is not aligned to %d bytes", address[i],
                           ALIGNMENT);
    TR_TRY(set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count, address));
    TR_TRY(set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uid));
    TR_TRY(set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1, &workspace));
    return finalize(pack);
}

tr_status_t tr_cuda_dnn_run(tr_device_t *device, tr_stream_t *stream, const cuda_dnn_plan_t *plan,
                            const cuda_dnn_data_t *data, void *workspace) {
    cudnnHandle_t handle = NULL;
    desc_t pack = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(handle_of(device, &handle));
    DNN_TRY(cudnnSetStream(handle, stream->handle));
    DNN_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    TR_TRY_GOTO(fill_pack(plan, data, workspace, pack), done);
    TR_TRY_GOTO(check_at(cudnnBackendExecute(handle, plan->plan, pack), "cudnnBackendExecute",
                         __FILE__, __LINE__, __func__),
                done);
done:
    cudnnBackendDestroyDescriptor(pack);
    return status;
}

void tr_cuda_dnn_release(cuda_dnn_plan_t **plan) {
    cuda_dnn_plan_t *p = *plan;
    if (!p) return;
    if (p->plan) cudnnBackendDestroyDescriptor(p->plan);
    if (p->config) cudnnBackendDestroyDescriptor(p->config);
    if (p->engine) cudnnBackendDestroyDescriptor(p->engine);
    while (p->count > 0) cudnnBackendDestroyDescriptor(p->all[--p->count]);
    tr_free(plan);
}
