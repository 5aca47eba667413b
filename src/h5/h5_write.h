/* What repacking needs of the writer beyond writer.h. */
#ifndef H5_WRITE_H
#define H5_WRITE_H

#include "h5.h"
#include "writer.h"

/* As tr_writer_array, with a type of the file's own. The caller holds the lock. */
tr_status_t tr_writer_array_of(tr_writer_t *writer, const char *name, hid_t type, int64_t rows,
                               const tr_shape_t *shape, int *out_array);
/* What commit begins with, for several files that appear together: all but the name. Nothing can be
 * added from then on. */
tr_status_t tr_writer_finish(tr_writer_t *writer);
hid_t tr_writer_file(const tr_writer_t *writer);

#endif
