/*
 * Log lines. A line is composed in one buffer and written with one write() per sink, by who logs it or
 * by the thread of a queue.
 */
#include "log_queue.h"
#include "file.h"
#include "base/clock.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MAX_FILES  4
#define LINE_BYTES 8192
#define DATE_BYTES 40 /* room before the line for date and level in files */

static const char *const level_names[] = {"error", "warn", "info", "debug"};
static const char *const level_prefixes[] = {"error: ", "warning: ", "", "debug: "};

/* `lock` guards what is below it, and is held only for moments; `writing` is held while a line is
 * written, which may take long. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER, writing = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t queue_left = PTHREAD_COND_INITIALIZER;
static tr_background_t *queue;
static int queue_users; /* threads that hand it a line now */
static _Atomic int64_t dropped;
static _Atomic int max_level = TR_LOG_INFO;
static int own_rank, world_size = 1;
static char host_name[64] = "?";
static tr_log_sink_fn sink;
static void *sink_self;
static int files[MAX_FILES];
static int file_count;

tr_log_level_t tr_log_set_level(tr_log_level_t level) {
    return (tr_log_level_t)atomic_exchange(&max_level, (int)level);
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
    int fd = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0666);
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

/* -- delivery ---------------------------------------------------------------------------------- */

/* A line on its way: text is [stamp bytes of date and level, for files][length bytes of the line,
 * which ends in a newline]. */
typedef struct {
    tr_log_level_t level;
    int fd;        /* bytes for this file alone; -1: a line of the log */
    bool is_shown; /* on the terminal too, not only in the files */
    size_t stamp, length;
    size_t ring_end; /* its position behind it */
    char text[];     /* terminated */
} entry_t;

/* The queue, which does not end before log_queue_leave. NULL: none. */
static tr_background_t *log_queue_take(void) {
    pthread_mutex_lock(&lock);
    tr_background_t *taken = queue;
    queue_users++;
    pthread_mutex_unlock(&lock);
    return taken;
}

static void log_queue_leave(void) {
    pthread_mutex_lock(&lock);
    if (--queue_users == 0) pthread_cond_broadcast(&queue_left);
    pthread_mutex_unlock(&lock);
}

/* Lines that wait for the queue, which takes them in their order: a ring, so that no line allocates.
 * Guarded by `lock`; taken and freed are positions that never wrap. */
enum { RING_BYTES = 1 << 20 };
static _Alignas(entry_t) char ring[RING_BYTES];
static size_t ring_taken, ring_freed;

/* NULL: no room. An entry is not split: what is left at the end of the ring is skipped with it. */
static entry_t *log_ring_take(size_t text_bytes) {
    const size_t align = _Alignof(entry_t),
                 bytes = (sizeof(entry_t) + text_bytes + align - 1) / align * align;
    pthread_mutex_lock(&lock);
    const size_t left = RING_BYTES - ring_taken % RING_BYTES, skipped = left < bytes ? left : 0;
    entry_t *e = NULL;
    if (ring_taken + skipped + bytes - ring_freed <= RING_BYTES) {
        e = (entry_t *)(void *)(ring + (ring_taken + skipped) % RING_BYTES);
        e->ring_end = ring_taken += skipped + bytes;
    }
    pthread_mutex_unlock(&lock);
    return e;
}

/* A terminal that is stopped (Ctrl-S), or a pipe that nobody reads, must not keep the thread from
 * other files: what it does not take within a second is dropped, and then all until it is ready. */
static void entry_show(int fd, const char *bytes, size_t count, bool may_wait) {
    enum { MOST_MS = 1000 };
    static bool is_stuck; /* guarded by `writing` */
    struct pollfd ready = {.fd = fd, .events = POLLOUT};
    if (!may_wait) {
        is_stuck = poll(&ready, 1, is_stuck ? 0 : MOST_MS) == 0;
        if (is_stuck) {
            atomic_fetch_add(&dropped, 1);
            return;
        }
    }
    tr_log_write_bytes(fd, bytes, count);
}

/* Called with `writing` held. may_wait: for who reads the terminal. */
static void entry_write(const entry_t *e, bool may_wait) {
    char *line = (char *)e->text + e->stamp;
    if (e->fd >= 0) {
        entry_show(e->fd, line, e->length, may_wait);
        return;
    }
    pthread_mutex_lock(&lock);
    const tr_log_sink_fn to = sink;
    void *const self = sink_self;
    int open_files[MAX_FILES];
    const int count = file_count;
    memcpy(open_files, files, sizeof open_files);
    pthread_mutex_unlock(&lock);
    if (e->is_shown && to) {
        line[e->length - 1] = '\0';
        to(self, e->level, line);
        line[e->length - 1] = '\n';
    } else if (e->is_shown) {
        entry_show(STDERR_FILENO, line, e->length, may_wait);
    }
    for (int i = 0; i < count; i++)
        tr_log_write_bytes(open_files[i], e->text, e->stamp + e->length);
}

static void entry_deliver(void *self, void *item) {
    entry_t *e = item;
    (void)self;
    pthread_mutex_lock(&writing);
    entry_write(e, false);
    pthread_mutex_unlock(&writing);
    pthread_mutex_lock(&lock);
    ring_freed = e->ring_end;
    pthread_mutex_unlock(&lock);
}

/* Hands a line to the queue; without one, writes it. */
static void log_send(tr_log_level_t level, int fd, bool is_shown, const char *line, size_t length) {
    union {
        entry_t entry;
        char bytes[sizeof(entry_t) + DATE_BYTES + LINE_BYTES];
    } own;
    char date[32], stamp[DATE_BYTES];
    tr_clock_iso8601(date);
    const size_t stamp_bytes =
        fd >= 0 ? 0 : (size_t)snprintf(stamp, sizeof stamp, "%s %-5s ", date, level_names[level]);
    tr_background_t *to = log_queue_take();
    entry_t *e = &own.entry;
    const size_t bytes = stamp_bytes + length + 1;
    if (to) e = log_ring_take(bytes);
    if (!e) {
        atomic_fetch_add(&dropped, 1);
        log_queue_leave();
        return;
    }
    e->level = level;
    e->fd = fd;
    e->is_shown = is_shown;
    e->stamp = stamp_bytes;
    e->length = length;
    memcpy(e->text, stamp, stamp_bytes);
    memcpy(e->text + stamp_bytes, line, length);
    e->text[bytes - 1] = '\0';
    if (!to) {
        /* A thread that was left behind in a write may hold the lock for ever. */
        struct timespec until;
        clock_gettime(CLOCK_REALTIME, &until);
        until.tv_sec += 1;
        if (pthread_mutex_timedlock(&writing, &until) == 0) {
            entry_write(e, true);
            pthread_mutex_unlock(&writing);
        } else {
            atomic_fetch_add(&dropped, 1);
        }
    } else if (!tr_background_post(to, entry_deliver, NULL, e)) {
        /* its place in the ring is free once that of a later line is */
        atomic_fetch_add(&dropped, 1);
    }
    log_queue_leave();
}

void tr_log_set_queue(tr_background_t *new_queue) {
    pthread_mutex_lock(&lock);
    queue = new_queue;
    while (queue_users > 0) pthread_cond_wait(&queue_left, &lock);
    pthread_mutex_unlock(&lock);
}

bool tr_log_flush(double sec) {
    tr_background_t *to = log_queue_take();
    const bool is_done = !to || tr_background_wait(to, sec);
    log_queue_leave();
    return is_done;
}

int64_t tr_log_dropped(void) {
    return atomic_load(&dropped);
}

void tr_log_put(int fd, const char *bytes, size_t count) {
    for (size_t part; count > 0; bytes += part, count -= part) {
        part = count < LINE_BYTES ? count : LINE_BYTES;
        log_send(TR_LOG_INFO, fd, true, bytes, part);
    }
}

/* is_shown: on the terminal, too. */
static void log_line(tr_log_level_t level, bool all_ranks, bool is_shown, const char *format,
                     va_list args) {
    char line[LINE_BYTES];
    const size_t length = log_compose(line, level, all_ranks, format, args);
    line[length] = '\n';
    log_send(level, -1, is_shown, line, length + 1);
}

void tr_log_put_files(const char *format, ...) {
    va_list args;
    va_start(args, format);
    log_line(TR_LOG_INFO, false, false, format, args);
    va_end(args);
}

void tr_log_write_files(tr_log_level_t level, const char *format, ...) {
    char buffer[DATE_BYTES + LINE_BYTES], date[32];
    va_list args;
    tr_clock_iso8601(date);
    size_t used = (size_t)snprintf(buffer, DATE_BYTES, "%s %-5s ", date, level_names[level]);
    va_start(args, format);
    const int wanted = tr_vsnprintf(buffer + used, LINE_BYTES - 1, format, args);
    va_end(args);
    used += wanted < 0 ? 0 : wanted < LINE_BYTES - 1 ? (size_t)wanted : LINE_BYTES - 2;
    buffer[used++] = '\n';
    const bool is_ours = pthread_mutex_trylock(&writing) == 0;
    for (int i = 0; i < file_count; i++) tr_log_write_bytes(files[i], buffer, used);
    if (is_ours) pthread_mutex_unlock(&writing);
}

void tr_log_write(tr_log_level_t level, bool all_ranks, const char *format, ...) {
    if (!tr_log_shows(level) || (!all_ranks && own_rank != 0)) return;
    const int saved_errno = errno;
    va_list args;
    va_start(args, format);
    log_line(level, all_ranks, true, format, args);
    va_end(args);
    errno = saved_errno;
}
