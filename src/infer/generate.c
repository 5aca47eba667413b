/* Text generation: the programs prefill and decode, and rows that end by themselves. */
#include "generate.h"
#include "base/clock.h"
#include "trainer/log.h"

#include <math.h>
#include <string.h>

/* Tokens of a prompt that prefill processes at once: long parts, or a short one if that is
 * enough. */
enum { PIECES = 2, LONGEST = 64 };
static const int64_t piece_steps[PIECES] = {LONGEST, 16};

/* A program and its inputs: `samples` texts with `steps` tokens each. */
typedef struct {
    int index;
    int64_t samples, steps;
    tr_tensor_t id, position, place, last, logits;
} program_t;

/* A row of the caches and its text; NULL: none. */
typedef struct {
    tr_text_t *text;
    int64_t length; /* tokens in the caches */
    int32_t next;   /* the last sampled token, which is not yet in the caches */
} row_t;

struct tr_generator {
    tr_generator_params_t params;
    tr_session_t *s;
    const tr_model_t *model;
    int64_t context;
    program_t prefill[PIECES], decode;
    row_t *row;     /* [params.rows] */
    float *logits;  /* (rows, vocab_size) */
    int32_t *input; /* host values of an input */
    int32_t *order; /* for tr_sample */
    /* of tr_generator_run */
    const tr_sampling_t *sampling;
    int64_t most;
    int32_t end;
    tr_generate_stats_t stats;
};

const char *tr_stop_name(tr_stop_t stop) {
    static const char *const names[] = {"length", "end of text", "end of the context"};
    return names[stop];
}

/* -- programs ---------------------------------------------------------------------------------- */

static tr_status_t input(tr_graph_t *g, const char *program, const char *name,
                         const tr_shape_t *shape, tr_tensor_t *out) {
    tr_str_t full = {0};
    tr_str_printf(&full, "%s.%s", program, name);
    const tr_status_t status =
        full.status ? full.status : tr_input(g, full.text, TR_I32, shape, out);
    tr_str_free(&full);
    return status;
}

static tr_status_t generate_build(tr_generator_t *n, const char *name, program_t *p) {
    tr_graph_t *g = n->s->g;
    const tr_shape_t tokens = TR_SHAPE(p->samples, p->steps);
    TR_TRY(tr_program_begin(g, name, TR_EVAL, &p->index));
    TR_TRY(input(g, name, "id", &tokens, &p->id));
    TR_TRY(input(g, name, "position", &tokens, &p->position));
    TR_TRY(input(g, name, "place", &TR_SHAPE(p->samples, 3), &p->place));
    TR_TRY(input(g, name, "last", &TR_SHAPE(p->samples, 1), &p->last));
    const tr_model_texts_t texts = {.id = p->id,
                                    .position = p->position,
                                    .place = p->place,
                                    .last = p->last,
                                    .rows = n->params.cache_rows,
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
    if (vocab_size > 0) n->params.vocab_size = vocab_size;
    n->decode = (program_t){.samples = n->params.rows, .steps = 1};
    for (int i = 0; i < PIECES; i++) {
        const int64_t steps = n->context < piece_steps[i] ? n->context : piece_steps[i];
        n->prefill[i] = (program_t){.samples = 1, .steps = steps};
        tr_snprintf(name, sizeof name, "prefill%lld", (long long)steps);
        TR_TRY(generate_build(n, name, &n->prefill[i]));
    }
    tr_snprintf(name, sizeof name, "decode%lld", (long long)n->params.rows);
    return generate_build(n, name, &n->decode);
}

/* -- life -------------------------------------------------------------------------------------- */

tr_status_t tr_generator_create(const tr_generator_params_t *params, tr_generator_t **out) {
    TR_TRY(tr_alloc(sizeof **out, "generator", out));
    (*out)->params = *params;
    if (params->cache_rows == 0) (*out)->params.cache_rows = params->rows;
    return TR_OK;
}

tr_status_t tr_generator_start(tr_generator_t *n) {
    const int64_t rows = n->params.rows, inputs = rows > LONGEST ? rows : LONGEST;
    const size_t scores = (size_t)n->params.vocab_size;
    TR_TRY(tr_alloc((size_t)rows * sizeof *n->row, "rows", &n->row));
    TR_TRY(tr_alloc((size_t)rows * scores * sizeof *n->logits, "scores", &n->logits));
    TR_TRY(tr_alloc(3 * (size_t)inputs * sizeof *n->input, "inputs", &n->input));
    return tr_alloc(scores * sizeof *n->order, "tokens by score", &n->order);
}

int tr_generator_decode(const tr_generator_t *n) {
    return n->decode.index;
}

void tr_generator_destroy(tr_generator_t **generator) {
    tr_generator_t *n = *generator;
    if (!n) return;
    tr_free(&n->row);
    tr_free(&n->logits);
    tr_free(&n->input);
    tr_free(&n->order);
    tr_free(generator);
}

/* -- running ----------------------------------------------------------------------------------- */

static tr_status_t generate_run(tr_generator_t *n, const program_t *p) {
    TR_TRY(tr_program_run(n->s->g, p->index, NULL));
    return tr_tensor_read(n->s->g, p->logits, n->logits);
}

/* Samples the next token of a row, or ends the text. */
static tr_status_t generate_choose(tr_generator_t *n, row_t *row, const float *scores) {
    tr_text_t *text = row->text;
    row->next = tr_sample(n->sampling, text->index, (uint64_t)row->length, scores,
                          n->params.vocab_size, n->order);
    if (!isfinite(scores[row->next]))
        return TR_FAIL(TR_ERR_DATA, "the scores of token %lld of text %llu are not finite",
                       (long long)row->length, (unsigned long long)text->index);
    n->stats.tokens++;
    if (row->next == n->end) {
        text->stop = TR_STOP_END_OF_TEXT;
        row->text = NULL;
        return TR_OK;
    }
    TR_TRY(tr_vec_push(&text->tokens, row->next));
    const bool is_full = row->length >= n->context;
    if (!is_full && (int64_t)text->tokens.count < n->most) return TR_OK;
    text->stop = (int64_t)text->tokens.count < n->most ? TR_STOP_CONTEXT : TR_STOP_LENGTH;
    row->text = NULL;
    return TR_OK;
}

static tr_status_t write_piece(tr_generator_t *n, const program_t *p, const int32_t *ids,
                               int64_t row, int64_t first, int64_t count) {
    tr_graph_t *g = n->s->g;
    for (int64_t t = 0; t < p->steps; t++) n->input[t] = t < count ? ids[first + t] : 0;
    TR_TRY(tr_tensor_write(g, p->id, n->input));
    for (int64_t t = 0; t < p->steps; t++) n->input[t] = t < count ? (int32_t)(first + t) : 0;
    TR_TRY(tr_tensor_write(g, p->position, n->input));
    TR_TRY(tr_tensor_write(g, p->place, (int32_t[]){(int32_t)row, (int32_t)first, (int32_t)count}));
    return tr_tensor_write(g, p->last, &(int32_t){(int32_t)count - 1});
}

static tr_status_t begin_text(tr_generator_t *n, tr_text_t *text, int64_t at) {
    row_t *row = &n->row[at];
    const int64_t length = (int64_t)text->ids.count;
    if (length > n->context)
        return TR_FAIL(TR_ERR_DATA,
                       "prompt %llu has %lld tokens, but the context of the model has %lld "
                       "(model.context): shorten the prompt",
                       (unsigned long long)text->index + 1, (long long)length,
                       (long long)n->context);
    *row = (row_t){.text = text, .length = length};
    for (int64_t first = 0, count; first < length; first += count) {
        const int64_t left = length - first;
        const program_t *p = &n->prefill[left <= n->prefill[1].steps];
        count = left < p->steps ? left : p->steps;
        TR_TRY(write_piece(n, p, text->ids.data, at, first, count));
        TR_TRY(generate_run(n, p));
    }
    return generate_choose(n, row, n->logits);
}

/* An empty row has no new token; its position and token are arbitrary valid values. */
static tr_status_t write_rows(tr_generator_t *n) {
    tr_graph_t *g = n->s->g;
    const program_t *p = &n->decode;
    for (int64_t i = 0; i < p->samples; i++) n->input[i] = n->row[i].text ? n->row[i].next : 0;
    TR_TRY(tr_tensor_write(g, p->id, n->input));
    for (int64_t i = 0; i < p->samples; i++)
        n->input[i] = n->row[i].text ? (int32_t)n->row[i].length : 0;
    TR_TRY(tr_tensor_write(g, p->position, n->input));
    for (int64_t i = 0; i < p->samples; i++) {
        n->input[3 * i] = (int32_t)i;
        n->input[3 * i + 1] = n->row[i].text ? (int32_t)n->row[i].length : 0;
        n->input[3 * i + 2] = n->row[i].text != NULL;
    }
    TR_TRY(tr_tensor_write(g, p->place, n->input));
    for (int64_t i = 0; i < p->samples; i++) n->input[i] = (int32_t)i;
    return tr_tensor_write(g, p->last, n->input);
}

static tr_status_t decode(tr_generator_t *n) {
    const double begin = tr_clock_sec();
    const int64_t before = n->stats.tokens;
    TR_TRY(write_rows(n));
    TR_TRY(generate_run(n, &n->decode));
    for (int64_t i = 0; i < n->decode.samples; i++) {
        row_t *row = &n->row[i];
        if (!row->text) continue;
        row->length++;
        TR_TRY(generate_choose(n, row, n->logits + i * n->params.vocab_size));
    }
    n->stats.decoded += n->stats.tokens - before;
    n->stats.decode_sec += tr_clock_sec() - begin;
    return TR_OK;
}

static tr_status_t begin_empty(tr_text_t *texts, int64_t count, int32_t end) {
    for (int64_t i = 0; i < count; i++) {
        if (texts[i].ids.count > 0) continue;
        if (end < 0)
            return TR_FAIL(TR_ERR_DATA,
                           "prompt %llu is empty, and the tokenizer has no end of text to begin "
                           "with: give a prompt",
                           (unsigned long long)texts[i].index + 1);
        TR_TRY(tr_vec_push(&texts[i].ids, end));
    }
    return TR_OK;
}

tr_status_t tr_generator_run(tr_generator_t *n, tr_text_t *texts, int64_t count, int64_t most,
                             int32_t end, const tr_sampling_t *sampling,
                             tr_generate_stats_t *out_stats) {
    const double begin = tr_clock_sec();
    int64_t next = 0, active;
    n->sampling = sampling, n->most = most, n->end = end;
    n->stats = (tr_generate_stats_t){0};
    memset(n->row, 0, (size_t)n->params.rows * sizeof *n->row);
    TR_TRY(begin_empty(texts, count, end));
    do {
        active = 0;
        for (int64_t i = 0; i < n->params.rows; i++) {
            while (!n->row[i].text && next < count && most > 0) {
                TR_TRY(begin_text(n, &texts[next++], i));
                if (n->stats.first_sec == 0) n->stats.first_sec = tr_clock_sec() - begin;
            }
            active += n->row[i].text != NULL;
        }
        if (active > 0) TR_TRY(decode(n));
    } while (active > 0);
    *out_stats = n->stats;
    return TR_OK;
}
