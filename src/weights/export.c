#include "export.h"
#include "text/tokenizer.h"

static tr_status_t add(tr_checkpoint_texts_t *texts, const char *name, char *text) {
    tr_checkpoint_text_t file = {.text = text};
    tr_status_t status = tr_strdup(name, &file.name);
    if (status == TR_OK) status = tr_vec_push(texts, file);
    if (status == TR_OK) return TR_OK;
    tr_free(&file.name);
    tr_free(&file.text);
    return status;
}

static tr_status_t add_tokenizer(const tr_tokenizer_t *tokenizer, tr_checkpoint_texts_t *out) {
    const char *name = "";
    for (int i = 0; tokenizer; i++) {
        char *text = NULL;
        TR_TRY(tr_tokenizer_file(tokenizer, i, &name, &text));
        if (!name) break;
        TR_TRY(add(out, name, text));
    }
    return TR_OK;
}

static tr_status_t add_config(const tr_session_t *s, const tr_model_t *model, int64_t end,
                              tr_checkpoint_texts_t *out) {
    tr_str_t config = {0};
    char *text = NULL;
    model->describe(s->config, s->info.classes, end, &config);
    TR_TRY(tr_str_take(&config, &text));
    return add(out, "config.json", text);
}

tr_status_t tr_export_files(const tr_session_t *s, tr_checkpoint_texts_t *out) {
    const tr_preprocess_t *told = s->preprocess;
    const tr_model_t *model;
    tr_tokenizer_t *tokenizer = NULL;
    TR_TRY(tr_model_find(s->model.type, &model));
    if (!model->describe) return TR_OK;
    if (told->tokenizer) TR_TRY(tr_tokenizer_from_json(told->tokenizer, told->origin, &tokenizer));
    tr_status_t status = add_config(s, model, tokenizer ? tokenizer->end : -1, out);
    if (status == TR_OK) status = add_tokenizer(tokenizer, out);
    tr_tokenizer_destroy(&tokenizer);
    return status;
}
