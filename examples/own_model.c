/*
 * Trains a model that is a C function: it appends ops to a program, and gradients follow from them.
 *
 *     cc own_model.c $(pkg-config --cflags --libs trainer) -o own_model
 *     mpirun -np 2 ./own_model CONFIG.ini [section.key=value ...]
 *
 * CONFIG.ini is as for the command `trainer`, with type = surrogate in [model] and a data set of
 * features: x (B, F), y labels or numbers.
 */
#include <trainer.h>

#include <math.h>
#include <stdio.h>

/* -- the model: model.depth residual blocks of width model.width ------------------------------- */

typedef struct {
    int64_t width, depth;
} surrogate_t;

static const tr_config_field_t keys[] = {
    TR_FIELD_INT(surrogate_t, width, "64", 1, 65536, "surrogate: width of the hidden layers."),
    TR_FIELD_INT(surrogate_t, depth, "2", 0, 1000, "surrogate: residual blocks."),
};
static const tr_config_table_t key_table = TR_CONFIG_TABLE("model", keys, surrogate_t);

/* x (B, F) -> act(x w^T + b) (B, features), with parameters NAME.weight and NAME.bias */
static tr_status_t dense(tr_graph_t *g, const char *name, tr_tensor_t x, int64_t features,
                         tr_act_t act, tr_tensor_t *out) {
    const int64_t inputs = tr_shape_of(g, x)->dim[1];
    const tr_init_t init = {TR_INIT_UNIFORM, 1 / sqrt((double)inputs)};
    const tr_param_spec_t matrix = {init, .trainable = true, .decay = true, .lr_factor = 1},
                          vector = {init, .trainable = true, .decay = false, .lr_factor = 1};
    tr_tensor_t w, b;
    tr_scope_push(g, name);
    TR_TRY(tr_param(g, "weight", &TR_SHAPE(features, inputs), &matrix, &w));
    TR_TRY(tr_param(g, "bias", &TR_SHAPE(features), &vector, &b));
    TR_TRY(tr_linear(g, x, w, b, act, out));
    tr_scope_pop(g);
    return TR_OK;
}

static tr_status_t build(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                         tr_model_result_t *out) {
    surrogate_t settings;
    tr_tensor_t h, inner;
    tr_config_read(config, &key_table, &settings);
    TR_TRY(dense(g, "first", batch->tensor[0], settings.width, TR_ACT_RELU, &h)); /* field 0 is x */
    for (int64_t i = 0; i < settings.depth; i++) {
        char name[32];
        snprintf(name, sizeof name, "block%lld", (long long)i + 1);
        TR_TRY(dense(g, name, h, settings.width, TR_ACT_RELU, &inner));
        TR_TRY(tr_add(g, h, inner, TR_ACT_NONE, &h));
    }
    TR_TRY(dense(g, "last", h, batch->classes > 0 ? batch->classes : 1, TR_ACT_NONE, &h));
    /* by model.loss: cross-entropy for labels, the mean squared error for numbers */
    return tr_model_loss(g, config, batch, h, out);
}

static const tr_model_t surrogate = {.name = "surrogate",
                                     .help = "Residual blocks of linear layers.",
                                     .config = &key_table,
                                     .build = build};

/* -- training ---------------------------------------------------------------------------------- */

static tr_status_t train(tr_world_t *world, int count, char **arguments) {
    const tr_config_table_t *const *tables;
    size_t table_count;
    tr_config_t *config = NULL;
    TR_TRY(tr_model_register(&surrogate)); /* first: its keys are among all tables */
    TR_TRY(tr_all_tables(&tables, &table_count));
    TR_TRY(tr_config_create(tables, table_count, &config));
    TR_TRY(tr_config_load_file(config, arguments[0]));
    for (int i = 1; i < count; i++) TR_TRY(tr_config_set(config, arguments[i], "command line"));
    TR_TRY(tr_config_check(config));
    const tr_train_params_t params = {.config_path = arguments[0], .version = "own_model 1"};
    TR_TRY(tr_train(config, world, &params));
    tr_config_destroy(&config);
    return TR_OK;
}

int main(int argc, char **argv) {
    tr_world_t *world = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: own_model CONFIG.ini [section.key=value ...]\n");
        return TR_ERR_USAGE;
    }
    tr_status_t status = tr_world_open(NULL, &world); /* NULL: all ranks; initialises MPI */
    if (status == TR_OK) {
        const tr_world_info_t *info = tr_world_info(world);
        tr_log_set_rank(info->rank, info->size, info->host);
        status = train(world, argc - 1, argv + 1);
    }
    if (status != TR_OK) { /* other ranks may be waiting for this one: end them */
        fprintf(stderr, "own_model: %s\n", tr_error_last()->message);
        if (world) tr_world_abort(world, status);
        return status;
    }
    tr_world_close(&world); /* finalizes MPI */
    return 0;
}
