/* A file written anew in the fast layout: data sets of numbers go through our reader and writer, all else is copied by the library. */
#define H5_USE_110_API /* objects have addresses there; later ones hide them in tokens */
#include "data/hdf5_source.h"
#include "h5/h5_write.h"
#include "import_int.h"
#include "trainer/log.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define READ_BYTES (4 << 20)

/* What a link leads to; LINK where it is a soft or external one, or another name of what an entry before it leads to. */
typedef enum { LINK, GROUP, NUMBERS, REFERENCES, OTHER } kind_t;

typedef struct {
    char *path; /* from the root, with the leading slash */
    H5L_type_t link;
    haddr_t address; /* of the object; hard links only */
    kind_t kind;
} entry_t;

typedef struct {
    const tr_import_params_t *params;
    h5_file_t file;
    TR_VEC(entry_t) list;       /* the root, then all links: those of a group behind the one to it */
    const entry_t **by_address; /* [list.count], of one address in the list's order */
    tr_writer_t *writer;
    int64_t done, total;
    tr_str_t holes;     /* what is stored for samples that were never written */
    tr_status_t status; /* of what HDF5 calls back */
    bool lost;          /* a reference that leads nowhere was met */
    tr_str_t emptied;   /* where such references are */
} repack_t;

static tr_status_t cannot_copy(const repack_t *r, const char *what, const char *path) {
    return H5_FAIL(TR_ERR_DATA, "%s: cannot copy %s%s", r->file.path, what, path);
}

/* -- what there is --------------------------------------------------------------------------------------- */

static tr_status_t add_entry(repack_t *r, const char *name, H5L_type_t link, haddr_t address) {
    entry_t entry = {.link = link, .address = address};
    tr_str_t path = {0};
    tr_str_printf(&path, "/%s", name);
    TR_TRY(tr_str_take(&path, &entry.path));
    const tr_status_t status = tr_vec_push(&r->list, entry);
    if (status != TR_OK) tr_free(&entry.path);
    return status;
}

static herr_t note_link(hid_t root, const char *name, const H5L_info_t *info, void *self) {
    repack_t *r = self;
    r->status = add_entry(r, name, info->type, info->type == H5L_TYPE_HARD ? info->u.address : HADDR_UNDEF);
    return r->status == TR_OK ? 0 : -1;
}

static int by_address(const void *a, const void *b) {
    const entry_t *x = *(const entry_t *const *)a, *y = *(const entry_t *const *)b;
    if (x->address != y->address) return x->address < y->address ? -1 : 1;
    return (x > y) - (x < y);
}

/* The first link to the object at this address; NULL: there is none. */
static const entry_t *find_entry(const repack_t *r, haddr_t address) {
    size_t low = 0, high = r->list.count;
    while (low < high) {
        const size_t middle = low + (high - low) / 2;
        if (r->by_address[middle]->address < address)
            low = middle + 1;
        else
            high = middle;
    }
    return low < r->list.count && r->by_address[low]->address == address ? r->by_address[low] : NULL;
}

static kind_t kind_of_dataset(repack_t *r, hid_t id) {
    const hid_t space = H5Dget_space(id), type = H5Dget_type(id);
    const H5T_class_t class = H5Tget_class(type);
    const bool swapped =
        class == H5T_ENUM && H5Tget_size(type) > 1 && H5Tget_order(type) != H5Tget_order(H5T_NATIVE_INT);
    const int ndim = H5Sget_simple_extent_ndims(space);
    hsize_t dim[H5S_MAX_RANK];
    kind_t kind = OTHER;
    if (H5Tdetect_class(type, H5T_REFERENCE) > 0) kind = REFERENCES;
    if ((class == H5T_INTEGER || class == H5T_FLOAT || class == H5T_ENUM) && !swapped && ndim >= 1 &&
        ndim <= TR_MAX_DIMS && H5Sget_simple_extent_npoints(space) > 0) {
        kind = NUMBERS;
        H5Sget_simple_extent_dims(space, dim, NULL);
        r->total += (int64_t)dim[0];
    }
    H5Tclose(type);
    H5Sclose(space);
    return kind;
}

static tr_status_t look_at(repack_t *r, entry_t *entry) {
    if (entry->link != H5L_TYPE_HARD || find_entry(r, entry->address) != entry) return TR_OK;
    const hid_t id = H5Oopen(r->file.id, entry->path, H5P_DEFAULT);
    if (id < 0) return cannot_copy(r, "", entry->path);
    const H5I_type_t type = H5Iget_type(id);
    entry->kind = type == H5I_GROUP ? GROUP : type == H5I_DATASET ? kind_of_dataset(r, id) : OTHER;
    H5Oclose(id);
    return TR_OK;
}

/* Wants the lock. */
static tr_status_t list_all(repack_t *r) {
    H5O_info_t root;
    if (H5Oget_info(r->file.id, &root) < 0) return cannot_copy(r, "", "/");
    TR_TRY(add_entry(r, "", H5L_TYPE_HARD, root.addr));
    if (H5Lvisit(r->file.id, H5_INDEX_NAME, H5_ITER_INC, note_link, r) < 0)
        return r->status != TR_OK ? r->status : cannot_copy(r, "", r->list.data[r->list.count - 1].path);
    TR_TRY(tr_alloc(r->list.count * sizeof *r->by_address, "names", &r->by_address));
    for (size_t i = 0; i < r->list.count; i++) r->by_address[i] = &r->list.data[i];
    qsort(r->by_address, r->list.count, sizeof *r->by_address, by_address);
    for (size_t i = 0; i < r->list.count; i++) TR_TRY(look_at(r, &r->list.data[i]));
    return TR_OK;
}

/* -- references ------------------------------------------------------------------------------------------ */

/* One to the same, in the copy; false: it leads to nothing with a name. */
static bool lead_to_copy(const repack_t *r, H5R_type_t kind, void *reference) {
    const hid_t object = H5Rdereference2(r->file.id, H5P_DEFAULT, kind, reference);
    H5O_info_t info;
    if (object < 0) return false;
    const entry_t *entry = H5Oget_info(object, &info) >= 0 ? find_entry(r, info.addr) : NULL;
    const hid_t rows =
        entry && kind == H5R_DATASET_REGION ? H5Rget_region(r->file.id, kind, reference) : H5I_INVALID_HID;
    const bool done = entry && H5Rcreate(reference, tr_writer_file(r->writer), entry->path, kind, rows) >= 0;
    if (rows >= 0) H5Sclose(rows);
    H5Oclose(object);
    return done;
}

static void change_reference(repack_t *r, hid_t type, char *value) {
    const bool region = H5Tequal(type, H5T_STD_REF_DSETREG) > 0;
    const size_t bytes = H5Tget_size(type);
    if (bytes == 0 || (value[0] == 0 && !memcmp(value, value + 1, bytes - 1))) return;
    if ((region || H5Tequal(type, H5T_STD_REF_OBJ) > 0) &&
        lead_to_copy(r, region ? H5R_DATASET_REGION : H5R_OBJECT, value))
        return;
    memset(value, 0, bytes);
    r->lost = true;
}

/* All in `count` values of `type`. */
static void change_references(repack_t *r, hid_t type, size_t count, char *value) {
    const H5T_class_t class = H5Tget_class(type);
    const size_t bytes = H5Tget_size(type);
    if (H5Tdetect_class(type, H5T_REFERENCE) <= 0) return;
    for (size_t i = 0; i < count; i++, value += bytes) {
        if (class == H5T_REFERENCE) change_reference(r, type, value);
        for (int m = 0; class == H5T_COMPOUND && m < H5Tget_nmembers(type); m++) {
            const hid_t member = H5Tget_member_type(type, (unsigned)m);
            change_references(r, member, 1, value + H5Tget_member_offset(type, (unsigned)m));
            H5Tclose(member);
        }
        if (class == H5T_VLEN || class == H5T_ARRAY) {
            const hid_t base = H5Tget_super(type);
            const hvl_t *list = (const hvl_t *)value;
            if (class == H5T_VLEN)
                change_references(r, base, list->len, list->p);
            else
                change_references(r, base, bytes / H5Tget_size(base), value);
            H5Tclose(base);
        }
    }
}

/* -- attributes, and values with references: behind all else, which references lead to ------------------- */

/* Of an attribute or a data set. */
static bool copy_value(repack_t *r, hid_t from, hid_t to, hid_t type, hid_t space) {
    const bool attribute = H5Iget_type(from) == H5I_ATTR;
    const int64_t elems = H5Sget_simple_extent_npoints(space);
    char *value = NULL;
    if (elems == 0) return true;
    if (elems < 0 || tr_alloc((size_t)elems * H5Tget_size(type), "a value", &value) != TR_OK) return false;
    bool done = (attribute ? H5Aread(from, type, value)
                           : H5Dread(from, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value)) >= 0;
    if (done) {
        change_references(r, type, (size_t)elems, value);
        done = (attribute ? H5Awrite(to, type, value)
                          : H5Dwrite(to, type, H5S_ALL, H5S_ALL, H5P_DEFAULT, value)) >= 0;
        H5Dvlen_reclaim(type, space, H5P_DEFAULT, value);
    }
    tr_free(&value);
    return done;
}

static void note_emptied(repack_t *r, const char *attribute, const char *path) {
    if (r->lost) tr_str_printf(&r->emptied, "%s%s%s", r->emptied.text ? ", " : "", attribute, path);
    r->lost = false;
}

typedef struct {
    repack_t *repack;
    hid_t to;
    const char *path;
} copy_t;

static herr_t copy_attribute(hid_t object, const char *name, const H5A_info_t *info, void *self) {
    const copy_t *copy = self;
    const hid_t from = H5Aopen(object, name, H5P_DEFAULT), type = H5Aget_type(from),
                space = H5Aget_space(from);
    const hid_t made = H5Acreate2(copy->to, name, type, space, H5P_DEFAULT, H5P_DEFAULT);
    const bool done = made >= 0 && copy_value(copy->repack, from, made, type, space);
    char text[300];
    snprintf(text, sizeof text, "attribute %.*s of ", (int)tr_utf8_bytes(name, 200), name);
    note_emptied(copy->repack, text, copy->path);
    if (made >= 0) H5Aclose(made);
    H5Sclose(space);
    H5Tclose(type);
    H5Aclose(from);
    return done ? 0 : -1;
}

/* Wants the lock. */
static tr_status_t copy_attributes(repack_t *r, const entry_t *entry) {
    const hid_t from = H5Oopen(r->file.id, entry->path, H5P_DEFAULT),
                to = H5Oopen(tr_writer_file(r->writer), entry->path, H5P_DEFAULT);
    copy_t copy = {r, to, entry->path};
    tr_status_t status = TR_OK;
    if (from < 0 || to < 0 ||
        H5Aiterate2(from, H5_INDEX_NAME, H5_ITER_NATIVE, NULL, copy_attribute, &copy) < 0)
        status = cannot_copy(r, "the attributes of ", entry->path);
    if (status == TR_OK && entry->kind == REFERENCES) {
        const hid_t type = H5Dget_type(from), space = H5Dget_space(from);
        if (!copy_value(r, from, to, type, space)) status = cannot_copy(r, "", entry->path);
        note_emptied(r, "", entry->path);
        H5Sclose(space);
        H5Tclose(type);
    }
    if (from >= 0) H5Oclose(from);
    if (to >= 0) H5Oclose(to);
    return status;
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
    H5Tclose(type);
    tr_h5_unlock();
    note_holes(r, a);
    return status == TR_OK ? copy_rows(r, a, array) : status;
}

/* -- all else, by the library: wants the lock -------------------------------------------------------------- */

/* Without the attributes, but for what is in another file. */
static bool copy_object(const repack_t *r, const entry_t *entry) {
    const hid_t how = H5Pcreate(H5P_OBJECT_COPY);
    if (entry->link == H5L_TYPE_HARD) H5Pset_copy_object(how, H5O_COPY_WITHOUT_ATTR_FLAG);
    const bool done =
        H5Ocopy(r->file.id, entry->path, tr_writer_file(r->writer), entry->path, how, H5P_DEFAULT) >= 0;
    H5Pclose(how);
    return done;
}

/* Gets its values with the attributes. */
static bool create_references(const repack_t *r, const entry_t *entry) {
    const hid_t from = H5Dopen2(r->file.id, entry->path, H5P_DEFAULT), stored = H5Dget_type(from),
                type = H5Tcopy(stored), space = H5Dget_space(from), made = H5Dget_create_plist(from);
    const bool chunked = H5Pget_layout(made) == H5D_CHUNKED; /* others may keep their bytes elsewhere */
    const hid_t to = H5Dcreate2(tr_writer_file(r->writer), entry->path, type, space, H5P_DEFAULT,
                                chunked ? made : H5P_DEFAULT, H5P_DEFAULT);
    if (to >= 0) H5Dclose(to);
    H5Pclose(made), H5Sclose(space), H5Tclose(type), H5Tclose(stored), H5Dclose(from);
    return to >= 0;
}

static bool create_group(const repack_t *r, const entry_t *entry) {
    if (entry == r->list.data) return true; /* the root is there */
    const hid_t to =
        H5Gcreate2(tr_writer_file(r->writer), entry->path, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT);
    if (to >= 0) H5Gclose(to);
    return to >= 0;
}

static bool copy_link(const repack_t *r, const entry_t *entry) {
    const hid_t to = tr_writer_file(r->writer);
    char why[128];
    if (entry->link == H5L_TYPE_HARD)
        return H5Lcreate_hard(to, find_entry(r, entry->address)->path, to, entry->path, H5P_DEFAULT,
                              H5P_DEFAULT) >= 0;
    if (entry->link == H5L_TYPE_SOFT)
        return H5Lcopy(r->file.id, entry->path, to, entry->path, H5P_DEFAULT, H5P_DEFAULT) >= 0;
    if (entry->link == H5L_TYPE_EXTERNAL && !tr_h5_external(r->file.id, entry->path, why)) {
        TR_WARN("%s: left out: %s (%s)", r->file.path, entry->path, why);
        return true;
    }
    return copy_object(r, entry);
}

static tr_status_t copy_by_library(const repack_t *r, const entry_t *entry) {
    const bool done = entry->kind == LINK         ? copy_link(r, entry)
                      : entry->kind == GROUP      ? create_group(r, entry)
                      : entry->kind == REFERENCES ? create_references(r, entry)
                                                  : copy_object(r, entry);
    return done ? TR_OK : cannot_copy(r, "", entry->path);
}

static tr_status_t copy_entry(repack_t *r, const entry_t *entry) {
    h5_array_t a = {.id = -1};
    bool ours = entry->kind == NUMBERS;
    tr_status_t status = TR_OK;
    tr_h5_lock();
    if (ours) status = tr_h5_array_open(&r->file, entry->path + 1, &a);
    ours = ours && a.plain;
    if (status == TR_OK && !ours) status = copy_by_library(r, entry);
    tr_h5_unlock();
    if (status == TR_OK && ours) status = copy_numbers(r, &a);
    tr_h5_lock();
    tr_h5_array_close(&a);
    tr_h5_unlock();
    return status;
}

static tr_status_t copy_all(repack_t *r) {
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < r->list.count; i++) TR_TRY(copy_entry(r, &r->list.data[i]));
    tr_h5_lock();
    for (size_t i = 0; i < r->list.count && status == TR_OK; i++)
        if (r->list.data[i].kind != LINK) status = copy_attributes(r, &r->list.data[i]);
    tr_h5_unlock();
    if (r->emptied.text)
        TR_WARN("%s: references to what has no name in the file are empty in the copy: %s", r->file.path,
                r->emptied.text);
    return status;
}

/* Everything of `in` to *out_writer, which is not committed. */
static tr_status_t copy_file(const char *in, const char *out, const tr_import_params_t *params,
                             tr_writer_t **out_writer) {
    repack_t r = {.params = params};
    tr_h5_lock();
    tr_status_t status = tr_h5_file_open("repack", in, &r.file);
    if (status == TR_OK) status = list_all(&r);
    tr_h5_unlock();
    if (status == TR_OK) status = tr_writer_create(out, &params->writer, &r.writer);
    if (status == TR_OK) status = copy_all(&r);
    if (status == TR_OK) status = tr_writer_finish(r.writer);
    if (status == TR_OK && r.holes.text)
        TR_WARN("%s: what was never written is stored as what HDF5 reads there: %s", in, r.holes.text);
    *out_writer = r.writer;
    tr_str_free(&r.holes);
    tr_str_free(&r.emptied);
    for (size_t i = 0; i < r.list.count; i++) tr_free(&r.list.data[i].path);
    tr_vec_free(&r.list);
    tr_free(&r.by_address);
    tr_h5_lock();
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
