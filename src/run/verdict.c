/* The verdict file: done, again or no, for the scripts that restart jobs. */
#include "verdict.h"
#include "base/file.h"
#include "base/host.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { PATH_BYTES = 4096 };
/* Of the process, as its log is: main() writes the verdict of an error after the training has
 * returned. */
static char target[PATH_BYTES], temporary[PATH_BYTES];
/* Another file, because a handler may interrupt the writing of the first. */
static char provisional[PATH_BYTES];
/* A file that has room for a verdict, for a disk that is full by then. */
static char spare[PATH_BYTES];
static char slurm_job[64] = "-", slurm_restart[32] = "-";       /* "-": outside SLURM */
static const char provisional_lines[] = "again\nprovisional\n"; /* its first lines */

static const char *verdict_environment(const char *name, const char *absent) {
    const char *value = getenv(name);
    return value && *value ? value : absent;
}

void tr_verdict_open(const char *path) {
    snprintf(slurm_job, sizeof slurm_job, "%s", verdict_environment("SLURM_JOB_ID", "-"));
    snprintf(slurm_restart, sizeof slurm_restart, "%s",
             verdict_environment("SLURM_RESTART_COUNT", *slurm_job == '-' ? "-" : "0"));
    if (!path || snprintf(target, sizeof target, "%s", path) >= PATH_BYTES ||
        snprintf(temporary, sizeof temporary, "%s.%s.%ld", path, tr_host_name(), (long)getpid()) >=
            PATH_BYTES ||
        snprintf(provisional, sizeof provisional, "%s.early", temporary) >= PATH_BYTES ||
        snprintf(spare, sizeof spare, "%s.room", path) >= PATH_BYTES)
        target[0] = '\0';
}

tr_status_t tr_verdict_clear(void) {
    if (!target[0] || unlink(target) == 0 || errno == ENOENT) return TR_OK;
    return TR_FAIL(tr_status_of_errno(errno),
                   "cannot remove the verdict of an earlier session, %s: %s; remove it, or choose "
                   "another run.verdict",
                   target, strerror(errno));
}

typedef struct {
    char bytes[2048];
    size_t length;
} text_t;

/* Control characters become blanks: the file has one value per line. */
static void verdict_put(text_t *text, const char *value) {
    for (; *value && text->length < sizeof text->bytes - 1; value++)
        text->bytes[text->length++] = (unsigned char)*value < ' ' ? ' ' : *value;
}

static void verdict_put_line(text_t *text, const char *name, const char *value) {
    verdict_put(text, name);
    verdict_put(text, value);
    if (text->length < sizeof text->bytes) text->bytes[text->length++] = '\n';
}

static void verdict_compose(int code, const char *reason, const char *node, bool is_provisional,
                            text_t *text) {
    if (code == TR_OK || code == TR_ERR_RETRY) { /* also in a signal handler */
        verdict_put_line(text, code == TR_OK ? "done" : "again", "");
    } else {
        char no[32];
        snprintf(no, sizeof no, "no %d ", code);
        verdict_put_line(text, no, reason);
    }
    if (is_provisional) verdict_put_line(text, "provisional", "");
    verdict_put(text, "job ");
    verdict_put(text, slurm_job);
    verdict_put_line(text, " restart ", slurm_restart);
    if (node && *node) verdict_put_line(text, "node ", node);
    if (code == TR_ERR_RETRY) verdict_put_line(text, "reason ", reason);
}

static bool verdict_begins(const char *path, const char *lines) {
    char text[sizeof provisional_lines];
    const size_t length = strlen(lines);
    const int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return false;
    const ssize_t bytes = read(fd, text, length);
    close(fd);
    return bytes == (ssize_t)length && memcmp(text, lines, length) == 0;
}

static bool verdict_is_provisional(void) {
    return verdict_begins(target, provisional_lines);
}

bool tr_verdict_is_done(const char *path) {
    return verdict_begins(path, "done\n");
}

static bool verdict_write_file(const char *path, const text_t *text) {
    const int fd = tr_create_file(path);
    if (fd < 0) return false;
    const bool written =
        write(fd, text->bytes, text->length) == (ssize_t)text->length && fsync(fd) == 0;
    if (close(fd) == 0 && written) return true;
    unlink(path);
    return false;
}

/* Writes over a file that has room already: the spare one, or a provisional verdict. Of several
 * ranks one gets it, by the rename. */
static bool verdict_write_over(const char *path, const text_t *text) {
    if (rename(spare, path) != 0 && !(verdict_is_provisional() && rename(target, path) == 0))
        return false;
    const int fd = open(path, O_WRONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK);
    const bool written = fd >= 0 &&
                         pwrite(fd, text->bytes, text->length, 0) == (ssize_t)text->length &&
                         ftruncate(fd, (off_t)text->length) == 0 && fsync(fd) == 0;
    if (fd >= 0) close(fd);
    if (!written) unlink(path);
    return written;
}

static void verdict_write_to(const char *path, const text_t *text) {
    if (!verdict_write_file(path, text) && !verdict_write_over(path, text)) return;
    /* link does not replace the verdict of another rank, as rename would. Some file systems have no
     * links. */
    if (link(path, target) != 0 && (errno != EEXIST || verdict_is_provisional()))
        rename(path, target);
    unlink(path);
}

void tr_verdict_reserve(void) {
    text_t room;
    if (!target[0]) return;
    room.length = sizeof room.bytes;
    memset(room.bytes, '\n', room.length);
    (void)verdict_write_file(spare, &room);
}

void tr_verdict_write(int code, const char *reason, const char *node) {
    text_t text = {.length = 0};
    if (!target[0]) return;
    verdict_compose(code, reason, node, false, &text);
    verdict_write_to(temporary, &text);
    unlink(spare);
}

void tr_verdict_provisional(const char *reason) {
    text_t text = {.length = 0};
    const int kept = errno;
    if (!target[0]) return;
    verdict_compose(TR_ERR_RETRY, reason, NULL, true, &text);
    verdict_write_to(provisional, &text);
    errno = kept;
}

void tr_verdict_withdraw(void) {
    if (target[0] && verdict_is_provisional()) unlink(target);
}

void tr_verdict_again(const char *reason, const char *node) {
    tr_verdict_write(TR_ERR_RETRY, reason, node);
}
