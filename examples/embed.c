/*
 * A program that trains a network in its own processes on data that it computes itself. It registers
 * a data set and a model and calls tr_train on its own communicators. docs/embedding.md explains it.
 *
 *     mpicc embed.c $(pkg-config --cflags --libs trainer) -o embed
 *     mpirun -np 4 ./embed FOLDER [section.key=value ...]
 *
 * The network learns the angles of a damped pendulum at four times from its first angle and its
 * damping. The ranks split into two halves; each half trains one member of an ensemble with its own
 * seed, evaluates it, and predicts two samples from memory.
 */
#include <trainer/data.h>
#include <trainer/model.h>
#include <trainer/infer.h>
#include <trainer/log.h>
#include <trainer/session.h>
#include <trainer/train.h>

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

/* -- the simulation ---------------------------------------------------------------------------- */

enum { INPUTS = 2, TIMES = 4, STEPS = 100 };

/* Angles at times 1 to 4 of angle'' = -damping angle' - sin(angle), starting at rest
 * (semi-implicit Euler). */
static void simulate(double angle, double damping, float out[TIMES]) {
    const double dt = 1.0 / STEPS;
    double speed = 0;
    for (int t = 0; t < TIMES; t++) {
        for (int i = 0; i < STEPS; i++) {
            speed -= dt * (damping * speed + sin(angle));
            angle += dt * speed;
        }
        out[t] = (float)angle;
    }
}

/* -- the data set: sample i is simulated when it is read, by any thread of any rank ------------ */

static const int64_t samples[] = {
    [TR_SPLIT_TRAIN] = 8192, [TR_SPLIT_VALID] = 1024, [TR_SPLIT_TEST] = 0};

typedef struct {
    tr_dataset_t base; /* must be the first member */
    int64_t first;     /* the splits are different parts of one sequence */
} pendulum_t;

static tr_status_t pendulum_open(const tr_data_settings_t *settings, tr_split_t split,
                                 tr_dataset_t **out) {
    pendulum_t *self = NULL;
    (void)settings;                        /* the keys of [data]; not needed here */
    if (samples[split] == 0) return TR_OK; /* no such split: *out stays NULL */
    TR_TRY(tr_alloc(sizeof *self, "pendulum data set", &self));
    self->first = split == TR_SPLIT_TRAIN ? 0 : samples[TR_SPLIT_TRAIN];
    tr_dataset_info_t *info = &self->base.info;
    info->samples = samples[split];
    info->read_unit = 1;
    info->field_count = 2;
    info->field[0] =
        (tr_field_t){"x", TR_F32, TR_SHAPE(INPUTS), INPUTS * sizeof(float), TR_FIELD_VALUES};
    info->field[1] =
        (tr_field_t){"y", TR_F32, TR_SHAPE(TIMES), TIMES * sizeof(float), TR_FIELD_VALUES};
    info->fingerprint = (uint64_t)samples[split] << 8 | split;
    snprintf(info->description, sizeof info->description, "pendulum, simulated on the fly");
    *out = &self->base;
    return TR_OK;
}

static void pendulum_close(tr_dataset_t *dataset) {
    pendulum_t *self = (pendulum_t *)dataset;
    tr_free(&self);
}

/* A function of the sample's number alone, so that every run, rank count and member reads the same
 * samples. */
static tr_status_t pendulum_read(tr_dataset_t *dataset, int64_t first, int64_t count,
                                 void *const *dst) {
    const pendulum_t *self = (const pendulum_t *)dataset;
    float *x = dst[0], *y = dst[1]; /* NULL: not requested */
    for (int64_t i = 0; i < count; i++) {
        const double n = (double)(self->first + first + i);
        const double angle = 6 * fmod(n * 0.7548776662466927, 1) - 3,
                     damping = fmod(n * 0.5698402909980532, 1);
        if (x) x[i * INPUTS] = (float)angle, x[i * INPUTS + 1] = (float)damping;
        if (y) simulate(angle, damping, y + i * TIMES);
    }
    return TR_OK;
}

static const tr_dataset_ops_t pendulum = {.name = "pendulum",
                                          .help = "A damped pendulum.",
                                          .open = pendulum_open,
                                          .close = pendulum_close,
                                          .read = pendulum_read};

/* -- the model: model.depth residual blocks of width model.width ------------------------------- */

typedef struct {
    int64_t width, depth;
} surrogate_t;

static const tr_config_field_t keys[] = {
    TR_FIELD_INT(surrogate_t, width, "64", 1, 65536, "surrogate: width of the hidden layers."),
    TR_FIELD_INT(surrogate_t, depth, "2", 0, 1000, "surrogate: residual blocks."),
};
static const tr_config_table_t key_table = {"model", keys, TR_COUNT(keys), sizeof(surrogate_t)};

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
    TR_TRY(dense(g, "last", h, TIMES, TR_ACT_NONE, &h));
    /* by model.loss; y are numbers: the mean squared error */
    return tr_model_loss(g, config, batch, h, out);
}

static const tr_model_t surrogate = {.name = "surrogate",
                                     .help = "Residual blocks of linear layers.",
                                     .config = &key_table,
                                     .build = build};

/* -- training ---------------------------------------------------------------------------------- */

static const char defaults[] = "[model]\ntype = surrogate\n"
                               "[data]\nformat = pendulum\nbatch_size = 128\nmicro_batch = 32\n"
                               "[optimizer]\nlr = 0.003\n"
                               "[schedule]\ntype = cosine\n"
                               "[train]\nepochs = 10\n"
                               "[log]\nevery = 320\n";

/* All ranks of a member get the same configuration. */
static tr_status_t configure(const char *folder, int member, int count, char **assignments,
                             tr_config_t **config) {
    const tr_config_table_t *const *tables;
    size_t table_count;
    char text[4096];
    TR_TRY(
        /* after tr_model_register: the model's keys are among them */
        tr_all_tables(&tables, &table_count));
    TR_TRY(tr_config_create(tables, table_count, config));
    TR_TRY(tr_config_load_text(*config, "embed.c", defaults, strlen(defaults)));
    snprintf(text, sizeof text, "run.dir=%s/member%d", folder, member);
    TR_TRY(tr_config_set(*config, text, "embed.c"));
    snprintf(text, sizeof text, "train.seed=%d", 1 + member);
    TR_TRY(tr_config_set(*config, text, "embed.c"));
    for (int i = 0; i < count; i++) TR_TRY(tr_config_set(*config, assignments[i], "command line"));
    return tr_config_check(*config);
}

/* -- using what was trained -------------------------------------------------------------------- */

static tr_status_t use(const tr_config_t *config, tr_world_t *world) {
    const char *run = tr_config_get(config, "run.dir");
    const float x[][INPUTS] = {{1, 0.1f}, {-2, 0.5f}}; /* angle, damping */
    float predicted[2][TIMES], simulated[TIMES];
    tr_scores_t scores;
    tr_predictor_t *predictor = NULL;
    TR_TRY(tr_evaluate(config, world, run, TR_SPLIT_VALID, &scores));
    TR_TRY(tr_predictor_open(config, world, run, &predictor));
    TR_TRY(tr_predictor_run(predictor, x, 2, &predicted[0][0]));
    tr_predictor_close(&predictor);
    if (tr_world_info(world)->rank > 0) return TR_OK;
    printf("seed %s: R2 %.4f\n", tr_config_get(config, "train.seed"), scores.r2);
    for (int i = 0; i < 2; i++) {
        simulate(x[i][0], x[i][1], simulated);
        printf("angle %g, damping %g: predicted %.3f, simulated %.3f at time %d\n", x[i][0],
               x[i][1], predicted[i][TIMES - 1], simulated[TIMES - 1], TIMES);
    }
    return TR_OK;
}

static tr_status_t train(MPI_Comm comm, const char *folder, int member, int count,
                         char **assignments) {
    tr_world_t *world = NULL;
    tr_config_t *config = NULL;
    TR_TRY(tr_model_register(&surrogate));
    TR_TRY(tr_dataset_register(&pendulum));
    TR_TRY(tr_world_open(&comm, &world)); /* duplicates comm; MPI stays the program's */
    const tr_world_info_t *info = tr_world_info(world);
    tr_log_set_rank(info->rank, info->size, info->host);
    if (member > 0) tr_log_set_level(TR_LOG_WARN); /* one member's log is enough */
    TR_TRY(configure(folder, member, count, assignments, &config));
    const tr_train_params_t params = {.config_path = "embed", .version = "embed 1"};
    TR_TRY(tr_train(config, world, &params));
    TR_TRY(use(config, world));
    tr_config_destroy(&config);
    tr_world_close(&world);
    return TR_OK;
}

int main(int argc, char **argv) {
    int level, rank, size;
    MPI_Comm half;
    /* With SERIALIZED a thread of the library reduces gradients while this one computes; with less
     * this thread polls. */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 2) {
        if (rank == 0) fprintf(stderr, "usage: embed FOLDER [section.key=value ...]\n");
        MPI_Finalize();
        return TR_ERR_USAGE;
    }
    const int member = rank >= (size + 1) / 2;
    MPI_Comm_split(MPI_COMM_WORLD, member, rank, &half);
    const tr_status_t status = train(half, argv[1], member, argc - 2, argv + 2);
    if (status != TR_OK) { /* other ranks may be waiting for this one: end them */
        fprintf(stderr, "embed: rank %d: %s\n", rank, tr_error_last()->message);
        MPI_Abort(MPI_COMM_WORLD, (int)status);
    }
    MPI_Comm_free(&half);
    MPI_Finalize();
    return 0;
}
