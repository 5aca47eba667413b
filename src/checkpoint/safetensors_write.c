/* Writes safetensors files. */
#include "checkpoint_int.h"
#include "safetensors_int.h"
#include <endian.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* The header's length and text, padded so that the data start at a multiple of eight. */
tr_status_t tr_safetensors_header(const tr_named_tensor_t *tensors, size_t count,
                                  const char *metadata, tr_str_t *out) {
    json_t *root = json_object(), *object = NULL, *value;
    json_error_t error;
    const char *key;
    char *text = NULL;
    int64_t begin = 0, bytes = 0;
    tr_status_t status = TR_OK;
    if (metadata) {
        object = json_loads(metadata, JSON_REJECT_DUPLICATES, &error);
        bool plain = json_is_object(object);
        if (plain) json_object_foreach(object, key, value) plain = plain && json_is_string(value);
        if (!plain)
            status = TR_FAIL(TR_ERR_INTERNAL,
                             "The metadata of a safetensors file must be a JSON object of strings, "
                             "found: %.200s",
                             metadata);
        else if (json_object_set(root, "__metadata__", object) != 0)
            status = TR_FAIL(TR_ERR_MEMORY, "Not enough memory for metadata.");
    }
    for (size_t i = 0; status == TR_OK && i < count; i++, begin += bytes) {
        const tr_named_tensor_t *t = &tensors[i];
        if (strcmp(t->name, "__metadata__") == 0 || json_object_get(root, t->name)) {
            status = TR_FAIL(TR_ERR_INTERNAL,
                             "Two tensors are named '%s', or the name is reserved.", t->name);
        } else if (!tr_tensor_bytes(t->dtype, &t->shape, &bytes)) {
            status = TR_FAIL(TR_ERR_INTERNAL, "The shape of tensor '%s' is invalid.", t->name);
        } else {
            json_t *shape = json_array();
            for (int d = 0; d < t->shape.ndim; d++)
                json_array_append_new(shape, json_integer(t->shape.dim[d]));
            json_t *row = json_pack("{s:s, s:o, s:[I, I]}", "dtype",
                                    tr_safetensors_dtype_name(t->dtype), "shape", shape,
                                    "data_offsets", (json_int_t)begin, (json_int_t)(begin + bytes));
            if (json_object_set_new(root, t->name, row) != 0)
                status = TR_FAIL(TR_ERR_INTERNAL,
                                 "The name of tensor '%s' is not UTF-8, or there is not enough "
                                 "memory for the header.",
                                 t->name);
        }
    }
    if (status == TR_OK && !(text = json_dumps(root, JSON_COMPACT)))
        status = TR_FAIL(TR_ERR_MEMORY, "Not enough memory for the header of %zu tensors.", count);
    if (status == TR_OK) {
        uint64_t length = (strlen(text) + 7) / 8 * 8, stored = htole64(length);
        tr_str_append_bytes(out, (const char *)&stored, sizeof stored);
        tr_str_append(out, text);
        for (uint64_t n = strlen(text); n < length; n++) tr_str_append(out, " ");
        status = out->status;
    }
    free(text);
    json_decref(object);
    json_decref(root);
    return status;
}

tr_status_t tr_safetensors_write(const char *path, const tr_named_tensor_t *tensors, size_t count,
                                 const char *metadata, uint64_t *checksums, uint64_t *file_checksum,
                                 int64_t *file_bytes) {
    tr_str_t header = {0};
    tr_sink_t *sink = NULL;
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(tr_safetensors_header(tensors, count, metadata, &header), done);
    TR_TRY_GOTO(tr_sink_open(path, &sink), done);
    TR_TRY_GOTO(tr_sink_write(sink, header.text, header.length), done);
    for (size_t i = 0; i < count; i++) {
        int64_t bytes = 0;
        tr_tensor_bytes(tensors[i].dtype, &tensors[i].shape, &bytes);
        tr_sink_begin_part(sink);
        TR_TRY_GOTO(tr_sink_write(sink, tensors[i].data, (size_t)bytes), done);
        const uint64_t checksum = tr_sink_end_part(sink);
        if (checksums) checksums[i] = checksum;
    }
    TR_TRY_GOTO(tr_sink_commit(sink, file_checksum, file_bytes), done);
done:
    tr_sink_close(&sink);
    tr_str_free(&header);
    return status;
}
