/* The data of tensors of safetensors files, for tests. */
#ifndef TRAINER_TEST_TENSOR_DATA_H
#define TRAINER_TEST_TENSOR_DATA_H

#include "checkpoint/checkpoint.h"

/* All of it; free with free(). Ends the program with a message where it cannot be read. */
void *tensor_data(const tr_named_tensor_t *tensor);

#endif
