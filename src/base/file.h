/* Files and directories. Errors name the path. */
#ifndef TR_BASE_FILE_H
#define TR_BASE_FILE_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

/* Records "VERB PATH: system's text" with the status for errno_value. Where free space is not what
 * is missing (inodes, a limit of file sizes) it says what is, and that links are not followed. */
tr_status_t tr_io_fail(const char *verb, const char *path, int errno_value);
/* Writes dir/name. TR_ERR_CONFIG if the path is too long. */
tr_status_t tr_path_join(const char *dir, const char *name, char out[4096]);
/* Fills `path` with dir/name. Returns whether it exists. */
bool tr_exists_in(const char *dir, const char *name, char path[4096]);
/* Whether something stands before `ending` in the path, such as ".csv"; case does not matter. */
bool tr_path_ends_in(const char *path, const char *ending);
/* Whether there is a folder, or a link to one. */
bool tr_is_folder(const char *path);
/* What is in a folder: names in order of their bytes, without . and .. */
typedef struct {
    struct dirent **entry; /* [count] */
    int count;
} tr_entries_t;
/* Free *out with tr_entries_free. TR_ERR_*: it cannot be read, and *out is empty. */
tr_status_t tr_entries_read(const char *folder, tr_entries_t *out);
void tr_entries_free(tr_entries_t *entries);
/* TR_ERR_NOINPUT if `in` is a folder, a pipe or a device, with the reason `because`. A file that is
 * not there is left to the caller. */
tr_status_t tr_check_regular(const char *in, const char *because);
tr_status_t tr_sync_directory(const char *path);
/* Removes a file or a directory tree, if it exists. Symbolic links are removed, not followed. Files
 * .nfs* that another process has open stay, with their folders. */
tr_status_t tr_remove_tree(const char *path);
/* Reads a text file of at most max_bytes. The text is terminated; free it with tr_free. */
tr_status_t tr_read_text(const char *path, int64_t max_bytes, char **out_text, int64_t *out_bytes);
/* Calls `take` with each line of the file `path`, a newline included, until it returns false; the
 * last line may lack its newline. A file that is not there has no lines. TR_ERR_DATA: it is not a
 * regular file, or a line is longer than any that the program writes (1 MiB). */
tr_status_t tr_each_line(const char *path, bool (*take)(void *self, const char *text, size_t bytes),
                         void *self);
/* The same from the last line to the first. It reads what it comes past and no more. A file that
 * becomes shorter meanwhile has no further lines. */
tr_status_t tr_each_line_back(const char *path,
                              bool (*take)(void *self, const char *text, size_t bytes), void *self);
/* Reads `bytes` at `offset`. TR_ERR_DATA if the file ends before, TR_ERR_IO if it cannot be read:
 * no file is mapped, because a mapping of a file that becomes shorter ends the program. */
tr_status_t tr_read_at(int fd, const char *path, int64_t offset, int64_t bytes, void *out);
/* Opens a new, empty file for reading and writing, and never what a link of that name points to: a
 * file or link that is in its place, as a killed process leaves it, is removed. Returns the
 * descriptor, or -1 with errno. Safe in a signal handler. */
int tr_create_file(const char *path);
/* The same as a stream for writing; NULL with errno. */
FILE *tr_create_stream(const char *path);
/* Writes all `count` bytes; goes on after signals. */
tr_status_t tr_write_all(int fd, const char *path, const void *bytes, size_t count);
/* How a file is replaced; values that are added. */
enum {
    TR_REPLACE_DURABLE = 1, /* synced: without it, a crash of the machine may lose old and new */
    TR_REPLACE_LINKED = 2,  /* a link stays one, and the file that it points to is replaced */
    TR_REPLACE_OFTEN = 4    /* again and again, or among many files: the folder is not searched */
};
/* Writes a whole file under a name of this process, then renames it: readers see the old file or
 * the new one, never a part. `how`: of the values above. After an error the old one is there.
 * Unless it is TR_REPLACE_OFTEN, removes files under such names that are older than a day: their
 * processes were killed. */
tr_status_t tr_replace_file(const char *path, const void *bytes, size_t count, unsigned how);
/* The last step of it, for a file in the same folder that is complete, and synced if is_durable:
 * renames it, and syncs the folder if is_durable. After an error `from` may still be there. */
tr_status_t tr_replace_by(const char *from, const char *path, bool is_durable);
/* Free bytes for this user in the file system of `dir`; INT64_MAX if unknown (some network file
 * systems report 0 for everything). */
int64_t tr_free_bytes(const char *dir);

#endif
