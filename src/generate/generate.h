/*
 * Continuing texts with a model of tokens. A generator has two programs of static shapes over one
 * graph: `prefill` takes a piece of one prompt, `decode` one token of each row. Keys and values of
 * earlier tokens are planned caches; every row has its own position and end, and a row whose text
 * has ended takes the next prompt. What a text becomes depends on its prompt, its index and the
 * settings alone, not on the other texts, the number of rows or the ranks.
 *
 * Not collective, except where a function says so.
 */
#ifndef GENERATE_H
#define GENERATE_H

#include "text/tokenizer.h"
#include "train/session.h"

typedef struct {
    int64_t rows;       /* texts that are continued at once, at least 1 */
    int64_t cache_rows; /* of the caches, which generators of one session share; 0: rows */
    tr_dtype_t weights; /* f32; bf16: products read copies of half the size */
    int64_t vocab_size;
} tr_generator_params_t;

/* How the next token is chosen: temperature 0 takes the best one. Else the scores are divided by
 * the temperature, the top_k best are kept (0: all), of these the fewest whose probabilities sum to
 * top_p or more (1: all), and one is drawn by Philox(seed, SAMPLE, text, position). */
typedef struct {
    double temperature, top_p;
    int64_t top_k;
    uint64_t seed;
} tr_sampling_t;
/* The token chosen from scores[count]; `order` is room for count numbers. */
int32_t tr_sample(const tr_sampling_t *sampling, uint64_t text, uint64_t position,
                  const float *scores, int64_t count, int32_t *order);

typedef enum { TR_STOP_LENGTH, TR_STOP_END_OF_TEXT, TR_STOP_CONTEXT } tr_stop_t;
const char *tr_stop_name(tr_stop_t stop); /* "length", "end of text", "end of the context" */

typedef struct {
    uint64_t index;     /* among all texts of a run; keys its random numbers */
    const char *prompt; /* borrowed */
    tr_ids_t ids;       /* the prompt's; tr_vec_free */
    tr_ids_t tokens;    /* what follows them, without the end of the text */
    tr_stop_t stop;
} tr_text_t;

typedef struct {
    double first_sec;        /* from the call to the first token of the first text */
    double decode_sec;       /* of all runs of `decode`, with the choice of tokens */
    int64_t tokens, decoded; /* all that were chosen; of these by `decode` */
} tr_generate_stats_t;

typedef struct tr_generator tr_generator_t;
/* The programs, for tr_session_params_t: build = tr_generator_build, build_self = the generator.
 * TR_ERR_CONFIG: the model is none of tokens. */
tr_status_t tr_generator_create(const tr_generator_params_t *params, tr_generator_t **out);
tr_status_t tr_generator_build(tr_session_t *s, void *generator);
/* Once, when the weights of the session are loaded. */
tr_status_t tr_generator_start(tr_generator_t *generator);
/* Continues `count` texts by up to `most` tokens each. A text ends before that at the token `end`
 * (-1: none) or at the end of the context. An empty prompt is the token `end`. TR_ERR_DATA: a
 * prompt is longer than the context. */
tr_status_t tr_generator_run(tr_generator_t *generator, tr_text_t *texts, int64_t count,
                             int64_t most, int32_t end, const tr_sampling_t *sampling,
                             tr_generate_stats_t *out_stats);
void tr_generator_destroy(tr_generator_t **generator);

#endif
