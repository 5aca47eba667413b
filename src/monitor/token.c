/* The token of the server. */
#include "token.h"

#include "base/file.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

enum { RANDOM_BYTES = 16, LEAST = 16, MOST = 200 };

static tr_status_t token_make(const char *key, const char *path, int *out_fd) {
    unsigned char bytes[RANDOM_BYTES];
    char text[2 * RANDOM_BYTES + 2];
    if (getrandom(bytes, sizeof bytes, 0) != sizeof bytes)
        return TR_FAIL(TR_ERR_IO, "%s: the system gives no random bytes: %s", key, strerror(errno));
    for (int i = 0; i < RANDOM_BYTES; i++) snprintf(text + 2 * i, 3, "%02x", bytes[i]);
    text[2 * RANDOM_BYTES] = '\n';
    const int fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
    if (fd < 0) return tr_io_fail("create the file of the token", path, errno);
    if (write(fd, text, sizeof text - 1) == (ssize_t)sizeof text - 1 &&
        lseek(fd, 0, SEEK_SET) == 0) {
        *out_fd = fd;
        return TR_OK;
    }
    const int reason = errno;
    close(fd);
    unlink(path);
    return tr_io_fail("write the token to", path, reason);
}

tr_status_t tr_token_read(const char *key, const char *path, bool may_make, tr_str_t *out) {
    char text[MOST + 2] = "";
    struct stat found = {0};
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 && errno == ENOENT && may_make) TR_TRY(token_make(key, path, &fd));
    if (fd < 0)
        return TR_FAIL(tr_status_of_errno(errno), "%s: cannot read %s: %s", key, path,
                       strerror(errno));
    const bool is_known = fstat(fd, &found) == 0 && S_ISREG(found.st_mode);
    const ssize_t bytes = is_known ? read(fd, text, sizeof text - 1) : 0;
    close(fd);
    const size_t length = strcspn(text, "\r\n");
    if (is_known && (found.st_mode & (S_IRWXG | S_IRWXO)))
        return TR_FAIL(TR_ERR_PERMISSION,
                       "%s: expected %s to be readable by its owner only, found mode %03o: run "
                       "chmod 600 on it, and change the token, which others may have read",
                       key, path, (unsigned)found.st_mode & 0777);
    bool is_plain = bytes > 0 && length >= LEAST && length <= MOST;
    for (size_t i = 0; i < length; i++) is_plain = is_plain && text[i] > ' ' && text[i] < 127;
    if (!is_plain)
        return TR_FAIL(TR_ERR_CONFIG,
                       "%s: expected a file with one line of %d to %d printable "
                       "characters without blanks, found something else in %s",
                       key, LEAST, MOST, path);
    tr_str_append_bytes(out, text, length);
    return out->status;
}
