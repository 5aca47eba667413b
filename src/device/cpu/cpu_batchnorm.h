/*
 * Private: what both directions of batch normalisation share. Each reads the data twice: once for
 * sums over the rows, once to write.
 *
 * Lines. With few channels a row is shorter than a vector, so `fold` rows are taken as one line of
 * fold * C columns, a multiple of 16 and at least 128; a column is then a series of its own until
 * its sums are joined with those of the same channel. What does not fill a line is the tail.
 *
 * Types. The data are f32 or bf16; parameters, statistics and sums are not.
 *
 * Order. Chunks of lines and tiles of columns follow from the shape alone: equal results with any
 * number of threads.
 */
#ifndef TRAINER_CPU_BATCHNORM_H
#define TRAINER_CPU_BATCHNORM_H

#include "cpu_int.h"
#include "cpu_types.h"

/* Lines whose sums are floats; joined in double. */
#define CPU_BN_BLOCK 128
/* Most columns of a task: its sums are on the stack, 28 bytes for each. */
#define CPU_BN_TILE 512

typedef struct {
    int64_t rows, channels;
    int64_t fold, width, lines; /* rows in a line, elements in it, full lines */
    int64_t tail;               /* elements behind the last full line */
    int64_t tile;               /* columns of a task; all of them where lines are folded */
    int tiles, chunks, tasks;
} cpu_bn_t;

/* One task: lines [first, last) of columns [column, column + width); the tail's elements where it
 * comes last. */
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

/* The normalised value. Backward finds the activation's mask by the same operations, hence the same
 * bits. */
CPU_INLINE float cpu_bn_affine(float x, float mean, float factor, float beta) {
    return cpu_fma(x - mean, factor, beta);
}

#endif
