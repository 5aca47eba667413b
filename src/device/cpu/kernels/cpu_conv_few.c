/*
 * A row of a filter is `numbers` neighbours in the padded image. Each is multiplied by vectors of the
 * wide channels, and summed in a register along a row of the output. Rows are added to the sums of a
 * task, and these in order in double, so that no sum of floats is long. Tasks depend on the shape
 * alone.
 */
#include "cpu_conv_few.h"
#include "device/cpu/cpu_vector.h"
#include <string.h>

enum {
    LANES = CPU_VEC_LANES,
    FEW = 4,       /* most channels */
    NUMBERS = 6,   /* of a row of the filter, whose sums are in registers */
    MAX_ROW = 256, /* positions summed in a register */
    TASKS = 64,
    MAX_WEIGHTS = 1 << 14 /* of the filters, of which each task has sums; oneDNN is good at more */
};

static int64_t cpu_conv_few_elems(const int64_t size[3]) {
    return size[0] * size[1] * size[2];
}

/* Of the filters. */
static int64_t cpu_conv_few_weights(const cpu_conv_few_t *conv) {
    return cpu_conv_few_elems(conv->kernel) * conv->few * conv->wide;
}

bool tr_cpu_conv_few_suits(const tr_conv_attr_t *attr, const tr_view_t *x, const tr_view_t *w,
                           const tr_view_t *y, cpu_conv_few_t *out) {
    const int spatial = attr->spatial;
    const int64_t inputs = x->shape.dim[spatial + 1], outputs = y->shape.dim[spatial + 1];
    bool one = true; /* position */
    *out = (cpu_conv_few_t){.images = x->shape.dim[0]};
    for (int i = 0; i < 3; i++) {
        const int d = i - (3 - spatial);
        const bool has = d >= 0;
        out->in[i] = has ? x->shape.dim[1 + d] : 1, out->out[i] = has ? y->shape.dim[1 + d] : 1;
        out->kernel[i] = has ? attr->kernel[d] : 1, out->stride[i] = has ? attr->stride[d] : 1;
        out->dilation[i] = has ? attr->dilation[d] : 1, out->pad[i] = has ? attr->pad_lo[d] : 0;
        out->padded[i] =
            (out->out[i] - 1) * out->stride[i] + (out->kernel[i] - 1) * out->dilation[i] + 1;
        one &= out->kernel[i] == 1 && out->stride[i] == 1 && out->padded[i] == out->in[i];
    }
    out->few_outputs = one && outputs <= FEW;
    out->few = out->few_outputs ? outputs : inputs, out->wide = out->few_outputs ? inputs : outputs;
    return attr->groups == 1 && x->dtype == TR_F32 && w->dtype == TR_F32 && y->dtype == TR_F32 &&
           out->few <= FEW && out->wide % LANES == 0 && out->dilation[2] == 1 &&
           cpu_conv_few_weights(out) <= MAX_WEIGHTS;
}

/* -- work -------------------------------------------------------------------------------------- */

static int64_t cpu_conv_few_rows(const cpu_conv_few_t *conv) { /* of the output */
    return conv->images * conv->out[0] * conv->out[1];
}

static int cpu_conv_few_tasks(const cpu_conv_few_t *conv) {
    const int64_t rows = cpu_conv_few_rows(conv);
    return rows < TASKS ? (int)rows : TASKS;
}

size_t tr_cpu_conv_few_scratch_bytes(const cpu_conv_few_t *conv) {
    const int64_t padded = conv->few_outputs
                               ? 0
                               : conv->images * cpu_conv_few_elems(conv->padded) * conv->few,
                  sums = cpu_conv_few_tasks(conv) * cpu_conv_few_weights(conv);
    return (size_t)(padded + sums) * sizeof(float);
}

/* Rows of x with zeros around, or without what no output reads. */
static void pad_rows(const tr_device_t *device, const cpu_conv_few_t *conv, const float *x,
                     float *padded) {
    const int64_t *size = conv->padded, rows = conv->images * size[0] * size[1],
                  width = size[2] * conv->few, left = conv->pad[2] * conv->few, room = width - left,
                  own = conv->in[2] * conv->few, count = own < room ? own : room;
#pragma omp parallel for num_threads(cpu_threads(device, rows *width)) schedule(static)
    for (int64_t r = 0; r < rows; r++) {
        const int64_t image = r / (size[0] * size[1]), d = r / size[1] % size[0] - conv->pad[0],
                      h = r % size[1] - conv->pad[1];
        const bool inside = d >= 0 && d < conv->in[0] && h >= 0 && h < conv->in[1];
        float *to = padded + r * width;
        memset(to, 0, (size_t)width * sizeof *to);
        if (inside && count > 0)
            memcpy(to + left, x + ((image * conv->in[0] + d) * conv->in[1] + h) * own,
                   (size_t)count * sizeof *to);
    }
}

/* sums[i][j] += sum of a[i] b[j] over the positions of a row, for `numbers` of a and `vectors` of b,
 * which are constants. Positions are step_a and `wide` apart, sums `wide`. */
CPU_VECTOR void add_numbers(const float *a, int64_t step_a, const float *b, int64_t wide,
                            int64_t positions, const int numbers, const int vectors, float *sums) {
    cpu_vec_t sum[NUMBERS][2];
#pragma GCC unroll 6
    for (int i = 0; i < numbers; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) sum[i][j] = cpu_vec_all(0);
    for (int64_t p = 0; p < positions; p++, a += step_a, b += wide) {
        cpu_vec_t right[2];
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) right[j] = cpu_vec_pin(cpu_vec_load(b + j * LANES));
#pragma GCC unroll 6
        for (int i = 0; i < numbers; i++) {
            const cpu_vec_t left = cpu_vec_all(a[i]);
#pragma GCC unroll 2
            for (int j = 0; j < vectors; j++) sum[i][j] = cpu_vec_fma(left, right[j], sum[i][j]);
        }
    }
#pragma GCC unroll 6
    for (int i = 0; i < numbers; i++)
#pragma GCC unroll 2
        for (int j = 0; j < vectors; j++) {
            float *to = sums + i * wide + j * LANES;
            cpu_vec_store(to, cpu_vec_load(to) + sum[i][j]);
        }
}

CPU_VECTOR void add_row(const float *a, int64_t step_a, const float *b, int64_t wide,
                        int64_t positions, int64_t numbers, const int vectors, float *sums) {
    for (; numbers > 0; numbers -= NUMBERS, a += NUMBERS, sums += NUMBERS * wide) switch (numbers) {
        case 1: add_numbers(a, step_a, b, wide, positions, 1, vectors, sums); break;
        case 2: add_numbers(a, step_a, b, wide, positions, 2, vectors, sums); break;
        case 3: add_numbers(a, step_a, b, wide, positions, 3, vectors, sums); break;
        case 4: add_numbers(a, step_a, b, wide, positions, 4, vectors, sums); break;
        case 5: add_numbers(a, step_a, b, wide, positions, 5, vectors, sums); break;
        default: add_numbers(a, step_a, b, wide, positions, NUMBERS, vectors, sums);
        }
}

/* The part of a row of the output in the sums (kernel..., few, wide). */
static void few_row(const cpu_conv_few_t *conv, const float *padded, const float *wide, int64_t row,
                    float *sums) {
    const int64_t *size = conv->padded, h = row % conv->out[1] * conv->stride[1],
                  d = row / conv->out[1] % conv->out[0] * conv->stride[0],
                  image = row / (conv->out[0] * conv->out[1]),
                  numbers = conv->kernel[2] * conv->few, step = conv->stride[2] * conv->few,
                  width = size[2] * conv->few;
    const float *line = wide + row * conv->out[2] * conv->wide;
    for (int64_t k = 0; k < conv->kernel[0] * conv->kernel[1]; k++) {
        const int64_t at_d = d + k / conv->kernel[1] * conv->dilation[0],
                      at_h = h + k % conv->kernel[1] * conv->dilation[1];
        const float *a = padded + ((image * size[0] + at_d) * size[1] + at_h) * width;
        for (int64_t p = 0; p < conv->out[2]; p += MAX_ROW) {
            const int64_t left = conv->out[2] - p, positions = left < MAX_ROW ? left : MAX_ROW;
            float *to = sums + k * numbers * conv->wide;
            int64_t j = 0;
            for (; j + 2 * LANES <= conv->wide; j += 2 * LANES)
                add_row(a + p * step, step, line + p * conv->wide + j, conv->wide, positions,
                        numbers, 2, to + j);
            if (j < conv->wide)
                add_row(a + p * step, step, line + p * conv->wide + j, conv->wide, positions,
                        numbers, 1, to + j);
        }
    }
}

/* dw (few outputs: few, wide; else wide, kernel..., few) from the sums of the tasks. */
static void join_tasks(const tr_device_t *device, const cpu_conv_few_t *conv, int tasks,
                       const float *sums, float *dw) {
    enum { TILE = 64 };
    const int64_t weights = cpu_conv_few_weights(conv), wide = conv->wide, numbers = weights / wide;
#pragma omp parallel for num_threads(cpu_threads(device, tasks *weights)) schedule(static)
    for (int64_t i = 0; i < numbers; i++)
        for (int64_t first = 0; first < wide; first += TILE) {
            const int64_t count = wide - first < TILE ? wide - first : TILE;
            double sum[TILE] = {0};
            for (int task = 0; task < tasks; task++)
                for (int64_t j = 0; j < count; j++)
                    sum[j] += sums[task * weights + i * wide + first + j];
            for (int64_t j = first; j < first + count; j++)
                dw[conv->few_outputs ? i * wide + j : j * numbers + i] = (float)sum[j - first];
        }
}

void tr_cpu_conv_few(const tr_device_t *device, const cpu_conv_few_t *conv, const float *x,
                     const float *dy, float *dw, void *scratch) {
    const int64_t rows = cpu_conv_few_rows(conv), weights = cpu_conv_few_weights(conv);
    const int tasks = cpu_conv_few_tasks(conv);
    float *sums = scratch, *copy = sums + tasks * weights;
    const float *padded = conv->few_outputs ? dy : copy, *wide = conv->few_outputs ? x : dy;
    if (!conv->few_outputs) pad_rows(device, conv, x, copy);
#pragma omp parallel for num_threads(cpu_threads(device, rows * conv->out[2] * weights))           \
    schedule(static)
    for (int task = 0; task < tasks; task++) {
        const cpu_range_t own = cpu_range(rows, 1, tasks, task);
        memset(sums + task * weights, 0, (size_t)weights * sizeof *sums);
        for (int64_t row = own.first; row < own.last; row++)
            few_row(conv, padded, wide, row, sums + task * weights);
    }
    join_tasks(device, conv, tasks, sums, dw);
}
