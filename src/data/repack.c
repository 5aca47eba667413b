/* A file written anew in the fast layout: data sets of numbers go through our reader and writer, all else is copied by the library. */
#include "h5_write.h"
#include "import_int.h"
#include "trainer/log.h"
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES (4 << 20)

typedef struct {
    const tr_import_params_t *params;
    h5_file_t file;
    h5_list_t list;
    tr_writer_t *writer;
    int64_t done, total;
    tr_str_t holes; /* what is stored for samples that were never written */
} repack_t;

/* -- attributes ------------------------------------------------------------------------------------------ */

typedef struct {
    hid_t to;
} copy_t;

static herr_t copy_attribute(hid_t object, const char *name, const H5A_info_t *info, void *self) {
    hid_t to = ((copy_t *)self)->to, from = H5Aopen(object, name, H5P_DEFAULT), type = H5Aget_type(from),
          space = H5Aget_space(from);
    hid_t made = H5Acreate2(to, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    char *value = NULL;
    int64_t elems = H5Sget_simple_extent_npoints(space);
    herr_t result = -1;
    if (made >= 0 && tr_alloc((size_t)elems * H5Tget_size(type) + 1, "an attribute", &value) == TR_OK)
        result = elems == 0 || (H5Aread(from, type, value) >= 0 && H5Awrite(made, type, value) >= 0) ? 0 : -1;
    if (result == 0 && elems) H5Dvlen_reclaim(type, space, H5P_DEFAULT, value);
    tr_free(&value);
    if (made >= 0) H5Aclose(made);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(from);
    return result;
}

static tr_status_t copy_attributes(const repack_t *r, hid_t from, hid_t to, const char *name) {
    copy_t self = {to};
    if (from >= 0 && to >= 0 &&
        H5Aiterate2(from, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, copy_attribute, &self) >= 0)
        return TR_OK;
    return H5_FAIL(TR_ERR_DATA, "%s: cannot copy the attributes of /%s", r->file.path, name);
}

/* Those of the groups above `path`, once each: the list is sorted, so a group is new where the entry before does not share it. */
static tr_status_t copy_groups(const repack_t *r, const char *path, const char *before) {
    for (const char *slash = strchr(path, '/'); slash; slash = strchr(slash + 1, '/')) {
        char group[512];
        size_t length = (size_t)(slash - path) + 1;
        if (before && !strncmp(before, path, length)) continue;
        snprintf(group, sizeof group, "%.*s", (int)length - 1, path);
        hid_t from = H5Gopen2(r->file.id, group, H5P_DEFAULT),
              to = H5Gopen2(tr_writer_file(r->writer), group, H5P_DEFAULT);
        tr_status_t status = copy_attributes(r, from, to, group);
        if (from >= 0) H5Gclose(from);
        if (to >= 0) H5Gclose(to);
        TR_TRY(status);
    }
    return TR_OK;
}

/* -- data sets ------------------------------------------------------------------------------------------- */

/* The file's type in little-endian byte order: booleans stay booleans. For H5Tclose. */
static hid_t type_for(const h5_array_t *a) {
    hid_t stored = H5Dget_type(a->id), type = H5Tcopy(stored); /* the first is read-only */
    if (H5Tget_class(type) != H5T_ENUM) H5Tset_order(type, H5T_ORDER_LE);
    H5Tclose(stored);
    return type;
}

static tr_status_t copy_rows(repack_t *r, const h5_array_t *a, int array) {
    h5_scratch_t s = {0};
    size_t raw = 0, band = 0;
    char *rows = NULL;
    int64_t at_once = max64(max64(1, READ_BYTES / a->row_bytes), a->way == H5_BANDS ? a->chunk_rows : 1);
    tr_status_t status;
    tr_h5_scratch_sizes(a, &raw, &band);
    TR_TRY_GOTO(tr_alloc_aligned(raw, 64, "stored chunks", &s.raw), done);
    TR_TRY_GOTO(tr_alloc_aligned(raw, 64, "stored chunks", &s.spare), done);
    TR_TRY_GOTO(tr_alloc_aligned(band, 64, "decoded chunks", &s.band), done);
    TR_TRY_GOTO(tr_alloc_aligned((size_t)(at_once * a->row_bytes), 64, "rows", &rows), done);
    for (int64_t i = 0; i < a->rows; i += at_once) {
        int64_t count = min64(at_once, a->rows - i);
        if (a->holes.rows) memset(rows, 0, (size_t)(count * a->row_bytes)); /* HDF5 may have no fill value */
        TR_TRY_GOTO(tr_h5_read_rows(a, &s, i, count, rows), done);
        TR_TRY_GOTO(tr_writer_append(r->writer, array, count, rows), done);
        r->done += count;
        TR_TRY_GOTO(tr_import_progress(r->params, r->done, r->total), done);
    }
done:
    tr_free(&s.raw), tr_free(&s.spare), tr_free(&s.band), tr_free(&rows);
    return status;
}

/* Adds them to what the one warning says. */
static void note_holes(repack_t *r, const h5_array_t *a) {
    const h5_holes_t *holes = &a->holes;
    double value;
    if (holes->rows == 0) return;
    tr_convert(a->dtype, a->fill, 1, TR_F64, &value);
    tr_str_printf(&r->holes, "%s%lld of %lld samples of ", r->holes.text ? ", " : "", (long long)holes->rows,
                  (long long)holes->of);
    if (*holes->part)
        tr_str_printf(&r->holes, "%s, a part of /%s (as fill values)", holes->part, a->name);
    else
        tr_str_printf(&r->holes, "/%s (as %.9g)", a->name, value);
}

static tr_status_t copy_numbers(repack_t *r, const h5_array_t *a) {
    tr_shape_t shape = {.ndim = a->ndim - 1};
    int array;
    for (int d = 1; d < a->ndim; d++) shape.dim[d - 1] = a->dim[d];
    tr_h5_lock();
    hid_t type = type_for(a);
    tr_status_t status = tr_writer_array_of(r->writer, a->name, type, a->rows, &shape, &array);
    if (status == TR_OK) status = copy_attributes(r, a->id, tr_writer_dataset(r->writer, array), a->name);
    H5Tclose(type);
    tr_h5_unlock();
    note_holes(r, a);
    return status == TR_OK ? copy_rows(r, a, array) : status;
}

/* By the library: texts, compounds, scalars, numbers of odd sizes. Wants the lock. */
static tr_status_t copy_other(const repack_t *r, const char *path) {
    hid_t links = H5Pcreate(H5P_LINK_CREATE);
    H5Pset_create_intermediate_group(links, 1);
    const herr_t result = H5Ocopy(r->file.id, path, tr_writer_file(r->writer), path, H5P_DEFAULT, links);
    const tr_status_t status =
        result >= 0 ? TR_OK : H5_FAIL(TR_ERR_DATA, "%s: cannot copy /%s", r->file.path, path);
    H5Pclose(links); /* forgets HDF5's errors */
    return status;
}

static bool is_numbers(const h5_entry_t *entry) {
    return entry->ndim >= 1 && entry->ndim <= TR_MAX_DIMS &&
           (entry->type == H5T_INTEGER || entry->type == H5T_FLOAT || entry->type == H5T_ENUM);
}

static tr_status_t copy_entry(repack_t *r, const h5_entry_t *entry) {
    h5_array_t a;
    bool other = !is_numbers(entry);
    tr_h5_lock();
    tr_status_t status = other ? TR_OK : tr_h5_array_open(&r->file, entry->path, &a);
    bool ours = status == TR_OK && !other && a.plain && !(entry->type == H5T_ENUM && a.swap);
    if (status == TR_OK && !ours) status = copy_other(r, entry->path);
    tr_h5_unlock();
    if (ours) status = copy_numbers(r, &a);
    tr_h5_lock();
    if (!other) tr_h5_array_close(&a);
    tr_h5_unlock();
    return status;
}

static tr_status_t copy_all(repack_t *r) {
    for (size_t i = 0; i < r->list.count; i++)
        if (is_numbers(&r->list.data[i])) r->total += (int64_t)r->list.data[i].dim[0];
    const char *before = NULL;
    for (size_t i = 0; i < r->list.count; i++) {
        const h5_entry_t *entry = &r->list.data[i];
        if (entry->dangling) {
            TR_WARN("%s: left out: /%s", r->file.path, entry->text);
            continue;
        }
        TR_TRY(copy_entry(r, entry));
        tr_h5_lock();
        tr_status_t status = copy_groups(r, entry->path, before);
        tr_h5_unlock();
        TR_TRY(status);
        before = entry->path;
    }
    tr_h5_lock();
    hid_t from = H5Gopen2(r->file.id, "/", H5P_DEFAULT),
          to = H5Gopen2(tr_writer_file(r->writer), "/", H5P_DEFAULT);
    tr_status_t status = copy_attributes(r, from, to, "");
    if (from >= 0) H5Gclose(from);
    if (to >= 0) H5Gclose(to);
    tr_h5_unlock();
    return status;
}

/* Everything of `in` to *out_writer, which is not committed. */
static tr_status_t copy_file(const char *in, const char *out, const tr_import_params_t *params,
                             tr_writer_t **out_writer) {
    repack_t r = {.params = params};
    tr_h5_lock();
    tr_status_t status = tr_h5_file_open("repack", in, &r.file);
    if (status == TR_OK) status = tr_h5_list(&r.file, &r.list);
    tr_h5_unlock();
    if (status == TR_OK && r.list.count >= H5_LIST_MAX)
        status = TR_FAIL(TR_ERR_DATA,
                         "repack: '%s' has %d data sets or more; files with fewer are expected. h5repack "
                         "of the HDF5 tools takes it.",
                         in, H5_LIST_MAX);
    if (status == TR_OK) status = tr_writer_create(out, &params->writer, &r.writer);
    if (status == TR_OK) status = copy_all(&r);
    if (status == TR_OK) status = tr_writer_finish(r.writer);
    if (status == TR_OK && r.holes.text)
        TR_WARN("%s: what was never written is stored as what HDF5 reads there: %s", in, r.holes.text);
    *out_writer = r.writer;
    tr_str_free(&r.holes);
    tr_h5_lock();
    tr_h5_list_free(&r.list);
    tr_h5_file_close(&r.file);
    tr_h5_unlock();
    return status;
}

/* -- the file of labels ---------------------------------------------------------------------------------- */

/* By a usual name, as training finds them. */
static tr_status_t find_own_labels(const char *in, h5_names_t *out) {
    const h5_wanted_t wanted = {.key = "repack", .group = "", .x = "", .y = ""};
    h5_file_t file;
    h5_list_t list = {0};
    bool found;
    tr_h5_lock();
    tr_status_t status = tr_h5_file_open("repack", in, &file);
    if (status == TR_OK) status = tr_h5_list(&file, &list);
    if (status == TR_OK && (tr_h5_detect(&file, &list, &wanted, out, &found) != TR_OK || !found))
        *out = (h5_names_t){0}; /* inputs of another name: data.x tells, which is not known here */
    if (status == TR_OK) tr_error_clear();
    tr_h5_list_free(&list);
    tr_h5_file_close(&file);
    tr_h5_unlock();
    return status;
}

/* Whether in_y, which is set then, holds the labels of `in`, and where they go. */
static tr_status_t find_labels(const char *in, const char *out, char in_y[4096], char out_y[4096],
                               bool *out_found) {
    h5_names_t own = {0};
    *out_found = false;
    if (!tr_h5_labels_path(in, in_y) || access(in_y, F_OK)) return TR_OK;
    TR_TRY(find_own_labels(in, &own));
    if (own.y[0]) {
        TR_INFO("%s is left where it is: %s has labels of its own (/%s)", in_y, in, own.y);
        return TR_OK;
    }
    *out_found = true;
    if (tr_h5_labels_path(out, out_y)) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE,
                   "'%s' belongs to '%s', and the two are found by their names: call the new file NAME_x.h5, "
                   "not '%s', and the other is written as NAME_y.h5.",
                   in_y, in, out);
}

tr_status_t tr_repack(const char *in, const char *out, const tr_import_params_t *params) {
    char in_y[4096], out_y[4096];
    tr_writer_t *x = NULL, *y = NULL;
    bool has_y;
    TR_TRY(tr_import_check_place(in, out));
    TR_TRY(find_labels(in, out, in_y, out_y, &has_y));
    if (has_y) TR_TRY(tr_import_check_place(in_y, out_y));
    tr_status_t status = has_y ? copy_file(in_y, out_y, params, &y) : TR_OK;
    if (status == TR_OK) status = copy_file(in, out, params, &x);
    if (status == TR_OK && has_y) status = tr_writer_commit(y); /* both are whole by now */
    if (status == TR_OK) status = tr_writer_commit(x);
    if (status == TR_OK && has_y) TR_INFO("%s is written as %s", in_y, out_y);
    tr_writer_destroy(&y);
    tr_writer_destroy(&x);
    return status;
}
