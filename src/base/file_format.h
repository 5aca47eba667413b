/* Files of formats that a reader does not take, recognised by the bytes with which they begin. */
#ifndef TR_BASE_FILE_FORMAT_H
#define TR_BASE_FILE_FORMAT_H

#include "str.h"

/* What the reader takes. Readers of text and tables unpack gzip themselves. */
typedef enum { TR_WANTS_TEXT, TR_WANTS_TABLE, TR_WANTS_TOKENS, TR_WANTS_HDF5, TR_WANTS } tr_wants_t;

enum { TR_FORMAT_BYTES = 32 }; /* `bytes` that tr_file_format_of needs, or the whole file */

/* If the file is of a known format that is not wanted, appends what it is and the command that
 * converts it ("compressed with xz. Unpack it first: xz -dk 'a.csv.xz'"), and returns true. */
bool tr_file_format_of(const char *path, const void *bytes, size_t count, tr_wants_t wants,
                       tr_str_t *out);
/* The same as an error: TR_ERR_DATA, "'PATH' is ...". */
tr_status_t tr_file_format_check(const char *path, const void *bytes, size_t count,
                                 tr_wants_t wants);

#endif
