/* Writes the file of --json. */
#include "cmd.h"

#include <errno.h>
#include <jansson.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

bool cmd_json_is_stdout(const char *path) {
    return path && strcmp(path, "-") == 0;
}

/* Writes to `path`, or to standard output if that is NULL. */
static bool dump(const json_t *object, const char *path) {
    const size_t flags = JSON_INDENT(1) | JSON_SORT_KEYS | JSON_REAL_PRECISION(9);
    if (path) return json_dump_file(object, path, flags) == 0;
    return json_dumpf(object, stdout, flags) == 0 && putchar('\n') != EOF && fflush(stdout) == 0;
}

tr_status_t cmd_json_write(json_t *object, const char *path) {
    char temporary[4096];
    if (!object)
        return TR_FAIL(TR_ERR_INTERNAL, "--json %s: a text in the result is not valid UTF-8", path);
    struct stat found;
    const bool to_stdout = cmd_json_is_stdout(path),
               /* a pipe */
        in_place = to_stdout || (stat(path, &found) == 0 && !S_ISREG(found.st_mode));
    if ((size_t)snprintf(temporary, sizeof temporary, "%s.tmp-%ld", path, (long)getpid()) >=
        sizeof temporary)
        return json_decref(object),
               TR_FAIL(TR_ERR_USAGE, "--json: the name is longer than %zu characters",
                       sizeof temporary - 32);
    errno = 0;
    const bool written = dump(object, to_stdout  ? NULL
                                      : in_place ? path
                                                 : temporary) &&
                         (in_place || rename(temporary, path) == 0);
    const int reason = errno;
    json_decref(object);
    if (written) return TR_OK;
    if (!in_place) (void)unlink(temporary);
    return TR_FAIL(reason ? tr_status_of_errno(reason) : TR_ERR_INTERNAL,
                   "--json %s cannot be written: %s", path,
                   reason ? strerror(reason) : "it contains a number that JSON cannot represent");
}
