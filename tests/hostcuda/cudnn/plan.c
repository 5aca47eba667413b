/* Plans: made of an engine or of their JSON, and executed on a stream. */
#include "dnn_int.h"
#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#define JSON_FORMAT                                                                                \
    "{\"hostcuda_plan\": 1, \"cudnn_version\": %zu, \"engine\": %lld, \"program\": \""

typedef struct {
    program_t program;
    engine_t engine;
} saved_t;

/* -- JSON: the program in hexadecimal digits, for it has no pointers --------------------------- */
cudnnStatus_t dnn_plan_json(const desc_t *plan, int64_t room, int64_t *count, char *text) {
    saved_t saved;
    char head[128];
    memset(&saved, 0, sizeof saved);
    saved.program = *plan->program;
    saved.engine = plan->engine;
    const int n =
        snprintf(head, sizeof head, JSON_FORMAT, cudnnGetVersion(), (long long)plan->engine.index);
    const int64_t needed = n + 2 * (int64_t)sizeof saved + 3;
    if (count) *count = needed;
    if (!text) return CUDNN_STATUS_SUCCESS;
    if (room < needed)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "the JSON of this plan needs %lld bytes",
                          (long long)needed);
    memcpy(text, head, (size_t)n);
    for (size_t i = 0; i < sizeof saved; i++)
        sprintf(text + n + 2 * i, "%02x", ((unsigned char *)&saved)[i]);
    strcpy(text + needed - 3, "\"}");
    return CUDNN_STATUS_SUCCESS;
}

static int digit(char c) {
    return c >= '0' && c <= '9' ? c - '0' : c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

/* What compiling or restoring takes from the real library. */
static void pause_ms(const char *name) {
    const long ms = hostcuda_env(name, 0);
    if (ms > 0) usleep((useconds_t)(1000 * ms));
}

static cudnnStatus_t restore(desc_t *plan, const attribute_t *json) {
    saved_t saved;
    const char *text = json->data, *end = text + json->count;
    size_t version = 0;
    long long index;
    int n = 0;
    ((char *)json->data)[json->count] = 0; /* dnn_store keeps a byte for it */
    if (sscanf(text, JSON_FORMAT "%n", &version, &index, &n) != 2 || !n ||
        end - text < n + 2 * (int64_t)sizeof saved)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "this is no JSON of a plan");
    if (version != cudnnGetVersion())
        return dnn_refuse(CUDNN_STATUS_SERIALIZATION_VERSION_MISMATCH,
                          "the plan was made by version %zu", version);
    for (size_t i = 0; i < sizeof saved; i++) {
        const int high = digit(text[n + 2 * (int64_t)i]), low = digit(text[n + 2 * (int64_t)i + 1]);
        if (high < 0 || low < 0)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "the JSON of a plan is damaged");
        ((unsigned char *)&saved)[i] = (unsigned char)(high << 4 | low);
    }
    free(plan->program);
    plan->program = malloc(sizeof *plan->program);
    *plan->program = saved.program;
    plan->engine = saved.engine;
    return CUDNN_STATUS_SUCCESS;
}

cudnnStatus_t dnn_finalize_plan(desc_t *plan) {
    const desc_t *config = dnn_child(plan, CUDNN_ATTR_EXECUTION_PLAN_ENGINE_CONFIG, 0);
    const attribute_t *json = dnn_find(plan, CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION);
    if (!dnn_find(plan, CUDNN_ATTR_EXECUTION_PLAN_HANDLE) &&
        !dnn_find(plan, CUDNN_ATTR_EXECUTION_PLAN_DEVICEPROP))
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "a plan needs a handle or device properties");
    pause_ms(json ? "HOSTCUDA_CUDNN_RESTORE_MS" : "HOSTCUDA_CUDNN_COMPILE_MS");
    if (json) return restore(plan, json);
    if (!config)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM,
                          "a plan needs an engine configuration or its JSON");
    const desc_t *engine = dnn_child(config, CUDNN_ATTR_ENGINECFG_ENGINE, 0);
    const cudnnStatus_t status = dnn_engine_of(engine, &plan->engine);
    if (status) return status;
    plan->program = malloc(sizeof *plan->program);
    *plan->program = *dnn_child(engine, CUDNN_ATTR_ENGINE_OPERATION_GRAPH, 0)->program;
    return CUDNN_STATUS_SUCCESS;
}

/* -- execution --------------------------------------------------------------------------------- */
typedef struct {
    program_t program;
    engine_t engine;
    void *data[MAX_TENSORS];
    double value[MAX_TENSORS]; /* of tensors by value, read at the call */
    void *workspace;
} work_t;

static op_run_t *runner(int kind) {
    switch (kind) {
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_FORWARD_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_DATA_DESCRIPTOR:
    case CUDNN_BACKEND_OPERATION_CONVOLUTION_BACKWARD_FILTER_DESCRIPTOR: return run_convolution;
    case CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR: return run_pointwise;
    case CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR: return run_reduction;
    default: return run_matmul;
    }
}

static void load(const work_t *w, dense_t *values, int t) {
    const tensor_t *tensor = &w->program.tensor[t];
    if (values[t].data) return;
    values[t] = dense_new(tensor);
    if (tensor->by_value)
        for (int64_t i = 0; i < values[t].count; i++) values[t].data[i] = (float)w->value[t];
    else
        dense_read(&values[t], tensor, w->data[t]);
    for (int64_t i = 0; w->engine.tf32 && i < values[t].count; i++)
        values[t].data[i] = num_tf32(values[t].data[i]);
}

/* Last bits that differ from run to run. */
static void disturb(dense_t *x) {
    for (int64_t i = 0; i < x->count; i++)
        if (hostcuda_random() & 1) x->data[i] *= 1 + 2.4e-7f;
}

/* Reshape: the elements where they lie in memory, seen with other dimensions and strides. */
static void run_reshape(const tensor_t *x, const dense_t *in, const tensor_t *y, dense_t *out) {
    tensor_t from = *x, to = *y;
    int64_t extent = 1;
    from.type = to.type = CUDNN_DATA_FLOAT;
    for (int i = 0; i < x->nd; i++) extent += (x->dim[i] - 1) * x->stride[i];
    float *memory = calloc((size_t)extent, sizeof *memory);
    dense_write(in, &from, memory);
    dense_read(out, &to, memory);
    free(memory);
}

static void run_op(const work_t *w, const op_t *op, dense_t *values) {
    const dense_t *in[MAX_SLOTS] = {NULL};
    dense_t *out[MAX_SLOTS] = {NULL};
    const bool adds = op->kind != CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR && op->beta != 0;
    for (int i = 0; i < MAX_SLOTS; i++) {
        if (op->in[i] >= 0) load(w, values, op->in[i]), in[i] = &values[op->in[i]];
        if (op->out[i] < 0) continue;
        if (adds)
            load(w, values, op->out[i]); /* beta times the old result */
        else
            values[op->out[i]] = dense_new(&w->program.tensor[op->out[i]]);
        out[i] = &values[op->out[i]];
    }
    if (op->kind == CUDNN_BACKEND_OPERATION_RESHAPE_DESCRIPTOR)
        run_reshape(&w->program.tensor[op->in[0]], in[0], &w->program.tensor[op->out[0]], out[0]);
    else
        runner(op->kind)(op, in, out);
    for (int i = 0; i < MAX_SLOTS; i++) {
        if (!out[i]) continue;
        const tensor_t *t = &w->program.tensor[op->out[i]];
        if (!w->engine.deterministic) disturb(out[i]);
        dense_round(out[i], t->type);
        if (!t->is_virtual) dense_write(out[i], t, w->data[op->out[i]]);
    }
}

/* HOSTCUDA_SLOW_ENGINE: "3" or "1,0" */
static bool is_slow(int64_t engine) {
    const char *at = getenv("HOSTCUDA_SLOW_ENGINE");
    for (char *end; at && *at; at = *end ? end + 1 : NULL)
        if (strtol(at, &end, 10) == engine) return true;
    return false;
}

static hostcuda_state_t run(void *arg, bool first) {
    const work_t *w = arg;
    dense_t values[MAX_TENSORS] = {{0}};
    (void)first;
    if (is_slow(w->engine.index)) usleep(30000);
    if (w->engine.workspace) memset(w->workspace, 0xff, (size_t)w->engine.workspace);
    for (int i = 0; i < w->program.ops; i++) run_op(w, &w->program.op[i], values);
    for (int i = 0; i < w->program.tensors; i++) free(values[i].data);
    return HOSTCUDA_DONE;
}

static size_t extent(const tensor_t *t) {
    int64_t last = 0;
    for (int i = 0; i < t->nd; i++) last += (t->dim[i] - 1) * t->stride[i];
    return (size_t)(last + 1) * num_size(dnn_num(t->type));
}

/* A scalar that cudnn-frontend masks scores with, but not in this version. */
static bool masks_otherwise(double value) {
    return cudnnGetVersion() < 91000 ? isinf(value) : value == -FLT_MAX;
}

static cudnnStatus_t bind(work_t *w, const desc_t *pack) {
    const attribute_t *ids = dnn_find(pack, CUDNN_ATTR_VARIANT_PACK_UNIQUE_IDS);
    void *const *pointers = dnn_find(pack, CUDNN_ATTR_VARIANT_PACK_DATA_POINTERS)->data;
    for (int t = 0; t < w->program.tensors; t++) {
        const tensor_t *tensor = &w->program.tensor[t];
        for (int64_t i = 0; i < ids->count; i++)
            if (((const int64_t *)ids->data)[i] == tensor->uid) w->data[t] = pointers[i];
        if (tensor->is_virtual) continue;
        if (!w->data[t])
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "the variant pack lacks tensor %lld",
                              (long long)tensor->uid);
        if (tensor->by_value) {
            w->value[t] = num_load(dnn_num(tensor->type), w->data[t], 0);
            if (masks_otherwise(w->value[t]))
                return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "a mask of %g in cuDNN %zu", w->value[t],
                                  cudnnGetVersion());
            continue;
        }
        if ((uintptr_t)w->data[t] % (uintptr_t)tensor->alignment)
            return dnn_refuse(CUDNN_STATUS_BAD_PARAM_MISALIGNED_POINTER,
                              "tensor %lld is not aligned to %lld bytes", (long long)tensor->uid,
                              (long long)tensor->alignment);
        if (hostcuda_accessible(w->data[t], extent(tensor))) continue;
        hostcuda_fail(cudaErrorIllegalAddress,
                      "cudnnBackendExecute: tensor %lld of %zu bytes does not lie in device memory",
                      (long long)tensor->uid, extent(tensor));
        return CUDNN_STATUS_EXECUTION_FAILED;
    }
    return CUDNN_STATUS_SUCCESS;
}

/* A scalar that sums are multiplied with counts as 1. In this program it is 1 but beside a mask of dropout,
 * and there the engines of cuDNN 9.14 for attention take it for 1 (seen on an H200). */
static void forget_inverse(work_t *w) {
    bool is_sum[MAX_TENSORS] = {false};
    for (int i = 0; i < w->program.ops; i++) {
        const op_t *op = &w->program.op[i];
        if (op->kind == CUDNN_BACKEND_OPERATION_REDUCTION_DESCRIPTOR &&
            op->mode == CUDNN_REDUCE_TENSOR_ADD)
            is_sum[op->out[0]] = true;
        if (op->kind == CUDNN_BACKEND_OPERATION_POINTWISE_DESCRIPTOR &&
            op->mode == CUDNN_POINTWISE_MUL && is_sum[op->in[0]] &&
            w->program.tensor[op->in[1]].by_value)
            w->value[op->in[1]] = 1;
    }
}

static cudnnStatus_t bind_workspace(work_t *w, const desc_t *pack) {
    const attribute_t *workspace = dnn_find(pack, CUDNN_ATTR_VARIANT_PACK_WORKSPACE);
    if (!w->engine.workspace) return CUDNN_STATUS_SUCCESS;
    w->workspace = workspace ? *(void **)workspace->data : NULL;
    if (!w->workspace)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "this plan needs a workspace");
    if (hostcuda_accessible(w->workspace, (size_t)w->engine.workspace)) return CUDNN_STATUS_SUCCESS;
    hostcuda_fail(cudaErrorIllegalAddress,
                  "cudnnBackendExecute: the workspace of %lld bytes does not lie in device memory",
                  (long long)w->engine.workspace);
    return CUDNN_STATUS_EXECUTION_FAILED;
}

EXPORT cudnnStatus_t cudnnBackendExecute(cudnnHandle_t handle, cudnnBackendDescriptor_t opaque_plan,
                                         cudnnBackendDescriptor_t opaque_pack) {
    const desc_t *plan = opaque_plan, *pack = opaque_pack;
    cudaStream_t stream;
    if (!handle || !plan || !pack || !plan->final || !pack->final)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "execute");
    if (hostcuda_call(__func__, "ops %d engine %lld", plan->program ? plan->program->ops : 0,
                      (long long)plan->engine.index))
        return CUDNN_STATUS_INTERNAL_ERROR;
    work_t *w = calloc(1, sizeof *w);
    w->program = *plan->program;
    w->engine = plan->engine;
    cudnnStatus_t status = bind(w, pack);
    forget_inverse(w);
    if (!status) status = bind_workspace(w, pack);
    if (status) return free(w), status;
    cudnnGetStream(handle, &stream);
    const cudaError_t error =
        hostcuda_enqueue(stream, &(hostcuda_work_t){"cudnn plan", run, free, w});
    return error ? CUDNN_STATUS_EXECUTION_FAILED : CUDNN_STATUS_SUCCESS;
}
