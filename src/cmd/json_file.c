/* What --json writes. */
#include "cmd.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

tr_status_t cmd_json_write(json_t *object, const char *path) {
    const size_t flags = JSON_INDENT(1) | JSON_SORT_KEYS;
    char temporary[4096];
    struct stat found;
    const bool in_place = stat(path, &found) == 0 && !S_ISREG(found.st_mode); /* /dev/stdout, a pipe */
    snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid());
    const bool written = json_dump_file(object, in_place ? path : temporary, flags) == 0 &&
                         (in_place || rename(temporary, path) == 0);
    const int reason = errno;
    json_decref(object);
    if (written) return TR_OK;
    if (!in_place) (void)unlink(temporary);
    return TR_FAIL(tr_status_of_errno(reason), "--json %s cannot be written: %s", path, strerror(reason));
}
