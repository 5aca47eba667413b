/* Functions of the writer that only repacking needs. */
#ifndef H5_WRITE_H
#define H5_WRITE_H

#include "h5.h"
#include "writer.h"

/* Like tr_writer_array, with a type of the file. The caller holds the lock. */
tr_status_t tr_writer_array_of(tr_writer_t *writer, const char *name, hid_t type, int64_t rows,
                               const tr_shape_t *shape, int *out_array);
/* The first part of a commit, for several files that appear together: everything but the rename.
 * Nothing can be added after it. */
tr_status_t tr_writer_finish(tr_writer_t *writer);
hid_t tr_writer_file(const tr_writer_t *writer);

#endif
