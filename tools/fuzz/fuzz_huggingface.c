/*
 * Fuzz entry for a folder of Hugging Face. The input is config.json, a zero byte, tokenizer.json, a
 * zero byte, and model.safetensors.index.json; an empty part is no file. Without an index the
 * folder has weights without tensors. Any bytes give sizes and a tokenizer, or an error.
 */
#include "text/tokenizer.h"
#include "weights/huggingface.h"
#include "session/session.h"
#include "weights/state.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[512];

static void demand(bool holds) {
    if (!holds) __builtin_trap();
}

static void write_file(const char *name, const void *bytes, size_t count) {
    char path[600];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    if (count == 0) {
        unlink(path);
        return;
    }
    FILE *file = fopen(path, "wb");
    demand(file && fwrite(bytes, 1, count, file) == count && fclose(file) == 0);
}

static void make_folder(void) {
    const char *at = getenv("TMPDIR");
    if (dir[0]) return;
    snprintf(dir, sizeof dir, "%s/huggingface-%d", at ? at : "/tmp", (int)getpid());
    demand(mkdir(dir, 0777) == 0);
    write_file("model.safetensors", "\2\0\0\0\0\0\0\0{}", 10);
}

/* The sizes of config.json, as a session reads them. */
static void check_sizes(void) {
    const tr_model_t *model = NULL;
    tr_config_t *config = NULL;
    char init[600];
    int64_t context, vocab_size;
    demand(tr_model_find("gpt", &model) == TR_OK);
    const tr_config_table_t *const tables[] = {&tr_model_config, model->config};
    demand(tr_config_create(tables, 2, &config) == TR_OK);
    snprintf(init, sizeof init, "model.init=%s", dir);
    demand(tr_config_set(config, "model.type=gpt", "fuzz") == TR_OK);
    demand(tr_config_set(config, init, "fuzz") == TR_OK);
    const tr_status_t status = tr_hf_configure(config);
    demand(status == TR_OK || status == TR_ERR_DATA || status == TR_ERR_CONFIG);
    if (status == TR_OK && tr_config_check(config) == TR_OK)
        model->tokens(config, &context, &vocab_size);
    tr_config_destroy(&config);
}

static void check_folder(void) {
    tr_safetensors_t *weights = NULL;
    tr_preprocess_t *data = NULL;
    tr_tokenizer_t *tokenizer = NULL;
    char *state = NULL;
    if (tr_hf_open(dir, &weights, &state) == TR_OK &&
        tr_state_preprocess(state, dir, &data) == TR_OK && data && data->tokenizer) {
        demand(tr_tokenizer_from_json(data->tokenizer, dir, &tokenizer) == TR_OK);
        tr_tokenizer_destroy(&tokenizer);
    }
    tr_preprocess_destroy(&data);
    tr_safetensors_close(&weights);
    tr_free(&state);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
    static const char *const names[] = {"config.json", "tokenizer.json",
                                        "model.safetensors.index.json"};
    const int64_t live = tr_mem_stats().live;
    make_folder();
    for (int i = 0; i < 3; i++) {
        const uint8_t *end = memchr(data, 0, size);
        const size_t count = end && i < 2 ? (size_t)(end - data) : size;
        write_file(names[i], data, count);
        data += count + (end && i < 2), size -= count + (end && i < 2);
    }
    check_sizes();
    check_folder();
    demand(tr_mem_stats().live == live);
    return 0;
}
