/* Metrics. */
#include "cpu_loss.h"
#include "device/cpu/cpu_math.h"

enum { CHUNK = 1 << 14 };

/* Whether fewer than k elements come before the label's in descending order; ties by index. */
static bool among_largest(const float *x, int64_t width, int64_t label, int k) {
    if (label < 0 || label >= width) return false;
    float own = x[label];
    int64_t before = 0, bad = 0;
#pragma omp simd reduction(+ : before, bad)
    for (int64_t j = 0; j < label; j++) {
        before += x[j] >= own;
        bad += x[j] != x[j];
    }
#pragma omp simd reduction(+ : before, bad)
    for (int64_t j = label; j < width; j++) {
        before += x[j] > own;
        bad += x[j] != x[j];
    }
    return bad == 0 && before < k;
}

CPU_KERNEL(topk_correct) {
    const tr_view_t *logits = &call->in[0];
    int64_t width = logits->shape.dim[logits->shape.ndim - 1],
            rows = tr_shape_elems(&logits->shape) / width;
    int k = ((const tr_topk_attr_t *)call->attr)->k;
    const float *x = logits->data, *weight = call->in[2].data;
    float *correct = call->out[0].data;
#pragma omp parallel for num_threads(cpu_threads(device, rows *width)) schedule(static)
    for (int64_t i = 0; i < rows; i++)
        correct[i] =
            among_largest(x + i * width, width, cpu_label(&call->in[1], i), k) ? weight[i] : 0.0f;
    return TR_OK;
}

CPU_KERNEL(weighted_sum) {
    int64_t n = tr_shape_elems(&call->in[0].shape);
    const float *x = call->in[0].data,
                *weight = cpu_present(&call->in[1]) ? call->in[1].data : NULL;
    int chunks = cpu_chunks(n, CHUNK);
    double partial[CPU_CHUNKS], sum = 0;
#pragma omp parallel for num_threads(cpu_threads(device, n)) schedule(static)
    for (int chunk = 0; chunk < chunks; chunk++) {
        cpu_range_t part = cpu_range(n, 1, chunks, chunk);
        double total = 0;
        if (weight)
            CPU_LANE_SUM_DOUBLE(total, part.last - part.first, i,
                                (double)x[part.first + i] * weight[part.first + i]);
        else
            CPU_LANE_SUM_DOUBLE(total, part.last - part.first, i, (double)x[part.first + i]);
        partial[chunk] = total;
    }
    for (int chunk = 0; chunk < chunks; chunk++) sum += partial[chunk];
    *(float *)call->out[0].data += (float)sum;
    return TR_OK;
}
