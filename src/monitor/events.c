/* Writes event files of TensorBoard. */
#include "events.h"

#include "base/clock.h"
#include "base/file.h"
#include "base/folders.h"
#include "base/host.h"
#include "base/mem.h"
#include "base/str.h"
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct tr_events {
    int fd;
    char path[4096];
    tr_str_t message, summary, value, part; /* reused */
};

/* -- records ----------------------------------------------------------------------------------- */

uint32_t tr_events_crc(const void *data, size_t bytes) {
    static uint32_t table[256]; /* CRC-32C, reflected; the same from any thread */
    const unsigned char *at = data;
    uint32_t crc = ~0u;
    if (!table[1])
        for (uint32_t i = 256; i-- > 0;) {
            uint32_t value = i;
            for (int bit = 0; bit < 8; bit++) value = value >> 1 ^ ((value & 1) ? 0x82F63B78u : 0);
            table[i] = value;
        }
    for (size_t i = 0; i < bytes; i++) crc = table[(crc ^ at[i]) & 255] ^ crc >> 8;
    crc = ~crc;
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static void events_append_fixed(tr_str_t *out, uint64_t value, int bytes) {
    char text[8];
    for (int i = 0; i < bytes; i++) text[i] = (char)(value >> 8 * i);
    tr_str_append_bytes(out, text, (size_t)bytes);
}

/* One write(): on some network file systems a hole may otherwise be seen as zeros, and readers give
 * the file up. */
static tr_status_t events_write(tr_events_t *e, const tr_str_t *message) {
    tr_str_t *record = &e->part;
    record->length = 0;
    events_append_fixed(record, message->length, 8);
    events_append_fixed(record, tr_events_crc(record->text, 8), 4);
    tr_str_append_bytes(record, message->text, message->length);
    events_append_fixed(record, tr_events_crc(message->text, message->length), 4);
    TR_TRY(message->status);
    TR_TRY(record->status);
    const off_t before = lseek(e->fd, 0, SEEK_END);
    const ssize_t written = write(e->fd, record->text, record->length);
    if (written == (ssize_t)record->length) return TR_OK;
    const int reason = written < 0 ? errno : ENOSPC;
    if (written > 0 && before >= 0 && ftruncate(e->fd, before) != 0) return TR_ERR_IO;
    return tr_io_fail("write", e->path, reason);
}

/* -- Protocol Buffers -------------------------------------------------------------------------- */

enum { VARINT = 0, DOUBLE = 1, BYTES = 2, FLOAT = 5 }; /* wire types */

static void pb_varint(tr_str_t *out, uint64_t value) {
    for (; value >= 128; value >>= 7) tr_str_append_bytes(out, &(char){(char)(value | 128)}, 1);
    tr_str_append_bytes(out, &(char){(char)value}, 1);
}

static void pb_int(tr_str_t *out, int field, int64_t value) {
    pb_varint(out, (uint64_t)field << 3 | VARINT);
    pb_varint(out, (uint64_t)value);
}

static void pb_bytes(tr_str_t *out, int field, const char *bytes, size_t count) {
    pb_varint(out, (uint64_t)field << 3 | BYTES);
    pb_varint(out, count);
    tr_str_append_bytes(out, bytes, count);
}

/* Begins e->message, an Event. */
static tr_str_t *events_begin(tr_events_t *e, int64_t step, double unix_sec) {
    uint64_t bits;
    memcpy(&bits, &unix_sec, sizeof bits);
    e->message.length = e->summary.length = e->value.length = 0;
    pb_varint(&e->message, 1 << 3 | DOUBLE);
    events_append_fixed(&e->message, bits, 8);
    pb_int(&e->message, 2, step);
    return &e->message;
}

/* Event.summary with the one Summary.Value in e->value. */
static tr_status_t events_write_value(tr_events_t *e) {
    TR_TRY(e->value.status);
    pb_bytes(&e->summary, 1, e->value.text, e->value.length);
    TR_TRY(e->summary.status);
    pb_bytes(&e->message, 5, e->summary.text, e->summary.length);
    return events_write(e, &e->message);
}

tr_status_t tr_events_scalar(tr_events_t *e, const char *tag, int64_t step, double unix_sec,
                             double value) {
    uint32_t bits;
    memcpy(&bits, &(float){(float)value}, sizeof bits);
    events_begin(e, step, unix_sec);
    pb_bytes(&e->value, 1, tag, strlen(tag));
    pb_varint(&e->value, 2 << 3 | FLOAT);
    events_append_fixed(&e->value, bits, 4);
    return events_write_value(e);
}

tr_status_t tr_events_text(tr_events_t *e, const char *tag, int64_t step, double unix_sec,
                           const char *text) {
    enum { DT_STRING = 7, DATA_CLASS_TENSOR = 2 };
    static const char plugin[] = "\n\4text"; /* PluginData.plugin_name */
    tr_str_t part = {0};
    events_begin(e, step, unix_sec);
    pb_bytes(&e->value, 1, tag, strlen(tag));
    pb_int(&part, 1, DT_STRING); /* TensorProto: a scalar */
    pb_bytes(&part, 2, "", 0);
    pb_bytes(&part, 8, text, strlen(text));
    pb_bytes(&e->value, 8, part.text ? part.text : "", part.length);
    part.length = 0;
    pb_bytes(&part, 1, plugin, sizeof plugin - 1); /* SummaryMetadata */
    pb_int(&part, 4, DATA_CLASS_TENSOR);
    pb_bytes(&e->value, 9, part.text ? part.text : "", part.length);
    const tr_status_t status = part.status == TR_OK ? events_write_value(e) : part.status;
    tr_str_free(&part);
    return status;
}

tr_status_t tr_events_start(tr_events_t *e, int64_t step, double unix_sec) {
    enum { START = 1 };
    pb_int(&e->value, 1, START); /* SessionLog.status */
    tr_str_t *message = events_begin(e, step, unix_sec);
    pb_int(&e->value, 1, START);
    TR_TRY(e->value.status);
    pb_bytes(message, 7, e->value.text, e->value.length);
    return events_write(e, message);
}

/* -- files ------------------------------------------------------------------------------------- */

/* The Unix time of a new file: readers take the files of a folder in the order of their names. */
static int64_t events_next_time(const char *folder) {
    static const char prefix[] = "events.out.tfevents.";
    int64_t newest = (int64_t)tr_clock_unix_sec() - 1;
    DIR *dir = opendir(folder);
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        if (strncmp(entry->d_name, prefix, sizeof prefix - 1) != 0) continue;
        const int64_t time = strtoll(entry->d_name + sizeof prefix - 1, NULL, 10);
        if (time > newest) newest = time;
    }
    if (dir) closedir(dir);
    return newest + 1;
}

tr_status_t tr_events_create(const char *folder, tr_events_t **out) {
    static const char version[] = "brain.Event:2";
    tr_events_t *e = NULL;
    char name[400];
    tr_status_t status;
    if (!tr_make_folders(folder)) return tr_io_fail("create the folder", folder, errno);
    TR_TRY(tr_alloc(sizeof *e, "event file", &e));
    snprintf(name, sizeof name, "events.out.tfevents.%010lld.%s.0" TR_EVENTS_ENDING,
             (long long)events_next_time(folder), tr_host_name());
    e->fd = -1;
    TR_TRY_GOTO(tr_path_join(folder, name, e->path), failed);
    e->fd = open(e->path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
    if (e->fd < 0) TR_TRY_GOTO(tr_io_fail("create", e->path, errno), failed);
    tr_str_t *message = events_begin(e, 0, tr_clock_unix_sec());
    pb_bytes(message, 3, version, sizeof version - 1);
    TR_TRY_GOTO(events_write(e, message), failed);
    *out = e;
    return TR_OK;
failed:
    tr_events_close(&e);
    return status;
}

void tr_events_close(tr_events_t **closing) {
    tr_events_t *e = *closing;
    if (!e) return;
    if (e->fd >= 0) close(e->fd);
    tr_str_free(&e->message);
    tr_str_free(&e->summary);
    tr_str_free(&e->value);
    tr_str_free(&e->part);
    tr_free(closing);
}
