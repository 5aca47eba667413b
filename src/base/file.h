/* Files and directories: whole reads, durable directories, errors that name the path. */
#ifndef BASE_FILE_H
#define BASE_FILE_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stdint.h>

/* Records "VERB PATH: system's text" with the code that errno_value means. */
tr_status_t tr_io_fail(const char *verb, const char *path, int errno_value);
/* dir/name; TR_ERR_CONFIG where it is longer than a path may be. */
tr_status_t tr_path_join(const char *dir, const char *name, char out[4096]);
/* Fills `path` with dir/name; whether it exists. */
bool tr_exists_in(const char *dir, const char *name, char path[4096]);
tr_status_t tr_sync_directory(const char *path);
/* Removes a file or a whole directory; it is not an error if it does not exist. Symbolic links are
 * removed, not followed. */
tr_status_t tr_remove_tree(const char *path);
/* A small text file with a terminating zero. */
tr_status_t tr_read_text(const char *path, int64_t max_bytes, char **out_text, int64_t *out_bytes);
/* Bytes that this user may still write in the file system of `dir`; INT64_MAX if unknown: some
 * network file systems report 0 for everything. */
int64_t tr_free_bytes(const char *dir);

#endif
