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

/* -- probabilities ----------------------------------------------------------------------------- */

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

/* Characters in the first `count` bytes. */
static json_int_t characters(const char *bytes, size_t count) {
    json_int_t result = 0;
    for (size_t i = 0; i < count; i++) result += ((unsigned char)bytes[i] >> 6) != 2;
    return result;
}

/* Of tokens [first, end). */
static json_t *choice_logprobs(const tr_completion_t *c, const tr_choice_t *choice, size_t first,
                               size_t end) {
    json_t *tokens = json_array(), *own = json_array(), *best = json_array(),
           *offsets = json_array();
    tr_str_t text = {0};
    for (size_t i = first; i < end; i++) {
        const tr_token_score_t *score = &choice->scores.data[i];
        json_t *top = json_object();
        for (int k = 0; k < c->logprobs && score->id[k] >= 0; k++) {
            token_text(c, score->id[k], &text);
            json_object_set_new(top, text.text ? text.text : "", json_real(score->best[k]));
        }
        token_text(c, choice->tokens.data[i], &text);
        json_array_append_new(tokens, json_stringn(text.text ? text.text : "", text.length));
        json_array_append_new(own, json_real(score->own));
        json_array_append_new(best, top);
        json_array_append_new(
            offsets, json_integer(characters(choice->out.bytes.text, choice->out.starts.data[i])));
    }
    tr_str_free(&text);
    return json_pack("{s:o, s:o, s:o, s:o}", "tokens", tokens, "token_logprobs", own,
                     "top_logprobs", best, "text_offset", offsets);
}

/* -- parts ------------------------------------------------------------------------------------- */

/* What is new since `sent`. */
static json_t *choice_compose(const tr_completion_t *c, const tr_choice_t *choice,
                              const tr_sent_t *sent) {
    const tr_str_t *text = &choice->out.text;
    const char *bytes = text->text ? text->text + sent->text : "";
    const size_t count = text->length - sent->text;
    json_t *shown = c->echo && !sent->has_begun ? tr_completion_with_prompt(c, choice, bytes, count)
                                                : json_stringn(bytes, count);
    return json_pack(
        "{s:I, s:o, s:o, s:s?}", "index", (json_int_t)choice->text.index, "text", shown, "logprobs",
        c->logprobs < 0 ? json_null()
                        : choice_logprobs(c, choice, sent->tokens, choice->out.shown_tokens),
        "finish_reason", choice->finish_reason);
}

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
    for (size_t i = 0; i < c->generation.count; i++)
        json_array_append_new(choices,
                              choice_compose(c, &c->generation.choices[i], &(tr_sent_t){0}));
    return completion_object(c, choices, completion_usage(c));
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

static void stream_choice(tr_completion_t *c, size_t index, tr_str_t *out) {
    const tr_choice_t *choice = &c->generation.choices[index];
    tr_sent_t *sent = &c->sent[index];
    const bool has_tokens = c->logprobs >= 0 && choice->out.shown_tokens > sent->tokens,
               has_ended = choice->finish_reason && !sent->has_ended;
    if (choice->out.text.length == sent->text && !has_tokens && !has_ended) return;
    stream_event(out, completion_object(c, json_pack("[o]", choice_compose(c, choice, sent)),
                                        c->include_usage ? json_null() : NULL));
    *sent = (tr_sent_t){choice->out.text.length, choice->out.shown_tokens, true,
                        choice->finish_reason != NULL};
}

static bool stream_read(void *self, tr_str_t *out) {
    tr_completion_t *c = self;
    const tr_job_t *job = &c->generation.job;
    tr_queue_t *q = &c->engine->queue;
    pthread_mutex_lock(&q->lock);
    for (;;) {
        const bool is_done = job->is_done;
        for (size_t i = 0; i < c->generation.count; i++) stream_choice(c, i, out);
        if (is_done || out->length > 0) break;
        if (tr_queue_await_change(q, &c->generation.job, PING_SEC)) continue;
        tr_str_append(out, ": waiting\n\n"); /* a comment, so that proxies keep the connection */
        break;
    }
    const bool is_done = job->is_done;
    pthread_mutex_unlock(&q->lock);
    if (!is_done) return true;
    if (job->status != 200) {
        stream_event(out, tr_error_json(job->status, job->why));
    } else {
        if (c->include_usage)
            stream_event(out, completion_object(c, json_array(), completion_usage(c)));
        tr_str_append(out, "data: [DONE]\n\n");
    }
    return false;
}

static void stream_close(void *self) {
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
    return (tr_http_stream_t){stream_read, stream_close, c};
}
