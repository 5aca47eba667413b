/* Graphs of cuDNN: descriptors, the choice of an engine, plans and runs. */
#include "cuda_dnn_int.h"
#include "device/cuda/cuda_errors.h"
#include "device/cuda/cuda_model.h"
#include "device/cuda/cuda_plan_store.h"
#include "device/cuda/cuda_tune.h"
#include "base/mem.h"
#include "base/str.h"
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { UID_INSIDE = 1000 };
enum { MAX_CONFIGS = 64, MAX_NOTES = 32 };
enum { MAX_TIMED = 5 }; /* engines that cuda.tune compares; to compile one takes seconds */

tr_status_t tr_cuda_dnn_check(cudnnStatus_t status, const char *call, const char *file, int line,
                              const char *func) {
    char why[512] = "";
    if (status == CUDNN_STATUS_SUCCESS) return TR_OK;
    cudnnGetLastErrorString(why, sizeof why);
    return tr_cuda_library_error(TR_ERR_INTERNAL, file, line, func, "cuDNN: %s failed: %s%s%s", call,
                                 cudnnGetErrorString(status), *why ? ": " : "", why);
}

static tr_status_t handle_of(tr_device_t *device, cudnnHandle_t *out) {
    cuda_device_t *cuda = cuda_self(device);
    if (!cuda->dnn) DNN_TRY(cudnnCreate(&cuda->dnn));
    *out = cuda->dnn;
    return TR_OK;
}

tr_status_t tr_cuda_open_plans(cuda_device_t *cuda, const char *folder) {
    char prefix[64];
    tr_snprintf(prefix, sizeof prefix, "cudnn %zu sm_%d %d multiprocessors", cudnnGetVersion(),
                cuda->base.capability, cuda->multiprocessors);
    return tr_cuda_plan_store_create(prefix, folder, &cuda->plans);
}

tr_status_t tr_cuda_report_plans(tr_device_t *device, tr_report_row_fn row, void *self) {
    const cuda_plan_counts_t *counts = tr_cuda_plan_store_counts(cuda_self(device)->plans);
    char text[32];
    snprintf(text, sizeof text, "%d", counts->made);
    row(self, "plans made", text);
    snprintf(text, sizeof text, "%d", counts->restored);
    row(self, "plans restored", text);
    return TR_OK;
}

void tr_cuda_dnn_close(cuda_device_t *cuda) {
    if (cuda->dnn) cudnnDestroy(cuda->dnn);
    cuda->dnn = NULL;
    tr_cuda_plan_store_destroy(&cuda->plans);
}

/* -- descriptors ------------------------------------------------------------------------------- */

tr_status_t tr_cuda_dnn_create(cuda_dnn_plan_t *p, cudnnBackendDescriptorType_t type, desc_t *out) {
    if (p->count == CUDA_DNN_MAX_DESCRIPTORS)
        return TR_FAIL(TR_ERR_INTERNAL, "a cuDNN graph has more than %d descriptors",
                       CUDA_DNN_MAX_DESCRIPTORS);
    DNN_TRY(cudnnBackendCreateDescriptor(type, out));
    p->all[p->count++] = *out;
    return TR_OK;
}

tr_status_t tr_cuda_dnn_set(desc_t d, cudnnBackendAttributeName_t name,
                            cudnnBackendAttributeType_t type, int64_t count, const void *values) {
    DNN_TRY(cudnnBackendSetAttribute(d, name, type, count, values));
    return TR_OK;
}

tr_status_t tr_cuda_dnn_set_desc(desc_t d, cudnnBackendAttributeName_t name, desc_t value) {
    return tr_cuda_dnn_set(d, name, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1, &value);
}

tr_status_t tr_cuda_dnn_finalize(desc_t d) {
    DNN_TRY(cudnnBackendFinalize(d));
    return TR_OK;
}

cudnnDataType_t tr_cuda_dnn_type(tr_dtype_t dtype) {
    return dtype == TR_BF16  ? CUDNN_DATA_BFLOAT16
           : dtype == TR_F16 ? CUDNN_DATA_HALF
                             : CUDNN_DATA_FLOAT;
}

/* All but what kind of tensor it is. */
static tr_status_t begin_tensor(cuda_dnn_plan_t *p, int n, const int64_t *dim,
                                const int64_t *stride, cudnnDataType_t type, int64_t uid,
                                int64_t alignment, desc_t *out) {
    TR_TRY(tr_cuda_dnn_create(p, CUDNN_BACKEND_TENSOR_DESCRIPTOR, out));
    TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_TENSOR_DATA_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &type));
    TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_TENSOR_DIMENSIONS, CUDNN_TYPE_INT64, n, dim));
    TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_TENSOR_STRIDES, CUDNN_TYPE_INT64, n, stride));
    TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_TENSOR_UNIQUE_ID, CUDNN_TYPE_INT64, 1, &uid));
    return tr_cuda_dnn_set(*out, CUDNN_ATTR_TENSOR_BYTE_ALIGNMENT, CUDNN_TYPE_INT64, 1, &alignment);
}

/* Notes a tensor or scalar that gets an address at each run. */
static tr_status_t add_operand(cuda_dnn_plan_t *p, int64_t uid, size_t bytes) {
    for (int i = 0; i < p->operand_count; i++)
        if (p->uid[i] == uid) return TR_OK;
    if (p->operand_count == CUDA_DNN_MAX_OPERANDS)
        return TR_FAIL(TR_ERR_INTERNAL, "a cuDNN graph has more than %d operands",
                       CUDA_DNN_MAX_OPERANDS);
    p->uid[p->operand_count] = uid;
    p->operand_bytes[p->operand_count++] = bytes;
    return TR_OK;
}

tr_status_t tr_cuda_dnn_tensor(cuda_dnn_plan_t *p, int n, const int64_t *dim, const int64_t *stride,
                               cudnnDataType_t type, int64_t uid, desc_t *out) {
    const int64_t id = uid ? uid : UID_INSIDE + p->inside++;
    const bool inside = uid == 0;
    int64_t extent = 1;
    for (int i = 0; i < n; i++) extent += (dim[i] - 1) * stride[i];
    if (!inside) TR_TRY(add_operand(p, uid, (size_t)extent * sizeof(float))); /* at most */
    TR_TRY(begin_tensor(p, n, dim, stride, type, id, CUDA_DNN_ALIGNMENT, out));
    TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_TENSOR_IS_VIRTUAL, CUDNN_TYPE_BOOLEAN, 1, &inside));
    return tr_cuda_dnn_finalize(*out);
}

tr_status_t tr_cuda_dnn_scalar(cuda_dnn_plan_t *p, int64_t uid, desc_t *out) {
    const int64_t one[4] = {1, 1, 1, 1};
    const bool by_value = true;
    TR_TRY(add_operand(p, uid, 0));
    TR_TRY(begin_tensor(p, 4, one, one, CUDNN_DATA_FLOAT, uid, sizeof(float), out));
    TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_TENSOR_IS_BY_VALUE, CUDNN_TYPE_BOOLEAN, 1, &by_value));
    return tr_cuda_dnn_finalize(*out);
}

tr_status_t tr_cuda_dnn_add(cuda_dnn_plan_t *p, cudnnBackendDescriptorType_t type, desc_t *out) {
    if (p->op_count == CUDA_DNN_MAX_OPS)
        return TR_FAIL(TR_ERR_INTERNAL, "a cuDNN graph has more than %d operations",
                       CUDA_DNN_MAX_OPS);
    TR_TRY(tr_cuda_dnn_create(p, type, out));
    p->ops[p->op_count++] = *out;
    return TR_OK;
}

tr_status_t tr_cuda_dnn_apply(cuda_dnn_plan_t *p, const cuda_dnn_pointwise_t *f) {
    const cudnnNanPropagation_t propagate = CUDNN_PROPAGATE_NAN;
    const bool is_index = f->mode == CUDNN_POINTWISE_GEN_INDEX;
    const cudnnDataType_t compute = is_index ? CUDNN_DATA_INT32 : CUDNN_DATA_FLOAT;
    desc_t how, op;
    TR_TRY(tr_cuda_dnn_create(p, CUDNN_BACKEND_POINTWISE_DESCRIPTOR, &how));
    TR_TRY(tr_cuda_dnn_set(how, CUDNN_ATTR_POINTWISE_MODE, CUDNN_TYPE_POINTWISE_MODE, 1, &f->mode));
    TR_TRY(tr_cuda_dnn_set(how, CUDNN_ATTR_POINTWISE_MATH_PREC, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    if (is_index)
        TR_TRY(tr_cuda_dnn_set(how, CUDNN_ATTR_POINTWISE_AXIS, CUDNN_TYPE_INT64, 1, &f->axis));
    if (f->mode == CUDNN_POINTWISE_RELU_FWD)
        TR_TRY(tr_cuda_dnn_set(how, CUDNN_ATTR_POINTWISE_NAN_PROPAGATION, CUDNN_TYPE_NAN_PROPOGATION,
                               1, &propagate));
    TR_TRY(tr_cuda_dnn_finalize(how));
    TR_TRY(tr_cuda_dnn_add(p, CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR, &op));
    TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_PW_DESCRIPTOR, how));
    TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_XDESC, f->x));
    if (f->b) TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_BDESC, f->b));
    if (f->which) TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_TDESC, f->which));
    TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_POINTWISE_YDESC, f->y));
    return tr_cuda_dnn_finalize(op);
}

tr_status_t tr_cuda_dnn_pointwise(cuda_dnn_plan_t *p, cudnnPointwiseMode_t mode, desc_t x, desc_t b,
                                  desc_t y) {
    return tr_cuda_dnn_apply(p, &(cuda_dnn_pointwise_t){.mode = mode, .x = x, .b = b, .y = y});
}

tr_status_t tr_cuda_dnn_matmul(cuda_dnn_plan_t *p, desc_t a, desc_t b, desc_t y) {
    const cudnnDataType_t compute = CUDNN_DATA_FLOAT;
    desc_t how, op;
    TR_TRY(tr_cuda_dnn_create(p, CUDNN_BACKEND_MATMUL_DESCRIPTOR, &how));
    TR_TRY(tr_cuda_dnn_set(how, CUDNN_ATTR_MATMUL_COMP_TYPE, CUDNN_TYPE_DATA_TYPE, 1, &compute));
    TR_TRY(tr_cuda_dnn_finalize(how));
    TR_TRY(tr_cuda_dnn_add(p, CUDNN_BACKEND_OPERATION_MATMUL_DESCRIPTOR, &op));
    TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_DESC, how));
    TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_ADESC, a));
    TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_BDESC, b));
    TR_TRY(tr_cuda_dnn_set_desc(op, CUDNN_ATTR_OPERATION_MATMUL_CDESC, y));
    return tr_cuda_dnn_finalize(op);
}

/* -- what a plan is made for: the GPU of a handle, or the properties of one that is not here -----
 * */

typedef struct {
    cudnnHandle_t handle;
    desc_t model; /* NULL: handle */
} target_t;

static tr_status_t target_of(tr_device_t *device, target_t *out) {
    *out = (target_t){.model = tr_cuda_model_properties(cuda_self(device))};
    return out->model ? TR_OK : handle_of(device, &out->handle);
}

static bool set_target(desc_t d, const target_t *target, cudnnBackendAttributeName_t handle,
                       cudnnBackendAttributeName_t model) {
    return (target->model ? cudnnBackendSetAttribute(d, model, CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                                     &target->model)
                          : cudnnBackendSetAttribute(d, handle, CUDNN_TYPE_HANDLE, 1,
                                                     &target->handle)) == CUDNN_STATUS_SUCCESS;
}

/* -- engines ----------------------------------------------------------------------------------- */

/* Whether an engine's results are reproducible, unless any order will do, and as exact as the type
 * says. */
static bool engine_suits(desc_t engine, cuda_dnn_math_t math, bool any_order) {
    cudnnBackendNumericalNote_t note[MAX_NOTES];
    int64_t count = 0;
    if (cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_NUMERICAL_NOTE,
                                 CUDNN_TYPE_NUMERICAL_NOTE, MAX_NOTES, &count,
                                 note) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = 0; i < count; i++) {
        if (note[i] == CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC && !any_order) return false;
        if (note[i] == CUDNN_NUMERICAL_NOTE_REDUCED_PRECISION_REDUCTION) return false;
        if (math == CUDA_DNN_HALF) continue;
        if (note[i] == CUDNN_NUMERICAL_NOTE_TENSOR_CORE && math == CUDA_DNN_F32) return false;
        if (note[i] == CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS) return false;
    }
    return true;
}

/* For people: which engine it is. */
static void note_engine(cuda_dnn_plan_t *p, desc_t engine) {
    cudnnBackendBehaviorNote_t note[MAX_NOTES];
    int64_t count = 0;
    p->engine_index = -1, p->compiled = false;
    (void)cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1,
                                   &count, &p->engine_index);
    count = 0;
    (void)cudnnBackendGetAttribute(engine, CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE,
                                   CUDNN_TYPE_BEHAVIOR_NOTE, MAX_NOTES, &count, note);
    for (int64_t i = 0; i < count; i++)
        p->compiled |= note[i] == CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
}

/* Makes the plan of a configuration. False where the engine does not fit, or declines. */
static bool try_config(cuda_dnn_plan_t *p, desc_t config, const target_t *target) {
    desc_t plan = NULL;
    int64_t count = 0, workspace = 0;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &plan) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    const bool made =
        set_target(plan, target, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                   CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP) &&
        cudnnBackendSetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, 1,
                                 &config) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(plan) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE, CUDNN_TYPE_INT64,
                                 1, &count, &workspace) == CUDNN_STATUS_SUCCESS;
    if (!made || (size_t)workspace > p->workspace_limit) {
        cudnnBackendDestroyDescriptor(plan);
        return false;
    }
    p->plan = plan;
    p->workspace_bytes = (size_t)workspace;
    return true;
}

/* The configuration's engine first: most are refused by its notes, which costs nothing. */
static bool try_heuristic(cuda_dnn_plan_t *p, desc_t config, const target_t *target,
                          cuda_dnn_math_t math, bool any_order) {
    desc_t engine = NULL;
    int64_t count = 0;
    bool suits = false;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    if (cudnnBackendGetAttribute(config, CUDNN_ATTR_ENGINECFG_ENGINE, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                                 1, &count, &engine) == CUDNN_STATUS_SUCCESS)
        suits = engine_suits(engine, math, any_order) && try_config(p, config, target);
    if (suits) note_engine(p, engine);
    cudnnBackendDestroyDescriptor(engine);
    return suits;
}

/* -- cuda.tune --------------------------------------------------------------------------------- */

typedef struct {
    tr_device_t *device;
    const cuda_dnn_plan_t *plan;
    size_t offset[CUDA_DNN_MAX_OPERANDS], workspace;
} trial_t;

static tr_status_t cuda_dnn_run_trial(void *self, tr_stream_t *stream, void *memory) {
    static float one = 1;
    const trial_t *t = self;
    void *address[CUDA_DNN_MAX_OPERANDS];
    for (int i = 0; i < t->plan->operand_count; i++)
        address[i] = t->plan->operand_bytes[i] ? (void *)((char *)memory + t->offset[i]) : &one;
    return tr_cuda_dnn_execute(t->device, stream, t->plan, t->plan->operand_count, t->plan->uid,
                               address, (char *)memory + t->workspace);
}

static double cuda_dnn_time_of(tr_device_t *device, const cuda_dnn_plan_t *p) {
    trial_t t = {.device = device, .plan = p};
    size_t bytes = 0;
    for (int i = 0; i < p->operand_count; i++)
        t.offset[i] = cuda_place(&bytes, p->operand_bytes[i]);
    t.workspace = cuda_place(&bytes, p->workspace_bytes);
    return tr_cuda_time(device, &(cuda_trial_t){bytes, cuda_dnn_run_trial, &t});
}

/* -- the choice -------------------------------------------------------------------------------- */

/* Of the configurations, best first: the first that suits, or the fastest of the first few
 * (`tuner`; NULL: no timing). A plan keeps its configuration; the others are destroyed. */
static bool choose_config(cuda_dnn_plan_t *p, desc_t *config, int64_t count, const target_t *target,
                          tr_device_t *tuner, cuda_dnn_math_t math) {
    const int most = tuner ? MAX_TIMED : 1;
    const bool any_order = tuner && tuner->any_order;
    cuda_dnn_plan_t best = {0};
    double best_sec = INFINITY;
    int suited = 0;
    for (int64_t i = 0; i < count && suited < most; i++) {
        if (!try_heuristic(p, config[i], target, math, any_order)) continue;
        const double sec = tuner ? cuda_dnn_time_of(tuner, p) : 0;
        desc_t slower = p->plan;
        if (suited++ == 0 || sec < best_sec) {
            slower = best.plan, best = *p, best_sec = sec;
            best.config = config[i];
        }
        if (slower) cudnnBackendDestroyDescriptor(slower);
        p->plan = NULL;
    }
    for (int64_t i = 0; i < count; i++)
        if (config[i] != best.config) cudnnBackendDestroyDescriptor(config[i]);
    if (suited) *p = best, p->timed_sec = best_sec;
    return suited > 0;
}

/* Heuristics name configurations, best first. They may name none, which is no error. */
static bool choose_by_heuristic(cuda_dnn_plan_t *p, desc_t graph, const target_t *target,
                                tr_device_t *tuner, cudnnBackendHeurMode_t mode,
                                cuda_dnn_math_t math) {
    desc_t heuristic = NULL, config[MAX_CONFIGS] = {NULL};
    int64_t found = 0, made = 0;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINEHEUR_DESCRIPTOR, &heuristic) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    while (made < MAX_CONFIGS &&
           cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config[made]) ==
               CUDNN_STATUS_SUCCESS)
        made++;
    if (tr_cuda_dnn_set_desc(heuristic, CUDNN_ATTR_ENGINEHEUR_OPERATION_GRAPH, graph) != TR_OK ||
        tr_cuda_dnn_set(heuristic, CUDNN_ATTR_ENGINEHEUR_MODE, CUDNN_TYPE_HEUR_MODE, 1, &mode) !=
            TR_OK ||
        (target->model && tr_cuda_dnn_set_desc(heuristic, CUDNN_ATTR_ENGINEHEUR_DEVICEPROP,
                                               target->model) != TR_OK) ||
        cudnnBackendFinalize(heuristic) != CUDNN_STATUS_SUCCESS ||
        cudnnBackendGetAttribute(heuristic, CUDNN_ATTR_ENGINEHEUR_RESULTS,
                                 CUDNN_TYPE_BACKEND_DESCRIPTOR, made, &found,
                                 config) != CUDNN_STATUS_SUCCESS)
        found = 0;
    for (int64_t i = found; i < made; i++) cudnnBackendDestroyDescriptor(config[i]);
    const bool chosen = choose_config(p, config, found < made ? found : made, target, tuner, math);
    cudnnBackendDestroyDescriptor(heuristic);
    return chosen;
}

static bool set_knobs(cuda_dnn_plan_t *p, desc_t config, const cuda_dnn_engine_t *e) {
    desc_t choice[TR_COUNT(e->knob)];
    for (int i = 0; i < e->knobs; i++)
        if (tr_cuda_dnn_create(p, CUDNN_BACKEND_KNOB_CHOICE_DESCRIPTOR, &choice[i]) != TR_OK ||
            tr_cuda_dnn_set(choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_TYPE, CUDNN_TYPE_KNOB_TYPE, 1,
                            &e->knob[i].type) != TR_OK ||
            tr_cuda_dnn_set(choice[i], CUDNN_ATTR_KNOB_CHOICE_KNOB_VALUE, CUDNN_TYPE_INT64, 1,
                            &e->knob[i].value) != TR_OK ||
            tr_cuda_dnn_finalize(choice[i]) != TR_OK)
            return false;
    return e->knobs == 0 ||
           tr_cuda_dnn_set(config, CUDNN_ATTR_ENGINECFG_KNOB_CHOICES, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                           e->knobs, choice) == TR_OK;
}

static bool try_engine(cuda_dnn_plan_t *p, desc_t graph, const target_t *target,
                       const cuda_dnn_engine_t *e, cuda_dnn_math_t math) {
    desc_t engine = NULL, config = NULL;
    const bool chosen =
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINE_DESCRIPTOR, &engine) ==
            CUDNN_STATUS_SUCCESS &&
        cudnnBackendCreateDescriptor(CUDNN_BACKEND_ENGINECFG_DESCRIPTOR, &config) ==
            CUDNN_STATUS_SUCCESS &&
        tr_cuda_dnn_set_desc(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, graph) == TR_OK &&
        tr_cuda_dnn_set(engine, CUDNN_ATTR_ENGINE_GLOBAL_INDEX, CUDNN_TYPE_INT64, 1, &e->number) ==
            TR_OK &&
        (!target->model ||
         tr_cuda_dnn_set_desc(engine, CUDNN_ATTR_ENGINE_DEVICEPROP, target->model) == TR_OK) &&
        cudnnBackendFinalize(engine) == CUDNN_STATUS_SUCCESS && engine_suits(engine, math, false) &&
        tr_cuda_dnn_set_desc(config, CUDNN_ATTR_ENGINECFG_ENGINE, engine) == TR_OK &&
        set_knobs(p, config, e) && cudnnBackendFinalize(config) == CUDNN_STATUS_SUCCESS &&
        try_config(p, config, target);
    if (chosen) {
        note_engine(p, engine);
        p->engine = engine, p->config = config;
        return true;
    }
    if (config) cudnnBackendDestroyDescriptor(config);
    if (engine) cudnnBackendDestroyDescriptor(engine);
    return false;
}

/* The heuristics pass over deterministic engines for some filter gradients in f32; those are found
 * by number. */
static bool choose_by_number(cuda_dnn_plan_t *p, desc_t graph, const target_t *target,
                             cuda_dnn_math_t math) {
    int64_t count = 0, engines = 0;
    if (cudnnBackendGetAttribute(graph, CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT,
                                 CUDNN_TYPE_INT64, 1, &count, &engines) != CUDNN_STATUS_SUCCESS)
        return false;
    for (int64_t i = engines - 1; i >= 0; i--)
        if (try_engine(p, graph, target, &(cuda_dnn_engine_t){.number = i}, math)) return true;
    return false;
}

/* -- plans ------------------------------------------------------------------------------------- */

static tr_status_t finish_graph(cuda_dnn_plan_t *p, const target_t *target, desc_t *out) {
    TR_TRY(tr_cuda_dnn_create(p, CUDNN_BACKEND_OPERATIONGRAPH_DESCRIPTOR, out));
    if (!target->model)
        TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_OPERATIONGRAPH_HANDLE, CUDNN_TYPE_HANDLE, 1,
                               &target->handle));
    TR_TRY(tr_cuda_dnn_set(*out, CUDNN_ATTR_OPERATIONGRAPH_OPS, CUDNN_TYPE_BACKEND_DESCRIPTOR,
                           p->op_count, p->ops));
    return tr_cuda_dnn_finalize(*out);
}

/* False: cuDNN refuses the graph, or has no engine for it. *out_asked: all engines of this GPU were
 * asked; a model of a GPU leaves out engines. */
static bool plan_choose(cuda_dnn_plan_t *p, const target_t *target, const cuda_dnn_graph_t *g,
                        tr_device_t *tuner, bool *out_asked) {
    desc_t graph = NULL;
    *out_asked = g->build(p, g->self) == TR_OK && finish_graph(p, target, &graph) == TR_OK;
    if (!*out_asked) return false;
    *out_asked = !target->model;
    return ((g->first && try_engine(p, graph, target, g->first, g->math)) ||
            choose_by_heuristic(p, graph, target, tuner, CUDNN_HEUR_MODE_A, g->math) ||
            choose_by_heuristic(p, graph, target, tuner, CUDNN_HEUR_MODE_FALLBACK, g->math) ||
            choose_by_number(p, graph, target, g->math));
}

/* The store keeps "ENGINE COMPILED\n" and the plan's JSON, or "none". `lasts`: also in a file. */
static void store_plan(cuda_plan_store_t *store, const char *key, const cuda_dnn_plan_t *p,
                       bool lasts) {
    tr_str_t text = {0};
    int64_t bytes = 0;
    char *json = NULL;
    const cudnnBackendAttributeName_t name = CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION;
    if (p->plan &&
        cudnnBackendGetAttribute(p->plan, name, CUDNN_TYPE_CHAR, 0, &bytes, NULL) ==
            CUDNN_STATUS_SUCCESS &&
        tr_alloc((size_t)bytes + 1, "a plan of cuDNN", &json) == TR_OK &&
        cudnnBackendGetAttribute(p->plan, name, CUDNN_TYPE_CHAR, bytes, &bytes, json) ==
            CUDNN_STATUS_SUCCESS)
        tr_str_printf(&text, "%lld %d\n%s", (long long)p->engine_index, p->compiled, json);
    else if (!p->plan)
        tr_str_append(&text, "none");
    if (text.text && text.status == TR_OK &&
        tr_cuda_plan_store_add(store, key, text.text, lasts) != TR_OK)
        tr_error_clear();
    tr_str_free(&text);
    tr_free(&json);
}

/* False: cuDNN refuses the JSON. */
static bool plan_restore(cuda_dnn_plan_t *p, const target_t *target, const char *text) {
    long long engine = -1;
    int compiled = 0, head = 0;
    int64_t count = 0, workspace = 0;
    if (sscanf(text, "%lld %d%n", &engine, &compiled, &head) != 2 || text[head] != '\n')
        return false;
    const char *json = text + head + 1;
    if (cudnnBackendCreateDescriptor(CUDNN_BACKEND_EXECUTION_PLAN_DESCRIPTOR, &p->plan) !=
        CUDNN_STATUS_SUCCESS)
        return false;
    p->engine_index = engine, p->compiled = compiled, p->restored = true;
    const bool made =
        set_target(p->plan, target, CUDNN_ATTR_EXECUTION_PLAN_HANDLE,
                   CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP) &&
        cudnnBackendSetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION,
                                 CUDNN_TYPE_CHAR, (int64_t)strlen(json) + 1,
                                 json) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendFinalize(p->plan) == CUDNN_STATUS_SUCCESS &&
        cudnnBackendGetAttribute(p->plan, CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE,
                                 CUDNN_TYPE_INT64, 1, &count, &workspace) == CUDNN_STATUS_SUCCESS;
    p->workspace_bytes = (size_t)workspace;
    if (made) return true;
    cudnnBackendDestroyDescriptor(p->plan);
    p->plan = NULL;
    return false;
}

static tr_status_t new_plan(const cuda_dnn_graph_t *g, cuda_dnn_plan_t **out) {
    TR_TRY(tr_alloc(sizeof **out, "a plan of cuDNN", out));
    (*out)->workspace_limit = g->workspace_limit;
    return TR_OK;
}

/* *out NULL: the stored plan is that there is none. */
static tr_status_t cuda_dnn_find_stored(cuda_device_t *cuda, const target_t *target,
                                        const cuda_dnn_graph_t *g, bool *out_known,
                                        cuda_dnn_plan_t **out) {
    char why[200] = "", problem[256];
    const char *text = tr_cuda_plan_store_find(cuda->plans, g->key);
    *out = NULL, *out_known = text != NULL;
    if (!text || strcmp(text, "none") == 0) return TR_OK;
    TR_TRY(new_plan(g, out));
    if (plan_restore(*out, target, text)) return TR_OK;
    *out_known = false;
    cudnnGetLastErrorString(why, sizeof why);
    snprintf(problem, sizeof problem, "was refused by cuDNN (%s)", why);
    tr_cuda_plan_store_drop(cuda->plans, g->key, problem);
    tr_cuda_dnn_release(out);
    return TR_OK;
}

/* Where cuDNN cannot plan without the GPU. */
static tr_status_t make_bound(const cuda_dnn_graph_t *g, cuda_dnn_plan_t **out) {
    TR_TRY(new_plan(g, out));
    (*out)->bound = true;
    (*out)->workspace_bytes = g->bound;
    return TR_OK;
}

static tr_status_t plan_make(tr_device_t *device, const cuda_dnn_graph_t *g, bool timed,
                             cuda_dnn_plan_t **out) {
    cuda_device_t *cuda = cuda_self(device);
    target_t target;
    bool known = false, asked = false;
    TR_TRY(target_of(device, &target));
    TR_TRY(cuda_dnn_find_stored(cuda, &target, g, &known, out));
    if (known) return tr_cuda_plan_store_counts(cuda->plans)->restored++, TR_OK;
    if (device->chooses_nothing)
        return TR_FAIL(TR_ERR_NOINPUT, "cuda.plan_cache has no plan of cuDNN for %s", g->key);
    tr_cuda_plan_store_counts(cuda->plans)->made++;
    TR_TRY(new_plan(g, out));
    const bool chosen = plan_choose(*out, &target, g, timed ? device : NULL, &asked);
    const bool lasts = (chosen || asked) && tr_cuda_was_timed((*out)->timed_sec, g->key);
    store_plan(cuda->plans, g->key, *out, lasts);
    if (!chosen) tr_cuda_dnn_release(out);
    return TR_OK;
}

tr_status_t tr_cuda_dnn_make(tr_device_t *device, const cuda_dnn_graph_t *g,
                             cuda_dnn_plan_t **out) {
    const cuda_device_t *cuda = cuda_self(device);
    cuda_dnn_graph_t tuned = *g;
    tr_str_t key = {0};
    *out = NULL;
    if (tr_cuda_model_is_bound(cuda)) return make_bound(g, out);
    if (!cuda->tune || cuda->model) return plan_make(device, g, false, out);
    tr_str_printf(&key, "%s%s, timed on %s", g->key, device->any_order ? ", any order" : "",
                  device->description);
    tuned.key = key.text;
    const tr_status_t status =
        key.status == TR_OK ? plan_make(device, &tuned, true, out) : key.status;
    tr_str_free(&key);
    return status;
}

size_t tr_cuda_dnn_workspace(const cuda_dnn_plan_t *plan) {
    return plan->workspace_bytes;
}

void tr_cuda_dnn_describe(const cuda_dnn_plan_t *plan, char *text, size_t text_bytes) {
    if (plan->bound)
        tr_snprintf(text, text_bytes, "cuDNN, at most");
    else
        tr_snprintf(text, text_bytes, "cuDNN engine %lld%s", (long long)plan->engine_index,
                    plan->compiled ? ", compiled" : "");
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

/* -- runs -------------------------------------------------------------------------------------- */

static tr_status_t fill_pack(int64_t count, const int64_t *uid, void *const *address,
                             void *workspace, desc_t pack) {
    TR_TRY(tr_cuda_dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS, CUDNN_TYPE_VOID_PTR, count,
                           address));
    TR_TRY(tr_cuda_dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS, CUDNN_TYPE_INT64, count, uid));
    TR_TRY(tr_cuda_dnn_set(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE, CUDNN_TYPE_VOID_PTR, 1,
                           &workspace));
    return tr_cuda_dnn_finalize(pack);
}

tr_status_t tr_cuda_dnn_execute(tr_device_t *device, tr_stream_t *stream,
                                const cuda_dnn_plan_t *plan, int64_t count, const int64_t *uid,
                                void *const *address, void *workspace) {
    cudnnHandle_t handle = NULL;
    desc_t pack = NULL;
    tr_status_t status = TR_OK;
    TR_TRY(handle_of(device, &handle));
    DNN_TRY(cudnnSetStream(handle, stream->handle));
    DNN_TRY(cudnnBackendCreateDescriptor(CUDNN_BACKEND_VARIANT_PACK_DESCRIPTOR, &pack));
    TR_TRY_GOTO(fill_pack(count, uid, address, workspace, pack), done);
    TR_TRY_GOTO(tr_cuda_dnn_check(cudnnBackendExecute(handle, plan->plan, pack),
                                  "cudnnBackendExecute", __FILE__, __LINE__, __func__),
                done);
done:
    cudnnBackendDestroyDescriptor(pack);
    return status;
}
