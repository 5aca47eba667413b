#include "sessions.h"
#include "base/file.h"
#include "base/json_text.h"
#include "trainer/str.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const char name[] = "sessions.jsonl";

static void take(const char *text, size_t bytes, tr_sessions_t *out) {
    json_t *line = json_loadb(text, bytes, 0, NULL);
    const char *event = json_string_value(json_object_get(line, "event"));
    if (event && strcmp(event, "start") == 0) out->count++;
    out->slowest_write_sec = fmax(out->slowest_write_sec,
                                  json_number_value(json_object_get(line, "checkpoint_write_sec")));
    json_decref(line);
}

tr_status_t tr_sessions_read(const char *run_dir, tr_sessions_t *out) {
    char path[4096], *line = NULL;
    size_t room = 0;
    ssize_t bytes;
    *out = (tr_sessions_t){0};
    TR_TRY(tr_path_join(run_dir, name, path));
    FILE *file = fopen(path, "re");
    if (!file) return errno == ENOENT ? TR_OK : tr_io_fail("open", path, errno);
    while ((bytes = getline(&line, &room, file)) >= 0) take(line, (size_t)bytes, out);
    free(line);
    fclose(file);
    return TR_OK;
}

/* A process that was killed, or a full disk, may have left half a line. */
static bool ends_in_half_a_line(int fd) {
    char last;
    const off_t size = lseek(fd, 0, SEEK_END);
    return size > 0 && pread(fd, &last, 1, size - 1) == 1 && last != '\n';
}

static tr_status_t append(const char *path, const char *text) {
    tr_str_t line = {0};
    const int fd = open(path, O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return tr_io_fail("open", path, errno);
    tr_str_printf(&line, "%s%s\n", ends_in_half_a_line(fd) ? "\n" : "", text);
    tr_status_t status = line.status;
    if (status == TR_OK && write(fd, line.text, line.length) != (ssize_t)line.length)
        status = tr_io_fail("write", path, errno ? errno : ENOSPC);
    tr_str_free(&line);
    close(fd);
    return status;
}

tr_status_t tr_sessions_append(const char *run_dir, json_t *line) {
    char path[4096];
    char *text = json_dumps(line, JSON_COMPACT);
    json_decref(line);
    if (!text) return TR_FAIL(TR_ERR_INTERNAL, "a line of %s has no JSON form", name);
    tr_json_shorten(text);
    tr_status_t status = tr_path_join(run_dir, name, path);
    if (status == TR_OK) status = append(path, text);
    free(text);
    return status;
}
