/*
 * Products of two matrices, by our own kernel where that is faster than oneDNN's. Private to
 * src/device/cpu.
 *
 * An element of our own products is a sum of blocks of the inner dimension, which depend only on its
 * length, and each block is summed in order. The bits therefore depend neither on the number of
 * threads, nor on the width of vectors, nor on the other rows and columns.
 */
#ifndef TR_DEVICE_CPU_CPU_PRODUCT_H
#define TR_DEVICE_CPU_CPU_PRODUCT_H

#include "cpu_onednn.h"

/* One thread at a time. */
typedef struct cpu_product cpu_product_t;

/* desc: of kind CPU_DNN_MATMUL. */
tr_status_t tr_cpu_product_create(const cpu_dnn_desc_t *desc, cpu_product_t **out);
void tr_cpu_product_destroy(cpu_product_t **product);
/* scratch: tr_cpu_product_scratch_bytes, aligned to at least 64 bytes. Running allocates nothing. */
size_t tr_cpu_product_scratch_bytes(const cpu_product_t *product);
tr_status_t tr_cpu_product_run(cpu_product_t *product, const cpu_dnn_data_t *data, void *scratch);

#endif
