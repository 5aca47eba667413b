/*
 * POST /generate and GET /info: a small API for texts that courses about serving a model use. Not
 * collective.
 */
#ifndef TR_SERVE_EXERCISE_H
#define TR_SERVE_EXERCISE_H

#include "completion.h"
#include "device/device.h"

/* {"prompt" or "prompts", "max_length": 50, "temperature": 0.7, "seed"}: max_length counts the
 * prompt's tokens. Sets reply->status; `why` where it is not 200. */
void tr_exercise_generate(tr_text_engine_t *engine, const tr_text_model_t *model,
                          const tr_device_t *device, const tr_http_request_t *request,
                          tr_http_reply_t *reply, char why[512]);
/* Whether a path is one of this API. */
bool tr_is_exercise(const char *path);
/* {"error": MESSAGE}, with every status. New reference. */
json_t *tr_exercise_error(const char *message);
/* New reference. */
json_t *tr_exercise_info(const tr_device_t *device, const char *model);

#endif
