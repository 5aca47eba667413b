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

static tr_starts_fault_t starts_fault_of(const json_t *line) {
    tr_starts_fault_t fault = {
        .session = json_integer_value(json_object_get(line, "session")),
        .step = json_integer_value(json_object_get(line, "step")),
    };
    const char *name = json_string_value(json_object_get(line, "fault"));
    const char *node = json_string_value(json_object_get(line, "node"));
    snprintf(fault.name, sizeof fault.name, "%s", name ? name : "");
    snprintf(fault.node, sizeof fault.node, "%s", node ? node : "");
    return fault;
}

bool tr_starts_had_fault(const char *run_dir, const tr_starts_fault_t *mine,
                         tr_starts_fault_t *out) {
    char path[4096], *text = NULL;
    size_t room = 0;
    ssize_t bytes;
    bool found = false;
    FILE *file = tr_path_join(run_dir, file_name, path) == TR_OK ? fopen(path, "re") : NULL;
    while (file && !found && (bytes = getline(&text, &room, file)) >= 0) {
        json_t *line = json_loadb(text, (size_t)bytes, 0, NULL);
        *out = starts_fault_of(line);
        json_decref(line);
        found = out->session < mine->session && strcmp(out->name, mine->name) == 0 &&
                llabs(out->step - mine->step) <= 1 && strcmp(out->node, mine->node) != 0;
    }
    free(text);
    if (file) fclose(file);
    return found;
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
