/* The numbers of data.mean, data.std and the like in a file: FILE:NAME of an HDF5 file, or FILE.npy. */
#include "preprocess.h"
#include "data/shared.h"
#include "base/file.h"
#include "base/npy.h"
#include "h5/h5.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define NUMBERS_MAX (1 << 20)

bool tr_preprocess_names_file(const char *text) {
    return strchr(text, ':') || tr_path_ends_in(text, ".npy");
}

/* Requires the lock. */
static tr_status_t file_read_array(const char *key, const h5_file_t *file, const char *name,
                                   tr_floats_t *out) {
    const hid_t id = H5Oexists_by_name(file->id, name, H5P_DEFAULT) > 0
                         ? H5Dopen2(file->id, name, H5P_DEFAULT)
                         : -1;
    if (id < 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: '%s' has no data set '%s': `trainer data %s` lists them.", key,
                       file->path, name, file->path);
    const hid_t space = H5Dget_space(id), type = H5Dget_type(id);
    const hssize_t count = H5Sget_simple_extent_npoints(space);
    const H5T_class_t class = H5Tget_class(type);
    const bool fits =
        count > 0 && count <= NUMBERS_MAX && (class == H5T_FLOAT || class == H5T_INTEGER);
    tr_status_t status =
        fits ? tr_vec_reserve_(&out->data, &out->capacity, (size_t)count, sizeof *out->data)
             : TR_FAIL(TR_ERR_CONFIG,
                       "%s: /%s of '%s' has %lld %s; expected one number, or one per channel.", key,
                       name, file->path, (long long)count,
                       class == H5T_FLOAT || class == H5T_INTEGER ? "numbers" : "other values");
    if (status == TR_OK &&
        H5Dread(id, H5T_NATIVE_FLOAT, H5S_ALL, H5S_ALL, H5P_DEFAULT, out->data) < 0)
        status = H5_FAIL(TR_ERR_DATA, "%s: cannot read /%s of '%s'", key, name, file->path);
    if (status == TR_OK) out->count = (size_t)count;
    H5Tclose(type);
    H5Sclose(space);
    H5Dclose(id);
    return status;
}

static tr_status_t file_read_h5(const char *key, const char *text, tr_floats_t *out) {
    char path[4096];
    h5_file_t file;
    const char *name = strrchr(text, ':') + 1;
    snprintf(path, sizeof path, "%.*s", (int)(name - 1 - text), text);
    tr_h5_lock();
    tr_status_t status = tr_h5_file_open(key, path, &file);
    if (status == TR_OK) {
        status = file_read_array(key, &file, name + strspn(name, "/"), out);
        tr_h5_file_close(&file);
    }
    tr_h5_unlock();
    return status;
}

static tr_status_t file_read_npy(const char *key, const char *path, FILE *file, tr_floats_t *out) {
    char begin[TR_NPY_BYTES];
    tr_npy_t npy;
    const bool whole = tr_npy_parse(begin, fread(begin, 1, sizeof begin, file), &npy),
               is_wide = strcmp(npy.type, "<f8") == 0;
    int64_t count = 1;
    for (int d = 0; d < npy.ndim && count <= NUMBERS_MAX; d++)
        count = npy.dim[d] > NUMBERS_MAX ? NUMBERS_MAX + 1 : count * npy.dim[d];
    if (!whole || !(is_wide || strcmp(npy.type, "<f4") == 0) || count < 1 || count > NUMBERS_MAX ||
        fseek(file, (long)npy.first, SEEK_SET) != 0)
        return TR_FAIL(TR_ERR_DATA,
                       "%s: '%s' is not a .npy file of one number, or one per channel. Write it "
                       "with numpy.save(FILE, array.astype('<f4')).",
                       key, path);
    TR_TRY(tr_vec_reserve_(&out->data, &out->capacity, (size_t)count, sizeof *out->data));
    for (int64_t i = 0; i < count; i++) {
        double wide = 0;
        float narrow = 0;
        if (fread(is_wide ? (void *)&wide : &narrow, is_wide ? 8 : 4, 1, file) != 1)
            return TR_FAIL(TR_ERR_DATA, "%s: '%s' ends before its number %lld.", key, path,
                           (long long)i);
        out->data[i] = is_wide ? (float)wide : narrow;
    }
    out->count = (size_t)count;
    return TR_OK;
}

tr_status_t tr_preprocess_read_file(const char *key, const char *text, tr_floats_t *out) {
    if (!tr_path_ends_in(text, ".npy")) return file_read_h5(key, text, out);
    FILE *file = fopen(text, "rbe");
    if (!file)
        return TR_FAIL(TR_ERR_NOINPUT, "%s: cannot open '%s': %s.", key, text, strerror(errno));
    const tr_status_t status = file_read_npy(key, text, file, out);
    fclose(file);
    return status;
}
