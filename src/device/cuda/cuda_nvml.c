/*
 * GPUs as NVML sees them, which opens none. The toolkit has no nvml.h everywhere, so the few types
 * that are needed are declared here after NVML's reference manual.
 */
#include "cuda_int.h"
#include "base/cores.h"
#include "base/str.h"
#include <dlfcn.h>
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#define LIBRARY "libnvidia-ml.so.1"

typedef struct nvml_device *nvml_device_t;
typedef struct {
    unsigned long long total, free, used;
} nvml_memory_t;
typedef struct {
    unsigned pid;
    unsigned long long used_bytes;
    unsigned gpu_instance, compute_instance;
} nvml_process_t;
typedef struct {
    unsigned gpu, memory; /* percent */
} nvml_utilization_t;
typedef struct {
    char legacy_id[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
} nvml_pci_t;

/* Every function returns 0, or a number that nvmlErrorString explains. */
#define NVML_REQUIRED(X)                                                                           \
    X(int, Init_v2, (void))                                                                        \
    X(int, Shutdown, (void))                                                                       \
    X(const char *, ErrorString, (int))                                                            \
    X(int, DeviceGetCount_v2, (unsigned *))                                                        \
    X(int, DeviceGetHandleByIndex_v2, (unsigned, nvml_device_t *))
/* A driver may lack some of these: what they tell is then unknown. */
#define NVML_OPTIONAL(X)                                                                           \
    X(int, SystemGetDriverVersion, (char *, unsigned))                                             \
    X(int, SystemGetCudaDriverVersion, (int *))                                                    \
    X(int, DeviceGetName, (nvml_device_t, char *, unsigned))                                       \
    X(int, DeviceGetUUID, (nvml_device_t, char *, unsigned))                                       \
    X(int, DeviceGetCudaComputeCapability, (nvml_device_t, int *, int *))                          \
    X(int, DeviceGetMemoryInfo, (nvml_device_t, nvml_memory_t *))                                  \
    X(int, DeviceGetMigMode, (nvml_device_t, unsigned *, unsigned *))                              \
    X(int, DeviceGetComputeRunningProcesses_v3, (nvml_device_t, unsigned *, nvml_process_t *))     \
    X(int, DeviceGetHandleByPciBusId_v2, (const char *, nvml_device_t *))                          \
    X(int, DeviceGetCpuAffinity, (nvml_device_t, unsigned, unsigned long *))                       \
    X(int, DeviceGetNvLinkState, (nvml_device_t, unsigned, unsigned *))                            \
    X(int, DeviceGetP2PStatus, (nvml_device_t, nvml_device_t, unsigned, unsigned *))               \
    X(int, DeviceGetPciInfo_v3, (nvml_device_t, nvml_pci_t *))                                     \
    X(int, DeviceGetUtilizationRates, (nvml_device_t, nvml_utilization_t *))                       \
    X(int, DeviceGetTemperature, (nvml_device_t, int, unsigned *))                                 \
    X(int, DeviceGetPowerUsage, (nvml_device_t, unsigned *))                                       \
    X(int, DeviceGetTotalEnergyConsumption, (nvml_device_t, unsigned long long *))                 \
    X(int, DeviceGetClockInfo, (nvml_device_t, int, unsigned *))                                   \
    X(int, DeviceGetCurrentClocksThrottleReasons, (nvml_device_t, unsigned long long *))           \
    X(int, DeviceGetTotalEccErrors, (nvml_device_t, int, int, unsigned long long *))               \
    X(int, DeviceGetNvLinkErrorCounter, (nvml_device_t, unsigned, int, unsigned long long *))

typedef struct {
#define NVML_MEMBER(type, name, args) type(*name) args;
    NVML_REQUIRED(NVML_MEMBER)
    NVML_OPTIONAL(NVML_MEMBER) /* NULL: missing; called by ASK */
#undef NVML_MEMBER
} nvml_t;

enum { FUNCTION_NOT_FOUND = 13 }; /* nvmlReturn_t */
#define ASK(nvml, name, ...) ((nvml)->name ? (nvml)->name(__VA_ARGS__) : FUNCTION_NOT_FOUND)
/* nvmlProcessInfo_t: the driver does not tell this memory. */
#define NOT_AVAILABLE (~0ull)

/* NULL, or why NVML cannot be used. */
static const char *nvml_load(nvml_t *nvml) {
    static char reason[256];
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) return "none: " LIBRARY " is missing, which comes with the driver";
#define NVML_FIND(type, name, args) nvml->name = (type(*) args)dlsym(library, "nvml" #name);
#define NVML_CHECK(type, name, args)                                                               \
    if (!nvml->name) return "its NVML is too old: nvml" #name " is missing";
    NVML_REQUIRED(NVML_FIND)
    NVML_OPTIONAL(NVML_FIND)
    NVML_REQUIRED(NVML_CHECK)
#undef NVML_CHECK
#undef NVML_FIND
    const int error = nvml->Init_v2();
    if (error == 0) return NULL;
    snprintf(reason, sizeof reason, "none: NVML: %.200s", nvml->ErrorString(error));
    return reason;
}

static void add_processes(const nvml_t *nvml, nvml_device_t gpu, char *text, size_t bytes) {
    nvml_process_t list[8];
    unsigned count = sizeof list / sizeof *list;
    int used = 0;
    if (ASK(nvml, DeviceGetComputeRunningProcesses_v3, gpu, &count, list) != 0) return;
    for (unsigned i = 0; i < count && used >= 0 && (size_t)used < bytes; i++) {
        char memory[32] = "";
        if (list[i].used_bytes != NOT_AVAILABLE)
            tr_snprintf(memory, sizeof memory, " (%.1f GiB)", (double)list[i].used_bytes / 0x1p30);
        used +=
            snprintf(text + used, bytes - (size_t)used, ", used by pid %u%s", list[i].pid, memory);
    }
}

/* -- where a GPU is ---------------------------------------------------------------------------- */

enum { MOST_GPUS = 32, MOST_LINKS = 18, WORD_BITS = 64 };
enum { P2P_READ = 0, P2P_NVLINK = 2 }; /* nvmlGpuP2PCapsIndex_t */

/* None if unknown. */
static void find_cores(const nvml_t *nvml, nvml_device_t gpu, cpu_set_t *out) {
    unsigned long words[CPU_SETSIZE / WORD_BITS] = {0};
    CPU_ZERO(out);
    if (ASK(nvml, DeviceGetCpuAffinity, gpu, CPU_SETSIZE / WORD_BITS, words) != 0) return;
    for (size_t core = 0; core < CPU_SETSIZE; core++)
        if (words[core / WORD_BITS] >> core % WORD_BITS & 1) CPU_SET(core, out);
}

/* Writes "18"; "?" if unknown. */
static void format_links(const nvml_t *nvml, nvml_device_t gpu, char *text, size_t bytes) {
    unsigned links = 0;
    for (unsigned i = 0; i < MOST_LINKS; i++) {
        unsigned active = 0;
        if (ASK(nvml, DeviceGetNvLinkState, gpu, i, &active) == 0 && active) links++;
    }
    snprintf(text, bytes, nvml->DeviceGetNvLinkState ? "%u" : "?", links);
}

/* The pairs that cannot read each other's memory, and how many of the others use NVLink. */
static void report_pairs(const nvml_t *nvml, unsigned count, tr_report_row_fn row, void *self) {
    nvml_device_t gpu[MOST_GPUS];
    char text[512];
    int pairs = 0, nvlink = 0, used = 0, without = 0;
    char list[384] = "";
    if (!nvml->DeviceGetP2PStatus) return;
    if (count > MOST_GPUS) count = MOST_GPUS;
    for (unsigned i = 0; i < count; i++)
        if (nvml->DeviceGetHandleByIndex_v2(i, &gpu[i]) != 0) return;
    for (unsigned i = 0; i < count; i++)
        for (unsigned j = i + 1; j < count; j++, pairs++) {
            unsigned status = 0;
            if (ASK(nvml, DeviceGetP2PStatus, gpu[i], gpu[j], P2P_NVLINK, &status) == 0 &&
                status == 0)
                nvlink++;
            if (ASK(nvml, DeviceGetP2PStatus, gpu[i], gpu[j], P2P_READ, &status) == 0 &&
                status == 0)
                continue;
            without++;
            if (used >= 0 && (size_t)used < sizeof list)
                used += snprintf(list + used, sizeof list - (size_t)used, "%s%u-%u",
                                 used ? ", " : "", i, j);
        }
    if (pairs == 0) return;
    snprintf(text, sizeof text, "%d of %d pairs of GPUs (%d by NVLink)%s%s", pairs - without, pairs,
             nvlink, without ? "; not " : "", list);
    row(self, "P2P", text);
}

void tr_cuda_nvml_place(const tr_device_t *device, tr_device_place_t *out) {
    nvml_t nvml;
    nvml_device_t gpu = NULL;
    unsigned count = 0;
    if (cudaGetDeviceCount(&out->visible) != cudaSuccess) out->visible = 0;
    if (nvml_load(&nvml)) return;
    if (ASK(&nvml, DeviceGetHandleByPciBusId_v2, device->bus_id, &gpu) == 0)
        find_cores(&nvml, gpu, &out->near_cores);
    if (nvml.DeviceGetCount_v2(&count) == 0) out->siblings = (int)count;
    (void)nvml.Shutdown();
}

void tr_cuda_nvml_near_cores(int count, cpu_set_t *out) {
    nvml_t nvml;
    nvml_device_t gpu = NULL;
    char bus_id[32];
    if (nvml_load(&nvml)) return;
    for (int i = 0; i < count; i++)
        if (cudaDeviceGetPCIBusId(bus_id, sizeof bus_id, i) == cudaSuccess &&
            ASK(&nvml, DeviceGetHandleByPciBusId_v2, bus_id, &gpu) == 0)
            find_cores(&nvml, gpu, &out[i]);
    (void)nvml.Shutdown();
}

/* -- samples ----------------------------------------------------------------------------------- */

enum { SENSOR_GPU = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2, ECC_UNCORRECTED = 1, ECC_VOLATILE = 0 };
/* nvmlNvLinkErrorCounter_t */
enum { NVLINK_RECOVERIES = 1, NVLINK_CRC_DATA = 3 };
enum { REASON_SLOWDOWN = 0x08, REASON_HOT = 0x20 | 0x40, REASON_POWER_BRAKE = 0x80 };

static nvml_t sampled; /* never shut down: to initialise takes longer than a sample may */
static bool can_sample;

static void nvml_open_to_sample(void) {
    can_sample = nvml_load(&sampled) == NULL;
}

/* NaN without NVLinks. */
static double nvml_link_errors(const nvml_t *nvml, nvml_device_t gpu) {
    double sum = NAN;
    for (unsigned link = 0; link < MOST_LINKS; link++)
        for (int counter = NVLINK_RECOVERIES; counter <= NVLINK_CRC_DATA; counter++) {
            unsigned long long count = 0;
            if (ASK(nvml, DeviceGetNvLinkErrorCounter, gpu, link, counter, &count) == 0)
                sum = (isnan(sum) ? 0 : sum) + (double)count;
        }
    return sum;
}

static void nvml_sample_gpu(nvml_device_t gpu, tr_gpu_sample_t *out) {
    const nvml_t *nvml = &sampled;
    nvml_utilization_t util = {0};
    nvml_memory_t memory = {0};
    unsigned mig = 0, pending = 0, value = 0;
    unsigned long long count = 0;
    (void)ASK(nvml, DeviceGetName, gpu, out->name, sizeof out->name);
    (void)ASK(nvml, DeviceGetMigMode, gpu, &mig, &pending);
    if (!mig && ASK(nvml, DeviceGetUtilizationRates, gpu, &util) == 0) out->util = util.gpu / 100.0;
    if (ASK(nvml, DeviceGetMemoryInfo, gpu, &memory) == 0) {
        out->used_bytes = (double)memory.used;
        out->total_bytes = (double)memory.total;
    }
    if (ASK(nvml, DeviceGetTemperature, gpu, SENSOR_GPU, &value) == 0) out->celsius = value;
    if (ASK(nvml, DeviceGetPowerUsage, gpu, &value) == 0) out->watts = 1e-3 * value;
    if (ASK(nvml, DeviceGetTotalEnergyConsumption, gpu, &count) == 0)
        out->joules = 1e-3 * (double)count;
    if (ASK(nvml, DeviceGetClockInfo, gpu, CLOCK_SM, &value) == 0) out->sm_hertz = 1e6 * value;
    if (ASK(nvml, DeviceGetClockInfo, gpu, CLOCK_MEMORY, &value) == 0)
        out->memory_hertz = 1e6 * value;
    if (ASK(nvml, DeviceGetTotalEccErrors, gpu, ECC_UNCORRECTED, ECC_VOLATILE, &count) == 0)
        out->ecc_errors = (double)count;
    out->nvlink_errors = nvml_link_errors(nvml, gpu);
    if (ASK(nvml, DeviceGetCurrentClocksThrottleReasons, gpu, &count) == 0)
        out->slowed = (count & REASON_HOT ? TR_GPU_HOT : 0u) |
                      (count & REASON_SLOWDOWN ? TR_GPU_SLOWED : 0u) |
                      (count & REASON_POWER_BRAKE ? TR_GPU_POWER_BRAKE : 0u);
}

int tr_cuda_nvml_sample(const char *bus_id, tr_gpu_sample_t *out, int most) {
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    unsigned count = 1;
    int used = 0;
    pthread_once(&once, nvml_open_to_sample);
    if (!can_sample || (!bus_id && sampled.DeviceGetCount_v2(&count) != 0)) return 0;
    for (unsigned i = 0; i < count && used < most; i++) {
        nvml_device_t gpu = NULL;
        nvml_pci_t pci = {0};
        tr_gpu_sample_t *sample = &out[used];
        if ((bus_id ? ASK(&sampled, DeviceGetHandleByPciBusId_v2, bus_id, &gpu)
                    : sampled.DeviceGetHandleByIndex_v2(i, &gpu)) != 0)
            continue;
        *sample = (tr_gpu_sample_t){.name = "?",
                                    .index = (int)i,
                                    .util = NAN,
                                    .used_bytes = NAN,
                                    .total_bytes = NAN,
                                    .celsius = NAN,
                                    .watts = NAN,
                                    .joules = NAN,
                                    .sm_hertz = NAN,
                                    .memory_hertz = NAN,
                                    .ecc_errors = NAN,
                                    .nvlink_errors = NAN};
        if (ASK(&sampled, DeviceGetPciInfo_v3, gpu, &pci) == 0) /* CUDA's form: a shorter domain */
            snprintf(sample->bus_id, sizeof sample->bus_id, "%04x:%02x:%02x.0", pci.domain, pci.bus,
                     pci.device);
        nvml_sample_gpu(gpu, sample);
        used++;
    }
    return used;
}

/* -- the report -------------------------------------------------------------------------------- */

static void report_gpu(const nvml_t *nvml, unsigned index, tr_report_row_fn row, void *self) {
    char label[32], name[96] = "?", uuid[96] = "?", users[512] = "", cores[256], links[16],
                    text[1024];
    int major = 0, minor = 0;
    unsigned mig = 0, pending = 0;
    nvml_memory_t memory = {0};
    nvml_device_t gpu = NULL;
    cpu_set_t near;
    const int error = nvml->DeviceGetHandleByIndex_v2(index, &gpu);
    snprintf(label, sizeof label, "GPU %u", index);
    if (error != 0) {
        row(self, label, nvml->ErrorString(error));
        return;
    }
    (void)ASK(nvml, DeviceGetName, gpu, name, sizeof name);
    (void)ASK(nvml, DeviceGetUUID, gpu, uuid, sizeof uuid);
    (void)ASK(nvml, DeviceGetCudaComputeCapability, gpu, &major, &minor);
    (void)ASK(nvml, DeviceGetMemoryInfo, gpu, &memory);
    (void)ASK(nvml, DeviceGetMigMode, gpu, &mig, &pending);
    add_processes(nvml, gpu, users, sizeof users);
    tr_snprintf(text, sizeof text, "%s, %d.%d, %s, %.1f of %.1f GiB free%s%s", name, major, minor,
                uuid, (double)memory.free / 0x1p30, (double)memory.total / 0x1p30,
                mig ? ", partitioned (MIG)" : "", users);
    row(self, label, text);
    find_cores(nvml, gpu, &near);
    (void)tr_cores_format(&near, cores, sizeof cores);
    format_links(nvml, gpu, links, sizeof links);
    snprintf(text, sizeof text, "near cores %s; %s NVLinks up", *cores ? cores : "?", links);
    row(self, "", text);
}

/* A launcher that gives each rank a GPU by hiding the others keeps NCCL from P2P. */
static void report_hidden(unsigned count, tr_report_row_fn row, void *self) {
    char text[160];
    int visible = 0;
    if (cudaGetDeviceCount(&visible) != cudaSuccess || visible >= (int)count) {
        (void)cudaGetLastError();
        return;
    }
    snprintf(text, sizeof text,
             "%d of %u GPUs (CUDA_VISIBLE_DEVICES, --gpus-per-task); NCCL needs all of a job's",
             visible, count);
    row(self, "visible", text);
}

void tr_cuda_nvml_report(tr_report_row_fn row, void *self) {
    nvml_t nvml;
    unsigned count = 0;
    int cuda = 0;
    char version[64] = "?", text[128];
    const char *reason = nvml_load(&nvml);
    if (reason) {
        row(self, "driver", reason);
        return;
    }
    (void)ASK(&nvml, SystemGetDriverVersion, version, sizeof version);
    (void)ASK(&nvml, SystemGetCudaDriverVersion, &cuda);
    snprintf(text, sizeof text, "%s, for CUDA up to %s", version, tr_cuda_version(cuda).text);
    row(self, "driver", text);
    (void)nvml.DeviceGetCount_v2(&count);
    for (unsigned i = 0; i < count; i++) report_gpu(&nvml, i, row, self);
    report_pairs(&nvml, count, row, self);
    report_hidden(count, row, self);
    (void)nvml.Shutdown();
}
