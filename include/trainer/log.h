/*
 * Logging. A line has a level and an audience: TR_INFO etc. write on rank 0 only, TR_INFO_ALL etc.
 * on every rank, prefixed with "[rank N host]" if there are several. Lines go to stderr or the
 * installed sink, and to the files added with tr_log_add_file. Thread-safe. Each line is one
 * write(), and nothing is allocated. Lines over 8000 bytes are truncated.
 */
#ifndef TRAINER_LOG_H
#define TRAINER_LOG_H

#include "trainer/status.h"
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { TR_LOG_ERROR, TR_LOG_WARN, TR_LOG_INFO, TR_LOG_DEBUG } tr_log_level_t;

/*
 * Receives lines instead of stderr: the finished line without a newline, one call at a time, while a
 * run trains from a thread of the run. A sink must not log. The progress bar installs one so that lines do not break the bar; if another sink
 * is already installed, it does not draw. NULL restores stderr.
 */
typedef void (*tr_log_sink_fn)(void *self, tr_log_level_t level, const char *line);

/* Lines above `level` are dropped. The default is TR_LOG_INFO. The progress line has that level.
 * Returns the level before. */
tr_log_level_t tr_log_set_level(tr_log_level_t level);
bool tr_log_shows(tr_log_level_t level);
void tr_log_set_rank(int rank, int size, const char *host);
void tr_log_set_sink(tr_log_sink_fn sink, void *self);
bool tr_log_has_sink(void);
/* Appends all later lines of this rank to `path`, with date and level. */
tr_status_t tr_log_add_file(const char *path);
void tr_log_close_files(void);

void tr_log_write(tr_log_level_t level, bool all_ranks, const char *format, ...)
    __attribute__((format(printf, 3, 4)));
/*
 * Writes to the files only, from any rank and at any level: for text that reaches the terminal
 * another way, such as the error that ends the process. Does not wait for a line that another
 * thread is writing.
 */
void tr_log_write_files(tr_log_level_t level, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
/* Writes all bytes to a file or terminal. Write errors are ignored. */
void tr_log_write_bytes(int fd, const char *bytes, size_t count);

#define TR_WARN(...)     tr_log_write(TR_LOG_WARN, false, __VA_ARGS__)
#define TR_INFO(...)     tr_log_write(TR_LOG_INFO, false, __VA_ARGS__)
#define TR_DEBUG(...)    tr_log_write(TR_LOG_DEBUG, false, __VA_ARGS__)
#define TR_WARN_ALL(...) tr_log_write(TR_LOG_WARN, true, __VA_ARGS__)
#define TR_INFO_ALL(...) tr_log_write(TR_LOG_INFO, true, __VA_ARGS__)

#ifdef __cplusplus
}
#endif

#endif
