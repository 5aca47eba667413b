/* Devices: their number and kind come by environment. */
#include "cudart_int.h"
#include <cuda_profiler_api.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
    const char *name;
    int major, minor, processors, shared_optin;
    long long l2_bytes, memory_bytes;
    int clock_khz, memory_clock_khz, bus_bits;
} model_t;

static const model_t models[] = {
    {"NVIDIA H200", 9, 0, 132, 232448, 62914560, 150109880320, 1980000, 3201000, 6144},
    {"Tesla T4", 7, 5, 40, 65536, 4194304, 15640000000, 1590000, 5001000, 256},
    {"Tesla V100-SXM2-16GB", 7, 0, 80, 98304, 6291456, 16900000000, 1530000, 877000, 4096},
    {"NVIDIA A100-SXM4-80GB", 8, 0, 108, 166912, 41943040, 85097971712, 1410000, 1593000, 5120},
    {"NVIDIA B200", 10, 0, 148, 232448, 132120576, 191502745600, 1965000, 3996000, 8192},
};

static int visible[MAX_DEVICES], visible_count = -1;
static bool context[MAX_DEVICES];
static __thread int current;

static const model_t *model(void) {
    const char *name = getenv("HOSTCUDA_MODEL");
    for (size_t i = 0; name && i < COUNT(models); i++)
        if (strstr(models[i].name, name)) return &models[i];
    return &models[0];
}

/* HOSTCUDA_DEVICES are there; CUDA_VISIBLE_DEVICES chooses among them by number. */
static void look(void) {
    long long all = hostcuda_env("HOSTCUDA_DEVICES", 1);
    const char *list = getenv("CUDA_VISIBLE_DEVICES");
    if (all > MAX_DEVICES) all = MAX_DEVICES;
    visible_count = 0;
    if (!list)
        for (int i = 0; i < all; i++) visible[visible_count++] = i;
    while (list && *list) {
        char *end;
        const long number = strtol(list, &end, 10);
        if (end == list || number < 0 || number >= all || visible_count == MAX_DEVICES) break;
        visible[visible_count++] = (int)number;
        list = *end == ',' ? end + 1 : end;
    }
}

int hc_device_count(void) {
    if (visible_count < 0) look();
    return visible_count;
}
int hc_current(void) {
    return current;
}
cudaError_t hc_device_check(int device) {
    return device >= 0 && device < hc_device_count() ? cudaSuccess : cudaErrorInvalidDevice;
}
void hc_context_open(int device) {
    context[device] = true;
}

/* What other libraries took. */
static size_t taken[MAX_DEVICES];
EXPORT void hostcuda_take(size_t bytes) {
    taken[current] += bytes;
}

static size_t memory_total(void) {
    return (size_t)hostcuda_env("HOSTCUDA_MEMORY", model()->memory_bytes);
}
size_t hc_memory_free(int device) {
    const size_t total = memory_total(), used = hc_memory_used(device) + taken[device];
    const size_t own = context[device] ? (size_t)hostcuda_env("HOSTCUDA_CONTEXT", 500LL << 20) : 0;
    const size_t others = (size_t)hostcuda_env("HOSTCUDA_OTHERS", 0);
    return total > used + own + others ? total - used - own - others : 0;
}

EXPORT cudaError_t cudaGetDeviceCount(int *count) {
    ENTER("%s", "");
    *count = hc_device_count();
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaGetDevice(int *device) {
    ENTER("%s", "");
    *device = current;
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaSetDevice(int device) {
    ENTER("%d", device);
    const cudaError_t error = hc_device_check(device);
    if (!error) {
        current = device;
        hc_context_open(device);
    }
    LEAVE(error);
}
EXPORT cudaError_t cudaInitDevice(int device, unsigned device_flags, unsigned flags) {
    (void)device_flags, (void)flags;
    ENTER("%d", device);
    const cudaError_t error = hc_device_check(device);
    if (!error) hc_context_open(device);
    LEAVE(error);
}
EXPORT cudaError_t cudaSetDeviceFlags(unsigned flags) {
    ENTER("%u", flags);
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaGetDeviceFlags(unsigned *flags) {
    ENTER("%s", "");
    *flags = 0;
    LEAVE(cudaSuccess);
}

static void identify(int device, unsigned char uuid[16]) {
    for (int i = 0; i < 16; i++) uuid[i] = (unsigned char)(0x11 * (visible[device] + 1) ^ i * 7);
}

EXPORT cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *prop, int device) {
    ENTER("%d", device);
    const model_t *m = model();
    if (hc_device_check(device)) LEAVE(cudaErrorInvalidDevice);
    memset(prop, 0, sizeof *prop);
    snprintf(prop->name, sizeof prop->name, "%s", m->name);
    identify(device, (unsigned char *)&prop->uuid);
    prop->totalGlobalMem = memory_total();
    prop->sharedMemPerBlock = 49152;
    prop->sharedMemPerBlockOptin = (size_t)m->shared_optin;
    prop->sharedMemPerMultiprocessor = (size_t)m->shared_optin + 1024;
    prop->reservedSharedMemPerBlock = 1024;
    prop->regsPerBlock = prop->regsPerMultiprocessor = 65536;
    prop->warpSize = 32;
    prop->memPitch = 2147483647;
    prop->maxThreadsPerBlock = 1024;
    prop->maxThreadsPerMultiProcessor = 2048;
    prop->maxBlocksPerMultiProcessor = 32;
    prop->maxThreadsDim[0] = prop->maxThreadsDim[1] = 1024;
    prop->maxThreadsDim[2] = 64;
    prop->maxGridSize[0] = 2147483647;
    prop->maxGridSize[1] = prop->maxGridSize[2] = 65535;
    prop->totalConstMem = 65536;
    prop->major = m->major;
    prop->minor = m->minor;
    prop->textureAlignment = 512;
    prop->multiProcessorCount = m->processors;
    prop->unifiedAddressing = prop->managedMemory = prop->concurrentKernels = 1;
    prop->asyncEngineCount = 3;
    prop->memoryBusWidth = m->bus_bits;
    prop->l2CacheSize = (int)m->l2_bytes;
    prop->streamPrioritiesSupported = 1;
    prop->canMapHostMemory = prop->hostRegisterSupported = 1;
    prop->cooperativeLaunch = 1;
    prop->ECCEnabled = 1;
    prop->pciBusID = 0x10 + visible[device];
    LEAVE(cudaSuccess);
}

EXPORT cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attribute, int device) {
    ENTER("%d %d", (int)attribute, device);
    const model_t *m = model();
    if (hc_device_check(device)) LEAVE(cudaErrorInvalidDevice);
    switch (attribute) {
    case cudaDevAttrMaxThreadsPerBlock: *value = 1024; break;
    case cudaDevAttrMaxBlockDimX: *value = 1024; break;
    case cudaDevAttrMaxGridDimX: *value = 2147483647; break;
    case cudaDevAttrMaxGridDimY: *value = 65535; break;
    case cudaDevAttrMaxSharedMemoryPerBlock: *value = 49152; break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin: *value = m->shared_optin; break;
    case cudaDevAttrReservedSharedMemoryPerBlock: *value = 1024; break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor: *value = m->shared_optin + 1024; break;
    case cudaDevAttrMaxRegistersPerBlock: *value = 65536; break;
    case cudaDevAttrMaxRegistersPerMultiprocessor: *value = 65536; break;
    case cudaDevAttrMaxThreadsPerMultiProcessor: *value = 2048; break;
    case cudaDevAttrMaxBlocksPerMultiprocessor: *value = 32; break;
    case cudaDevAttrWarpSize: *value = 32; break;
    case cudaDevAttrClockRate: *value = m->clock_khz; break;
    case cudaDevAttrMemoryClockRate: *value = m->memory_clock_khz; break;
    case cudaDevAttrGlobalMemoryBusWidth: *value = m->bus_bits; break;
    case cudaDevAttrL2CacheSize: *value = (int)m->l2_bytes; break;
    case cudaDevAttrMultiProcessorCount: *value = m->processors; break;
    case cudaDevAttrComputeCapabilityMajor: *value = m->major; break;
    case cudaDevAttrComputeCapabilityMinor: *value = m->minor; break;
    case cudaDevAttrPciBusId: *value = 0x10 + visible[device]; break;
    case cudaDevAttrPciDeviceId: *value = 0; break;
    case cudaDevAttrPciDomainId: *value = 0; break;
    case cudaDevAttrAsyncEngineCount: *value = 3; break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrManagedMemory:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrHostRegisterSupported:
    case cudaDevAttrCooperativeLaunch:
    case cudaDevAttrMemoryPoolsSupported:
    case cudaDevAttrEccEnabled: *value = 1; break;
    case cudaDevAttrIntegrated:
    case cudaDevAttrComputeMode:
    case cudaDevAttrTccDriver:
    case cudaDevAttrPageableMemoryAccess:
    case cudaDevAttrConcurrentManagedAccess:
    case cudaDevAttrCanUseHostPointerForRegisteredMem: *value = 0; break;
    default:
        hostcuda_refuse("cudaDeviceGetAttribute", "attribute %d is not in the fake",
                        (int)attribute);
        LEAVE(cudaErrorInvalidValue);
    }
    LEAVE(cudaSuccess);
}

EXPORT cudaError_t cudaDeviceGetPCIBusId(char *text, int length, int device) {
    ENTER("%d", device);
    if (hc_device_check(device)) LEAVE(cudaErrorInvalidDevice);
    if (length < 13) LEAVE(cudaErrorInvalidValue);
    snprintf(text, (size_t)length, "0000:%02X:00.0", 0x10 + visible[device]);
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaDeviceGetByPCIBusId(int *device, const char *text) {
    ENTER("%s", text);
    for (int i = 0; i < hc_device_count(); i++) {
        char name[16];
        snprintf(name, sizeof name, "0000:%02X:00.0", 0x10 + visible[i]);
        if (strcmp(name, text)) continue;
        *device = i;
        LEAVE(cudaSuccess);
    }
    LEAVE(cudaErrorInvalidValue);
}

EXPORT cudaError_t cudaMemGetInfo(size_t *free_bytes, size_t *total_bytes) {
    ENTER("%s", "");
    hc_context_open(current);
    *free_bytes = hc_memory_free(current);
    *total_bytes = memory_total();
    LEAVE(cudaSuccess);
}

EXPORT cudaError_t cudaDeviceCanAccessPeer(int *can, int device, int peer) {
    ENTER("%d %d", device, peer);
    if (hc_device_check(device) || hc_device_check(peer)) LEAVE(cudaErrorInvalidDevice);
    *can = device != peer;
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned flags) {
    ENTER("%d %u", peer, flags);
    LEAVE(hc_device_check(peer));
}
EXPORT cudaError_t cudaDeviceGetStreamPriorityRange(int *least, int *greatest) {
    ENTER("%s", "");
    *least = 0;
    *greatest = -5;
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaDeviceSetLimit(enum cudaLimit limit, size_t value) {
    ENTER("%d %zu", (int)limit, value);
    LEAVE(cudaSuccess);
}
/* For profilers, of which there are none here. */
EXPORT cudaError_t cudaProfilerStart(void) {
    ENTER("%s", "");
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaProfilerStop(void) {
    ENTER("%s", "");
    LEAVE(cudaSuccess);
}
EXPORT cudaError_t cudaDeviceReset(void) {
    ENTER_UNSAFE("%s", "");
    cudaError_t error = hc_drain(NULL);
    hc_memory_reset(current);
    context[current] = false;
    LEAVE(error);
}
EXPORT cudaError_t cudaRuntimeGetVersion(int *version) {
    *version = (int)hostcuda_env("HOSTCUDA_RUNTIME_VERSION", CUDART_VERSION);
    return cudaSuccess;
}
/* 0 where there is no driver, as the real one says. */
EXPORT cudaError_t cudaDriverGetVersion(int *version) {
    *version = hc_device_count() ? (int)hostcuda_env("HOSTCUDA_DRIVER_VERSION", CUDART_VERSION) : 0;
    return cudaSuccess;
}
