/*
 * Status codes and the error record.
 *
 * Everything that can fail returns tr_status_t. The first site that decides on an error records one
 * message (what was expected, what was found, what to do) with TR_FAIL; callers hand the code up
 * with TR_TRY, which adds a frame to the trace. Only src/cmd prints the record. The record is one
 * fixed buffer per thread: recording never allocates. The values double as the process's exit
 * codes.
 */
#ifndef TRAINER_STATUS_H
#define TRAINER_STATUS_H

#include <stddef.h>

typedef enum {
    TR_OK = 0,
    TR_ERR_USAGE = 2,       /* unknown command or option */
    TR_ERR_DATA = 65,       /* a file's content is bad: data set, checkpoint */
    TR_ERR_NOINPUT = 66,    /* a named file, folder or data set is missing */
    TR_ERR_INTERNAL = 70,   /* a bug of ours, or of a library */
    TR_ERR_MEMORY = 71,     /* not enough memory */
    TR_ERR_IO = 74,         /* a read, write, fsync or rename failed */
    TR_ERR_RETRY = 75,      /* stopped with a checkpoint saved, peer lost, hang: start me again */
    TR_ERR_PERMISSION = 77, /* no permission */
    TR_ERR_CONFIG = 78,     /* the configuration cannot be run: key, value, shape, device */
    /* do not requeue: the run cannot succeed by being started again (loss not finite) */
    TR_ERR_STOP = 93
} tr_status_t;

/*
 * Records `message` (printf format) for this thread with file, line and function, and returns
 * `code`.
 */
#define TR_FAIL(code, ...) tr_error_record((code), __FILE__, __LINE__, __func__, __VA_ARGS__)

/*
 * Returns from the calling function if `expr` fails. Only where nothing is held; else TR_TRY_GOTO.
 */
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
 * Who reports it to the user: not agreed on, so that other ranks may have the same error; one rank
 * of all that have it; one of its peers; or nobody, because the log already has it.
 */
typedef enum { TR_ORIGIN_OPEN, TR_ORIGIN_MINE, TR_ORIGIN_PEER, TR_ORIGIN_LOGGED } tr_error_origin_t;

/* One recorded error. Plain data: may be copied to another thread or sent to another rank. */
typedef struct {
    tr_status_t code;
    tr_error_origin_t origin;
    char message[TR_ERROR_MESSAGE_BYTES]; /* "" where nothing is recorded */
    /* "func (file:line)" per frame, one a line, innermost first */
    char trace[TR_ERROR_TRACE_BYTES];
} tr_error_t;

tr_status_t tr_error_record(tr_status_t code, const char *file, int line, const char *func,
                            const char *format, ...) __attribute__((format(printf, 5, 6)));
/* Where `code` came without a record of its own, the message says that. */
tr_status_t tr_error_frame(tr_status_t code, const char *file, int line, const char *func);

/* This thread's record; never NULL, valid until the thread's next error. */
const tr_error_t *tr_error_last(void);
/*
 * Makes `error` this thread's record (an error handed over by a helper thread or a peer) and
 * returns its code.
 */
tr_status_t tr_error_set(const tr_error_t *error);
void tr_error_clear(void);
/* Short name of a code ("config", "io", ...); never NULL. */
const char *tr_status_name(tr_status_t code);
/* The code that fits an errno of a file operation: missing, no permission, no memory, else io. */
tr_status_t tr_status_of_errno(int error);

#endif
