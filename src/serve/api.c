/* Routes of the server. */
#include "api.h"

#include "base/clock.h"
#include "base/int_math.h"
#include "base/mem.h"
#include "exercise.h"
#include "trainer/log.h"
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

enum { REQUEST_SEC = 30, REPLY_SEC = 10, RETRY_SEC = 1 };
enum { CONNECTIONS = 240 }; /* beside those of requests that are served or wait */
/* Bodies: at most; of a model of texts, for each token of the context, and beside them. */
enum { MOST_BYTES = 16 << 20, TOKEN_BYTES = 8 * TR_CHOICES, OTHER_BYTES = 64 << 10 };
#define NO_LIMIT 1e9 /* seconds of an answer: the queue has its own limits */

struct tr_api {
    tr_http_t *http;
    _Atomic(const tr_api_model_t *) model; /* NULL: it is not loaded yet */
};

typedef void (*answer_fn)(const tr_api_model_t *m, const tr_http_request_t *request,
                          tr_http_reply_t *reply, char why[512]);

/* Steals `object`. */
static void reply_json(tr_http_reply_t *reply, json_t *object) {
    char *text = object ? json_dumps(object, JSON_COMPACT | JSON_REAL_PRECISION(9)) : NULL;
    json_decref(object);
    reply->type = "application/json";
    if (text)
        tr_str_printf(&reply->body, "%s\n", text);
    else
        reply->body.status = TR_ERR_MEMORY;
    free(text);
}

static void reply_error(const tr_http_request_t *request, tr_http_reply_t *reply, const char *why) {
    if (reply->status == 429 || reply->status == 503) reply->retry_sec = RETRY_SEC;
    reply_json(reply, tr_is_exercise(request->path) ? tr_exercise_error(why)
                                                    : tr_error_json(reply->status, why));
}

/* A stream logs its own end. A path may have any bytes. */
static void log_post(const tr_http_request_t *request, const tr_http_reply_t *reply,
                     double begin_sec) {
    char path[128], took[32];
    if (request->method[0] != 'P' || reply->stream.read) return;
    tr_snprintf(path, sizeof path, "%s", request->path);
    for (char *at = path; *at; at++)
        if (*at < '!' || *at > '~') *at = '?';
    TR_INFO("POST %s: %d, %s", path, reply->status,
            tr_format_duration(tr_clock_sec() - begin_sec, took));
}

/* What the server of HTTP refuses. */
static void api_refuse(void *self, const tr_http_request_t *request, tr_http_reply_t *reply,
                       const char *why) {
    (void)self;
    reply_error(request, reply, why);
    log_post(request, reply, tr_clock_sec());
}

/* An error of this thread as a refusal. */
static void refuse(tr_http_reply_t *reply, tr_status_t status, char why[512]) {
    reply->status = tr_json_status(status);
    tr_snprintf(why, 512, "%s", tr_error_last()->message);
}

static tr_queue_t *model_queue(const tr_api_model_t *m) {
    return m->engine ? &m->engine->queue : &m->predict->queue;
}

/* -- texts ------------------------------------------------------------------------------------- */

static void answer_completions(const tr_api_model_t *m, const tr_http_request_t *request,
                               tr_http_reply_t *reply, char why[512]) {
    tr_completion_t *c = NULL;
    json_t *object = NULL;
    tr_status_t status = tr_alloc(sizeof *c, "a request", &c);
    if (status == TR_OK) status = tr_json_request(request->body, request->body_bytes, &object);
    if (status == TR_OK) status = tr_completion_read(m->texts, object, c);
    if (status != TR_OK) {
        refuse(reply, status, why);
    } else if (c->stream) {
        tr_job_open(&c->generation.job,
                    (tr_http_peer_t){.fd = request->client.fd, .is_streamed = true});
        c->engine = m->engine;
        reply->status = tr_queue_push(&m->engine->queue, &c->generation.job);
        if (reply->status == 200) {
            reply->type = "text/event-stream";
            reply->stream = tr_completion_stream(c);
            return;
        }
        tr_snprintf(why, 512, "%s", c->generation.job.why);
        tr_job_close(&m->engine->queue, &c->generation.job);
    } else {
        reply->status = tr_queue_serve(&m->engine->queue, &c->generation.job, request->client, why);
        if (reply->status == 200) reply_json(reply, tr_completion_compose(c));
    }
    if (c) tr_completion_free(c);
    tr_free(&c);
}

#define MODELS "/v1/models"

static void answer_models(const tr_api_model_t *m, const tr_http_request_t *request,
                          tr_http_reply_t *reply, char why[512]) {
    const char *name = request->path + strlen(MODELS); /* "/NAME", or "": a list of all */
    if (name[0] && strcmp(name + 1, m->name) != 0) {
        reply->status = 404;
        tr_snprintf(why, 512, "model: expected %s, which this server has, found %.200s", m->name,
                    name + 1);
        return;
    }
    json_t *model = json_pack("{s:s, s:s, s:I, s:s}", "id", m->name, "object", "model", "created",
                              (json_int_t)0, "owned_by", "trainer");
    if (m->texts)
        json_object_set_new(model, "max_model_len", json_integer((json_int_t)m->texts->context));
    reply_json(reply, name[0] ? model : json_pack("{s:s, s:[o]}", "object", "list", "data", model));
}

static tr_status_t tokenize(const tr_text_model_t *texts, const json_t *object, json_t **out) {
    static const char *const known[] = {"model", "prompt"};
    const char *prompt = NULL;
    tr_ids_t ids = {0};
    json_t *tokens;
    TR_TRY(tr_json_check_fields(object, known, TR_COUNT(known), NULL, 0));
    TR_TRY(tr_json_take_text(object, "prompt", &prompt));
    if (!prompt) return tr_json_unexpected("prompt", "a string", NULL);
    const tr_status_t status = tr_tokenizer_encode(texts->tokenizer, prompt, strlen(prompt), &ids);
    tokens = json_array();
    for (size_t i = 0; i < ids.count; i++) json_array_append_new(tokens, json_integer(ids.data[i]));
    tr_vec_free(&ids);
    *out = json_pack("{s:I, s:I, s:o}", "count", (json_int_t)json_array_size(tokens),
                     "max_model_len", (json_int_t)texts->context, "tokens", tokens);
    return status;
}

static tr_status_t detokenize(const tr_text_model_t *texts, const json_t *object, json_t **out) {
    static const char *const known[] = {"model", "tokens"};
    const json_t *tokens = json_object_get(object, "tokens"), *id;
    tr_str_t text = {0};
    size_t i;
    TR_TRY(tr_json_check_fields(object, known, TR_COUNT(known), NULL, 0));
    if (!json_is_array(tokens)) return tr_json_unexpected("tokens", "a list of token ids", tokens);
    json_array_foreach(tokens, i, id) {
        const json_int_t value = json_integer_value(id);
        const int32_t token = (int32_t)value;
        if (!json_is_integer(id) || value != token ||
            tr_tokenizer_decode(texts->tokenizer, &token, 1, &text) != TR_OK) {
            tr_str_free(&text);
            return tr_json_unexpected("tokens", "ids of the vocabulary", id);
        }
    }
    *out = json_pack("{s:o}", "prompt", tr_json_text(text.text ? text.text : "", text.length));
    tr_str_free(&text);
    return TR_OK;
}

static void answer_tokens(const tr_api_model_t *m, const tr_http_request_t *request,
                          tr_http_reply_t *reply, char why[512]) {
    const bool is_text = strcmp(request->path, "/tokenize") == 0;
    json_t *object = NULL, *answer = NULL;
    tr_status_t status = tr_json_request(request->body, request->body_bytes, &object);
    if (status == TR_OK) status = (is_text ? tokenize : detokenize)(m->texts, object, &answer);
    if (status == TR_OK)
        reply_json(reply, json_incref(answer));
    else
        refuse(reply, status, why);
    json_decref(answer);
    json_decref(object);
}

static void answer_generate(const tr_api_model_t *m, const tr_http_request_t *request,
                            tr_http_reply_t *reply, char why[512]) {
    tr_exercise_generate(m->engine, m->texts, m->device, request, reply, why);
    reply->type = "application/json";
}

/* -- every model ------------------------------------------------------------------------------- */

static void answer_predict(const tr_api_model_t *m, const tr_http_request_t *request,
                           tr_http_reply_t *reply, char why[512]) {
    tr_predict_answer(m->predict, request, reply, why);
}

static void answer_info(const tr_api_model_t *m, const tr_http_request_t *request,
                        tr_http_reply_t *reply, char why[512]) {
    (void)request, (void)why;
    reply_json(reply, tr_exercise_info(m->device, m->name));
}

static void answer_metrics(const tr_api_model_t *m, const tr_http_request_t *request,
                           tr_http_reply_t *reply, char why[512]) {
    const tr_serve_load_t load =
        m->engine ? tr_text_engine_load(m->engine) : tr_predict_load(m->predict);
    (void)request, (void)why;
    reply->type = "text/plain; version=0.0.4; charset=utf-8";
    tr_serve_metrics_compose(m->metrics, &load, &reply->body);
}

static void answer_page(const tr_api_model_t *m, const tr_http_request_t *request,
                        tr_http_reply_t *reply, char why[512]) {
    (void)request, (void)why;
    reply->type = "text/html; charset=utf-8";
    tr_api_page(m, &reply->body);
}

/* `m` NULL: it is being loaded. */
static void answer_health(const tr_api_model_t *m, const tr_http_request_t *request,
                          tr_http_reply_t *reply, char why[512]) {
    static const char *const states[] = {"ok", "draining", "failed"};
    const char *state = m ? states[tr_queue_state(model_queue(m))] : "loading";
    (void)request, (void)why;
    if (strcmp(state, "ok") != 0) reply->status = 503;
    reply_json(reply, json_pack("{s:s}", "status", state));
}

/* -- routes ------------------------------------------------------------------------------------ */

#define HEALTH "/health" /* open to all, and answered before the model is loaded */

typedef enum { FOR_ALL, FOR_TEXTS, FOR_PREDICTIONS } route_for_t;
static const struct {
    const char *path, *method;
    route_for_t what;
    answer_fn answer;
} routes[] = {
    {"/", "GET", FOR_ALL, answer_page},
    {HEALTH, "GET", FOR_ALL, answer_health},
    {"/metrics", "GET", FOR_ALL, answer_metrics},
    {"/info", "GET", FOR_ALL, answer_info},
    {MODELS, "GET", FOR_ALL, answer_models},
    {MODELS "/", "GET", FOR_ALL, answer_models}, /* and a name */
    {"/v1/completions", "POST", FOR_TEXTS, answer_completions},
    {"/generate", "POST", FOR_TEXTS, answer_generate},
    {"/tokenize", "POST", FOR_TEXTS, answer_tokens},
    {"/detokenize", "POST", FOR_TEXTS, answer_tokens},
    {"/predict", "POST", FOR_PREDICTIONS, answer_predict},
};

/* A browser sends JSON to another site only after it has asked, which is not answered here. */
static bool type_is_accepted(const tr_http_request_t *request, route_for_t what) {
    return tr_http_type_is(request, "application/json") ||
           (what == FOR_PREDICTIONS && (tr_http_type_is(request, "application/x-npy") ||
                                        tr_http_type_is(request, "application/octet-stream")));
}

static bool route_is(const char *route, const char *path) {
    return strcmp(route, path) == 0 ||
           (strcmp(route, MODELS "/") == 0 && strncmp(route, path, strlen(route)) == 0);
}

static bool route_is_of(const tr_api_model_t *m, size_t i) {
    return routes[i].what == FOR_ALL ||
           (routes[i].what == FOR_TEXTS ? m->engine != NULL : m->predict != NULL);
}

static void routes_name(const tr_api_model_t *m, const char *method, tr_str_t *out) {
    tr_str_append(out, method);
    for (size_t i = 0; i < TR_COUNT(routes); i++)
        if (strcmp(routes[i].method, method) == 0 && route_is_of(m, i))
            tr_str_printf(out, " %s", routes[i].path);
}

static void routes_explain(const tr_api_model_t *m, bool is_known, char why[512]) {
    tr_str_t list = {0};
    routes_name(m, "GET", &list);
    tr_str_append(&list, ", ");
    routes_name(m, "POST", &list);
    tr_snprintf(why, 512, "%s: this server has %s",
                is_known ? "this model does not have this path" : "there is no such path",
                list.text ? list.text : "others");
    tr_str_free(&list);
}

/* Returns the function that answers; NULL: the request is refused, with reply->status and `why`. */
static answer_fn route_find(const tr_api_model_t *m, const tr_http_request_t *request,
                            tr_http_reply_t *reply, char why[512]) {
    size_t i = 0;
    while (i < TR_COUNT(routes) && !route_is(routes[i].path, request->path)) i++;
    if (i == TR_COUNT(routes) || !route_is_of(m, i)) {
        reply->status = 404;
        routes_explain(m, i < TR_COUNT(routes), why);
    } else if (strcmp(routes[i].method, request->method) != 0) {
        reply->status = 405;
        reply->allow = routes[i].method[0] == 'G' ? "GET, HEAD" : "POST";
        tr_snprintf(why, 512, "expected %s, found %s", routes[i].method, request->method);
    } else if (routes[i].method[0] == 'P' && !type_is_accepted(request, routes[i].what)) {
        reply->status = 415;
        tr_snprintf(why, 512, "Content-Type: expected application/json%s, found %.100s",
                    routes[i].what == FOR_PREDICTIONS ? " or application/x-npy" : "",
                    request->type[0] ? request->type : "nothing");
    } else {
        return routes[i].answer;
    }
    return NULL;
}

static void api_answer(void *self, const tr_http_request_t *request, tr_http_reply_t *reply) {
    tr_api_t *api = self;
    const tr_api_model_t *m = atomic_load(&api->model);
    const double begin = tr_clock_sec();
    char why[512] = "the model is being loaded";
    const answer_fn answer = m ? route_find(m, request, reply, why)
                             : strcmp(request->path, HEALTH) == 0 ? answer_health
                                                                  : NULL;
    if (answer == answer_health) { /* which may be 503, and refuses nothing */
        answer(m, request, reply, why);
        return;
    }
    if (answer)
        answer(m, request, reply, why);
    else if (!m)
        reply->status = 503;
    if (reply->status != 200 && reply->body.length == 0) reply_error(request, reply, why);
    if (m && (reply->status == 429 || reply->status == 503)) tr_serve_metrics_refused(m->metrics);
    log_post(request, reply, begin);
}

/* -- life -------------------------------------------------------------------------------------- */

tr_status_t tr_api_start(const tr_api_params_t *params, tr_api_t **out) {
    tr_api_t *api = NULL;
    TR_TRY(tr_alloc(sizeof *api, "the server", &api));
    const tr_http_params_t http = {.address = params->address,
                                   .port = params->port,
                                   .token = params->token,
                                   .open_path = HEALTH,
                                   .connections = (int)params->requests + CONNECTIONS,
                                   .request_sec = REQUEST_SEC,
                                   .answer_sec = NO_LIMIT,
                                   .body_bytes = MOST_BYTES,
                                   .own_hosts_only = true,
                                   .refuse = api_refuse,
                                   .handler = api_answer,
                                   .self = api};
    const tr_status_t status = tr_http_start(&http, &api->http);
    if (status != TR_OK) tr_api_stop(&api);
    *out = api;
    return status;
}

int tr_api_port(const tr_api_t *api) {
    return tr_http_port(api->http);
}

tr_status_t tr_api_serve(tr_api_t *api, const tr_api_model_t *model) {
    if (model->texts)
        tr_http_limit_bodies(api->http,
                             min64(MOST_BYTES, OTHER_BYTES + TOKEN_BYTES * model->texts->context));
    atomic_store(&api->model, model);
    const tr_status_t status =
        model->engine ? tr_text_engine_run(model->engine) : tr_predict_run(model->predict);
    tr_http_drain(api->http, REPLY_SEC);
    if (status == TR_OK) return TR_OK;
    char message[512];
    tr_snprintf(message, sizeof message, "%s", tr_error_last()->message);
    return TR_FAIL(TR_ERR_RETRY, "the server ends after an error of the device, start it again: %s",
                   message);
}

void tr_api_drain(tr_api_t *api, const tr_api_model_t *model, double sec) {
    if (sec <= 0) tr_http_hurry(api->http);
    tr_queue_drain(model_queue(model), sec);
}

void tr_api_stop(tr_api_t **api) {
    if (!*api) return;
    tr_http_stop(&(*api)->http);
    tr_free(api);
}
