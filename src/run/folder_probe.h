/*
 * Tests whether a folder can hold a run: write, fsync, rename and lock, with a hidden file that is
 * removed afterwards. For `trainer doctor`. Not collective.
 */
#ifndef TR_RUN_FOLDER_PROBE_H
#define TR_RUN_FOLDER_PROBE_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum {
    TR_LOCK_WORKS,
    TR_LOCK_UNSUPPORTED, /* the file system has no locks */
    TR_LOCK_IGNORED,     /* two processes can hold the same lock */
    TR_LOCK_UNSEEN       /* this rank cannot open the file */
} tr_lock_state_t;

typedef struct {
    char folder[4096];    /* absolute; the nearest existing parent if the folder does not exist */
    char file[4096];      /* the hidden file, locked while the probe is open; "" if closed */
    int fd;               /* -1 if closed */
    double sync_sec;      /* write, fsync, rename of 1 MiB and fsync of the folder */
    int64_t free_bytes;   /* INT64_MAX: unknown */
    tr_lock_state_t lock; /* between two open files of this process */
} tr_folder_probe_t;

/* TR_ERR_IO, TR_ERR_PERMISSION or TR_ERR_NOINPUT with the operation and path that failed. *out is
 * then partly filled; close it in any case. */
tr_status_t tr_folder_probe_open(const char *dir, tr_folder_probe_t *out);
void tr_folder_probe_close(tr_folder_probe_t *probe);
/* Tries the lock that another process holds on `file`. */
tr_lock_state_t tr_folder_probe_try(const char *file);

#endif
