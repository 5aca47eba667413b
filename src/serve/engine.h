/*
 * Generates the texts of all requests with one generator, which the thread of tr_text_engine_run owns.
 * A free slot is given, between two steps, to the request that waits longest since it came or got its
 * last slot. A request whose client has left loses its slots before the next step. Not collective.
 */
#ifndef TR_SERVE_ENGINE_H
#define TR_SERVE_ENGINE_H

#include "detokenizer.h"
#include "infer/generate.h"
#include "queue.h"
#include "serve_metrics.h"

typedef struct tr_generation tr_generation_t;

/* A text of a request. The owner sets the inputs of `text`, and `out.stops`. The other members are
 * guarded by the lock of the queue until the request is done. */
typedef struct {
    tr_text_t text; /* first; the generator's, while the request is not done */
    tr_generation_t *generation;
    tr_detokenizer_t out;
    tr_ids_t tokens; /* those of `text` that are in `out` */
    TR_VEC(tr_token_score_t) scores;
    const char *finish_reason;  /* "stop", "length"; NULL: it has not ended */
    double first_sec, last_sec; /* of its first and last token, by tr_clock_sec */
} tr_choice_t;

struct tr_generation {
    tr_job_t job;         /* first */
    tr_choice_t *choices; /* [count] */
    size_t count, admitted, ended;
    bool is_streamed; /* job.changed tells of every token */
    double turn_sec;  /* when it got its last slot */
    double first_sec; /* of its first token */
};

typedef struct {
    tr_queue_t queue;
    tr_generator_t *generator; /* borrowed */
    int64_t slots, context;
    tr_serve_metrics_t *metrics; /* borrowed */
} tr_text_engine_t;

void tr_text_engine_open(tr_text_engine_t *e, int64_t waiting);
void tr_text_engine_close(tr_text_engine_t *e);
/* Serves until the queue ends. An error is one of the device: all requests have it, and the server
 * must end. */
tr_status_t tr_text_engine_run(tr_text_engine_t *e);
tr_serve_load_t tr_text_engine_load(tr_text_engine_t *e);

/* Frees what the choices own. */
void tr_generation_free(tr_generation_t *generation);

#endif
