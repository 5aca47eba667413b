/* Parts of tr_record_read. Private to src/report. */
#ifndef TR_REPORT_RECORD_INT_H
#define TR_REPORT_RECORD_INT_H

#include "record.h"
#include "base/mem.h"

/* Fills what comes from metrics.jsonl and sessions.jsonl; the batch size is known. */
tr_status_t tr_record_read_lines(tr_record_t *record, const tr_asked_t *asked);

/* -- what the lines of training say together, in their order ------------------------------------ */

enum { TR_DIGEST_RANKS = 12, TR_DIGEST_KEYS = TR_DIGEST_RANKS + 6 };

/* {0} initially, but for the batch; tr_digest_free it. */
typedef struct {
    double batch; /* samples of a step; set by the caller */
    int column[TR_DIGEST_KEYS];
    double steps, sec, samples, compute, comm, data, checkpoint;
    double window_sec;               /* since the last line with fractions of all ranks */
    double ranks_sec, over_ranks[6]; /* seconds of the windows that count */
    TR_VEC(double) step_ms;
    TR_VEC(double) p95;
    TR_VEC(tr_session_end_t) ends;
    json_t *named; /* {rank: lines that name it the slowest} */
    int slowest, named_most, named_lines;
    double host; /* of the slowest, as rows number texts */
    /* The line that waits for the next one, which tells whether it is a warm-up. */
    double line[TR_DIGEST_KEYS], last_step;
    bool has_line, begins_session, follows_warm_up;
} tr_digest_t;

/* Asks for what it needs. */
void tr_digest_ask(tr_rows_t *rows);
/* Takes a row [keys] of lines of training. TR_ERR_MEMORY. */
tr_status_t tr_digest_add(tr_digest_t *digest, const tr_rows_t *rows, const double *row);
/* Fills times (if no line has them, from the summary), spread, slowest, last_step, last_epoch and
 * session_ends of the record. */
tr_status_t tr_digest_finish(tr_digest_t *digest, tr_record_t *record);
void tr_digest_free(tr_digest_t *digest);

#endif
