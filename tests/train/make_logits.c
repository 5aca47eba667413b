/*
 * make_logits MODEL.safetensors IDS SETTING... >LOGITS: the logits (T, V), floats, of the model gpt
 * for the tokens in the file IDS, 32-bit numbers. SETTINGs are model.n_layer=2 and the like, with
 * vocab_size.
 */
#include "../support/tensor_data.h"
#include "device/device.h"
#include "graph/program.h"
#include "base/mem.h"
#include "model/model.h"
#include "trainer/ops.h"

#include <stdio.h>
#include <stdlib.h>

#define MUST(expr)                                                                                 \
    do {                                                                                           \
        if ((expr) != TR_OK) {                                                                     \
            fprintf(stderr, "make_logits: %s\n", tr_error_last()->message);                        \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)
enum { MOST_TOKENS = 4096 };

static tr_config_t *read_settings(int count, char **settings) {
    const tr_model_t *gpt;
    tr_config_t *config = NULL;
    MUST(tr_model_find("gpt", &gpt));
    MUST(
        tr_config_create((const tr_config_table_t *[]){&tr_model_config, gpt->config}, 2, &config));
    MUST(tr_config_set(config, "model.type=gpt", "test"));
    for (int i = 0; i < count; i++) MUST(tr_config_set(config, settings[i], "argument"));
    MUST(tr_config_check(config));
    return config;
}

static void load(tr_graph_t *g, const char *path) {
    tr_safetensors_t *file;
    MUST(tr_safetensors_open(path, &file));
    for (int32_t id = 1; id <= tr_graph_tensor_count(g); id++) {
        const tr_tensor_t t = {id};
        if (!tr_is_param(g, t)) continue;
        const tr_named_tensor_t *from = tr_safetensors_find(file, tr_tensor_info(g, t)->name);
        if (!from || !tr_shape_equal(&from->shape, tr_shape_of(g, t))) {
            fprintf(stderr, "make_logits: no %s of that shape\n", tr_tensor_info(g, t)->name);
            exit(1);
        }
        void *data = tensor_data(from);
        MUST(tr_tensor_write(g, t, data));
        free(data);
    }
    tr_safetensors_close(&file);
}

static void write_logits(tr_graph_t *g, int program, tr_tensor_t logits) {
    const int64_t count = tr_shape_elems(tr_shape_of(g, logits));
    float *values = NULL;
    MUST(tr_alloc((size_t)count * sizeof *values, "logits", &values));
    MUST(tr_program_run(g, program, NULL));
    MUST(tr_tensor_read(g, logits, values));
    if (fwrite(values, sizeof *values, (size_t)count, stdout) != (size_t)count) exit(1);
    tr_free(&values);
}

int main(int argc, char **argv) {
    static int32_t ids[MOST_TOKENS];
    tr_device_t *device = NULL;
    tr_graph_t *g = NULL;
    tr_model_batch_t batch = {.count = 1, .name = {"x"}, .dtype = TR_F32};
    tr_model_result_t result;
    int program;
    FILE *file = argc > 3 ? fopen(argv[2], "rb") : NULL;
    if (!file) return 2;
    const int64_t T = (int64_t)fread(ids, sizeof *ids, MOST_TOKENS, file);
    fclose(file);
    tr_config_t *config = read_settings(argc - 3, argv + 3);
    MUST(tr_device_open("cpu", &(tr_device_params_t){.threads = 1}, &device));
    MUST(tr_graph_create(device, &g));
    MUST(tr_program_begin(g, "logits", TR_EVAL, &program));
    MUST(tr_input(g, "x", TR_I32, &TR_SHAPE(1, T), &batch.tensor[0]));
    MUST(tr_input(g, "sample_id", TR_I64, &TR_SHAPE(1), &batch.sample_id));
    MUST(tr_input(g, "weight", TR_F32, &TR_SHAPE(1), &batch.weight));
    MUST(tr_model_build(g, config, &batch, &result));
    MUST(tr_keep(g, result.output));
    MUST(tr_program_end(g));
    MUST(tr_graph_plan(g, 0));
    MUST(tr_graph_allocate(g));
    load(g, argv[1]);
    MUST(tr_tensor_write(g, batch.tensor[0], ids));
    write_logits(g, program, result.output);
    tr_graph_destroy(&g);
    tr_device_close(&device);
    tr_config_destroy(&config);
    return 0;
}
