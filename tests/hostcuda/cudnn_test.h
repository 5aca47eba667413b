/* Building and running cuDNN graphs in tests. Inline, for not every test uses all. */
#ifndef HOSTCUDA_CUDNN_TEST_H
#define HOSTCUDA_CUDNN_TEST_H

#include "hostcuda_test.h"
#include "numeric.h"
#include <cudnn.h>

typedef cudnnBackendDescriptor_t D;
#define SET(d, attr, type, n, p)                                                                   \
    OK(cudnnBackendSetAttribute(d, CUDNN_ATTR_##attr, CUDNN_TYPE_##type, n, p))
#define BF CUDNN_DATA_BFLOAT16
#define FL CUDNN_DATA_FLOAT
#define HF CUDNN_DATA_HALF

static cudnnHandle_t handle;
static int64_t next_uid = 1;

static inline D create(cudnnBackendDescriptorType_t type) {
    D d;
    OK(cudnnBackendCreateDescriptor(type, &d));
    return d;
}

/* -- tensors: dense on the host in the order of dimensions, NHWC or NCHW on the device --------- */
typedef struct {
    cudnnDataType_t type;
    int nd;
    int64_t dim[6], stride[6], count, uid;
    double *host;
    void *device;
    D desc;
    bool is_virtual;
} tensor_t;

static inline num_type_t num_of(cudnnDataType_t type) {
    return type == FL ? NUM_F32 : type == BF ? NUM_BF16 : NUM_F16;
}

static inline D describe(const tensor_t *t, int64_t alignment) {
    D d = create(CUDNN_BACKEND_TENSOR_DESCRIPTOR);
    SET(d, TENSOR_DATA_TYPE, DATA_TYPE, 1, &t->type);
    SET(d, TENSOR_DIMENSIONS, INT64, t->nd, t->dim);
    SET(d, TENSOR_STRIDES, INT64, t->nd, t->stride);
    SET(d, TENSOR_UNIQUE_ID, INT64, 1, &t->uid);
    SET(d, TENSOR_BYTE_ALIGNMENT, INT64, 1, &alignment);
    SET(d, TENSOR_IS_VIRTUAL, BOOLEAN, 1, &t->is_virtual);
    OK(cudnnBackendFinalize(d));
    return d;
}

static inline int64_t place(const tensor_t *t, int64_t dense) {
    int64_t at = 0;
    for (int i = t->nd - 1; i >= 0; i--) at += dense % t->dim[i] * t->stride[i], dense /= t->dim[i];
    return at;
}
static inline void upload(tensor_t *t) {
    char *bytes = calloc((size_t)t->count, 4);
    for (int64_t i = 0; i < t->count; i++) {
        num_store(num_of(t->type), bytes, place(t, i), t->host[i]);
        t->host[i] = num_load(num_of(t->type), bytes, place(t, i));
    }
    t->device = to_device(bytes, (size_t)t->count * num_size(num_of(t->type)));
    free(bytes);
}
static inline void download(tensor_t *t) {
    char *bytes = calloc((size_t)t->count, 4);
    to_host(bytes, t->device, (size_t)t->count * num_size(num_of(t->type)));
    for (int64_t i = 0; i < t->count; i++)
        t->host[i] = num_load(num_of(t->type), bytes, place(t, i));
    free(bytes);
}
static inline tensor_t tensor(cudnnDataType_t type, int nd, const int64_t *dim, bool nhwc,
                              bool is_virtual) {
    static unsigned seed = 9;
    tensor_t t = {.type = type, .nd = nd, .count = 1, .uid = next_uid++, .is_virtual = is_virtual};
    int64_t step = nhwc ? dim[1] : 1;
    for (int i = 0; i < nd; i++) t.count *= t.dim[i] = dim[i];
    for (int i = nd - 1; i >= 0; i--) {
        if (nhwc && i == 1) continue;
        t.stride[i] = step;
        step *= dim[i];
    }
    if (nhwc) t.stride[1] = 1;
    t.host = malloc((size_t)t.count * sizeof *t.host);
    for (int64_t i = 0; i < t.count; i++) t.host[i] = draw(&seed);
    if (!is_virtual) upload(&t);
    t.desc = describe(&t, 16);
    return t;
}

/* -- operations -------------------------------------------------------------------------------- */
typedef struct {
    int spatial;
    int64_t n, c, k, groups, in[3], kernel[3], step[3], pre[3], post[3], dilation[3];
} shape_t;

static inline D convolution(const shape_t *s) {
    D d = create(CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR);
    const int64_t spatial = s->spatial;
    const cudnnDataType_t compute = FL;
    const cudnnConvolutionMode_t mode = CUDNN_CROSS_CORRELATION;
    SET(d, CONVOLUTION_SPATIAL_DIMS, INT64, 1, &spatial);
    SET(d, CONVOLUTION_COMP_TYPE, DATA_TYPE, 1, &compute);
    SET(d, CONVOLUTION_CONV_MODE, CONVOLUTION_MODE, 1, &mode);
    SET(d, CONVOLUTION_PRE_PADDINGS, INT64, spatial, s->pre);
    SET(d, CONVOLUTION_POST_PADDINGS, INT64, spatial, s->post);
    SET(d, CONVOLUTION_DILATIONS, INT64, spatial, s->dilation);
    SET(d, CONVOLUTION_FILTER_STRIDES, INT64, spatial, s->step);
    OK(cudnnBackendFinalize(d));
    return d;
}
enum { FORWARD, DATA, FILTER };
static inline D convolve(int direction, const shape_t *s, D x, D w, D y) {
    static const struct {
        cudnnBackendDescriptorType_t type;
        cudnnBackendAttributeName_t conv, x, w, y, alpha, beta;
    } names[] = {
#define CONV(type, name, X, W, Y)                                                                  \
    {CUDNN_BACKEND_OPERATION_CONVOLUTION_##type##_DESCRIPTOR,                                      \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_CONV_DESC,                                          \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##X,                                                \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##W,                                                \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_##Y,                                                \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_ALPHA,                                              \
     CUDNN_ATTR_OPERATION_CONVOLUTION_##name##_BETA}
        CONV(FORWARD, FORWARD, X, W, Y), CONV(BACKWARD_DATA, BWD_DATA, DX, W, DY),
        CONV(BACKWARD_FILTER, BWD_FILTER, X, DW, DY)};
    D d = create(names[direction].type), conv = convolution(s);
    const float one = 1, zero = 0;
    OK(cudnnBackendSetAttribute(d, names[direction].conv, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &conv));
    OK(cudnnBackendSetAttribute(d, names[direction].x, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &x));
    OK(cudnnBackendSetAttribute(d, names[direction].w, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &w));
    OK(cudnnBackendSetAttribute(d, names[direction].y, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &y));
    OK(cudnnBackendSetAttribute(d, names[direction].alpha, CUDNN_TYPE_FLOAT, 1, &one));
    OK(cudnnBackendSetAttribute(d, names[direction].beta, CUDNN_TYPE_FLOAT, 1, &zero));
    OK(cudnnBackendFinalize(d));
    OK(cudnnBackendDestroyDescriptor(conv)); /* the operation holds it */
    return d;
}
/* Backward where dy is given: x, dy -> y. */
static inline D pointwise(cudnnPointwiseMode_t mode, D x, D b, D y, D dy) {
    D p = create(CUDNN_BACKEND_POINTWISE_DESCRIPTOR),
      d = create(CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR);
    const cudnnDataType_t compute = FL;
    SET(p, POINTWISE_MODE, POINTWISE_MODE, 1, &mode);
    SET(p, POINTWISE_MATH_PREC, DATA_TYPE, 1, &compute);
    OK(cudnnBackendFinalize(p));
    SET(d, OPERATION_POINTWISE_PW_DESCRIPTOR, BACKEND_DESCRIPTOR, 1, &p);
    SET(d, OPERATION_POINTWISE_XDESC, BACKEND_DESCRIPTOR, 1, &x);
    if (b) SET(d, OPERATION_POINTWISE_BDESC, BACKEND_DESCRIPTOR, 1, &b);
    if (dy) SET(d, OPERATION_POINTWISE_DYDESC, BACKEND_DESCRIPTOR, 1, &dy);
    if (dy)
        SET(d, OPERATION_POINTWISE_DXDESC, BACKEND_DESCRIPTOR, 1, &y);
    else
        SET(d, OPERATION_POINTWISE_YDESC, BACKEND_DESCRIPTOR, 1, &y);
    OK(cudnnBackendFinalize(d));
    return d;
}

/* -- plans ------------------------------------------------------------------------------------- */
static inline D graph_of(int count, const D *ops) {
    D graph = create(CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR);
    SET(graph, OPERATIONGRAPH_OPS, BACKEND_DESCRIPTOR, count, ops);
    SET(graph, OPERATIONGRAPH_HANDLE, HANDLE, 1, &handle);
    OK(cudnnBackendFinalize(graph));
    return graph;
}
/* The status of heuristics; *found configurations. */
static inline cudnnStatus_t configurations(D graph, int64_t *found, D configs[8]) {
    D heuristics = create(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR);
    const cudnnBackendHeurMode_t mode = CUDNN_HEUR_MODE_A;
    SET(heuristics, ENGINEHEUR_OPERATION_GRAPH, BACKEND_DESCRIPTOR, 1, &graph);
    SET(heuristics, ENGINEHEUR_MODE, HEUR_MODE, 1, &mode);
    const cudnnStatus_t status = cudnnBackendFinalize(heuristics);
    if (status) return status;
    for (int i = 0; i < 8; i++) configs[i] = create(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR);
    return cudnnBackendGetAttribute(heuristics, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                    CUDNN_TYPE_BACKEND_DESCRIPTOR, 8, found, configs);
}
static inline bool has_note(D config, cudnnBackendNumericalNote_t note) {
    D engine = create(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
    cudnnBackendNumericalNote_t notes[8];
    int64_t n = 0;
    OK(cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                1, &n, &engine));
    OK(cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE, CUDNN_TYPE_NUMERICAL_NOTE,
                                8, &n, notes));
    for (int64_t i = 0; i < n; i++)
        if (notes[i] == note) return true;
    return false;
}
/* The first deterministic engine that does not round inputs to TF32. */
static inline D plan_of(D graph) {
    D configs[8], plan = create(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR);
    int64_t found = 0;
    OK(configurations(graph, &found, configs));
    for (int64_t i = 0; i < found; i++) {
        if (has_note(configs[i], CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC) ||
            has_note(configs[i], CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS))
            continue;
        SET(plan, EXECUTION_PLAN_ENGINE_CONFIG, BACKEND_DESCRIPTOR, 1, &configs[i]);
        SET(plan, EXECUTION_PLAN_HANDLE, HANDLE, 1, &handle);
        OK(cudnnBackendFinalize(plan));
        return plan;
    }
    fail_msg("no deterministic engine");
    return NULL;
}
static inline cudnnStatus_t execute(D plan, int count, tensor_t *const tensors[]) {
    D pack = create(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR);
    int64_t uids[16], workspace_bytes = 0, n;
    void *pointers[16];
    for (int i = 0; i < count; i++) uids[i] = tensors[i]->uid, pointers[i] = tensors[i]->device;
    OK(cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64, 1,
                                &n, &workspace_bytes));
    void *workspace = device_memory((size_t)workspace_bytes + 1);
    SET(pack, VARIANT_PACK_UNIQUE_IDS, INT64, count, uids);
    SET(pack, VARIANT_PACK_DATA_POINTERS, VOID_PTR, count, pointers);
    SET(pack, VARIANT_PACK_WORKSPACE, VOID_PTR, 1, &workspace);
    OK(cudnnBackendFinalize(pack));
    const cudnnStatus_t status = cudnnBackendExecute(handle, plan, pack);
    cudaDeviceSynchronize();
    return status;
}

#endif
