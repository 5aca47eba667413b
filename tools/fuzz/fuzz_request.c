/*
 * Fuzz entry for requests of `trainer serve`. The first byte chooses a request for texts, samples as
 * JSON or samples as .npy; the rest is its body. Any body is read, or is an error of the request; no
 * prompt is longer than the context, and nothing leaks.
 */
#include "base/mem.h"
#include "serve/completion.h"
#include "serve/predict.h"

#include <string.h>

static void demand(bool holds) {
    if (!holds) __builtin_trap();
}

static void check_completion(const tr_text_model_t *model, const char *body, size_t bytes) {
    tr_completion_t c = {0};
    json_t *request;
    tr_status_t status = tr_json_request(body, bytes, &request);
    demand(status == TR_OK || status == TR_ERR_DATA);
    if (status != TR_OK) return;
    status = tr_completion_read(model, request, &c);
    demand(status == TR_OK || status == TR_ERR_DATA || status == TR_ERR_NOINPUT);
    if (status == TR_OK) {
        demand(c.generation.count > 0 && c.generation.count <= TR_CHOICES && c.most > 0);
        for (size_t i = 0; i < c.generation.count; i++)
            demand((int64_t)c.generation.choices[i].text.ids.count <= model->context);
        json_t *text = tr_completion_prompt_text(&c, &c.generation.choices[0]);
        demand(json_is_string(text));
        json_decref(text);
    }
    tr_completion_free(&c);
}

static void check_samples(bool is_json, const char *body, size_t bytes) {
    const tr_predictor_info_t info = {
        .dtype = TR_F32, .shape = TR_SHAPE(2, 3), .sample_bytes = 6 * sizeof(float), .outputs = 4};
    tr_samples_t samples;
    const tr_status_t status =
        (is_json ? tr_samples_of_json : tr_samples_of_npy)(&info, body, bytes, &samples);
    demand(status == TR_OK || status == TR_ERR_DATA);
    if (status == TR_OK)
        for (int64_t i = 0; i < 6 * samples.count; i++) demand(((float *)samples.x)[i] < 1e39f);
    tr_free(&samples.x);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static tr_tokenizer_t *tokenizer;
    char *body = NULL;
    if (size == 0) return 0;
    if (!tokenizer) demand(tr_tokenizer_create("bytes", &tokenizer) == TR_OK);
    const tr_text_model_t model = {.name = "m", .tokenizer = tokenizer, .context = 64};
    const int64_t live = tr_mem_stats().live;
    demand(tr_alloc(size, "a body", &body) == TR_OK);
    memcpy(body, data + 1, size - 1);
    if (data[0] % 4 < 2)
        check_completion(&model, body, size - 1);
    else
        check_samples(data[0] % 4 == 2, body, size - 1);
    tr_free(&body);
    demand(tr_mem_stats().live == live);
    return 0;
}
