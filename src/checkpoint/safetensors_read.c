/* Reads safetensors files: the header at once, tensors when they are asked for. */
#include "checkpoint_int.h"
#include "safetensors_int.h"
#include "h5/writer.h"
#include <endian.h>
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <search.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define HEADER_MAX_BYTES ((uint64_t)100 << 20)

static const char *const dtype_names[TR_DTYPE_COUNT] = {
    [TR_F32] = "F32", [TR_BF16] = "BF16", [TR_F16] = "F16", [TR_F64] = "F64",
    [TR_U8] = "U8",   [TR_I8] = "I8",     [TR_U16] = "U16", [TR_I16] = "I16",
    [TR_U32] = "U32", [TR_I32] = "I32",   [TR_U64] = "U64", [TR_I64] = "I64",
};

typedef struct {
    tr_named_tensor_t tensor; /* first: tr_safetensors_read is given this */
    int64_t offset;           /* in the file */
    const tr_safetensors_t *file;
} entry_t;

struct tr_safetensors {
    int fd;     /* -1: a header in memory, or joined files */
    char *path; /* tr_free */
    int64_t bytes, data_start;
    json_t *root;     /* owns the names */
    char *metadata;   /* tr_free */
    entry_t *entries; /* in the header's order */
    void *by_name;    /* the entries (tsearch) */
    size_t tensor_count;
    tr_safetensors_t **part; /* files that were joined; owned */
    size_t part_count;
};

const char *tr_safetensors_dtype_name(tr_dtype_t dtype) {
    return dtype_names[dtype];
}

bool tr_tensor_bytes(tr_dtype_t dtype, const tr_shape_t *shape, int64_t *out) {
    int64_t bytes = (int64_t)tr_dtype_bytes(dtype);
    for (int d = 0; d < shape->ndim; d++)
        if (shape->dim[d] < 0 || __builtin_mul_overflow(bytes, shape->dim[d], &bytes)) return false;
    *out = bytes;
    return true;
}

/* -- the header -------------------------------------------------------------------------------- */

static int entry_by_name(const void *a, const void *b) {
    return strcmp(((const entry_t *)a)->tensor.name, ((const entry_t *)b)->tensor.name);
}

/* Lists the entry behind those that are there. */
static tr_status_t safetensors_add_entry(tr_safetensors_t *f, const entry_t *entry) {
    entry_t *place = &f->entries[f->tensor_count++];
    *place = *entry;
    if (tsearch(place, &f->by_name, entry_by_name)) return TR_OK;
    return TR_FAIL(TR_ERR_MEMORY, "not enough memory for the tensor '%.200s'", place->tensor.name);
}

static tr_status_t safetensors_read_entry(tr_safetensors_t *f, const char *name, json_t *value) {
    entry_t entry = {.tensor.name = name, .file = f};
    tr_dtype_t *dtype = &entry.tensor.dtype;
    tr_shape_t *shape = &entry.tensor.shape;
    json_t *offsets = json_object_get(value, "data_offsets"),
           *sizes = json_object_get(value, "shape");
    if (json_object_size(value) != 3 || json_array_size(offsets) != 2 ||
        !json_is_integer(json_array_get(offsets, 0)) ||
        !json_is_integer(json_array_get(offsets, 1)))
        return TR_FAIL(TR_ERR_DATA,
                       "%s: tensor '%.200s' must have only dtype, shape and two data_offsets.",
                       f->path, name);

    const char *type = json_string_value(json_object_get(value, "dtype"));
    for (*dtype = 0; type && *dtype < TR_DTYPE_COUNT; ++*dtype)
        if (strcmp(type, dtype_names[*dtype]) == 0) break;
    if (type && strcmp(type, "BOOL") == 0) *dtype = TR_U8;
    if (!type || *dtype == TR_DTYPE_COUNT)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: tensor '%.200s' has the type %.32s; expected F64, F32, F16, BF16, U8 "
                       "to I64, or BOOL.",
                       f->path, name, type ? type : "(none)");

    if (!json_is_array(sizes) || json_array_size(sizes) > TR_MAX_DIMS)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: the shape of tensor '%.200s' must be a list of up to %d sizes.",
                       f->path, name, TR_MAX_DIMS);
    shape->ndim = (int)json_array_size(sizes);
    for (int d = 0; d < shape->ndim; d++) {
        const json_t *size = json_array_get(sizes, (size_t)d);
        shape->dim[d] = json_integer_value(size);
        if (!json_is_integer(size) || shape->dim[d] < 0)
            return TR_FAIL(TR_ERR_DATA,
                           "%s: a size of tensor '%.200s' is not a non-negative integer.", f->path,
                           name);
    }

    const int64_t begin = json_integer_value(json_array_get(offsets, 0)),
                  end = json_integer_value(json_array_get(offsets, 1)),
                  available = f->bytes - f->data_start;
    int64_t bytes = 0;
    if (begin < 0 || end < begin || end > available)
        return TR_FAIL(TR_ERR_DATA, "%s: tensor '%.200s' must be at bytes %lld to %lld of %lld.",
                       f->path, name, (long long)begin, (long long)end, (long long)available);
    if (!tr_tensor_bytes(*dtype, shape, &bytes) || bytes != end - begin)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: the shape and type of tensor '%.200s' do not match its %lld "
                       "bytes.",
                       f->path, name, (long long)(end - begin));
    entry.offset = f->data_start + begin;
    return safetensors_add_entry(f, &entry);
}

static int64_t entry_bytes(const entry_t *e) {
    int64_t bytes = 0;
    tr_tensor_bytes(e->tensor.dtype, &e->tensor.shape, &bytes);
    return bytes;
}

static int entry_by_place(const void *a, const void *b) {
    const entry_t *x = *(const entry_t *const *)a, *y = *(const entry_t *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (entry_bytes(x) > entry_bytes(y)) - (entry_bytes(x) < entry_bytes(y));
}

/* The tensors must cover the data without overlap or gap, so that there are no unexplained
 * bytes. */
static tr_status_t safetensors_check_cover(const tr_safetensors_t *f) {
    const entry_t **sorted = NULL;
    int64_t at = f->data_start;
    tr_status_t status = TR_OK;
    TR_TRY(tr_alloc(f->tensor_count * sizeof *sorted, "tensor order", &sorted));
    for (size_t i = 0; i < f->tensor_count; i++) sorted[i] = &f->entries[i];
    qsort(sorted, f->tensor_count, sizeof *sorted, entry_by_place);
    for (size_t i = 0; status == TR_OK && i < f->tensor_count; i++) {
        if (sorted[i]->offset != at)
            status = TR_FAIL(TR_ERR_DATA, "%s: the data of tensor '%.200s' %s those before it.",
                             f->path, sorted[i]->tensor.name,
                             sorted[i]->offset < at ? "overlap" : "leave a gap after");
        at += entry_bytes(sorted[i]);
    }
    if (status == TR_OK && at != f->bytes)
        status = TR_FAIL(TR_ERR_DATA, "%s: the last %lld bytes belong to no tensor.", f->path,
                         (long long)(f->bytes - at));
    tr_free(&sorted);
    return status;
}

static tr_status_t safetensors_read_metadata(tr_safetensors_t *f, json_t *value) {
    const char *key;
    json_t *text;
    if (!json_is_object(value))
        return TR_FAIL(TR_ERR_DATA, "%s: __metadata__ must be an object of strings.", f->path);
    json_object_foreach(value, key, text) if (!json_is_string(text)) return TR_FAIL(
        TR_ERR_DATA, "%s: __metadata__ '%.200s' must be a string.", f->path, key);
    char *dump = json_dumps(value, JSON_COMPACT);
    if (!dump) return TR_FAIL(TR_ERR_MEMORY, "%s: not enough memory for its metadata.", f->path);
    tr_status_t status = tr_strdup(dump, &f->metadata);
    free(dump);
    return status;
}

static tr_status_t safetensors_read_header(tr_safetensors_t *f, const char *text, size_t length) {
    json_error_t error;
    const char *name;
    json_t *value;
    f->root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!f->root)
        return TR_FAIL(TR_ERR_DATA, "%s: its header is not JSON: %s (byte %d).", f->path,
                       error.text, error.position);
    TR_TRY(tr_alloc(json_object_size(f->root) * sizeof *f->entries, "tensor list", &f->entries));
    json_object_foreach(f->root, name, value) {
        if (strcmp(name, "__metadata__") == 0)
            TR_TRY(safetensors_read_metadata(f, value));
        else
            TR_TRY(safetensors_read_entry(f, name, value));
    }
    TR_TRY(safetensors_check_cover(f));
    return f->metadata ? TR_OK : tr_strdup("{}", &f->metadata);
}

/* Guesses the kind of a file without a header. */
static const char *file_kind(const char *bytes, size_t count) {
    if (count == 0) return "an empty file";
    if (tr_begins_as_hdf5(bytes, count)) return "an HDF5 file";
    if (count > 4 && memcmp(bytes, "PK\3\4", 4) == 0)
        return "a zip file, as written by torch.save and numpy.savez (use "
               "safetensors.torch.save_file or safetensors.numpy.save_file)";
    if (count > 4 && memcmp(bytes, "\x80\x02\x8a\x0a", 4) == 0)
        return "a file written by torch.save (use safetensors.torch.save_file)";
    /* Whether its beginning is text; it may end within a character. */
    char head[257] = "";
    const size_t begin = count < 256 ? count : 256;
    memcpy(head, bytes, begin);
    bool is_text = tr_utf8_bytes(head, begin) + (count > begin ? 3 : 0) >= begin;
    for (size_t i = 0; i < begin; i++)
        is_text =
            is_text && ((unsigned char)head[i] >= ' ' || (head[i] >= '\t' && head[i] <= '\r'));
    if (is_text) return "a text file";
    return "not a safetensors file, or truncated (its first 8 bytes are not followed by a text "
           "header)";
}

/* The length of the header, from the first `count` bytes of the file. */
static tr_status_t safetensors_find_header(tr_safetensors_t *f, const char *head, size_t count,
                                           size_t *out_length) {
    uint64_t length = 0;
    if (count > sizeof length) {
        memcpy(&length, head, sizeof length);
        length = le64toh(length);
    }
    if (length == 0 || length > HEADER_MAX_BYTES || head[sizeof length] != '{')
        return TR_FAIL(TR_ERR_DATA,
                       "%s is %s; expected a checkpoint: a run folder, a checkpoint folder "
                       "(checkpoints/step-NNNNNNNN), or a .safetensors file.",
                       f->path, file_kind(head, count));
    f->data_start = (int64_t)(sizeof length + length);
    if (f->data_start > f->bytes)
        return TR_FAIL(TR_ERR_DATA,
                       "%s is truncated in its header of %llu bytes: it has %lld. Copy the file "
                       "again.",
                       f->path, (unsigned long long)length,
                       (long long)(f->bytes - (int64_t)sizeof length));
    *out_length = (size_t)length;
    return TR_OK;
}

/* -- files ------------------------------------------------------------------------------------- */

static tr_status_t safetensors_create(const char *path, tr_safetensors_t **out) {
    TR_TRY(tr_alloc(sizeof **out, "safetensors file", out));
    (*out)->fd = -1;
    return tr_strdup(path, &(*out)->path);
}

tr_status_t tr_safetensors_parse(const void *bytes, size_t count, const char *path,
                                 tr_safetensors_t **out) {
    tr_safetensors_t *f = NULL;
    size_t length = 0;
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(safetensors_create(path, &f), done);
    f->bytes = (int64_t)count;
    TR_TRY_GOTO(safetensors_find_header(f, bytes, count, &length), done);
    TR_TRY_GOTO(safetensors_read_header(f, (const char *)bytes + sizeof(uint64_t), length), done);
done:
    if (status != TR_OK) tr_safetensors_close(&f);
    *out = f;
    return status;
}

tr_status_t tr_safetensors_open(const char *path, tr_safetensors_t **out) {
    tr_safetensors_t *f = NULL;
    struct stat st;
    char head[512], *text = NULL;
    size_t length = 0;
    tr_status_t status = TR_OK;
    TR_TRY_GOTO(safetensors_create(path, &f), done);
    f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (f->fd < 0)
        status = tr_io_fail("open", path, errno);
    else if (fstat(f->fd, &st) != 0)
        status = tr_io_fail("examine", path, errno);
    else if (!S_ISREG(st.st_mode))
        status = TR_FAIL(TR_ERR_DATA, "%s is not a regular file.", path);
    if (status != TR_OK) goto done;
    f->bytes = st.st_size;
    const size_t count = f->bytes < (int64_t)sizeof head ? (size_t)f->bytes : sizeof head;
    TR_TRY_GOTO(tr_read_at(f->fd, path, 0, (int64_t)count, head), done);
    TR_TRY_GOTO(safetensors_find_header(f, head, count, &length), done);
    TR_TRY_GOTO(tr_alloc(length, "header of a safetensors file", &text), done);
    TR_TRY_GOTO(tr_read_at(f->fd, path, sizeof(uint64_t), (int64_t)length, text), done);
    TR_TRY_GOTO(safetensors_read_header(f, text, length), done);
done:
    tr_free(&text);
    if (status != TR_OK) tr_safetensors_close(&f);
    *out = f;
    return status;
}

tr_status_t tr_safetensors_read(const tr_named_tensor_t *tensor, int64_t first, int64_t bytes,
                                void *out) {
    const entry_t *e = (const entry_t *)tensor;
    return tr_read_at(e->file->fd, e->file->path, e->offset + first, bytes, out);
}

/* For tdestroy: the array owns the entries. */
static void entry_keep(void *entry) {
    (void)entry;
}

void tr_safetensors_close(tr_safetensors_t **file) {
    tr_safetensors_t *f = *file;
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    tdestroy(f->by_name, entry_keep);
    json_decref(f->root);
    tr_free(&f->path);
    tr_free(&f->metadata);
    tr_free(&f->entries);
    for (size_t i = 0; i < f->part_count; i++) tr_safetensors_close(&f->part[i]);
    tr_free(&f->part);
    tr_free(file);
}

tr_status_t tr_safetensors_join(tr_safetensors_t *const *files, size_t count,
                                tr_safetensors_t **out) {
    tr_safetensors_t *f = NULL;
    size_t tensors = 0;
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < count; i++) tensors += files[i]->tensor_count;
    TR_TRY(tr_alloc(sizeof *f, "safetensors files", &f));
    f->fd = -1;
    TR_TRY_GOTO(tr_strdup("{}", &f->metadata), failed);
    TR_TRY_GOTO(tr_alloc(tensors * sizeof *f->entries, "tensor list", &f->entries), failed);
    TR_TRY_GOTO(tr_alloc(count * sizeof *f->part, "file list", &f->part), failed);
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < files[i]->tensor_count; k++)
            TR_TRY_GOTO(safetensors_add_entry(f, &files[i]->entries[k]), failed);
    /* From here on they are owned. */
    memcpy(f->part, files, count * sizeof *files);
    f->part_count = count;
    *out = f;
    return TR_OK;
failed:
    tr_safetensors_close(&f);
    return status;
}

size_t tr_safetensors_count(const tr_safetensors_t *f) {
    return f->tensor_count;
}
const tr_named_tensor_t *tr_safetensors_at(const tr_safetensors_t *f, size_t index) {
    return &f->entries[index].tensor;
}
const char *tr_safetensors_metadata(const tr_safetensors_t *f) {
    return f->metadata;
}
int tr_safetensors_fd(const tr_safetensors_t *f) {
    return f->fd;
}
int64_t tr_safetensors_data_start(const tr_safetensors_t *f) {
    return f->data_start;
}

const tr_named_tensor_t *tr_safetensors_find(const tr_safetensors_t *f, const char *name) {
    entry_t *const *found = tfind(&(entry_t){.tensor.name = name}, &f->by_name, entry_by_name);
    return found ? &(*found)->tensor : NULL;
}
