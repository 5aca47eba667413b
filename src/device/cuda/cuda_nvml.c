/*
 * GPUs as NVML sees them, which opens none. The toolkit has no nvml.h everywhere, so the few types
 * that are needed are declared here after NVML's reference manual.
 */
#include "cuda_int.h"
#include <dlfcn.h>
#include <stdio.h>

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

/* Every function returns 0, or a number that nvmlErrorString explains. */
#define NVML_FUNCTIONS(X)                                                                          \
    X(int, Init_v2, (void))                                                                        \
    X(int, Shutdown, (void))                                                                       \
    X(const char *, ErrorString, (int))                                                            \
    X(int, SystemGetDriverVersion, (char *, unsigned))                                             \
    X(int, SystemGetCudaDriverVersion, (int *))                                                    \
    X(int, DeviceGetCount_v2, (unsigned *))                                                        \
    X(int, DeviceGetHandleByIndex_v2, (unsigned, nvml_device_t *))                                 \
    X(int, DeviceGetName, (nvml_device_t, char *, unsigned))                                       \
    X(int, DeviceGetUUID, (nvml_device_t, char *, unsigned))                                       \
    X(int, DeviceGetCudaComputeCapability, (nvml_device_t, int *, int *))                          \
    X(int, DeviceGetMemoryInfo, (nvml_device_t, nvml_memory_t *))                                  \
    X(int, DeviceGetMigMode, (nvml_device_t, unsigned *, unsigned *))                              \
    X(int, DeviceGetComputeRunningProcesses_v3, (nvml_device_t, unsigned *, nvml_process_t *))

typedef struct {
#define NVML_MEMBER(type, name, args) type(*name) args;
    NVML_FUNCTIONS(NVML_MEMBER)
#undef NVML_MEMBER
} nvml_t;

/* NULL, or why NVML cannot be used. */
static const char *load(nvml_t *nvml) {
    static char reason[256];
    void *library = dlopen(LIBRARY, RTLD_NOW | RTLD_LOCAL);
    if (!library) return "none: " LIBRARY " is missing, which comes with the driver";
#define NVML_FIND(type, name, args)                                                                \
    nvml->name = (type(*) args)dlsym(library, "nvml" #name);                                       \
    if (!nvml->name) return "its NVML is too old: nvml" #name " is missing";
    NVML_FUNCTIONS(NVML_FIND)
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
    if (nvml->DeviceGetComputeRunningProcesses_v3(gpu, &count, list) != 0) return;
    for (unsigned i = 0; i < count && used >= 0 && (size_t)used < bytes; i++)
        used += snprintf(text + used, bytes - (size_t)used, ", used by pid %u (%.1f GiB)",
                         list[i].pid, (double)list[i].used_bytes / 0x1p30);
}

static void report_gpu(const nvml_t *nvml, unsigned index, tr_report_row_fn row, void *self) {
    char label[32], name[96] = "?", uuid[96] = "?", users[512] = "", text[1024];
    int major = 0, minor = 0;
    unsigned mig = 0, pending = 0;
    nvml_memory_t memory = {0};
    nvml_device_t gpu = NULL;
    const int error = nvml->DeviceGetHandleByIndex_v2(index, &gpu);
    snprintf(label, sizeof label, "GPU %u", index);
    if (error != 0) {
        row(self, label, nvml->ErrorString(error));
        return;
    }
    (void)nvml->DeviceGetName(gpu, name, sizeof name);
    (void)nvml->DeviceGetUUID(gpu, uuid, sizeof uuid);
    (void)nvml->DeviceGetCudaComputeCapability(gpu, &major, &minor);
    (void)nvml->DeviceGetMemoryInfo(gpu, &memory);
    (void)nvml->DeviceGetMigMode(gpu, &mig, &pending);
    add_processes(nvml, gpu, users, sizeof users);
    snprintf(text, sizeof text, "%s, %d.%d, %s, %.1f of %.1f GiB free%s%s", name, major, minor,
             uuid, (double)memory.free / 0x1p30, (double)memory.total / 0x1p30,
             mig ? ", partitioned (MIG)" : "", users);
    row(self, label, text);
}

void tr_cuda_nvml_report(tr_report_row_fn row, void *self) {
    nvml_t nvml;
    unsigned count = 0;
    int cuda = 0;
    char version[64] = "?", text[128];
    const char *reason = load(&nvml);
    if (reason) {
        row(self, "driver", reason);
        return;
    }
    (void)nvml.SystemGetDriverVersion(version, sizeof version);
    (void)nvml.SystemGetCudaDriverVersion(&cuda);
    snprintf(text, sizeof text, "%s, for CUDA up to %s", version, tr_cuda_version(cuda).text);
    row(self, "driver", text);
    (void)nvml.DeviceGetCount_v2(&count);
    for (unsigned i = 0; i < count; i++) report_gpu(&nvml, i, row, self);
    (void)nvml.Shutdown();
}
