/* Describes the machine: processor, instruction set of the kernels. */
#include "cpu_int.h"
#include "device/isa.h"
#include "base/host.h"
#include "base/str.h"
#include "device/waits.h"
#include <sched.h>
#include <stdio.h>
#include <unistd.h>

static const char *host_label(const tr_device_t *device) {
    return ((const cpu_kernels_t *)device->ops->kernels)->label;
}

void tr_cpu_host_describe(const tr_device_t *device, char *text, size_t text_bytes) {
    const int threads = device->threads;
    char model[160];
    tr_host_cpu_model("/proc/cpuinfo", model, sizeof model);
    snprintf(text, text_bytes, "%s, %d thread%s, %s", model, threads, threads == 1 ? "" : "s",
             host_label(device));
}

tr_status_t tr_cpu_host_report(tr_device_t *device, tr_report_row_fn row, void *self) {
    char text[192], memory[32];
    const char *variable = tr_waits_variable(environ);
    cpu_set_t cores;
    tr_host_cpu_model("/proc/cpuinfo", text, sizeof text);
    row(self, "processor", text);
    CPU_ZERO(&cores);
    (void)sched_getaffinity(0, sizeof cores, &cores);
    snprintf(text, sizeof text, "%d", CPU_COUNT(&cores));
    row(self, "cores", text);
    snprintf(text, sizeof text, "%d", device->threads);
    row(self, "threads", text);
    snprintf(text, sizeof text,
             variable ? "as %s says" : "threads spin, but sleep beside other programs", variable);
    row(self, "waits", text);
    snprintf(text, sizeof text, "%s%s; %s", host_label(device),
             device->fast_bf16 ? ", bf16" : ", no bf16", tr_isa_name(tr_isa_used()));
    row(self, "ISA", text);
    row(self, "memory", tr_format_bytes((double)device->memory_bytes, memory));
    return TR_OK;
}
