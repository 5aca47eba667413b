/*
 * Status codes and the error record.
 *
 * Functions that can fail return tr_status_t. The function that detects an error records one
 * message (what was expected, what was found, what to do) with TR_FAIL. Callers return the code
 * with TR_TRY, which adds a frame to the trace. The library never prints the record. Each thread has one
 * fixed buffer for its record: recording never allocates. The status values are also the exit
 * codes.
 */
#ifndef TRAINER_STATUS_H
#define TRAINER_STATUS_H

#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
    TR_OK = 0,
    TR_ERR_USAGE = 2,       /* unknown command or option */
    TR_ERR_DATA = 65,       /* invalid content of a file: data set, checkpoint */
    TR_ERR_NOINPUT = 66,    /* a named file, folder or data set is missing */
    TR_ERR_INTERNAL = 70,   /* a bug in this program or a library */
    TR_ERR_MEMORY = 71,     /* not enough memory */
    TR_ERR_IO = 74,         /* a read, write, fsync or rename failed */
    TR_ERR_RETRY = 75,      /* restart the run: stopped after a checkpoint, peer lost, or hang */
    TR_ERR_PERMISSION = 77, /* no permission */
    TR_ERR_CONFIG = 78,     /* the configuration cannot be run: key, value, shape, device */
    /* do not requeue: a restart cannot succeed (loss not finite) */
    TR_ERR_STOP = 93
} tr_status_t;

/* Records a printf-style message for this thread with file, line and function. Returns `code`. */
#define TR_FAIL(code, ...) tr_error_record((code), __FILE__, __LINE__, __func__, __VA_ARGS__)

/* Returns from the calling function if `expr` fails. If there is something to free, use
 * TR_TRY_GOTO. */
#define TR_TRY(expr)                                                                               \
    do {                                                                                           \
        tr_status_t tr_try_ = (expr);                                                              \
        if (tr_try_ != TR_OK) return tr_error_frame(tr_try_, __FILE__, __LINE__, __func__);        \
    } while (0)

/* Sets the local variable `status` and jumps to `label` if `expr` fails. */
#define TR_TRY_GOTO(expr, label)                                                                   \
    do {                                                                                           \
        status = (expr);                                                                           \
        if (status != TR_OK) {                                                                     \
            tr_error_frame(status, __FILE__, __LINE__, __func__);                                  \
            goto label;                                                                            \
        }                                                                                          \
    } while (0)

#define TR_ERROR_MESSAGE_BYTES 4096
#define TR_ERROR_TRACE_BYTES   2048

/*
 * Who reports the error to the user. OPEN: not agreed on yet, other ranks may have the same error;
 * MINE: this rank, for all ranks that have it; PEER: another rank; LOGGED: nobody, it is already in
 * the log.
 */
typedef enum { TR_ORIGIN_OPEN, TR_ORIGIN_MINE, TR_ORIGIN_PEER, TR_ORIGIN_LOGGED } tr_error_origin_t;

/* One recorded error. Plain data: may be copied to another thread or sent to another rank. */
typedef struct {
    tr_status_t code;
    tr_error_origin_t origin;
    char fault[48]; /* a fault of hardware, by its name in the library that reports it; "": none */
    char node[64];  /* the node that has it, which a restart leaves out; "": unknown, another's */
    char message[TR_ERROR_MESSAGE_BYTES]; /* "" if nothing is recorded */
    /* "func (file:line)", one frame per line, innermost first */
    char trace[TR_ERROR_TRACE_BYTES];
} tr_error_t;

tr_status_t tr_error_record(tr_status_t code, const char *file, int line, const char *func,
                            const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Adds a frame to the trace. If `code` has no record, creates one whose message says so. */
tr_status_t tr_error_frame(tr_status_t code, const char *file, int line, const char *func);

/* This thread's record; never NULL, valid until the thread's next error. */
const tr_error_t *tr_error_last(void);
/* Makes `error`, received from another thread or rank, this thread's record. Returns its code. */
tr_status_t tr_error_set(const tr_error_t *error);
void tr_error_clear(void);
/* Short name of a code ("config", "io", ...); never NULL. */
const char *tr_status_name(tr_status_t code);
/* The status for the errno of a file operation: missing, no permission, no memory, else I/O. */
tr_status_t tr_status_of_errno(int error);

#ifdef __cplusplus
}
#endif

#endif
