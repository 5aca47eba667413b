/* Text generation: the programs prefill and decode, and rows that end by themselves. */
#include "generate.h"
#include "base/clock.h"
#include "base/int_math.h"
#include "trainer/log.h"

#include <omp.h>
#include <float.h>
#include <math.h>
#include <string.h>

/* What prefill processes at once: a long piece of one prompt, or, of one prompt or several, the rest if
 * it is short. The first two read the weights in about the same time. */
enum { LONG_PIECE, SHORT_PIECE, SHORT_PIECES, PREFILLS };
enum { LONGEST = 64, SHORT = 16, TOGETHER = LONGEST / SHORT };
/* Tokens of prompts in a step: what the other texts wait for */
enum { PROMPT_TOKENS = 2 * LONGEST };
enum { PARALLEL_SCORES = 1 << 16 }; /* of a step: for fewer, threads take longer to start */
/* Programs for 1, 2, 4, ... texts, and the last one for all rows. */
enum { DECODES = 13 };
_Static_assert(1 << (DECODES - 1) == TR_GENERATOR_ROWS, "the last program may have all rows");

/* A program and its inputs: `samples` texts with `steps` tokens each. */
typedef struct {
    int index;
    int64_t samples, steps;
    tr_tensor_t id, position, place, last, logits;
} program_t;

/* A row of the caches and its text; NULL: none. */
typedef struct {
    tr_text_t *text;
    uint64_t order; /* of admission */
    int64_t start;  /* tokens at the beginning of the text that the model no longer sees */
    int64_t length; /* tokens in the caches */
    int64_t prompt; /* tokens that prefill puts into the caches */
} row_t;

/* What follows from the scores of a row. */
typedef struct {
    bool finite;
    int32_t token;
    tr_token_score_t score; /* where the text wants logprobs */
} choice_t;

struct tr_generator {
    tr_generator_params_t params;
    tr_session_t *s;
    const tr_model_t *model;
    int64_t context;
    program_t prefill[PREFILLS], decode[DECODES];
    row_t *row;       /* [params.rows] */
    row_t **ready;    /* [params.rows] those that `decode` continues */
    float *logits;    /* (rows, vocab_size) */
    int32_t *input;   /* host values of an input */
    choice_t *choice; /* [params.rows] of `ready` */
    int threads;
    int32_t *order;   /* (threads, vocab_size) for tr_sample */
    tr_ids_t no_text; /* tokens of the model that the tokenizer does not have: never generated */
    float *with_text; /* (threads, vocab_size) the scores without theirs; NULL: there are none */
    uint64_t admitted;
    /* of tr_generator_run */
    tr_generate_stats_t stats;
    TR_VEC(double) step_sec;
};

const char *tr_stop_name(tr_stop_t stop) {
    static const char *const names[] = {"none", "length", "end of text", "end of the context",
                                        "not finite"};
    return names[stop];
}

/* -- programs ---------------------------------------------------------------------------------- */

static tr_status_t generator_input(tr_graph_t *g, const char *program, const char *name,
                                   const tr_shape_t *shape, tr_tensor_t *out) {
    tr_str_t full = {0};
    tr_str_printf(&full, "%s.%s", program, name);
    const tr_status_t status =
        full.status ? full.status : tr_input(g, full.text, TR_I32, shape, out);
    tr_str_free(&full);
    return status;
}

static tr_status_t generator_build(tr_generator_t *n, const char *name, program_t *p) {
    tr_graph_t *g = n->s->g;
    const tr_shape_t tokens = TR_SHAPE(p->samples, p->steps);
    TR_TRY(tr_program_begin(g, name, TR_EVAL, &p->index));
    TR_TRY(generator_input(g, name, "id", &tokens, &p->id));
    TR_TRY(generator_input(g, name, "position", &tokens, &p->position));
    TR_TRY(generator_input(g, name, "place", &TR_SHAPE(p->samples, 3), &p->place));
    TR_TRY(generator_input(g, name, "last", &TR_SHAPE(p->samples, 1), &p->last));
    const tr_model_texts_t texts = {.id = p->id,
                                    .position = p->position,
                                    .place = p->place,
                                    .last = p->last,
                                    .rows = n->params.rows,
                                    .context = n->context,
                                    .vocab_size = n->params.vocab_size,
                                    .weights = n->params.weights};
    TR_TRY(n->model->generate(g, n->s->config, &texts, &p->logits));
    TR_TRY(tr_keep(g, p->logits));
    return tr_program_end(g);
}

tr_status_t tr_generator_build(tr_session_t *s, void *generator) {
    tr_generator_t *n = generator;
    int64_t vocab_size = 0;
    char name[32];
    n->s = s;
    TR_TRY(tr_model_find(s->model.type, &n->model));
    if (!n->model->generate || !n->model->tokens)
        return TR_FAIL(TR_ERR_CONFIG, "generate needs a model of type gpt; model.type is %s",
                       s->model.type);
    n->model->tokens(s->config, &n->context, &vocab_size);
    if (n->params.context > 0) n->context = min64(n->context, n->params.context);
    if (vocab_size > 0) n->params.vocab_size = vocab_size;
    n->prefill[LONG_PIECE] = (program_t){.samples = 1, .steps = min64(LONGEST, n->context)};
    n->prefill[SHORT_PIECE] = (program_t){.samples = 1, .steps = min64(SHORT, n->context)};
    n->prefill[SHORT_PIECES] = n->prefill[SHORT_PIECE];
    n->prefill[SHORT_PIECES].samples = min64(TOGETHER, n->params.rows);
    for (int i = 0; i < (n->params.rows > 1 ? PREFILLS : SHORT_PIECES); i++) {
        const program_t *p = &n->prefill[i];
        tr_snprintf(name, sizeof name, "prefill%lldx%lld", (long long)p->samples,
                    (long long)p->steps);
        TR_TRY(generator_build(n, name, &n->prefill[i]));
    }
    for (int64_t i = 0, rows = 0; rows < n->params.rows; i++) {
        rows = min64((int64_t)1 << i, n->params.rows);
        n->decode[i] = (program_t){.samples = rows, .steps = 1};
        tr_snprintf(name, sizeof name, "decode%lld", (long long)rows);
        TR_TRY(generator_build(n, name, &n->decode[i]));
    }
    return TR_OK;
}

/* -- life -------------------------------------------------------------------------------------- */

tr_status_t tr_generator_create(const tr_generator_params_t *params, tr_generator_t **out) {
    TR_TRY(tr_alloc(sizeof **out, "generator", out));
    (*out)->params = *params;
    return TR_OK;
}

tr_status_t tr_generator_start(tr_generator_t *n, const tr_tokenizer_t *tokenizer) {
    const int64_t rows = n->params.rows, inputs = rows > LONGEST ? rows : LONGEST;
    const size_t scores = (size_t)n->params.vocab_size;
    TR_TRY(tr_alloc((size_t)rows * sizeof *n->row, "rows", &n->row));
    TR_TRY(tr_alloc((size_t)rows * sizeof *n->ready, "rows", &n->ready));
    TR_TRY(tr_alloc((size_t)rows * scores * sizeof *n->logits, "scores", &n->logits));
    TR_TRY(tr_alloc(3 * (size_t)inputs * sizeof *n->input, "inputs", &n->input));
    n->threads = rows < omp_get_max_threads() ? (int)rows : omp_get_max_threads();
    TR_TRY(tr_alloc((size_t)rows * sizeof *n->choice, "rows", &n->choice));
    for (int32_t id = 0; tokenizer && id < (int32_t)scores; id++)
        if (!tr_tokenizer_has(tokenizer, id)) TR_TRY(tr_vec_push(&n->no_text, id));
    if (n->no_text.count > 0)
        TR_TRY(tr_alloc((size_t)n->threads * scores * sizeof *n->with_text, "scores of tokens",
                        &n->with_text));
    return tr_alloc((size_t)n->threads * scores * sizeof *n->order, "tokens by score", &n->order);
}

static const program_t *generator_smallest(const tr_generator_t *n, int64_t texts) {
    const program_t *p = n->decode;
    while (p->samples < texts) p++;
    return p;
}

int64_t tr_generator_context(const tr_generator_t *n) {
    return n->context;
}

int tr_generator_decode(const tr_generator_t *n, int64_t texts) {
    return generator_smallest(n, texts)->index;
}

void tr_generator_destroy(tr_generator_t **generator) {
    tr_generator_t *n = *generator;
    if (!n) return;
    tr_free(&n->row);
    tr_free(&n->ready);
    tr_free(&n->logits);
    tr_free(&n->input);
    tr_free(&n->choice);
    tr_free(&n->order);
    tr_vec_free(&n->no_text);
    tr_free(&n->with_text);
    tr_vec_free(&n->step_sec);
    tr_free(generator);
}

/* -- running ----------------------------------------------------------------------------------- */

static tr_status_t generator_run(tr_generator_t *n, const program_t *p) {
    TR_TRY(tr_program_run(n->s->g, p->index, NULL));
    return tr_tensor_read(n->s->g, p->logits, n->logits);
}

static bool generator_are_finite(const float *scores, int64_t count) {
    int wrong = 0;
#pragma omp simd reduction(| : wrong)
    for (int64_t i = 0; i < count; i++) wrong |= !(fabsf(scores[i]) <= FLT_MAX);
    return !wrong;
}

/* thread: whose scratch memory is used. */
static choice_t row_choose(const tr_generator_t *n, const row_t *row, const float *scores,
                           int thread) {
    const tr_text_t *text = row->text;
    const int64_t count = n->params.vocab_size;
    const uint64_t position = (uint64_t)(row->start + row->length);
    const float *drawn = scores;
    choice_t c = {.finite = generator_are_finite(scores, count)};
    if (!c.finite) return c;
    if (n->with_text) {
        float *with_text = n->with_text + thread * count;
        memcpy(with_text, scores, (size_t)count * sizeof *scores);
        for (size_t i = 0; i < n->no_text.count; i++) with_text[n->no_text.data[i]] = -INFINITY;
        drawn = with_text;
    }
    c.token =
        tr_sample(&text->sampling, text->index, position, drawn, count, n->order + thread * count);
    if (text->logprobs >= 0) tr_token_score(scores, count, c.token, &c.score);
    return c;
}

static bool text_ends_at(const tr_text_t *text, int32_t token) {
    bool ends = text->ends.count == 0 && token == text->end;
    for (size_t i = 0; i < text->ends.count; i++) ends |= token == text->ends.data[i];
    return ends;
}

/* Adds the next token to the text of a row, or ends it. */
static tr_status_t row_take(tr_generator_t *n, row_t *row, const choice_t *c) {
    tr_text_t *text = row->text;
    if (!c->finite) return text->stop = TR_STOP_NOT_FINITE, TR_OK;
    n->stats.tokens++;
    if (text_ends_at(text, c->token)) return text->stop = TR_STOP_END_OF_TEXT, TR_OK;
    TR_TRY(tr_vec_push(&text->tokens, c->token));
    if (text->logprobs >= 0) TR_TRY(tr_vec_push(&text->scores, c->score));
    if ((int64_t)text->tokens.count >= text->most)
        text->stop = TR_STOP_LENGTH;
    else if (row->length >= n->context && text->slide == 0)
        text->stop = TR_STOP_CONTEXT;
    if (text->stop != TR_STOP_NONE || row->length < n->context) return TR_OK;
    /* the context is full: its first tokens leave, and the others are processed again, from 0 on */
    row->start += text->slide;
    row->prompt = row->length + 1 - text->slide;
    row->length = 0;
    return TR_OK;
}

static tr_status_t row_continue(tr_generator_t *n, row_t *row, const choice_t *choice,
                                tr_generator_text_fn each, void *self) {
    tr_text_t *text = row->text;
    TR_TRY(row_take(n, row, choice));
    if (text->stop != TR_STOP_NONE) row->text = NULL;
    each(self, text);
    return TR_OK;
}

static bool row_has_prompt(const row_t *row) {
    return row->text && row->length < row->prompt;
}

/* The token of the prompt, or the generated one, at a position of the context. */
static int32_t row_token(const row_t *row, int64_t position) {
    const tr_text_t *text = row->text;
    const size_t at = (size_t)(row->start + position);
    return at < text->ids.count ? text->ids.data[at] : text->tokens.data[at - text->ids.count];
}

/* -- prefill ----------------------------------------------------------------------------------- */

/* The row with the oldest prompt that is not done, of those admitted from `from` on of which at most
 * `most` tokens are left; NULL: none. */
static row_t *generator_oldest(const tr_generator_t *n, uint64_t from, int64_t most) {
    row_t *oldest = NULL;
    for (row_t *row = n->row; row < n->row + n->params.rows; row++)
        if (row_has_prompt(row) && row->order >= from && row->prompt - row->length <= most &&
            (!oldest || row->order < oldest->order))
            oldest = row;
    return oldest;
}

/* Whose prompts are next: the oldest, and if little of it is left, others of which little is left.
 * Returns their number. */
static int64_t generator_next_prompts(const tr_generator_t *n, row_t *out[TOGETHER]) {
    const program_t *p = &n->prefill[SHORT_PIECES];
    row_t *row = generator_oldest(n, 0, INT64_MAX);
    int64_t count = 0;
    while (row && count < p->samples) {
        out[count++] = row;
        const bool is_short = row->prompt - row->length <= p->steps;
        row = is_short ? generator_oldest(n, row->order + 1, p->steps) : NULL;
    }
    return count;
}

/* The tokens of a piece that are left in the prompt of place `i`; 0: it has no text. */
static int64_t generator_piece_tokens(const program_t *p, row_t *const *rows, int64_t count,
                                      int64_t i) {
    return i < count ? min64(rows[i]->prompt - rows[i]->length, p->steps) : 0;
}

/* What is behind a piece, and a place without a text, are arbitrary valid values. */
static tr_status_t generator_write_pieces(tr_generator_t *n, const program_t *p, row_t *const *rows,
                                          int64_t count) {
    tr_graph_t *g = n->s->g;
    int32_t place[3 * TOGETHER] = {0}, last[TOGETHER];
    memset(n->input, 0, (size_t)(p->samples * p->steps) * sizeof *n->input);
    for (int64_t i = 0; i < p->samples; i++)
        for (int64_t t = 0; t < generator_piece_tokens(p, rows, count, i); t++)
            n->input[i * p->steps + t] = row_token(rows[i], rows[i]->length + t);
    TR_TRY(tr_tensor_write(g, p->id, n->input));
    for (int64_t i = 0; i < p->samples; i++) {
        const int64_t tokens = generator_piece_tokens(p, rows, count, i);
        for (int64_t t = 0; t < p->steps; t++)
            n->input[i * p->steps + t] = t < tokens ? (int32_t)(rows[i]->length + t) : 0;
        last[i] = (int32_t)(i * p->steps + (tokens > 0 ? tokens - 1 : 0));
        if (tokens == 0) continue;
        place[3 * i] = (int32_t)(rows[i] - n->row);
        place[3 * i + 1] = (int32_t)rows[i]->length;
        place[3 * i + 2] = (int32_t)tokens;
    }
    TR_TRY(tr_tensor_write(g, p->position, n->input));
    TR_TRY(tr_tensor_write(g, p->place, place));
    return tr_tensor_write(g, p->last, last);
}

/* The next piece of these prompts, or of texts that slid; after the last one, a token. Several have
 * short rests. Pieces depend on row->prompt alone. *out_tokens: of the program. */
static tr_status_t generator_prefill(tr_generator_t *n, row_t *const *rows, int64_t count,
                                     tr_generator_text_fn each, void *self, int64_t *out_tokens) {
    const bool is_short = rows[0]->prompt - rows[0]->length <= n->prefill[SHORT_PIECE].steps;
    const program_t *p = &n->prefill[count > 1  ? SHORT_PIECES
                                     : is_short ? SHORT_PIECE
                                                : LONG_PIECE];
    *out_tokens = p->samples * p->steps;
    TR_TRY(generator_write_pieces(n, p, rows, count));
    TR_TRY(generator_run(n, p));
    for (int64_t i = 0; i < count; i++) {
        row_t *row = rows[i];
        row->length += generator_piece_tokens(p, rows, count, i);
        if (!row->text || row_has_prompt(row))
            continue; /* dropped by `each`, or not the last piece */
        const choice_t choice = row_choose(n, row, n->logits + i * n->params.vocab_size, 0);
        TR_TRY(row_continue(n, row, &choice, each, self));
    }
    return TR_OK;
}

/* -- decode ------------------------------------------------------------------------------------ */

/* A place without a text adds nothing to the caches; the rest of its inputs are arbitrary valid
 * values. */
static tr_status_t generator_write_rows(tr_generator_t *n, const program_t *p, int64_t count) {
    tr_graph_t *g = n->s->g;
    for (int64_t i = 0; i < p->samples; i++)
        n->input[i] = i < count ? row_token(n->ready[i], n->ready[i]->length) : 0;
    TR_TRY(tr_tensor_write(g, p->id, n->input));
    for (int64_t i = 0; i < p->samples; i++)
        n->input[i] = i < count ? (int32_t)n->ready[i]->length : 0;
    TR_TRY(tr_tensor_write(g, p->position, n->input));
    for (int64_t i = 0; i < p->samples; i++) {
        n->input[3 * i] = i < count ? (int32_t)(n->ready[i] - n->row) : 0;
        n->input[3 * i + 1] = i < count ? (int32_t)n->ready[i]->length : 0;
        n->input[3 * i + 2] = i < count;
    }
    TR_TRY(tr_tensor_write(g, p->place, n->input));
    for (int64_t i = 0; i < p->samples; i++) n->input[i] = (int32_t)i;
    return tr_tensor_write(g, p->last, n->input);
}

/* One token of every text whose prompt is done. */
static tr_status_t generator_decode(tr_generator_t *n, tr_generator_text_fn each, void *self) {
    int64_t count = 0;
    for (row_t *row = n->row; row < n->row + n->params.rows; row++)
        if (row->text && !row_has_prompt(row)) n->ready[count++] = row;
    if (count == 0) return TR_OK;
    const program_t *p = generator_smallest(n, count);
    TR_TRY(generator_write_rows(n, p, count));
    TR_TRY(generator_run(n, p));
    const int64_t vocab = n->params.vocab_size;
#pragma omp parallel for num_threads(n->threads)                                                   \
    schedule(dynamic) if (count > 1 && count * vocab >= PARALLEL_SCORES)
    for (int64_t i = 0; i < count; i++) {
        n->ready[i]->length++;
        n->choice[i] = row_choose(n, n->ready[i], n->logits + i * vocab, omp_get_thread_num());
    }
    for (int64_t i = 0; i < count; i++)
        if (n->ready[i]->text) /* not dropped by `each` */
            TR_TRY(row_continue(n, n->ready[i], &n->choice[i], each, self));
    return TR_OK;
}

/* -- texts ------------------------------------------------------------------------------------- */

int64_t tr_generator_free(const tr_generator_t *n) {
    int64_t count = 0;
    for (int64_t i = 0; i < n->params.rows; i++) count += !n->row[i].text;
    return count;
}

tr_status_t tr_generator_admit(tr_generator_t *n, tr_text_t *text) {
    const unsigned long long number = text->index + 1;
    row_t *row = n->row;
    if (text->ids.count == 0 && (text->end < 0 || text->end >= n->params.vocab_size))
        return TR_FAIL(TR_ERR_DATA,
                       "prompt %llu is empty, and the tokenizer has no end of text to begin with: "
                       "give a prompt",
                       number);
    if (text->ids.count == 0) TR_TRY(tr_vec_push(&text->ids, text->end));
    for (size_t i = 0; i < text->ids.count; i++)
        if (text->ids.data[i] < 0 || text->ids.data[i] >= n->params.vocab_size)
            return TR_FAIL(TR_ERR_DATA,
                           "prompt %llu has the token %d, but the model has tokens from 0 to %lld "
                           "(model.vocab_size): its tokenizer belongs to another model",
                           number, (int)text->ids.data[i], (long long)n->params.vocab_size - 1);
    if (text->slide == 0 && (int64_t)text->ids.count > n->context)
        return TR_FAIL(TR_ERR_DATA,
                       "prompt %llu has %zu tokens, but the context of the model has %lld "
                       "(model.context): shorten the prompt",
                       number, text->ids.count, (long long)n->context);
    while (row < n->row + n->params.rows && row->text) row++;
    if (row == n->row + n->params.rows)
        return TR_FAIL(TR_ERR_INTERNAL, "a text is admitted where no row is free");
    const int64_t prompt = min64((int64_t)text->ids.count, n->context);
    text->stop = TR_STOP_NONE;
    *row = (row_t){.text = text,
                   .order = n->admitted++,
                   .start = (int64_t)text->ids.count - prompt,
                   .prompt = prompt};
    return TR_OK;
}

void tr_generator_drop(tr_generator_t *n, const tr_text_t *text) {
    for (int64_t i = 0; i < n->params.rows; i++)
        if (n->row[i].text == text) n->row[i].text = NULL;
}

tr_status_t tr_generator_step(tr_generator_t *n, tr_generator_text_fn each, void *self) {
    row_t *rows[TOGETHER];
    int64_t count, tokens;
    for (int64_t left = PROMPT_TOKENS; left > 0 && (count = generator_next_prompts(n, rows)) > 0;
         left -= tokens)
        TR_TRY(generator_prefill(n, rows, count, each, self, &tokens));
    return generator_decode(n, each, self);
}

static void generator_note_failed(void *self, tr_text_t *text) {
    tr_text_t **failed = self;
    if (text->stop == TR_STOP_NOT_FINITE) *failed = text;
}

/* A token of each text, or a piece of one that slid, with its time. */
static tr_status_t generator_time_step(tr_generator_t *n, row_t *slid, tr_text_t **failed) {
    const double begin = tr_clock_sec();
    const int64_t before = n->stats.tokens;
    int64_t tokens;
    TR_TRY(slid ? generator_prefill(n, &slid, 1, generator_note_failed, failed, &tokens)
                : generator_decode(n, generator_note_failed, failed));
    const double sec = tr_clock_sec() - begin;
    n->stats.decoded += n->stats.tokens - before;
    n->stats.decode_sec += sec;
    return tr_vec_push(&n->step_sec, sec);
}

/* Unlike tr_generator_step, it decodes only when all rows are ready. */
tr_status_t tr_generator_run(tr_generator_t *n, tr_text_t *texts, int64_t count,
                             tr_generate_stats_t *out_stats) {
    const double begin = tr_clock_sec();
    tr_text_t *failed = NULL;
    int64_t next = 0, tokens;
    n->stats = (tr_generate_stats_t){0};
    n->step_sec.count = 0;
    memset(n->row, 0, (size_t)n->params.rows * sizeof *n->row);
    while (!failed && (next < count || tr_generator_free(n) < n->params.rows)) {
        while (next < count && tr_generator_free(n) > 0)
            TR_TRY(tr_generator_admit(n, &texts[next++]));
        row_t *row = generator_oldest(n, 0, INT64_MAX);
        TR_TRY(row && row->text->tokens.count == 0
                   ? generator_prefill(n, &row, 1, generator_note_failed, &failed, &tokens)
                   : generator_time_step(n, row, &failed));
        if (n->stats.first_sec == 0 && n->stats.tokens > 0)
            n->stats.first_sec = tr_clock_sec() - begin;
    }
    n->stats.step_sec = n->step_sec.data;
    n->stats.steps = (int64_t)n->step_sec.count;
    *out_stats = n->stats;
    if (!failed) return TR_OK;
    return TR_FAIL(TR_ERR_DATA, "the scores of token %zu of text %llu are not finite",
                   failed->ids.count + failed->tokens.count, (unsigned long long)failed->index);
}
