/* Files as other programs write them, which training cannot read as they are: recognises them, and
 * says what to do. */
#include "hdf5_source.h"
#include <stdio.h>
#include <string.h>

static const h5_entry_t *foreign_find(const h5_list_t *list, const char *group, const char *name) {
    char path[512];
    snprintf(path, sizeof path, "%s%s", group, name);
    for (size_t i = 0; i < list->count; i++)
        if (strcmp(list->data[i].path, path) == 0) return &list->data[i];
    return NULL;
}

/* Rows of a sparse matrix are the entries indptr[i] to indptr[i + 1] of data and indices. */
static bool foreign_is_sparse(const h5_list_t *list, const char *group) {
    return foreign_find(list, group, "data") &&
           ((foreign_find(list, group, "indices") && foreign_find(list, group, "indptr")) ||
            (foreign_find(list, group, "ir") && foreign_find(list, group, "jc")));
}

static void foreign_say_sparse(const h5_file_t *file, const h5_list_t *list, const char *group,
                               char out[1024]) {
    const int length = *group ? (int)strlen(group) - 1 : 0;
    if (foreign_find(list, "obs/", "_index") || foreign_find(list, "var/", "_index"))
        snprintf(out, 1024,
                 "/%.*s is a sparse matrix of AnnData; expected a dense one with one row per "
                 "sample. In Python: a = anndata.read_h5ad('%.200s'); g = h5py.File('dense.h5', "
                 "'w'); g['x'] = a.X.toarray(); g['y'] = a.obs['COLUMN'].cat.codes",
                 length, group, file->path);
    else
        snprintf(out, 1024,
                 "/%.*s is a sparse matrix (data, indices, indptr); expected a dense one with one "
                 "row per sample. In Python: g['x'] = scipy.sparse.csr_matrix((s['data'][:], "
                 "s['indices'][:], s['indptr'][:])).toarray(), where s is this group",
                 length, group);
}

bool tr_h5_foreign(const h5_file_t *file, const h5_list_t *list, char out[1024]) {
    for (size_t i = 0; i < list->count; i++) {
        const char *path = list->data[i].path, *name = tr_file_name(path);
        char group[512];
        snprintf(group, sizeof group, "%.*s", (int)(name - path), path);
        if (strcmp(name, "data") == 0 && foreign_is_sparse(list, group)) {
            foreign_say_sparse(file, list, group, out);
            return true;
        }
        /* pandas: a frame in the format `fixed`, or in `table` */
        const bool fixed = strcmp(name, "block0_values") == 0 && foreign_find(list, group, "axis0"),
                   table = strcmp(name, "table") == 0 && *group &&
                           H5Aexists_by_name(file->id, group, "pandas_type", H5P_DEFAULT) > 0;
        if (!fixed && !table) continue;
        const int length = *group ? (int)strlen(group) - 1 : 0;
        snprintf(out, 1024,
                 "%.*s is a table of pandas. In Python: pandas.read_hdf('%.200s', '%.*s')"
                 ".to_csv('table.csv', index=False); then run `trainer import csv table.csv "
                 "table.h5`",
                 length, group, file->path, length, group);
        return true;
    }
    return false;
}

bool tr_h5_foreign_inputs(const h5_file_t *file, const h5_list_t *list, const char *x,
                          char out[1024]) {
    char group[512];
    snprintf(group, sizeof group, "%.*s", (int)(tr_file_name(x) - x), x);
    if (strcmp(tr_file_name(x), "data") != 0 || !foreign_is_sparse(list, group)) return false;
    foreign_say_sparse(file, list, group, out);
    return true;
}

void tr_h5_foreign_rows(const h5_part_t *part, char out[512]) {
    const h5_array_t *x = &part->x, *y = &part->y;
    const bool matlab = H5Aexists(x->id, "MATLAB_class") > 0;
    const int64_t values = y->rows == 1 && y->ndim == 2 ? y->dim[1] : y->rows;
    const char *by = matlab ? " MATLAB reverses the dimensions when it writes HDF5, and its labels "
                              "count from 1, not 0."
                            : "";
    *out = '\0';
    if (x->rows == values) /* y is one row */
        snprintf(out, 512, "%s Store y as a column, in Python: g['y'] = f['%.60s'][:].ravel()", by,
                 part->names->y);
    else if (x->ndim > 1 && x->dim[x->ndim - 1] == values)
        snprintf(out, 512,
                 "%s The samples of x are in its last dimension, and must be in its first one. In "
                 "Python: g['x'] = f['%.60s'][:].T; g['y'] = f['%.60s'][:].ravel()",
                 by, part->names->x, part->names->y);
}
