/*
 * Log lines. A line has a level and an audience: TR_INFO and the like write on rank 0 only,
 * TR_INFO_ALL and the like on every rank, with "[rank N host]" before it where there are several.
 * They go to stderr, or to the sink in its place, and to files added with tr_log_add_file.
 * Thread-safe; a line is written with one write(). Nothing is allocated. Lines over 8000 bytes are
 * cut.
 */
#ifndef TRAINER_LOG_H
#define TRAINER_LOG_H

#include "trainer/status.h"
#include <stdbool.h>

typedef enum { TR_LOG_ERROR, TR_LOG_WARN, TR_LOG_INFO, TR_LOG_DEBUG } tr_log_level_t;

/*
 * What a line is written to besides the files: called with the finished line (no newline), one call
 * at a time; must not log. The progress bar installs one, so that a line never lands in the middle
 * of the bar; where there is one already it does not draw. NULL restores stderr.
 */
typedef void (*tr_log_sink_fn)(void *self, tr_log_level_t level, const char *line);

/*
 * Lines above `level` are not written; the progress line counts as TR_LOG_INFO, which is where it
 * begins.
 */
void tr_log_set_level(tr_log_level_t level);
bool tr_log_shows(tr_log_level_t level);
void tr_log_set_rank(int rank, int size, const char *host);
void tr_log_set_sink(tr_log_sink_fn sink, void *self);
bool tr_log_has_sink(void);
/* Appends every later line of this rank's audience to `path`, with date and level. */
tr_status_t tr_log_add_file(const char *path);
void tr_log_close_files(void);

void tr_log_write(tr_log_level_t level, bool all_ranks, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/*
 * To the files alone, of any rank and at any level: what stands on the terminal by other means,
 * such as the error that ends the process. Does not wait for a line that another thread is writing.
 */
void tr_log_write_files(tr_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/*
 * All of it, to a file or terminal. What cannot be written is lost: there is nowhere left to say
 * so.
 */
void tr_log_write_bytes(int fd, const char *bytes, size_t count);

#define TR_WARN(...)     tr_log_write(TR_LOG_WARN, false, __VA_ARGS__)
#define TR_INFO(...)     tr_log_write(TR_LOG_INFO, false, __VA_ARGS__)
#define TR_DEBUG(...)    tr_log_write(TR_LOG_DEBUG, false, __VA_ARGS__)
#define TR_WARN_ALL(...) tr_log_write(TR_LOG_WARN, true, __VA_ARGS__)
#define TR_INFO_ALL(...) tr_log_write(TR_LOG_INFO, true, __VA_ARGS__)

#endif
