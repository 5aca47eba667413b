/*
 * Rewrites a file in the fast layout. Numeric data sets are copied by our reader and writer;
 * groups, soft links, other data sets and attributes are copied by the HDF5 library. References and
 * external links point to objects that the copy does not contain; they are skipped with a warning.
 */
#define H5_USE_110_API /* objects have addresses in 1.10; later versions have opaque tokens */
#include "data/hdf5/hdf5_source.h"
#include "h5/h5_write.h"
#include "import_int.h"
#include "trainer/log.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES (4 << 20)

typedef enum { SKIP, SOFT_LINK, HARD_LINK, GROUP, NUMBERS, OTHER } kind_t;

typedef struct {
    char *path;      /* from the root, with the leading slash */
    haddr_t address; /* of the object; hard links only */
    size_t same;     /* HARD_LINK: the entry of the same object */
    kind_t kind;
} entry_t;

typedef struct {
    const tr_import_params_t *params;
    h5_file_t file;
    TR_VEC(entry_t) list; /* the root, then every link; a group before its members */
    tr_writer_t *writer;
    int64_t done, total;
    int64_t references, external; /* left out */
    tr_status_t status;           /* of what HDF5 calls back */
} repack_t;

static tr_status_t repack_fail(const repack_t *r, const char *what, const char *path) {
    return H5_FAIL(TR_ERR_DATA, "%s: cannot copy %s%s", r->file.path, what, path);
}

/* -- the contents of the file; requires the lock ----------------------------------------------- */

static tr_status_t repack_add_entry(repack_t *r, const char *name, kind_t kind, haddr_t address) {
    entry_t entry = {.kind = kind, .address = address};
    tr_str_t path = {0};
    tr_str_printf(&path, "/%s", name);
    TR_TRY(tr_str_take(&path, &entry.path));
    const tr_status_t status = tr_vec_push(&r->list, entry);
    if (status != TR_OK) tr_free(&entry.path);
    return status;
}

static herr_t repack_note_link(hid_t root, const char *name, const H5L_info_t *info, void *self) {
    repack_t *r = self;
    const bool hard = info->type == H5L_TYPE_HARD, soft = info->type == H5L_TYPE_SOFT;
    r->external += !hard && !soft;
    r->status = repack_add_entry(r, name,
                                 hard   ? OTHER
                                 : soft ? SOFT_LINK
                                        : SKIP,
                                 hard ? info->u.address : HADDR_UNDEF);
    return r->status == TR_OK ? 0 : -1;
}

static kind_t repack_dataset_kind(repack_t *r, hid_t id) {
    const hid_t space = H5Dget_space(id), type = H5Dget_type(id);
    const H5T_class_t class = H5Tget_class(type);
    const int ndim = H5Sget_simple_extent_ndims(space);
    hsize_t dim[H5S_MAX_RANK];
    kind_t kind = OTHER;
    if (H5Tdetect_class(type, H5T_REFERENCE) > 0) {
        kind = SKIP;
        r->references++;
    } else if ((class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_ENUM) && ndim >= 1 &&
               ndim <= TR_MAX_DIMS && H5Sget_simple_extent_npoints(space) > 0) {
        kind = NUMBERS;
        H5Sget_simple_extent_dims(space, dim, NULL);
        r->total += (int64_t)dim[0];
    }
    H5Tclose(type);
    H5Sclose(space);
    return kind;
}

/* Lists all links, and the kind of what they refer to. */
static tr_status_t repack_list(repack_t *r) {
    H5O_info_t root;
    if (H5Oget_info(r->file.id, &root) < 0) return repack_fail(r, "", "/");
    TR_TRY(repack_add_entry(r, "", OTHER, root.addr));
    if (H5Lvisit(r->file.id, H5_INDEX_NAME, H5_ITER_INC, repack_note_link, r) < 0)
        return r->status != TR_OK ? r->status
                                  : repack_fail(r, "", r->list.data[r->list.count - 1].path);
    for (size_t i = 0; i < r->list.count; i++) {
        entry_t *entry = &r->list.data[i];
        if (entry->kind != OTHER) continue;
        /* A link to an object that an earlier entry refers to is a hard link to it. */
        while (entry->same < i && r->list.data[entry->same].address != entry->address)
            entry->same++;
        if (entry->same < i) {
            entry->kind = HARD_LINK;
            continue;
        }
        const hid_t id = H5Oopen(r->file.id, entry->path, H5P_DEFAULT);
        if (id < 0) return repack_fail(r, "", entry->path);
        const H5I_type_t object = H5Iget_type(id);
        if (object == H5I_GROUP) entry->kind = GROUP;
        if (object == H5I_DATASET) entry->kind = repack_dataset_kind(r, id);
        H5Oclose(id);
    }
    return TR_OK;
}

/* -- attributes; the caller holds the lock ----------------------------------------------------- */

typedef struct {
    repack_t *repack;
    hid_t to;
} copy_t;

static herr_t repack_copy_attribute(hid_t object, const char *name, const H5A_info_t *info,
                                    void *self) {
    const copy_t *copy = self;
    const hid_t from = H5Aopen(object, name, H5P_DEFAULT), type = H5Aget_type(from),
                space = H5Aget_space(from);
    const bool refers = H5Tdetect_class(type, H5T_REFERENCE) > 0;
    copy->repack->references += refers;
    const hid_t made =
        refers ? -1 : H5Acreate2(copy->to, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    bool done = refers;
    if (made >= 0) {
        const hssize_t elems = H5Sget_simple_extent_npoints(space);
        char *value = NULL;
        done = elems == 0;
        if (elems > 0 &&
            tr_alloc((size_t)elems * H5Tget_size(type), "an attribute", &value) == TR_OK) {
            done = H5Aread(from, type, value) >= 0 && H5Awrite(made, type, value) >= 0;
            H5Dvlen_reclaim(type, space, H5P_DEFAULT, value);
            tr_free(&value);
        }
        H5Aclose(made);
    }
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(from);
    return done ? 0 : -1;
}

static tr_status_t repack_copy_attributes(repack_t *r, const entry_t *entry) {
    const hid_t from = H5Oopen(r->file.id, entry->path, H5P_DEFAULT),
                to = H5Oopen(tr_writer_file(r->writer), entry->path, H5P_DEFAULT);
    copy_t copy = {r, to};
    const bool done =
        from >= 0 && to >= 0 &&
        H5Aiterate2(from, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, repack_copy_attribute, &copy) >= 0;
    if (from >= 0) H5Oclose(from);
    if (to >= 0) H5Oclose(to);
    return done ? TR_OK : repack_fail(r, "the attributes of ", entry->path);
}

/* -- data sets of numbers ---------------------------------------------------------------------- */

static tr_status_t repack_copy_rows(repack_t *r, const h5_array_t *a, int array) {
    h5_scratch_t s = {0};
    char *rows = NULL;
    int64_t at_once =
        max64(max64(1, READ_BYTES / a->row_bytes), a->way == H5_CHUNK_ROWS ? a->chunk_rows : 1);
    tr_status_t status;
    TR_TRY_GOTO(tr_alloc_aligned((size_t)(at_once * a->row_bytes), 64, "rows", &rows), done);
    for (int64_t i = 0; i < a->rows; i += at_once) {
        int64_t count = min64(at_once, a->rows - i);
        /* HDF5 may have no fill value */
        if (a->unallocated.rows) memset(rows, 0, (size_t)(count * a->row_bytes));
        TR_TRY_GOTO(tr_h5_read_rows(a, &s, i, count, rows), done);
        TR_TRY_GOTO(tr_writer_append(r->writer, array, count, rows), done);
        r->done += count;
        TR_TRY_GOTO(tr_import_progress(r->params, r->done, r->total), done);
    }
done:
    tr_h5_scratch_free(&s);
    tr_free(&rows);
    return status;
}

static tr_status_t repack_copy_numbers(repack_t *r, const entry_t *entry) {
    h5_array_t a = {.id = -1};
    int array;
    tr_h5_lock();
    tr_status_t status = tr_h5_array_open(&r->file, entry->path + 1, &a);
    const bool is_open = status == TR_OK;
    if (is_open) {
        /* The type of the file in little-endian byte order; booleans stay booleans. */
        const hid_t stored = H5Dget_type(a.id), type = H5Tcopy(stored); /* stored is read-only */
        tr_shape_t shape = {.ndim = a.ndim - 1};
        if (H5Tget_class(type) != H5T_ENUM) H5Tset_order(type, H5T_ORDER_LE);
        for (int d = 1; d < a.ndim; d++) shape.dim[d - 1] = a.dim[d];
        status = tr_writer_array_of(r->writer, a.name, type, a.rows, &shape, &array);
        H5Tclose(stored);
        H5Tclose(type);
    }
    tr_h5_unlock();
    if (is_open && a.unallocated.rows > 0) {
        double value;
        tr_convert(a.dtype, a.fill, 1, TR_F64, &value);
        TR_WARN("%s: %lld of %lld samples of /%s were never written; their fill value, %.9g, is "
                "stored",
                r->file.path, (long long)a.unallocated.rows, (long long)a.unallocated.of, a.name,
                value);
    }
    if (status == TR_OK) status = repack_copy_rows(r, &a, array);
    tr_h5_lock();
    tr_h5_array_close(&a);
    tr_h5_unlock();
    return status;
}

/* -- everything -------------------------------------------------------------------------------- */

/* Copies everything but numeric data sets, without attributes. Requires the lock. */
static bool repack_copy_object(const repack_t *r, const entry_t *entry) {
    const hid_t to = tr_writer_file(r->writer);
    const char *path = entry->path;
    if (entry == r->list.data) return true; /* the root exists */
    if (entry->kind == GROUP) {
        const hid_t made = H5Gcreate2(to, path, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
        if (made >= 0) H5Gclose(made);
        return made >= 0;
    }
    if (entry->kind == SOFT_LINK)
        return H5Lcopy(r->file.id, path, to, path, H5P_DEFAULT, H5P_DEFAULT) >= 0;
    if (entry->kind == HARD_LINK)
        return H5Lcreate_hard(to, r->list.data[entry->same].path, to, path, H5P_DEFAULT,
                              H5P_DEFAULT) >= 0;
    const hid_t how = H5Pcreate(H5P_OBJECT_COPY);
    H5Pset_copy_object(how, H5O_COPY_WITHOUT_ATTR_FLAG);
    const bool done = H5Ocopy(r->file.id, path, to, path, how, H5P_DEFAULT) >= 0;
    H5Pclose(how);
    return done;
}

/* Copies everything from `in` to *out_writer, which is not committed. */
static tr_status_t repack_copy_file(const char *in, const char *out,
                                    const tr_import_params_t *params, tr_writer_t **out_writer) {
    repack_t r = {.params = params};
    tr_h5_lock();
    tr_status_t status = tr_h5_file_open("repack", in, &r.file);
    if (status == TR_OK) status = repack_list(&r);
    tr_h5_unlock();
    TR_TRY_GOTO(status, done);
    TR_TRY_GOTO(tr_writer_create(out, &params->writer, &r.writer), done);
    for (size_t i = 0; i < r.list.count; i++) {
        const entry_t *entry = &r.list.data[i];
        if (entry->kind == SKIP ||
            (entry->kind == HARD_LINK && r.list.data[entry->same].kind == SKIP))
            continue;
        if (entry->kind == NUMBERS) TR_TRY_GOTO(repack_copy_numbers(&r, entry), done);
        tr_h5_lock();
        if (entry->kind != NUMBERS && !repack_copy_object(&r, entry))
            status = repack_fail(&r, "", entry->path);
        if (status == TR_OK && entry->kind >= GROUP) status = repack_copy_attributes(&r, entry);
        tr_h5_unlock();
        TR_TRY_GOTO(status, done);
    }
    TR_TRY_GOTO(tr_writer_finish(r.writer), done);
    if (r.references || r.external)
        TR_WARN("%s: %lld data sets or attributes with object references and %lld external links "
                "were not "
                "copied",
                in, (long long)r.references, (long long)r.external);
done:
    *out_writer = r.writer;
    for (size_t i = 0; i < r.list.count; i++) tr_free(&r.list.data[i].path);
    tr_vec_free(&r.list);
    tr_h5_lock();
    tr_h5_file_close(&r.file);
    tr_h5_unlock();
    return status;
}

/* -- the file of labels ------------------------------------------------------------------------ */

/* Whether there is a separate file with the labels of `in`. If so, sets in_y and the output
 * path. */
static tr_status_t repack_find_labels(const char *in, const char *out, char in_y[4096],
                                      char out_y[4096], bool *out_found) {
    const h5_wanted_t wanted = {.key = "repack", .group = "", .x = "", .y = "", .mask = ""};
    h5_names_t own = {0};
    h5_file_t file;
    h5_list_t list = {0};
    bool found;
    *out_found = false;
    if (!tr_h5_labels_path(in, in_y) || access(in_y, F_OK)) return TR_OK;

    /* Its own labels have a usual name, as in training. */
    tr_h5_lock();
    tr_status_t status = tr_h5_file_open("repack", in, &file);
    if (status == TR_OK) status = tr_h5_list(&file, &list);
    if (status == TR_OK && (tr_h5_detect(&file, &list, &wanted, &own, &found) != TR_OK || !found))
        /* inputs with another name, selected by data.x, are not known here */
        own = (h5_names_t){0};
    if (status == TR_OK) tr_error_clear();
    tr_h5_list_free(&list);
    tr_h5_file_close(&file);
    tr_h5_unlock();
    TR_TRY(status);
    if (own.y[0]) {
        TR_INFO("%s is not repacked: %s has its own labels (/%s)", in_y, in, own.y);
        return TR_OK;
    }
    *out_found = true;
    if (tr_h5_labels_path(out, out_y)) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE,
                   "'%s' belongs to '%s', and files are paired by their names: name the new file "
                   "NAME_x.h5 instead of '%s'; the other file is then written as NAME_y.h5.",
                   in_y, in, out);
}

tr_status_t tr_repack(const char *in, const char *out, const tr_import_params_t *params) {
    char in_y[4096], out_y[4096];
    tr_writer_t *x = NULL, *y = NULL;
    bool has_y;
    TR_TRY(tr_import_check_place(in, out));
    TR_TRY(repack_find_labels(in, out, in_y, out_y, &has_y));
    if (has_y) TR_TRY(tr_import_check_place(in_y, out_y));
    tr_status_t status = has_y ? repack_copy_file(in_y, out_y, params, &y) : TR_OK;
    if (status == TR_OK) status = repack_copy_file(in, out, params, &x);
    if (status == TR_OK && has_y) status = tr_writer_commit(y); /* both are whole by now */
    if (status == TR_OK) status = tr_writer_commit(x);
    if (status == TR_OK && has_y) TR_INFO("%s is written as %s", in_y, out_y);
    tr_writer_destroy(&y);
    tr_writer_destroy(&x);
    return status;
}
