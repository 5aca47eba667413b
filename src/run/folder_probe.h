/*
 * Whether a folder can hold a run: writing, fsync, rename and locks are tried with a hidden file,
 * which is removed again. For `trainer doctor`. Not collective.
 */
#ifndef TRAINER_RUN_FOLDER_PROBE_H
#define TRAINER_RUN_FOLDER_PROBE_H

#include "trainer/status.h"
#include <stdbool.h>
#include <stdint.h>

typedef enum {
    TR_LOCK_WORKS,
    TR_LOCK_UNSUPPORTED, /* the file system has no locks */
    TR_LOCK_IGNORED,     /* two holders of the same lock at a time */
    TR_LOCK_UNSEEN       /* the file cannot be opened from here */
} tr_lock_state_t;

typedef struct {
    char folder[4096];  /* absolute; the nearest parent where the folder is not there yet */
    char file[4096];    /* the hidden file, locked while the probe is open; "" where it is closed */
    int fd;             /* -1 where it is closed */
    double sync_sec;    /* that 1 MiB took: write, fsync, rename, fsync of the folder */
    int64_t free_bytes; /* INT64_MAX: unknown */
    tr_lock_state_t lock; /* between two open files of this process */
} tr_folder_probe_t;

/* TR_ERR_IO, TR_ERR_PERMISSION, TR_ERR_NOINPUT: what failed, and where. *out is filled as far as
 * the probe came; close it in any case. */
tr_status_t tr_folder_probe_open(const char *dir, tr_folder_probe_t *out);
void tr_folder_probe_close(tr_folder_probe_t *probe);
/* Tries the lock that another process holds on `file`. */
tr_lock_state_t tr_folder_probe_try(const char *file);

#endif
