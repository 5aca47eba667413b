/*
 * Files that are there only while the process trains: they are removed at its end, also where the
 * watchdog ends it. Process-wide. Not collective.
 */
#ifndef TR_RUN_WHILE_RUNNING_H
#define TR_RUN_WHILE_RUNNING_H

/* From now on `path` is removed by tr_while_running_end. At most eight files of at most 4,095 bytes:
 * what is more stays. */
void tr_while_running_add(const char *path);
/* Removes the file at once. */
void tr_while_running_remove(const char *path);
/* Removes all of them. Does not allocate or lock, so the watchdog may call it. */
void tr_while_running_end(void);

#endif
