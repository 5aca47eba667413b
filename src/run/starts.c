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

static bool starts_take(void *self, const char *text, size_t bytes) {
    tr_starts_t *starts = self;
    json_t *line = json_loadb(text, bytes, 0, NULL);
    const char *event = json_string_value(json_object_get(line, "event"));
    const double write_sec = json_number_value(json_object_get(line, "checkpoint_write_sec"));
    if (event && strcmp(event, "start") == 0) starts->count++;
    starts->slowest_write_sec = fmax(starts->slowest_write_sec, write_sec);
    json_decref(line);
    return true;
}

tr_status_t tr_starts_read(const char *run_dir, tr_starts_t *out) {
    char path[4096];
    *out = (tr_starts_t){0};
    TR_TRY(tr_path_join(run_dir, file_name, path));
    return tr_each_line(path, starts_take, out);
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

typedef struct {
    const tr_starts_fault_t *mine;
    tr_starts_fault_t *other;
    bool found;
} fault_search_t;

static bool fault_search_take(void *self, const char *text, size_t bytes) {
    fault_search_t *search = self;
    const tr_starts_fault_t *mine = search->mine;
    tr_starts_fault_t *out = search->other;
    json_t *line = json_loadb(text, bytes, 0, NULL);
    *out = starts_fault_of(line);
    json_decref(line);
    search->found = out->session < mine->session && strcmp(out->name, mine->name) == 0 &&
                    (mine->at_any_step || llabs(out->step - mine->step) <= 1) &&
                    (!mine->node[0] || strcmp(out->node, mine->node) != 0);
    return !search->found;
}

bool tr_starts_had_fault(const char *run_dir, const tr_starts_fault_t *mine,
                         tr_starts_fault_t *out) {
    char path[4096];
    fault_search_t search = {.mine = mine, .other = out};
    return tr_path_join(run_dir, file_name, path) == TR_OK &&
           tr_each_line(path, fault_search_take, &search) == TR_OK && search.found;
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
