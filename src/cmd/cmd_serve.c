/* trainer serve RUN|CHECKPOINT|FOLDER: keeps a trained model loaded and answers over HTTP. */
#include "open_trained.h"
#include "base/file.h"
#include "base/host.h"
#include "base/mem.h"
#include "base/thread.h"
#include "comm/watchdog_launch.h"
#include "model/model.h"
#include "monitor/token.h"
#include "serve/api.h"
#include "trainer/log.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

enum { MOST_SLOTS = 16, MOST_WAITING = 4096 };

typedef struct {
    const char *weights, *host, *token_file, *address_file, *name;
    cmd_words_t settings;
    int64_t port, slots, waiting, context; /* slots, context -1: auto */
    double drain_sec;
    int type; /* of the weights, a tr_dtype_t */
} serve_options_t;

typedef struct {
    const serve_options_t *o;
    tr_world_t *world;
    tr_config_t *config;
    char name[256];
    const char *host; /* a numeric IP address */
    bool makes_token;
    tr_api_t *api;
    tr_api_model_t model;
    tr_serve_metrics_t metrics;
    /* a model of texts */
    tr_trained_t trained;
    tr_generator_t *generator;
    tr_tokenizer_t *tokenizer;
    tr_text_model_t texts;
    tr_text_engine_t engine;
    /* another model */
    tr_predictor_t *predictor;
    tr_predict_t predict;
} serve_t;

/* -- the model --------------------------------------------------------------------------------- */

static tr_status_t serve_build(tr_session_t *s, void *self) {
    serve_t *p = self;
    const tr_preprocess_t *kept = s->params.trained_preprocess;
    const tr_model_t *model;
    int64_t vocab_size;
    TR_TRY(tr_model_find(s->model.type, &model));
    model->tokens(s->config, &p->texts.context, &vocab_size);
    if (p->o->context > p->texts.context)
        return TR_FAIL(TR_ERR_USAGE, "--context %lld: the model has a context of %lld tokens",
                       (long long)p->o->context, (long long)p->texts.context);
    if (p->o->context > 0) p->texts.context = p->o->context;
    /* as many as fit into a quarter of the memory */
    const tr_dtype_t type = (tr_dtype_t)p->o->type;
    const double slot_bytes = (double)p->texts.context * model->cache_bytes(p->config, type),
                 fit = (double)s->device->memory_bytes / 4 / slot_bytes;
    p->engine.slots = p->o->slots > 0    ? p->o->slots
                      : fit < 1          ? 1
                      : fit > MOST_SLOTS ? MOST_SLOTS
                                         : (int64_t)fit;
    const tr_generator_params_t params = {.rows = p->engine.slots,
                                          .weights = type,
                                          .vocab_size = kept ? kept->classes : 0,
                                          .context = p->texts.context};
    TR_TRY(tr_generator_create(&params, &p->generator));
    return tr_generator_build(s, p->generator);
}

static tr_status_t serve_open_texts(serve_t *p) {
    const tr_trained_params_t params = {.weights = p->o->weights,
                                        .purpose = TR_SESSION_BUILD,
                                        .build = serve_build,
                                        .build_self = p};
    p->trained.world = p->world;
    p->trained.config = p->config;
    TR_TRY(tr_trained_open(&params, &p->trained));
    const tr_preprocess_t *kept = p->trained.preprocess;
    if (!kept || !kept->tokenizer)
        return TR_FAIL(TR_ERR_DATA,
                       "%s has no tokenizer: name a checkpoint whose training data `trainer import "
                       "text` made, or a folder with vocab.json and merges.txt",
                       p->trained.weights_path);
    TR_TRY(tr_tokenizer_from_json(kept->tokenizer, p->trained.weights_path, &p->tokenizer));
    TR_TRY(tr_generator_start(p->generator, p->tokenizer));
    p->texts.name = p->name;
    p->texts.tokenizer = p->tokenizer;
    p->engine.generator = p->generator;
    p->engine.context = p->texts.context;
    p->engine.metrics = &p->metrics;
    tr_text_engine_open(&p->engine, p->o->waiting);
    p->model.texts = &p->texts;
    p->model.engine = &p->engine;
    p->model.device = p->trained.s->device;
    return TR_OK;
}

static tr_status_t serve_open_predictor(serve_t *p) {
    const char *option = p->o->slots > 0        ? "--slots"
                         : p->o->context > 0    ? "--context"
                         : p->o->type != TR_F32 ? "--weights"
                                                : NULL;
    if (option)
        return TR_FAIL(TR_ERR_USAGE, "%s is for models of type gpt, and %s predicts: leave it out",
                       option, p->o->weights);
    TR_TRY(tr_predictor_open(p->config, p->world, p->o->weights, &p->predictor));
    p->predict =
        (tr_predict_t){.predictor = p->predictor, .model = p->name, .metrics = &p->metrics};
    p->model.predict = &p->predict;
    TR_TRY(tr_predict_open(&p->predict, p->o->waiting));
    p->model.device = tr_predictor_device(p->predictor);
    return TR_OK;
}

static tr_status_t serve_open_model(serve_t *p) {
    const cmd_trained_params_t params = {.settings = p->o->settings,
                                         .model.weights = p->o->weights};
    tr_model_settings_t settings;
    const tr_model_t *model;
    TR_TRY(cmd_world_open(&p->world));
    TR_TRY(cmd_trained_config(p->world, &params, &p->config));
    tr_config_read(p->config, &tr_model_config, &settings);
    TR_TRY(tr_model_find(settings.type, &model));
    return model->tokens ? serve_open_texts(p) : serve_open_predictor(p);
}

static void serve_close_model(serve_t *p) {
    if (p->model.engine) tr_text_engine_close(&p->engine);
    if (p->model.predict) tr_predict_close(&p->predict);
    tr_generator_destroy(&p->generator);
    tr_tokenizer_destroy(&p->tokenizer);
    tr_predictor_close(&p->predictor);
    tr_trained_close(&p->trained);
    tr_config_destroy(&p->config);
}

/* -- running ----------------------------------------------------------------------------------- */

static tr_status_t serve_listen(serve_t *p) {
    const serve_options_t *o = p->o;
    tr_str_t token = {0};
    struct in_addr address;
    const bool is_loopback =
        strcmp(p->host, "::1") == 0 ||
        (inet_pton(AF_INET, p->host, &address) == 1 && ntohl(address.s_addr) >> 24 == 127);
    if (!is_loopback && !o->token_file)
        return TR_FAIL(TR_ERR_USAGE,
                       "--host %s: other machines can reach this address: give --token-file, or "
                       "use 127.0.0.1 and a tunnel of ssh",
                       o->host);
    p->makes_token = o->token_file && access(o->token_file, F_OK) != 0;
    if (o->token_file) TR_TRY(tr_token_read("--token-file", o->token_file, true, &token));
    const tr_api_params_t params = {.address = p->host,
                                    .port = (int)o->port,
                                    .token = token.text,
                                    .requests =
                                        (o->slots > 0 ? o->slots : MOST_SLOTS) + o->waiting};
    const tr_status_t status = tr_api_start(&params, &p->api);
    tr_str_free(&token);
    return status;
}

static tr_status_t serve_announce(const serve_t *p) {
    char url[320], text[96], caches[32], rest[32];
    if (p->generator) {
        const tr_session_t *s = p->trained.s;
        const tr_memory_plan_t m = tr_graph_memory(s->g);
        printf("model    %s: %s, %.1f M parameters in %s, %s\n", p->name, s->model.type,
               (double)s->parameters / 1e6, cmd_weight_type(p->o->type), p->trained.weights_path);
        printf("device   %s\n", s->device->description);
        printf("memory   weights %s, caches %s (%lld slots of %lld tokens), work %s\n",
               tr_format_bytes((double)(m.params + m.copies), text),
               tr_format_bytes((double)m.caches, caches), (long long)p->engine.slots,
               (long long)p->texts.context,
               tr_format_bytes((double)(m.total - m.params - m.copies - m.caches), rest));
    } else {
        const tr_predictor_info_t *info = tr_predictor_info(p->predictor);
        printf("model    %s: samples of shape %s, %lld %s, %s\n", p->name,
               tr_shape_format(&info->shape, text), (long long)info->outputs,
               info->classes > 0 ? "classes" : "targets", info->weights);
        printf("device   %s\n", p->model.device->description);
    }
    /* where others reach the server: its address, or for all addresses the name of this node */
    const char *host = p->host;
    if (strcmp(host, "0.0.0.0") == 0 || strcmp(host, "::") == 0) host = tr_host_name();
    tr_snprintf(url, sizeof url, strchr(host, ':') ? "http://[%s]:%d\n" : "http://%s:%d\n", host,
                tr_api_port(p->api));
    if (p->o->token_file)
        printf("token    required, in %s%s\n", p->o->token_file,
               p->makes_token ? " (a new file)" : "");
    printf("address  %sready\n", url);
    fflush(stdout);
    return p->o->address_file
               ? tr_replace_file(p->o->address_file, url, strlen(url), TR_REPLACE_LINKED)
               : TR_OK;
}

/* -- asked to stop ----------------------------------------------------------------------------- */

#define WATCH_ENDS (1ull << 32) /* more than all signals */
static int asked_fd = -1;       /* an eventfd; the handler adds 1 */
static const int end_signals[] = {SIGINT, SIGTERM, SIGHUP};

static void serve_note_signal(int number) {
    const uint64_t one = 1;
    (void)number, (void)!write(asked_fd, &one, sizeof one);
}

/* The first signal lets requests end, the second one ends them. */
static void *serve_watch(void *self) {
    const serve_t *p = self;
    uint64_t asked = 0, count;
    while (read(asked_fd, &count, sizeof count) == sizeof count && count < WATCH_ENDS) {
        asked += count;
        if (asked == 1)
            TR_INFO("shutting down: running requests have %g s to finish", p->o->drain_sec);
        tr_api_drain(p->api, &p->model, asked == 1 ? p->o->drain_sec : 0);
    }
    return NULL;
}

static void serve_handle_signals(void (*handler)(int number)) {
    const struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
    struct sigaction before;
    for (size_t i = 0; i < TR_COUNT(end_signals); i++)
        if (sigaction(end_signals[i], NULL, &before) == 0 && before.sa_handler != SIG_IGN)
            sigaction(end_signals[i], &action, NULL); /* ignored ones (nohup) stay ignored */
}

/* Serves until a signal. Before and after it the signals end the program. */
static tr_status_t serve_until_asked(serve_t *p) {
    const uint64_t ends = WATCH_ENDS;
    pthread_t thread;
    asked_fd = eventfd(0, EFD_CLOEXEC);
    if (asked_fd < 0 || tr_thread_start("serve-signals", serve_watch, p, &thread) != 0)
        return TR_FAIL(TR_ERR_MEMORY, "cannot start a thread");
    serve_handle_signals(serve_note_signal);
    tr_status_t status = serve_announce(p);
    if (status == TR_OK) status = tr_api_serve(p->api, &p->model);
    if (p->o->address_file) unlink(p->o->address_file);
    serve_handle_signals(SIG_DFL);
    (void)!write(asked_fd, &ends, sizeof ends);
    pthread_join(thread, NULL);
    close(asked_fd);
    return status;
}

/* -- the command ------------------------------------------------------------------------------- */

/* The name of the model: JSON cannot have it in other bytes than UTF-8. */
static tr_status_t serve_name(const serve_options_t *o, char name[256]) {
    char path[4096];
    tr_snprintf(path, sizeof path, "%s", o->weights);
    for (size_t end = strlen(path); end > 1 && path[end - 1] == '/';) path[--end] = '\0';
    tr_snprintf(name, 256, "%s", o->name ? o->name : tr_file_name(path));
    if (name[0] && tr_utf8_bytes(name, strlen(name)) == strlen(name)) return TR_OK;
    return TR_FAIL(TR_ERR_USAGE, "expected a name of the model in UTF-8, found '%s': give --name",
                   name);
}

static tr_status_t serve_run(void *options) {
    const serve_options_t *o = options;
    serve_t p = {.o = o,
                 .host = strcmp(o->host, "localhost") == 0 ? "127.0.0.1" : o->host,
                 .model = {.version = cmd_version}};
    tr_status_t status;
    if (tr_launch_tasks() > 1)
        return TR_FAIL(TR_ERR_USAGE,
                       "serve: expected one process, found %lld: start a server for "
                       "each device, behind a proxy",
                       (long long)tr_launch_tasks());
    TR_TRY(serve_name(o, p.name));
    p.model.name = p.name;
    p.model.metrics = &p.metrics;
    tr_serve_metrics_open(&p.metrics, p.name);
    TR_TRY_GOTO(serve_listen(&p), done);
    TR_TRY_GOTO(serve_open_model(&p), done);
    status = serve_until_asked(&p);
done:
    if (status != TR_OK) cmd_say_error(status); /* the end of a broken device has errors too */
    tr_api_stop(&p.api);
    serve_close_model(&p);
    tr_serve_metrics_close(&p.metrics);
    if (status == TR_OK) cmd_world_close(&p.world);
    return status;
}

static const cmd_argument_t arguments[] = {
    {"RUN|CHECKPOINT|FOLDER", offsetof(serve_options_t, weights), CMD_REQUIRED, NULL},
    {"[key=value ...]", offsetof(serve_options_t, settings), CMD_SETTINGS, NULL},
};

static const cmd_option_t options[] = {
    CMD_OPTION_INT(serve_options_t, port, "--port", "N", "8080", 0, 65535,
                   "The port; 0 takes a free one."),
    CMD_OPTION_TEXT(
        serve_options_t, host, "--host", "ADDRESS", "127.0.0.1",
        "The numeric IP address to listen at, or localhost. Addresses that other machines "
        "reach require --token-file."),
    CMD_OPTION_TEXT(
        serve_options_t, token_file, "--token-file", "FILE", NULL,
        "Requires the token in FILE of every request but GET /health, as Authorization: "
        "Bearer TOKEN. A missing file is created, with a random token."),
    CMD_OPTION_TEXT(serve_options_t, address_file, "--address-file", "FILE", NULL,
                    "Writes the address to FILE when the server is ready, and removes it at the "
                    "end."),
    CMD_OPTION_TEXT(serve_options_t, name, "--name", "NAME", NULL,
                    "The name of the model in the API; by default the last part of its path."),
    CMD_OPTION_AUTO_INT(serve_options_t, slots, "--slots", "N", 1, MOST_WAITING,
                        "Texts at once. auto: up to 16 whose caches fit into a quarter of the "
                        "memory."),
    CMD_OPTION_AUTO_INT(
        serve_options_t, context, "--context", "N", 1, INT32_MAX,
        "The tokens that a text may have, with its prompt: the caches shrink with it. auto: "
        "those of the model."),
    CMD_OPTION_INT(
        serve_options_t, waiting, "--queue", "N", "64", 0, MOST_WAITING,
        "Requests that may wait beside one for each slot; others are refused with status "
        "429."),
    CMD_OPTION_DURATION(serve_options_t, drain_sec, "--drain", "SEC", "75s", 0, 86400,
                        "Time that requests have to end after the signals TERM, INT or HUP. A "
                        "second signal ends them."),
    CMD_OPTION_ENUM(serve_options_t, type, "--weights", "fp32", CMD_WEIGHT_TYPES,
                    "The type in which matrices, and the keys and values of earlier tokens, are "
                    "held. bf16 and fp16 take half the memory and read half as many bytes for "
                    "each token."),
};

const cmd_command_t cmd_serve = {
    .name = "serve",
    .runs = CMD_ON_RANKS,
    .summary = "Keeps a trained model loaded and answers requests over HTTP.",
    .help = "Models of type gpt continue texts: POST /v1/completions is OpenAI's API. Other models "
            "predict: POST /predict. GET / is a page to try the model. RUN, CHECKPOINT and FOLDER "
            "are as for generate and predict. docs/serving.md describes the requests.",
    CMD_ARGUMENTS(serve_options_t),
    CMD_OPTIONS,
    .run = serve_run,
};
