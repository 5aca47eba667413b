/*
 * Virtual data sets: HDF5 reads fill values where a part's file or data set is missing, and where none was named, so these are looked for first.
 * Where a part that is contiguous became shorter it reads whatever stands behind it in the file.
 */
#include "h5.h"
#include <fcntl.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAX_DEPTH 16 /* virtual data sets of virtual data sets */

typedef struct {
    const char *path, *name; /* of the data set that is opened */
    int depth;
    h5_holes_t *holes;
} check_t;

typedef struct {
    char *file, *dataset; /* with a number in it (%b): stands for as many as there are */
    int ndim;
    hsize_t end[H5S_MAX_RANK]; /* what is taken of it ends here; 0: not known */
    hssize_t elems;            /* of what is taken whole: how many that should be */
} part_t;

typedef TR_VEC(part_t) parts_t;

/* -- the parts ------------------------------------------------------------------------------------------- */

static int by_source(const void *a, const void *b) {
    const part_t *p = a, *q = b;
    const int order = strcmp(p->file, q->file);
    return order ? order : strcmp(p->dataset, q->dataset);
}

/* The last of those with one source gets the largest end of them all. */
static void join_ends(parts_t *parts) {
    for (size_t i = 1; i < parts->count; i++) {
        const part_t *before = &parts->data[i - 1];
        part_t *part = &parts->data[i];
        for (int d = 0; d < part->ndim && by_source(before, part) == 0; d++)
            if (before->end[d] > part->end[d]) part->end[d] = before->end[d];
        if (by_source(before, part) == 0) part->elems = max64(part->elems, before->elems);
    }
}

/* A percent sign that stands for itself is written twice. */
static void unescape(char *name) {
    char *to = name;
    if (strstr(name, "%b")) return;
    for (const char *c = name; *c; c++) {
        c += c[0] == '%' && c[1] == '%';
        *to++ = *c;
    }
    *to = '\0';
}

static bool is_numbered(const char *name) {
    return strstr(name, "%b");
}

static void find_end(hid_t properties, size_t index, part_t *part) {
    hsize_t start[H5S_MAX_RANK];
    const hid_t space = H5Pget_virtual_srcspace(properties, index),
                target = H5Pget_virtual_vspace(properties, index);
    const bool all = H5Sget_select_type(space) == H5S_SEL_ALL, /* of the extent that it has now */
        known = !all && H5Sget_select_bounds(space, start, part->end) >= 0;
    part->ndim = H5Sget_simple_extent_ndims(space);
    part->elems = all ? H5Sget_select_npoints(target) : 0;
    for (int d = 0; d < part->ndim; d++)
        part->end[d] = !known || part->end[d] == H5S_UNLIMITED ? 0 : part->end[d] + 1;
    H5Sclose(target);
    H5Sclose(space);
}

static tr_status_t add_part(const check_t *check, hid_t properties, size_t index, parts_t *parts) {
    const ssize_t file = H5Pget_virtual_filename(properties, index, NULL, 0),
                  dataset = H5Pget_virtual_dsetname(properties, index, NULL, 0);
    part_t part = {0};
    if (file < 0 || dataset < 0)
        return H5_FAIL(TR_ERR_DATA, "%s: /%s: cannot see what it is made of", check->path, check->name);
    tr_status_t status = tr_alloc((size_t)file + 1, "a name", &part.file);
    if (status == TR_OK) status = tr_alloc((size_t)dataset + 1, "a name", &part.dataset);
    if (status == TR_OK) {
        H5Pget_virtual_filename(properties, index, part.file, (size_t)file + 1);
        H5Pget_virtual_dsetname(properties, index, part.dataset, (size_t)dataset + 1);
        unescape(part.file), unescape(part.dataset);
        find_end(properties, index, &part);
        status = tr_vec_push(parts, part);
    }
    if (status != TR_OK) tr_free(&part.file), tr_free(&part.dataset);
    return status;
}

/* Sorted, so that each file is opened once. */
static tr_status_t list_parts(const check_t *check, hid_t properties, parts_t *parts) {
    size_t count = 0;
    if (H5Pget_virtual_count(properties, &count) < 0)
        return H5_FAIL(TR_ERR_DATA, "%s: /%s: cannot see what it is made of", check->path, check->name);
    for (size_t i = 0; i < count; i++) TR_TRY(add_part(check, properties, i, parts));
    if (parts->count) qsort(parts->data, parts->count, sizeof *parts->data, by_source);
    join_ends(parts);
    return TR_OK;
}

/* -- where HDF5 looks for a file ------------------------------------------------------------------------- */

static hid_t open_in(const char *folder, size_t length, const char *name, hid_t access) {
    char path[8192];
    if (snprintf(path, sizeof path, "%.*s/%s", (int)length, folder, name) >= (int)sizeof path) return -1;
    return H5Fopen(path, H5F_ACC_RDONLY, access);
}

/* The folders of HDF5_VDS_PREFIX, with colons between them; ${ORIGIN} is the virtual file's. */
static hid_t open_in_prefix(const char *origin, const char *name, hid_t access) {
    static const char mark[] = "${ORIGIN}";
    const char *folder = getenv("HDF5_VDS_PREFIX");
    hid_t found = -1;
    for (size_t length; folder && found < 0; folder = folder[length] ? folder + length + 1 : NULL) {
        char path[8192];
        length = strcspn(folder, ":");
        const size_t skip = strncmp(folder, mark, sizeof mark - 1) ? 0 : sizeof mark - 1;
        snprintf(path, sizeof path, "%s%.*s", skip ? origin : "", (int)(length - skip), folder + skip);
        if (length) found = open_in(path, strlen(path), name, access);
    }
    return found;
}

static hid_t open_beside(const char *path, const char *name, hid_t access) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", path);
    const char *place = dirname(folder);
    return open_in(place, strlen(place), name, access);
}

/* As H5F_prefix_open_file of the library does, for the data sets of `file`. -1: not there, or no HDF5 file. */
static hid_t open_source(hid_t file, const char *path, const char *name) {
    hid_t access = H5Fget_access_plist(file), found = -1;
    char *real = realpath(path, NULL), *origin = strdup(path);
    if (name[0] == '/') {
        found = H5Fopen(name, H5F_ACC_RDONLY, access);
        name = strrchr(name, '/') + 1;
    }
    if (found < 0 && origin) found = open_in_prefix(dirname(origin), name, access);
    if (found < 0) found = open_beside(path, name, access);
    if (found < 0) found = H5Fopen(name, H5F_ACC_RDONLY, access);
    if (found < 0 && real) found = open_beside(real, name, access);
    free(real);
    free(origin);
    H5Pclose(access);
    return found;
}

/* -- the check ------------------------------------------------------------------------------------------- */

static tr_status_t check_parts(const check_t *check, hid_t file, const char *path, hid_t properties);

/* Those of a part that is there. What cannot be opened so is left to the library, which reads it. */
static void find_holes(const check_t *check, hid_t source, char *path, const part_t *part) {
    const char *name = part->dataset + strspn(part->dataset, "/");
    struct stat found;
    h5_array_t array;
    /* not opened once more by HDF5, which wants the same flags then */
    const h5_file_t file = {.path = path,
                            .id = source,
                            .fd = open(path, O_RDONLY | O_CLOEXEC),
                            .direct_fd = -1,
                            .bytes = stat(path, &found) ? 0 : found.st_size};
    if (tr_h5_array_open(&file, name, &array) != TR_OK) tr_error_clear();
    if (array.holes.rows) {
        *check->holes = array.holes;
        snprintf(check->holes->part, sizeof check->holes->part, "/%s of %s", name, path);
    }
    tr_h5_array_close(&array);
    if (file.fd >= 0) close(file.fd);
}

static tr_status_t check_extent(const check_t *check, hid_t id, const part_t *part) {
    hsize_t dim[H5S_MAX_RANK];
    const hid_t space = H5Dget_space(id);
    const int ndim = H5Sget_simple_extent_dims(space, dim, NULL);
    bool enough = H5Sget_simple_extent_npoints(space) >= part->elems;
    H5Sclose(space);
    for (int d = 0; d < ndim && d < part->ndim; d++) enough &= part->end[d] <= dim[d];
    if (enough) return TR_OK;
    return TR_FAIL(
        TR_ERR_DATA,
        "%s: /%s is virtual, and takes more of '%s' in '%s' than is there (dimension 0 is %llu): it "
        "became smaller. Make the virtual data set anew.",
        check->path, check->name, part->dataset, part->file, (unsigned long long)(ndim > 0 ? dim[0] : 0));
}

static tr_status_t check_dataset(const check_t *check, hid_t file, const part_t *part) {
    char path[4096] = "";
    const hid_t id = H5Dopen2(file, part->dataset, H5P_DEFAULT);
    if (id < 0)
        return TR_FAIL(
            TR_ERR_NOINPUT,
            "%s: /%s is virtual, and a part of it is missing: there is no data set '%s' in '%s' that "
            "can be opened; HDF5 would read fill values in its place.",
            check->path, check->name, part->dataset, part->file);
    const hid_t properties = H5Dget_create_plist(id);
    const check_t inner = {check->path, check->name, check->depth + 1, check->holes};
    tr_status_t status = check_extent(check, id, part);
    H5Fget_name(file, path, sizeof path);
    if (status == TR_OK && H5Pget_layout(properties) == H5D_VIRTUAL && inner.depth < MAX_DEPTH)
        status = check_parts(&inner, file, path, properties);
    else if (status == TR_OK && !check->holes->rows)
        find_holes(check, file, path, part);
    H5Pclose(properties);
    H5Dclose(id);
    return status;
}

static tr_status_t fail_file(const check_t *check, const char *name) {
    return TR_FAIL(
        TR_ERR_NOINPUT,
        "%s: /%s is virtual, and a part of it is missing: cannot find '%s', or it is no HDF5 file; "
        "HDF5 would read fill values in its place. Put it beside the file, or set HDF5_VDS_PREFIX to "
        "its folder.",
        check->path, check->name, name);
}

/* The parts [0, count) are in one file. */
static tr_status_t check_file(const check_t *check, hid_t file, const char *path, const part_t *part,
                              size_t count) {
    const bool own = !strcmp(part->file, ".");
    tr_status_t status = TR_OK;
    if (is_numbered(part->file)) return TR_OK;
    const hid_t source = own ? file : open_source(file, path, part->file);
    if (source < 0) return fail_file(check, part->file);
    for (size_t i = 0; i < count && status == TR_OK; i++)
        if (!is_numbered(part[i].dataset) && (i + 1 == count || by_source(&part[i], &part[i + 1])))
            status = check_dataset(check, source, &part[i]);
    if (!own) H5Fclose(source);
    return status;
}

static tr_status_t check_parts(const check_t *check, hid_t file, const char *path, hid_t properties) {
    parts_t parts = {0};
    tr_status_t status = list_parts(check, properties, &parts);
    for (size_t i = 0, next; i < parts.count && status == TR_OK; i = next) {
        for (next = i + 1; next < parts.count && !strcmp(parts.data[i].file, parts.data[next].file);) next++;
        status = check_file(check, file, path, &parts.data[i], next - i);
    }
    for (size_t i = 0; i < parts.count; i++) tr_free(&parts.data[i].file), tr_free(&parts.data[i].dataset);
    tr_vec_free(&parts);
    return status;
}

/* -- gaps ------------------------------------------------------------------------------------------------ */

/* Adds to elems[rows] what mapping `index` gives to each row; false: it cannot be told. */
static bool count_elems(const h5_array_t *a, hid_t properties, size_t index, int64_t *elems) {
    hsize_t start[H5S_MAX_RANK], stride[H5S_MAX_RANK], count[H5S_MAX_RANK], block[H5S_MAX_RANK];
    const hid_t space = H5Pget_virtual_vspace(properties, index);
    const bool all = H5Sget_select_type(space) == H5S_SEL_ALL,
               regular = !all && H5Sis_regular_hyperslab(space) > 0 &&
                         H5Sget_regular_hyperslab(space, start, stride, count, block) >= 0;
    int64_t each = all ? a->row_elems : 1;
    H5Sclose(space);
    for (int d = 0; regular && d < a->ndim; d++) {
        if (count[d] == H5S_UNLIMITED || block[d] == H5S_UNLIMITED) return false;
        if (d) each *= (int64_t)(count[d] * block[d]);
    }
    for (int64_t row = 0; all && row < a->rows; row++) elems[row] += each;
    for (hsize_t c = 0; regular && c < count[0]; c++)
        for (hsize_t row = start[0] + c * stride[0], b = 0; b < block[0] && row < (hsize_t)a->rows; b++)
            elems[row++] += each;
    return all || regular;
}

static void note_gaps(h5_array_t *a, const int64_t *elems) {
    for (int64_t row = 0; row < a->rows; row++) {
        if (elems[row] >= a->row_elems) continue;
        if (a->holes.rows++ == 0) a->holes.first = row;
    }
}

/* Samples that no part gives, or not whole. */
static tr_status_t find_gaps(h5_array_t *a, hid_t properties) {
    int64_t *elems = NULL;
    size_t count = 0;
    bool known = H5Pget_virtual_count(properties, &count) >= 0 && a->rows <= H5_CHUNKS_MAX;
    if (!known) return TR_OK;
    TR_TRY(tr_alloc((size_t)max64(a->rows, 1) * sizeof *elems, "parts of a virtual data set", &elems));
    for (size_t i = 0; i < count && known; i++) known = count_elems(a, properties, i, elems);
    if (known) note_gaps(a, elems);
    tr_free(&elems);
    return TR_OK;
}

tr_status_t tr_h5_virtual_check(h5_array_t *a, hid_t properties) {
    const check_t check = {a->file->path, a->name, 0, &a->holes};
    TR_TRY(check_parts(&check, a->file->id, a->file->path, properties));
    return a->holes.rows ? TR_OK : find_gaps(a, properties);
}
