/* Functions of the writer for `trainer repack`. */
#ifndef TR_H5_H5_WRITE_H
#define TR_H5_H5_WRITE_H

#include "h5.h"
#include "writer.h"

/* As tr_writer_array, with an HDF5 type. Requires the lock. */
tr_status_t tr_writer_array_of(tr_writer_t *writer, const char *name, hid_t type, int64_t rows,
                               const tr_shape_t *shape, int *out_array);
/* The first part of a commit: everything but the rename. For several files that must appear
 * together. Nothing can be added after it. */
tr_status_t tr_writer_finish(tr_writer_t *writer);
hid_t tr_writer_file(const tr_writer_t *writer);

#endif
