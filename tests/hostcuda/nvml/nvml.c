/*
 * What a program asks NVML for: versions, devices, memory, topology, who uses a device, and a
 * history of utilisation, temperature and power that a file plays. The toolkit here has no nvml.h, so the few types that are needed stand here, as NVML's
 * reference manual gives them.
 */
#include "hostcuda.h"
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))

enum {
    NVML_SUCCESS = 0,
    NVML_ERROR_UNINITIALIZED = 1,
    NVML_ERROR_INVALID_ARGUMENT = 2,
    NVML_ERROR_NOT_SUPPORTED = 3,
    NVML_ERROR_NOT_FOUND = 6,
    NVML_ERROR_INSUFFICIENT_SIZE = 7,
    NVML_ERROR_DRIVER_NOT_LOADED = 9,
    NVML_ERROR_GPU_IS_LOST = 15,
};
typedef int nvmlReturn_t;
typedef struct nvmlDevice_st {
    int index;
} * nvmlDevice_t;
typedef struct {
    unsigned long long total, free, used;
} nvmlMemory_t;
typedef struct {
    unsigned version;
    unsigned long long total, reserved, free, used;
} nvmlMemory_v2_t;
typedef struct {
    char busIdLegacy[16];
    unsigned domain, bus, device, pciDeviceId, pciSubSystemId;
    char busId[32];
} nvmlPciInfo_t;
typedef struct {
    unsigned pid;
    unsigned long long usedGpuMemory;
    unsigned gpuInstanceId, computeInstanceId;
} nvmlProcessInfo_t;

static struct nvmlDevice_st devices[8];
static _Atomic int started; /* calls of nvmlInit without their nvmlShutdown */

/* NVML sees all devices, whatever CUDA_VISIBLE_DEVICES is; so it does not ask the runtime. */
static int count(void) {
    const long long n = hostcuda_env("HOSTCUDA_DEVICES", 1);
    return n > 8 ? 8 : (int)n;
}
static const char *model(void) {
    const char *name = getenv("HOSTCUDA_MODEL");
    return name && strstr(name, "A100")   ? "NVIDIA A100-SXM4-80GB"
           : name && strstr(name, "B200") ? "NVIDIA B200"
                                          : "NVIDIA H200";
}
static unsigned long long memory_bytes(void) {
    const long long of_model = strstr(model(), "A100")   ? 85097971712
                               : strstr(model(), "B200") ? 191502745600
                                                         : 150754820096;
    return (unsigned long long)hostcuda_env("HOSTCUDA_MEMORY", of_model);
}

#define CALL(device)                                                                               \
    do {                                                                                           \
        if (hostcuda_call(__func__, "%s", "")) return 999;                                         \
        if (!started) return NVML_ERROR_UNINITIALIZED;                                             \
        if (!(device)) return NVML_ERROR_INVALID_ARGUMENT;                                         \
    } while (0)

/* -- prototypes, for NVML has no header here --------------------------------------------------- */
#pragma GCC diagnostic ignored "-Wmissing-prototypes"

EXPORT nvmlReturn_t nvmlInit_v2(void) {
    if (hostcuda_call(__func__, "%s", "")) return 999;
    if (!count()) return NVML_ERROR_DRIVER_NOT_LOADED;
    for (int i = 0; i < 8; i++) devices[i].index = i;
    started++;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlInit(void) {
    return nvmlInit_v2();
}
EXPORT nvmlReturn_t nvmlShutdown(void) {
    if (!started) return NVML_ERROR_UNINITIALIZED;
    started--;
    return NVML_SUCCESS;
}
EXPORT const char *nvmlErrorString(nvmlReturn_t result) {
    switch (result) {
    case NVML_SUCCESS: return "Success";
    case NVML_ERROR_UNINITIALIZED: return "Uninitialized";
    case NVML_ERROR_INVALID_ARGUMENT: return "Invalid Argument";
    case NVML_ERROR_NOT_SUPPORTED: return "Not Supported";
    case NVML_ERROR_NOT_FOUND: return "Not Found";
    case NVML_ERROR_INSUFFICIENT_SIZE: return "Insufficient Size";
    case NVML_ERROR_DRIVER_NOT_LOADED: return "Driver Not Loaded";
    case NVML_ERROR_GPU_IS_LOST: return "GPU is lost";
    default: return "Unknown Error";
    }
}

static nvmlReturn_t text(char *to, unsigned room, const char *from) {
    if (strlen(from) >= room) return NVML_ERROR_INSUFFICIENT_SIZE;
    strcpy(to, from);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlSystemGetDriverVersion(char *to, unsigned room) {
    CALL(to);
    return text(to, room, "580.65.06");
}
EXPORT nvmlReturn_t nvmlSystemGetNVMLVersion(char *to, unsigned room) {
    CALL(to);
    return text(to, room, "13.580.65.06");
}
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion_v2(int *version) {
    CALL(version);
    *version = (int)hostcuda_env("HOSTCUDA_DRIVER_VERSION", CUDART_VERSION);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlSystemGetCudaDriverVersion(int *version) {
    return nvmlSystemGetCudaDriverVersion_v2(version);
}

EXPORT nvmlReturn_t nvmlDeviceGetCount_v2(unsigned *n) {
    CALL(n);
    *n = (unsigned)count();
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByIndex_v2(unsigned index, nvmlDevice_t *out) {
    CALL(out);
    if ((int)index >= count()) return NVML_ERROR_INVALID_ARGUMENT;
    *out = &devices[index];
    return NVML_SUCCESS;
}
static void bus_id(int index, char out[32]) {
    snprintf(out, 32, "00000000:%02X:00.0", 0x10 + index);
}
/* "GPU-" and 16 bytes in hexadecimal digits, the same bytes as cudaGetDeviceProperties gives. */
static void uuid_of(int index, char out[80]) {
    int n = sprintf(out, "GPU-");
    for (int i = 0; i < 16; i++) {
        const unsigned byte = (unsigned char)(0x11 * (index + 1) ^ i * 7);
        n += sprintf(out + n, "%s%02x", i == 4 || i == 6 || i == 8 || i == 10 ? "-" : "", byte);
    }
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByPciBusId_v2(const char *wanted, nvmlDevice_t *out) {
    CALL(wanted && out);
    for (int i = 0; i < count(); i++) {
        char id[32];
        bus_id(i, id);
        /* the domain may have four digits */
        if (strcasecmp(id, wanted) && strcasecmp(id + 4, wanted)) continue;
        *out = &devices[i];
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}
EXPORT nvmlReturn_t nvmlDeviceGetHandleByUUID(const char *wanted, nvmlDevice_t *out) {
    CALL(wanted && out);
    for (int i = 0; i < count(); i++) {
        char id[80];
        uuid_of(i, id);
        if (strcmp(id, wanted)) continue;
        *out = &devices[i];
        return NVML_SUCCESS;
    }
    return NVML_ERROR_NOT_FOUND;
}
EXPORT nvmlReturn_t nvmlDeviceGetIndex(nvmlDevice_t device, unsigned *index) {
    CALL(device);
    *index = (unsigned)device->index;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMinorNumber(nvmlDevice_t device, unsigned *minor) {
    return nvmlDeviceGetIndex(device, minor);
}
EXPORT nvmlReturn_t nvmlDeviceGetName(nvmlDevice_t device, char *to, unsigned room) {
    CALL(device);
    return text(to, room, model());
}
EXPORT nvmlReturn_t nvmlDeviceGetUUID(nvmlDevice_t device, char *to, unsigned room) {
    char id[80];
    CALL(device);
    uuid_of(device->index, id);
    return text(to, room, id);
}
EXPORT nvmlReturn_t nvmlDeviceGetPciInfo_v3(nvmlDevice_t device, nvmlPciInfo_t *out) {
    CALL(device);
    *out = (nvmlPciInfo_t){.bus = 0x10 + (unsigned)device->index, .pciDeviceId = 0x233510de};
    bus_id(device->index, out->busId);
    snprintf(out->busIdLegacy, sizeof out->busIdLegacy, "%.15s", out->busId + 4);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetCudaComputeCapability(nvmlDevice_t device, int *major,
                                                       int *minor) {
    CALL(device);
    *major = strstr(model(), "A100") ? 8 : strstr(model(), "B200") ? 10 : 9;
    *minor = 0;
    return NVML_SUCCESS;
}

static unsigned long long used_bytes(void) {
    return (unsigned long long)hostcuda_env("HOSTCUDA_OTHERS", 0);
}

/*
 * HOSTCUDA_HISTORY names a file of lines "SEC GPU UTIL MEMORY TEMPERATURE POWER THROTTLE ECC NVLINK": what
 * the GPU says from SEC seconds after the first question on, until its next line. UTIL in percent,
 * MEMORY in MiB, POWER in watts, THROTTLE as NVML's mask; UTIL "lost": the GPU has fallen off the
 * bus.
 */
typedef struct {
    bool known, lost;
    double util, memory_mib, temperature, watts, joules, ecc, nvlink;
    unsigned long long throttle;
} moment_t;

static double seconds(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

static moment_t moment(int index) {
    static _Atomic double first;
    const char *path = getenv("HOSTCUDA_HISTORY");
    FILE *file = path ? fopen(path, "r") : NULL;
    moment_t at = {0};
    char line[256], util[16];
    double since = 0, none = 0;
    atomic_compare_exchange_strong(&first, &none, seconds());
    const double now = seconds() - first;
    while (file && fgets(line, sizeof line, file)) {
        moment_t next = {.known = true};
        int gpu = 0;
        double sec = 0;
        if (sscanf(line, "%lf %d %15s %lf %lf %lf %llx %lf %lf", &sec, &gpu, util, &next.memory_mib,
                   &next.temperature, &next.watts, &next.throttle, &next.ecc, &next.nvlink) < 3 ||
            gpu != index || sec > now)
            continue;
        next.lost = strcmp(util, "lost") == 0;
        next.util = strtod(util, NULL);
        next.joules = at.joules + at.watts * (sec - since);
        at = next;
        since = sec;
    }
    if (file) fclose(file);
    at.joules += at.watts * (now - since);
    return at;
}

#define ASK_HISTORY(out, value)                                                                    \
    do {                                                                                           \
        CALL(device);                                                                              \
        const moment_t at = moment(device->index);                                                 \
        if (at.lost) return NVML_ERROR_GPU_IS_LOST;                                                \
        if (!at.known) return NVML_ERROR_NOT_SUPPORTED;                                            \
        *(out) = (value);                                                                          \
        return NVML_SUCCESS;                                                                       \
    } while (0)

typedef struct {
    unsigned gpu, memory;
} nvmlUtilization_t;
EXPORT nvmlReturn_t nvmlDeviceGetUtilizationRates(nvmlDevice_t device, nvmlUtilization_t *out) {
    ASK_HISTORY(out, ((nvmlUtilization_t){(unsigned)at.util, (unsigned)at.util / 2}));
}
EXPORT nvmlReturn_t nvmlDeviceGetTemperature(nvmlDevice_t device, int sensor, unsigned *out) {
    (void)sensor;
    ASK_HISTORY(out, (unsigned)at.temperature);
}
EXPORT nvmlReturn_t nvmlDeviceGetPowerUsage(nvmlDevice_t device, unsigned *milliwatts) {
    ASK_HISTORY(milliwatts, (unsigned)(1000 * at.watts));
}
EXPORT nvmlReturn_t nvmlDeviceGetTotalEnergyConsumption(nvmlDevice_t device,
                                                        unsigned long long *millijoules) {
    ASK_HISTORY(millijoules, (unsigned long long)(1000 * at.joules));
}
/* A GPU that is slowed runs at half its clock. */
EXPORT nvmlReturn_t nvmlDeviceGetClockInfo(nvmlDevice_t device, int type, unsigned *mhz) {
    ASK_HISTORY(mhz, type == 2 ? 3201 : at.throttle & ~7ull ? 990 : 1980);
}
EXPORT nvmlReturn_t nvmlDeviceGetCurrentClocksThrottleReasons(nvmlDevice_t device,
                                                              unsigned long long *mask) {
    ASK_HISTORY(mask, at.throttle);
}
EXPORT nvmlReturn_t nvmlDeviceGetTotalEccErrors(nvmlDevice_t device, int type, int counter,
                                                unsigned long long *out) {
    (void)counter;
    ASK_HISTORY(out, type == 1 ? (unsigned long long)at.ecc : 0);
}
/* Four links; all errors are recoveries of the first one. */
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkErrorCounter(nvmlDevice_t device, unsigned link, int counter,
                                                    unsigned long long *out) {
    if (link >= 4) return NVML_ERROR_INVALID_ARGUMENT;
    ASK_HISTORY(out, link == 0 && counter == 1 ? (unsigned long long)at.nvlink : 0);
}

EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo(nvmlDevice_t device, nvmlMemory_t *out) {
    CALL(device);
    const moment_t at = moment(device->index);
    const unsigned long long used =
        at.known ? (unsigned long long)(at.memory_mib * 0x1p20) : used_bytes();
    if (at.lost) return NVML_ERROR_GPU_IS_LOST;
    *out = (nvmlMemory_t){memory_bytes(), memory_bytes() - used, used};
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMemoryInfo_v2(nvmlDevice_t device, nvmlMemory_v2_t *out) {
    CALL(device);
    if (out->version != (sizeof *out | 2u << 24)) return NVML_ERROR_INVALID_ARGUMENT;
    *out = (nvmlMemory_v2_t){out->version, memory_bytes(), 0, memory_bytes() - used_bytes(),
                             used_bytes()};
    return NVML_SUCCESS;
}
/* HOSTCUDA_OTHERS are of one process with number 1. */
EXPORT nvmlReturn_t nvmlDeviceGetComputeRunningProcesses_v3(nvmlDevice_t device, unsigned *n,
                                                            nvmlProcessInfo_t *list) {
    CALL(device);
    const unsigned room = *n;
    *n = used_bytes() > 0;
    if (*n > room) return NVML_ERROR_INSUFFICIENT_SIZE;
    if (*n) list[0] = (nvmlProcessInfo_t){1, used_bytes(), ~0u, ~0u};
    return NVML_SUCCESS;
}

/* HOSTCUDA_MIG=1: partitioned. */
EXPORT nvmlReturn_t nvmlDeviceGetMigMode(nvmlDevice_t device, unsigned *now, unsigned *pending) {
    CALL(device);
    *now = *pending = hostcuda_env("HOSTCUDA_MIG", 0) != 0;
    return NVML_SUCCESS;
}
/* The core of this device in HOSTCUDA_NEAR=CORE,...; the last one also of those after it. */
static long listed_core(int index) {
    const char *list = getenv("HOSTCUDA_NEAR");
    if (!list || !*list) return -1;
    for (const char *next; index > 0 && (next = strchr(list, ',')); index--) list = next + 1;
    return strtol(list, NULL, 10);
}

/* The cores of this machine, half of them near the first half of the devices (HOSTCUDA_NUMA=1),
 * else all near all. */
static void near_cores(int index, unsigned words, unsigned long *set) {
    const long cores = sysconf(_SC_NPROCESSORS_ONLN), near = listed_core(index);
    if (near >= 0) {
        memset(set, 0, words * sizeof *set);
        set[near / 64] |= 1ul << near % 64;
        return;
    }
    const bool split = hostcuda_env("HOSTCUDA_NUMA", 0) && cores > 1;
    const long low = split && index >= (count() + 1) / 2 ? cores / 2 : 0,
               high = split && !low ? cores / 2 : cores;
    memset(set, 0, words * sizeof *set);
    for (long c = low; c < high && c / 64 < (long)words; c++) set[c / 64] |= 1ul << c % 64;
}
EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinity(nvmlDevice_t device, unsigned words,
                                             unsigned long *set) {
    CALL(device);
    near_cores(device->index, words, set);
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetCpuAffinityWithinScope(nvmlDevice_t device, unsigned words,
                                                        unsigned long *set, unsigned scope) {
    (void)scope;
    return nvmlDeviceGetCpuAffinity(device, words, set);
}
EXPORT nvmlReturn_t nvmlDeviceGetNumaNodeId(nvmlDevice_t device, unsigned *node) {
    CALL(device);
    *node = hostcuda_env("HOSTCUDA_NUMA", 0) && device->index >= (count() + 1) / 2;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetMemoryAffinity(nvmlDevice_t device, unsigned words,
                                                unsigned long *set, unsigned scope) {
    unsigned node = 0;
    (void)scope;
    const nvmlReturn_t result = nvmlDeviceGetNumaNodeId(device, &node);
    memset(set, 0, words * sizeof *set);
    set[0] = 1ul << node;
    return result;
}

/* Eighteen links are up where there are two devices or more. */
EXPORT nvmlReturn_t nvmlDeviceGetNvLinkState(nvmlDevice_t device, unsigned link, unsigned *active) {
    CALL(device);
    if (link >= 18) return NVML_ERROR_INVALID_ARGUMENT;
    *active = count() > 1;
    return NVML_SUCCESS;
}
/* NVML_P2P_STATUS_OK, or NOT_SUPPORTED across halves with HOSTCUDA_NO_P2P=1 */
EXPORT nvmlReturn_t nvmlDeviceGetP2PStatus(nvmlDevice_t a, nvmlDevice_t b, unsigned index,
                                           unsigned *status) {
    (void)index;
    CALL(a && b);
    const int half = (count() + 1) / 2;
    *status =
        hostcuda_env("HOSTCUDA_NO_P2P", 0) && (a->index >= half) != (b->index >= half) ? 4 : 0;
    return NVML_SUCCESS;
}
/* NVML_TOPOLOGY_SINGLE, or NODE across halves */
EXPORT nvmlReturn_t nvmlDeviceGetTopologyCommonAncestor(nvmlDevice_t a, nvmlDevice_t b,
                                                        unsigned *level) {
    CALL(a && b);
    const int half = (count() + 1) / 2;
    *level = hostcuda_env("HOSTCUDA_NUMA", 0) && (a->index >= half) != (b->index >= half) ? 50 : 10;
    return NVML_SUCCESS;
}
EXPORT nvmlReturn_t nvmlDeviceGetPersistenceMode(nvmlDevice_t device, unsigned *mode) {
    CALL(device);
    *mode = 1;
    return NVML_SUCCESS;
}
