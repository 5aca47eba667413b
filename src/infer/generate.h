/*
 * Text generation with a language model. A generator has programs with static shapes in one
 * graph: `prefill` processes a piece of one prompt or the rests of several, `decode` one token of each
 * of several texts; the smallest that has enough places runs. Keys and values of earlier tokens are in planned caches.
 * Every row has its own position and end, and a text may be put into a free row between any two
 * steps. The result of a text depends only on its fields, not on other texts, its row, the number of
 * rows, threads or ranks.
 *
 * Not collective, unless a function says otherwise.
 */
#ifndef TR_INFER_GENERATE_H
#define TR_INFER_GENERATE_H

#include "text/tokenizer.h"
#include "session/session.h"

enum { TR_GENERATOR_ROWS = 4096 };
typedef struct {
    int64_t rows;       /* texts generated at the same time, from 1 to TR_GENERATOR_ROWS */
    tr_dtype_t weights; /* f32, bf16 or f16: the type that matrices and caches are held in */
    int64_t vocab_size;
    int64_t context; /* tokens that a text may have in the caches, at most model.context; 0: that */
} tr_generator_params_t;

/* Sampling of the next token. Temperature 0 takes the most probable one. Otherwise the logits are
 * divided by the temperature; the top_k largest are kept (0: all), and of these the fewest whose
 * probabilities sum to at least top_p (1: all); one is drawn with Philox(seed, SAMPLE, text,
 * position). */
typedef struct {
    double temperature, top_p;
    int64_t top_k;
    uint64_t seed;
} tr_sampling_t;
/* Samples a token from the logits scores[count], of which some may be -INFINITY: those are never
 * taken. order[count]: scratch. */
int32_t tr_sample(const tr_sampling_t *sampling, uint64_t text, uint64_t position,
                  const float *scores, int64_t count, int32_t *order);

/* NONE: the text has not ended. */
typedef enum {
    TR_STOP_NONE,
    TR_STOP_LENGTH,
    TR_STOP_END_OF_TEXT,
    TR_STOP_CONTEXT,
    TR_STOP_NOT_FINITE,
    TR_STOP_COUNT
} tr_stop_t;
const char *tr_stop_name(tr_stop_t stop); /* "length", "end of text", "end of the context" ... */

enum { TR_TEXT_LOGPROBS = 5 };
/* Natural logarithms of probabilities at temperature 1, among all tokens: of the token itself, and
 * of the best ones in descending order, of equal ones the lower id first. */
typedef struct {
    float own, best[TR_TEXT_LOGPROBS];
    int32_t id[TR_TEXT_LOGPROBS]; /* of `best`; -1: the vocabulary has no more tokens */
} tr_token_score_t;
void tr_token_score(const float *scores, int64_t count, int32_t token, tr_token_score_t *out);

/* The caller sets the first part, and frees the vectors with tr_vec_free. */
typedef struct {
    uint64_t index;     /* among all texts of a run or request; part of the random key */
    const char *prompt; /* borrowed; for the caller only */
    tr_ids_t ids;       /* tokens of the prompt; none: `end` is put there */
    tr_sampling_t sampling;
    int64_t most;  /* tokens to generate, at least 1 */
    int32_t end;   /* the token that begins a text without prompt, -1: none */
    tr_ids_t ends; /* borrowed: the tokens that end the text; none: `end` does */
    /* 0: the text ends where it fills the context. Otherwise so many of its first tokens leave the
     * context then, from 1 to the context, the others are processed again, and the text goes on; of
     * a longer prompt the last tokens are used. */
    int64_t slide;
    int logprobs; /* >= 0: fill `scores`, of which the caller wants so many best ones; -1: do not */

    tr_ids_t tokens;                 /* generated tokens, without the one that ended the text */
    TR_VEC(tr_token_score_t) scores; /* of `tokens` */
    tr_stop_t stop;
} tr_text_t;

typedef struct {
    double first_sec; /* from the call to the first token of the first text */
    double
        decode_sec; /* of all runs of `decode`, and of prefills of texts that slid; with sampling */
    const double *step_sec; /* [steps] of each of them; valid until the next call */
    int64_t steps;
    int64_t tokens, decoded; /* all generated tokens; those of decode_sec */
} tr_generate_stats_t;

typedef struct tr_generator tr_generator_t;
/* For tr_session_params_t: build = tr_generator_build, build_self = the generator. TR_ERR_CONFIG:
 * not a language model. */
tr_status_t tr_generator_create(const tr_generator_params_t *params, tr_generator_t **out);
tr_status_t tr_generator_build(tr_session_t *s, void *generator);
/* Call once, after the weights of the session are loaded. Tokens that the tokenizer (NULL: unknown)
 * does not have, such as the last ones of a vocabulary that was rounded up, are never generated. */
tr_status_t tr_generator_start(tr_generator_t *generator, const tr_tokenizer_t *tokenizer);

/* Tokens that the model sees at once. */
int64_t tr_generator_context(const tr_generator_t *generator);
/* Rows without a text. */
int64_t tr_generator_free(const tr_generator_t *generator);
/* Puts a text into a free row, which there must be; the text is borrowed until it ends or is
 * dropped. The next steps process its prompt. TR_ERR_DATA: the prompt is longer than the context and
 * the text does not slide, it is empty and `end` is -1, or it has tokens that the model does not have. */
tr_status_t tr_generator_admit(tr_generator_t *generator, tr_text_t *text);
/* Frees the row of a text that has not ended; nothing if it has no row. */
void tr_generator_drop(tr_generator_t *generator, const tr_text_t *text);
/* Called for each new token of a text, and for its end. It may drop texts, but not admit any. */
typedef void (*tr_generator_text_fn)(void *self, tr_text_t *text);
/*
 * Processes pieces of the oldest prompts that are not done, about 128 tokens, then generates one token
 * of every text whose prompt is done. A text ends, with its `stop`, after `most` tokens, at a token of `ends`, at the
 * end of the context if it does not slide, or with NOT_FINITE where a score of its next token is not finite; its row is
 * free before `each` is called. An error is of the device or of memory, and ends all texts.
 */
tr_status_t tr_generator_step(tr_generator_t *generator, tr_generator_text_fn each, void *self);
/* Generates all texts, in order of their places where there are more texts than rows; no other text
 * may have a row. TR_ERR_DATA: as tr_generator_admit, or scores that are not finite. */
tr_status_t tr_generator_run(tr_generator_t *generator, tr_text_t *texts, int64_t count,
                             tr_generate_stats_t *out_stats);
/* The program that computes the next token of so many texts. */
int tr_generator_decode(const tr_generator_t *generator, int64_t texts);
void tr_generator_destroy(tr_generator_t **generator);

#endif
