/* Describes the machine: processor, instruction set. */
#include "cpu_int.h"
#include "base/str.h"
#include <sched.h>
#include <stdio.h>
#include <string.h>

static void read_model(char *text, size_t text_bytes) {
    char line[512];
    snprintf(text, text_bytes, "CPU");
    FILE *file = fopen("/proc/cpuinfo", "r");
    if (!file) return;
    while (fgets(line, sizeof line, file)) {
        const char *value = strchr(line, ':');
        if (!value || strncmp(line, "model name", 10) != 0) continue;
        line[strcspn(line, "\n")] = '\0';
        snprintf(text, text_bytes, "%s", value + 1 + strspn(value + 1, " "));
        break;
    }
    fclose(file);
}

/* The instruction set of the compiled code; oneDNN selects its own at run time. */
static const char *compiled_isa(void) {
#if defined(__AVX512F__)
    return "AVX-512";
#elif defined(__AVX2__)
    return "AVX2";
#elif defined(__x86_64__)
    return "SSE2";
#elif defined(__aarch64__)
    return "NEON";
#else
    return "generic";
#endif
}

void tr_cpu_host_describe(int threads, char *text, size_t text_bytes) {
    char model[160];
    read_model(model, sizeof model);
    snprintf(text, text_bytes, "%s, %d thread%s, %s", model, threads, threads == 1 ? "" : "s",
             compiled_isa());
}

tr_status_t tr_cpu_host_report(tr_device_t *device, tr_report_row_fn row, void *self) {
    char text[192], memory[32];
    cpu_set_t cores;
    read_model(text, sizeof text);
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
