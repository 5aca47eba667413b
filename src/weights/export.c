/* The files of a checkpoint for other programs: config.json, generation_config.json and the
 * tokenizer's. */
#include "export.h"
#include "text/tokenizer.h"

static tr_status_t texts_add(tr_checkpoint_texts_t *texts, const char *name, char *text) {
    tr_checkpoint_text_t file = {.text = text};
    tr_status_t status = tr_strdup(name, &file.name);
    if (status == TR_OK) status = tr_vec_push(texts, file);
    if (status == TR_OK) return TR_OK;
    tr_free(&file.name);
    tr_free(&file.text);
    return status;
}

/* What ends a generated text, where that is not the end-of-text token of config.json alone. */
static tr_status_t export_ends(const tr_tokenizer_t *tokenizer, tr_checkpoint_texts_t *texts) {
    tr_str_t file = {0};
    char *text = NULL;
    tr_str_printf(&file, "{\n  \"bos_token_id\": %d,\n  \"eos_token_id\": [", (int)tokenizer->end);
    for (size_t i = 0; i < tokenizer->ends.count; i++)
        tr_str_printf(&file, "%s%d", i > 0 ? ", " : "", (int)tokenizer->ends.data[i]);
    tr_str_append(&file, "]\n}\n");
    TR_TRY(tr_str_take(&file, &text));
    return texts_add(texts, "generation_config.json", text);
}

tr_status_t tr_export_files(const tr_session_t *s, tr_checkpoint_texts_t *out) {
    const tr_preprocess_t *preprocess = s->preprocess;
    const tr_model_t *model;
    tr_tokenizer_t *tokenizer = NULL;
    tr_str_t config = {0};
    char *text = NULL;
    const char *name = "";
    TR_TRY(tr_model_find(s->model.type, &model));
    if (!model->describe) return TR_OK;
    if (preprocess->tokenizer)
        TR_TRY(tr_tokenizer_from_json(preprocess->tokenizer, preprocess->origin, &tokenizer));
    model->describe(s->config, s->info.classes, tokenizer ? tokenizer->end : -1, &config);
    tr_status_t status = tr_str_take(&config, &text);
    if (status == TR_OK) status = texts_add(out, "config.json", text);
    for (int i = 0; tokenizer && status == TR_OK; i++) {
        status = tr_tokenizer_file(tokenizer, i, &name, &text);
        if (!name) break;
        if (status == TR_OK) status = texts_add(out, name, text);
    }
    if (status == TR_OK && tokenizer && tokenizer->ends.count > 0)
        status = export_ends(tokenizer, out);
    tr_tokenizer_destroy(&tokenizer);
    return status;
}
