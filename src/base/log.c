/*
 * Log lines. A line is composed in one buffer and written with one write() per sink under one lock.
 */
#include "trainer/log.h"
#include "file.h"
#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define MAX_FILES  4
#define LINE_BYTES 8192
#define DATE_BYTES 40 /* room before the line for date and level in files */

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *const level_prefixes[] = {"error: ", "warning: ", "", "debug: "};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic int max_level = TR_LOG_INFO;
static int own_rank, world_size = 1;
static char host_name[64] = "?";
static tr_log_sink_fn sink;
static void *sink_self;
static int files[MAX_FILES];
static int file_count;

void tr_log_set_level(tr_log_level_t level) {
    atomic_store(&max_level, (int)level);
}

bool tr_log_shows(tr_log_level_t level) {
    return (int)level <= atomic_load_explicit(&max_level, memory_order_relaxed);
}

void tr_log_set_rank(int rank, int size, const char *host) {
    pthread_mutex_lock(&lock);
    own_rank = rank;
    world_size = size;
    snprintf(host_name, sizeof host_name, "%s", host ? host : "?");
    pthread_mutex_unlock(&lock);
}

void tr_log_set_sink(tr_log_sink_fn new_sink, void *self) {
    pthread_mutex_lock(&lock);
    sink = new_sink;
    sink_self = self;
    pthread_mutex_unlock(&lock);
}

bool tr_log_has_sink(void) {
    pthread_mutex_lock(&lock);
    const bool has_sink = sink != NULL;
    pthread_mutex_unlock(&lock);
    return has_sink;
}

/* O_APPEND: several ranks may write one file. */
tr_status_t tr_log_add_file(const char *path) {
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW, 0666);
    if (fd < 0) return tr_io_fail("open the log file", path, errno);
    pthread_mutex_lock(&lock);
    bool has_room = file_count < MAX_FILES;
    if (has_room) files[file_count++] = fd;
    pthread_mutex_unlock(&lock);
    if (has_room) return TR_OK;
    close(fd);
    return TR_FAIL(TR_ERR_INTERNAL, "Cannot log to %s: at most %d log files are open at a time.",
                   path, MAX_FILES);
}

void tr_log_close_files(void) {
    pthread_mutex_lock(&lock);
    while (file_count > 0) close(files[--file_count]);
    pthread_mutex_unlock(&lock);
}

void tr_log_write_bytes(int fd, const char *bytes, size_t count) {
    while (count > 0) {
        ssize_t written = write(fd, bytes, count);
        if (written < 0 && errno == EINTR) continue;
        if (written <= 0) return;
        bytes += written;
        count -= (size_t)written;
    }
}

/* Puts the finished line at `line` (LINE_BYTES, two of them kept for the newline); returns its
 * length. */
static size_t log_compose(char *line, tr_log_level_t level, bool all_ranks, const char *format,
                          va_list args) {
    size_t room = LINE_BYTES - 1, used = 0;
    if (all_ranks && world_size > 1)
        used += (size_t)snprintf(line, room, "[rank %d %s] ", own_rank, host_name);
    used += (size_t)snprintf(line + used, room - used, "%s", level_prefixes[level]);
    int wanted = tr_vsnprintf(line + used, room - used, format, args);
    if (wanted < 0) return used;
    if ((size_t)wanted < room - used) return used + (size_t)wanted;
    memcpy(line + room - 4, "...", 4);
    return room - 1;
}

/* `buffer` has DATE_BYTES free before the line, which ends in a newline. */
static void write_files(char *buffer, size_t length, tr_log_level_t level) {
    char date[32], stamp[DATE_BYTES];
    tr_clock_iso8601(date);
    int stamp_bytes = snprintf(stamp, sizeof stamp, "%s %-5s ", date, level_names[level]);
    char *start = buffer + DATE_BYTES - stamp_bytes;
    memcpy(start, stamp, (size_t)stamp_bytes);
    for (int i = 0; i < file_count; i++)
        tr_log_write_bytes(files[i], start, (size_t)stamp_bytes + length);
}

void tr_log_write_files(tr_log_level_t level, const char *format, ...) {
    char buffer[DATE_BYTES + LINE_BYTES], *line = buffer + DATE_BYTES;
    va_list args;
    va_start(args, format);
    int wanted = tr_vsnprintf(line, LINE_BYTES - 1, format, args);
    va_end(args);
    size_t length = wanted < 0 ? 0 : wanted < LINE_BYTES - 1 ? (size_t)wanted : LINE_BYTES - 2;
    line[length] = '\n';
    bool is_ours = pthread_mutex_trylock(&lock) == 0;
    write_files(buffer, length + 1, level);
    if (is_ours) pthread_mutex_unlock(&lock);
}

void tr_log_write(tr_log_level_t level, bool all_ranks, const char *format, ...) {
    if (!tr_log_shows(level)) return;
    int saved_errno = errno;
    char buffer[DATE_BYTES + LINE_BYTES], *line = buffer + DATE_BYTES;
    pthread_mutex_lock(&lock);
    if (all_ranks || own_rank == 0) {
        va_list args;
        va_start(args, format);
        size_t length = log_compose(line, level, all_ranks, format, args);
        va_end(args);
        if (sink) sink(sink_self, level, line);
        line[length] = '\n';
        if (!sink) tr_log_write_bytes(STDERR_FILENO, line, length + 1);
        write_files(buffer, length + 1, level);
    }
    pthread_mutex_unlock(&lock);
    errno = saved_errno;
}
