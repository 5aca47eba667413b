/*
 * Lines of the log, and what else goes to the terminal, through a background thread: nobody waits for
 * a disk that hangs, or for a terminal that is not read. For the rank that trains and logs. Not
 * collective.
 */
#ifndef TR_BASE_LOG_QUEUE_H
#define TR_BASE_LOG_QUEUE_H

#include "background.h"
#include "trainer/log.h"
#include <stdint.h>

/* From now on lines wait in this queue (borrowed). NULL: they are written by who logs them. */
void tr_log_set_queue(tr_background_t *queue);
/* Waits at most `sec` seconds until the lines so far are written. True without a queue. */
bool tr_log_flush(double sec);
/* Lines that the queue had no room for. */
int64_t tr_log_dropped(void);

/* Writes bytes to a file or terminal, in order with the lines of the log. */
void tr_log_put(int fd, const char *bytes, size_t count);
/* As TR_INFO, to the files only. */
void tr_log_put_files(const char *format, ...) __attribute__((format(printf, 1, 2)));

#endif
