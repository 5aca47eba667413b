/*
 * The HTTP API of one model: its routes, and what they answer before the model is loaded, while it
 * serves and when it ends. Not collective.
 */
#ifndef TR_SERVE_API_H
#define TR_SERVE_API_H

#include "completion.h"
#include "device/device.h"
#include "predict.h"

/* What is served; all are borrowed. Either `engine` and `texts` or `predict` is not NULL. */
typedef struct {
    const char *name, *version;
    const tr_device_t *device;
    tr_serve_metrics_t *metrics;
    tr_text_engine_t *engine;
    const tr_text_model_t *texts;
    tr_predict_t *predict;
} tr_api_model_t;

typedef struct {
    const char *address;
    int port;          /* 0: a free one */
    const char *token; /* NULL: none is required */
    int64_t requests;  /* that are served or wait, at most */
} tr_api_params_t;

typedef struct tr_api tr_api_t;
/* Listens; until tr_api_serve every request but GET /health is answered with 503, and that one too.
 * Errors as tr_http_start. */
tr_status_t tr_api_start(const tr_api_params_t *params, tr_api_t **out);
int tr_api_port(const tr_api_t *api);
/* Serves the model on this thread until tr_api_drain, or until an error of the device, which is
 * TR_ERR_RETRY: the program should be started again. Then all replies have been sent. */
tr_status_t tr_api_serve(tr_api_t *api, const tr_api_model_t *model);
/* Any thread: refuses new requests for the model; tr_api_serve returns when the others are done, after
 * at most `sec`. With 0 it does not wait for clients that read their replies slowly either. */
void tr_api_drain(tr_api_t *api, const tr_api_model_t *model, double sec);
void tr_api_stop(tr_api_t **api);

/* The page of GET /: what was loaded, and a form to try it. */
void tr_api_page(const tr_api_model_t *model, tr_str_t *out);

#endif
