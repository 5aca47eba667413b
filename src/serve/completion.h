/*
 * Requests for texts: the completions of OpenAI's API, POST /v1/completions. A completion is read
 * from the request, pushed to the engine, and then composed as one reply or streamed. Not
 * collective.
 */
#ifndef TR_SERVE_COMPLETION_H
#define TR_SERVE_COMPLETION_H

#include "engine.h"
#include "http/http.h"
#include "json_request.h"

enum { TR_STOPS = 4, TR_CHOICES = 128, TR_COMPLETION_TOKENS = 16 };

typedef struct {
    const char *name; /* all are borrowed */
    const tr_tokenizer_t *tokenizer;
    int64_t context;
} tr_text_model_t;

/* What a stream has sent of a choice. */
typedef struct {
    size_t text, tokens;
    size_t counted, characters; /* bytes of the tokens that were counted, and their characters */
    bool has_begun, has_ended;
} tr_sent_t;

typedef struct {
    tr_generation_t generation; /* first. Choice k of prompt p is choices[n * p + k] */
    const tr_text_model_t *model;
    tr_text_engine_t *engine; /* of a stream */
    json_t *request;          /* owns the stop strings */
    const char *stops[TR_STOPS];
    size_t stop_count;
    tr_sampling_t sampling;
    int64_t most, n, logprobs; /* logprobs -1: none */
    bool echo, stream, include_usage;
    char id[32];
    int64_t created; /* Unix time */
    tr_sent_t *sent; /* [generation.count], of a stream */
    bool has_asked;  /* of a stream: it was written for job.is_asked */
} tr_completion_t;

/*
 * Reads a request; steals its reference. A missing seed is drawn. TR_ERR_DATA: a field is wrong;
 * TR_ERR_NOINPUT: another model; TR_ERR_MEMORY. Call tr_completion_free also after an error.
 */
tr_status_t tr_completion_read(const tr_text_model_t *model, json_t *request, tr_completion_t *out);
/* Makes the choices of `prompt`: a string, a list of strings, a list of token ids, or a list of
 * those. For completions whose other members are set. TR_ERR_DATA also: longer than the context. */
tr_status_t tr_completion_set_prompts(tr_completion_t *c, const char *field, const json_t *prompt);
/* The text of the prompt of a choice. New reference. */
json_t *tr_completion_prompt_text(const tr_completion_t *c, const tr_choice_t *choice);
/* The same with `count` bytes of the text behind it. New reference. */
json_t *tr_completion_with_prompt(const tr_completion_t *c, const tr_choice_t *choice,
                                  const char *bytes, size_t count);
void tr_completion_free(tr_completion_t *c);
/* A seed that is exact in every JSON reader: below 2^53. */
uint64_t tr_draw_seed(void);

/* The whole reply, of a completion that is done. New reference; NULL: no memory. */
json_t *tr_completion_compose(const tr_completion_t *c);
/* Streams the reply as server-sent events. Takes the completion, allocated by tr_alloc, which was
 * pushed to c->engine; `self` of the stream. */
tr_http_stream_t tr_completion_stream(tr_completion_t *c);

/* {"error": {"message": ..., "type": ..., "param": null, "code": STATUS}}. New reference. */
json_t *tr_error_json(int status, const char *message);

#endif
