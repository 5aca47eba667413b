/* Reading attributes: what was set, and what finalized descriptors know besides. */
#include "dnn_int.h"
#include <stdio.h>

static cudnnStatus_t give(int64_t room, int64_t *count, void *to, int64_t have, const void *from, size_t size) {
    if (count) *count = have;
    if (to) memcpy(to, from, (size_t)(room < have ? room : have) * size);
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t numerical_notes(const engine_t *e, int64_t room, int64_t *count, void *to) {
    cudnnBackendNumericalNote_t notes[4];
    int n = 0;
    if (e->tensor_core) notes[n++] = CUDNN_NUMERICAL_NOTE_TENSOR_CORE;
    if (e->tf32) notes[n++] = CUDNN_NUMERICAL_NOTE_DOWN_CONVERT_INPUTS;
    if (!e->deterministic) notes[n++] = CUDNN_NUMERICAL_NOTE_NONDETERMINISTIC;
    return give(room, count, to, n, notes, sizeof notes[0]);
}
static cudnnStatus_t behavior_notes(const engine_t *e, int64_t room, int64_t *count, void *to) {
    cudnnBackendBehaviorNote_t notes[2];
    int n = 0;
    if (e->compiled) notes[n++] = CUDNN_BEHAVIOR_NOTE_RUNTIME_COMPILATION;
    return give(room, count, to, n, notes, sizeof notes[0]);
}

/* The program hands in descriptors that it made; they become copies of what is asked for. */
static cudnnStatus_t engine_of_config(const desc_t *config, int64_t room, int64_t *count, void **out) {
    const desc_t *engine = dnn_child(config, CUDNN_ATTR_ENGINECFG_ENGINE, 0);
    if (count) *count = 1;
    if (!out || room < 1) return CUDNN_STATUS_SUCCESS;
    desc_t *to = *out;
    if (!to || to->type != CUDNN_BACKEND_ENGINE_DESCRIPTOR || to->final)
        return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "ENGINECFG_ENGINE needs a new engine descriptor to fill");
    for (int i = 0; i < engine->count; i++)
        dnn_store(to, engine->list[i].name, engine->list[i].type, engine->list[i].count, engine->list[i].data);
    to->final = true;
    return CUDNN_STATUS_SUCCESS;
}

static cudnnStatus_t of_engine(const desc_t *desc, cudnnBackendAttributeName_t name, int64_t room, int64_t *count, void *to) {
    engine_t engine;
    const cudnnStatus_t status = dnn_engine_of(desc, &engine);
    if (status) return status;
    if (name == CUDNN_ATTR_ENGINE_NUMERICAL_NOTE) return numerical_notes(&engine, room, count, to);
    if (name == CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE) return behavior_notes(&engine, room, count, to);
    return give(room, count, to, 0, NULL, 0); /* knobs: none */
}

static cudnnStatus_t device_json(int64_t room, int64_t *count, char *to) {
    struct cudaDeviceProp p;
    char text[1024];
    if (cudaGetDeviceProperties(&p, 0)) return dnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "no device");
    const int n = snprintf(text, sizeof text,
                           "{\"deviceName\": \"%s\", \"cudaDeviceId\": 0, \"deviceVer\": %d, \"multiProcessorCount\": %d, "
                           "\"maxSharedMemoryPerBlockOptin\": %zu, \"totalGlobalMem\": %zu}",
                           p.name, p.major * 100 + p.minor * 10, p.multiProcessorCount, p.sharedMemPerBlockOptin, p.totalGlobalMem);
    return give(room, count, to, n + 1, text, 1);
}

EXPORT cudnnStatus_t cudnnBackendGetAttribute(const cudnnBackendDescriptor_t opaque, cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t room, int64_t *count, void *to) {
    desc_t *desc = opaque;
    if (hostcuda_call(__func__, "%d", (int)name)) return CUDNN_STATUS_INTERNAL_ERROR;
    if (!desc) return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "attribute %d", (int)name);
    if (!desc->final) return dnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "attribute %d of a descriptor that is not finalized", (int)name);
    switch (name) {
    case CUDNN_ATTR_ENGINEHEUR_RESULTS: return dnn_results(desc, room, count, to);
    case CUDNN_ATTR_ENGINECFG_ENGINE: return engine_of_config(desc, room, count, to);
    case CUDNN_ATTR_ENGINE_NUMERICAL_NOTE:
    case CUDNN_ATTR_ENGINE_BEHAVIOR_NOTE:
    case CUDNN_ATTR_ENGINE_KNOB_INFO: return of_engine(desc, name, room, count, to);
    case CUDNN_ATTR_ENGINECFG_WORKSPACE_SIZE: {
        engine_t engine;
        const cudnnStatus_t status = dnn_engine_of(dnn_child(desc, CUDNN_ATTR_ENGINECFG_ENGINE, 0), &engine);
        return status ? status : give(room, count, to, 1, &engine.workspace, 8);
    }
    case CUDNN_ATTR_EXECUTION_PLAN_WORKSPACE_SIZE: return give(room, count, to, 1, &desc->engine.workspace, 8);
    case CUDNN_ATTR_EXECUTION_PLAN_JSON_REPRESENTATION: return dnn_plan_json(desc, room, count, to);
    case CUDNN_ATTR_DEVICEPROP_JSON_REPRESENTATION:
        if (!dnn_find(desc, name)) return device_json(room, count, to);
        break;
    case CUDNN_ATTR_OPERATIONGRAPH_ENGINE_GLOBAL_COUNT: return give(room, count, to, 1, &(int64_t){100}, 8);
    default: break;
    }
    const attribute_t *a = dnn_find(desc, name);
    if (!a) return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "attribute %d was not set", (int)name);
    if (a->type != type) return dnn_refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "attribute %d: type %d", (int)name, (int)type);
    return give(room, count, to, a->count, a->data, dnn_type_size(type));
}
