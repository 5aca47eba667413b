/* Outputs that are added to, for kernels that can only overwrite: they compute in scratch first. */
#include "device/cpu/cpu_int.h"

static size_t buffer_bytes(const tr_view_t *out) {
    const size_t bytes = (size_t)tr_shape_elems(&out->shape) * sizeof(float);
    return (bytes + TR_KERNEL_ALIGN - 1) / TR_KERNEL_ALIGN * TR_KERNEL_ALIGN;
}

size_t tr_cpu_adding_bytes(const tr_kernel_call_t *call) {
    size_t bytes = 0;
    for (int i = 0; i < call->n_out; i++)
        if (cpu_adds(call, i)) bytes += buffer_bytes(&call->out[i]);
    return bytes;
}

tr_status_t tr_cpu_run_adding(tr_device_t *device, tr_stream_t *stream,
                              const tr_kernel_call_t *call, tr_cpu_run_fn *run) {
    tr_kernel_call_t apart = *call;
    char *scratch = call->scratch;
    if (call->adds == 0) return run(device, stream, call);
    for (int i = 0; i < call->n_out; i++) {
        if (!cpu_adds(call, i)) continue;
        apart.out[i].data = scratch;
        scratch += buffer_bytes(&call->out[i]);
    }
    apart.scratch = scratch;
    apart.adds = 0;
    TR_TRY(run(device, stream, &apart));
    for (int i = 0; i < call->n_out; i++) {
        const tr_kernel_call_t sum = {
            .n_in = 1, .n_out = 1, .in = {apart.out[i]}, .out = {call->out[i]}};
        if (cpu_adds(call, i)) TR_TRY(tr_cpu_accumulate(device, stream, &sum));
    }
    return TR_OK;
}
