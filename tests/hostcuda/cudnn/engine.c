/*
 * Which engines there are for a program. The refusals are those that the real library (9.19, H200)
 * was seen to make; the table in tests/hostcuda/README.md lists them. An engine that is not
 * deterministic gives other last bits each time.
 */
#include "dnn_int.h"
#include <stdlib.h>
#include <string.h>

#define CONV_FWD    CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR
#define CONV_DATA   CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR
#define CONV_FILTER CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR
#define POINTWISE   CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR

static int count_kind(const program_t *p, int kind) {
    int n = 0;
    for (int i = 0; i < p->ops; i++) n += p->op[i].kind == kind;
    return n;
}
static const op_t *find_kind(const program_t *p, int kind) {
    for (int i = 0; i < p->ops; i++)
        if (p->op[i].kind == kind) return &p->op[i];
    return NULL;
}
/* The first convolution, of whatever direction. */
static const op_t *convolution(const program_t *p) {
    const op_t *op = find_kind(p, CONV_FWD);
    if (!op) op = find_kind(p, CONV_DATA);
    return op ? op : find_kind(p, CONV_FILTER);
}

static cudnnStatus_t check_filter_gradient(const program_t *p, const op_t *op) {
    const tensor_t *x = &p->tensor[op->in[0]], *dw = &p->tensor[op->out[0]];
    if (x->type == CUDNN_DATA_FLOAT || dw->type == x->type) return CUDNN_STATUS_SUCCESS;
    if (!dw->is_virtual)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
                          "filter gradient of 16-bit data directly into another type");
    if (x->dim[1] % 8)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_SHAPE,
                          "filter gradient through a virtual tensor with %lld channels",
                          (long long)x->dim[1]);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check_convolution(const program_t *p, const op_t *op) {
    const int type = p->tensor[op->in[0]].type;
    const tensor_t *out = &p->tensor[op->out[0]];
    if (type != CUDNN_DATA_FLOAT && type != CUDNN_DATA_BFLOAT16 && type != CUDNN_DATA_HALF)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE, "convolution of type %d", type);
    if (p->tensor[op->in[1]].type != type)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
                          "operands of a convolution differ in type");
    if (op->compute != CUDNN_DATA_FLOAT)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
                          "a convolution computes in f32 here");
    if (op->kind == CONV_FILTER) {
        const cudnnStatus_t status = check_filter_gradient(p, op);
        const bool prologue = p->tensor[op->in[0]].is_virtual || p->tensor[op->in[1]].is_virtual;
        if (!status && prologue && type == CUDNN_DATA_BFLOAT16)
            return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN,
                              "bf16: operations before a filter gradient");
        return status;
    }
    if (!out->is_virtual && out->type != type)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_DATA_TYPE,
                          "a convolution writes type %d from type %d", out->type, type);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t check(const program_t *p) {
    const int convolutions =
        count_kind(p, CONV_FWD) + count_kind(p, CONV_DATA) + count_kind(p, CONV_FILTER);
    if (convolutions > 1)
        return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED_GRAPH_PATTERN, "%d convolutions in one graph",
                          convolutions);
    return convolutions ? check_convolution(p, convolution(p)) : CUDNN_STATUS_SUCCESS;
}

/* True if this is forward, bias of the output's type and relu at most: what needs no compilation
 * in bf16. */
static bool is_plain_epilogue(const program_t *p, const op_t *conv) {
    const int type = p->tensor[conv->in[0]].type;
    if (p->ops == 1) return true;
    if (conv->kind != CONV_FWD) return false;
    for (int i = 0; i < p->tensors; i++)
        if (!p->tensor[i].is_virtual && p->tensor[i].type != type) return false;
    for (int i = 0; i < p->ops; i++)
        if (p->op[i].kind != CONV_FWD && p->op[i].kind != POINTWISE) return false;
    return true;
}

static int64_t bytes_of(const tensor_t *t) {
    int64_t n = 1;
    for (int i = 0; i < t->nd; i++) n *= t->dim[i];
    return n * 4;
}

cudnnStatus_t dnn_engines(const program_t *p, engine_t out[MAX_ENGINES], int *count) {
    const cudnnStatus_t status = check(p);
    const op_t *conv = convolution(p);
    int n = 0;
    *count = 0;
    if (status) return status;
    if (!conv) { /* attention, for which there is no engine before compute capability 8.0 */
        const char *model = getenv("HOSTCUDA_MODEL");
        if (!model || strcmp(model, "T4") != 0)
            out[n++] = (engine_t){.index = 8, .deterministic = true, .compiled = true};
        *count = n;
        return CUDNN_STATUS_SUCCESS;
    }
    const int type = p->tensor[conv->in[0]].type;
    const bool backward = conv->kind != CONV_FWD,
               compiled = !(is_plain_epilogue(p, conv) || type == CUDNN_DATA_HALF);
    /* The stem with few channels asks for room to pad. */
    const int64_t padded = p->tensor[conv->in[0]].dim[1] < 8 && type != CUDNN_DATA_FLOAT
                               ? bytes_of(&p->tensor[conv->in[0]])
                               : 0;
    const int64_t split =
        conv->kind == CONV_FILTER ? 4 * bytes_of(&p->tensor[conv->out[0]]) : padded;
    if (compiled) {
        out[n++] = (engine_t){.index = 10,
                              .tensor_core = true,
                              .deterministic = true,
                              .compiled = true,
                              .workspace = split};
        out[n++] =
            (engine_t){.index = 11, .tensor_core = true, .deterministic = true, .compiled = true};
    } else if (type == CUDNN_DATA_FLOAT) {
        if (backward)
            out[n++] =
                (engine_t){.index = 28, .tensor_core = true, .tf32 = true, .workspace = split};
        out[n++] = (engine_t){.index = 29,
                              .tensor_core = true,
                              .tf32 = true,
                              .deterministic = true,
                              .workspace = split};
        if (backward) out[n++] = (engine_t){.index = 3, .workspace = 0};
        out[n++] = (engine_t){.index = 1, .deterministic = true};
        out[n++] = (engine_t){.index = 0, .deterministic = true};
    } else {
        if (backward) out[n++] = (engine_t){.index = 34, .tensor_core = true, .workspace = split};
        out[n++] =
            (engine_t){.index = 38, .tensor_core = true, .deterministic = true, .workspace = split};
        out[n++] = (engine_t){
            .index = 39, .tensor_core = true, .deterministic = true, .workspace = padded};
    }
    *count = n;
    return CUDNN_STATUS_SUCCESS;
}

static bool is_for_blackwell(const desc_t *engine) {
    static const char member[] = "\"deviceVer\": ";
    const desc_t *model = dnn_child(engine, CUDNN_ATTR_ENGINE_DEVICEPROP, 0);
    const attribute_t *json =
        model ? dnn_find(model, CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION) : NULL;
    struct cudaDeviceProp device;
    if (!json) return !cudaGetDeviceProperties(&device, 0) && device.major == 10;
    const char *at = memmem(json->data, (size_t)json->count, member, strlen(member));
    return at && atoi(at + strlen(member)) / 100 == 10;
}

/* The gradient of attention has five products. */
static bool is_attention_gradient(const program_t *p) {
    int products = 0;
    for (int i = 0; i < p->ops; i++)
        products += p->op[i].kind == CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR;
    return products == 5;
}

cudnnStatus_t dnn_engine_of(const desc_t *desc, engine_t *out) {
    engine_t engines[MAX_ENGINES];
    int count;
    const desc_t *graph = dnn_child(desc, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0);
    const int64_t index = dnn_int(desc, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0, -1);
    const cudnnStatus_t status = dnn_engines(graph->program, engines, &count);
    if (status) return status;
    for (int i = 0; i < count; i++) {
        if (engines[i].index != index) continue;
        *out = engines[i];
        return CUDNN_STATUS_SUCCESS;
    }
    if (index == KNOB_ENGINE && is_attention_gradient(graph->program) && is_for_blackwell(desc)) {
        *out = (engine_t){
            .index = KNOB_ENGINE, .tensor_core = true, .deterministic = true, .compiled = true};
        return CUDNN_STATUS_SUCCESS;
    }
    return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "no engine %lld for this graph",
                      (long long)index);
}

/* The one engine with knobs has them as cuDNN 9.19 has them. */
cudnnStatus_t dnn_check_config(const desc_t *config) {
    const desc_t *engine = dnn_child(config, CUDNN_ATTR_ENGINECFG_ENGINE, 0);
    const int64_t index = dnn_int(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, 0, -1);
    const attribute_t *knobs = dnn_find(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES);
    for (int i = 0; knobs && i < knobs->count; i++) {
        const desc_t *knob = dnn_child(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, i);
        const int64_t type = dnn_int(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, 0, -1),
                      value = dnn_int(knob, CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, 0, -1);
        if (index != KNOB_ENGINE || !((type == CUDNN_KNOB_TYPE_KERNEL_CFG && value == 31) ||
                                      (type == CUDNN_KNOB_TYPE_STAGES && value == 2)))
            return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "engine %lld: no knob %lld with %lld",
                              (long long)index, (long long)type, (long long)value);
    }
    return CUDNN_STATUS_SUCCESS;
}

/* Fills configurations that the program made. Mode fallback offers what needs no workspace. */
cudnnStatus_t dnn_results(desc_t *heuristics, int64_t room, int64_t *count, void **configs) {
    engine_t engines[MAX_ENGINES];
    int n, given = 0;
    desc_t *graph = dnn_child(heuristics, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, 0);
    const bool fallback =
        dnn_int(heuristics, CUDNN_ATTR_ENGINEHEUR_MODE, 0, 0) == CUDNN_HEUR_MODE_FALLBACK;
    const cudnnStatus_t status = dnn_engines(graph->program, engines, &n);
    if (status) return status;
    for (int i = 0; i < n; i++) {
        if (fallback && engines[i].workspace) continue;
        if (configs && given < room) {
            desc_t *config = configs[given], *engine = dnn_new(CUDNN_BACKEND_ENGINE_DESCRIPTOR);
            if (!config || config->type != CUDNN_BACKEND_ENGINECFG_DESCRIPTOR || config->final)
                return dnn_drop(engine),
                       dnn_refuse(CUDNN_STATUS_BAD_PARAM,
                                  "results need new engine configurations to fill");
            dnn_store(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                      &graph);
            dnn_store(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                      &engines[i].index);
            engine->final = config->final = true;
            dnn_store(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                      &engine);
            dnn_drop(engine);
        }
        given++;
    }
    if (count) *count = configs && given > room ? room : given;
    return CUDNN_STATUS_SUCCESS;
}
