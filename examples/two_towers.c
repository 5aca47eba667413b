/*
 * Trains a model with two inputs: a tower of layers for each, and the product of their outputs.
 *
 *     mpicc two_towers.c $(pkg-config --cflags --libs trainer) -o two_towers
 *     mpirun -np 2 ./two_towers FOLDER [section.key=value ...]
 *
 * The network learns whether a user likes an item. The program then evaluates what was trained and
 * predicts three pairs from memory.
 */
#include <trainer.h>

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { USER = 6, ITEM = 4, WIDTH = 8 };

/* -- the data set: fields user (6), item (4) and y (1) ----------------------------------------- */

static const int64_t samples[] = {
    [TR_SPLIT_TRAIN] = 8192, [TR_SPLIT_VALID] = 1024, [TR_SPLIT_TEST] = 0};

typedef struct {
    tr_dataset_t base; /* must be the first member */
    int64_t first;     /* the splits are different parts of one sequence */
} pairs_t;

/* Number k of a sequence, from -1 to 1. */
static float number(int64_t k) {
    return (float)(2 * fmod((double)k * 0.6180339887498949, 1) - 1);
}

/* 1 if the user likes the item. */
static float likes(const float user[USER], const float item[ITEM]) {
    return (user[0] - user[1]) * item[0] + (user[2] + user[3]) * item[1] > 0;
}

static void make_pair(int64_t n, float user[USER], float item[ITEM]) {
    for (int i = 0; i < USER; i++) user[i] = number(n * n * (i + 3) + 11 * n + i);
    for (int i = 0; i < ITEM; i++) item[i] = number(n * n * (i + 17) + 29 * n + i);
}

static tr_status_t pairs_open(const tr_data_settings_t *settings, tr_split_t split,
                              tr_dataset_t **out) {
    (void)settings;
    if (samples[split] == 0) return TR_OK; /* no such split: *out stays NULL */
    pairs_t *self = calloc(1, sizeof *self);
    if (!self) return TR_FAIL(TR_ERR_MEMORY, "not enough memory for the pairs");
    self->first = split == TR_SPLIT_TRAIN ? 0 : samples[TR_SPLIT_TRAIN];
    tr_dataset_info_t *info = &self->base.info;
    info->samples = samples[split];
    info->read_unit = 1;
    info->field_count = 3;
    info->field[0] =
        (tr_field_t){"user", TR_F32, TR_SHAPE(USER), USER * sizeof(float), TR_FIELD_VALUES};
    info->field[1] =
        (tr_field_t){"item", TR_F32, TR_SHAPE(ITEM), ITEM * sizeof(float), TR_FIELD_VALUES};
    info->field[2] = (tr_field_t){"y", TR_F32, TR_SHAPE(1), sizeof(float), TR_FIELD_VALUES};
    info->fingerprint = (uint64_t)samples[split] << 8 | split;
    snprintf(info->description, sizeof info->description, "pairs of users and items");
    *out = &self->base;
    return TR_OK;
}

static void pairs_close(tr_dataset_t *dataset) {
    free(dataset); /* its first member is at the address of the whole */
}

static tr_status_t pairs_read(tr_dataset_t *dataset, int64_t first, int64_t count,
                              void *const *dst) {
    const pairs_t *self = (const pairs_t *)dataset;
    float *users = dst[0], *items = dst[1], *y = dst[2]; /* NULL: not requested */
    for (int64_t i = 0; i < count; i++) {
        float user[USER], item[ITEM];
        make_pair(self->first + first + i, user, item);
        if (users) memcpy(users + i * USER, user, sizeof user);
        if (items) memcpy(items + i * ITEM, item, sizeof item);
        if (y) y[i] = likes(user, item);
    }
    return TR_OK;
}

static const tr_dataset_ops_t pairs = {.name = "pairs",
                                       .help = "Users and items.",
                                       .open = pairs_open,
                                       .close = pairs_close,
                                       .read = pairs_read};

/* -- the model --------------------------------------------------------------------------------- */

/* The field `name` -> (B, 1, WIDTH). */
static tr_status_t tower(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                         const char *name, tr_tensor_t *out) {
    const tr_tensor_t *field = batch->tensor;
    tr_tensor_t h;
    while (strcmp(batch->name[field - batch->tensor], name) != 0) field++;
    tr_scope_push(g, name);                       /* its parameters are NAME.linear1.weight, ... */
    TR_TRY(tr_cast(g, *field, batch->dtype, &h)); /* only x is cast before the model */
    TR_TRY(tr_layers_append(g, config, batch, "linear 32, relu, linear 8", h, &h));
    TR_TRY(tr_reshape(g, h, &TR_SHAPE(tr_shape_of(g, h)->dim[0], 1, WIDTH), out));
    tr_scope_pop(g);
    return TR_OK;
}

static tr_status_t build(tr_graph_t *g, const tr_config_t *config, const tr_model_batch_t *batch,
                         tr_model_result_t *out) {
    const tr_matmul_attr_t dot = {.trans_b = true}; /* (B, 1, WIDTH) (B, WIDTH, 1) */
    tr_tensor_t user, item, score;
    TR_TRY(tower(g, config, batch, "user", &user));
    TR_TRY(tower(g, config, batch, "item", &item));
    TR_TRY(tr_matmul(g, user, item, &dot, &score));
    TR_TRY(tr_reshape(g, score, &TR_SHAPE(tr_shape_of(g, score)->dim[0], 1), &score));
    return tr_model_loss(g, config, batch, score, out); /* without y, the prediction alone */
}

static const tr_model_t two_towers = {
    .name = "two_towers", .help = "A tower for users and one for items.", .build = build};

/* -- training, evaluation, prediction ---------------------------------------------------------- */

static const char defaults[] = "[model]\ntype = two_towers\nloss = binary_cross_entropy\n"
                               "[data]\nformat = pairs\nbatch_size = 128\nmicro_batch = 32\n"
                               "[optimizer]\nlr = 0.01\n"
                               "[schedule]\ntype = cosine\n"
                               "[train]\nepochs = 5\n"
                               "[log]\nevery = 320\n";

static tr_status_t configure(const char *folder, int count, char **assignments,
                             tr_config_t **config) {
    const tr_config_table_t *const *tables;
    size_t table_count;
    char text[4096];
    TR_TRY(tr_all_tables(&tables, &table_count));
    TR_TRY(tr_config_create(tables, table_count, config));
    TR_TRY(tr_config_load_text(*config, "two_towers.c", defaults, strlen(defaults)));
    snprintf(text, sizeof text, "run.dir=%s", folder);
    TR_TRY(tr_config_set(*config, text, "two_towers.c"));
    for (int i = 0; i < count; i++) TR_TRY(tr_config_set(*config, assignments[i], "command line"));
    return tr_config_check(*config);
}

/* Evaluates and predicts with the weights of the run. */
static tr_status_t use(const tr_config_t *config, tr_world_t *world) {
    enum { PAIRS = 3 };
    const char *run = tr_config_get(config, "run.dir");
    float user[PAIRS][USER], item[PAIRS][ITEM], probability[PAIRS];
    const void *const fields[] = {user, item}; /* in the order of the data set */
    tr_scores_t scores;
    tr_predictor_t *predictor = NULL;
    for (int i = 0; i < PAIRS; i++) make_pair(20003 + i, user[i], item[i]);
    TR_TRY(tr_evaluate(config, world, run, TR_SPLIT_VALID, &scores));
    TR_TRY(tr_predictor_open(config, world, run, &predictor));
    const tr_predictor_info_t *info = tr_predictor_info(predictor);
    TR_TRY(tr_predictor_run_fields(predictor, fields, PAIRS, probability));
    if (tr_world_info(world)->rank == 0) {
        printf("loss %.4f\n", scores.loss);
        for (int f = 0; f < info->field_count; f++) printf("input %s\n", info->field[f].name);
        for (int i = 0; i < PAIRS; i++)
            printf("pair %d: probability %.3f, likes %g\n", i, probability[i],
                   likes(user[i], item[i]));
    }
    tr_predictor_close(&predictor);
    return TR_OK;
}

static tr_status_t run(tr_world_t *world, const char *folder, int count, char **assignments) {
    tr_config_t *config = NULL;
    TR_TRY(tr_dataset_register(&pairs));
    TR_TRY(tr_model_register(&two_towers));
    TR_TRY(configure(folder, count, assignments, &config));
    const tr_train_params_t params = {.config_path = "two_towers", .version = "two_towers 1"};
    TR_TRY(tr_train(config, world, &params));
    TR_TRY(use(config, world));
    tr_config_destroy(&config);
    return TR_OK;
}

int main(int argc, char **argv) {
    tr_world_t *world = NULL;
    if (argc < 2) {
        fprintf(stderr, "usage: two_towers FOLDER [section.key=value ...]\n");
        return TR_ERR_USAGE;
    }
    tr_status_t status = tr_world_open(NULL, &world); /* NULL: all ranks; initialises MPI */
    if (status == TR_OK) {
        const tr_world_info_t *info = tr_world_info(world);
        tr_log_set_rank(info->rank, info->size, info->host);
        status = run(world, argv[1], argc - 2, argv + 2);
    }
    if (status != TR_OK) { /* other ranks may be waiting for this one: end them */
        fprintf(stderr, "two_towers: %s\n", tr_error_last()->message);
        if (world) tr_world_abort(world, status);
        return status;
    }
    tr_world_close(&world); /* finalizes MPI */
    return 0;
}
