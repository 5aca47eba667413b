/*
 * Trains a network on data that the program computes itself: a simulation is a data set.
 *
 *     mpicc own_dataset.c $(pkg-config --cflags --libs trainer) -o own_dataset
 *     mpirun -np 2 ./own_dataset FOLDER [section.key=value ...]
 *
 * The network learns the angles of a damped pendulum at four times from its first angle and its
 * damping. The program then evaluates what was trained and predicts two samples from memory.
 */
#include <trainer.h>

#include <math.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
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
    (void)settings;                        /* the keys of [data]; not needed here */
    if (samples[split] == 0) return TR_OK; /* no such split: *out stays NULL */
    pendulum_t *self = calloc(1, sizeof *self);
    if (!self) return TR_FAIL(TR_ERR_MEMORY, "not enough memory for the pendulum data set");
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
    free(dataset); /* its first member is at the address of the whole */
}

/* A function of the sample's number alone, so that every run and every number of ranks reads the
 * same samples. */
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

/* -- training ---------------------------------------------------------------------------------- */

static const char defaults[] = "[model]\nlayers = linear 64, relu, residual { linear 64, relu }, "
                               "residual { linear 64, relu }, "
                               "linear 4\n"
                               "[data]\nformat = pendulum\nbatch_size = 128\nmicro_batch = 32\n"
                               "[optimizer]\nlr = 0.003\n"
                               "[schedule]\ntype = cosine\n"
                               "[train]\nepochs = 10\n"
                               "[log]\nevery = 320\n";

/* All ranks get the same configuration. */
static tr_status_t configure(const char *folder, int count, char **assignments,
                             tr_config_t **config) {
    const tr_config_table_t *const *tables;
    size_t table_count;
    char text[4096];
    TR_TRY(tr_all_tables(&tables, &table_count));
    TR_TRY(tr_config_create(tables, table_count, config));
    TR_TRY(tr_config_load_text(*config, "own_dataset.c", defaults, strlen(defaults)));
    snprintf(text, sizeof text, "run.dir=%s", folder);
    TR_TRY(tr_config_set(*config, text, "own_dataset.c"));
    for (int i = 0; i < count; i++) TR_TRY(tr_config_set(*config, assignments[i], "command line"));
    return tr_config_check(*config);
}

/* Evaluates and predicts with the weights of the run. */
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

static tr_status_t train(MPI_Comm comm, const char *folder, int count, char **assignments) {
    tr_world_t *world = NULL;
    tr_config_t *config = NULL;
    TR_TRY(tr_dataset_register(&pendulum));
    TR_TRY(tr_world_open(&comm, &world)); /* duplicates comm; MPI stays the program's */
    const tr_world_info_t *info = tr_world_info(world);
    tr_log_set_rank(info->rank, info->size, info->host);
    TR_TRY(configure(folder, count, assignments, &config));
    const tr_train_params_t params = {.config_path = "own_dataset", .version = "own_dataset 1"};
    TR_TRY(tr_train(config, world, &params));
    TR_TRY(use(config, world));
    tr_config_destroy(&config);
    tr_world_close(&world);
    return TR_OK;
}

int main(int argc, char **argv) {
    int level, rank;
    /* With SERIALIZED a thread of the library reduces gradients while this one computes; with less
     * this thread polls. */
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    MPI_Comm comm = MPI_COMM_WORLD; /* or a part of it: MPI_Comm_split */
    MPI_Comm_rank(comm, &rank);
    if (argc < 2) {
        if (rank == 0) fprintf(stderr, "usage: own_dataset FOLDER [section.key=value ...]\n");
        MPI_Finalize();
        return TR_ERR_USAGE;
    }
    const tr_status_t status = train(comm, argv[1], argc - 2, argv + 2);
    if (status != TR_OK) { /* other ranks may be waiting for this one: end them */
        fprintf(stderr, "own_dataset: rank %d: %s\n", rank, tr_error_last()->message);
        MPI_Abort(MPI_COMM_WORLD, (int)status);
    }
    MPI_Finalize();
    return 0;
}
