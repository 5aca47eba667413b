/* Which files are open for pread: those that were used last. */
#include "h5.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* The open files of this process that nobody uses at the moment, in the order of their last use, and
 * the number of all open ones. */
static struct {
    pthread_mutex_t lock;
    h5_file_t *oldest, *newest;
    int count;
} open_files = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* A quarter of the limit at most: checkpoints, connections and libraries need descriptors, too. */
static int h5_files_most(void) {
    struct rlimit limit;
    return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur / 4 < H5_OPEN_MOST
               ? (int)(limit.rlim_cur / 4)
               : H5_OPEN_MOST;
}

/* These require open_files.lock. */
static void h5_files_unlink(h5_file_t *file) {
    *(file->older ? &file->older->newer : &open_files.oldest) = file->newer;
    *(file->newer ? &file->newer->older : &open_files.newest) = file->older;
    file->older = file->newer = NULL;
}

static void h5_files_append(h5_file_t *file) {
    file->older = open_files.newest;
    *(open_files.newest ? &open_files.newest->newer : &open_files.oldest) = file;
    open_files.newest = file;
}

static bool h5_files_close_oldest(void) {
    h5_file_t *file = open_files.oldest;
    if (!file) return false;
    h5_files_unlink(file);
    close(file->fd);
    file->fd = -1;
    open_files.count--;
    return true;
}

/* Opens the file, without the lock meanwhile, in which another thread may open it, too. */
static tr_status_t h5_files_open(const h5_file_t *file, int *out) {
    struct stat now;
    const int most = h5_files_most();
    while (open_files.count >= most && h5_files_close_oldest()) continue;
    for (bool again = true; again;) {
        pthread_mutex_unlock(&open_files.lock);
        *out = open(file->path, O_RDONLY | O_CLOEXEC);
        const int error = errno;
        pthread_mutex_lock(&open_files.lock);
        errno = error;
        again = *out < 0 && (error == EMFILE || error == ENFILE) && h5_files_close_oldest();
    }
    if (*out < 0)
        return TR_FAIL(errno == ENOENT ? TR_ERR_NOINPUT : TR_ERR_IO,
                       "cannot open '%s', which was there when the data were opened: %s.",
                       file->path, strerror(errno));
    const tr_status_t status = fstat(*out, &now) == 0 ? tr_h5_file_check(file, &now) : TR_OK;
    if (status != TR_OK) close(*out);
    return status;
}

tr_status_t tr_h5_file_use(h5_file_t *file, int *out_fd) {
    tr_status_t status = TR_OK;
    int fd;
    pthread_mutex_lock(&open_files.lock);
    if (file->fd >= 0 && file->users == 0) h5_files_unlink(file);
    file->users++;
    if (file->fd < 0) {
        status = h5_files_open(file, &fd);
        if (status == TR_OK && file->fd >= 0) {
            close(fd); /* another thread has opened it, too */
        } else if (status == TR_OK) {
            file->fd = fd;
            open_files.count++;
        }
    }
    if (status != TR_OK && --file->users == 0 && file->fd >= 0) h5_files_append(file);
    *out_fd = file->fd;
    pthread_mutex_unlock(&open_files.lock);
    return status;
}

void tr_h5_file_done(h5_file_t *file) {
    pthread_mutex_lock(&open_files.lock);
    if (--file->users == 0) h5_files_append(file);
    if (open_files.count > H5_OPEN_MOST) h5_files_close_oldest();
    pthread_mutex_unlock(&open_files.lock);
}

void tr_h5_file_forget(h5_file_t *file) {
    pthread_mutex_lock(&open_files.lock);
    if (file->fd >= 0) {
        h5_files_unlink(file);
        close(file->fd);
        file->fd = -1;
        open_files.count--;
    }
    pthread_mutex_unlock(&open_files.lock);
}
