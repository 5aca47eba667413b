/* The error record: one per thread, fixed size, so that recording cannot fail. */
#include "trainer/status.h"
#include "base/str.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local tr_error_t record;

static void error_add_frame(const char *file, int line, const char *func) {
    size_t used = strlen(record.trace), room = sizeof record.trace - used;
    int wanted =
        snprintf(record.trace + used, room, "%s%s (%s:%d)", used ? "\n" : "", func, file, line);
    if (wanted < 0 || (size_t)wanted >= room)
        record.trace[used] = '\0'; /* the innermost frames matter most */
}

tr_status_t tr_error_record(tr_status_t code, const char *file, int line, const char *func,
                            const char *format, ...) {
    int saved_errno = errno;
    char message
        [TR_ERROR_MESSAGE_BYTES]; /* separate buffers: the arguments may point into the record */
    va_list args;
    va_start(args, format);
    int wanted = tr_vsnprintf(message, sizeof message, format, args);
    va_end(args);
    if (wanted >= (int)sizeof message) /* says so, because the end often has the remedy */
        memcpy(message + sizeof message - 4, "...", 4);
    record.code = code;
    record.origin = TR_ORIGIN_OPEN;
    record.fault[0] = record.node[0] = '\0';
    memcpy(record.message, message, strlen(message) + 1);
    record.trace[0] = '\0';
    error_add_frame(file, line, func);
    errno = saved_errno;
    return code;
}

tr_status_t tr_error_frame(tr_status_t code, const char *file, int line, const char *func) {
    int saved_errno = errno;
    if (record.code != code) { /* the code came without a record; an older message would mislead */
        record.code = code;
        record.origin = TR_ORIGIN_OPEN;
        record.fault[0] = record.node[0] = record.trace[0] = '\0';
        snprintf(record.message, sizeof record.message,
                 "%s (%s:%d): an error of kind '%s' without a message", func, file, line,
                 tr_status_name(code));
    }
    error_add_frame(file, line, func);
    errno = saved_errno;
    return code;
}

const tr_error_t *tr_error_last(void) {
    return &record;
}

tr_status_t tr_error_set(const tr_error_t *error) {
    if (error != &record) record = *error;
    record.message[sizeof record.message - 1] = record.trace[sizeof record.trace - 1] = '\0';
    return record.code;
}

void tr_error_clear(void) {
    record.code = TR_OK;
    record.origin = TR_ORIGIN_OPEN;
    record.fault[0] = record.node[0] = record.message[0] = record.trace[0] = '\0';
}

const char *tr_status_name(tr_status_t code) {
    switch (code) {
    case TR_OK: return "ok";
    case TR_ERR_USAGE: return "usage";
    case TR_ERR_DATA: return "data";
    case TR_ERR_NOINPUT: return "no input";
    case TR_ERR_INTERNAL: return "internal";
    case TR_ERR_MEMORY: return "memory";
    case TR_ERR_IO: return "io";
    case TR_ERR_RETRY: return "retry";
    case TR_ERR_PERMISSION: return "permission";
    case TR_ERR_CONFIG: return "config";
    case TR_ERR_STOP: return "stop";
    }
    return "unknown";
}
