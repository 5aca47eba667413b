/* Composes completions: whole, or as server-sent events. */
#include "completion.h"

#include "base/clock.h"
#include "base/mem.h"
#include "trainer/log.h"
#include <stdlib.h>
#include <string.h>

enum { PING_SEC = 30 };

json_t *tr_error_json(int status, const char *message) {
    static const struct {
        int status;
        const char *type;
    } types[] = {
        {401, "authentication_error"}, {404, "not_found_error"}, {429, "rate_limit_error"}};
    const char *type = status < 500 ? "invalid_request_error" : "server_error";
    for (size_t i = 0; i < TR_COUNT(types); i++)
        if (types[i].status == status) type = types[i].type;
    return json_pack("{s:{s:o, s:s, s:n, s:i}}", "error", "message",
                     tr_json_text(message, strlen(message)), "type", type, "param", "code", status);
}

/* The text of one token. What is not UTF-8 is "bytes:" with its bytes, as OpenAI has it: keys stay
 * different. */
static void token_text(const tr_completion_t *c, int32_t id, tr_str_t *out) {
    tr_str_t bytes = {0};
    tr_str_free(out);
    if (tr_tokenizer_decode(c->model->tokenizer, &id, 1, &bytes) != TR_OK) {
        tr_str_printf(out, "token:%d", (int)id);
    } else if (tr_utf8_bytes(bytes.text ? bytes.text : "", bytes.length) == bytes.length) {
        tr_str_append_bytes(out, bytes.text ? bytes.text : "", bytes.length);
    } else {
        tr_str_append(out, "bytes:");
        for (size_t i = 0; i < bytes.length; i++)
            tr_str_printf(out, "\\x%02x", (unsigned char)bytes.text[i]);
    }
    tr_str_free(&bytes);
}

/* -- parts ------------------------------------------------------------------------------------- */

typedef struct {
    int32_t id;
    tr_token_score_t score;
    json_int_t offset; /* in the text, in characters */
} part_token_t;

/* What is new of a choice: copied with the lock of the queue, composed without it. */
typedef struct {
    const tr_choice_t *choice;
    bool is_first;
    tr_str_t text;
    TR_VEC(part_token_t) tokens; /* none without logprobs */
    const char *finish_reason;
} part_t;
typedef TR_VEC(part_t) parts_t;

static void parts_free(parts_t *parts) {
    for (size_t i = 0; i < parts->count; i++) {
        tr_str_free(&parts->data[i].text);
        tr_vec_free(&parts->data[i].tokens);
    }
    tr_vec_free(parts);
}

static tr_status_t part_take_tokens(part_t *part, const tr_choice_t *choice, tr_sent_t *sent) {
    const tr_detokenizer_t *out = &choice->out;
    for (; sent->tokens < out->shown_tokens; sent->tokens++) {
        /* A byte that is no UTF-8 is a character U+FFFD. */
        for (; sent->counted < out->starts.data[sent->tokens]; sent->characters++) {
            const int bytes = tr_utf8_decode(out->bytes.text + sent->counted, &(uint32_t){0});
            sent->counted += bytes > 0 ? (size_t)bytes : 1;
        }
        const part_token_t token = {.id = choice->tokens.data[sent->tokens],
                                    .score = choice->scores.data[sent->tokens],
                                    .offset = (json_int_t)sent->characters};
        TR_TRY(tr_vec_push(&part->tokens, token));
    }
    return TR_OK;
}

static bool choice_has_news(const tr_completion_t *c, const tr_choice_t *choice,
                            const tr_sent_t *sent) {
    return choice->out.text.length > sent->text ||
           (c->logprobs >= 0 && choice->out.shown_tokens > sent->tokens) ||
           (choice->finish_reason && !sent->has_ended);
}

/* Moves what is new since `sent` to `parts`. */
static tr_status_t parts_take(const tr_completion_t *c, size_t index, tr_sent_t *sent,
                              parts_t *parts) {
    const tr_choice_t *choice = &c->generation.choices[index];
    const tr_str_t *text = &choice->out.text;
    part_t new = {
        .choice = choice, .is_first = !sent->has_begun, .finish_reason = choice->finish_reason};
    TR_TRY(tr_vec_push(parts, new));
    part_t *part = &parts->data[parts->count - 1];
    if (text->length > sent->text)
        tr_str_append_bytes(&part->text, text->text + sent->text, text->length - sent->text);
    TR_TRY(part->text.status);
    if (c->logprobs >= 0) TR_TRY(part_take_tokens(part, choice, sent));
    sent->text = text->length;
    sent->has_begun = true;
    sent->has_ended = choice->finish_reason != NULL;
    return TR_OK;
}

static json_t *part_logprobs(const tr_completion_t *c, const part_t *part) {
    json_t *tokens = json_array(), *own = json_array(), *best = json_array(),
           *offsets = json_array();
    tr_str_t text = {0};
    for (size_t i = 0; i < part->tokens.count; i++) {
        const part_token_t *token = &part->tokens.data[i];
        const tr_token_score_t *score = &token->score;
        json_t *top = json_object();
        for (int k = 0; k < c->logprobs && score->id[k] >= 0; k++) {
            token_text(c, score->id[k], &text);
            json_object_set_new(top, text.text ? text.text : "", json_real(score->best[k]));
        }
        token_text(c, token->id, &text);
        json_array_append_new(tokens, json_stringn(text.text ? text.text : "", text.length));
        json_array_append_new(own, json_real(score->own));
        json_array_append_new(best, top);
        json_array_append_new(offsets, json_integer(token->offset));
    }
    tr_str_free(&text);
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", own,
                     "top_logprobs", best, "text_offset", offsets);
}

static json_t *part_compose(const tr_completion_t *c, const part_t *part) {
    const char *bytes = part->text.text ? part->text.text : "";
    json_t *shown = c->echo && part->is_first
                        ? tr_completion_with_prompt(c, part->choice, bytes, part->text.length)
                        : json_stringn(bytes, part->text.length);
    return json_pack("{s:I, s:o, s:o, s:s?}", "index", (json_int_t)part->choice->text.index, "text",
                     shown, "logprobs", c->logprobs < 0 ? json_null() : part_logprobs(c, part),
                     "finish_reason", part->finish_reason);
}

/* -- replies ----------------------------------------------------------------------------------- */

static json_t *completion_usage(const tr_completion_t *c) {
    json_int_t prompt = 0, generated = 0;
    for (size_t i = 0; i < c->generation.count; i++) {
        if (i % (size_t)c->n == 0) prompt += (json_int_t)c->generation.choices[i].text.ids.count;
        generated += (json_int_t)c->generation.choices[i].tokens.count;
    }
    return json_pack("{s:I, s:I, s:I}", "prompt_tokens", prompt, "completion_tokens", generated,
                     "total_tokens", prompt + generated);
}

/* Steals choices and usage; usage NULL: none. */
static json_t *completion_object(const tr_completion_t *c, json_t *choices, json_t *usage) {
    json_t *object =
        json_pack("{s:s, s:s, s:I, s:s, s:o, s:I}", "id", c->id, "object", "text_completion",
                  "created", (json_int_t)c->created, "model", c->model->name, "choices", choices,
                  "seed", (json_int_t)c->sampling.seed);
    if (usage) json_object_set_new(object, "usage", usage);
    return object;
}

json_t *tr_completion_compose(const tr_completion_t *c) {
    json_t *choices = json_array();
    parts_t parts = {0};
    tr_status_t status = TR_OK;
    for (size_t i = 0; i < c->generation.count && status == TR_OK; i++)
        status = parts_take(c, i, &(tr_sent_t){0}, &parts);
    for (size_t i = 0; i < parts.count; i++)
        json_array_append_new(choices, part_compose(c, &parts.data[i]));
    parts_free(&parts);
    if (status == TR_OK) return completion_object(c, choices, completion_usage(c));
    json_decref(choices);
    return NULL;
}

/* -- streams ----------------------------------------------------------------------------------- */

/* Steals `object`. */
static void stream_event(tr_str_t *out, json_t *object) {
    char *text = json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9));
    json_decref(object);
    if (text)
        tr_str_printf(out, "data: %s\n\n", text);
    else
        out->status = TR_ERR_MEMORY;
    free(text);
}

/* Waits for what is new, at most PING_SEC, or until the client is to be asked whether it reads.
 * *out_done: nothing more will come. */
static tr_status_t stream_wait(tr_completion_t *c, parts_t *parts, bool *out_done) {
    tr_queue_t *q = &c->engine->queue;
    tr_status_t status = TR_OK;
    bool may_wait = true;
    pthread_mutex_lock(&q->lock);
    while (may_wait && status == TR_OK) {
        *out_done = c->generation.job.is_done;
        for (size_t i = 0; i < c->generation.count && status == TR_OK; i++)
            if (choice_has_news(c, &c->generation.choices[i], &c->sent[i]))
                status = parts_take(c, i, &c->sent[i], parts);
        may_wait = !*out_done && parts->count == 0 && c->has_asked == c->generation.job.is_asked &&
                   tr_queue_await_change(q, &c->generation.job, PING_SEC);
    }
    c->has_asked = c->generation.job.is_asked;
    pthread_mutex_unlock(&q->lock);
    return status;
}

static bool reply_stream_read(void *self, tr_str_t *out) {
    tr_completion_t *c = self;
    const tr_job_t *job = &c->generation.job;
    parts_t parts = {0};
    bool is_done = false;
    if (stream_wait(c, &parts, &is_done) != TR_OK) out->status = TR_ERR_MEMORY;
    for (size_t i = 0; i < parts.count; i++)
        stream_event(out, completion_object(c, json_pack("[o]", part_compose(c, &parts.data[i])),
                                            c->include_usage ? json_null() : NULL));
    const bool is_silent = parts.count == 0;
    parts_free(&parts);
    if (!is_done) {
        /* a comment, so that proxies keep the connection */
        if (is_silent) tr_str_append(out, ": waiting\n\n");
        return out->status == TR_OK;
    }
    if (job->status != 200) {
        stream_event(out, tr_error_json(job->status, job->why));
    } else {
        if (c->include_usage)
            stream_event(out, completion_object(c, json_array(), completion_usage(c)));
        tr_str_append(out, "data: [DONE]\n\n");
    }
    return false;
}

static void reply_stream_close(void *self) {
    tr_completion_t *c = self;
    tr_job_t *job = &c->generation.job;
    char took[32];
    tr_job_close(&c->engine->queue, job);
    TR_INFO("POST /v1/completions: %d, %s, streamed", job->status,
            tr_format_duration(tr_clock_sec() - job->since_sec, took));
    tr_completion_free(c);
    tr_free(&c);
}

tr_http_stream_t tr_completion_stream(tr_completion_t *c) {
    return (tr_http_stream_t){reply_stream_read, reply_stream_close, c};
}
