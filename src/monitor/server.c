/* Answers requests about a run that trains. */
#include "server.h"

#include "base/file.h"
#include "base/host.h"
#include "base/json_text.h"
#include "base/mem.h"
#include "comm/watchdog.h"
#include "http/http.h"
#include "live_page.h"
#include "run/run.h"
#include "run/while_running.h"
#include "token.h"
#include "trainer/log.h"
#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CONNECTIONS = 64 };
static const char *const file_names[] = {"monitor", "monitor.json"};

struct tr_server {
    tr_server_params_t params;
    char *dir;
    tr_http_t *http;
};

/* -- answers ----------------------------------------------------------------------------------- */

/* Whether the run makes progress. Half of the time after which the watchdog would end it: whoever
 * asks hears of it before. */
static bool server_is_healthy(const tr_server_t *s, double *out_silent_sec) {
    double limit_sec;
    *out_silent_sec = NAN;
    return !tr_watchdog_silent(s->params.world, out_silent_sec, &limit_sec) ||
           *out_silent_sec <= limit_sec / 2;
}

static tr_status_t server_health(const tr_server_t *s, tr_http_reply_t *reply) {
    double silent_sec;
    if (server_is_healthy(s, &silent_sec)) {
        tr_str_append(&reply->body, "ok\n");
    } else {
        reply->status = 503;
        tr_str_printf(&reply->body, "no progress for %.1f s\n", silent_sec);
    }
    return TR_OK;
}

/* What the page and status.json show. */
typedef struct {
    tr_record_t record;
    tr_live_t live;
    tr_rank_times_t *ranks;
} view_t;

static tr_status_t view_open(const tr_server_t *s, view_t *v) {
    const int size = tr_world_info(s->params.world)->size;
    tr_status_t status;
    *v = (view_t){.live.record = NULL};
    TR_TRY(tr_board_view(s->params.board, &v->record));
    status = tr_alloc((size_t)size * sizeof *v->ranks, "times of ranks", &v->ranks);
    if (status != TR_OK) tr_record_free(&v->record);
    TR_TRY(status);
    v->live = (tr_live_t){.record = &v->record,
                          .job = tr_board_job(s->params.board),
                          .version = s->params.version,
                          .rank_count = size,
                          .lost = tr_board_lost(s->params.board)};
    if (tr_watchdog_times(s->params.world, v->ranks)) v->live.ranks = v->ranks;
    v->live.is_healthy = server_is_healthy(s, &v->live.silent_sec);
    return TR_OK;
}

static void server_compose_status(const tr_server_t *s, const view_t *v, tr_str_t *out) {
    const tr_newest_t n = tr_newest_of(&v->record);
    json_t *folder = json_string(s->dir); /* NULL: not UTF-8 */
    if (!folder) folder = json_null();
    json_t *o = json_pack(
        "{s:s, s:o, s:s, s:s, s:b, s:o, s:I, s:I, s:o, s:o, s:I, s:O?, s:O?, s:I, s:I, s:O, s:I}",
        "run", v->record.name, "folder", folder, "job", v->live.job, "version", s->params.version,
        "healthy", v->live.is_healthy, "silent_sec", tr_json_measured(v->live.silent_sec), "step",
        (json_int_t)(n.step > 0 ? n.step : 0), "steps", (json_int_t)v->record.steps, "eta_sec",
        tr_json_measured(n.eta_sec), "best_valid_loss", tr_json_finite(n.best_loss), "best_step",
        (json_int_t)n.best_step, "train", v->record.last_line, "valid", v->record.last_validation,
        "lines_lost", (json_int_t)v->live.lost, "ranks", (json_int_t)v->live.rank_count, "sessions",
        v->record.sessions, "hosts", (json_int_t)v->record.nodes);
    json_t *ranks = json_array();
    for (int i = 0; v->live.ranks && i < v->live.rank_count; i++)
        json_array_append_new(
            ranks, json_pack("{s:i, s:s, s:f, s:f, s:f}", "rank", i, "host", v->ranks[i].host,
                             "compute_sec", v->ranks[i].compute_sec, "data_sec",
                             v->ranks[i].data_sec, "wait_sec", v->ranks[i].wait_sec));
    if (o) json_object_set(o, "rank_times", ranks);
    json_decref(ranks);
    char *text = o ? json_dumps(o, JSON_INDENT(1)) : NULL;
    json_decref(o);
    if (text) {
        tr_json_shorten(text);
        tr_str_printf(out, "%s\n", text);
    } else {
        out->status = TR_ERR_MEMORY;
    }
    free(text);
}

static tr_status_t server_show(const tr_server_t *s, bool is_page, tr_http_reply_t *reply) {
    view_t v;
    TR_TRY(view_open(s, &v));
    reply->type = is_page ? "text/html; charset=utf-8" : "application/json";
    if (is_page) {
        tr_record_read_pictures(s->dir, &v.record);
        tr_live_page(&v.live, &reply->body);
    } else {
        server_compose_status(s, &v, &reply->body);
    }
    tr_free(&v.ranks);
    tr_record_free(&v.record);
    return TR_OK;
}

static void server_answer(void *self, const tr_http_request_t *request, tr_http_reply_t *reply) {
    const tr_server_t *s = self;
    tr_status_t status = TR_OK;
    if (strcmp(request->path, "/healthz") == 0) {
        status = server_health(s, reply);
    } else if (strcmp(request->path, "/metrics") == 0) {
        reply->type = "text/plain; version=0.0.4; charset=utf-8";
        tr_board_metrics(s->params.board, &reply->body);
    } else if (strcmp(request->path, "/status.json") == 0 || strcmp(request->path, "/") == 0) {
        status = server_show(s, request->path[1] == '\0', reply);
    } else {
        reply->status = 404;
        tr_str_append(&reply->body, "there are: / /metrics /status.json /healthz\n");
    }
    if (status != TR_OK) reply->status = 500;
}

/* -- start and stop ---------------------------------------------------------------------------- */

static tr_status_t server_write(const tr_server_t *s, const char *name, const char *text) {
    char path[4096];
    TR_TRY(tr_path_join(s->dir, name, path));
    tr_while_running_add(path);
    return tr_replace_file(path, text, strlen(text), TR_REPLACE_LINKED);
}

/* Where others reach the server: an address, or for all addresses the name of this node. */
static tr_status_t server_write_place(const tr_server_t *s, const char *bind) {
    char place[320], url[360];
    tr_status_t status;
    const bool is_any = strcmp(bind, "0.0.0.0") == 0 || strcmp(bind, "::") == 0;
    snprintf(place, sizeof place, !is_any && strchr(bind, ':') ? "[%s]:%d" : "%s:%d",
             is_any ? tr_host_name() : bind, tr_http_port(s->http));
    snprintf(url, sizeof url, "http://%s\n", place);
    json_t *list = json_pack("[{s:[s], s:{s:s, s:s}}]", "targets", place, "labels", "run",
                             tr_board_run(s->params.board), "job", tr_board_job(s->params.board));
    char *text = list ? json_dumps(list, JSON_INDENT(1)) : NULL;
    json_decref(list);
    status = server_write(s, file_names[0], url);
    if (status == TR_OK) status = server_write(s, file_names[1], text ? text : "[]");
    free(text);
    TR_TRY(status);
    TR_INFO("monitor at http://%s, see docs/monitoring.md", place);
    return TR_OK;
}

static tr_status_t server_open(tr_server_t *s, const tr_monitor_settings_t *settings) {
    const bool is_auto = strcmp(settings->token_file, "auto") == 0;
    char path[4096];
    tr_str_t token = {0};
    tr_http_params_t http = {.address = settings->bind,
                             .port = (int)settings->port,
                             .open_path = "/healthz",
                             .connections = CONNECTIONS,
                             .handler = server_answer,
                             .self = s};
    tr_status_t status;
    if (is_auto) TR_TRY(tr_path_join(s->dir, "token", path));
    TR_TRY_GOTO(
        tr_token_read("monitor.token_file", is_auto ? path : settings->token_file, is_auto, &token),
        done);
    http.token = token.text;
    status = tr_http_start(&http, &s->http);
    if (status != TR_OK && s->params.is_resumed && http.port > 0) {
        TR_WARN("monitor.port = %d: %s; another port is used", http.port, tr_error_last()->message);
        http.port = 0;
        status = tr_http_start(&http, &s->http);
    }
    if (status != TR_OK) {
        char why[512];
        tr_snprintf(why, sizeof why, "%s", tr_error_last()->message);
        status = TR_FAIL(status, "monitor.port = %d, monitor.bind = %s: %s", http.port,
                         settings->bind, why);
        goto done;
    }
    status = server_write_place(s, settings->bind);
done:
    tr_str_free(&token);
    return status;
}

tr_status_t tr_server_start(const tr_monitor_settings_t *settings, const tr_server_params_t *params,
                            tr_server_t **out) {
    tr_server_t *s = NULL;
    *out = NULL;
    if (settings->port < 0) return TR_OK;
    TR_TRY(tr_alloc(sizeof *s, "server", &s));
    s->params = *params;
    tr_status_t status = tr_strdup(params->dir, &s->dir);
    if (status == TR_OK) status = server_open(s, settings);
    if (status == TR_OK) {
        *out = s;
        return TR_OK;
    }
    tr_server_stop(&s);
    if (!params->is_resumed) return status;
    TR_WARN("the run is not shown over HTTP, training continues: %s", tr_error_last()->message);
    return TR_OK;
}

void tr_server_stop(tr_server_t **stopping) {
    tr_server_t *s = *stopping;
    char path[4096];
    if (!s) return;
    const bool has_files = s->http != NULL;
    tr_http_stop(&s->http);
    for (size_t i = 0; i < TR_COUNT(file_names) && has_files; i++)
        if (tr_path_join(s->dir, file_names[i], path) == TR_OK) tr_while_running_remove(path);
    tr_free(&s->dir);
    tr_free(stopping);
}
