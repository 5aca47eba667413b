/*
 * Writing HDF5 files in the layout that reads fastest: the format of 1.10, whole samples in chunks
 * of about 1 MiB, each with a Fletcher-32 checksum. Such files are read with pread like plain
 * files, and a wrong byte is still found. A file gets its name when it is complete; until then it
 * is NAME.part-PID in the same folder.
 *
 * Not collective.
 */
#ifndef H5_WRITER_H
#define H5_WRITER_H

#include "trainer/status.h"
#include "trainer/tensor_types.h"

typedef struct {
    bool force;          /* replace an existing file */
    int64_t chunk_bytes; /* of a chunk, about; 0: 1 MiB */
} tr_writer_params_t;

typedef struct tr_writer tr_writer_t;
/* TR_ERR_CONFIG where `path` exists and force is false. */
tr_status_t tr_writer_create(const char *path, const tr_writer_params_t *params, tr_writer_t **out);
/* A data set of `rows` samples of `shape`; groups in its name ("train/x") are made. *out_array is
 * for tr_writer_append. */
tr_status_t tr_writer_array(tr_writer_t *writer, const char *name, tr_dtype_t dtype, int64_t rows,
                            const tr_shape_t *shape, int *out_array);
/* The next `rows` rows, dense, in the array's type. */
tr_status_t tr_writer_append(tr_writer_t *writer, int array, int64_t rows, const void *data);
/* Attributes of the file, group or data set `object` ("/" is the file). */
tr_status_t tr_writer_numbers(tr_writer_t *writer, const char *object, const char *name,
                              int64_t count, const double *values);
tr_status_t tr_writer_texts(tr_writer_t *writer, const char *object, const char *name,
                            int64_t count, const char *const *values);
/* Makes the file durable and gives it its name. TR_ERR_INTERNAL where an array lacks rows. */
tr_status_t tr_writer_commit(tr_writer_t *writer);
/* Removes what was not committed. */
void tr_writer_destroy(tr_writer_t **writer);
/* The same from another thread of this process, which is about to end: false if nothing is being
 * written to `path`. */
bool tr_writer_remove_part(const char *path);

/* Whether two paths name the same existing file: `force` must not replace the input. */
bool tr_is_same_file(const char *a, const char *b);

/* Whether bytes[count] begin with the signature of HDF5 files. */
bool tr_begins_as_hdf5(const void *bytes, size_t count);

/*
 * For a program, not for a library inside one: HDF5 registers no cleanup at exit, where it crashes
 * on files that a disk refused to close, and as many files may be open as the system allows. Call
 * it before anything else of HDF5.
 */
void tr_h5_own_process(void);

/* The path NAME_y.h5 for NAME_x.h5, where a separate file of labels is expected; false: `path` has
 * another form. */
bool tr_h5_labels_path(const char *path, char out[4096]);

#endif
