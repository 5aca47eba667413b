/*
 * Data files: writing the layout that reads fastest, importing other formats into it, and saying what is in a file.
 *
 * The layout: HDF5 in the format of 1.10, whole samples in chunks of about 1 MiB, each with a Fletcher-32 checksum; that is read with pread
 * like a plain file and still tells when a byte is wrong. Files appear under their name when they are complete: what is written first is
 * NAME.part-PID in the same folder.
 *
 * Nothing here is collective.
 */
#ifndef TRAINER_DATAFILE_H
#define TRAINER_DATAFILE_H

#include "trainer/data.h"

/* -- writing --------------------------------------------------------------------------------------------- */

typedef struct {
    bool force;          /* replace an existing file */
    int64_t chunk_bytes; /* of a chunk, about; 0: 1 MiB */
} tr_writer_params_t;

typedef struct tr_writer tr_writer_t;
/* TR_ERR_CONFIG where `path` exists and force is false. */
tr_status_t tr_writer_create(const char *path, const tr_writer_params_t *params, tr_writer_t **out);
/* A data set of `rows` samples of `shape`; groups in its name ("train/x") are made. *out_array is for tr_writer_append. */
tr_status_t tr_writer_array(tr_writer_t *writer, const char *name, tr_dtype_t dtype, int64_t rows,
                            const tr_shape_t *shape, int *out_array);
/* The next `rows` rows, dense, in the array's type. */
tr_status_t tr_writer_append(tr_writer_t *writer, int array, int64_t rows, const void *data);
/* Attributes of the file, group or data set `object` ("/" is the file). */
tr_status_t tr_writer_numbers(tr_writer_t *writer, const char *object, const char *name, int64_t count,
                              const double *values);
tr_status_t tr_writer_texts(tr_writer_t *writer, const char *object, const char *name, int64_t count,
                            const char *const *values);
/* Makes the file durable and gives it its name. TR_ERR_INTERNAL where an array lacks rows. */
tr_status_t tr_writer_commit(tr_writer_t *writer);
/* Removes what was not committed. */
void tr_writer_destroy(tr_writer_t **writer);
/* The same by another thread of this process, which is about to end: false where nothing is written to `path` now. */
bool tr_writer_remove_part(const char *path);

/* Whether two paths lead to one file, which is there: `force` must not replace what is read. */
bool tr_is_same_file(const char *a, const char *b);

/* -- importing ------------------------------------------------------------------------------------------- */

typedef struct {
    tr_writer_params_t writer;
    const char
        *label; /* csv: name or index of the label's column, "none"; NULL: a usual name, else the last */
    double test_fraction; /* csv: part of the rows that goes to the group test */
    const char *what;     /* synthetic: digits, images, volumes */
    const char *shape;    /* synthetic images and volumes: "32x32x3"; NULL: by `what` */
    int64_t samples;      /* synthetic: training samples; a sixth as many for testing. -1: by `what` */
    int64_t classes;      /* synthetic: 0 for regression; -1: 10 */
    uint64_t seed;
    /* Rows done, of `total`; 0: not known yet. What it returns but TR_OK ends the import and is returned. NULL: none */
    tr_status_t (*progress)(void *self, int64_t done, int64_t total);
    void *self;
    /* csv: what stands between columns, and '.' or ',' in numbers; 0: ',' and '.' */
    char delimiter, decimal;
    /* Gets what y became: "3 classes (ant, bee, cow)"; nothing where there is none. NULL: not wanted */
    tr_str_t *y;
} tr_import_params_t;

typedef struct {
    const char *name, *usage, *help;
    tr_status_t (*run)(const char *in, const char *out,
                       const tr_import_params_t *params); /* in: NULL for synthetic */
} tr_importer_t;
const tr_importer_t *const *tr_importer_list(size_t *out_count);

/* All data sets, groups, named types, links and attributes of `in`, data sets in the fast layout and values as they are; references lead to the
 * same objects, and are empty where those have no name (a warning says so). What a link into another file leads to is copied; where it leads to
 * nothing it is left out, with a warning. NAME_y.h5 beside an `in` called NAME_x.h5 that has no
 * labels of its own goes with it: `out` must have that form, too. Neither is put in place before both are whole. */
tr_status_t tr_repack(const char *in, const char *out, const tr_import_params_t *params);

/* Whether bytes[count] begin with the signature of HDF5 files. */
bool tr_begins_as_hdf5(const void *bytes, size_t count);

/* -- describing ------------------------------------------------------------------------------------------ */

/*
 * What is in settings->train (FILE, FILE:GROUP), what of it training would take and how it would be read, with labels counted and the
 * values' range over at most `sample_bytes` of data. As text for people.
 */
tr_status_t tr_data_report(const tr_data_settings_t *settings, int64_t sample_bytes, tr_str_t *out);

#endif
