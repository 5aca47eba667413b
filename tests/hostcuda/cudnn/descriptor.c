/* Descriptors: a list of attributes, which others may hold after the program has destroyed its own handle of it. */
#include "dnn_int.h"
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

static __thread char last_error[512];

cudnnStatus_t dnn_refuse(cudnnStatus_t status, const char *format, ...) {
    va_list list;
    va_start(list, format);
    vsnprintf(last_error, sizeof last_error, format, list);
    va_end(list);
    hostcuda_refuse("cudnn", "%s: %s", cudnnGetErrorString(status), last_error);
    return status;
}
EXPORT void cudnnGetLastErrorString(char *message, size_t size) { snprintf(message, size, "%s", last_error); }

desc_t *dnn_new(cudnnBackendDescriptorType_t type) {
    desc_t *desc = calloc(1, sizeof *desc);
    desc->users = 1;
    desc->type = type;
    return desc;
}

static void clear(attribute_t *a) {
    if (a->type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < a->count; i++) dnn_drop(((desc_t **)a->data)[i]);
    free(a->data);
}
void dnn_drop(desc_t *desc) {
    if (!desc || --desc->users) return;
    for (int i = 0; i < desc->count; i++) clear(&desc->list[i]);
    free(desc->list);
    free(desc->program);
    free(desc);
}

const attribute_t *dnn_find(const desc_t *desc, cudnnBackendAttributeName_t name) {
    for (int i = 0; i < desc->count; i++)
        if (desc->list[i].name == name) return &desc->list[i];
    return NULL;
}

void dnn_store(desc_t *desc, cudnnBackendAttributeName_t name, cudnnBackendAttributeType_t type, int64_t count, const void *data) {
    const size_t bytes = (size_t)count * dnn_type_size(type);
    attribute_t *a = (attribute_t *)dnn_find(desc, name), fresh = {name, type, count, malloc(bytes + 1)};
    memcpy(fresh.data, data, bytes);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < count; i++) ((desc_t **)fresh.data)[i]->users++;
    if (a) clear(a);
    else {
        desc->list = realloc(desc->list, (size_t)(desc->count + 1) * sizeof *desc->list);
        a = &desc->list[desc->count++];
    }
    *a = fresh;
}

int64_t dnn_int(const desc_t *desc, cudnnBackendAttributeName_t name, int at, int64_t otherwise) {
    const attribute_t *a = dnn_find(desc, name);
    if (!a || at >= a->count) return otherwise;
    switch (dnn_type_size(a->type)) {
    case 1: return ((const bool *)a->data)[at];
    case 4: return ((const int32_t *)a->data)[at];
    default: return ((const int64_t *)a->data)[at];
    }
}
double dnn_double(const desc_t *desc, cudnnBackendAttributeName_t name, double otherwise) {
    const attribute_t *a = dnn_find(desc, name);
    if (!a) return otherwise;
    return a->type == CUDNN_TYPE_FLOAT ? *(const float *)a->data : *(const double *)a->data;
}
desc_t *dnn_child(const desc_t *desc, cudnnBackendAttributeName_t name, int at) {
    const attribute_t *a = dnn_find(desc, name);
    return a && at < a->count ? ((desc_t **)a->data)[at] : NULL;
}

/* -- entry points -------------------------------------------------------------------------------------------------------- */
EXPORT cudnnStatus_t cudnnBackendCreateDescriptor(cudnnBackendDescriptorType_t type, cudnnBackendDescriptor_t *out) {
    size_t count;
    const row_t *rows = dnn_rows(&count);
    if (hostcuda_call(__func__, "%d", (int)type)) return CUDNN_STATUS_INTERNAL_ERROR;
    for (size_t i = 0; i < count; i++) {
        if (rows[i].owner != type) continue;
        *out = dnn_new(type);
        hostcuda_count("cudnn descriptors", 1);
        return CUDNN_STATUS_SUCCESS;
    }
    return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "descriptor type %d is not in the fake", (int)type);
}
EXPORT cudnnStatus_t cudnnBackendDestroyDescriptor(cudnnBackendDescriptor_t desc) {
    if (desc) hostcuda_count("cudnn descriptors", -1);
    dnn_drop(desc);
    return CUDNN_STATUS_SUCCESS;
}

static bool type_fits(const row_t *row, cudnnBackendAttributeType_t type) {
    return type == row->type || (row->type == CUDNN_TYPE_DOUBLE && type == CUDNN_TYPE_FLOAT);
}

EXPORT cudnnStatus_t cudnnBackendSetAttribute(cudnnBackendDescriptor_t opaque, cudnnBackendAttributeName_t name,
                                              cudnnBackendAttributeType_t type, int64_t count, const void *data) {
    desc_t *desc = opaque;
    if (hostcuda_call(__func__, "%d %lld", (int)name, (long long)count)) return CUDNN_STATUS_INTERNAL_ERROR;
    if (!desc || !data) return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "attribute %d", (int)name);
    if (desc->final) return dnn_refuse(CUDNN_STATUS_NOT_INITIALIZED, "attribute %d of a finalized descriptor", (int)name);
    const row_t *row = dnn_row(desc->type, name);
    if (!row) return dnn_refuse(CUDNN_STATUS_NOT_SUPPORTED, "descriptor type %d has no attribute %d", (int)desc->type, (int)name);
    if (!type_fits(row, type)) return dnn_refuse(CUDNN_STATUS_BAD_PARAM_ATTRIBUTE_TYPE, "%s: type %d", row->text, (int)type);
    if (count < 1 || count > row->most) return dnn_refuse(CUDNN_STATUS_BAD_PARAM, "%s: %lld elements", row->text, (long long)count);
    if (type == CUDNN_TYPE_BACKEND_DESCRIPTOR)
        for (int64_t i = 0; i < count; i++) {
            const desc_t *child = ((desc_t *const *)data)[i];
            if (!child || !child->final) return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NOT_FINALIZED, "%s", row->text);
        }
    dnn_store(desc, name, type, count, data);
    return CUDNN_STATUS_SUCCESS;
}

EXPORT cudnnStatus_t cudnnBackendFinalize(cudnnBackendDescriptor_t opaque) {
    desc_t *desc = opaque;
    if (hostcuda_call(__func__, "%d", desc ? (int)desc->type : -1)) return CUDNN_STATUS_INTERNAL_ERROR;
    if (!desc) return dnn_refuse(CUDNN_STATUS_BAD_PARAM_NULL_POINTER, "finalize");
    if (desc->final) return CUDNN_STATUS_SUCCESS;
    const cudnnStatus_t status = dnn_finalize(desc);
    desc->final = !status;
    return status;
}
