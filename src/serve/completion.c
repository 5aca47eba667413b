/* Reads requests for texts. */
#include "completion.h"

#include "base/clock.h"
#include "base/mem.h"
#include <string.h>
#include <sys/random.h>

static const char *const fields[] = {
    "model", "prompt", "max_tokens", "temperature", "top_p",  "top_k",         "seed",
    "n",     "stop",   "echo",       "logprobs",    "stream", "stream_options"};
static const tr_json_ignored_t ignored[] = {
    {"user", NULL},
    {"best_of", "1"},
    {"suffix", "\"\""},
    {"logit_bias", "{}"},
    {"frequency_penalty", "0"},
    {"presence_penalty", "0"},
    {"min_p", "0"},
    {"repetition_penalty", "1"},
};

uint64_t tr_draw_seed(void) {
    uint64_t seed = 0;
    if (getrandom(&seed, sizeof seed, 0) != sizeof seed) seed = (uint64_t)(1e9 * tr_clock_sec());
    return seed & ((1ull << 53) - 1);
}

/* -- prompts ----------------------------------------------------------------------------------- */

typedef TR_VEC(tr_ids_t) prompts_t;

static tr_status_t prompts_read_ids(const tr_completion_t *c, const char *field, const json_t *list,
                                    tr_ids_t *out) {
    const int32_t vocab_size = c->model->tokenizer->vocab_size;
    char expected[64];
    tr_snprintf(expected, sizeof expected, "token ids from 0 to %d", (int)vocab_size - 1);
    for (size_t i = 0; i < json_array_size(list); i++) {
        const json_t *id = json_array_get(list, i);
        const json_int_t value = json_integer_value(id);
        if (!json_is_integer(id) || value < 0 || value >= vocab_size ||
            !tr_tokenizer_has(c->model->tokenizer, (int32_t)value))
            return tr_json_unexpected(field, expected, id);
        TR_TRY(tr_vec_push(out, (int32_t)value));
    }
    return TR_OK;
}

static tr_status_t prompts_read(const tr_completion_t *c, const char *field, const json_t *prompt,
                                prompts_t *prompts) {
    const bool is_list = json_is_array(prompt) && !json_is_integer(json_array_get(prompt, 0));
    const size_t count = is_list ? json_array_size(prompt) : 1;
    if (!prompt || count == 0 || json_is_null(prompt))
        return tr_json_unexpected(field, "a string, or a list of strings or token ids", prompt);
    if (count * (size_t)c->n > TR_CHOICES)
        return TR_FAIL(TR_ERR_DATA,
                       "%s, n: expected at most %d texts, found %zu prompts times %lld", field,
                       TR_CHOICES, count, (long long)c->n);
    for (size_t i = 0; i < count; i++) {
        const json_t *one = is_list ? json_array_get(prompt, i) : prompt;
        TR_TRY(tr_vec_push(prompts, (tr_ids_t){0}));
        if (json_is_array(one))
            TR_TRY(prompts_read_ids(c, field, one, &prompts->data[i]));
        else if (json_is_string(one))
            TR_TRY(tr_tokenizer_encode(c->model->tokenizer, json_string_value(one),
                                       json_string_length(one), &prompts->data[i]));
        else
            return tr_json_unexpected(field, "a string, or a list of token ids", one);
    }
    for (size_t i = 0; i < count; i++) {
        if ((int64_t)prompts->data[i].count > c->model->context)
            return TR_FAIL(TR_ERR_DATA, "%s: expected at most %lld tokens, found %zu", field,
                           (long long)c->model->context, prompts->data[i].count);
        if (prompts->data[i].count == 0 && c->model->tokenizer->end < 0)
            return TR_FAIL(TR_ERR_DATA, "%s: expected at least one token, found none", field);
    }
    return TR_OK;
}

static tr_status_t choice_open(tr_completion_t *c, size_t index, const tr_ids_t *ids) {
    tr_choice_t *choice = &c->generation.choices[index];
    choice->generation = &c->generation;
    choice->out = (tr_detokenizer_t){
        .tokenizer = c->model->tokenizer, .stops = c->stops, .stop_count = c->stop_count};
    choice->text = (tr_text_t){.index = index,
                               .sampling = c->sampling,
                               .most = c->most,
                               .end = c->model->tokenizer->end,
                               .ends = c->model->tokenizer->ends,
                               .logprobs = (int)c->logprobs};
    for (size_t i = 0; i < ids->count; i++) TR_TRY(tr_vec_push(&choice->text.ids, ids->data[i]));
    return TR_OK;
}

tr_status_t tr_completion_set_prompts(tr_completion_t *c, const char *field, const json_t *prompt) {
    tr_generation_t *g = &c->generation;
    prompts_t prompts = {0};
    tr_status_t status;
    TR_TRY_GOTO(prompts_read(c, field, prompt, &prompts), done);
    const size_t count = prompts.count * (size_t)c->n;
    TR_TRY_GOTO(tr_alloc(count * sizeof *g->choices, "the texts of a request", &g->choices), done);
    g->count = count;
    for (size_t i = 0; i < count; i++)
        TR_TRY_GOTO(choice_open(c, i, &prompts.data[i / (size_t)c->n]), done);
done:
    for (size_t i = 0; i < prompts.count; i++) tr_vec_free(&prompts.data[i]);
    tr_vec_free(&prompts);
    return status;
}

json_t *tr_completion_prompt_text(const tr_completion_t *c, const tr_choice_t *choice) {
    const tr_ids_t *ids = &choice->text.ids;
    tr_str_t text = {0};
    (void)tr_tokenizer_decode(c->model->tokenizer, ids->data, ids->count, &text);
    json_t *result = tr_json_text(text.text ? text.text : "", text.length);
    tr_str_free(&text);
    return result;
}

json_t *tr_completion_with_prompt(const tr_completion_t *c, const tr_choice_t *choice,
                                  const char *bytes, size_t count) {
    json_t *whole = tr_completion_prompt_text(c, choice);
    tr_str_t text = {0};
    tr_str_append_bytes(&text, json_string_value(whole), json_string_length(whole));
    if (count > 0) tr_str_append_bytes(&text, bytes, count);
    json_string_setn(whole, text.text ? text.text : "", text.length);
    tr_str_free(&text);
    return whole;
}

/* -- settings ---------------------------------------------------------------------------------- */

static tr_status_t completion_add_stop(tr_completion_t *c, const json_t *stop) {
    if (!json_is_string(stop) || json_string_length(stop) == 0)
        return tr_json_unexpected("stop", "a string that is not empty", stop);
    if (c->stop_count == TR_STOPS)
        return TR_FAIL(TR_ERR_DATA, "stop: expected at most %d strings, found more", TR_STOPS);
    c->stops[c->stop_count++] = json_string_value(stop);
    return TR_OK;
}

static tr_status_t completion_read_stops(tr_completion_t *c, const json_t *request) {
    const json_t *stop = json_object_get(request, "stop");
    if (!stop || json_is_null(stop)) return TR_OK;
    if (!json_is_array(stop)) return completion_add_stop(c, stop);
    for (size_t i = 0; i < json_array_size(stop); i++)
        TR_TRY(completion_add_stop(c, json_array_get(stop, i)));
    return TR_OK;
}

static tr_status_t completion_read_stream(tr_completion_t *c, const json_t *request) {
    static const char *const known[] = {"include_usage"};
    const json_t *options = json_object_get(request, "stream_options");
    TR_TRY(tr_json_take_bool(request, "stream", &c->stream));
    if (!options || json_is_null(options)) return TR_OK;
    if (!json_is_object(options) || !c->stream)
        return tr_json_unexpected("stream_options", "an object, together with stream = true",
                                  options);
    TR_TRY(tr_json_check_fields(options, known, TR_COUNT(known), NULL, 0));
    return tr_json_take_bool(options, "include_usage", &c->include_usage);
}

static tr_status_t completion_read_settings(tr_completion_t *c, const json_t *request) {
    const char *model = c->model->name;
    int64_t seed = -1;
    TR_TRY(tr_json_check_fields(request, fields, TR_COUNT(fields), ignored, TR_COUNT(ignored)));
    TR_TRY(tr_json_take_text(request, "model", &model));
    if (strcmp(model, c->model->name) != 0)
        return TR_FAIL(TR_ERR_NOINPUT, "model: expected %s, which this server has, found %.200s",
                       c->model->name, model);
    TR_TRY(tr_json_take_int(request, "max_tokens", 1, INT32_MAX, &c->most));
    TR_TRY(tr_json_take_int(request, "n", 1, TR_CHOICES, &c->n));
    TR_TRY(tr_json_take_int(request, "logprobs", 0, TR_TEXT_LOGPROBS, &c->logprobs));
    TR_TRY(tr_json_take_real(request, "temperature", 0, 100, &c->sampling.temperature));
    TR_TRY(tr_json_take_real(request, "top_p", 0, 1, &c->sampling.top_p));
    TR_TRY(tr_json_take_int(request, "top_k", 0, INT32_MAX, &c->sampling.top_k));
    TR_TRY(tr_json_take_int(request, "seed", 0, INT64_MAX, &seed));
    TR_TRY(tr_json_take_bool(request, "echo", &c->echo));
    TR_TRY(completion_read_stream(c, request));
    TR_TRY(completion_read_stops(c, request));
    if (c->echo && c->logprobs >= 0)
        return TR_FAIL(TR_ERR_DATA, "logprobs: expected null together with echo, because the "
                                    "tokens of a prompt have no probabilities here");
    c->sampling.seed = seed >= 0 ? (uint64_t)seed : tr_draw_seed();
    return TR_OK;
}

tr_status_t tr_completion_read(const tr_text_model_t *model, json_t *request,
                               tr_completion_t *out) {
    *out = (tr_completion_t){.model = model,
                             .request = request,
                             .sampling = {.temperature = 1, .top_p = 1},
                             .most = TR_COMPLETION_TOKENS,
                             .n = 1,
                             .logprobs = -1,
                             .created = (int64_t)tr_clock_unix_sec()};
    tr_snprintf(out->id, sizeof out->id, "cmpl-%016llx", (unsigned long long)tr_draw_seed());
    TR_TRY(completion_read_settings(out, request));
    TR_TRY(tr_completion_set_prompts(out, "prompt", json_object_get(request, "prompt")));
    out->generation.is_streamed = out->stream;
    if (!out->stream) return TR_OK;
    return tr_alloc(out->generation.count * sizeof *out->sent, "a stream", &out->sent);
}

void tr_completion_free(tr_completion_t *c) {
    tr_generation_free(&c->generation);
    tr_free(&c->sent);
    json_decref(c->request);
    c->request = NULL;
}
