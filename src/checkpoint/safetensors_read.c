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

/* -- one tensor's entry ------------------------------------------------------------------------ */

static tr_status_t read_dtype(const char *path, const char *name, json_t *value, tr_dtype_t *out) {
    const char *text = json_string_value(value);
    for (int t = 0; text && t < TR_DTYPE_COUNT; t++) {
        if (strcmp(text, dtype_names[t]) != 0) continue;
        *out = (tr_dtype_t)t;
        return TR_OK;
    }
    *out = TR_U8;
    if (text && strcmp(text, "BOOL") == 0) return TR_OK;
    return TR_FAIL(
        TR_ERR_DATA,
        "%s: tensor '%.200s' has the type %.32s; expected F64, F32, F16, BF16, U8 to I64, or BOOL.",
        path, name, text ? text : "(none)");
}

static tr_status_t read_shape(const char *path, const char *name, json_t *value, tr_shape_t *out) {
    size_t ndim = json_array_size(value);
    if (!json_is_array(value) || ndim > TR_MAX_DIMS)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: the shape of tensor '%.200s' must be a list of up to %d sizes.", path,
                       name, TR_MAX_DIMS);
    out->ndim = (int)ndim;
    for (size_t d = 0; d < ndim; d++) {
        json_t *size = json_array_get(value, d);
        out->dim[d] = json_integer_value(size);
        if (!json_is_integer(size) || out->dim[d] < 0)
            return TR_FAIL(TR_ERR_DATA,
                           "%s: a size of tensor '%.200s' is not a non-negative integer.", path,
                           name);
    }
    return TR_OK;
}

static tr_status_t read_entry(tr_safetensors_t *f, const char *name, json_t *value,
                              entry_t *entry) {
    tr_named_tensor_t *out = &entry->tensor;
    json_t *offsets = json_object_get(value, "data_offsets");
    if (json_object_size(value) != 3 || json_array_size(offsets) != 2 ||
        !json_is_integer(json_array_get(offsets, 0)) ||
        !json_is_integer(json_array_get(offsets, 1)))
        return TR_FAIL(TR_ERR_DATA,
                       "%s: tensor '%.200s' must have only dtype, shape and two data_offsets.",
                       f->path, name);
    out->name = name;
    TR_TRY(read_dtype(f->path, name, json_object_get(value, "dtype"), &out->dtype));
    TR_TRY(read_shape(f->path, name, json_object_get(value, "shape"), &out->shape));
    int64_t begin = json_integer_value(json_array_get(offsets, 0)),
            end = json_integer_value(json_array_get(offsets, 1)), bytes = 0;
    int64_t available = f->bytes - f->data_start;
    if (begin < 0 || end < begin || end > available)
        return TR_FAIL(TR_ERR_DATA, "%s: tensor '%.200s' must be at bytes %lld to %lld of %lld.",
                       f->path, name, (long long)begin, (long long)end, (long long)available);
    if (!tr_tensor_bytes(out->dtype, &out->shape, &bytes) || bytes != end - begin)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: the shape and type of tensor '%.200s' do not match its %lld "
                       "bytes.",
                       f->path, name, (long long)(end - begin));
    entry->offset = f->data_start + begin;
    entry->file = f;
    return TR_OK;
}

static int by_name(const void *a, const void *b) {
    return strcmp(((const entry_t *)a)->tensor.name, ((const entry_t *)b)->tensor.name);
}

/* Lists the entry behind those that are there. */
static tr_status_t add_entry(tr_safetensors_t *f, const entry_t *entry) {
    entry_t *place = &f->entries[f->tensor_count++];
    *place = *entry;
    if (tsearch(place, &f->by_name, by_name)) return TR_OK;
    return TR_FAIL(TR_ERR_MEMORY, "not enough memory for the tensor '%.200s'", place->tensor.name);
}

/* -- the whole --------------------------------------------------------------------------------- */

static int64_t size_of(const entry_t *e) {
    int64_t bytes = 0;
    tr_tensor_bytes(e->tensor.dtype, &e->tensor.shape, &bytes);
    return bytes;
}

static int by_place(const void *a, const void *b) {
    const entry_t *x = *(const entry_t *const *)a, *y = *(const entry_t *const *)b;
    if (x->offset != y->offset) return x->offset < y->offset ? -1 : 1;
    return (size_of(x) > size_of(y)) - (size_of(x) < size_of(y));
}

/* The tensors must cover the data without overlap or gap, so that there are no unexplained
 * bytes. */
static tr_status_t check_cover(const tr_safetensors_t *f, const entry_t **sorted) {
    int64_t at = f->data_start;
    for (size_t i = 0; i < f->tensor_count; i++) sorted[i] = &f->entries[i];
    qsort(sorted, f->tensor_count, sizeof *sorted, by_place);
    for (size_t i = 0; i < f->tensor_count; i++) {
        if (sorted[i]->offset != at)
            return TR_FAIL(TR_ERR_DATA, "%s: the data of tensor '%.200s' %s those before it.",
                           f->path, sorted[i]->tensor.name,
                           sorted[i]->offset < at ? "overlap" : "leave a gap after");
        at += size_of(sorted[i]);
    }
    if (at != f->bytes)
        return TR_FAIL(TR_ERR_DATA, "%s: the last %lld bytes belong to no tensor.", f->path,
                       (long long)(f->bytes - at));
    return TR_OK;
}

static tr_status_t read_metadata(tr_safetensors_t *f, json_t *value) {
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

static tr_status_t read_entries(tr_safetensors_t *f) {
    const char *name;
    json_t *value;
    TR_TRY(tr_alloc(json_object_size(f->root) * sizeof *f->entries, "tensor list", &f->entries));
    json_object_foreach(f->root, name, value) {
        entry_t entry;
        if (strcmp(name, "__metadata__") == 0) {
            TR_TRY(read_metadata(f, value));
        } else {
            TR_TRY(read_entry(f, name, value, &entry));
            TR_TRY(add_entry(f, &entry));
        }
    }
    const entry_t **sorted = NULL;
    TR_TRY(tr_alloc(f->tensor_count * sizeof *sorted, "tensor order", &sorted));
    tr_status_t status = check_cover(f, sorted);
    tr_free(&sorted);
    return status;
}

/* Whether its beginning is text; it may end within a character. */
static bool is_text(const char *bytes, size_t count) {
    char head[257] = "";
    const size_t begin = count < 256 ? count : 256;
    memcpy(head, bytes, begin);
    if (tr_utf8_bytes(head, begin) + (count > begin ? 3 : 0) < begin) return false;
    for (size_t i = 0; i < begin; i++)
        if ((unsigned char)head[i] < ' ' && (head[i] < '\t' || head[i] > '\r')) return false;
    return true;
}

/* Guesses the kind of a file without a header. */
static const char *kind_of(const char *bytes, size_t count) {
    if (count == 0) return "an empty file";
    if (tr_begins_as_hdf5(bytes, count)) return "an HDF5 file";
    if (count > 4 && memcmp(bytes, "PK\3\4", 4) == 0)
        return "a zip file, as written by torch.save and numpy.savez (use "
               "safetensors.torch.save_file or safetensors.numpy.save_file)";
    if (count > 4 && memcmp(bytes, "\x80\x02\x8a\x0a", 4) == 0)
        return "a file written by torch.save (use safetensors.torch.save_file)";
    if (is_text(bytes, count)) return "a text file";
    return "not a safetensors file, or truncated (its first 8 bytes are not followed by a text "
           "header)";
}

static tr_status_t fail_kind(const char *path, const char *kind) {
    return TR_FAIL(TR_ERR_DATA,
                   "%s is %s; expected a checkpoint: a run folder, a checkpoint folder "
                   "(checkpoints/step-NNNNNNNN), or a .safetensors file.",
                   path, kind);
}

/* The length of the header, from the first `count` bytes of the file. */
static tr_status_t find_header(tr_safetensors_t *f, const char *head, size_t count,
                               size_t *out_length) {
    uint64_t length = 0;
    if (count > sizeof length) {
        memcpy(&length, head, sizeof length);
        length = le64toh(length);
    }
    if (length == 0 || length > HEADER_MAX_BYTES || head[sizeof length] != '{')
        return fail_kind(f->path, kind_of(head, count));
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

static tr_status_t read_header(tr_safetensors_t *f, const char *text, size_t length) {
    json_error_t error;
    f->root = json_loadb(text, length, JSON_REJECT_DUPLICATES, &error);
    if (!f->root)
        return TR_FAIL(TR_ERR_DATA, "%s: its header is not JSON: %s (byte %d).", f->path,
                       error.text, error.position);
    TR_TRY(read_entries(f));
    return f->metadata ? TR_OK : tr_strdup("{}", &f->metadata);
}

static tr_status_t create(const char *path, tr_safetensors_t **out) {
    TR_TRY(tr_alloc(sizeof **out, "safetensors file", out));
    (*out)->fd = -1;
    return tr_strdup(path, &(*out)->path);
}

tr_status_t tr_safetensors_parse(const void *bytes, size_t count, const char *path,
                                 tr_safetensors_t **out) {
    tr_safetensors_t *f = NULL;
    size_t length = 0;
    tr_status_t status = create(path, &f);
    if (status == TR_OK) f->bytes = (int64_t)count;
    if (status == TR_OK) status = find_header(f, bytes, count, &length);
    if (status == TR_OK) status = read_header(f, (const char *)bytes + sizeof(uint64_t), length);
    if (status != TR_OK) tr_safetensors_close(&f);
    *out = f;
    return status;
}

static tr_status_t read_file(tr_safetensors_t *f) {
    struct stat st;
    char head[512], *text = NULL;
    size_t length = 0;
    if (fstat(f->fd, &st) != 0) return tr_io_fail("examine", f->path, errno);
    if (!S_ISREG(st.st_mode)) return TR_FAIL(TR_ERR_DATA, "%s is not a regular file.", f->path);
    f->bytes = st.st_size;
    const size_t count = f->bytes < (int64_t)sizeof head ? (size_t)f->bytes : sizeof head;
    TR_TRY(tr_read_at(f->fd, f->path, 0, (int64_t)count, head));
    TR_TRY(find_header(f, head, count, &length));
    TR_TRY(tr_alloc(length, "header of a safetensors file", &text));
    tr_status_t status = tr_read_at(f->fd, f->path, sizeof(uint64_t), (int64_t)length, text);
    if (status == TR_OK) status = read_header(f, text, length);
    tr_free(&text);
    return status;
}

tr_status_t tr_safetensors_open(const char *path, tr_safetensors_t **out) {
    tr_safetensors_t *f = NULL;
    tr_status_t status = create(path, &f);
    if (status == TR_OK) {
        f->fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
        status = f->fd < 0 ? tr_io_fail("open", path, errno) : read_file(f);
    }
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
static void keep(void *entry) {
    (void)entry;
}

void tr_safetensors_close(tr_safetensors_t **file) {
    tr_safetensors_t *f = *file;
    if (!f) return;
    if (f->fd >= 0) close(f->fd);
    tdestroy(f->by_name, keep);
    json_decref(f->root);
    tr_free(&f->path);
    tr_free(&f->metadata);
    tr_free(&f->entries);
    for (size_t i = 0; i < f->part_count; i++) tr_safetensors_close(&f->part[i]);
    tr_free(&f->part);
    tr_free(file);
}

static tr_status_t join(tr_safetensors_t *f, tr_safetensors_t *const *files, size_t count) {
    size_t tensors = 0;
    for (size_t i = 0; i < count; i++) tensors += files[i]->tensor_count;
    TR_TRY(tr_strdup("{}", &f->metadata));
    TR_TRY(tr_alloc(tensors * sizeof *f->entries, "tensor list", &f->entries));
    TR_TRY(tr_alloc(count * sizeof *f->part, "file list", &f->part));
    for (size_t i = 0; i < count; i++)
        for (size_t k = 0; k < files[i]->tensor_count; k++)
            TR_TRY(add_entry(f, &files[i]->entries[k]));
    while (f->part_count < count) { /* from here on they are owned */
        f->part[f->part_count] = files[f->part_count];
        f->part_count++;
    }
    return TR_OK;
}

tr_status_t tr_safetensors_join(tr_safetensors_t *const *files, size_t count,
                                tr_safetensors_t **out) {
    tr_safetensors_t *f = NULL;
    TR_TRY(tr_alloc(sizeof *f, "safetensors files", &f));
    f->fd = -1;
    const tr_status_t status = join(f, files, count);
    if (status != TR_OK)
        tr_safetensors_close(&f);
    else
        *out = f;
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
    entry_t *const *found = tfind(&(entry_t){.tensor.name = name}, &f->by_name, by_name);
    return found ? &(*found)->tensor : NULL;
}
