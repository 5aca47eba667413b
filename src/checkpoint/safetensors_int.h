/* Shared by the writer and the reader of safetensors. Private to src/checkpoint. */
#ifndef TR_CHECKPOINT_SAFETENSORS_INT_H
#define TR_CHECKPOINT_SAFETENSORS_INT_H

#include "checkpoint.h"

const char *tr_safetensors_dtype_name(tr_dtype_t dtype); /* "F32" */
/* File descriptor and offset of the data, for verification by reading. */
int tr_safetensors_fd(const tr_safetensors_t *file);
int64_t tr_safetensors_data_start(const tr_safetensors_t *file);

/* The header's length and text, as they stand before the data. */
tr_status_t tr_safetensors_header(const tr_named_tensor_t *tensors, size_t count,
                                  const char *metadata, tr_str_t *out);

/* Joins the tensors of `count` files to one, which takes ownership of the files. */
tr_status_t tr_safetensors_join(tr_safetensors_t *const *files, size_t count,
                                tr_safetensors_t **out);

/* Reads the header of a file that is in memory, for the fuzzer: its tensors cannot be read. `path`
 * is for messages. */
tr_status_t tr_safetensors_parse(const void *bytes, size_t count, const char *path,
                                 tr_safetensors_t **out);

#endif
