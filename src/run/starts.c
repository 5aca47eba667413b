/* sessions.jsonl: read as a whole, or one line appended. */
#include "starts.h"
#include "base/file.h"
#include "base/json_text.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char file_name[] = "sessions.jsonl";

tr_status_t tr_starts_read(const char *run_dir, tr_starts_t *out) {
    char path[4096], *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    *out = (tr_starts_t){0};
    TR_TRY(tr_path_join(run_dir, file_name, path));
    FILE *file = fopen(path, "re");
    if (!file) return errno == ENOENT ? TR_OK : tr_io_fail("open", path, errno);
    while ((bytes = getline(&line, &room, file)) >= 0) {
        json_t *read = json_loadb(line, (size_t)bytes, 0, NULL);
        const char *event = json_string_value(json_object_get(read, "event"));
        const double write_sec = json_number_value(json_object_get(read, "checkpoint_write_sec"));
        if (event && strcmp(event, "start") == 0) out->count++;
        out->slowest_write_sec = fmax(out->slowest_write_sec, write_sec);
        json_decref(read);
    }
    free(line);
    fclose(file);
    return TR_OK;
}

tr_status_t tr_starts_append(const char *run_dir, json_t *line) {
    char path[4096], last = '\n';
    tr_str_t whole = {0};
    char *text = json_dumps(line, JSON_COMPACT);
    int fd = -1;
    json_decref(line);
    if (!text) return TR_FAIL(TR_ERR_INTERNAL, "a line of %s has no JSON form", file_name);
    tr_json_shorten(text);
    tr_status_t status = tr_path_join(run_dir, file_name, path);
    if (status == TR_OK) {
        fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
        if (fd < 0) status = tr_io_fail("open", path, errno);
    }
    if (status == TR_OK) {
        /* A process that was killed, or a full disk, may have left half a line. */
        const off_t size = lseek(fd, 0, SEEK_END);
        if (size > 0 && pread(fd, &last, 1, size - 1) != 1) last = '\n';
        tr_str_printf(&whole, "%s%s\n", last == '\n' ? "" : "\n", text);
        status = whole.status;
    }
    if (status == TR_OK && write(fd, whole.text, whole.length) != (ssize_t)whole.length)
        status = tr_io_fail("write", path, errno ? errno : ENOSPC);
    if (fd >= 0) close(fd);
    tr_str_free(&whole);
    free(text);
    return status;
}
