/*
 * Writes HDF5 files in the layout that reads fastest: format of 1.10, whole samples in chunks of
 * about 1 MiB, each with a Fletcher-32 checksum. Such chunks are read with pread, and corruption is
 * still detected. The file is named NAME.part-PID until it is complete.
 *
 * Not collective.
 */
#ifndef TR_H5_WRITER_H
#define TR_H5_WRITER_H

#include "trainer/status.h"
#include "trainer/tensor_types.h"

typedef struct {
    bool force;          /* replace an existing file */
    int64_t chunk_bytes; /* approximate size of a chunk; 0: 1 MiB */
} tr_writer_params_t;

typedef struct tr_writer tr_writer_t;
/* TR_ERR_CONFIG if `path` exists and force is false. */
tr_status_t tr_writer_create(const char *path, const tr_writer_params_t *params, tr_writer_t **out);
/* Creates a data set of `rows` samples of `shape`, and the groups in its name ("train/x").
 * *out_array is for tr_writer_append. TR_ERR_IO if the disk has no room for it. */
tr_status_t tr_writer_array(tr_writer_t *writer, const char *name, tr_dtype_t dtype, int64_t rows,
                            const tr_shape_t *shape, int *out_array);
/* Appends `rows` rows: dense, in the type of the array. */
tr_status_t tr_writer_append(tr_writer_t *writer, int array, int64_t rows, const void *data);
/* Writes a data set of `count` texts in UTF-8, and the groups in its name. */
tr_status_t tr_writer_strings(tr_writer_t *writer, const char *name, int64_t count,
                              const char *const *texts);
/* Attributes of the file, group or data set `object` ("/" is the file). */
tr_status_t tr_writer_numbers(tr_writer_t *writer, const char *object, const char *name,
                              int64_t count, const double *values);
tr_status_t tr_writer_texts(tr_writer_t *writer, const char *object, const char *name,
                            int64_t count, const char *const *values);
/* Makes the file durable and renames it. TR_ERR_INTERNAL if an array lacks rows. */
tr_status_t tr_writer_commit(tr_writer_t *writer);
/* Removes a file that was not committed. */
void tr_writer_destroy(tr_writer_t **writer);
/* Removes an uncommitted file from another thread when the process is about to end. Returns false
 * if nothing is being written to `path`. */
bool tr_writer_remove_part(const char *path);

/* Whether two paths name the same existing file: `force` must not replace the input. */
bool tr_is_same_file(const char *a, const char *b);

/* Whether bytes[count] start with the signature of HDF5 files. */
bool tr_begins_as_hdf5(const void *bytes, size_t count);

/*
 * For the program itself, not for embedding programs. Disables HDF5's cleanup at exit, which
 * crashes on files that could not be closed, and raises the limit of open files to the system's
 * maximum. Call it before any other HDF5 function.
 */
void tr_h5_own_process(void);

/* For NAME_x.h5, the path NAME_y.h5 of a separate file of labels. Returns false for other names. */
bool tr_h5_labels_path(const char *path, char out[4096]);

#endif
