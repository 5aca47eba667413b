/* Writes files in the fast layout (writer.h). Chunks are encoded here, including the checksum, and
 * passed to the library unchanged. */
#include "h5_write.h"
#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES     (1 << 20)
#define CHUNK_BYTES_MAX ((int64_t)4000 << 20) /* the format's limit is 4 GiB */
/* Chunks of this size are page-aligned, which makes copies faster and direct I/O possible. */
#define ALIGN_FROM  (64 << 10)
#define ALIGN_BYTES 4096
#define CAUSE_MARK  "errno = " /* marks the system's error in HDF5's message */

typedef struct {
    hid_t id;
    char *name;
    int ndim;
    int64_t rows, done, row_bytes, chunk_rows;
    char *chunk; /* [chunk_rows * row_bytes + 4] */
} array_t;

struct tr_writer {
    char *path, *part;
    bool committed;
    int64_t chunk_bytes;
    int64_t free_bytes; /* on the disk at first, without the arrays */
    hid_t id;
    TR_VEC(array_t) arrays;
};

static tr_status_t writer_fail(const tr_writer_t *w, const char *what) {
    char reason[1024], verb[256];
    const char *cause = strstr(tr_h5_reason(reason, sizeof reason), CAUSE_MARK);
    int error = cause ? atoi(cause + strlen(CAUSE_MARK)) : 0;
    if (error == 0 && tr_free_bytes(w->part) == 0) error = ENOSPC;
    if (error == 0)
        return TR_FAIL(TR_ERR_IO, "cannot write %s of '%s'; is the disk full, or a quota exceeded?",
                       what, w->path);
    snprintf(verb, sizeof verb, "write %.200s of", what);
    return tr_io_fail(verb, w->path, error);
}

static hid_t writer_create_file(const char *path) {
    hid_t access = H5Pcreate(H5P_FILE_ACCESS);
    /* Files that 1.10 and all later versions read; the newer format checks its own metadata. */
    H5Pset_libver_bounds(access, H5F_LIBVER_V110, H5F_LIBVER_V110);
    H5Pset_alignment(access, ALIGN_FROM, ALIGN_BYTES);
#if H5_HAVE_SET_LOCKING
    H5Pset_file_locking(access, 0, 1);
#endif
    hid_t id = H5Fcreate(path, H5F_ACC_TRUNC, H5P_DEFAULT, access);
    H5Pclose(access);
    return id;
}

static tr_status_t writer_part_of(const char *path, char **out) {
    tr_str_t part = {0};
    tr_str_printf(&part, "%s.part-%ld", path, (long)getpid());
    return tr_str_take(&part, out);
}

bool tr_writer_remove_part(const char *path) {
    char *part = NULL;
    const bool removed = writer_part_of(path, &part) == TR_OK && unlink(part) == 0;
    tr_free(&part);
    return removed;
}

tr_status_t tr_writer_create(const char *path, const tr_writer_params_t *params,
                             tr_writer_t **out) {
    tr_writer_t *w = NULL;
    char *copy = NULL;
    tr_status_t status;
    *out = NULL;
    if (!params->force && access(path, F_OK) == 0)
        return TR_FAIL(TR_ERR_CONFIG, "'%s' already exists; --force replaces it.", path);
    TR_TRY(tr_alloc(sizeof *w, "writer", &w));
    w->id = -1;
    w->chunk_bytes = params->chunk_bytes > 0 ? params->chunk_bytes : CHUNK_BYTES;
    TR_TRY_GOTO(tr_strdup(path, &w->path), failed);
    TR_TRY_GOTO(writer_part_of(path, &w->part), failed);
    TR_TRY_GOTO(tr_strdup(path, &copy), failed);
    const char *folder = dirname(copy);
    w->free_bytes = tr_free_bytes(folder);
    const int fd = tr_create_file(w->part); /* before the library, which would follow a link */
    if (fd < 0) {
        const int reason = errno;
        status = reason == ENOENT ? TR_FAIL(tr_status_of_errno(reason),
                                            "cannot create '%s': no folder '%s'.", path, folder)
                                  : tr_io_fail("create", path, reason);
        goto failed;
    }
    close(fd);
    tr_h5_lock();
    w->id = writer_create_file(w->part);
    tr_h5_unlock();
    if (w->id < 0) {
        status = writer_fail(w, "the beginning");
        goto failed;
    }
    tr_free(&copy);
    *out = w;
    return TR_OK;
failed:
    tr_free(&copy);
    tr_writer_destroy(&w);
    return status;
}

void tr_writer_destroy(tr_writer_t **writer) {
    tr_writer_t *w = *writer;
    *writer = NULL;
    if (!w) return;
    tr_h5_lock();
    for (size_t i = 0; i < w->arrays.count; i++) {
        if (w->arrays.data[i].id >= 0) H5Dclose(w->arrays.data[i].id);
        tr_free(&w->arrays.data[i].chunk);
        tr_free(&w->arrays.data[i].name);
    }
    if (w->id >= 0) H5Fclose(w->id);
    tr_h5_unlock();
    if (w->part && !w->committed) unlink(w->part);
    tr_vec_free(&w->arrays);
    tr_free(&w->path);
    tr_free(&w->part);
    tr_free(&w);
}

/* -- arrays ------------------------------------------------------------------------------------ */

/* For H5Tclose. */
static hid_t h5_write_type_of(tr_dtype_t dtype) {
    hid_t half;
    switch (dtype) {
    case TR_U8: return H5Tcopy(H5T_STD_U8LE);
    case TR_I8: return H5Tcopy(H5T_STD_I8LE);
    case TR_U16: return H5Tcopy(H5T_STD_U16LE);
    case TR_I16: return H5Tcopy(H5T_STD_I16LE);
    case TR_U32: return H5Tcopy(H5T_STD_U32LE);
    case TR_I32: return H5Tcopy(H5T_STD_I32LE);
    case TR_U64: return H5Tcopy(H5T_STD_U64LE);
    case TR_I64: return H5Tcopy(H5T_STD_I64LE);
    case TR_F16:
        half = H5Tcopy(H5T_IEEE_F32LE);
        H5Tset_fields(half, 15, 10, 5, 0, 10);
        H5Tset_size(half, 2);
        H5Tset_ebias(half, 15);
        return half;
    case TR_F64: return H5Tcopy(H5T_IEEE_F64LE);
    default: return H5Tcopy(H5T_IEEE_F32LE);
    }
}

static hid_t writer_create_dataset(const tr_writer_t *w, const array_t *a, hid_t type,
                                   const hsize_t *dim) {
    hsize_t chunk[TR_MAX_DIMS + 1];
    hid_t links = H5Pcreate(H5P_LINK_CREATE), made = H5Pcreate(H5P_DATASET_CREATE),
          access = H5Pcreate(H5P_DATASET_ACCESS);
    hid_t space = H5Screate_simple(a->ndim, dim, NULL);
    memcpy(chunk, dim, sizeof chunk);
    chunk[0] = (hsize_t)a->chunk_rows;
    H5Pset_create_intermediate_group(links, 1);
    H5Pset_fill_time(made, H5D_FILL_TIME_NEVER);
    if (a->rows > 0) {
        H5Pset_chunk(made, a->ndim, chunk);
        H5Pset_fletcher32(made);
        H5Pset_chunk_cache(access, 1, 0, 1.0); /* chunks go past it */
    }
    hid_t id = H5Dcreate2(w->id, a->name, type, space, links, made, access);
    H5Sclose(space);
    H5Pclose(access);
    H5Pclose(made);
    H5Pclose(links);
    return id;
}

/* All arrays must fit: better to fail now than after hours of writing. */
static tr_status_t writer_take_space(tr_writer_t *w, const char *name, int64_t rows,
                                     int64_t row_bytes) {
    if (rows <= w->free_bytes / row_bytes) {
        w->free_bytes -= rows * row_bytes;
        return TR_OK;
    }
    char needed[32], left[32];
    return TR_FAIL(TR_ERR_IO,
                   "'%s' does not fit on the disk: expected %s for %lld samples of %lld bytes in "
                   "'%s', found %s free. Write fewer samples, or choose another disk.",
                   w->path, tr_format_bytes((double)rows * (double)row_bytes, needed),
                   (long long)rows, (long long)row_bytes, name,
                   tr_format_bytes((double)w->free_bytes, left));
}

tr_status_t tr_writer_array_of(tr_writer_t *w, const char *name, hid_t type, int64_t rows,
                               const tr_shape_t *shape, int *out_array) {
    array_t a = {
        .id = -1, .ndim = shape->ndim + 1, .rows = rows, .row_bytes = (int64_t)H5Tget_size(type)};
    hsize_t dim[TR_MAX_DIMS + 1] = {(hsize_t)rows};
    for (int d = 0; d < shape->ndim; d++) dim[d + 1] = (hsize_t)shape->dim[d];
    a.row_bytes *= tr_shape_elems(shape);
    if (a.row_bytes < 1 || a.row_bytes > CHUNK_BYTES_MAX)
        return TR_FAIL(TR_ERR_DATA,
                       "'%s' in '%s': cannot write a sample of %lld bytes; expected 1 to %lld.",
                       name, w->path, (long long)a.row_bytes, (long long)CHUNK_BYTES_MAX);
    TR_TRY(writer_take_space(w, name, rows, a.row_bytes));
    a.chunk_rows = max64(1, min64(rows, min64(w->chunk_bytes, CHUNK_BYTES_MAX) / a.row_bytes));
    TR_TRY(tr_strdup(name, &a.name));
    tr_status_t status = tr_alloc((size_t)(a.chunk_rows * a.row_bytes + 4), "a chunk", &a.chunk);
    if (status == TR_OK) status = tr_vec_push(&w->arrays, a);
    if (status != TR_OK) {
        tr_free(&a.chunk);
        tr_free(&a.name);
        return status;
    }
    *out_array = (int)w->arrays.count - 1;
    hid_t id = w->arrays.data[*out_array].id = writer_create_dataset(w, &a, type, dim);
    return id >= 0 ? TR_OK : writer_fail(w, name);
}

tr_status_t tr_writer_array(tr_writer_t *w, const char *name, tr_dtype_t dtype, int64_t rows,
                            const tr_shape_t *shape, int *out_array) {
    tr_h5_lock();
    hid_t type = h5_write_type_of(dtype);
    tr_status_t status = tr_writer_array_of(w, name, type, rows, shape, out_array);
    H5Tclose(type);
    tr_h5_unlock();
    return status;
}

/* Writes the chunk that is full, or the last one. */
static tr_status_t writer_flush_chunk(tr_writer_t *w, array_t *a) {
    hsize_t offset[TR_MAX_DIMS + 1] = {(hsize_t)((a->done - 1) / a->chunk_rows * a->chunk_rows)};
    size_t bytes = (size_t)(a->chunk_rows * a->row_bytes),
           used = (size_t)((a->done - (int64_t)offset[0]) * a->row_bytes);
    memset(a->chunk + used, 0, bytes - used);
    uint32_t sum = tr_fletcher32(a->chunk, bytes);
    for (int i = 0; i < 4; i++) a->chunk[bytes + (size_t)i] = (char)(sum >> 8 * i);
    tr_h5_lock();
    herr_t result = H5Dwrite_chunk(a->id, H5P_DEFAULT, 0, offset, bytes + 4, a->chunk);
    tr_h5_unlock();
    return result >= 0 ? TR_OK : writer_fail(w, a->name);
}

tr_status_t tr_writer_append(tr_writer_t *w, int array, int64_t rows, const void *data) {
    array_t *a = &w->arrays.data[array];
    const char *from = data;
    if (rows > a->rows - a->done)
        return TR_FAIL(TR_ERR_INTERNAL, "'%s' in '%s' has room for %lld rows, not %lld.", a->name,
                       w->path, (long long)a->rows, (long long)(a->done + rows));
    while (rows > 0) {
        int64_t at = a->done % a->chunk_rows, count = min64(rows, a->chunk_rows - at);
        memcpy(a->chunk + at * a->row_bytes, from, (size_t)(count * a->row_bytes));
        a->done += count;
        from += count * a->row_bytes;
        rows -= count;
        if (a->done % a->chunk_rows == 0 || a->done == a->rows) TR_TRY(writer_flush_chunk(w, a));
    }
    if (a->done == a->rows) tr_free(&a->chunk); /* a file may have many arrays */
    return TR_OK;
}

tr_status_t tr_writer_strings(tr_writer_t *w, const char *name, int64_t count,
                              const char *const *texts) {
    const hsize_t dim = (hsize_t)count;
    tr_h5_lock();
    hid_t type = H5Tcopy(H5T_C_S1), links = H5Pcreate(H5P_LINK_CREATE);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    H5Pset_create_intermediate_group(links, 1);
    hid_t space = H5Screate_simple(1, &dim, NULL),
          id = H5Dcreate2(w->id, name, type, space, links, H5P_DEFAULT, H5P_DEFAULT);
    const herr_t result = id >= 0 ? H5Dwrite(id, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, texts) : -1;
    if (id >= 0) H5Dclose(id);
    H5Sclose(space);
    H5Pclose(links);
    H5Tclose(type);
    const tr_status_t status = result >= 0 ? TR_OK : writer_fail(w, name);
    tr_h5_unlock();
    return status;
}

/* -- attributes -------------------------------------------------------------------------------- */

static tr_status_t writer_put_attribute(tr_writer_t *w, const char *object, const char *name,
                                        hid_t type, int64_t count, const void *values) {
    hsize_t dim = (hsize_t)count;
    tr_h5_lock();
    hid_t space = count == 1 ? H5Screate(H5S_SCALAR) : H5Screate_simple(1, &dim, NULL);
    hid_t id =
        H5Acreate_by_name(w->id, object, name, type, space, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    herr_t result = id >= 0 ? H5Awrite(id, type, values) : -1;
    if (id >= 0) H5Aclose(id);
    H5Sclose(space);
    tr_status_t status = result >= 0 ? TR_OK : writer_fail(w, name);
    tr_h5_unlock();
    return status;
}

tr_status_t tr_writer_numbers(tr_writer_t *w, const char *object, const char *name, int64_t count,
                              const double *values) {
    return writer_put_attribute(w, object, name, H5T_NATIVE_DOUBLE, count, values);
}

tr_status_t tr_writer_texts(tr_writer_t *w, const char *object, const char *name, int64_t count,
                            const char *const *values) {
    tr_h5_lock();
    hid_t type = H5Tcopy(H5T_C_S1);
    H5Tset_size(type, H5T_VARIABLE);
    H5Tset_cset(type, H5T_CSET_UTF8);
    tr_h5_unlock();
    tr_status_t status = writer_put_attribute(w, object, name, type, count, values);
    tr_h5_lock();
    H5Tclose(type);
    tr_h5_unlock();
    return status;
}

hid_t tr_writer_file(const tr_writer_t *w) {
    return w->id;
}

/* -- the end ----------------------------------------------------------------------------------- */

tr_status_t tr_writer_finish(tr_writer_t *w) {
    for (size_t i = 0; i < w->arrays.count; i++)
        if (w->arrays.data[i].done != w->arrays.data[i].rows)
            return TR_FAIL(TR_ERR_INTERNAL, "'%s' in '%s' has %lld of %lld rows.",
                           w->arrays.data[i].name, w->path, (long long)w->arrays.data[i].done,
                           (long long)w->arrays.data[i].rows);
    herr_t result = 0;
    tr_h5_lock();
    for (size_t i = 0; i < w->arrays.count; i++) {
        if (H5Dclose(w->arrays.data[i].id) < 0) result = -1;
        w->arrays.data[i].id = -1;
    }
    if (H5Fclose(w->id) < 0) result = -1;
    w->id = -1;
    const tr_status_t status = result >= 0 ? TR_OK : writer_fail(w, "the end");
    tr_h5_unlock();
    TR_TRY(status);
    const int fd = open(w->part, O_RDONLY | O_CLOEXEC), synced = fd < 0 ? -1 : fsync(fd),
              reason = errno;
    if (fd >= 0) close(fd);
    return synced == 0 ? TR_OK : tr_io_fail("fsync", w->path, reason);
}

tr_status_t tr_writer_commit(tr_writer_t *w) {
    if (w->id >= 0) TR_TRY(tr_writer_finish(w));
    TR_TRY(tr_replace_by(w->part, w->path, true));
    w->committed = true;
    return TR_OK;
}
