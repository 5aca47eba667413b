/* sequential: the layers of model.layers, one after the other, on the field x of the batch. */
#include "layer_int.h"
#include <string.h>

typedef struct {
    const char *layers;
} sequential_t;

static const tr_config_field_t fields[] = {
    TR_FIELD_STRING(sequential_t, layers, "",
                    "Layers of a sequential model, separated by commas or new lines: \"conv 32 5x5 "
                    "pad=same, batchnorm, relu, maxpool 2, globalpool, linear 10\". `trainer help "
                    "layers` lists them."),
};
static const tr_config_table_t config_table = {"model", fields, TR_COUNT(fields),
                                               sizeof(sequential_t)};

static tr_status_t find_x(const tr_model_batch_t *batch, tr_tensor_t *out) {
    for (int i = 0; i < batch->count; i++) {
        if (strcmp(batch->name[i], "x") != 0) continue;
        *out = batch->tensor[i];
        return TR_OK;
    }
    return TR_FAIL(TR_ERR_CONFIG, "model.type = sequential requires a field x in the data set; "
                                  "this one has none: set data.x.");
}

/* 0: none but the layers with recompute=yes. */
static tr_status_t model_sequential_read_recompute(const char *text, int64_t *out) {
    *out = 0;
    if (strcmp(text, "none") == 0 || (tr_parse_int(text, out) && *out >= 1)) return TR_OK;
    return TR_FAIL(TR_ERR_CONFIG,
                   "model.recompute: expected none or a number of layers from 1, found '%s' "
                   "(attention, block and a list are for type = gpt; here a layer of model.layers "
                   "takes recompute=yes)",
                   text);
}

static tr_status_t model_sequential_build(tr_graph_t *g, const tr_config_t *config,
                                          const tr_model_batch_t *batch, tr_model_result_t *out) {
    sequential_t settings;
    tr_model_settings_t common;
    struct tr_layer_recompute recompute = {0};
    tr_layer_spec_t *specs;
    int count;
    tr_tensor_t x;
    tr_config_read(config, &config_table, &settings);
    tr_config_read(config, &tr_model_config, &common);
    TR_TRY(find_x(batch, &x));
    TR_TRY(model_sequential_read_recompute(common.recompute, &recompute.every));
    TR_TRY(tr_layers_parse(settings.layers, &specs, &count));
    if (count == 0)
        return TR_FAIL(TR_ERR_CONFIG,
                       "model.layers is empty; it needs at least one layer, for example: "
                       "layers = flatten, linear 256, relu, linear 10");
    tr_layer_context_t context = {
        .g = g, .batch = batch, .freeze = common.freeze, .recompute = &recompute};
    tr_status_t status = tr_layers_build(&context, specs, count, x, &x);
    tr_layers_recompute_end(&context);
    tr_layers_free(&specs, count);
    TR_TRY(status);
    return tr_model_loss(g, config, batch, x, out);
}

extern const tr_model_t tr_model_sequential;
const tr_model_t tr_model_sequential = {
    .name = "sequential",
    .help = "A sequence of layers, listed in model.layers.",
    .config = &config_table,
    .build = model_sequential_build,
};
