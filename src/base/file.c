/* Paths and files: joining, reading, replacing, removing, syncing. */
#include "file.h"
#include "str.h"
#include "base/host.h"
#include "base/mem.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <limits.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

tr_status_t tr_status_of_errno(int error) {
    switch (error) {
    case 0: return TR_OK;
    case ENOENT:
    case ENOTDIR: return TR_ERR_NOINPUT;
    case EACCES:
    case EPERM:
    case EROFS: return TR_ERR_PERMISSION;
    case ENOMEM: return TR_ERR_MEMORY;
    default: return TR_ERR_IO;
    }
}

/* Whether the file system of `path`, which may not exist yet, has inodes, but none is free. */
static bool file_lacks_inodes(const char *path) {
    struct statvfs fs;
    char copy[4096];
    const char *there = copy;
    snprintf(copy, sizeof copy, "%s", path);
    while (statvfs(there, &fs) != 0) {
        if (strcmp(there, ".") == 0 || strcmp(there, "/") == 0) return false;
        there = dirname(copy);
    }
    return fs.f_files > 0 && fs.f_favail == 0;
}

tr_status_t tr_io_fail(const char *verb, const char *path, int errno_value) {
    char hint[160] = "";
    struct rlimit limit;
    if (errno_value == ENOSPC && file_lacks_inodes(path))
        snprintf(hint, sizeof hint,
                 " No inodes are free there (df -i): delete files, or use another folder.");
    else if (errno_value == EFBIG && getrlimit(RLIMIT_FSIZE, &limit) == 0 &&
             limit.rlim_cur != RLIM_INFINITY)
        snprintf(hint, sizeof hint,
                 " The limit of file sizes is %llu bytes: raise it with ulimit -f.",
                 (unsigned long long)limit.rlim_cur);
    else if (errno_value == EFBIG)
        snprintf(hint, sizeof hint, " The file system does not hold files of this size.");
    else if (errno_value == ENXIO)
        snprintf(hint, sizeof hint, " It is a pipe that no program reads, or a socket: remove it.");
    else if (errno_value == ELOOP)
        snprintf(hint, sizeof hint, " A symbolic link in this place is not followed: remove it.");
    return TR_FAIL(tr_status_of_errno(errno_value), "Cannot %s %s: %s.%s", verb, path,
                   strerror(errno_value), hint);
}

tr_status_t tr_path_join(const char *dir, const char *name, char out[4096]) {
    int length = snprintf(out, 4096, "%s/%s", dir, name);
    if (length < 4096) return TR_OK;
    return TR_FAIL(
        TR_ERR_CONFIG,
        "The path %.64s.../%s has %d characters; the system allows 4095. Choose a shorter run.dir.",
        dir, name, length);
}

tr_status_t tr_read_at(int fd, const char *path, int64_t offset, int64_t bytes, void *out) {
    for (int64_t done = 0; done < bytes;) {
        ssize_t n = pread(fd, (char *)out + done, (size_t)(bytes - done), offset + done);
        if (n < 0 && errno == EINTR) continue;
        if (n < 0) return tr_io_fail("read", path, errno);
        if (n == 0)
            return TR_FAIL(TR_ERR_DATA,
                           "%s ends at byte %lld, but %lld more bytes were expected: the file is "
                           "truncated. Restore it.",
                           path, (long long)(offset + done), (long long)(bytes - done));
        done += n;
    }
    return TR_OK;
}

int tr_create_file(const char *path) {
    if (unlink(path) != 0 && errno != ENOENT) return -1;
    return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0666);
}

FILE *tr_create_stream(const char *path) {
    const int fd = tr_create_file(path);
    FILE *file = fd < 0 ? NULL : fdopen(fd, "w");
    if (!file && fd >= 0) close(fd);
    return file;
}

tr_status_t tr_write_all(int fd, const char *path, const void *bytes, size_t count) {
    for (const char *at = bytes; count > 0;) {
        const ssize_t written = write(fd, at, count);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return tr_io_fail("write", path, written < 0 ? errno : ENOSPC);
        at += written;
        count -= (size_t)written;
    }
    return TR_OK;
}

tr_status_t tr_replace_by(const char *from, const char *path, bool is_durable) {
    char folder[PATH_MAX];
    if (rename(from, path) != 0) return tr_io_fail("replace", path, errno);
    snprintf(folder, sizeof folder, "%s", path);
    return is_durable ? tr_sync_directory(dirname(folder)) : TR_OK;
}

/* Removes the files of processes that were killed before they renamed them. None that lives takes a
 * day for it. */
static void file_remove_leftovers(const char *path) {
    enum { OLD_SEC = 24 * 3600 };
    char folder[PATH_MAX], begin[NAME_MAX + 8];
    const int length = snprintf(begin, sizeof begin, "%s.tmp-", tr_file_name(path));
    struct stat left;
    snprintf(folder, sizeof folder, "%s", path);
    DIR *d = opendir(dirname(folder));
    for (struct dirent *e; d && (e = readdir(d));)
        if (strncmp(e->d_name, begin, (size_t)length) == 0 &&
            fstatat(dirfd(d), e->d_name, &left, AT_SYMLINK_NOFOLLOW) == 0 &&
            S_ISREG(left.st_mode) && time(NULL) - left.st_mtime > OLD_SEC)
            (void)unlinkat(dirfd(d), e->d_name, 0);
    if (d) closedir(d);
}

tr_status_t tr_replace_file(const char *path, const void *bytes, size_t count, unsigned how) {
    char temporary[PATH_MAX], target[PATH_MAX];
    const bool is_durable = how & TR_REPLACE_DURABLE;
    if (how & TR_REPLACE_LINKED && realpath(path, target)) path = target;
    /* nodes may share the folder */
    if (snprintf(temporary, sizeof temporary, "%s.tmp-%s-%ld", path, tr_host_name(),
                 (long)getpid()) >= (int)sizeof temporary)
        return tr_io_fail("create", path, ENAMETOOLONG);
    const int fd = tr_create_file(temporary);
    if (fd < 0) return tr_io_fail("create", path, errno);
    tr_status_t status = tr_write_all(fd, path, bytes, count);
    if (status == TR_OK && is_durable && fsync(fd) != 0) status = tr_io_fail("fsync", path, errno);
    if (close(fd) != 0 && status == TR_OK) status = tr_io_fail("close", path, errno);
    if (status == TR_OK) status = tr_replace_by(temporary, path, is_durable);
    if (status != TR_OK) (void)unlink(temporary);
    if (status == TR_OK && !(how & TR_REPLACE_OFTEN)) file_remove_leftovers(path);
    return status;
}

/* Never waits for the writer of a pipe. *out_fd is -1 after a failure. */
static tr_status_t file_open_regular(const char *path, int *out_fd, int64_t *out_bytes) {
    struct stat st = {0};
    tr_status_t status = TR_OK;
    *out_bytes = 0;
    const int fd = *out_fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return tr_io_fail("open", path, errno);
    if (fstat(fd, &st) != 0)
        status = tr_io_fail("examine", path, errno);
    else if (!S_ISREG(st.st_mode))
        status = TR_FAIL(TR_ERR_DATA, "%s is not a regular file.", path);
    *out_bytes = st.st_size;
    if (status == TR_OK) return TR_OK;
    close(fd);
    *out_fd = -1;
    return status;
}

static tr_status_t file_read_open(int fd, const char *path, int64_t size, int64_t max_bytes,
                                  char **out_text) {
    if (size > max_bytes)
        return TR_FAIL(TR_ERR_DATA, "%s has %lld bytes; at most %lld are expected.", path,
                       (long long)size, (long long)max_bytes);
    char *text = NULL;
    TR_TRY(tr_alloc((size_t)size + 1, "file text", &text));
    tr_status_t status = tr_read_at(fd, path, 0, size, text);
    if (status != TR_OK) {
        tr_free(&text);
        return status;
    }
    *out_text = text;
    return TR_OK;
}

tr_status_t tr_read_text(const char *path, int64_t max_bytes, char **out_text, int64_t *out_bytes) {
    int fd;
    int64_t size;
    TR_TRY(file_open_regular(path, &fd, &size));
    const tr_status_t status = file_read_open(fd, path, size, max_bytes, out_text);
    close(fd);
    if (status == TR_OK) *out_bytes = size;
    return status;
}

static const char too_long[] = "%s: the line at byte %lld is longer than %d bytes: the file is "
                               "damaged, or of another program. Restore it, or move it away.";

tr_status_t tr_each_line(const char *path, bool (*take)(void *self, const char *text, size_t bytes),
                         void *self) {
    enum { LINE_BYTES = 1 << 20 };
    int64_t at = 0, size; /* `at`: of the line that begins text */
    size_t have = 0;
    char *text = NULL, *end;
    bool goes_on = true;
    int fd;
    if (access(path, F_OK) != 0 && errno == ENOENT) return TR_OK;
    TR_TRY(file_open_regular(path, &fd, &size));
    tr_status_t status = tr_alloc(LINE_BYTES + 1, "a line", &text);
    while (status == TR_OK && goes_on) {
        const ssize_t count = read(fd, text + have, LINE_BYTES - have);
        if (count < 0 && errno == EINTR) continue;
        if (count < 0) status = tr_io_fail("read", path, errno);
        if (count <= 0) break;
        char *line = text, *fresh = text + have, *stop = text + have + count;
        while (goes_on && (end = memchr(fresh, '\n', (size_t)(stop - fresh)))) {
            const char after = end[1];
            end[1] = '\0';
            goes_on = take(self, line, (size_t)(end + 1 - line));
            end[1] = after;
            line = fresh = end + 1;
        }
        at += line - text;
        have = (size_t)(stop - line);
        memmove(text, line, have);
        if (have == LINE_BYTES)
            status = TR_FAIL(TR_ERR_DATA, too_long, path, (long long)at, LINE_BYTES);
    }
    if (status == TR_OK && goes_on && have > 0) {
        text[have] = '\0';
        (void)take(self, text, have);
    }
    tr_free(&text);
    close(fd);
    return status;
}

tr_status_t tr_each_line_back(const char *path,
                              bool (*take)(void *self, const char *text, size_t bytes),
                              void *self) {
    enum { LINE_BYTES = 1 << 20, BLOCK_BYTES = 1 << 16 };
    int64_t at; /* of the first byte of text */
    size_t have = 0;
    char *buffer = NULL, *text;
    bool goes_on = true;
    int fd;
    if (access(path, F_OK) != 0 && errno == ENOENT) return TR_OK;
    TR_TRY(file_open_regular(path, &fd, &at));
    tr_status_t status = tr_alloc(LINE_BYTES + 1, "a line", &buffer);
    for (text = buffer; status == TR_OK && goes_on && (have > 0 || at > 0);) {
        char *line = have > 0 ? memrchr(text, '\n', have - 1) : NULL; /* before it */
        if (!line && at > 0) {
            const int64_t room = LINE_BYTES - (int64_t)have;
            const size_t more = (size_t)(room < BLOCK_BYTES ? room : BLOCK_BYTES),
                         count = (int64_t)more < at ? more : (size_t)at;
            char *kept = buffer + LINE_BYTES - have;
            if (count == 0) {
                status = TR_FAIL(TR_ERR_DATA, too_long, path, (long long)at, LINE_BYTES);
                break;
            }
            memmove(kept, text, have);
            text = kept - count;
            at -= (int64_t)count;
            have += count;
            status = tr_read_at(fd, path, at, (int64_t)count, text);
            if (status != TR_ERR_DATA) continue;
            status = TR_OK; /* it became shorter */
            break;
        }
        line = line ? line + 1 : text;
        text[have] = '\0';
        goes_on = take(self, line, (size_t)(text + have - line));
        have = (size_t)(line - text);
    }
    tr_free(&buffer);
    close(fd);
    return status;
}

bool tr_exists_in(const char *dir, const char *name, char path[4096]) {
    struct stat info;
    return tr_path_join(dir, name, path) == TR_OK && stat(path, &info) == 0;
}

tr_status_t tr_sync_directory(const char *path) {
    int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return tr_io_fail("open", path, errno);
    int failed = fsync(fd) != 0 ? errno : 0;
    close(fd);
    /* Some file systems cannot sync a directory; nothing needs to be synced there. */
    return failed && failed != EINVAL ? tr_io_fail("fsync", path, failed) : TR_OK;
}

/* *out_left: files that are held, so that the folders above them stay, too. */
static tr_status_t file_remove_tree(const char *path, bool *out_left) {
    bool has_left = false;
    if (unlink(path) == 0 || errno == ENOENT) return TR_OK;
    /* On NFS, a file that was deleted while a process has it open stays under a name of this kind,
     * and goes when it is closed. */
    if (errno == EBUSY && strncmp(tr_file_name(path), ".nfs", 4) == 0)
        return *out_left = true, TR_OK;
    if (errno != EISDIR && errno != EPERM) return tr_io_fail("remove", path, errno);
    /* A file that NFS renames during a pass is seen in the next one. */
    for (int pass = 0; pass < 2 && !has_left; pass++) {
        DIR *d = opendir(path);
        if (!d) return tr_io_fail("open", path, errno);
        tr_status_t status = TR_OK;
        for (struct dirent *e; status == TR_OK && (e = readdir(d));) {
            if (strcmp(e->d_name, ".") == 0 || strcmp(e->d_name, "..") == 0) continue;
            char inner[4096];
            status = tr_path_join(path, e->d_name, inner);
            if (status == TR_OK) status = file_remove_tree(inner, &has_left);
        }
        closedir(d);
        TR_TRY(status);
        if (has_left) break;
        if (rmdir(path) == 0 || errno == ENOENT) return TR_OK;
        if (errno != ENOTEMPTY || pass == 1) return tr_io_fail("remove", path, errno);
    }
    *out_left = true;
    return TR_OK;
}

tr_status_t tr_remove_tree(const char *path) {
    bool has_left = false;
    return file_remove_tree(path, &has_left);
}

int64_t tr_free_bytes(const char *dir) {
    struct statvfs fs;
    int64_t bytes = 0;
    if (statvfs(dir, &fs) != 0 || fs.f_blocks == 0) return INT64_MAX;
    return __builtin_mul_overflow((int64_t)fs.f_bavail, (int64_t)fs.f_frsize, &bytes) ? INT64_MAX
                                                                                      : bytes;
}

bool tr_path_ends_in(const char *path, const char *ending) {
    const size_t length = strlen(path), count = strlen(ending);
    return length > count && strcasecmp(path + length - count, ending) == 0;
}

bool tr_is_folder(const char *path) {
    struct stat found;
    return stat(path, &found) == 0 && S_ISDIR(found.st_mode);
}

static int entries_inside(const struct dirent *entry) {
    return strcmp(entry->d_name, ".") != 0 && strcmp(entry->d_name, "..") != 0;
}

static int entries_by_bytes(const struct dirent **a, const struct dirent **b) {
    return strcmp((*a)->d_name, (*b)->d_name);
}

tr_status_t tr_entries_read(const char *folder, tr_entries_t *out) {
    out->count = scandir(folder, &out->entry, entries_inside, entries_by_bytes);
    if (out->count >= 0) return TR_OK;
    *out = (tr_entries_t){0};
    return tr_io_fail("read the folder", folder, errno);
}

void tr_entries_free(tr_entries_t *entries) {
    for (int i = 0; i < entries->count; i++) free(entries->entry[i]);
    free(entries->entry);
}

tr_status_t tr_check_regular(const char *in, const char *because) {
    struct stat found;
    if (stat(in, &found) != 0 || S_ISREG(found.st_mode)) return TR_OK;
    return TR_FAIL(TR_ERR_NOINPUT, "'%s': expected a regular file, because %s; found %s.", in,
                   because,
                   S_ISDIR(found.st_mode)
                       ? "a folder"
                       : "a pipe or a device: save its content to a file and import the file");
}
