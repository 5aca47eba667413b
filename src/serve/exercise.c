/* The API used in courses. */
#include "exercise.h"

#include "base/clock.h"
#include "base/json_text.h"
#include "base/mem.h"
#include <math.h>
#include <stdlib.h>
#include <string.h>

enum { MAX_LENGTH = 50 };
#define GB 1e9

static const char *device_kind(const tr_device_t *device) {
    return device->capability > 0 ? "cuda" : "cpu";
}

/* False: no GPU. */
static bool device_sample(const tr_device_t *device, tr_gpu_sample_t *out) {
    size_t count;
    const tr_backend_t *const *list = tr_backend_list(&count);
    for (size_t i = 0; device->capability > 0 && i < count; i++)
        if (list[i]->sample && list[i]->sample(device->bus_id, out, 1) > 0) return true;
    return false;
}

bool tr_is_exercise(const char *path) {
    return strcmp(path, "/generate") == 0 || strcmp(path, "/info") == 0;
}

json_t *tr_exercise_error(const char *message) {
    return json_pack("{s:o}", "error", tr_json_text(message, strlen(message)));
}

json_t *tr_exercise_info(const tr_device_t *device, const char *model) {
    tr_gpu_sample_t gpu;
    const bool has_gpu = device_sample(device, &gpu);
    return json_pack(
        "{s:s, s:b, s:s, s:s?, s:o, s:o}", "device", device_kind(device), "cuda_available",
        device->capability > 0, "model", model, "gpu_name", has_gpu ? gpu.name : NULL,
        "gpu_memory_total_gb", tr_json_finite(has_gpu ? gpu.total_bytes / GB : NAN),
        "gpu_memory_allocated_gb", tr_json_finite(has_gpu ? gpu.used_bytes / GB : NAN));
}

/* `prompt` is one text, `prompts` a list; the reply has the same form. */
static tr_status_t exercise_read(const tr_text_model_t *model, json_t *request,
                                 tr_completion_t *c) {
    static const char *const known[] = {"prompt", "prompts", "max_length", "temperature", "seed"};
    const json_t *one = json_object_get(request, "prompt"),
                 *list = json_object_get(request, "prompts");
    int64_t length = MAX_LENGTH, seed = -1;
    *c = (tr_completion_t){.model = model,
                           .request = request,
                           .sampling = {.temperature = 0.7, .top_p = 1},
                           .n = 1,
                           .logprobs = -1};
    TR_TRY(tr_json_check_fields(request, known, TR_COUNT(known), NULL, 0));
    TR_TRY(tr_json_take_int(request, "max_length", 1, INT32_MAX, &length));
    TR_TRY(tr_json_take_real(request, "temperature", 0, 100, &c->sampling.temperature));
    TR_TRY(tr_json_take_int(request, "seed", 0, INT64_MAX, &seed));
    c->sampling.seed = seed >= 0 ? (uint64_t)seed : tr_draw_seed();
    if (!one == !list)
        return TR_FAIL(TR_ERR_DATA, "expected one of the fields prompt and prompts, found %s",
                       one ? "both" : "neither");
    if (list && !json_is_array(list)) return tr_json_unexpected("prompts", "a list", list);
    if (one && (!json_is_string(one) || json_string_length(one) == 0))
        return tr_json_unexpected("prompt", "a string that is not empty", one);
    TR_TRY(tr_completion_set_prompts(c, one ? "prompt" : "prompts", one ? one : list));
    for (size_t i = 0; i < c->generation.count; i++) {
        tr_text_t *text = &c->generation.choices[i].text;
        text->most = length - (int64_t)text->ids.count;
        if (text->ids.count == 0)
            return TR_FAIL(TR_ERR_DATA, "prompts: expected strings that are not empty");
        if (text->most < 1)
            return TR_FAIL(TR_ERR_DATA,
                           "max_length, which counts the prompt: expected more than its %zu "
                           "tokens, found %s%lld",
                           text->ids.count,
                           json_object_get(request, "max_length") ? "" : "the default, ",
                           (long long)length);
    }
    return TR_OK;
}

static json_t *exercise_compose(const tr_completion_t *c, const tr_device_t *device, double sec) {
    const bool is_one = json_object_get(c->request, "prompt") != NULL;
    tr_gpu_sample_t gpu;
    json_t *prompts = json_array(), *texts = json_array();
    double tokens = 0;
    for (size_t i = 0; i < c->generation.count; i++) {
        const tr_choice_t *choice = &c->generation.choices[i];
        json_array_append_new(prompts, tr_completion_prompt_text(c, choice));
        json_array_append_new(texts, tr_completion_with_prompt(c, choice, choice->out.text.text,
                                                               choice->out.text.length));
        tokens += (double)choice->tokens.count;
    }
    json_t *object = json_pack(
        "{s:O, s:O, s:s, s:f, s:f, s:o, s:I}", "prompt",
        is_one ? json_array_get(prompts, 0) : prompts, "generated_text",
        is_one ? json_array_get(texts, 0) : texts, "device", device_kind(device),
        "inference_time_seconds", sec, "tokens_per_second", tokens / sec, "gpu_memory_used_gb",
        tr_json_finite(device_sample(device, &gpu) ? gpu.used_bytes / GB : 0), "seed",
        (json_int_t)c->sampling.seed);
    json_decref(prompts);
    json_decref(texts);
    return object;
}

void tr_exercise_generate(tr_text_engine_t *engine, const tr_text_model_t *model,
                          const tr_device_t *device, const tr_http_request_t *request,
                          tr_http_reply_t *reply, char why[512]) {
    const double begin = tr_clock_sec();
    tr_completion_t c = {0};
    json_t *object = NULL;
    tr_status_t status = tr_json_request(request->body, request->body_bytes, &object);
    if (status == TR_OK) status = exercise_read(model, object, &c);
    if (status == TR_OK) {
        reply->status = tr_queue_serve(&engine->queue, &c.generation.job, request->client, why);
    } else {
        reply->status = tr_json_status(status);
        tr_snprintf(why, 512, "%s", tr_error_last()->message);
    }
    if (reply->status == 200) {
        object = exercise_compose(&c, device, tr_clock_sec() - begin);
        char *text = json_dumps(object, JSON_REAL_PRECISION(9));
        tr_str_printf(&reply->body, "%s\n", text ? text : "null");
        free(text);
        json_decref(object);
    }
    tr_completion_free(&c);
}
