/*
 * Shared by the forward and backward pass of batch normalisation. Private to src/device/cpu. Each
 * pass reads the data twice: once for the sums over rows, once to write the result.
 *
 * Lines. With few channels, a row is shorter than a vector. Therefore `fold` rows are treated as
 * one line of fold * C columns, a multiple of 16 and at least 128. Columns are summed separately;
 * then the sums of the columns of one channel are joined. Elements that do not fill a line are the
 * tail.
 *
 * Types. The data are f32, bf16 or f16; parameters and statistics are f32.
 *
 * Order. Chunks of lines and tiles of columns depend only on the shape, so results are equal for
 * any number of threads.
 */
#ifndef TR_DEVICE_CPU_KERNELS_CPU_BATCHNORM_H
#define TR_DEVICE_CPU_KERNELS_CPU_BATCHNORM_H

#include "device/cpu/cpu_int.h"
#include "device/cpu/cpu_types.h"

/* Lines whose sums are floats; joined in double. */
#define CPU_BN_BLOCK 128
/* Most columns of a task: its sums are on the stack, 28 bytes for each. */
#define CPU_BN_TILE 512

typedef struct {
    int64_t rows, channels;
    int64_t fold, width, lines; /* rows in a line, elements in it, full lines */
    int64_t tail;               /* elements after the last full line */
    int64_t tile;               /* columns of a task; all columns if lines are folded */
    int tiles, chunks, tasks;
} cpu_bn_t;

/* One task: lines [first, last) of columns [column, column + width), and in the last chunk `tail`
 * more elements. */
typedef struct {
    int64_t first, last, column, width, tail;
} cpu_bn_task_t;

cpu_bn_t tr_cpu_bn_layout(const tr_shape_t *shape);
cpu_bn_task_t tr_cpu_bn_task(const cpu_bn_t *bn, int task);

/* Scratch: for each chunk two sums per channel (chunks, 2, C), then `vectors` lines of floats. */
size_t tr_cpu_bn_scratch_bytes(const cpu_bn_t *bn, int vectors);
CPU_INLINE double *cpu_bn_sums(const tr_kernel_call_t *call, const cpu_bn_t *bn, int chunk) {
    return (double *)call->scratch + (int64_t)chunk * 2 * bn->channels;
}
CPU_INLINE float *cpu_bn_vector(const tr_kernel_call_t *call, const cpu_bn_t *bn, int index) {
    return (float *)cpu_bn_sums(call, bn, bn->chunks) + index * bn->width;
}
/* Repeats the first C values of a line over its other rows. */
void tr_cpu_bn_spread(const cpu_bn_t *bn, float *line);

/* The normalised value. The backward pass recomputes the activation's mask with the same
 * operations, so it is bitwise equal. */
CPU_INLINE float cpu_bn_affine(float x, float mean, float factor, float beta) {
    return cpu_fma(x - mean, factor, beta);
}

#endif
