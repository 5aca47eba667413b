/* Describes the machine: processor, instruction set. */
#include "cpu_int.h"
#include "base/host.h"
#include "base/str.h"
#include <sched.h>
#include <stdio.h>

/* The instruction set of the compiled code; oneDNN selects its own at run time. */
static const char *compiled_isa(void) {
#if defined(__AVX512F__)
    return "AVX-512";
#elif defined(__AVX2__)
    return "AVX2";
#elif defined(__x86_64__)
    return "SSE2";
#elif defined(__ARM_FEATURE_SVE2)
    return "SVE2";
#elif defined(__ARM_FEATURE_SVE)
    return "SVE";
#elif defined(__aarch64__)
    return "NEON";
#else
    return "generic";
#endif
}

void tr_cpu_host_describe(int threads, char *text, size_t text_bytes) {
    char model[160];
    tr_host_cpu_model("/proc/cpuinfo", model, sizeof model);
    snprintf(text, text_bytes, "%s, %d thread%s, %s", model, threads, threads == 1 ? "" : "s",
             compiled_isa());
}

tr_status_t tr_cpu_host_report(tr_device_t *device, tr_report_row_fn row, void *self) {
    char text[192], memory[32];
    cpu_set_t cores;
    tr_host_cpu_model("/proc/cpuinfo", text, sizeof text);
    row(self, "processor", text);
    CPU_ZERO(&cores);
    (void)sched_getaffinity(0, sizeof cores, &cores);
    snprintf(text, sizeof text, "%d", CPU_COUNT(&cores));
    row(self, "cores", text);
    snprintf(text, sizeof text, "%d", device->threads);
    row(self, "threads", text);
    snprintf(text, sizeof text, "%s%s", compiled_isa(), device->fast_bf16 ? ", bf16" : ", no bf16");
    row(self, "ISA", text);
    row(self, "memory", tr_format_bytes((double)device->memory_bytes, memory));
    return TR_OK;
}
