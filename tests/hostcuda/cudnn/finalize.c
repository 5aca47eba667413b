/* Finalizing: required attributes, shapes, and the program of an operation graph. */
#include "dnn_int.h"
#include <stdlib.h>

static cudnnStatus_t check_required(const desc_t *desc) {
    size_t count;
    const row_t *rows = dnn_rows(&count);
    for (size_t i = 0; i < count; i++)
        if (rows[i].owner == desc->type && rows[i].least && !dnn_find(desc, rows[i].name))
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "%s is not set", rows[i].text);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_tensor(const desc_t *desc) {
    const attribute_t *dims = dnn_find(desc, CUDNN_ATTR_TENSOR_DIMENSIONS),
                      *strides = dnn_find(desc, CUDNN_ATTR_TENSOR_STRIDES);
    if (dims->count != strides->count)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "dimensions and strides differ in number");
    for (int i = 0; i < dims->count; i++)
        if (dnn_int(desc, CUDNN_ATTR_TENSOR_DIMENSIONS, i, 0) < 1)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "dimension %d of a tensor is below 1", i);
    const int64_t alignment = dnn_int(desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0, 0);
    if (alignment < 1 || alignment & (alignment - 1))
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "alignment %lld", (long long)alignment);
    if (dnn_num((int)dnn_int(desc, CUDNN_ATTR_TENSOR_DATA_TYPE, 0, -1)) == NUM_COUNT)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "data type is not in the fake");
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_convolution(const desc_t *desc) {
    const int64_t spatial = dnn_int(desc, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0, 0);
    const cudnnBackendAttributeName_t lists[] = {
        CUDNN_ATTR_CONVOLUTION_DILATIONS, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES,
        CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS};
    for (size_t i = 0; i < COUNT(lists); i++)
        if (dnn_find(desc, lists[i])->count != spatial)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "%s does not have %lld elements",
                              dnn_row(desc->type, lists[i])->text, (long long)spatial);
    if (dnn_int(desc, CUDNN_ATTR_CONVOLUTION_CONV_MODE, 0, 0) != CUDNN_CROSS_CORRELATION)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "the fake has cross-correlation only");
    return CUDNN_STATUS_SUCCESS;
}

/* -- an operation graph becomes a program ------------------------------------------------------ */
static tensor_t tensor_of(const desc_t *desc) {
    tensor_t t = {.uid = dnn_int(desc, CUDNN_ATTR_TENSOR_UNIQUE_ID, 0, 0),
                  .alignment = dnn_int(desc, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, 0, 1),
                  .type = (int32_t)dnn_int(desc, CUDNN_ATTR_TENSOR_DATA_TYPE, 0, 0),
                  .nd = (int32_t)dnn_find(desc, CUDNN_ATTR_TENSOR_DIMENSIONS)->count,
                  .is_virtual = dnn_int(desc, CUDNN_ATTR_TENSOR_IS_VIRTUAL, 0, 0),
                  .by_value = dnn_int(desc, CUDNN_ATTR_TENSOR_IS_BY_VALUE, 0, 0)};
    for (int i = 0; i < t.nd; i++) {
        t.dim[i] = dnn_int(desc, CUDNN_ATTR_TENSOR_DIMENSIONS, i, 1);
        t.stride[i] = dnn_int(desc, CUDNN_ATTR_TENSOR_STRIDES, i, 1);
    }
    return t;
}

static cudnnStatus_t add_tensor(program_t *p, const desc_t *desc, int32_t *out) {
    const tensor_t t = tensor_of(desc);
    for (int i = 0; i < p->tensors; i++) {
        if (p->tensor[i].uid != t.uid) continue;
        *out = i;
        if (!memcmp(&p->tensor[i], &t, sizeof t)) return CUDNN_STATUS_SUCCESS;
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_DUPLICATED_ENTRIES,
                          "two different tensors have the id %lld", (long long)t.uid);
    }
    if (p->tensors == MAX_TENSORS)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "more than %d tensors", MAX_TENSORS);
    p->tensor[ *out = p->tensors++] = t;
    return CUDNN_STATUS_SUCCESS;
}

static void add_convolution(op_t *op, const desc_t *conv) {
    op->spatial = (int32_t)dnn_int(conv, CUDNN_ATTR_CONVOLUTION_SPATIAL_DIMS, 0, 0);
    op->compute = (int32_t)dnn_int(conv, CUDNN_ATTR_CONVOLUTION_COMP_TYPE, 0, 0);
    for (int i = 0; i < op->spatial; i++) {
        op->pre[i] = dnn_int(conv, CUDNN_ATTR_CONVOLUTION_PRE_PADDINGS, i, 0);
        op->post[i] = dnn_int(conv, CUDNN_ATTR_CONVOLUTION_POST_PADDINGS, i, 0);
        op->step[i] = dnn_int(conv, CUDNN_ATTR_CONVOLUTION_FILTER_STRIDES, i, 1);
        op->dilation[i] = dnn_int(conv, CUDNN_ATTR_CONVOLUTION_DILATIONS, i, 1);
    }
}
static void add_pointwise(op_t *op, const desc_t *desc, const desc_t *pointwise) {
    op->mode = (int32_t)dnn_int(pointwise, CUDNN_ATTR_POINTWISE_MODE, 0, 0);
    op->compute = (int32_t)dnn_int(pointwise, CUDNN_ATTR_POINTWISE_MATH_PREC, 0, 0);
    op->axis = (int32_t)dnn_int(pointwise, CUDNN_ATTR_POINTWISE_AXIS, 0, -1);
    op->alpha = dnn_double(desc, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA1, 1);
    op->beta = dnn_double(desc, CUDNN_ATTR_OPERATION_POINTWISE_ALPHA2, 1);
    op->lower_clip = dnn_double(pointwise, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP, 0);
    op->upper_clip = dnn_double(pointwise, CUDNN_ATTR_POINTWISE_RELU_UPPER_CLIP, 1e300);
    op->lower_slope = dnn_double(pointwise, CUDNN_ATTR_POINTWISE_RELU_LOWER_CLIP_SLOPE, 0);
    op->elu_alpha = dnn_double(pointwise, CUDNN_ATTR_POINTWISE_ELU_ALPHA, 1);
    op->softplus_beta = dnn_double(pointwise, CUDNN_ATTR_POINTWISE_SOFTPLUS_BETA, 1);
    op->swish_beta = dnn_double(pointwise, CUDNN_ATTR_POINTWISE_SWISH_BETA, 1);
}

/* What an operation has besides operands. */
static void add_settings(op_t *op, const desc_t *d) {
    switch (d->type) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
        add_convolution(op, dnn_child(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_CONV_DESC, 0));
        op->alpha = dnn_double(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_ALPHA, 1);
        op->beta = dnn_double(d, CUDNN_ATTR_OPERATION_CONVOLUTION_FORWARD_BETA, 0);
        break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
        add_convolution(op, dnn_child(d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_CONV_DESC, 0));
        op->alpha = dnn_double(d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_ALPHA, 1);
        op->beta = dnn_double(d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_DATA_BETA, 0);
        break;
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR:
        add_convolution(op, dnn_child(d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_CONV_DESC, 0));
        op->alpha = dnn_double(d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_ALPHA, 1);
        op->beta = dnn_double(d, CUDNN_ATTR_OPERATION_CONVOLUTION_BWD_FILTER_BETA, 0);
        break;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR:
        add_pointwise(op, d, dnn_child(d, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, 0));
        break;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR:
        op->mode = (int32_t)dnn_int(dnn_child(d, CUDNN_ATTR_OPERATION_REDUCTION_DESC, 0),
                                    CUDNN_ATTR_REDUCTION_OPERATOR, 0, 0);
        break;
    default: break;
    }
}

static cudnnStatus_t add_op(program_t *p, const desc_t *desc) {
    size_t count;
    const row_t *rows = dnn_rows(&count);
    op_t *op = &p->op[p->ops];
    *op = (op_t){.kind = (int32_t)desc->type, .alpha = 1};
    for (int i = 0; i < MAX_SLOTS; i++) op->in[i] = op->out[i] = -1;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].owner != desc->type || !rows[i].slot) continue;
        const desc_t *tensor = dnn_child(desc, rows[i].name, 0);
        int32_t *slot = rows[i].slot > 0 ? &op->in[rows[i].slot - 1] : &op->out[-rows[i].slot - 1];
        const cudnnStatus_t status = tensor ? add_tensor(p, tensor, slot) : CUDNN_STATUS_SUCCESS;
        if (status) return status;
    }
    add_settings(op, desc);
    p->ops++;
    return dnn_check_op(p, op);
}

static bool makes(const op_t *op, int tensor) {
    for (int i = 0; i < MAX_SLOTS; i++)
        if (op->out[i] == tensor) return true;
    return false;
}
static int maker_of(const program_t *p, int tensor) {
    for (int i = 0; i < p->ops; i++)
        if (makes(&p->op[i], tensor)) return i;
    return -1;
}

/* Sorts operations so that each comes after those that make its inputs. */
static cudnnStatus_t sort(program_t *p) {
    program_t sorted = *p;
    bool done[MAX_OPS] = {false};
    sorted.ops = 0;
    for (int round = 0; round < p->ops && sorted.ops < p->ops; round++)
        for (int i = 0; i < p->ops; i++) {
            bool ready = !done[i];
            for (int k = 0; k < MAX_SLOTS && ready; k++) {
                const int maker = p->op[i].in[k] < 0 ? -1 : maker_of(p, p->op[i].in[k]);
                ready = maker < 0 || maker == i || done[maker];
            }
            if (!ready) continue;
            sorted.op[sorted.ops++] = p->op[i];
            done[i] = true;
        }
    if (sorted.ops < p->ops)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "the operations form a circle");
    *p = sorted;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_virtual(const program_t *p) {
    for (int t = 0; t < p->tensors; t++) {
        int makers = 0;
        for (int i = 0; i < p->ops; i++) makers += makes(&p->op[i], t);
        if (makers > 1)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "tensor %lld is made by %d operations",
                              (long long)p->tensor[t].uid, makers);
        if (p->tensor[t].is_virtual && !makers)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM,
                              "tensor %lld is virtual, and no operation makes it",
                              (long long)p->tensor[t].uid);
    }
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t finalize_operation(const desc_t *desc) {
    program_t *alone = calloc(1, sizeof *alone);
    const cudnnStatus_t status = add_op(alone, desc);
    free(alone);
    return status;
}
static cudnnStatus_t finalize_graph(desc_t *desc) {
    free(desc->program);
    program_t *p = desc->program = calloc(1, sizeof *p);
    const int64_t ops = dnn_find(desc, CUDNN_ATTR_OPERATIONGRAPH_OPS)->count;
    cudnnStatus_t status = CUDNN_STATUS_SUCCESS;
    for (int i = 0; i < ops && !status; i++)
        status = add_op(p, dnn_child(desc, CUDNN_ATTR_OPERATIONGRAPH_OPS, i));
    if (!status) status = check_virtual(p);
    return status ? status : sort(p);
}

/* -- the rest ---------------------------------------------------------------------------------- */
static cudnnStatus_t finalize_device(const desc_t *desc) {
    static const char *const members[] = {
        "deviceName",   "deviceVer", "multiProcessorCount", "maxSharedMemoryPerBlockOptin",
        "regsPerBlock", "warpSize",  "totalGlobalMem",      "l2CacheSize"};
    const attribute_t *json = dnn_find(desc, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION);
    if (!json) return CUDNN_STATUS_SUCCESS;
    for (size_t i = 0; i < COUNT(members); i++)
        if (!memmem(json->data, (size_t)json->count, members[i], strlen(members[i])))
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "device properties lack %s", members[i]);
    return CUDNN_STATUS_SUCCESS;
}
static cudnnStatus_t finalize_heuristics(const desc_t *desc) {
    engine_t engines[MAX_ENGINES];
    int count;
    const desc_t *graph = dnn_child(desc, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 0);
    if (!dnn_find(graph, CUDNN_ATTR_OPERATIONGRAPH_HANDLE) &&
        !dnn_find(desc, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP))
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM,
                          "neither the graph has a handle nor the heuristics device properties");
    return dnn_engines(graph->program, engines, &count);
}
static cudnnStatus_t finalize_engine(const desc_t *desc) {
    engine_t engine;
    return dnn_engine_of(desc, &engine);
}
static cudnnStatus_t finalize_pack(const desc_t *desc) {
    if (dnn_find(desc, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS)->count ==
        dnn_find(desc, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->count)
        return CUDNN_STATUS_SUCCESS;
    return dnn_refuse(CUDNN_STATUS_BAD_PARAM,
                      "a variant pack with more ids than pointers, or fewer");
}

cudnnStatus_t dnn_finalize(desc_t *desc) {
    const cudnnStatus_t status = check_required(desc);
    if (status) return status;
    switch (desc->type) {
    case CUDNN_BACKEND_TENSOR_DESCRIPTOR: return finalize_tensor(desc);
    case CUDNN_BACKEND_CONVOLUTION_DESCRIPTOR: return finalize_convolution(desc);
    case CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR: return finalize_graph(desc);
    case CUDNN_BACKEND_DEVICEPROP_DESCRIPTOR: return finalize_device(desc);
    case CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR: return finalize_heuristics(desc);
    case CUDNN_BACKEND_ENGINE_DESCRIPTOR: return finalize_engine(desc);
    case CUDNN_BACKEND_ENGINECFG_DESCRIPTOR: return dnn_check_config(desc);
    case CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR: return dnn_finalize_plan(desc);
    case CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR: return finalize_pack(desc);
    default: return dnn_is_operation(desc->type) ? finalize_operation(desc) : CUDNN_STATUS_SUCCESS;
    }
}
