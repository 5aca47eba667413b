/* Probes whether a folder can be written, renamed in and synced. */
#include "folder_probe.h"
#include "base/file.h"
#include "base/clock.h"
#include "base/host.h"
#include "base/mem.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#define PROBE_BYTES ((size_t)1 << 20)

/* The run creates missing folders, so the nearest existing parent is tested. */
static tr_status_t folder_probe_find_folder(const char *dir, char out[4096]) {
    char path[4096], found[PATH_MAX];
    snprintf(path, sizeof path, "%s", dir);
    while (!realpath(path, found)) {
        char *slash = strrchr(path, '/');
        if (errno != ENOENT) return tr_io_fail("look at", path, errno);
        if (slash == path)
            snprintf(path, sizeof path, "/");
        else if (slash)
            *slash = '\0';
        else
            snprintf(path, sizeof path, ".");
    }
    snprintf(out, 4096, "%.4095s", found);
    return TR_OK;
}

/* What a checkpoint does. */
static tr_status_t folder_probe_commit(tr_folder_probe_t *p) {
    char last[4096], *bytes = NULL;
    TR_TRY(tr_alloc(PROBE_BYTES, "folder probe", &bytes));
    const double begin_sec = tr_clock_sec();
    const tr_status_t status = tr_write_all(p->fd, p->file, bytes, PROBE_BYTES);
    tr_free(&bytes);
    TR_TRY(status);
    if (fsync(p->fd) != 0) return tr_io_fail("fsync", p->file, errno);
    snprintf(last, sizeof last, "%.4090s.done", p->file);
    TR_TRY(tr_replace_by(p->file, last, true));
    memcpy(p->file, last, sizeof last);
    p->sync_sec = tr_clock_sec() - begin_sec;
    return TR_OK;
}

tr_lock_state_t tr_folder_probe_try(const char *file) {
    const int fd = open(file, O_RDWR | O_CLOEXEC);
    if (fd < 0) return TR_LOCK_UNSEEN;
    tr_lock_state_t state = TR_LOCK_WORKS;
    if (flock(fd, LOCK_EX | LOCK_NB) == 0)
        state = TR_LOCK_IGNORED;
    else if (errno != EWOULDBLOCK)
        state = TR_LOCK_UNSUPPORTED;
    close(fd);
    return state;
}

tr_status_t tr_folder_probe_open(const char *dir, tr_folder_probe_t *out) {
    char name[300];
    *out = (tr_folder_probe_t){.fd = -1, .free_bytes = INT64_MAX};
    TR_TRY(folder_probe_find_folder(dir, out->folder));
    out->free_bytes = tr_free_bytes(out->folder);
    snprintf(name, sizeof name, ".doctor-%s-%ld", tr_host_name(), (long)getpid());
    TR_TRY(tr_path_join(out->folder, name, out->file));
    out->fd = tr_create_file(out->file);
    if (out->fd < 0) {
        const int reason = errno;
        out->file[0] = '\0';
        return tr_io_fail("create a file in", out->folder, reason);
    }
    TR_TRY(folder_probe_commit(out));
    out->lock = flock(out->fd, LOCK_EX | LOCK_NB) == 0 ? tr_folder_probe_try(out->file)
                                                       : TR_LOCK_UNSUPPORTED;
    return TR_OK;
}

void tr_folder_probe_close(tr_folder_probe_t *p) {
    if (p->file[0]) unlink(p->file);
    if (p->fd >= 0) close(p->fd);
    p->file[0] = '\0';
    p->fd = -1;
}
